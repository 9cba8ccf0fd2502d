//! What root has to keep for the files that its user names.

use super::capabilities::without;
use super::identity::{give_up_root, own_user};
use super::keep;
use rustix::fs::{Access, access};
use rustix::io::Errno;
use rustix::thread::CapabilitySet;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// At most this many files of the folders named are tried.
const MAX_TRIED: usize = 4096;
/// As deep as folders are read.
const MAX_DEPTH: usize = 24;

/// The capabilities with which whoever started kvmtop as root reads these inputs and writes into a
/// folder: none where none is needed. Other users open files as themselves, whatever capabilities
/// the program's file has.
pub fn for_files(inputs: &[PathBuf], output: Option<&Path>) -> CapabilitySet {
    let mut set = CapabilitySet::empty();
    if own_user() != 0 {
        return set;
    }
    let mut left = MAX_TRIED;
    set.set(
        CapabilitySet::DAC_READ_SEARCH,
        without(|| {
            inputs
                .iter()
                .any(|path| is_refused(path, MAX_DEPTH, &mut left))
        }),
    );
    set.set(
        CapabilitySet::DAC_OVERRIDE,
        output.is_some_and(|folder| without(|| is_foreign(folder))),
    );
    set
}

/// Gives up root's identity, and all rights that reading these files does not need. For commands
/// that write no file: it would not belong to root.
///
/// # Errors
/// The kernel's, where a security module refuses it.
pub fn keep_to_read(inputs: &[PathBuf]) -> Result<(), Errno> {
    give_up_root(CapabilitySet::DAC_READ_SEARCH)?;
    keep(for_files(inputs, None))
}

/// Whether a file, or one in a folder, is closed to the calling user without capabilities, or too
/// many were tried. Only regular files are opened: whoever writes into a pipe would be disturbed.
fn is_refused(path: &Path, depth: usize, left: &mut usize) -> bool {
    if *left == 0 {
        return true;
    }
    *left -= 1;
    match fs::metadata(path) {
        Err(e) => is_denied(&e),
        Ok(meta) if meta.is_file() => crate::open_regular(path).is_err_and(|e| is_denied(&e)),
        Ok(meta) if meta.is_dir() && depth > 0 => match fs::read_dir(path) {
            Err(e) => is_denied(&e),
            Ok(entries) => entries.flatten().any(|entry| {
                // A link in a folder may lead back.
                entry.file_type().is_ok_and(|t| !t.is_symlink())
                    && is_refused(&entry.path(), depth - 1, left)
            }),
        },
        Ok(_) => access(path, Access::READ_OK).is_err(),
    }
}

/// Whether a folder is one that root without capabilities may not write into.
fn is_foreign(folder: &Path) -> bool {
    match fs::metadata(folder) {
        Ok(meta) => meta.uid() != 0 && meta.mode() & 0o002 == 0,
        Err(e) => is_denied(&e),
    }
}

fn is_denied(error: &io::Error) -> bool {
    error.kind() == ErrorKind::PermissionDenied
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, chown};

    #[test]
    fn root_keeps_what_foreign_files_need() {
        if own_user() != 0 {
            return eprintln!("SKIPPED root_keeps_what_foreign_files_need: not root");
        }
        let dir = tempfile::tempdir().unwrap();
        let (own, foreign) = (dir.path().join("own"), dir.path().join("foreign"));
        for path in [&own, &foreign] {
            fs::create_dir(path).unwrap();
            fs::write(path.join("file"), "x").unwrap();
        }
        let none = CapabilitySet::empty();
        assert_eq!(
            for_files(&[own.clone(), own.join("file")], Some(&own)),
            none
        );
        assert_eq!(
            for_files(&[own.join("missing")], Some(&own.join("missing"))),
            none
        );
        chown(&foreign, Some(65_534), None).unwrap();
        chown(foreign.join("file"), Some(65_534), None).unwrap();
        assert_eq!(
            for_files(&[foreign.join("file")], None),
            none,
            "anybody may read it"
        );
        assert_eq!(for_files(&[], Some(&foreign)), CapabilitySet::DAC_OVERRIDE);
        fs::set_permissions(foreign.join("file"), fs::Permissions::from_mode(0o600)).unwrap();
        for input in [foreign.join("file"), foreign.clone(), dir.path().to_owned()] {
            assert_eq!(for_files(&[input], None), CapabilitySet::DAC_READ_SEARCH);
        }
        fs::set_permissions(&foreign, fs::Permissions::from_mode(0o700)).unwrap();
        let all = CapabilitySet::DAC_READ_SEARCH | CapabilitySet::DAC_OVERRIDE;
        assert_eq!(
            for_files(&[foreign.join("file")], Some(&foreign.join("below"))),
            all
        );
    }
}
