//! Files that are written whole or not at all, and never through a link.

use super::folder_of;
use anyhow::{Context as _, bail};
use rights::not_ours;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// Writes a page, readable by its owner alone.
///
/// # Errors
/// When the folder or the disk refuses it; the folder is left as it was.
pub fn write(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    let existing = fs::symlink_metadata(path).ok();
    if let Some(why) = existing.and_then(|meta| not_ours(&meta)) {
        bail!(
            "cannot write {}: it {why}; remove it or choose another name",
            path.display()
        );
    }
    replace(path, content)
        .with_context(|| format!("cannot write {}; give --html another file", path.display()))
}

fn replace(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    // A new file, created by O_EXCL; the rename replaces a link instead of following it.
    let mut file = tempfile::Builder::new()
        .prefix(".kvmtop-")
        .permissions(fs::Permissions::from_mode(0o600))
        .tempfile_in(folder_of(path))
        .context("no new file in its folder")?;
    file.write_all(content)
        .and_then(|()| file.as_file().sync_all())?;
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
            assert_eq!(
                fs::metadata(&path).unwrap().permissions().mode() & 0o777,
                0o600
            );
        }
        assert_eq!(
            fs::read_dir(dir.path()).unwrap().count(),
            1,
            "nothing else is left"
        );
    }

    #[test]
    fn what_is_no_file_of_ours_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let (target, link) = (dir.path().join("target"), dir.path().join("link"));
        fs::write(&target, "mine").unwrap();
        symlink(&target, &link).unwrap();
        let refused = |path: &Path| write(path, b"page").unwrap_err().to_string();
        assert!(
            refused(&link).contains("symbolic link"),
            "{}",
            refused(&link)
        );
        assert_eq!(fs::read_to_string(&target).unwrap(), "mine");
        for path in [dir.path(), Path::new("/dev/null"), Path::new("..")] {
            assert!(
                refused(path).contains("not a regular file"),
                "{}",
                refused(path)
            );
        }
        assert!(refused(&dir.path().join("no/page.html")).contains("/no"));
        assert!(refused(&target.join("page.html")).contains("cannot write"));
    }
}
