//! On demand: times the host's block devices for the requests of guests (`crates/engine/bpf/disks.bpf.c`).

use super::attached::Attached;
use super::guest_tables::{GuestTable, WatchedIds};
use super::kernel_btf;
use super::layout::{DiskKey, GuestKey, RawDisk};
use super::object::{self, Choices, Object};
use super::sys::Mapping;
use crate::events::EngineError;
use kvm::kernel_types::{self, KernelField};
use sample::{HostDisk, HostRequests, Submitter};
use std::collections::{BTreeMap, HashMap};

/// What is not known without it.
const UNKNOWN: &str = "the host's block devices are not timed";

/// The tracepoints with their programs, in the order in which they are attached, the last step first: no request then
/// has an earlier step but no later one. Those for kernels before 5.11, whose tracepoints have the queue in front
/// (include/trace/events/block.h), are tried first: the kernel refuses a program that reads more arguments than there
/// are.
pub(super) const PROGRAMS: [(&str, &[&str]); 4] = [
    ("block_bio_complete", &["block_bio_complete"]),
    ("block_rq_complete", &["block_rq_complete"]),
    ("block_rq_issue", &["block_rq_issue_old", "block_rq_issue"]),
    ("block_bio_queue", &["block_bio_queue_old", "block_bio_queue"]),
];

/// The fields of every kernel, and the constants that hold their places.
const FIELDS: [(&str, KernelField); 3] =
    [("bio_opf", ("bio", "bi_opf")), ("bio_next", ("bio", "bi_next")), ("request_bio", ("request", "bio"))];
const ITERATOR: [KernelField; 2] = [("bio", "bi_iter"), ("bvec_iter", "bi_size")];
/// From 5.12 on a bio knows its block device, before that its disk.
const BY_DEVICE: [KernelField; 2] = [("bio", "bi_bdev"), ("block_device", "bd_dev")];
const BY_DISK: [KernelField; 2] = [("bio", "bi_disk"), ("gendisk", "major")];

/// The attached programs. Dropping this removes them from the kernel.
#[derive(Debug)]
pub(super) struct DiskTimer {
    cells: GuestTable<DiskKey, RawDisk>,
    watched: WatchedIds,
    homeless: Mapping,
    attached: Attached,
}

impl DiskTimer {
    /// Times requests from now on, of no process yet.
    ///
    /// # Errors
    /// No BTF to find the fields by, or no right to attach.
    pub fn start() -> Result<Self, EngineError> {
        let choices = Choices { constants: places(&kernel_btf::read(UNKNOWN)?)?, ..Choices::default() };
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

    /// Sets whose requests are timed: processes, and the guest's process that each works for.
    pub fn watch(&mut self, processes: &[(i32, i32)]) {
        self.watched.set(processes);
    }

    /// What was timed so far, by the guest's process. Devices have numbers only.
    pub fn read(&mut self) -> HashMap<i32, Vec<HostDisk>> {
        let mut disks: BTreeMap<(i32, u32), HostDisk> = BTreeMap::new();
        for (key, cell) in self.cells.read() {
            let disk = disks.entry((key.owner(), key.dev)).or_default();
            // MAJOR and MINOR of include/linux/kdev_t.h.
            disk.number = (key.dev >> 20, key.dev & 0xf_ffff);
            add(disk, key.kind, &cell);
        }
        // A guest without a request yet is timed as well.
        let mut by_guest: HashMap<i32, Vec<HostDisk>> =
            self.watched.owners().map(|owner| (owner, Vec::new())).collect();
        for ((owner, _), disk) in disks {
            by_guest.entry(owner).or_default().push(disk);
        }
        by_guest
    }

    /// Requests that could not be timed.
    pub fn lost(&self) -> u64 {
        self.attached.missed("block_") + self.homeless.count(0)
    }

    /// Frees what was counted for these guests.
    pub fn forget(&self, processes: &[i32]) {
        self.cells.forget(processes);
    }
}

/// The constants of `disks.bpf.c` for a kernel with these types.
pub(super) fn places(btf: &[u8]) -> Result<HashMap<&'static str, u32>, EngineError> {
    let wanted: Vec<KernelField> =
        FIELDS.iter().map(|(_, field)| *field).chain(ITERATOR).chain(BY_DEVICE).chain(BY_DISK).collect();
    let found = kernel_types::offsets(btf, None, &wanted).unwrap_or_default();
    let at = |field: KernelField| kernel_btf::offset(&found, field, UNKNOWN);
    let mut places = HashMap::new();
    for (constant, field) in FIELDS {
        places.insert(constant, at(field)?);
    }
    let [iterator, size] = ITERATOR;
    places.insert("bio_size", at(iterator)? + at(size)?);
    let by_disk = !found.contains_key(&BY_DEVICE[0]);
    let [device, number] = if by_disk { BY_DISK } else { BY_DEVICE };
    places.insert("bio_bdev", at(device)?);
    places.insert("bdev_dev", at(number)?);
    places.insert("by_disk", by_disk.into());
    Ok(places)
}

/// Adds a cell to its device.
fn add(disk: &mut HostDisk, kind: u32, cell: &RawDisk) {
    for (number, n) in cell.submitted.into_iter().enumerate().filter(|(_, n)| *n > 0) {
        *disk.submitters.entry(Submitter::from_kind(number)).or_default() += n;
    }
    let requests = HostRequests { bytes: cell.bytes, total: (&cell.total).into(), device: (&cell.device).into() };
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
        let Ok(btf) = kernel_btf::read("") else { return };
        let places = places(&btf).unwrap();
        assert_eq!(places.len(), 7);
        // The first fields of a bio have been these since 2002 (include/linux/blk_types.h).
        assert_eq!((places["bio_next"], places["bio_bdev"]), (0, 8));
    }
}
