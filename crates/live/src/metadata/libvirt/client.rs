//! libvirt's connections and domains. Its domains hold their connection, which is closed after the last of them
//! (`virGetDomain` in libvirt's `src/datatypes.c`).
#![allow(unsafe_code, reason = "calls functions of C")]

use super::loader::{BlockJobInfo, ControlInfo, DiskError, Functions, Handle, StatsRecord, TypedParameter, load};
use kvm::sanitize;
use sample::domain_stats::Stats;
use sample::{MAX_STOP_DISKS, StopDisk, StopReason};
use std::ffi::{CStr, CString, c_char, c_int, c_uint};
use std::ptr::null_mut;

/// `VIR_CONNECT_LIST_DOMAINS_ACTIVE`.
const ACTIVE: c_uint = 1;
/// `VIR_DOMAIN_STATS_BALLOON`, `_INTERFACE` and `_BLOCK`.
const DEVICES: c_uint = 1 << 2 | 1 << 4 | 1 << 5;
/// `VIR_CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT`.
const NO_WAIT: c_uint = 1 << 29;
/// `VIR_DOMAIN_QEMU_MONITOR_COMMAND_HMP`.
const HMP: c_uint = 1;
/// `VIR_DOMAIN_PAUSED`.
const PAUSED: c_int = 3;
/// `VIR_DOMAIN_CRASHED`.
const CRASHED: c_int = 6;
/// `VIR_DOMAIN_PMSUSPENDED`.
const SUSPENDED: c_int = 7;
/// `VIR_DOMAIN_CRASHED_PANICKED`.
const PANICKED: c_int = 1;
/// `VIR_DOMAIN_DISK_ERROR_NO_SPACE`.
const NO_SPACE: c_int = 2;
/// `VIR_DOMAIN_CONTROL_OK`.
const CONTROL_OK: c_uint = 0;
/// `VIR_DOMAIN_PAUSED_POSTCOPY`: the guest runs on the other host.
const POSTCOPY: c_int = 12;
/// `VIR_DOMAIN_PAUSED_POSTCOPY_FAILED`.
const POSTCOPY_FAILED: c_int = 13;
/// `VIR_DOMAIN_JOB_NONE`.
const NO_JOB: c_int = 0;
/// `VIR_DOMAIN_BLOCK_JOB_INFO_BANDWIDTH_BYTES`.
const BYTES: c_uint = 1;
/// `VIR_UUID_STRING_BUFLEN`.
const UUID_LENGTH: usize = 37;
/// At most this many domains of one host are read.
const MAX_DOMAINS: usize = 4096;
/// At most this many statistics of one domain are read.
const MAX_STATS: usize = 65_536;

/// An error of libvirt: `virErrorNumber` and its sentence, cleaned.
pub struct LibvirtError {
    pub number: c_int,
    pub message: String,
}

/// The last error of this thread.
fn last_error(libvirt: &Functions) -> LibvirtError {
    // SAFETY: the text is libvirt's own until the thread's next call, and is copied before.
    unsafe {
        let message = copied((libvirt.virGetLastErrorMessage)()).unwrap_or_default();
        LibvirtError { number: (libvirt.virGetLastErrorCode)(), message: sanitize(&message, 200) }
    }
}

