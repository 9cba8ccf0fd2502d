//! libvirt's status files of running domains: `/run/libvirt/qemu/NAME.xml` of the system daemon, and
//! `/run/user/UID/libvirt/qemu/run/NAME.xml` of a user's session daemon.
//!
//! libvirt names the file after the domain (`virDomainObjSave`, `src/conf/domain_conf.c`) and starts QEMU with
//! `-name guest=NAME`, so each guest has at most one file in each place, and no folder is listed. A user writes what he
//! likes into his own folder: his files speak for his own processes only, and all users together get a fixed share of
//! a tick.

use crate::owned_file::{FileRefusal, FileStamp, OwnedFolder};
use kvm::domain_xml::{self, DomainXml, MAX_TEXT};
use kvm::sanitize;
use rustix::io::Errno;
use sample::{DomainState, SourceId, SourceStatus};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
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

/// Whose file it is. The system's come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum StatusFolder {
    /// The system daemon's, which only root writes.
    System,
    /// A session daemon's, by user.
    User(u32),
}

/// What the files of users may cost, bytes. A status file of a desktop guest has some 20 KiB.
#[derive(Debug, Clone, Copy)]
struct ReadLimits {
    /// Length of one file.
    file: usize,
    /// Of one user in a round, parsed.
    user_bytes: usize,
    /// Of one user, kept.
    user_kept: usize,
    /// Of all users in a round, parsed: some 7 ms.
    bytes: usize,
}

impl Default for ReadLimits {
    fn default() -> Self {
        const KIB: usize = 1024;
        Self { file: 256 * KIB, user_bytes: 256 * KIB, user_kept: 512 * KIB, bytes: 1024 * KIB }
    }
}

/// A file that was read, also one that holds no status: it is read again only when it changes.
struct ReadFile {
    stamp: FileStamp,
    status: Option<Arc<DomainStatus>>,
    /// Bytes that it keeps.
    kept: usize,
}

/// The files of one folder, and the round in which they were looked at last.
#[derive(Default)]
struct ReadFolder {
    files: BTreeMap<String, ReadFile>,
    round: u64,
}

/// The names of guests whose files are looked for.
type WantedNames<'a> = BTreeSet<&'a str>;

/// The status files of the guests.
#[derive(Default)]
pub(crate) struct StatusFiles {
    run: PathBuf,
    limits: ReadLimits,
    round: u64,
    folders: HashMap<StatusFolder, ReadFolder>,
    /// Files that exist and were not read, with the guest's name and the reason.
    refused: Vec<(PathBuf, String, FileRefusal)>,
    /// Number of files that were beyond what a round may spend.
    left_out: usize,
    by_pid: HashMap<i32, Arc<DomainStatus>>,
    /// The process of each domain of the system daemon, by UUID.
    system: HashMap<String, i32>,
    next_ns: u64,
    problem: Option<SourceStatus>,
}

impl StatusFiles {
    /// `run` is `/run`.
    pub(crate) fn new(run: PathBuf) -> Self {
        Self { run, ..Self::default() }
    }

    /// Reads new and changed files of these guests, when the next check is due or `now` demands it for a new guest.
    pub(crate) fn refresh(&mut self, now_ns: u64, now: bool, guests: &[StatusQuery]) {
        if !now && now_ns < self.next_ns {
            return;
        }
        self.next_ns = now_ns + ROUND_NS;
        let mut wanted: BTreeMap<StatusFolder, WantedNames<'_>> = BTreeMap::new();
        for guest in guests.iter().filter(|guest| is_file_name(&guest.name)) {
            for folder in folders_of(guest) {
                wanted.entry(folder).or_default().insert(&guest.name);
            }
        }
        self.read(&wanted);
        self.by_pid = guests
            .iter()
            .filter_map(|guest| {
                let own = |folder| self.status(folder, guest).filter(|status| status.pid == guest.pid);
                Some((guest.pid, folders_of(guest).find_map(own)?))
            })
            .collect();
        let of_system = guests.iter().filter_map(|guest| self.status(StatusFolder::System, guest));
        self.system = of_system.filter_map(|status| Some((status.xml.uuid.clone()?, status.pid))).collect();
        self.problem = self.find_problem(guests);
    }

    /// Looks at the wanted files; forgets all others.
    fn read(&mut self, wanted: &BTreeMap<StatusFolder, WantedNames<'_>>) {
        (self.round, self.left_out) = (self.round + 1, 0);
        self.refused.clear();
        self.folders.retain(|folder, _| wanted.contains_key(folder));
        // Users who waited longest go first, so that nobody's flood keeps the others out for ever.
        let waited = |folder: &StatusFolder| self.folders.get(folder).map_or(0, |read| read.round);
        let mut order: Vec<_> = wanted.iter().map(|(folder, names)| (waited(folder), *folder, names)).collect();
        order.sort_unstable_by_key(|(round, folder, _)| (*folder != StatusFolder::System, *round, *folder));
        let mut left = self.limits.bytes;
        for (_, folder, names) in order {
            if folder == StatusFolder::System {
                self.read_folder(folder, names, usize::MAX);
            } else if left < self.limits.file {
                self.left_out += names.len();
            } else {
                left -= self.read_folder(folder, names, left);
            }
        }
    }

