//! Regular files and nothing else: opening a named pipe or a device could block for ever, or start
//! something.

use rustix::process::geteuid;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Opens a file to read.
///
/// # Errors
/// When it cannot be opened, or is not a regular file.
pub fn open_regular(path: &Path) -> io::Result<File> {
    // Opening a watchdog starts it, so this is checked before; and after, as the file may have been
    // replaced.
    regular(&fs::metadata(path)?)?;
    let file = open_without_waiting(path)?;
    regular(&file.metadata()?)?;
    Ok(file)
}

fn open_without_waiting(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)
}

/// Opens a file or a pipe to read. A pipe into which nobody writes is empty; one with a writer is
/// waited for.
///
/// # Errors
/// When it cannot be opened.
pub fn open_input(path: &Path) -> io::Result<File> {
    let file = open_without_waiting(path)?;
    rustix::fs::fcntl_setfl(&file, rustix::fs::OFlags::empty())?;
    Ok(file)
}

fn regular(meta: &Metadata) -> io::Result<()> {
    if meta.is_file() {
        Ok(())
    } else {
        Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is not a regular file",
        ))
    }
}

/// What keeps this process from writing into a file of these properties, in words that follow the
/// file's name: in a folder such as /tmp it can be a link, or belong to another user.
pub fn not_ours(meta: &Metadata) -> Option<String> {
    if meta.is_symlink() {
        return Some("is a symbolic link, and none is followed".into());
    }
    if !meta.is_file() {
        return Some("is not a regular file".into());
    }
    if meta.uid() != geteuid().as_raw() {
        return Some(format!("belongs to another user (uid {})", meta.uid()));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    #[test]
    fn a_pipe_and_a_device_are_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR, 0).unwrap();
        for path in [fifo.as_path(), Path::new("/dev/null"), dir.path()] {
            assert_eq!(
                open_regular(path).unwrap_err().to_string(),
                "it is not a regular file"
            );
            assert!(
                not_ours(&fs::symlink_metadata(path).unwrap())
                    .unwrap()
                    .contains("not a regular file")
            );
        }
    }
}
