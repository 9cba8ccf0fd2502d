//! On demand: times the host's block devices for the requests of guests
//! (`crates/engine/bpf/disks.bpf.c`).

use super::attached::Attached;
use super::guest_tables::{GuestTable, WatchedIds};
use super::kernel_btf::{self, FieldConstant};
use super::layout::{DiskKey, FLUSH, GuestKey, READ, RawDisk, WRITE};
use super::object::{self, Choices, Object};
use super::sys::Mapping;
use crate::events::EngineError;
use sample::{HostDisk, HostRequests, ThreadKind};
use std::collections::{BTreeMap, HashMap};

/// What does not work without the kernel's BTF, for error messages.
const WITHOUT_BTF: &str = "the host's block devices are not timed";

/// The tracepoints with their programs, in the order in which they are attached. The last step of a
/// request comes first: a request of which an earlier step is seen is then seen to its end.
///
/// Where there are two programs, the first is for kernels before 5.11, whose tracepoint passes the
/// queue as its first argument (include/trace/events/block.h). That program is tried first: newer
/// kernels refuse it, because it reads more arguments than they pass.
pub(super) const PROGRAMS: [(&str, &[&str]); 4] = [
    ("block_bio_complete", &["block_bio_complete"]),
    ("block_rq_complete", &["block_rq_complete"]),
    ("block_rq_issue", &["block_rq_issue_old", "block_rq_issue"]),
    (
        "block_bio_queue",
        &["block_bio_queue_old", "block_bio_queue"],
    ),
];

/// The size of a bio is in the bio's iterator, a struct within the bio: [`program_constants`] adds
/// up both offsets. These names are no constants of the program.
const ITERATOR_IN_BIO: &str = "iterator in bio";
const SIZE_IN_ITERATOR: &str = "size in iterator";

/// The fields that every kernel has.
const FIELDS: [FieldConstant; 5] = [
    ("bio_opf", ("bio", "bi_opf")),
    ("bio_next", ("bio", "bi_next")),
    ("request_bio", ("request", "bio")),
    (ITERATOR_IN_BIO, ("bio", "bi_iter")),
    (SIZE_IN_ITERATOR, ("bvec_iter", "bi_size")),
];
/// From 5.12 on a bio leads to its block device.
const BY_DEVICE: [FieldConstant; 2] = [
    ("bio_bdev", ("bio", "bi_bdev")),
    ("bdev_dev", ("block_device", "bd_dev")),
];
/// Before 5.12 a bio leads to its disk: the program's constants, named after the device, then hold
/// offsets of the disk.
const BY_DISK: [FieldConstant; 2] = [
    ("bio_bdev", ("bio", "bi_disk")),
    ("bdev_dev", ("gendisk", "major")),
];

/// The attached programs. Dropping this removes them from the kernel.
#[derive(Debug)]
pub(super) struct DiskTimer {
    pub cells: GuestTable<DiskKey, RawDisk>,
    /// The processes whose requests are timed, each with the guest's process that it works for.
    pub watched: WatchedIds,
    /// Steps of requests that found no place in a table.
    homeless_events: Mapping,
    attached: Attached,
}

impl DiskTimer {
    /// Starts the programs, which time requests once processes are [`Self::watched`].
    ///
    /// # Errors
    /// No BTF to find the fields by, or no right to attach.
    pub fn start() -> Result<Self, EngineError> {
        let choices = Choices {
            constants: program_constants(&kernel_btf::read(WITHOUT_BTF)?)?,
            ..Choices::default()
        };
        let mut object = Object::prepare(object::DISKS, &[], &choices)?;
        let mut attached = Attached::default();
        for (event, programs) in PROGRAMS {
            attached.attach_raw(&object, event, programs)?;
        }
        Ok(Self {
            homeless_events: object.homeless_events()?,
            cells: GuestTable::take(&mut object, "cells")?,
            watched: WatchedIds::take(&mut object, "watched")?,
            attached,
        })
    }

    /// What was timed so far, by the guest's process. Devices have numbers only.
    pub fn read(&self) -> HashMap<i32, Vec<HostDisk>> {
        // By guest and device, since each kind of requests to a device has a cell of its own.
        let mut disks: BTreeMap<(i32, u32), HostDisk> = BTreeMap::new();
        for (key, cell) in self.cells.read() {
            let disk = disks.entry((key.guest(), key.dev)).or_default();
            // MAJOR and MINOR of include/linux/kdev_t.h.
            disk.number = (key.dev >> 20, key.dev & 0xf_ffff);
            add_requests(disk, key.kind, &cell);
        }
        // A guest without a request yet is in the answer as well: it is timed.
        let mut by_guest: HashMap<i32, Vec<HostDisk>> = self
            .watched
            .guests()
            .map(|guest| (guest, Vec::new()))
            .collect();
        for ((guest, _), disk) in disks {
            by_guest.entry(guest).or_default().push(disk);
        }
        by_guest
    }

    /// Requests that could not be timed.
    pub fn lost(&self) -> u64 {
        self.attached.missed("block_") + self.homeless_events.read_u64(0)
    }
}

/// The constants of `disks.bpf.c` for a kernel with these types.
pub(super) fn program_constants(btf: &[u8]) -> Result<HashMap<&'static str, u32>, EngineError> {
    let mut constants = kernel_btf::constants(btf, &FIELDS, WITHOUT_BTF)?;
    let [iterator_in_bio, size_in_iterator] =
        [ITERATOR_IN_BIO, SIZE_IN_ITERATOR].map(|name| constants.remove(name).unwrap_or(0));
    constants.insert("bio_size", iterator_in_bio + size_in_iterator);
    if let Ok(by_device) = kernel_btf::constants(btf, &BY_DEVICE, WITHOUT_BTF) {
        constants.extend(by_device);
        constants.insert("by_disk", 0);
    } else {
        constants.extend(kernel_btf::constants(btf, &BY_DISK, WITHOUT_BTF)?);
        constants.insert("by_disk", 1);
    }
    Ok(constants)
}

/// Adds a cell, the requests of one kind, to its device.
fn add_requests(disk: &mut HostDisk, kind: u32, cell: &RawDisk) {
    for (number, count) in cell.submitted.into_iter().enumerate() {
        if count > 0 {
            let submitter = ThreadKind::from_number(number);
            *disk.submitters.entry(submitter).or_default() += count;
        }
    }
    let requests = HostRequests {
        bytes: cell.bytes,
        total: (&cell.total).into(),
        device: (&cell.device).into(),
    };
    match kind {
        READ => disk.reads = requests,
        WRITE => disk.writes = requests,
        FLUSH => disk.flushes = requests,
        _ => disk.others = requests,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_come_from_this_kernel() {
        let Ok(btf) = kernel_btf::of_kernel() else {
            return;
        };
        let constants = program_constants(&btf).unwrap();
        assert_eq!(constants.len(), 7);
        // The first fields of a bio have been these since 2002 (include/linux/blk_types.h).
        assert_eq!((constants["bio_next"], constants["bio_bdev"]), (0, 8));
    }
}
