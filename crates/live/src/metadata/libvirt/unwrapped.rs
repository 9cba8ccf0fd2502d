//! Calls that `virt` does not wrap, or whose results it would not free.
#![allow(unsafe_code, reason = "calls functions of C")]

use super::domain_stats::Stats;
use kvm::sanitize;
use sample::{MAX_STOP_DISKS, StopDisk};
use std::ffi::{CStr, CString, c_char, c_int, c_uint};
use std::ptr::null_mut;
use virt::domain::Domain;
use virt::sys;

/// At most this many statistics of one domain are read.
const MAX_STATS: usize = 65_536;

/// The disks whose requests failed. libvirt asks QEMU.
pub fn failed_disks(domain: &Domain) -> Vec<StopDisk> {
    let mut errors = [sys::virDomainDiskError {
        disk: null_mut(),
        error: 0,
    }; MAX_STOP_DISKS];
    let room = errors.len() as c_uint;
    // SAFETY: libvirt fills in at most as many as there is room for.
    let count =
        unsafe { sys::virDomainGetDiskErrors(domain.as_ptr(), errors.as_mut_ptr(), room, 0) };
    let mut disks = Vec::new();
    for error in errors.iter().take(usize::try_from(count).unwrap_or(0)) {
        // SAFETY: the name is null or a text of C, and the caller's.
        let Some(name) = (unsafe { copied(error.disk) }) else {
            continue;
        };
        // SAFETY: as above; it is freed once.
        unsafe { libc::free(error.disk.cast()) };
        let is_full = error.error.cast_unsigned() == sys::VIR_DOMAIN_DISK_ERROR_NO_SPACE;
        disks.push(StopDisk {
            name: sanitize(&name, 64),
            is_full,
            ..StopDisk::default()
        });
    }
    disks
}

/// The figures of the job of the whole domain, if it has one: libvirt asks QEMU for them.
pub fn job(domain: &Domain) -> Option<Stats> {
    let mut kind = 0;
    let mut count = 0;
    let mut list = null_mut();
    // SAFETY: `list` receives `count` parameters that are the caller's, or stays null; they are
    // freed once, after they have been copied.
    unsafe {
        let result = sys::virDomainGetJobStats(
            domain.as_ptr(),
            &raw mut kind,
            &raw mut list,
            &raw mut count,
            0,
        );
        let has_job = result == 0 && kind.cast_unsigned() != sys::VIR_DOMAIN_JOB_NONE;
        let job = if has_job {
            Some(read_parameters(list, count))
        } else {
            None
        };
        sys::virTypedParamsFree(list, count);
        job
    }
}

/// The job of a disk, if it has one.
pub fn block_job(domain: &Domain, disk: &str) -> Option<sys::virDomainBlockJobInfo> {
    let mut info = sys::virDomainBlockJobInfo {
        type_: 0,
        bandwidth: 0,
        cur: 0,
        end: 0,
    };
    let disk = CString::new(disk).ok()?;
    let flags = sys::VIR_DOMAIN_BLOCK_JOB_INFO_BANDWIDTH_BYTES;
    // SAFETY: the name is a text of C, and `info` is libvirt's record.
    let result = unsafe {
        sys::virDomainGetBlockJobInfo(domain.as_ptr(), disk.as_ptr(), &raw mut info, flags)
    };
    if result == 1 { Some(info) } else { None }
}

/// The statistics of the domain's disks, network cards and balloon. One domain is asked at a time:
/// in a call for several, one QEMU that does not answer would hold back the answers of all.
pub fn device_stats(domain: &Domain) -> Option<Stats> {
    let stats = sys::VIR_DOMAIN_STATS_BALLOON
        | sys::VIR_DOMAIN_STATS_INTERFACE
        | sys::VIR_DOMAIN_STATS_BLOCK;
    let no_wait = sys::VIR_CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT;
    let mut records: *mut sys::virDomainStatsRecordPtr = null_mut();
    // SAFETY: the list ends with a null pointer, as the one that `records` receives, unless that
    // stays null; it is freed once, after its record has been copied.
    unsafe {
        let mut list = [domain.as_ptr(), null_mut()];
        sys::virDomainListGetStats(list.as_mut_ptr(), stats, &raw mut records, no_wait);
        let first = records.as_ref().and_then(|first| first.as_ref());
        let read = first.map(|record| read_parameters(record.params, record.nparams));
        sys::virDomainStatsRecordListFree(records);
        read
    }
}

/// The parameters of a list by name.
///
/// # Safety
/// `list` holds `count` parameters of libvirt, not yet freed.
unsafe fn read_parameters(list: *const sys::virTypedParameter, count: c_int) -> Stats {
    let mut stats = Stats::default();
    for i in 0..usize::try_from(count).unwrap_or(0).min(MAX_STATS) {
        // SAFETY: as above; libvirt ends the name with NUL, and the type says which member of the
        // union is set.
        unsafe {
            let parameter = &*list.add(i);
            let value = match parameter.type_.cast_unsigned() {
                sys::VIR_TYPED_PARAM_INT => Some(parameter.value.i.to_string()),
                sys::VIR_TYPED_PARAM_UINT => Some(parameter.value.ui.to_string()),
                sys::VIR_TYPED_PARAM_ULLONG => Some(parameter.value.ul.to_string()),
                sys::VIR_TYPED_PARAM_STRING => copied(parameter.value.s),
                _ => None,
            };
            if let (Some(name), Some(value)) = (copied(parameter.field.as_ptr()), value) {
                stats.insert(name, value);
            }
        }
    }
    stats
}

/// Copies a text of C.
///
/// # Safety
/// The pointer is null or points to bytes that end with NUL.
unsafe fn copied(text: *const c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: as above.
    let text = unsafe { CStr::from_ptr(text) };
    Some(text.to_string_lossy().into_owned())
}
