//! Saves the screen's settings in the user's config file: whole or not at all, and through no link.

use super::html_file::replace;
use crate::cli::config::{self, read_text, user_folder};
use crate::cli::saved_settings::with_settings;
use crate::ui::ScreenSettings;
use anyhow::{Context, ensure};
use rights::not_ours;
use rustix::process::geteuid;
use std::fs::{self, DirBuilder, File};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

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
    let folder = path.parent().context("it has no folder")?;
    // `~/.config` itself may be missing on a fresh account.
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.with_context(|| format!("cannot make the folder {}", folder.display()))?;
    // Whoever else may write there could exchange the file.
    let owner = fs::metadata(folder)?.uid();
    ensure!(owner == geteuid().as_raw(), "the folder belongs to another user; with sudo, use `sudo -H`");
    let (old, mode) = match fs::symlink_metadata(path) {
        Ok(meta) => match not_ours(&meta) {
            Some(why) => anyhow::bail!("it {why}"),
            None => (Some(path), meta.mode() & 0o777),
        },
        Err(e) if e.kind() == ErrorKind::NotFound => (in_force, 0o600),
        Err(e) => return Err(e.into()),
    };
    let text = old.map_or(Ok(String::new()), |path| File::open(path).and_then(read_text))?;
    replace(path, with_settings(&text, settings)?.as_bytes(), mode)
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
        assert!(saved(&path, None).unwrap_err().contains("it is a symbolic link"));
        assert_eq!(std::fs::read_to_string(&target).unwrap(), "# theirs\n");
        let folder = dir.path().join("folder");
        std::fs::create_dir(&folder).unwrap();
        assert!(saved(&folder, None).unwrap_err().contains("not a regular file"));
        let broken = dir.path().join("broken.toml");
        std::fs::write(&broken, "[screen\n").unwrap();
        assert!(saved(&broken, None).is_err());
        assert_eq!(std::fs::read_to_string(&broken).unwrap(), "[screen\n", "as it was");
    }
}
