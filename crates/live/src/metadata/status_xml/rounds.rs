//! One look at all status files: what is read, in which order, and how much.

use super::DomainStatus;
use crate::owned_file::{FileRefusal, FileStamp, OwnedFolder};
use kvm::domain_xml::MAX_TEXT;
use kvm::sanitize;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Whose file it is. The system's come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum StatusFolder {
    /// The system daemon's, which only root writes.
    System,
    /// A session daemon's, by user.
    User(u32),
}

/// What the files of users may cost. A status file of a desktop guest has some 20 KiB.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReadLimits {
    /// Length of one file.
    pub file: usize,
    /// Bytes of one user that are parsed in a round.
    pub user_bytes: usize,
    /// Bytes of one user that are kept.
    pub user_kept: usize,
    /// Bytes of all users that are parsed in a round: some 7 ms.
    pub bytes: usize,
    /// After this time no further file of a user is read in a round.
    pub time: Duration,
}

impl Default for ReadLimits {
    fn default() -> Self {
        const KIB: usize = 1024;
        let time = Duration::from_millis(10);
        Self { file: 256 * KIB, user_bytes: 256 * KIB, user_kept: 512 * KIB, bytes: 1024 * KIB, time }
    }
}

/// A file that was read, also one that holds no status: it is read again only when it changes.
struct ReadFile {
    stamp: FileStamp,
    status: Option<Arc<DomainStatus>>,
    /// Bytes that it keeps.
    kept: usize,
    /// The round that looked at it last.
    round: u64,
}

/// The files of one place, and the round in which they were looked at last.
#[derive(Default)]
struct ReadPlace {
    files: BTreeMap<String, ReadFile>,
    round: u64,
}

/// What a place may spend in a round.
#[derive(Clone, Copy)]
struct Share {
    file: usize,
    bytes: usize,
    kept: usize,
    until: Option<Instant>,
}

/// The files read so far.
pub(super) struct Round {
    limits: ReadLimits,
    number: u64,
    places: HashMap<StatusFolder, ReadPlace>,
    /// Files that exist and were not read, with the reason.
    refused: Vec<(PathBuf, String, FileRefusal)>,
    /// Number of files that were beyond what a round may spend.
    left_out: usize,
}

impl Round {
    pub(super) fn new(limits: ReadLimits) -> Self {
        Self { limits, number: 0, places: HashMap::new(), refused: Vec::new(), left_out: 0 }
    }

    /// Looks at the wanted files; forgets all others.
    pub(super) fn read(&mut self, run: &Path, wanted: &BTreeMap<StatusFolder, BTreeSet<&str>>) {
        self.number += 1;
        self.refused.clear();
        self.left_out = 0;
        self.places.retain(|place, read| {
            let names = wanted.get(place);
            read.files.retain(|name, _| names.is_some_and(|names| names.contains(name.as_str())));
            names.is_some()
        });
        // Users who waited longest go first, so that nobody's flood keeps the others out for ever.
        let waited = |place: &StatusFolder| self.places.get(place).map_or(0, |read| read.round);
        let mut order: Vec<_> = wanted.iter().map(|(place, names)| (waited(place), *place, names)).collect();
        order.sort_unstable_by_key(|(round, place, _)| (*place != StatusFolder::System, *round, *place));
        let ReadLimits { file, user_bytes, user_kept, bytes: mut left, time } = self.limits;
        let until = Instant::now() + time;
        let mut has_served = false;
        for (_, place, names) in order {
            if place == StatusFolder::System {
                let all = Share { file: MAX_TEXT, bytes: usize::MAX, kept: usize::MAX, until: None };
                self.read_place(run, place, names, all);
            } else if has_served && (left < file || Instant::now() >= until) {
                self.left_out += names.len();
            } else {
                // At least one user is served in each round, whatever the load of the machine.
                has_served = true;
                let share = Share { file, bytes: left.min(user_bytes), kept: user_kept, until: Some(until) };
                left -= self.read_place(run, place, names, share);
            }
        }
    }

