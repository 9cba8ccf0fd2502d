//! Opens a file that only its owner could have put there, in a folder that anyone may have prepared.
//!
//! A user owns /run/user/UID and puts anything into it: links to devices, pipes that nobody writes to, links to another
//! user's files, mounts of a file system that answers never (FUSE). None of them may be followed, waited for or read.

use crate::proc::stat::value;
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

/// Why a file is not read. A missing one is `None` of the functions below.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FileRefusal {
    #[error("{0}")]
    System(Errno),
    #[error("a link or another file system is in its path")]
    Redirected,
    #[error("it is not a regular file")]
    Special,
    #[error("it or its folder belongs to another user")]
    ForeignOwner,
    #[error("it has a second name (a hard link)")]
    HardLink,
    #[error("it is larger than {} KiB", .0 / 1024)]
    TooLarge(usize),
    #[error("it is not the status of a running domain, or has a number that no guest has")]
    NoStatus,
    #[error("the kernel has no openat2 (Linux 5.6)")]
    OldKernel,
}

impl From<Errno> for FileRefusal {
    fn from(e: Errno) -> Self {
        match e {
            // openat2(2): a link (`ELOOP`) or a mount point (`EXDEV`) in the path.
            Errno::LOOP | Errno::XDEV => Self::Redirected,
            Errno::NOSYS => Self::OldKernel,
            // A socket, or a folder in place of a file.
            Errno::NXIO | Errno::ISDIR => Self::Special,
            other => Self::System(other),
        }
    }
}

/// Identifies a file's content by its inode, size and times of change: a file that is replaced or rewritten has another
/// stamp.
pub(crate) type FileStamp = (u64, i64, [i64; 4]);

/// A folder, opened.
pub(crate) struct OwnedFolder {
    fd: OwnedFd,
    owner: u32,
}

/// A regular file of the folder's owner, opened and not yet read.
pub(crate) struct OwnedFile {
    fd: OwnedFd,
    pub(crate) stamp: FileStamp,
    /// Its length in bytes.
    pub(crate) len: usize,
}

/// `None` for what does not exist.
fn existing<T>(result: Result<T, Errno>) -> Result<Option<T>, FileRefusal> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

fn is_owned(stat: &Stat, owner: u32) -> Result<(), FileRefusal> {
    if stat.st_uid == owner { Ok(()) } else { Err(FileRefusal::ForeignOwner) }
}

impl OwnedFolder {
    /// Opens `base/below`, where both belong to `owner`; no link and no mount point is followed below `base`.
    ///
    /// # Errors
    /// Why it is not used. A folder that does not exist is `None`.
    pub(crate) fn open(base: &Path, below: &str, owner: u32) -> Result<Option<Self>, FileRefusal> {
        const PATH: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
        let base = rustix::fs::open(base, PATH | OFlags::NOFOLLOW, Mode::empty());
        let Some(base) = existing(base)? else { return Ok(None) };
        // Asked first: fstat(2) waits for the program that serves such a file system.
        if is_on_fuse(&base) {
            return Err(FileRefusal::Redirected);
        }
        is_owned(&rustix::fs::fstat(&base)?, owner)?;
        let found = rustix::fs::openat2(&base, below, PATH, Mode::empty(), inside());
        let Some(fd) = existing(found)? else { return Ok(None) };
        is_owned(&rustix::fs::fstat(&fd)?, owner)?;
        Ok(Some(Self { fd, owner }))
    }

    /// Opens a file in it of at most `max` bytes.
    ///
    /// # Errors
    /// Why it is not read. A file that does not exist is `None`.
    pub(crate) fn file(&self, name: &str, max: usize) -> Result<Option<OwnedFile>, FileRefusal> {
        // O_NONBLOCK: neither a pipe nor a file with a lease (fcntl(2), F_SETLEASE) makes the open wait.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let found = rustix::fs::openat2(&self.fd, name, flags, Mode::empty(), inside());
        let Some(fd) = existing(found)? else { return Ok(None) };
        let stat = rustix::fs::fstat(&fd)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(FileRefusal::Special);
        }
        is_owned(&stat, self.owner)?;
        if stat.st_nlink > 1 {
            return Err(FileRefusal::HardLink);
        }
        let len = usize::try_from(stat.st_size).ok().filter(|len| *len <= max).ok_or(FileRefusal::TooLarge(max))?;
        let nanoseconds = [stat.st_mtime_nsec.cast_signed(), stat.st_ctime_nsec.cast_signed()];
        let times = [stat.st_mtime, nanoseconds[0], stat.st_ctime, nanoseconds[1]];
        Ok(Some(OwnedFile { fd, stamp: (stat.st_ino, stat.st_size, times), len }))
    }
}

