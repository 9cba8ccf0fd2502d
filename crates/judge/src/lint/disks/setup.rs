//! How a disk is configured, by the guest's XML or QEMU's command line.

use crate::lint::prelude::*;
use std::collections::BTreeMap;

/// How many requests a bus takes at once. IDE knows no queue; native command queuing has `NCQ_MAX_TAGS` on AHCI
/// controllers; virtio-scsi has `cmd_per_lun`, and a queue of virtio-blk has 128 places or 256 (hw/block/virtio-blk.c,
/// hw/scsi/virtio-scsi.c).
const SLOTS: &[(&str, f64)] = &[("ide", 1.0), ("sata", 32.0), ("ahci", 32.0), ("virtio", 128.0), ("scsi", 128.0)];

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
        let (bus, cache, aio, iothread, limits) = if let Some(disk) = xml {
            (&disk.bus, &disk.cache, &disk.io, disk.iothread.is_some(), &disk.iotune)
        } else {
            let disk = facts.command.as_ref()?.disks.iter().find(|disk| disk.is_called(name))?;
            (&disk.driver, &disk.cache, &disk.aio, disk.iothread.is_some(), &disk.limits)
        };
        Some(Self { bus: bus.clone(), cache: cache.clone(), aio: aio.clone(), iothread, limits: limits.clone() })
    }

    /// How many requests the guest can have under way on such a bus at once.
    pub(super) fn slots(&self) -> Option<f64> {
        let bus = self.bus.as_deref()?;
        SLOTS.iter().find(|(prefix, _)| bus.starts_with(prefix)).map(|(_, slots)| *slots)
    }
}