    /// Reads the files of one place within its share; returns the bytes that were parsed.
    fn read_place(&mut self, run: &Path, place: StatusFolder, names: &BTreeSet<&str>, share: Share) -> usize {
        let (base, below, owner) = match place {
            StatusFolder::System => (run.join("libvirt"), "qemu", system_owner(run)),
            StatusFolder::User(uid) => (run.join(format!("user/{uid}")), "libvirt/qemu/run", uid),
        };
        let ReadPlace { files: known, round } = self.places.entry(place).or_default();
        *round = self.number;
        let folder = match OwnedFolder::open(&base, below, owner) {
            Ok(Some(folder)) => folder,
            missing => {
                known.clear();
                self.refused.extend(missing.err().map(|why| (base.join(below), String::new(), why)));
                return 0;
            }
        };
        // Those that waited longest first.
        let mut order: Vec<_> =
            names.iter().map(|name| (known.get(*name).map_or(0, |file| file.round), *name)).collect();
        order.sort_unstable();
        let mut spent = 0;
        for (index, (_, name)) in order.into_iter().enumerate() {
            if index > 0 && share.until.is_some_and(|until| Instant::now() >= until) {
                self.left_out += 1;
                continue;
            }
            let file_name = format!("{name}.xml");
            let mut refuse = |why| self.refused.push((base.join(below).join(&file_name), name.to_owned(), why));
            let file = match folder.file(&file_name, share.file) {
                Ok(Some(file)) => file,
                missing => {
                    known.remove(name);
                    missing.err().into_iter().for_each(refuse);
                    continue;
                }
            };
            if known.get(name).is_none_or(|known| known.stamp != file.stamp) {
                let kept: usize = known.iter().filter(|(other, _)| *other != name).map(|(_, file)| file.kept).sum();
                if file.len > share.bytes - spent || file.len.saturating_add(kept) > share.kept {
                    known.remove(name);
                    self.left_out += 1;
                    continue;
                }
                spent += file.len;
                let (stamp, len) = (file.stamp, file.len);
                let status = file.read().ok().and_then(|text| DomainStatus::parse(&text)).map(Arc::new);
                let kept = if status.is_some() { len } else { 0 };
                known.insert(name.to_owned(), ReadFile { stamp, status, kept, round: 0 });
            }
            if let Some(file) = known.get_mut(name) {
                file.round = self.number;
                if file.status.is_none() {
                    refuse(FileRefusal::NoStatus);
                }
            }
        }
        spent
    }

    /// What the file of a domain says.
    pub(super) fn status(&self, place: StatusFolder, name: &str) -> Option<Arc<DomainStatus>> {
        self.places.get(&place)?.files.get(name)?.status.clone()
    }

    /// Whether a right is missing to read a file.
    pub(super) fn denied(&self) -> bool {
        self.refused.iter().any(|(_, _, why)| is_denied(*why))
    }

    /// What was left out, in a sentence; a right that is missing counts only for the guests of `needed`.
    pub(super) fn problem(&self, needed: impl Fn(&str) -> bool) -> Option<String> {
        let mut refused = self.refused.iter().filter(|(_, name, why)| !is_denied(*why) || needed(name));
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
            causes.push(format!(
                "{} status files in /run/user are beyond what kvmtop reads of users at a time ({} KiB, {} KiB of \
                 one user) and wait",
                self.left_out,
                self.limits.bytes / 1024,
                self.limits.user_bytes / 1024
            ));
        }
        (!causes.is_empty()).then(|| causes.join("; "))
    }
}

fn is_denied(why: FileRefusal) -> bool {
    matches!(why, FileRefusal::System(Errno::ACCESS | Errno::PERM))
}

/// Root; the user of a test for a tree of his own.
fn system_owner(run: &Path) -> u32 {
    if run == Path::new("/run") { 0 } else { rustix::process::geteuid().as_raw() }
}
