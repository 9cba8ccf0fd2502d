//! Files that are written whole or not at all, and never through a link.

use super::{folder_of, print_bytes};
use anyhow::{Context as _, anyhow, ensure};
use rights::not_ours;
use std::fs;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// The name that means the standard output.
pub const STDOUT: &str = "-";

/// Fails if the file cannot be written for a reason that is known before the work is done.
///
/// # Errors
/// If the path is not a regular file of this user, or its folder does not exist.
pub fn check(path: &Path) -> anyhow::Result<()> {
    if path == Path::new(STDOUT) {
        return Ok(());
    }
    let name = path.display();
    ensure!(
        path.file_name().is_some(),
        "cannot write '{name}': it names no file; give --html a file such as page.html"
    );
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => Err(anyhow!("cannot write {name}: it is a folder; give --html a file in it")),
        Ok(meta) => match not_ours(&meta) {
            Some(why) => Err(anyhow!("cannot write {name}: it {why}; remove it or choose another name")),
            None => Ok(()),
        },
        Err(e) if e.kind() == ErrorKind::NotFound => {
            let folder = folder_of(path);
            let meta = fs::metadata(folder).with_context(|| format!("cannot write {name}: {}", folder.display()))?;
            ensure!(meta.is_dir(), "cannot write {name}: {} is no folder", folder.display());
            Ok(())
        }
        Err(e) => Err(e).with_context(|| format!("cannot write {name}")),
    }
}

/// Writes a page, readable by its owner alone.
///
/// # Errors
/// As [`check`], and when the folder or the disk refuses it; the folder is left as it was.
pub fn write(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    if path == Path::new(STDOUT) {
        return Ok(print_bytes(content)?);
    }
    check(path)?;
    replace(path, content).with_context(|| format!("cannot write {}", path.display()))
}

fn replace(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    // A new file, created by O_EXCL; the rename replaces a link instead of following it.
    let mut file = tempfile::Builder::new()
        .prefix(".kvmtop-")
        .permissions(fs::Permissions::from_mode(0o600))
        .tempfile_in(folder_of(path))
        .context("no new file in its folder")?;
    file.write_all(content).and_then(|()| file.as_file().sync_all())?;
    file.persist(path).map_err(|e| e.error)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_page_is_private_and_replaced_as_a_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("page.html");
        for text in ["one", "two"] {
            write(&path, text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn what_is_no_file_of_ours_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let (target, link) = (dir.path().join("target"), dir.path().join("link"));
        fs::write(&target, "mine").unwrap();
        symlink(&target, &link).unwrap();
        let refused = |path: &Path| write(path, b"page").unwrap_err().to_string();
        assert!(refused(&link).contains("symbolic link"), "{}", refused(&link));
        assert_eq!(fs::read_to_string(&target).unwrap(), "mine");
        assert!(refused(dir.path()).contains("folder"));
        assert!(refused(Path::new("/dev/null")).contains("not a regular file"));
        assert!(refused(&dir.path().join("no/page.html")).contains("/no"), "{}", refused(&dir.path().join("no/p")));
        assert!(refused(Path::new("..")).contains("names no file"), "{}", refused(Path::new("..")));
        assert!(refused(&target.join("page.html")).contains("cannot write"));
    }
}