    /// Reads the files of one folder that are new, at most `left` bytes of them; returns the bytes that were parsed.
    fn read_folder(&mut self, folder: StatusFolder, names: &WantedNames<'_>, left: usize) -> usize {
        let limits = self.limits;
        let (base, below, owner) = match folder {
            StatusFolder::System => (self.run.join("libvirt"), "qemu", system_owner(&self.run)),
            StatusFolder::User(uid) => (self.run.join(format!("user/{uid}")), "libvirt/qemu/run", uid),
        };
        let (max, left, max_kept) = match folder {
            StatusFolder::System => (MAX_TEXT, left, usize::MAX),
            StatusFolder::User(_) => (limits.file, left.min(limits.user_bytes), limits.user_kept),
        };
        let ReadFolder { files, round } = self.folders.entry(folder).or_default();
        *round = self.round;
        files.retain(|name, _| names.contains(name.as_str()));
        let folder = match OwnedFolder::open(&base, below, owner) {
            Ok(Some(folder)) => folder,
            missing => {
                files.clear();
                self.refused.extend(missing.err().map(|why| (base.join(below), String::new(), why)));
                return 0;
            }
        };
        // Those that were not read before first.
        let mut order: Vec<&str> = names.iter().copied().collect();
        order.sort_by_key(|name| files.contains_key(*name));
        let mut spent = 0;
        for name in order {
            let file_name = format!("{name}.xml");
            let mut refuse = |why| self.refused.push((base.join(below).join(&file_name), name.to_owned(), why));
            let known = files.remove(name);
            let file = match folder.file(&file_name, max) {
                Ok(Some(file)) => file,
                missing => {
                    missing.err().into_iter().for_each(refuse);
                    continue;
                }
            };
            let read = if let Some(known) = known.filter(|known| known.stamp == file.stamp) {
                known
            } else {
                let (stamp, len) = (file.stamp, file.len);
                let kept: usize = files.values().map(|file| file.kept).sum();
                if len > left - spent || len.saturating_add(kept) > max_kept {
                    self.left_out += 1;
                    continue;
                }
                spent += len;
                let status = file.read().ok().and_then(|text| DomainStatus::parse(&text)).map(Arc::new);
                ReadFile { stamp, kept: if status.is_some() { len } else { 0 }, status }
            };
            if read.status.is_none() {
                refuse(FileRefusal::NoStatus);
            }
            files.insert(name.to_owned(), read);
        }
        spent
    }

    /// What the file of a guest's domain in one folder says.
    fn status(&self, folder: StatusFolder, guest: &StatusQuery) -> Option<Arc<DomainStatus>> {
        self.folders.get(&folder)?.files.get(&guest.name)?.status.clone()
    }

    /// What was left out; a right that is missing counts only for guests that libvirt has not answered for.
    fn find_problem(&self, guests: &[StatusQuery]) -> Option<SourceStatus> {
        let is_denied = |why: FileRefusal| matches!(why, FileRefusal::System(Errno::ACCESS | Errno::PERM));
        let is_needed = |name: &str| guests.iter().any(|guest| guest.name == name && !guest.answered);
        let mut refused = self.refused.iter().filter(|(_, name, why)| !is_denied(*why) || is_needed(name));
        let mut causes = Vec::new();
        if let Some((path, _, why)) = refused.next() {
            let path = sanitize(&path.display().to_string(), 200);
            let more = match refused.count() {
                0 => String::new(),
                more => format!(" (and {more} more)"),
            };
            causes.push(format!("the status file of libvirt {path} is not read: {why}{more}"));
        }
        if self.left_out > 0 {
            let (all, user) = (self.limits.bytes / 1024, self.limits.user_bytes / 1024);
            causes.push(format!(
                "{} status files in /run/user are beyond what kvmtop reads of users at a time ({all} KiB, {user} KiB \
                 of one user) and wait",
                self.left_out
            ));
        }
        let fix = if self.refused.iter().any(|(_, _, why)| is_denied(*why)) {
            rights::hint()
        } else {
            "guests whose file is left out have the name and settings of their command line".into()
        };
        (!causes.is_empty()).then(|| SourceStatus::degraded(SourceId::StatusXml, causes.join("; "), fix))
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

/// Where a guest's file may be, the more trustworthy place first.
fn folders_of(guest: &StatusQuery) -> impl Iterator<Item = StatusFolder> {
    std::iter::once(StatusFolder::System).chain(guest.uid.map(StatusFolder::User))
}

/// Root; the user of a test for a tree of his own.
fn system_owner(run: &Path) -> u32 {
    if run == Path::new("/run") { 0 } else { rustix::process::geteuid().as_raw() }
}

/// Whether `NAME.xml` is a file name: libvirt refuses names with a slash.
fn is_file_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= 250 && !name.contains(['/', '\0'])
}

#[cfg(test)]
mod tests;
