//! On demand: times the host's block devices for the requests of guests
//! (`crates/engine/bpf/disks.bpf.c`).

use super::attached::Attached;
use super::guest_tables::{GuestTable, WatchedIds};
use super::kernel_btf;
use super::layout::{DiskKey, GuestKey, RawDisk};
use super::object::{self, Choices, Object};
use super::sys::Mapping;
use crate::events::EngineError;
use kvm::kernel_types::KernelField;
use sample::{HostDisk, HostRequests, ThreadKind};
use std::collections::{BTreeMap, HashMap};

/// What is not known without it.
const UNKNOWN: &str = "the host's block devices are not timed";

/// The tracepoints with their programs, in the order in which they are attached, the last step
/// first: no request then has an earlier step but no later one. Those for kernels before 5.11,
/// whose tracepoints have the queue in front (include/trace/events/block.h), are tried first: the
/// kernel refuses a program that reads more arguments than there are.
pub(super) const PROGRAMS: [(&str, &[&str]); 4] = [
    ("block_bio_complete", &["block_bio_complete"]),
    ("block_rq_complete", &["block_rq_complete"]),
    ("block_rq_issue", &["block_rq_issue_old", "block_rq_issue"]),
    (
        "block_bio_queue",
        &["block_bio_queue_old", "block_bio_queue"],
    ),
];

/// The fields of every kernel, and the constants that hold their places; that of the size is within
/// the iterator.
const FIELDS: [(&str, KernelField); 5] = [
    ("bio_opf", ("bio", "bi_opf")),
    ("bio_next", ("bio", "bi_next")),
    ("request_bio", ("request", "bio")),
    (ITERATOR, ("bio", "bi_iter")),
    ("bio_size", ("bvec_iter", "bi_size")),
];
const ITERATOR: &str = "bio_iter";
/// From 5.12 on a bio knows its block device, before that its disk.
const BY_DEVICE: [(&str, KernelField); 2] = [
    ("bio_bdev", ("bio", "bi_bdev")),
    ("bdev_dev", ("block_device", "bd_dev")),
];
const BY_DISK: [(&str, KernelField); 2] = [
    ("bio_bdev", ("bio", "bi_disk")),
    ("bdev_dev", ("gendisk", "major")),
];

/// The attached programs. Dropping this removes them from the kernel.
#[derive(Debug)]
pub(super) struct DiskTimer {
    pub cells: GuestTable<DiskKey, RawDisk>,
    /// Whose requests are timed: processes, and the guest's process that each works for.
    pub watched: WatchedIds,
    homeless: Mapping,
    attached: Attached,
}

impl DiskTimer {
    /// Times requests from now on, of no process yet.
    ///
    /// # Errors
    /// No BTF to find the fields by, or no right to attach.
    pub fn start() -> Result<Self, EngineError> {
        let choices = Choices {
            constants: places(&kernel_btf::read(UNKNOWN)?)?,
            ..Choices::default()
        };
        let mut object = Object::prepare(object::DISKS, &[], &choices)?;
        let mut attached = Attached::default();
        for (event, programs) in PROGRAMS {
            attached.raw(&object, event, programs)?;
        }
        Ok(Self {
            homeless: object.homeless()?,
            cells: GuestTable::take(&mut object, "cells")?,
            watched: WatchedIds::take(&mut object, "watched")?,
            attached,
        })
    }

    /// What was timed so far, by the guest's process. Devices have numbers only.
    pub fn read(&self) -> HashMap<i32, Vec<HostDisk>> {
        let mut disks: BTreeMap<(i32, u32), HostDisk> = BTreeMap::new();
        for (key, cell) in self.cells.read() {
            let disk = disks.entry((key.owner(), key.dev)).or_default();
            // MAJOR and MINOR of include/linux/kdev_t.h.
            disk.number = (key.dev >> 20, key.dev & 0xf_ffff);
            add(disk, key.kind, &cell);
        }
        // A guest without a request yet is timed as well.
        let mut by_guest: HashMap<i32, Vec<HostDisk>> = self
            .watched
            .owners()
            .map(|owner| (owner, Vec::new()))
            .collect();
        for ((owner, _), disk) in disks {
            by_guest.entry(owner).or_default().push(disk);
        }
        by_guest
    }

    /// Requests that could not be timed.
    pub fn lost(&self) -> u64 {
        self.attached.missed("block_") + self.homeless.count(0)
    }
}

/// The constants of `disks.bpf.c` for a kernel with these types.
pub(super) fn places(btf: &[u8]) -> Result<HashMap<&'static str, u32>, EngineError> {
    let mut places = kernel_btf::constants(btf, &FIELDS, UNKNOWN)?;
    let iterator = places.remove(ITERATOR).unwrap_or(0);
    places.entry("bio_size").and_modify(|at| *at += iterator);
    let by_device = kernel_btf::constants(btf, &BY_DEVICE, UNKNOWN);
    places.insert("by_disk", by_device.is_err().into());
    places.extend(by_device.or_else(|_| kernel_btf::constants(btf, &BY_DISK, UNKNOWN))?);
    Ok(places)
}

/// Adds a cell to its device.
fn add(disk: &mut HostDisk, kind: u32, cell: &RawDisk) {
    for (number, n) in cell
        .submitted
        .into_iter()
        .enumerate()
        .filter(|(_, n)| *n > 0)
    {
        *disk
            .submitters
            .entry(ThreadKind::from_number(number))
            .or_default() += n;
    }
    let requests = HostRequests {
        bytes: cell.bytes,
        total: (&cell.total).into(),
        device: (&cell.device).into(),
    };
    match kind {
        0 => disk.reads = requests,
        1 => disk.writes = requests,
        2 => disk.flushes = requests,
        _ => disk.others = requests,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_come_from_this_kernel() {
        let Ok(btf) = kernel_btf::read("") else {
            return;
        };
        let places = places(&btf).unwrap();
        assert_eq!(places.len(), 7);
        // The first fields of a bio have been these since 2002 (include/linux/blk_types.h).
        assert_eq!((places["bio_next"], places["bio_bdev"]), (0, 8));
    }
}
