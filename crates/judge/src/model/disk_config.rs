//! The disks of a guest, as its configuration describes them.

use kvm::cmdline::{CommandDisk, QemuCommand};
use kvm::domain_xml::DiskXml;
use sample::DomainFacts;
use std::collections::BTreeMap;

/// A disk of a guest, as its configuration describes it. `None`: it is not written down.
#[derive(Debug, Clone, Copy)]
pub struct DiskConfig<'a> {
    /// Its name in the XML (`vda`), the id of its device or drive, or else its file.
    pub name: &'a str,
    /// Path of the image or device on QEMU's command line, or Proxmox's name of the volume.
    pub file: &'a str,
    /// Its bus in the XML (`virtio`, `sata`), or the driver of QEMU's device (`virtio-blk-pci`).
    pub bus: Option<&'a str>,
    /// Cache mode.
    pub cache: Option<&'a str>,
    /// How QEMU does its I/O: `native`, `threads`, `io_uring`.
    pub aio: Option<&'a str>,
    /// Whether it has an `IOThread` of its own.
    pub iothread: bool,
    /// Whether Proxmox ignores that it was to have one.
    pub lacks_iothread: bool,
    /// Limits per second by libvirt's names.
    pub limits: &'a BTreeMap<String, u64>,
    /// Whether a block device of the host is behind it.
    pub on_block_device: bool,
}

impl<'a> DiskConfig<'a> {
    /// The disks of a guest, without CD-ROMs: from the XML if it has any.
    pub fn all(facts: &'a DomainFacts) -> Vec<Self> {
        let xml = facts.xml.iter().flat_map(|xml| &xml.value.disks);
        let is_disk = |disk: &&DiskXml| matches!(disk.device.as_deref(), None | Some("disk" | "lun"));
        let disks: Vec<Self> = xml.filter(is_disk).map(Self::of_xml).collect();
        let of_command = |command: &'a QemuCommand| command.disks.iter().map(|disk| Self::of_command(command, disk));
        if disks.is_empty() { facts.command.iter().flat_map(|all| of_command(all)).collect() } else { disks }
    }

    /// The disk of this name in the VMM's statistics; `None` if neither XML nor command line has it.
    pub fn find(facts: &'a DomainFacts, name: &str) -> Option<Self> {
        let xml = facts.xml.as_ref().and_then(|xml| xml.value.disks.iter().find(|disk| disk.target == name));
        let command = || {
            let command = facts.command.as_ref()?;
            command.disks.iter().find(|disk| disk.is_called(name)).map(|disk| Self::of_command(command, disk))
        };
        xml.map(Self::of_xml).or_else(command)
    }

    fn of_xml(disk: &'a DiskXml) -> Self {
        Self {
            name: &disk.target,
            file: "",
            bus: disk.bus.as_deref(),
            cache: disk.cache.as_deref(),
            aio: disk.io.as_deref(),
            iothread: disk.iothread.is_some(),
            lacks_iothread: false,
            limits: &disk.iotune,
            on_block_device: disk.source.as_deref() == Some("block"),
        }
    }

    fn of_command(command: &QemuCommand, disk: &'a CommandDisk) -> Self {
        let names = [&disk.device, &disk.drive, &disk.file];
        // A Proxmox volume without a folder is a block device: `local-lvm:vm-100-disk-0`.
        // QEMU itself gives IOThreads to the controllers of SCSI disks.
        let is_scsi = disk.driver.as_deref() == Some("scsi-hd");
        let lacks_iothread = is_scsi && disk.iothread.as_ref().is_some_and(|id| !command.iothreads.contains(id));
        let is_volume = disk.file.contains(':') && !disk.file.contains('/');
        Self {
            name: names.into_iter().find(|name| !name.is_empty()).map_or("", String::as_str),
            file: &disk.file,
            bus: disk.driver.as_deref(),
            cache: disk.cache.as_deref(),
            aio: disk.aio.as_deref(),
            iothread: disk.iothread.is_some() && !lacks_iothread,
            lacks_iothread,
            limits: &disk.limits,
            on_block_device: disk.file.starts_with("/dev/") || is_volume,
        }
    }

    /// Whether it hangs on an emulated IDE or SATA controller.
    pub fn is_ata(&self) -> bool {
        self.bus.is_some_and(|bus| matches!(bus, "ide" | "sata" | "ide-hd" | "ide-drive"))
    }
}
