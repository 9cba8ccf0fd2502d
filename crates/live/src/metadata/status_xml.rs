//! The status files that libvirt's system daemon keeps of running domains:
//! `/run/libvirt/qemu/NAME.xml`.
//!
//! libvirt names the file after the domain (`virDomainObjSave`, `src/conf/domain_conf.c`) and
//! starts QEMU with `-name guest=NAME`, so each guest has at most one file, and no folder is
//! listed.

use crate::metadata::source::ReportedState;
use crate::proc::file::open_owned;
use crate::proc::paths::SystemPaths;
use kvm::domain_xml::{self, DomainXml, MAX_TEXT};
use sample::StopReason;
use std::collections::HashMap;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The files are checked at least this often.
const ROUND_NS: u64 = 5_000_000_000;

/// A running domain, from its status file.
#[derive(Debug)]
pub(crate) struct DomainStatus {
    /// The file's parsed content.
    pub xml: Arc<DomainXml>,
    pid: i32,
    stamp: FileStamp,
}

/// What tells a file from one that has replaced it, and from itself rewritten.
#[derive(Debug, PartialEq, Eq)]
struct FileStamp {
    inode: u64,
    modified_s: i64,
    modified_ns: i64,
    changed_s: i64,
    changed_ns: i64,
}

impl DomainStatus {
    /// Reads a file, unless it is unchanged since it was read as `known`.
    fn read(path: &Path, owner: u32, known: Option<Arc<Self>>) -> io::Result<Arc<Self>> {
        let (file, meta) = open_owned(path, owner)?;
        let stamp = FileStamp {
            inode: meta.ino(),
            modified_s: meta.mtime(),
            modified_ns: meta.mtime_nsec(),
            changed_s: meta.ctime(),
            changed_ns: meta.ctime_nsec(),
        };
        if let Some(known) = known.filter(|known| known.stamp == stamp) {
            return Ok(known);
        }
        let mut bytes = Vec::new();
        file.take(MAX_TEXT as u64).read_to_end(&mut bytes)?;
        let text = String::from_utf8_lossy(&bytes);
        let xml = domain_xml::parse(&text).ok();
        let running = xml.and_then(|xml| Some((xml.pid?, Arc::new(xml))));
        let (pid, xml) =
            running.ok_or_else(|| io::Error::other("it is not the status of a running domain"))?;
        Ok(Arc::new(Self { xml, pid, stamp }))
    }

    /// The domain's state: libvirt rewrites the status file when it changes.
    pub fn state(&self) -> Option<ReportedState> {
        let word = self.xml.state_reason.as_deref().unwrap_or_default();
        let reason = match self.xml.state.as_deref()? {
            "paused" => PAUSES
                .iter()
                .find(|(name, _)| *name == word)
                .map_or(StopReason::Unknown, |(_, reason)| *reason),
            "pmsuspended" => StopReason::Suspended,
            "crashed" if word == "panicked" => StopReason::GuestPanicked,
            "crashed" => StopReason::Crashed,
            "running" | "blocked" | "shutdown" => return Some(ReportedState::Running),
            _ => return None,
        };
        Some(ReportedState::stopped_for(Some(reason)))
    }

    /// When the file was last written, milliseconds since the epoch: the domain has been in its
    /// state since then at least.
    pub fn written_ms(&self) -> i64 {
        self.stamp
            .modified_s
            .saturating_mul(1000)
            .saturating_add(self.stamp.modified_ns / 1_000_000)
    }
}

/// Why libvirt paused a domain: the index is libvirt's number of the reason, and the text its word
/// (`virDomainPausedReason`, `src/conf/domain_conf.c`). For an error of KVM libvirt has no word and
/// says `unknown`; in post-copy the guest runs on the other host.
pub(super) const PAUSES: [(&str, StopReason); 15] = [
    ("unknown", StopReason::Unknown),
    ("user", StopReason::User),
    ("migration", StopReason::Migration),
    ("save", StopReason::Save),
    ("dump", StopReason::Dump),
    ("ioerror", StopReason::IoError),
    ("watchdog", StopReason::Watchdog),
    ("from snapshot", StopReason::FromSnapshot),
    ("shutdown", StopReason::Shutdown),
    ("snapshot", StopReason::Snapshot),
    ("panicked", StopReason::GuestPanicked),
    ("starting up", StopReason::Starting),
    ("post-copy", StopReason::Migration),
    ("post-copy failed", StopReason::PostcopyFailed),
    ("api error", StopReason::ApiError),
];

/// The status files of the guests.
#[derive(Default)]
pub(crate) struct StatusFiles {
    folder: PathBuf,
    owner: u32,
    by_name: HashMap<String, Arc<DomainStatus>>,
    /// The domain that runs as each process.
    pub by_pid: HashMap<i32, Arc<DomainStatus>>,
    /// The process of the domain with each UUID (lower case).
    pub pid_by_uuid: HashMap<String, i32>,
    next_ns: u64,
}

impl StatusFiles {
    pub fn new(paths: &SystemPaths) -> Self {
        Self {
            folder: paths.run.join("libvirt/qemu"),
            owner: paths.system_owner(),
            ..Self::default()
        }
    }

