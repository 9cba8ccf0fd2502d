//! Reads small kernel files: once, or repeatedly through a file kept open.

use super::stat::number;
use procfs::FromRead;
use rustix::fs::{CWD, Mode, OFlags, RawDir};
use rustix::io::Errno;
use rustix::path::Arg;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::str::FromStr;

/// Files kept open leave this many descriptors free for everything else (perf rings, libvirt, the
/// terminal).
const RESERVED: u64 = 512;

/// Why a file of a process could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileError {
    /// The process or thread is gone (`ENOENT` before the open, `ESRCH` after it), which is normal.
    Gone,
    /// Not allowed.
    Denied,
    /// Anything else.
    Other(Errno),
}

impl From<Errno> for FileError {
    fn from(e: Errno) -> Self {
        match e {
            Errno::NOENT | Errno::SRCH | Errno::NOTDIR => Self::Gone,
            Errno::ACCESS | Errno::PERM => Self::Denied,
            other => Self::Other(other),
        }
    }
}

/// Files may be kept open below this descriptor: the soft limit of open files less a reserve.
/// Raises the soft limit to the hard one first.
pub(crate) fn keep_below() -> i32 {
    let limit = rights::allow_files().unwrap_or(1 << 20).min(1 << 20);
    i32::try_from(limit.saturating_sub(RESERVED).max(limit / 2)).unwrap_or(i32::MAX)
}

/// Opens a folder for `openat` and listing.
pub(crate) fn open_dir(path: &Path) -> Result<OwnedFd, FileError> {
    Ok(rustix::fs::open(
        path,
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?)
}

/// Reads the file `dir/tid/name` from its start into `buf`. `kept` holds the open file, or takes it
/// when it is opened. A file with a descriptor from `keep_below` on is closed again, so that a host
/// with very many threads still works, only slower. The text is cut at the buffer's end.
pub(crate) fn read_kept<'b>(
    dir: impl AsFd,
    (tid, name): (i32, &str),
    kept: &mut Option<OwnedFd>,
    keep_below: i32,
    buf: &'b mut [u8],
) -> Result<&'b [u8], FileError> {
    let fd = match kept {
        Some(fd) => fd,
        None => {
            let name = format!("{tid}/{name}");
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            kept.insert(rustix::fs::openat(dir, name, flags, Mode::empty())?)
        }
    };
    let read = rustix::io::pread(&*fd, &mut *buf, 0);
    if fd.as_raw_fd() >= keep_below {
        *kept = None;
    }
    Ok(&buf[..read?])
}

/// Opens a regular file that `owner` wrote, without waiting; returns its properties too.
pub(crate) fn open_owned(path: &Path, owner: u32) -> io::Result<(File, Metadata)> {
    let file = rights::open_regular(path)?;
    let meta = file.metadata()?;
    if meta.uid() == owner {
        Ok((file, meta))
    } else {
        Err(io::Error::other("it belongs to another user"))
    }
}

/// Reads a file, at most `max` bytes, as text; bytes that are not UTF-8 are replaced.
pub(crate) fn read_text(path: &Path, max: usize) -> Result<String, FileError> {
    Ok(String::from_utf8_lossy(&read_bytes(path, max)?).into_owned())
}

/// Reads a file, at most `max` bytes.
pub(crate) fn read_bytes(path: &Path, max: usize) -> Result<Vec<u8>, FileError> {
    read_bytes_at(CWD, path, max)
}

/// Reads a file of an open folder, at most `max` bytes.
pub(crate) fn read_bytes_at(
    dir: impl AsFd,
    name: impl Arg,
    max: usize,
) -> Result<Vec<u8>, FileError> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = File::from(rustix::fs::openat(dir, name, flags, Mode::empty())?);
    let mut bytes = Vec::with_capacity(max.min(4096));
    let read = file.take(max as u64).read_to_end(&mut bytes);
    read.map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
    Ok(bytes)
}

/// The longest /proc/PID/status: a process may be in 65,536 groups (`NGROUPS_MAX`,
/// include/uapi/linux/limits.h).
pub(crate) const MAX_STATUS: usize = 1 << 20;

/// Reads a file, at most `max` bytes, as procfs does; `None` where it cannot be read. Bytes that
/// are not UTF-8, as a process may have in its name, are replaced.
pub(crate) fn read_as<T: FromRead>(path: &Path, max: usize) -> Option<T> {
    T::from_read(read_text(path, max).ok()?.as_bytes()).ok()
}

/// The text of a file, trimmed; `None` where it cannot be read or is empty.
pub(crate) fn read_word(path: &Path) -> Option<String> {
    let text = read_text(path, 64 * 1024).ok()?;
    Some(text.trim())
        .filter(|t| !t.is_empty())
        .map(str::to_owned)
}

/// The number that a file holds; `None` where it cannot be read or holds none.
pub(crate) fn read_number<T: FromStr>(path: &Path) -> Option<T> {
    read_word(path)?.parse().ok()
}

/// The entries of a folder whose names are numbers; empty where it cannot be read.
pub(crate) fn numbers_in(path: &Path) -> Vec<i32> {
    let mut numbers = Vec::new();
    let _ = open_dir(path).and_then(|dir| list_numbers(&dir, |number, _| numbers.push(number)));
    numbers
}

/// Calls `each` for the entries of an open folder whose names are numbers (PIDs, TIDs,
/// descriptors), with their inode numbers.
pub(crate) fn list_numbers(
    dir: impl AsFd,
    mut each: impl FnMut(i32, u64),
) -> Result<(), FileError> {
    rustix::fs::seek(&dir, rustix::fs::SeekFrom::Start(0))?;
    let mut buf = [MaybeUninit::<u8>::uninit(); 16 * 1024];
    let mut entries = RawDir::new(dir, &mut buf);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        if let Some(number) = number(entry.file_name().to_bytes()) {
            each(number, entry.ino());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_are_listed() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["1", "42", "self", "12x", "99999999999", "acpi"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        let fd = open_dir(dir.path()).unwrap();
        for _ in 0..2 {
            let mut seen = vec![];
            list_numbers(&fd, |n, _| seen.push(n)).unwrap();
            seen.sort_unstable();
            assert_eq!(seen, [1, 42]);
        }
    }

    #[test]
    fn a_missing_file_is_gone() {
        assert_eq!(
            read_text(Path::new("/nonexistent/x"), 10),
            Err(FileError::Gone)
        );
    }

    #[test]
    fn a_kept_file_reads_again_from_its_start() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("7")).unwrap();
        std::fs::write(dir.path().join("7/a"), "one").unwrap();
        let fd = open_dir(dir.path()).unwrap();
        let (mut kept, mut buf) = (None, [0; 16]);
        for below in [i32::MAX, 0] {
            assert_eq!(
                read_kept(&fd, (7, "a"), &mut kept, below, &mut buf).unwrap(),
                b"one"
            );
            assert_eq!(
                read_kept(&fd, (7, "a"), &mut kept, below, &mut buf).unwrap(),
                b"one"
            );
            assert_eq!(kept.is_some(), below > 0);
            kept = None;
        }
    }
}
