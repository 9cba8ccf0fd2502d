//! The disks of a guest, as its configuration describes them.

use super::DiskRates;
use kvm::cmdline::CommandDisk;
use kvm::domain_xml::DiskXml;
use sample::DomainFacts;
use std::collections::BTreeMap;

/// A disk of a guest, as its configuration describes it. `None`: it is not written down.
#[derive(Debug, Clone, Copy)]
pub struct DiskConfig<'a> {
    /// Its name in the XML (`vda`), the id of its device or drive, or else its file.
    pub name: &'a str,
    /// Path of the image or device on QEMU's command line, Proxmox's name of the volume, or the
    /// name of the file in the XML.
    pub file: Option<&'a str>,
    /// Its bus in the XML (`virtio`, `sata`), or the driver of QEMU's device (`virtio-blk-pci`).
    pub bus: Option<&'a str>,
    /// Cache mode.
    pub cache: Option<&'a str>,
    /// How QEMU does its I/O: `native`, `threads`, `io_uring`.
    pub aio: Option<&'a str>,
    /// Whether it has an `IOThread` of its own.
    pub iothread: bool,
    /// Limits per second by libvirt's names.
    pub limits: &'a BTreeMap<String, u64>,
    /// Whether a block device of the host is behind it.
    pub on_block_device: bool,
}

/// What a disk uses of one of its limits.
#[derive(Debug, Clone, Copy)]
pub struct LimitUse<'a> {
    /// libvirt's name of the limit, such as `total_iops_sec`.
    pub name: &'a str,
    /// What the disk does, requests or bytes per second.
    pub rate: f64,
    /// The limit.
    pub most: f64,
}

impl LimitUse<'_> {
    /// Percent of the limit.
    pub fn percent(&self) -> f64 {
        100.0 * self.rate / self.most
    }
}

impl<'a> DiskConfig<'a> {
    /// The disks of a guest, without CD-ROMs: from the XML if it has any.
    pub fn all(facts: &'a DomainFacts) -> Vec<Self> {
        let xml = facts.xml.iter().flat_map(|xml| &xml.value.disks);
        let is_disk =
            |disk: &&DiskXml| matches!(disk.device.as_deref(), None | Some("disk" | "lun"));
        let disks: Vec<Self> = xml.filter(is_disk).map(Self::of_xml).collect();
        let of_command = facts
            .command
            .iter()
            .flat_map(|command| &command.disks)
            .map(Self::of_command);
        if disks.is_empty() {
            of_command.collect()
        } else {
            disks
        }
    }

    /// The disk of this name in the VMM's statistics; `None` if neither XML nor command line has
    /// it.
    pub fn find(facts: &'a DomainFacts, name: &str) -> Option<Self> {
        let mut xml = facts.xml.iter().flat_map(|xml| &xml.value.disks);
        if let Some(disk) = xml.find(|disk| disk.target == name) {
            return Some(Self::of_xml(disk));
        }
        let mut command = facts.command.iter().flat_map(|command| &command.disks);
        command
            .find(|disk| disk.is_called(name))
            .map(Self::of_command)
    }

    fn of_xml(disk: &'a DiskXml) -> Self {
        Self {
            name: &disk.target,
            file: disk.file.as_deref(),
            bus: disk.bus.as_deref(),
            cache: disk.cache.as_deref(),
            aio: disk.io.as_deref(),
            iothread: disk.iothread.is_some(),
            limits: &disk.iotune,
            on_block_device: disk.source.as_deref() == Some("block"),
        }
    }

    fn of_command(disk: &'a CommandDisk) -> Self {
        let names = [&disk.device, &disk.drive, &disk.file];
        // A Proxmox volume without a folder is a block device: `local-lvm:vm-100-disk-0`.
        let is_volume = disk.file.contains(':') && !disk.file.contains('/');
        Self {
            name: names
                .into_iter()
                .find(|name| !name.is_empty())
                .map_or("", String::as_str),
            file: Some(disk.file.as_str()).filter(|file| !file.is_empty()),
            bus: disk.driver.as_deref(),
            cache: disk.cache.as_deref(),
            aio: disk.aio.as_deref(),
            iothread: disk.iothread.is_some(),
            limits: &disk.limits,
            on_block_device: disk.file.starts_with("/dev/") || is_volume,
        }
    }

    /// What the disk uses of each of its limits.
    pub fn limits_of(&self, disk: &DiskRates) -> Vec<LimitUse<'a>> {
        let mut uses = Vec::new();
        for (name, most) in self.limits {
            let rate = match name.as_str() {
                "total_iops_sec" => disk.read_ops + disk.write_ops,
                "read_iops_sec" => disk.read_ops,
                "write_iops_sec" => disk.write_ops,
                "total_bytes_sec" => disk.read_bytes + disk.write_bytes,
                "read_bytes_sec" => disk.read_bytes,
                "write_bytes_sec" => disk.write_bytes,
                _ => continue,
            };
            if *most > 0 {
                let most = *most as f64;
                uses.push(LimitUse { name, rate, most });
            }
        }
        uses
    }

    /// Whether it is attached to an emulated IDE or SATA controller.
    pub fn is_ata(&self) -> bool {
        self.bus
            .is_some_and(|bus| matches!(bus, "ide" | "sata" | "ide-hd" | "ide-drive"))
    }
}
