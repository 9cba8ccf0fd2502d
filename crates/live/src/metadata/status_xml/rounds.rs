//! One look at all status files: what is read, in which order, and how much.

use super::DomainStatus;
use crate::owned_file::{FileRefusal, FileStamp, OwnedFile, OwnedFolder};
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
    /// Number of files of one user that are looked at in a round.
    pub user_files: usize,
    /// Bytes of one user that are parsed in a round.
    pub user_bytes: usize,
    /// Bytes of one user that are kept.
    pub user_kept: usize,
    /// Number of files of all users that are looked at in a round.
    pub files: usize,
    /// Bytes of all users that are parsed in a round: some 7 ms.
    pub bytes: usize,
    /// Bytes of all users that are kept.
    pub kept: usize,
    /// After this time no further file of a user is read in a round.
    pub time: Duration,
}

impl Default for ReadLimits {
    fn default() -> Self {
        const KIB: usize = 1024;
        Self {
            file: 256 * KIB,
            user_files: 256,
            user_bytes: 256 * KIB,
            user_kept: 512 * KIB,
            files: 1024,
            bytes: 1024 * KIB,
            kept: 16 * KIB * KIB,
            time: Duration::from_millis(10),
        }
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

/// What a round may still spend.
#[derive(Clone, Copy)]
struct Allowance {
    file: usize,
    files: usize,
    bytes: usize,
    kept: usize,
}

/// The files read so far.
pub(super) struct Round {
    limits: ReadLimits,
    number: u64,
    files: HashMap<StatusFolder, BTreeMap<String, ReadFile>>,
    /// The round in which each user was served last.
    served: HashMap<u32, u64>,
    /// Files that exist and were not read, with the reason; and those for which no budget was left.
    refused: Vec<(PathBuf, String, FileRefusal)>,
    left_out: usize,
}

impl Round {
    pub(super) fn new(limits: ReadLimits) -> Self {
        Self { limits, number: 0, files: HashMap::new(), served: HashMap::new(), refused: Vec::new(), left_out: 0 }
    }

    /// Looks at the wanted files; forgets all others.
    pub(super) fn read(&mut self, run: &Path, wanted: &BTreeMap<StatusFolder, BTreeSet<&str>>) {
        self.number += 1;
        self.refused.clear();
        self.left_out = 0;
        self.files.retain(|place, _| wanted.contains_key(place));
        for (place, files) in &mut self.files {
            files.retain(|name, _| wanted.get(place).is_some_and(|names| names.contains(name.as_str())));
        }
        self.served.retain(|uid, _| wanted.contains_key(&StatusFolder::User(*uid)));
        if let Some(names) = wanted.get(&StatusFolder::System) {
            let all = Allowance { file: MAX_TEXT, files: usize::MAX, bytes: usize::MAX, kept: usize::MAX };
            self.read_place(run, StatusFolder::System, names, all, None);
        }
        self.read_users(run, wanted);
    }

    /// Users who waited longest go first, so that nobody's flood keeps the others out for ever.
    fn read_users(&mut self, run: &Path, wanted: &BTreeMap<StatusFolder, BTreeSet<&str>>) {
        let mut users: Vec<(u64, u32, &BTreeSet<&str>)> = wanted
            .iter()
            .filter_map(|(place, names)| match place {
                StatusFolder::System => None,
                StatusFolder::User(uid) => Some((self.served.get(uid).copied().unwrap_or(0), *uid, names)),
            })
            .collect();
        users.sort_unstable();
        let limits = self.limits;
        let until = Instant::now() + limits.time;
        let mut all = Allowance { file: limits.file, files: limits.files, bytes: limits.bytes, kept: 0 };
        for (index, (_, uid, names)) in users.into_iter().enumerate() {
            // At least one user is served in each round, whatever the load of the machine.
            if index > 0 && (all.files == 0 || all.bytes < limits.file || Instant::now() >= until) {
                self.left_out += names.len();
                continue;
            }
            let kept: usize = self.files.values().flat_map(BTreeMap::values).map(|file| file.kept).sum();
            let share = Allowance {
                file: limits.file,
                files: all.files.min(limits.user_files),
                bytes: all.bytes.min(limits.user_bytes),
                kept: limits.user_kept.min(limits.kept.saturating_sub(kept) + self.kept(StatusFolder::User(uid))),
            };
            let left = self.read_place(run, StatusFolder::User(uid), names, share, Some(until));
            all.files -= share.files - left.files;
            all.bytes -= share.bytes - left.bytes;
            self.served.insert(uid, self.number);
        }
    }

    /// Reads the files of one place within what it may spend; returns what is left of that.
    fn read_place(
        &mut self,
        run: &Path,
        place: StatusFolder,
        names: &BTreeSet<&str>,
        mut left: Allowance,
        until: Option<Instant>,
    ) -> Allowance {
        let (base, below, owner) = match place {
            StatusFolder::System => (run.join("libvirt"), "qemu", system_owner(run)),
            StatusFolder::User(uid) => (run.join(format!("user/{uid}")), "libvirt/qemu/run", uid),
        };
        let folder = match OwnedFolder::open(&base, below, owner) {
            Ok(Some(folder)) => folder,
            Ok(None) => {
                self.files.remove(&place);
                return left;
            }
            Err(why) => {
                self.files.remove(&place);
                self.refused.push((base.join(below), String::new(), why));
                return left;
            }
        };
        let path = |name: &str| base.join(below).join(format!("{name}.xml"));
        let known = self.files.entry(place).or_default();
        // Those that waited longest first.
        let mut order: Vec<(u64, &str)> =
            names.iter().map(|name| (known.get(*name).map_or(0, |file| file.round), *name)).collect();
        order.sort_unstable();
        for (index, (_, name)) in order.into_iter().enumerate() {
            if left.files == 0 || index > 0 && until.is_some_and(|until| Instant::now() >= until) {
                self.left_out += 1;
                continue;
            }
            left.files -= 1;
            let file = match folder.file(&format!("{name}.xml"), left.file) {
                Ok(Some(file)) => file,
                Ok(None) => {
                    known.remove(name);
                    continue;
                }
                Err(why) => {
                    known.remove(name);
                    self.refused.push((path(name), name.to_owned(), why));
                    continue;
                }
            };
            if let Some(same) = known.get_mut(name).filter(|known| known.stamp == file.stamp) {
                same.round = self.number;
                if same.status.is_none() {
                    self.refused.push((path(name), name.to_owned(), FileRefusal::NoStatus));
                }
                continue;
            }
            let kept: usize = known.iter().filter(|(other, _)| *other != name).map(|(_, file)| file.kept).sum();
            if file.len > left.bytes || file.len.saturating_add(kept) > left.kept {
                known.remove(name);
                self.left_out += 1;
                continue;
            }
            left.bytes -= file.len;
            let file = ReadFile::read(file, self.number);
            if file.status.is_none() {
                self.refused.push((path(name), name.to_owned(), FileRefusal::NoStatus));
            }
            known.insert(name.to_owned(), file);
        }
        left
    }

    fn kept(&self, place: StatusFolder) -> usize {
        self.files.get(&place).into_iter().flat_map(BTreeMap::values).map(|file| file.kept).sum()
    }

    /// What the file of a domain says.
    pub(super) fn status(&self, place: StatusFolder, name: &str) -> Option<Arc<DomainStatus>> {
        self.files.get(&place)?.get(name)?.status.clone()
    }

    /// Whether a right is missing to read a file.
    pub(super) fn denied(&self) -> bool {
        self.refused.iter().any(|(_, _, why)| is_denied(*why))
    }

    /// What was left out, in a sentence; a right that is missing counts only for the guests of `needed`.
    pub(super) fn problem(&self, needed: impl Fn(&str) -> bool) -> Option<String> {
        let mut refused = self.refused.iter().filter(|(_, name, why)| !is_denied(*why) || needed(name));
        let first = refused.next();
        let more = refused.count();
        let mut causes = Vec::new();
        if let Some((path, _, why)) = first {
            let path = sanitize(&path.display().to_string(), 200);
            let more = if more > 0 { format!(" (and {more} more)") } else { String::new() };
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

impl ReadFile {
    fn read(file: OwnedFile, round: u64) -> Self {
        let (stamp, len) = (file.stamp, file.len);
        let status = file.read().ok().and_then(|text| DomainStatus::parse(&text)).map(Arc::new);
        Self { stamp, kept: if status.is_some() { len } else { 0 }, status, round }
    }
}

fn is_denied(why: FileRefusal) -> bool {
    matches!(why, FileRefusal::System(Errno::ACCESS | Errno::PERM))
}

/// Root; the user of a test for a tree of his own.
fn system_owner(run: &Path) -> u32 {
    if run == Path::new("/run") { 0 } else { rustix::process::geteuid().as_raw() }
}
