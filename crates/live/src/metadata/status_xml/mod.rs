//! libvirt's status files of running domains: `/run/libvirt/qemu/NAME.xml` of the system daemon, and
//! `/run/user/UID/libvirt/qemu/run/NAME.xml` of a user's session daemon.
//!
//! libvirt names the file after the domain (`virDomainObjSave`, `src/conf/domain_conf.c`) and starts QEMU with
//! `-name guest=NAME`, so each guest has at most one file in each place, and no folder is listed. A user writes what he
//! likes into his own folder: his files speak for his own processes only, and all users together get a fixed share of
//! a tick.

mod rounds;

use kvm::domain_xml::{self, DomainXml};
use rounds::{ReadLimits, Round, StatusFolder};
use sample::{DomainState, SourceId, SourceStatus};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

/// The files are checked at least this often.
const ROUND_NS: u64 = 5_000_000_000;

/// A guest that may have a status file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StatusQuery {
    /// Process id.
    pub pid: i32,
    /// The user that the process runs as.
    pub uid: Option<u32>,
    /// `-name` of its command line.
    pub name: String,
    /// Whether libvirt itself has answered for it.
    pub answered: bool,
}

/// A running domain, from its status file.
#[derive(Debug, Clone)]
pub(crate) struct DomainStatus {
    /// The file's parsed content.
    pub xml: Arc<DomainXml>,
    /// The text of the file's `<domain>`.
    pub text: Arc<str>,
    pid: i32,
}

impl DomainStatus {
    /// Reads a file's text; `None` if it is not the status of a running domain.
    fn parse(text: &str) -> Option<Self> {
        let xml = domain_xml::parse(text).ok()?;
        let pid = xml.pid?;
        let inner = text.find("<domain ").and_then(|from| text.get(from..)).and_then(|rest| {
            let end = rest.rfind("</domain>")? + "</domain>".len();
            rest.get(..end)
        });
        Some(Self { text: inner.unwrap_or(text).into(), xml: Arc::new(xml), pid })
    }

    /// The domain's state: libvirt rewrites the status file when it changes.
    pub(crate) fn state(&self) -> Option<DomainState> {
        match self.xml.state.as_deref()? {
            "paused" | "pmsuspended" | "crashed" => Some(DomainState::Paused),
            "running" | "blocked" | "shutdown" => Some(DomainState::Running),
            _ => None,
        }
    }
}

/// The status files of the guests.
pub(crate) struct StatusFiles {
    run: PathBuf,
    rounds: Round,
    by_pid: HashMap<i32, Arc<DomainStatus>>,
    /// The process of each domain of the system daemon, by UUID.
    system: HashMap<String, i32>,
    next_ns: u64,
    problem: Option<SourceStatus>,
}

impl StatusFiles {
    /// `run` is `/run`.
    pub(crate) fn new(run: PathBuf) -> Self {
        Self::with_limits(run, ReadLimits::default())
    }

    fn with_limits(run: PathBuf, limits: ReadLimits) -> Self {
        Self {
            run,
            rounds: Round::new(limits),
            by_pid: HashMap::new(),
            system: HashMap::new(),
            next_ns: 0,
            problem: None,
        }
    }

    /// Reads new and changed files of these guests, when the next check is due or `now` demands it for a new guest.
    pub(crate) fn refresh(&mut self, now_ns: u64, now: bool, guests: &[StatusQuery]) {
        if !now && now_ns < self.next_ns {
            return;
        }
        self.next_ns = now_ns + ROUND_NS;
        let mut wanted: BTreeMap<StatusFolder, BTreeSet<&str>> = BTreeMap::new();
        let mut unanswered: BTreeSet<&str> = BTreeSet::new();
        for guest in guests.iter().filter(|guest| is_file_name(&guest.name)) {
            wanted.entry(StatusFolder::System).or_default().insert(&guest.name);
            if let Some(uid) = guest.uid {
                wanted.entry(StatusFolder::User(uid)).or_default().insert(&guest.name);
            }
            if !guest.answered {
                unanswered.insert(&guest.name);
            }
        }
        self.rounds.read(&self.run, &wanted);
        self.by_pid = guests
            .iter()
            .filter_map(|guest| {
                let places = std::iter::once(StatusFolder::System).chain(guest.uid.map(StatusFolder::User));
                let own = |place| self.rounds.status(place, &guest.name).filter(|status| status.pid == guest.pid);
                Some((guest.pid, places.into_iter().find_map(own)?))
            })
            .collect();
        let of_system = guests.iter().filter_map(|guest| self.rounds.status(StatusFolder::System, &guest.name));
        self.system = of_system.filter_map(|status| Some((status.xml.uuid.clone()?, status.pid))).collect();
        self.problem = self.rounds.problem(|name| unanswered.contains(name)).map(|cause| {
            let fix = if self.rounds.denied() {
                rights::hint()
            } else {
                "guests whose file is left out have the name and settings of their command line".into()
            };
            SourceStatus::degraded(SourceId::StatusXml, cause, fix)
        });
    }

    /// The domain that runs as this process.
    pub(crate) fn status_of(&self, pid: i32) -> Option<&Arc<DomainStatus>> {
        self.by_pid.get(&pid)
    }

    /// The process of the system daemon's domain with this UUID (lower case).
    pub(crate) fn system_pid(&self, uuid: &str) -> Option<i32> {
        self.system.get(uuid).copied()
    }

    /// What could not be read. Missing files are normal.
    pub(crate) fn problem(&self) -> Option<SourceStatus> {
        self.problem.clone()
    }
}

/// Whether `NAME.xml` is a file name: libvirt refuses names with a slash.
fn is_file_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= 250 && !name.contains(['/', '\0'])
}

#[cfg(test)]
mod tests;