/// Copies a text of C.
///
/// # Safety
/// The pointer is null or points to bytes that end with NUL.
unsafe fn copied(text: *const c_char) -> Option<String> {
    // SAFETY: as above.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// Takes a text that libvirt made for its caller.
///
/// # Safety
/// The pointer is null or a text of C that nobody else frees.
unsafe fn taken(text: *mut c_char) -> Option<String> {
    // SAFETY: as above.
    unsafe {
        let copy = copied(text);
        libc::free(text.cast());
        copy
    }
}

/// A text for C; none that is asked for has a NUL.
fn c_text(text: &str) -> CString {
    CString::new(text).unwrap_or_default()
}

/// A connection (`virConnectPtr`).
pub struct Connect {
    libvirt: &'static Functions,
    handle: Handle,
}

impl Connect {
    /// Connects to a daemon. Monitor commands need a connection that is not read-only.
    pub fn open(uri: &str, read_only: bool) -> Result<Self, LibvirtError> {
        let libvirt = load().map_err(|why| LibvirtError { number: 0, message: why.clone() })?;
        let open = if read_only { libvirt.virConnectOpenReadOnly } else { libvirt.virConnectOpen };
        // SAFETY: the URI is a text of C.
        let handle = unsafe { open(c_text(uri).as_ptr()) };
        if handle.is_null() { Err(last_error(libvirt)) } else { Ok(Self { libvirt, handle }) }
    }

    /// Whether the daemon still answers on this connection.
    pub fn is_alive(&self) -> bool {
        // SAFETY: the connection is open.
        unsafe { (self.libvirt.virConnectIsAlive)(self.handle) == 1 }
    }

    /// Every running or paused domain.
    pub fn domains(&self) -> Result<Vec<Domain>, LibvirtError> {
        let libvirt = self.libvirt;
        let mut list = null_mut();
        // SAFETY: `list` receives an array of domains that is the caller's.
        unsafe {
            let count = (libvirt.virConnectListAllDomains)(self.handle, &raw mut list, ACTIVE);
            let count = usize::try_from(count).map_err(|_| last_error(libvirt))?;
            let mut all: Vec<_> = (0..count).map(|i| Domain { libvirt, handle: *list.add(i) }).collect();
            libc::free(list.cast());
            all.truncate(MAX_DOMAINS);
            Ok(all)
        }
    }

    /// The domain with this UUID.
    pub fn domain(&self, uuid: &str) -> Result<Domain, LibvirtError> {
        // SAFETY: the UUID is a text of C.
        let handle = unsafe { (self.libvirt.virDomainLookupByUUIDString)(self.handle, c_text(uuid).as_ptr()) };
        if handle.is_null() { Err(last_error(self.libvirt)) } else { Ok(Domain { libvirt: self.libvirt, handle }) }
    }
}

impl Drop for Connect {
    fn drop(&mut self) {
        // SAFETY: the connection is closed once.
        unsafe { (self.libvirt.virConnectClose)(self.handle) };
    }
}

/// A domain (`virDomainPtr`).
pub struct Domain {
    libvirt: &'static Functions,
    handle: Handle,
}

impl Domain {
    /// The domain's name.
    pub fn name(&self) -> Option<String> {
        // SAFETY: the name is the domain's own.
        unsafe { copied((self.libvirt.virDomainGetName)(self.handle)) }
    }

    /// The domain's UUID, in lower case.
    pub fn uuid(&self) -> Option<String> {
        let mut text = [0; UUID_LENGTH];
        // SAFETY: the array has the length that libvirt fills; it stays empty if that fails.
        unsafe {
            (self.libvirt.virDomainGetUUIDString)(self.handle, text.as_mut_ptr());
            copied(text.as_ptr()).filter(|uuid| !uuid.is_empty())
        }
    }

    /// `virDomainState` and its reason; `None` if libvirt does not say.
    fn state(&self) -> Option<(c_int, c_int)> {
        let (mut state, mut reason) = (0, 0);
        // SAFETY: both receive numbers.
        let result = unsafe { (self.libvirt.virDomainGetState)(self.handle, &raw mut state, &raw mut reason, 0) };
        if result == 0 { Some((state, reason)) } else { None }
    }

    /// Why the guest does not run at this moment; `None` if it does, or libvirt does not say. libvirt knows this
    /// without asking QEMU.
    pub fn stop_reason(&self) -> Option<StopReason> {
        let (state, reason) = self.state()?;
        stop_reason(state, reason)
    }

    /// The disks whose requests failed. libvirt asks QEMU.
    pub fn failed_disks(&self) -> Vec<StopDisk> {
        let mut errors = [DiskError { disk: null_mut(), error: 0 }; MAX_STOP_DISKS];
        // SAFETY: libvirt fills in at most as many as there is room for, and returns how many; each name is the
        // caller's.
        unsafe {
            let room = errors.len() as c_uint;
            let count = (self.libvirt.virDomainGetDiskErrors)(self.handle, errors.as_mut_ptr(), room, 0);
            let count = usize::try_from(count).unwrap_or(0);
            let mut disks = Vec::new();
            for error in errors.iter().take(count) {
                let Some(name) = taken(error.disk) else { continue };
                let (name, is_full) = (sanitize(&name, 64), error.error == NO_SPACE);
                disks.push(StopDisk { name, is_full, ..StopDisk::default() });
            }
            disks
        }
    }

    /// The step of a migration to which the domain's state belongs, by QEMU's names.
    pub fn migration_status(&self) -> &'static str {
        match self.state() {
            Some((PAUSED, POSTCOPY)) => "postcopy-active",
            Some((PAUSED, POSTCOPY_FAILED)) => "postcopy-paused",
            _ => "active",
        }
    }

    /// The domain's XML.
    pub fn xml(&self) -> Option<String> {
        // SAFETY: the text is the caller's.
        unsafe { taken((self.libvirt.virDomainGetXMLDesc)(self.handle, 0)) }
    }

    /// Whether the domain is defined, so that it stays after the guest has ended.
    pub fn is_persistent(&self) -> Option<bool> {
        // SAFETY: the domain lives.
        let answer = unsafe { (self.libvirt.virDomainIsPersistent)(self.handle) };
        (answer >= 0).then_some(answer == 1)
    }

    /// The answer to a command of the human monitor (HMP).
    pub fn monitor_command(&self, command: &str) -> Result<String, LibvirtError> {
        let mut answer = null_mut();
        // SAFETY: the command is a text of C; `answer` receives a text that is the caller's, or stays null.
        unsafe {
            (self.libvirt.virDomainQemuMonitorCommand)(self.handle, c_text(command).as_ptr(), &raw mut answer, HMP);
            taken(answer).ok_or_else(|| last_error(self.libvirt))
        }
    }

    /// Whether libvirt works on the domain at this moment, so that a question about its jobs would wait. This one never
    /// does (`qemuDomainGetControlInfo` in libvirt's `src/qemu/qemu_driver.c`).
    pub fn is_busy(&self) -> bool {
        let mut info = ControlInfo::default();
        // SAFETY: `info` is libvirt's record.
        let result = unsafe { (self.libvirt.virDomainGetControlInfo)(self.handle, &raw mut info, 0) };
        result != 0 || info.state != CONTROL_OK
    }

    /// The figures of the job of the whole domain, if it has one. Of a job libvirt asks QEMU.
    pub fn job(&self) -> Option<Stats> {
        let (mut kind, mut count, mut list) = (NO_JOB, 0, null_mut());
        // SAFETY: `list` receives `count` parameters that are the caller's, or stays null; they are freed once, after
        // they have been copied.
        unsafe {
            let (kind_at, list_at, count_at) = (&raw mut kind, &raw mut list, &raw mut count);
            let result = (self.libvirt.virDomainGetJobStats)(self.handle, kind_at, list_at, count_at, 0);
            let job = (result == 0 && kind != NO_JOB)
                .then(|| read_record(&StatsRecord { domain: self.handle, parameters: list, count }));
            (self.libvirt.virTypedParamsFree)(list, count);
            job
        }
    }

    /// The job of a disk, if it has one.
    pub fn block_job(&self, disk: &str) -> Option<BlockJobInfo> {
        let (mut info, disk) = (BlockJobInfo::default(), c_text(disk));
        // SAFETY: the name is a text of C, and `info` is libvirt's record.
        let result =
            unsafe { (self.libvirt.virDomainGetBlockJobInfo)(self.handle, disk.as_ptr(), &raw mut info, BYTES) };
        (result == 1).then_some(info)
    }

    /// The statistics of its disks, network cards and balloon. One domain is asked at a time, because a QEMU that does
    /// not answer would take the answers of all.
    pub fn stats(&self) -> Option<Stats> {
        let mut list = [self.handle, null_mut()];
        let mut records: *mut *mut StatsRecord = null_mut();
        // SAFETY: the list ends with a null pointer, as the one that `records` receives, unless that stays null; it is
        // freed once, after its record has been copied.
        unsafe {
            (self.libvirt.virDomainListGetStats)(list.as_mut_ptr(), DEVICES, &raw mut records, NO_WAIT);
            let read = records.as_ref().and_then(|first| first.as_ref()).map(|record| read_record(record));
            (self.libvirt.virDomainStatsRecordListFree)(records);
            read
        }
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: the domain is freed once.
        unsafe { (self.libvirt.virDomainFree)(self.handle) };
    }
}