    /// Reads a guest's file again, because its vCPUs began or ceased to run. A file that is not
    /// known waits for the next check.
    pub fn reread(&mut self, name: &str) {
        let Some(known) = self.by_name.get(name) else {
            return;
        };
        let path = self.folder.join(format!("{name}.xml"));
        let Ok(status) = DomainStatus::read(&path, self.owner, Some(known.clone())) else {
            return;
        };
        if !Arc::ptr_eq(known, &status) && status.pid == known.pid {
            self.by_pid.insert(status.pid, status.clone());
            self.by_name.insert(name.to_owned(), status);
        }
    }

    /// Reads new and changed files, when the next check is due or `now` demands it for a new guest.
    /// `names` holds the `-name` of each guest. A guest whose file cannot be read has the name and
    /// settings of its command line.
    pub fn refresh(&mut self, now_ns: u64, now: bool, names: &[&str]) {
        if !now && now_ns < self.next_ns {
            return;
        }
        self.next_ns = now_ns + ROUND_NS;
        let mut before = std::mem::take(&mut self.by_name);
        for name in names {
            // Many processes can claim one name.
            if !is_file_name(name) || self.by_name.contains_key(*name) {
                continue;
            }
            let path = self.folder.join(format!("{name}.xml"));
            if let Ok(status) = DomainStatus::read(&path, self.owner, before.remove(*name)) {
                self.by_name.insert((*name).to_owned(), status);
            }
        }
        self.by_pid = self
            .by_name
            .values()
            .map(|status| (status.pid, status.clone()))
            .collect();
        let uuids = self
            .by_name
            .values()
            .filter_map(|status| Some((status.xml.uuid.clone()?, status.pid)));
        self.pid_by_uuid = uuids.collect();
    }
}

/// Whether `NAME.xml` is a file name: libvirt refuses names with a slash.
fn is_file_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= 250 && !name.contains(['/', '\0'])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::fake_proc::FakeProc;
    use std::time::{Duration, SystemTime};

    const XML: &str = "<domstatus state='running' reason='booted' pid='77'><vcpus><vcpu id='0' \
        pid='80'/></vcpus><domain type='kvm' \
        id='1'><name>a</name><uuid>1B1D2C0A-0000-4000-8000-000000000001</uuid><vcpu>1</vcpu><os><type \
        arch='x86_64' machine='pc-q35-7.2'>hvm</type></os></domain></domstatus>";

    #[test]
    fn a_status_file_is_found_by_name_and_read_again_when_it_changes() {
        let fake = FakeProc::new();
        let mut files = StatusFiles::new(&fake.paths());
        let guests = ["a", "broken"];
        files.refresh(0, true, &guests);
        assert!(files.by_pid.is_empty());
        fake.write("run/libvirt/qemu/a.xml", XML);
        fake.write("run/libvirt/qemu/broken.xml", "<domstatus");
        files.refresh(1, false, &guests);
        assert!(!files.by_pid.contains_key(&77), "not yet due");
        files.refresh(1, true, &guests);
        let status = &files.by_pid[&77];
        assert_eq!(status.state(), Some(ReportedState::Running));
        assert_eq!(
            files
                .pid_by_uuid
                .get("1b1d2c0a-0000-4000-8000-000000000001"),
            Some(&77)
        );
        assert_eq!(files.by_name.len(), 1);
        let paused = XML.replace("running' reason='booted", "paused' reason='ioerror");
        let path = fake.paths().run.join("libvirt/qemu/a.xml");
        std::fs::write(&path, paused).unwrap();
        let later = SystemTime::now() + Duration::from_secs(5);
        std::fs::File::options()
            .append(true)
            .open(&path)
            .unwrap()
            .set_modified(later)
            .unwrap();
        files.refresh(ROUND_NS + 1, false, &guests);
        assert_eq!(
            files.by_pid[&77]
                .state()
                .and_then(|state| state.stop().map(|stop| stop.reason)),
            Some(StopReason::IoError)
        );
        std::fs::remove_file(path).unwrap();
        files.refresh(2 * ROUND_NS + 1, false, &guests);
        assert!(!files.by_pid.contains_key(&77));
    }

    #[test]
    fn only_a_regular_file_of_the_daemon_counts() {
        let fake = FakeProc::new();
        fake.write("run/libvirt/qemu/a.xml", XML);
        let pipe = fake.paths().run.join("libvirt/qemu/pipe.xml");
        rustix::fs::mkfifoat(
            rustix::fs::CWD,
            pipe,
            rustix::fs::Mode::from_raw_mode(0o600),
        )
        .unwrap();
        let mut files = StatusFiles::new(&fake.paths());
        files.owner += 1;
        files.refresh(0, true, &["a", "pipe"]);
        assert!(files.by_pid.is_empty());
    }

    #[test]
    fn names_that_are_no_file_names_are_not_looked_for() {
        assert!(
            is_file_name("vm-1 ä")
                && !is_file_name("../x")
                && !is_file_name("")
                && !is_file_name(&"x".repeat(251))
        );
    }
}
