//! A guest's identity and configuration, merged from its process, libvirt and its monitor.

use super::identity::{MAX_COMMAND, ProcessIdentity};
use crate::host::qemu_logs::LoggedGuest;
use crate::metadata::source::{GuestMetadata, UuidClaim};
use crate::metadata::status_xml::{DomainStatus, StatusFiles, StatusQuery};
use crate::proc::paths::SystemPaths;
use crate::proc::slow_files::{FILE_TIMEOUT, LateFile, SlowFile, SlowFiles};
use kvm::domain_xml::DomainXml;
use sample::{DomainFacts, DomainState, GroupCpus, Known, Origin};
use std::sync::Arc;

/// What is known of a guest.
pub(crate) struct GuestDescription {
    /// The facts of its process.
    pub(super) identity: ProcessIdentity,
    /// Its command line, until that is read: the process can hold it back.
    pub command_line: Option<LateFile>,
    /// Whether the command line came since `facts` were merged.
    has_new_command_line: bool,
    /// All facts together.
    pub(super) facts: Arc<DomainFacts>,
    /// The last reports of the metadata sources.
    pub(super) reports: Vec<Arc<GuestMetadata>>,
    status_seen: Option<Arc<DomainXml>>,
    pub(super) state: DomainState,
    pub(super) claim: UuidClaim,
}

impl GuestDescription {
    pub(super) fn new(identity: ProcessIdentity, paths: &SystemPaths, slow_files: &mut SlowFiles) -> Self {
        let mut description = Self {
            identity,
            command_line: Some(LateFile::default()),
            has_new_command_line: false,
            facts: Arc::default(),
            reports: Vec::new(),
            status_seen: None,
            state: DomainState::Running,
            claim: UuidClaim::Unknown,
        };
        description.read_command_line(paths, slow_files);
        description.facts = Arc::new(description.identity.facts(None, &[]));
        description
    }

    /// Reads the command line, unless it is known.
    pub(super) fn read_command_line(&mut self, paths: &SystemPaths, slow_files: &mut SlowFiles) {
        let Some(file) = &mut self.command_line else { return };
        let path = paths.process(self.identity.pid, "cmdline");
        let cmdline = SlowFile { path, max: MAX_COMMAND, uid: self.identity.uid };
        if let Some(bytes) = file.read(slow_files, cmdline, FILE_TIMEOUT) {
            self.identity.learn(&bytes.unwrap_or_default());
            (self.command_line, self.has_new_command_line) = (None, true);
        }
    }

    /// Where libvirt's status file of it would be; `None` for a process without `-name`.
    pub(crate) fn status_query(&self) -> Option<StatusQuery> {
        Some(StatusQuery {
            pid: self.identity.pid,
            uid: self.identity.uid,
            name: self.identity.libvirt_name.clone()?,
            answered: self.facts.xml.as_ref().is_some_and(|xml| xml.from == Origin::Libvirt),
        })
    }

    /// Its log: the system daemon's if that says that it runs this process, else the one that a daemon of its user has.
    pub(crate) fn logged(&self) -> Option<LoggedGuest> {
        let name = self.identity.libvirt_name.clone()?;
        let user = match self.claim {
            UuidClaim::Proven => None,
            UuidClaim::Unknown => Some(self.identity.uid?),
            UuidClaim::Refuted => return None,
        };
        Some(LoggedGuest { pid: self.identity.pid, name, user })
    }

    /// Compares the UUID that the process claims with libvirt's status files.
    pub(crate) fn check_claim(&mut self, files: &StatusFiles) {
        let owner = self.facts.uuid.as_ref().and_then(|uuid| files.system_pid(&uuid.value.to_ascii_lowercase()));
        self.claim = match owner {
            None => UuidClaim::Unknown,
            Some(pid) if pid == self.identity.pid => UuidClaim::Proven,
            Some(_) => UuidClaim::Refuted,
        };
    }

    /// Takes over what the metadata sources and libvirt's status file say; returns whether anything changed.
    pub(super) fn inform(&mut self, reports: Vec<Arc<GuestMetadata>>, status: Option<&DomainStatus>) -> bool {
        self.state = reports.iter().find_map(|t| t.state).or_else(|| status?.state()).unwrap_or_default();
        let same_reports =
            reports.len() == self.reports.len() && reports.iter().zip(&self.reports).all(|(a, b)| Arc::ptr_eq(a, b));
        let same_status = match (&self.status_seen, status) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, &b.xml),
            (a, b) => a.is_none() && b.is_none(),
        };
        let same_files = self.facts.vcpus.is_some() || self.identity.vcpu_files == 0;
        let has_new_command_line = std::mem::take(&mut self.has_new_command_line);
        if same_reports && same_status && same_files && !has_new_command_line {
            return false;
        }
        self.reports = reports;
        self.status_seen = status.map(|s| s.xml.clone());
        let facts = self.identity.facts(status, &self.reports);
        if facts != *self.facts {
            self.facts = Arc::new(facts);
        }
        true
    }

    /// Takes over a new time of the boot: the wall clock was set.
    pub(crate) fn clock_was_set(&mut self, boot_time_ms: i64) {
        self.identity.started_since_boot(boot_time_ms);
        Arc::make_mut(&mut self.facts).started_ms = self.identity.started_ms;
    }

    /// Sets the groups of processes that bound its CPUs.
    pub(super) fn set_cpu_groups(&mut self, groups: &[GroupCpus]) {
        if groups != self.facts.cpu_groups {
            self.identity.cpu_groups = groups.to_vec();
            Arc::make_mut(&mut self.facts).cpu_groups = groups.to_vec();
        }
    }

    /// Sets the number of threads with the name of a vCPU.
    pub(super) fn set_vcpu_threads(&mut self, named: u32) {
        self.identity.vcpu_threads = named;
        let known = self.facts.vcpus.as_ref().map(|known| known.value);
        if named > 0 && known != Some(named) {
            Arc::make_mut(&mut self.facts).vcpus = Some(Known::new(named, Origin::Process));
        }
    }
}