impl OwnedFile {
    /// Reads up to `max` bytes from `offset` on.
    pub(crate) fn read_at(self, offset: u64, max: u64) -> Result<Vec<u8>, FileRefusal> {
        let mut file = File::from(self.fd);
        let mut bytes = Vec::new();
        let read = file.seek(SeekFrom::Start(offset)).and_then(|_| file.take(max).read_to_end(&mut bytes));
        read.map_err(|e| FileRefusal::System(Errno::from_io_error(&e).unwrap_or(Errno::IO)))?;
        Ok(bytes)
    }

    /// Reads as many bytes as it had when it was opened.
    pub(crate) fn read(self) -> Result<String, FileRefusal> {
        let len = self.len as u64;
        Ok(String::from_utf8_lossy(&self.read_at(0, len)?).into_owned())
    }
}

fn inside() -> ResolveFlags {
    ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV
}

/// Whether a folder is on a file system that a user's program serves: the only kind that a user without privileges can
/// mount (fusermount(1)). False where /proc does not say it.
fn is_on_fuse(folder: &OwnedFd) -> bool {
    let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let info = text(&format!("/proc/self/fdinfo/{}", folder.as_raw_fd()));
    let Some(id) = value(&info, "mnt_id") else { return false };
    text("/proc/self/mountinfo").lines().any(|line| {
        line.split(' ').next() == Some(id) && line.split_once(" - ").is_some_and(|(_, rest)| rest.starts_with("fuse"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    fn own_uid() -> u32 {
        rustix::process::geteuid().as_raw()
    }

    fn place() -> (tempfile::TempDir, PathBuf) {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("a/b");
        std::fs::create_dir_all(&folder).unwrap();
        (root, folder)
    }

    fn open(root: &tempfile::TempDir) -> OwnedFolder {
        OwnedFolder::open(root.path(), "a/b", own_uid()).unwrap().unwrap()
    }

    #[test]
    fn a_file_of_its_owner_is_read_and_a_missing_one_is_none() {
        let (root, path) = place();
        std::fs::write(path.join("x"), "text").unwrap();
        let folder = open(&root);
        assert_eq!(folder.file("x", 10).unwrap().unwrap().read().unwrap(), "text");
        assert!(folder.file("y", 10).unwrap().is_none());
        assert_eq!(folder.file("x", 3).err(), Some(FileRefusal::TooLarge(3)));
        assert!(OwnedFolder::open(root.path(), "a/none", own_uid()).unwrap().is_none());
    }

    #[test]
    fn nothing_but_a_regular_file_of_one_name_is_opened() {
        let (root, path) = place();
        std::fs::write(path.join("x"), "text").unwrap();
        std::fs::hard_link(path.join("x"), path.join("hard")).unwrap();
        symlink("/dev/zero", path.join("zero")).unwrap();
        symlink("x", path.join("soft")).unwrap();
        std::fs::create_dir(path.join("folder")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, path.join("pipe"), Mode::from_raw_mode(0o600)).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(path.join("socket")).unwrap();
        let folder = open(&root);
        for (name, why) in [
            ("hard", FileRefusal::HardLink),
            ("x", FileRefusal::HardLink),
            ("zero", FileRefusal::Redirected),
            ("soft", FileRefusal::Redirected),
            ("folder", FileRefusal::Special),
            ("pipe", FileRefusal::Special),
            ("socket", FileRefusal::Special),
            ("../b/x", FileRefusal::Redirected),
        ] {
            assert_eq!(folder.file(name, 10).err(), Some(why), "{name}");
        }
    }

    #[test]
    fn a_folder_of_another_user_or_behind_a_link_is_refused() {
        let (root, path) = place();
        let other = own_uid() + 1;
        assert_eq!(OwnedFolder::open(root.path(), "a/b", other).err(), Some(FileRefusal::ForeignOwner));
        symlink(&path, root.path().join("link")).unwrap();
        assert_eq!(OwnedFolder::open(root.path(), "link", own_uid()).err(), Some(FileRefusal::Redirected));
        assert_eq!(OwnedFolder::open(root.path(), "../..", own_uid()).err(), Some(FileRefusal::Redirected));
    }
}
