//! How a disk is configured, by the guest's XML or QEMU's command line.

use crate::lint::prelude::*;
use std::collections::BTreeMap;

/// What is known of a disk's configuration. `None`: it is not written down.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct DiskSetup {
    /// Bus of the XML (`virtio`, `sata`), or the driver of QEMU's device (`virtio-blk-pci`).
    pub bus: Option<String>,
    /// Cache mode, and how QEMU does its I/O (`native`, `threads`, `io_uring`).
    pub cache: Option<String>,
    pub aio: Option<String>,
    /// Whether it has an `IOThread`.
    pub iothread: bool,
    /// Limits per second by libvirt's names.
    pub limits: BTreeMap<String, u64>,
}

impl DiskSetup {
    /// Of the disk of this name in the VMM's statistics; `None` if neither XML nor command line has it.
    pub(super) fn of(guest: &GuestContext<'_>, name: &str) -> Option<Self> {
        let facts = &guest.domain.facts;
        let xml = facts.xml.as_ref().and_then(|xml| xml.value.disks.iter().find(|disk| disk.target == name));
        if let Some(disk) = xml {
            return Some(Self {
                bus: disk.bus.clone(),
                cache: disk.cache.clone(),
                aio: disk.io.clone(),
                iothread: disk.iothread.is_some(),
                limits: disk.iotune.clone(),
            });
        }
        let command = facts.command.as_ref()?;
        let disk = command.disks.iter().find(|disk| disk.is_called(name))?;
        Some(Self {
            bus: disk.driver.clone(),
            cache: disk.cache.clone(),
            aio: disk.aio.clone(),
            iothread: disk.iothread.is_some(),
            limits: disk.limits.clone(),
        })
    }

    /// How many requests the guest can have under way on such a bus at once.
    pub(super) fn slots(&self) -> Option<f64> {
        let bus = self.bus.as_deref()?;
        if bus.starts_with("ide") {
            Some(1.0) // an IDE bus knows no queue
        } else if bus.starts_with("sata") || bus.starts_with("ahci") {
            Some(32.0) // native command queuing (`NCQ_MAX_TAGS` of AHCI controllers)
        } else if bus.starts_with("virtio") || bus.starts_with("scsi") {
            // `cmd_per_lun` of virtio-scsi; a queue of virtio-blk has 128 places or 256 (hw/block/virtio-blk.c,
            // hw/scsi/virtio-scsi.c).
            Some(128.0)
        } else {
            None
        }
    }
}
