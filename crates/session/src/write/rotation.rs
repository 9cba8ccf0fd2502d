//! A recording's files: locked by one recorder at a time, cut into parts, deleted part by part.

use super::part::PartWriter;
use crate::format::{self, PROLOGUE_BYTES};
use crate::read::{End, MAX_PARTS, PartReader, first_bytes, part_path, recording_id_of};
use anyhow::{Context, Result, bail, ensure};
use rights::{not_ours, open_regular};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// A file that this process may record into.
pub struct LockedFile {
    /// Continues the locked file.
    pub writer: PartWriter,
    /// The id of the recording, if it is not new.
    pub recording_id: Option<String>,
    /// What the user should know of what was there before.
    pub note: Option<String>,
}

/// Makes a write beyond the limit of file sizes (`ulimit -f`) an error instead of the end of the
/// process.
pub fn survive_file_size_limits() {
    // Where no handler can be set, the signal ends the process as before.
    let _ = signal_hook::flag::register(libc::SIGXFSZ, Arc::new(AtomicBool::new(false)));
}

/// Opens, locks and checks a file to record into.
pub fn lock(path: &Path) -> Result<LockedFile> {
    let name = path.display();
    refuse_foreign(path, fs::symlink_metadata(path))?;
    let file = Arc::new(open_locked(path)?);
    refuse_foreign(path, file.metadata())?;
    let length = file.metadata().with_context(|| cannot_record(path))?.len();
    let first = first_bytes(&file, length).with_context(|| format!("cannot read {name}"))?;
    if first.len() < PROLOGUE_BYTES && format::prologue().starts_with(&first) {
        // The file is new, or a recorder was killed before it wrote a frame.
        file.set_len(0).with_context(|| cannot_record(path))?;
        return Ok(LockedFile {
            writer: PartWriter::new(file),
            recording_id: None,
            note: None,
        });
    }
    let part = PartReader::open(file.clone()).with_context(|| {
        format!("cannot record into {name}: kvmtop does not overwrite it, give another name")
    })?;
    let recording_id = part.recording_id.clone();
    if part.holes.is_empty() && matches!(part.stop, End::Whole | End::Cut) {
        // A torn frame at the end holds no whole sample, so it is cut off.
        file.set_len(part.end)
            .with_context(|| cannot_record(path))?;
        let note = format!(
            "{name} exists: recording continues after its {} samples",
            part.times.len()
        );
        return Ok(LockedFile {
            writer: PartWriter::after(part),
            recording_id,
            note: Some(note),
        });
    }
    let next =
        rotate(path).with_context(|| format!("cannot move the recording in {name} aside"))?;
    let note = format!(
        "the recording in {name} is damaged and was moved to {}",
        part_path(path, 1).display()
    );
    Ok(LockedFile {
        writer: PartWriter::new(next),
        recording_id,
        note: Some(note),
    })
}

fn cannot_record(path: &Path) -> String {
    format!("cannot record into {}", path.display())
}

/// Fails for a file of another user; a file that does not exist yet will be this user's.
fn refuse_foreign(path: &Path, meta: io::Result<fs::Metadata>) -> Result<()> {
    if let Some(why) = meta.ok().as_ref().and_then(not_ours) {
        bail!(
            "cannot record into {}: it {why}; give another name",
            path.display()
        );
    }
    Ok(())
}

/// How often kvmtop tries to open a file that another process locks or replaces.
const LOCK_ATTEMPTS: u32 = 16;
const LOCK_PAUSE: Duration = Duration::from_millis(50);

/// Opens and locks a file; the lock ends with the process.
fn open_locked(path: &Path) -> Result<File> {
    let name = path.display();
    for attempt in 1..=LOCK_ATTEMPTS {
        let file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(path)
            .map_err(|e| anyhow::Error::new(e).context(why_not_opened(path)))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            // A reader holds the lock for an instant, and so does a process that was just forked.
            Err(Errno::WOULDBLOCK) if attempt < LOCK_ATTEMPTS => {
                std::thread::sleep(LOCK_PAUSE);
                continue;
            }
            Err(Errno::WOULDBLOCK) => {
                bail!(
                    "another kvmtop is recording into {name}: stop it, or record into another file"
                )
            }
            Err(e) => return Err(e).with_context(|| format!("cannot lock {name}")),
        }
        // The recorder that held the lock may have put another file in this place.
        if let (Ok(ours), Ok(there)) = (file.metadata(), fs::symlink_metadata(path))
            && (ours.dev(), ours.ino()) == (there.dev(), there.ino())
        {
            return Ok(file);
        }
    }
    bail!("cannot record into {name}: it is replaced again and again by something else")
}

fn why_not_opened(path: &Path) -> String {
    let name = path.display();
    if path.is_dir() {
        return format!("cannot record into {name}; give the name of a file in this folder");
    }
    let folder = path
        .parent()
        .filter(|p| !p.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    format!(
        "cannot record into {name}; does the folder {} exist, and may you write there?",
        folder.display()
    )
}

/// Puts a new, locked file in the place of `path`, whose old file becomes part 1.
pub fn rotate(path: &Path) -> Result<Arc<File>> {
    let mut fresh_name = path.as_os_str().to_owned();
    fresh_name.push(".next");
    let fresh_name = PathBuf::from(fresh_name);
    let free = first_free_part(path)?;
    refuse_foreign(&fresh_name, fs::symlink_metadata(&fresh_name))?;
    let fresh = open_locked(&fresh_name)?;
    // An empty file is of a recorder that was killed before it renamed the file.
    ensure!(
        fresh.metadata()?.len() == 0,
        "{} is in the way: move or delete it",
        fresh_name.display()
    );
    // Part 0 is the file itself.
    for n in (0..free).rev() {
        fs::rename(part_path(path, n), part_path(path, n + 1))?;
    }
    fs::rename(&fresh_name, path)?;
    Ok(fresh.into())
}

/// The number after that of the oldest part.
///
/// # Errors
/// A part belongs to another user.
fn first_free_part(path: &Path) -> Result<u32> {
    for n in 1..MAX_PARTS {
        let part = part_path(path, n);
        let Ok(meta) = fs::symlink_metadata(&part) else {
            return Ok(n);
        };
        if let Some(why) = not_ours(&meta) {
            bail!("{} {why}: move it away", part.display());
        }
    }
    Ok(MAX_PARTS)
}

/// Deletes the oldest parts of a recording: those beyond `room` bytes and those last written longer
/// than `age` ago. Files that belong to no such recording are left alone.
pub fn delete_old(path: &Path, recording_id: &str, room: Option<u64>, age: Option<Duration>) {
    let mut sum = 0;
    for n in 1..MAX_PARTS {
        let part = part_path(path, n);
        let is_ours = fs::symlink_metadata(&part).is_ok_and(|meta| not_ours(&meta).is_none());
        if !is_ours {
            break;
        }
        let Ok(file) = open_regular(&part) else {
            break;
        };
        let Ok(meta) = file.metadata() else { break };
        sum += meta.len();
        let written_ago = meta.modified().ok().and_then(|m| m.elapsed().ok());
        let is_old = age.is_some_and(|age| written_ago.is_some_and(|ago| ago > age));
        let is_over = is_old || room.is_some_and(|room| sum > room);
        if is_over && recording_id_of(&file).is_some_and(|id| id == recording_id) {
            // A part that cannot be deleted now is tried again when the next one begins.
            let _ = fs::remove_file(&part);
        }
    }
}
