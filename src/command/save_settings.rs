//! Saves the screen's settings in the user's config file: whole or not at all, and through no link.

use crate::cli::config::{self, user_folder};
use crate::cli::saved_settings::with_settings;
use crate::ui::ScreenSettings;
use anyhow::{Context, ensure};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, fstat, mkdirat, openat, renameat, unlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Largest config file that is changed, bytes.
const LARGEST: u64 = 1 << 20;

/// Saves the settings in the file that the user asked for, else in the user's own; answers with its path. A file of the
/// user's that is not there yet begins as a copy of the system's, which it hides from then on.
///
/// # Errors
/// When the file cannot be read, changed or written, is a link, or belongs to somebody else.
pub fn save(asked: Option<&Path>, settings: &ScreenSettings) -> anyhow::Result<PathBuf> {
    let variable = |name: &str| std::env::var_os(name);
    let in_force = config::find(asked, variable, Path::exists);
    let path = match (&in_force, user_folder(&variable)) {
        (Some(path), _) if path != Path::new(config::SYSTEM) => path.clone(),
        (_, Some(folder)) => folder.join("config.toml"),
        (_, None) => anyhow::bail!("neither XDG_CONFIG_HOME nor HOME names a folder; start kvmtop with --config FILE"),
    };
    let path = std::path::absolute(&path)?;
    write(&path, in_force.as_deref(), settings).with_context(|| format!("cannot save in {}", path.display()))?;
    Ok(path)
}

fn write(path: &Path, in_force: Option<&Path>, settings: &ScreenSettings) -> anyhow::Result<()> {
    let (folder, name) = path.parent().zip(path.file_name()).context("it has no folder")?;
    let folder = open_folder(folder)?;
    let old = match openat(
        &folder,
        name,
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC,
        Mode::empty(),
    ) {
        Ok(file) => Some(file),
        Err(Errno::NOENT) => None,
        Err(Errno::LOOP) => anyhow::bail!("it is a link; put the settings into the file behind it"),
        Err(e) => return Err(e.into()),
    };
    let (text, mode) = match old {
        Some(file) => {
            let stat = fstat(&file)?;
            ensure!(FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile, "it is no regular file");
            ensure!(stat.st_uid == geteuid().as_raw(), "it belongs to another user");
            (read(File::from(file))?, Mode::from_raw_mode(stat.st_mode & 0o777))
        }
        // The system's file is root's: links are its matter.
        None => match in_force.filter(|p| *p != path) {
            Some(system) => (read(File::open(system)?)?, Mode::RUSR | Mode::WUSR),
            None => (String::new(), Mode::RUSR | Mode::WUSR),
        },
    };
    let text = with_settings(&text, settings)?;
    let new = format!(".{}.{}.new", name.to_string_lossy(), std::process::id());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(openat(&folder, &new, flags, mode)?);
    let done = file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(anyhow::Error::from);
    let done = done.and_then(|()| Ok(renameat(&folder, &new, &folder, name)?));
    if done.is_err() {
        let _ = unlinkat(&folder, &new, AtFlags::empty());
    }
    done
}

/// The file's folder, made where it is missing. Whoever else may write there could exchange the file.
fn open_folder(folder: &Path) -> anyhow::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    let open = || openat(CWD, folder, flags, Mode::empty());
    let opened = match open() {
        Err(Errno::NOENT) => {
            if let Some(above) = folder.parent() {
                // `~/.config` itself may be missing on a fresh account.
                let _ = mkdirat(CWD, above, Mode::RWXU);
            }
            mkdirat(CWD, folder, Mode::RWXU).with_context(|| format!("cannot make the folder {}", folder.display()))?;
            open()?
        }
        other => other?,
    };
    let owner = fstat(&opened)?.st_uid;
    ensure!(owner == geteuid().as_raw(), "the folder belongs to another user; with sudo, use `sudo -H`");
    Ok(opened)
}

fn read(file: File) -> anyhow::Result<String> {
    let mut text = String::new();
    file.take(LARGEST + 1).read_to_string(&mut text)?;
    ensure!(text.len() as u64 <= LARGEST, "it is larger than {LARGEST} bytes");
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn saved(path: &Path, in_force: Option<&Path>) -> Result<String, String> {
        let settings = ScreenSettings { mouse: true, ..ScreenSettings::default() };
        write(path, in_force, &settings).map_err(|e| format!("{e:#}"))?;
        Ok(std::fs::read_to_string(path).unwrap())
    }

    #[test]
    fn a_new_file_is_its_owners_and_an_old_one_keeps_its_comments_and_mode() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/kvmtop/config.toml");
        assert!(saved(&path, None).unwrap().contains("mouse = true"));
        let mode = |p: &Path| std::fs::metadata(p).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o600);
        std::fs::write(&path, "# mine\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(saved(&path, Some(&path)).unwrap().contains("# mine"));
        assert_eq!(mode(&path), 0o644);
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing is left behind");
    }

    #[test]
    fn the_first_file_of_a_user_begins_as_the_systems() {
        let dir = tempfile::tempdir().unwrap();
        let system = dir.path().join("kvmtop.toml");
        std::fs::write(&system, "[sampling]\ninterval = 5\n").unwrap();
        assert!(saved(&dir.path().join("config.toml"), Some(&system)).unwrap().contains("interval = 5"));
        assert!(!std::fs::read_to_string(system).unwrap().contains("mouse"));
    }

    #[test]
    fn links_and_what_is_no_file_are_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let (path, target) = (dir.path().join("config.toml"), dir.path().join("target"));
        std::fs::write(&target, "# theirs\n").unwrap();
        symlink(&target, &path).unwrap();
        assert!(saved(&path, None).unwrap_err().contains("it is a link"));
        assert_eq!(std::fs::read_to_string(&target).unwrap(), "# theirs\n");
        let folder = dir.path().join("folder");
        std::fs::create_dir(&folder).unwrap();
        assert!(saved(&folder, None).unwrap_err().contains("no regular file"));
        let broken = dir.path().join("broken.toml");
        std::fs::write(&broken, "[screen\n").unwrap();
        assert!(saved(&broken, None).is_err());
        assert_eq!(std::fs::read_to_string(&broken).unwrap(), "[screen\n", "as it was");
    }
}