/// Why a guest in this state does not run (`virDomainState`, `virDomainPausedReason`).
fn stop_reason(state: c_int, reason: c_int) -> Option<StopReason> {
    match state {
        SUSPENDED => return Some(StopReason::Suspended),
        CRASHED if reason == PANICKED => return Some(StopReason::GuestPanicked),
        CRASHED => return Some(StopReason::Crashed),
        PAUSED => {}
        _ => return None,
    }
    Some(match reason {
        1 => StopReason::User,
        2 | POSTCOPY => StopReason::Migration,
        3 => StopReason::Save,
        4 => StopReason::Dump,
        5 => StopReason::IoError,
        6 => StopReason::Watchdog,
        7 => StopReason::FromSnapshot,
        8 => StopReason::Shutdown,
        9 => StopReason::Snapshot,
        // Of a guest that QEMU keeps after its kernel panicked (`<on_crash>`).
        10 => StopReason::GuestPanicked,
        11 => StopReason::Starting,
        POSTCOPY_FAILED => StopReason::PostcopyFailed,
        14 => StopReason::ApiError,
        // Also after an error of KVM, for which libvirt has no word.
        _ => StopReason::Unknown,
    })
}

/// # Safety
/// A record of libvirt, not yet freed.
unsafe fn read_record(record: &StatsRecord) -> Stats {
    let count = usize::try_from(record.count).unwrap_or(0).min(MAX_STATS);
    // SAFETY: a record holds `count` parameters.
    (0..count).filter_map(|i| unsafe { read_parameter(&*record.parameters.add(i)) }).collect()
}

