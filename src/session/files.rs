//! A recording's files: taken by one recorder at a time, cut into parts, dropped part by part.

use super::facts::{self, Header};
use super::frame::{self, FrameKind, PROLOGUE};
use super::part::{CHECKED_WHOLE, Part};
use super::scan::{End, read_frame};
use anyhow::{Context, Result, bail};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// More parts than this are neither made nor looked for.
pub const MOST_PARTS: u32 = 1000;

/// A file that this process may record into.
pub struct Taken {
    /// The file, locked.
    pub file: File,
    /// What is in it already and is gone on with.
    pub part: Option<Part>,
    /// What was there before and was moved aside.
    pub aside: Option<Aside>,
}

/// A recording that cannot be gone on with.
pub struct Aside {
    /// What it says of itself.
    pub header: Option<Header>,
    /// What became of it.
    pub note: String,
}

/// Makes a write beyond the limit of file sizes (`ulimit -f`) an error instead of the end of the process.
pub fn survive_file_size_limits() {
    // Where it cannot be had, the signal keeps its meaning.
    let _ = signal_hook::flag::register(libc::SIGXFSZ, Arc::new(AtomicBool::new(false)));
}

/// The name of an older part: 1 is the one before.
pub fn part_path(path: &Path, number: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    name.into()
}

/// Opens, locks and judges a file to record into.
pub fn take(path: &Path) -> Result<Taken> {
    let name = path.display();
    if let Ok(meta) = fs::metadata(path)
        && !meta.is_file()
    {
        bail!("cannot record into {name}: it is not a file");
    }
    let file = locked(path)?;
    let length = file.metadata().with_context(|| format!("cannot record into {name}"))?.len();
    let mut first = [0; PROLOGUE];
    let n = first.len().min(length as usize);
    file.read_exact_at(&mut first[..n], 0).with_context(|| format!("cannot read {name}"))?;
    if n == 0 {
        return Ok(Taken { file, part: None, aside: None });
    }
    if !frame::looks_like(&first[..n]) && !frame::MAGIC.starts_with(&first[..n]) {
        bail!(
            "cannot record into {name}: it exists and is no kvmtop session; kvmtop does not overwrite it, give another name"
        );
    }
    if n < PROLOGUE {
        // A recorder was killed before it wrote anything of worth.
        file.set_len(0).with_context(|| format!("cannot record into {name}"))?;
        return Ok(Taken { file, part: None, aside: None });
    }
    if frame::newer(&first) {
        frame::check_prologue(&first).with_context(|| format!("cannot record into {name}"))?;
    }
    let shared = file.try_clone().with_context(|| format!("cannot record into {name}"))?;
    let why = match Part::open(shared, CHECKED_WHOLE) {
        Ok(part) if part.schema == frame::SCHEMA && matches!(part.stop, End::Whole | End::Cut) => {
            if part.stop == End::Cut {
                // The torn frame at the end holds no whole sample.
                file.set_len(part.end).with_context(|| format!("cannot record into {name}"))?;
            }
            return Ok(Taken { file, part: Some(part), aside: None });
        }
        Ok(part) if part.schema != frame::SCHEMA => (part.header, "of an older version"),
        Ok(part) => (part.header, "damaged"),
        Err(_) => (None, "damaged"),
    };
    let next = rotate(path, &file).with_context(|| format!("cannot move the recording in {name} aside"))?;
    let note = format!("the recording in {name} is {} and was moved to {}", why.1, part_path(path, 1).display());
    Ok(Taken { file: next, part: None, aside: Some(Aside { header: why.0, note }) })
}

/// Opens and locks a file; the lock ends with the process.
fn locked(path: &Path) -> Result<File> {
    let name = path.display();
    for _ in 0..16 {
        let file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .mode(0o640)
            .open(path)
            .map_err(|e| anyhow::Error::new(e).context(cannot_open(path)))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                bail!("another kvmtop is recording into {name}: stop it, or record into another file")
            }
            Err(e) => return Err(e).with_context(|| format!("cannot lock {name}")),
        }
        // The recorder that held the lock may have put another file in this place.
        let (ours, there) = (file.metadata(), fs::metadata(path));
        if let (Ok(a), Ok(b)) = (ours, there)
            && (a.dev(), a.ino()) == (b.dev(), b.ino())
        {
            return Ok(file);
        }
    }
    bail!("cannot record into {name}: it is replaced again and again by something else")
}

fn cannot_open(path: &Path) -> String {
    let name = path.display();
    if path.is_dir() {
        return format!("cannot record into {name}; give the name of a file in this folder");
    }
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    format!("cannot record into {name}; does the folder {} exist, and may you write there?", folder.display())
}

/// Puts a new, locked file in the place of `path`, whose old file becomes the part before. At every instant the name is there and
/// locked, so that no second recorder slips in.
pub fn rotate(path: &Path, old: &File) -> io::Result<File> {
    let mut fresh_name = path.as_os_str().to_owned();
    fresh_name.push(".next");
    let fresh_name = PathBuf::from(fresh_name);
    // Left behind by a recorder that was killed in between; the lock on `path` makes it ours.
    let _ = fs::remove_file(&fresh_name);
    let fresh = OpenOptions::new().read(true).append(true).create_new(true).mode(0o640).open(&fresh_name)?;
    flock(&fresh, FlockOperation::NonBlockingLockExclusive)?;
    let last = (1..MOST_PARTS).find(|n| !part_path(path, *n).exists()).unwrap_or(MOST_PARTS);
    let identity = |m: fs::Metadata| (m.dev(), m.ino());
    let moved = fs::metadata(part_path(path, 1)).map(identity).ok() == old.metadata().map(identity).ok();
    if !moved {
        for n in (1..last).rev() {
            fs::rename(part_path(path, n), part_path(path, n + 1))?;
        }
        // A link first: the name itself is never missing. Where there are no hard links it is for an instant.
        let before = part_path(path, 1);
        if fs::hard_link(path, &before).is_err() {
            fs::rename(path, &before)?;
        }
    }
    fs::rename(&fresh_name, path)?;
    Ok(fresh)
}

/// The header of a session file, if it is one.
pub fn header_of(file: &File) -> Option<Header> {
    let length = file.metadata().ok()?.len();
    let (kind, payload) = read_frame(file, length, PROLOGUE as u64)?;
    if kind == FrameKind::Header { facts::unpack(&payload).ok() } else { None }
}

/// Drops the oldest parts of a recording: those beyond `room` bytes and those written last before `age`. Files that belong to no
/// such recording are left alone.
pub fn drop_old(path: &Path, recording: &str, room: Option<u64>, age: Option<Duration>) {
    let mut sum = 0;
    for n in 1..MOST_PARTS {
        let part = part_path(path, n);
        let Ok(file) = File::open(&part) else { break };
        let Ok(meta) = file.metadata() else { break };
        sum += meta.len();
        let aged = meta.modified().ok().and_then(|m| m.elapsed().ok());
        let over = room.is_some_and(|r| sum > r) || age.is_some_and(|a| aged.is_some_and(|t| t > a));
        if over && header_of(&file).is_some_and(|h| h.recording == recording) {
            // One that cannot be removed now is tried again with the next part.
            let _ = fs::remove_file(&part);
        }
    }
}
