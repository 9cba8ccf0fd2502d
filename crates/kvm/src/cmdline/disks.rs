//! Disks on a QEMU command line: what backs them, how QEMU does their I/O, and the limits it keeps
//! them to.

use super::options::{Pair, get, is_on};
use crate::sanitize;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// At most this many are kept.
const MAX_DISKS: usize = 256;

/// The limits of `-drive` and of throttle groups (QEMU's `throttle_extract_options` in blockdev.c
/// and `qapi/qom.json`, `ThrottleLimits`), with their older names, and libvirt's names of the same.
pub(crate) const DISK_LIMITS: [(&str, &str, &str); 6] = [
    ("iops-total", "iops", "total_iops_sec"),
    ("iops-read", "iops_rd", "read_iops_sec"),
    ("iops-write", "iops_wr", "write_iops_sec"),
    ("bps-total", "bps", "total_bytes_sec"),
    ("bps-read", "bps_rd", "read_bytes_sec"),
    ("bps-write", "bps_wr", "write_bytes_sec"),
];

/// What `if=` says of drives that are not disks.
const NO_DISKS: &[&str] = &["pflash", "floppy", "mtd", "sd"];

/// A disk as `-drive`, or `-blockdev` and `-device` together, describe it. CD-ROMs and firmware are
/// left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CommandDisk {
    /// `id` of the `-drive`, or `node-name` of the `-blockdev`; empty without one.
    pub drive: String,
    /// `id` of the `-device`; empty without one.
    pub device: String,
    /// Driver of the device, such as `virtio-blk-pci`, or what `if=` of the drive says.
    pub driver: Option<String>,
    /// Id of its `IOThread`.
    pub iothread: Option<String>,
    /// Path of the image or device, or Proxmox's name of the volume.
    pub file: String,
    /// `cache=`, or `none`, `writeback` and `unsafe` by `cache.direct=` and `cache.no-flush=`.
    pub cache: Option<String>,
    /// `aio=`: `threads`, `native`, `io_uring`.
    pub aio: Option<String>,
    /// Limits per second by libvirt's names (`total_iops_sec`); those that are 0 limit nothing and
    /// are left out.
    pub limits: BTreeMap<String, u64>,
}

impl CommandDisk {
    /// Whether QEMU's statistics call it so.
    pub fn is_called(&self, name: &str) -> bool {
        !name.is_empty() && (self.drive == name || self.device == name)
    }
}

/// Takes in a `-drive` or a `-blockdev` (with `node-name`).
pub(super) fn drive(disks: &mut Vec<CommandDisk>, parts: &[Pair]) {
    let bus = text(parts, "if");
    let path = ["file", "filename", "file.filename", "file.image"]
        .into_iter()
        .find_map(|key| text(parts, key))
        .unwrap_or_default();
    let is_disk = text(parts, "media").is_none_or(|media| media != "cdrom")
        && !path.to_ascii_lowercase().ends_with(".iso");
    let node_name = text(parts, "node-name");
    let is_node = node_name.is_some();
    let id = text(parts, "id").or(node_name);
    // A space in the path cuts what `ps` prints short: no extension is left, as in `file=/Windows`.
    let has_extension = path
        .rsplit('/')
        .next()
        .is_some_and(|name| name.contains('.'));
    let is_cut = id.is_none() && parts.len() < 2 && !has_extension;
    if is_cut || !is_disk || bus.as_deref().is_some_and(|bus| NO_DISKS.contains(&bus)) {
        return;
    }
    // A format node lies upon the node of its file and takes its place: the device names the upper
    // one.
    let below =
        get(parts, "file").and_then(|file| disks.iter().position(|disk| disk.drive == file));
    let mut disk = match below {
        Some(index) => disks.remove(index),
        None => CommandDisk::default(),
    };
    let mode = if is_on_at(parts, "cache.no-flush") {
        Some("unsafe")
    } else {
        text(parts, "cache.direct").map(|on| if is_on(&on) { "none" } else { "writeback" })
    };
    disk.cache = text(parts, "cache")
        .or(mode.map(str::to_owned))
        .or(disk.cache);
    // What is thrown away when QEMU ends needs no flushes.
    disk.cache
        .take_if(|cache| *cache == "unsafe" && is_on_at(parts, "snapshot"));
    disk.aio = text(parts, "aio").or(disk.aio);
    // A drive without `if=` is an IDE disk of a PC (hw/i386/pc.c, `block_default_type`).
    let bus = match bus {
        None if !is_node => Some("ide".to_owned()),
        bus => bus,
    };
    disk.driver = bus.filter(|bus| bus != "none").or(disk.driver);
    disk.drive = id.unwrap_or_default();
    if below.is_none() {
        disk.file = path;
    }
    disk.limits.extend(limits(parts));
    if disks.len() < MAX_DISKS {
        disks.push(disk);
    }
}

