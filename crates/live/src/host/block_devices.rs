//! Names of the host's block devices by their numbers (Documentation/ABI/stable/sysfs-block, `/sys/dev/block`).

use crate::proc::file;
use kvm::sanitize;
use sample::HostDisk;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Time for which a name holds: numbers are given to other devices later.
const NAME_TTL_NS: u64 = 10_000_000_000;
/// At most this many devices are kept, and below one.
const MAX_DEVICES: usize = 4096;
const MAX_BELOW: usize = 64;

/// What sysfs says of a device: its name, its alias, and the devices below it.
type BlockDevice = (String, Option<String>, Vec<String>);

/// The devices that were asked for lately.
#[derive(Debug)]
pub(crate) struct BlockDevices {
    sys: PathBuf,
    now_ns: u64,
    known: HashMap<(u32, u32), (u64, BlockDevice)>,
}

impl BlockDevices {
    pub(crate) fn new(sys: &Path) -> Self {
        Self { sys: sys.to_path_buf(), now_ns: 0, known: HashMap::new() }
    }

    /// Begins a sample: forgets names that held long enough.
    pub(crate) fn begin(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        self.known.retain(|_, (read_ns, _)| now_ns.saturating_sub(*read_ns) < NAME_TTL_NS);
    }

    /// Gives a device its names.
    pub(crate) fn name(&mut self, disk: &mut HostDisk) {
        if self.known.len() >= MAX_DEVICES {
            self.known.clear();
        }
        let (sys, now_ns) = (&self.sys, self.now_ns);
        let (_, device) = self.known.entry(disk.number).or_insert_with(|| (now_ns, read(sys, disk.number)));
        (disk.name, disk.alias, disk.below) = device.clone();
    }
}

fn read(sys: &Path, (major, minor): (u32, u32)) -> BlockDevice {
    let dir = sys.join(format!("dev/block/{major}:{minor}"));
    let last = |path: PathBuf| Some(sanitize(&path.file_name()?.to_string_lossy(), 64));
    let name = std::fs::read_link(&dir).ok().and_then(last).unwrap_or_else(|| format!("{major}:{minor}"));
    // A partition has what its disk has one folder up.
    let text = |path: &str| file::read_text(&dir.join(path), 4096).ok().map(|text| sanitize(text.trim_end(), 256));
    let alias = ["dm/name", "loop/backing_file", "../loop/backing_file"].iter().find_map(|path| text(path));
    let below = std::fs::read_dir(dir.join("slaves")).into_iter().flatten().flatten().take(MAX_BELOW);
    let mut below: Vec<String> = below.map(|entry| sanitize(&entry.file_name().to_string_lossy(), 64)).collect();
    below.sort_unstable();
    (name, alias.filter(|alias| !alias.is_empty()), below)
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
        device("252:0", "dm-0", &[("dm/name", "vg-guest\u{1b}\n"), ("slaves/sda3", ""), ("slaves/sdb", "")]);
        device("7:1", "loop1", &[("loop/backing_file", "/var/images/a.img\n")]);
        device("7:2", "loop1/loop1p1", &[]);
        let mut devices = BlockDevices::new(sys);
        let mut named = |number| {
            let mut disk = HostDisk { number, ..HostDisk::default() };
            devices.name(&mut disk);
            (disk.name, disk.alias, disk.below.join(" "))
        };
        assert_eq!(named((252, 0)), ("dm-0".into(), Some("vg-guest".into()), "sda3 sdb".into()));
        assert_eq!(named((7, 1)), ("loop1".into(), Some("/var/images/a.img".into()), String::new()));
        assert_eq!(named((7, 2)), ("loop1p1".into(), Some("/var/images/a.img".into()), String::new()));
        assert_eq!(named((8, 0)).0, "8:0");
    }
}