/// # Safety
/// A parameter of libvirt, not yet freed.
unsafe fn read_parameter(p: &TypedParameter) -> Option<(String, String)> {
    // SAFETY: libvirt ends the name with NUL; `kind` (`virTypedParameterType`) says which member of the union is set.
    unsafe {
        let value = match p.kind {
            1 => p.value.uint.cast_signed().to_string(),
            2 => p.value.uint.to_string(),
            4 => p.value.ullong.to_string(),
            7 => copied(p.value.string)?,
            _ => return None,
        };
        Some((copied(p.field.as_ptr())?, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_of_libvirt() {
        let of = |state, reason| stop_reason(state, reason).map(StopReason::as_str);
        assert_eq!([of(1, 1), of(3, 5), of(3, 10)], [None, Some("io-error"), Some("guest-panicked")]);
        assert_eq!([of(3, 1), of(3, 0), of(3, 99)], [Some("user"), Some("unknown"), Some("unknown")]);
        assert_eq!([of(6, 1), of(6, 0), of(7, 0)], [Some("guest-panicked"), Some("crashed"), Some("suspended")]);
        assert_eq!([of(3, 12), of(3, 13)], [Some("migration"), Some("postcopy-failed")]);
    }

    /// libvirt's own test driver, which is in the library and asks no daemon.
    #[test]
    fn domains_are_read_through_the_library() {
        if let Err(why) = load() {
            return println!("SKIPPED domains_are_read_through_the_library: {why}");
        }
        let connect = Connect::open("test:///default", true).ok().expect("the test driver");
        assert!(connect.is_alive());
        let all = connect.domains().ok().expect("a list");
        let [domain] = all.as_slice() else { panic!("{} domains", all.len()) };
        assert_eq!((domain.name().as_deref(), domain.stop_reason()), (Some("test"), None));
        // That driver makes up an error for each disk.
        let failed = StopDisk { name: "vda".into(), ..StopDisk::default() };
        assert_eq!(domain.failed_disks(), [failed]);
        assert_eq!(domain.is_persistent(), Some(true));
        let uuid = domain.uuid().expect("a UUID");
        assert!(domain.xml().expect("XML").contains(&format!("<uuid>{uuid}</uuid>")));
        assert!(domain.job().is_none() && domain.block_job("vda").is_none(), "that driver knows no jobs");
        drop(connect);
        assert_eq!(domain.name().as_deref(), Some("test"), "a domain holds its connection");

        let failed = Connect::open("nonsense:///", true).err().expect("no connection");
        assert!(failed.number > 0 && !failed.message.is_empty());
    }
}
