//! Names of the host's block devices by their numbers (Documentation/ABI/stable/sysfs-block,
//! `/sys/dev/block`).

use crate::proc::file;
use kvm::sanitize;
use std::path::Path;

/// At most this many devices below one are kept.
const MAX_BELOW: usize = 64;

/// What sysfs says of a device: its name, its alias, and the devices below it.
pub(crate) type BlockDevice = (String, Option<String>, Vec<String>);

/// Reads what sysfs says of the device with this number.
pub(crate) fn read(sys: &Path, (major, minor): (u32, u32)) -> BlockDevice {
    let dir = sys.join(format!("dev/block/{major}:{minor}"));
    let name = std::fs::read_link(&dir)
        .ok()
        .and_then(|path| Some(sanitize(&path.file_name()?.to_string_lossy(), 64)))
        .unwrap_or_else(|| format!("{major}:{minor}"));
    // A partition has what its disk has one folder up.
    let alias = ["dm/name", "loop/backing_file", "../loop/backing_file"]
        .iter()
        .find_map(|path| file::read_text(&dir.join(path), 4096).ok())
        .map(|text| sanitize(text.trim_end(), 256));
    (name, alias.filter(|alias| !alias.is_empty()), below(&dir))
}

/// The devices on which the device with this folder stands, by name.
pub(crate) fn below(folder: &Path) -> Vec<String> {
    let mut names = Vec::new();
    let slaves = std::fs::read_dir(folder.join("slaves"));
    for entry in slaves.into_iter().flatten().flatten().take(MAX_BELOW) {
        names.push(sanitize(&entry.file_name().to_string_lossy(), 64));
    }
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn devices_are_named_with_what_they_stand_for() {
        let root = tempfile::tempdir().unwrap();
        let sys = root.path();
        let device = |number: &str, name: &str, files: &[(&str, &str)]| {
            let dir = sys.join("devices").join(name);
            std::fs::create_dir_all(&dir).unwrap();
            for (path, text) in files {
                std::fs::create_dir_all(dir.join(path).parent().unwrap()).unwrap();
                std::fs::write(dir.join(path), text).unwrap();
            }
            std::fs::create_dir_all(sys.join("dev/block")).unwrap();
            symlink(&dir, sys.join("dev/block").join(number)).unwrap();
        };
        device(
            "252:0",
            "dm-0",
            &[
                ("dm/name", "vg-guest\u{1b}\n"),
                ("slaves/sda3", ""),
                ("slaves/sdb", ""),
            ],
        );
        device(
            "7:1",
            "loop1",
            &[("loop/backing_file", "/var/images/a.img\n")],
        );
        device("7:2", "loop1/loop1p1", &[]);
        let named = |number| {
            let (name, alias, below) = read(sys, number);
            (name, alias, below.join(" "))
        };
        assert_eq!(
            named((252, 0)),
            ("dm-0".into(), Some("vg-guest".into()), "sda3 sdb".into())
        );
        assert_eq!(
            named((7, 1)),
            (
                "loop1".into(),
                Some("/var/images/a.img".into()),
                String::new()
            )
        );
        assert_eq!(
            named((7, 2)),
            (
                "loop1p1".into(),
                Some("/var/images/a.img".into()),
                String::new()
            )
        );
        assert_eq!(named((8, 0)).0, "8:0");
    }
}
