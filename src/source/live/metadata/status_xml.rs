//! libvirt's status files of running domains: `/run/libvirt/qemu/NAME.xml`, and those of the session daemons.

use crate::kvm::domain_xml::{self, DomainXml, MAX_TEXT};
use crate::sample::{DomainState, SourceId, SourceStatus};
use crate::source::live::proc::file;
use crate::source::privileges;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// At most this many files of one folder are read.
const MAX_FILES: usize = 4096;
/// The files are checked at least this often.
const ROUND_NS: u64 = 5_000_000_000;

/// A running domain, from its status file.
#[derive(Debug, Clone)]
pub(crate) struct DomainStatus {
    /// The file's parsed content.
    pub xml: Arc<DomainXml>,
    /// The text of the file's `<domain>`.
    pub text: Arc<str>,
    modified: SystemTime,
    pid: i32,
}

impl DomainStatus {
    /// The domain's state: libvirt rewrites the status file when it changes.
    pub(crate) fn state(&self) -> Option<DomainState> {
        match self.xml.state.as_deref()? {
            "paused" | "pmsuspended" | "crashed" => Some(DomainState::Paused),
            "running" | "blocked" | "shutdown" => Some(DomainState::Running),
            _ => None,
        }
    }
}

/// All status files.
#[derive(Debug)]
pub(crate) struct StatusFiles {
    run: PathBuf,
    files: HashMap<PathBuf, DomainStatus>,
    by_pid: HashMap<i32, PathBuf>,
    next_ns: u64,
    problem: Option<SourceStatus>,
}

impl StatusFiles {
    pub(crate) fn new(run: PathBuf) -> Self {
        Self { run, files: HashMap::new(), by_pid: HashMap::new(), next_ns: 0, problem: None }
    }

    /// Reads new and changed files, when the next check is due or `now` demands it for a new guest.
    pub(crate) fn refresh(&mut self, now_ns: u64, now: bool) {
        if !now && now_ns < self.next_ns {
            return;
        }
        self.next_ns = now_ns + ROUND_NS;
        self.problem = None;
        let mut folders = vec![self.run.join("libvirt/qemu")];
        if let Ok(users) = std::fs::read_dir(self.run.join("user")) {
            folders.extend(users.flatten().take(256).map(|u| u.path().join("libvirt/qemu/run")));
        }
        let mut files = HashMap::new();
        for folder in folders {
            self.read_folder(&folder, &mut files);
        }
        self.by_pid = files.iter().map(|(path, s)| (s.pid, path.clone())).collect();
        self.files = files;
    }

    /// The domain that runs as this process.
    pub(crate) fn of(&self, pid: i32) -> Option<&DomainStatus> {
        self.files.get(self.by_pid.get(&pid)?)
    }

    /// The problem, if any; a missing folder is none.
    pub(crate) fn problem(&self) -> Option<SourceStatus> {
        self.problem.clone()
    }

    fn read_folder(&mut self, folder: &Path, files: &mut HashMap<PathBuf, DomainStatus>) {
        let entries = match std::fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => {
                let cause = format!("the status files of libvirt in {} cannot be read: {e}", folder.display());
                self.problem = Some(SourceStatus::degraded(SourceId::StatusXml, cause, privileges::hint()));
                return;
            }
            Err(_) => return,
        };
        for path in
            entries.flatten().take(MAX_FILES).map(|e| e.path()).filter(|p| p.extension().is_some_and(|e| e == "xml"))
        {
            let Ok(modified) = path.metadata().and_then(|m| m.modified()) else { continue };
            let known = self.files.remove(&path).filter(|s| s.modified == modified);
            if let Some(status) = known.or_else(|| read(&path, modified)) {
                files.insert(path, status);
            }
        }
    }
}

fn read(path: &Path, modified: SystemTime) -> Option<DomainStatus> {
    let text = file::read_text(path, MAX_TEXT).ok()?;
    let xml = domain_xml::parse(&text).ok()?;
    let pid = xml.pid?;
    let inner = text.find("<domain ").and_then(|from| text.get(from..)).and_then(|rest| {
        let end = rest.rfind("</domain>")? + "</domain>".len();
        rest.get(..end)
    });
    Some(DomainStatus { text: inner.unwrap_or(&text).into(), xml: Arc::new(xml), modified, pid })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::live::proc::fake::FakeProc;

    pub(super) const XML: &str = "<domstatus state='running' reason='booted' pid='77'>\
        <vcpus><vcpu id='0' pid='80'/></vcpus>\
        <domain type='kvm' id='1'><name>a</name><uuid>1B1D2C0A-0000-4000-8000-000000000001</uuid><vcpu>1</vcpu>\
        <os><type arch='x86_64' machine='pc-q35-7.2'>hvm</type></os></domain></domstatus>";

    #[test]
    fn a_status_file_is_found_by_pid_and_read_anew_when_it_changes() {
        let fake = FakeProc::new();
        let mut files = StatusFiles::new(fake.paths().run);
        files.refresh(0, true);
        assert!(files.of(77).is_none() && files.problem().is_none());
        fake.write("run/libvirt/qemu/a.xml", XML);
        fake.write("run/libvirt/qemu/broken.xml", "<domstatus");
        files.refresh(1, false);
        assert!(files.of(77).is_none(), "not yet due");
        files.refresh(1, true);
        let status = files.of(77).unwrap();
        assert_eq!(status.state(), Some(DomainState::Running));
        assert_eq!(status.xml.vcpu_threads.get(&0), Some(&80));
        assert!(status.text.starts_with("<domain ") && status.text.ends_with("</domain>"));
        let paused = XML.replace("running", "paused");
        let path = fake.paths().run.join("libvirt/qemu/a.xml");
        std::fs::write(&path, paused).unwrap();
        let later = SystemTime::now() + std::time::Duration::from_secs(5);
        std::fs::File::options().append(true).open(&path).unwrap().set_modified(later).unwrap();
        files.refresh(ROUND_NS + 1, false);
        assert_eq!(files.of(77).unwrap().state(), Some(DomainState::Paused));
        std::fs::remove_file(path).unwrap();
        files.refresh(2 * ROUND_NS + 1, false);
        assert!(files.of(77).is_none());
    }
}