/// Takes in a `-device` that names its drive.
pub(super) fn device(disks: &mut [CommandDisk], driver: &str, id: &str, parts: &[Pair]) {
    let Some(drive) = get(parts, "drive") else {
        return;
    };
    let Some(disk) = disks.iter_mut().find(|disk| disk.drive == drive) else {
        return;
    };
    disk.device = sanitize(id, 64);
    disk.driver = Some(sanitize(driver, 64));
    disk.iothread = get(parts, "iothread").map(|value| sanitize(&value, 64));
    // The device then asks for a flush after each write, whatever the drive's mode.
    if get(parts, "write-cache").is_some_and(|on| on == "off") {
        let is_direct = matches!(disk.cache.as_deref(), Some("none" | "directsync"));
        disk.cache = Some(
            if is_direct {
                "directsync"
            } else {
                "writethrough"
            }
            .to_owned(),
        );
    }
}

/// The text of a key.
fn text(parts: &[Pair], key: &str) -> Option<String> {
    get(parts, key).map(|value| sanitize(&value, 256))
}

/// Whether the value of a key means yes.
fn is_on_at(parts: &[Pair], key: &str) -> bool {
    text(parts, key).is_some_and(|value| is_on(&value))
}

/// The number of a key.
fn number(parts: &[Pair], key: &str) -> Option<u64> {
    get(parts, key)?.parse().ok()
}

/// The limits among the parts of an option.
fn limits(parts: &[Pair]) -> BTreeMap<String, u64> {
    let mut limits = BTreeMap::new();
    for (new, old, name) in DISK_LIMITS {
        let set = number(parts, &format!("throttling.{new}")).or_else(|| number(parts, old));
        if let Some(limit) = set.filter(|limit| *limit > 0) {
            limits.insert(name.to_owned(), limit);
        }
    }
    limits
}

#[cfg(test)]
mod tests {
    use crate::cmdline::parse_text;

    #[test]
    fn drives_and_devices_are_joined() {
        let command = parse_text(
            "qemu-system-x86_64 -object iothread,id=io1 -drive \
             file=/a.img,if=none,id=d0,cache=none,aio=native,throttling.iops-total=100,bps=4096 \
             -device virtio-blk-pci,drive=d0,id=disk0,iothread=io1 -drive \
             file=/b,if=virtio,id=d1,throttling.iops-total=0 -blockdev \
             '{\"driver\":\"file\",\"filename\":\"/c\",\"node-name\":\"f\",\"aio\":\"io_uring\"}' \
             -blockdev driver=raw,node-name=n,file=f -device scsi-hd,drive=n,write-cache=off \
             -drive media=cdrom,file=/x,if=ide -drive file=/Windows 7.iso,if=none -drive \
             if=pflash,file=/fw -hda /old.img -drive file=plain.img -blockdev \
             '{\"driver\":\"raw\",\"node-name\":\"u\",\"cache\":{\"direct\":true,\"no-flush\":true},\"file\":{\"driver\":\"host_device\",\"filename\":\"/dev/sdb\"}}' \
             -device ide-hd,drive=u",
        )
        .unwrap();
        let disks = &command.disks;
        assert_eq!((disks.len(), disks[4].driver.as_deref()), (6, Some("ide")));
        assert!(disks[0].is_called("d0") && disks[0].is_called("disk0") && !disks[0].is_called(""));
        assert_eq!(
            (disks[0].iothread.as_deref(), disks[0].driver.as_deref()),
            (Some("io1"), Some("virtio-blk-pci"))
        );
        assert_eq!(
            (disks[0].cache.as_deref(), disks[0].aio.as_deref()),
            (Some("none"), Some("native"))
        );
        assert_eq!(disks[0].limits.get("total_iops_sec"), Some(&100));
        assert_eq!(disks[0].limits.get("total_bytes_sec"), Some(&4096));
        assert_eq!(
            (disks[1].driver.as_deref(), disks[1].limits.len()),
            (Some("virtio"), 0)
        );
        assert_eq!(
            (disks[2].drive.as_str(), disks[2].aio.as_deref()),
            ("n", Some("io_uring"))
        );
        assert_eq!(disks[2].cache.as_deref(), Some("writethrough"));
        assert_eq!(
            (
                disks[2].file.as_str(),
                disks[3].file.as_str(),
                disks[5].file.as_str()
            ),
            ("/c", "/old.img", "/dev/sdb")
        );
        assert_eq!(
            (disks[3].driver.as_deref(), disks[5].cache.as_deref()),
            (Some("ide"), Some("unsafe"))
        );
    }
}
