//! On demand: times the host's block devices for the requests of guests (`crates/engine/bpf/disks.bpf.c`).

use super::object::{self, Choices, Object};
use super::refusal::{Refusal, Rights, Stage};
use super::watched::WatchedIds;
use super::{kernel_btf, sys};
use crate::events::EngineError;
use kvm::kernel_types::{self, KernelField};
use sample::{BUCKETS, Histogram, HostDisk, HostRequests, Submitter, Timing};
use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// `max_entries` of `cells` in `disks.bpf.c`.
const CELLS: usize = 4096;
/// Words of `struct key` and `struct cell` there.
const KEY: usize = 4;
const CELL: usize = 77;
/// Where the parts of a cell begin, words.
const SUBMITTED: usize = 5;
const TOTAL: usize = 13;
const DEVICE: usize = TOTAL + BUCKETS;
const _: () = assert!(DEVICE + BUCKETS == CELL);

/// What is not known without it.
const UNKNOWN: &str = "the host's block devices are not timed";

/// The programs in the order in which they are attached, the last step first: no request then has an earlier step but
/// no later one. Each with the one for kernels before 5.11, whose tracepoint has the queue in front (include/trace/
/// events/block.h). That one is tried first: the kernel refuses a program that reads more arguments than there are.
pub(super) const PROGRAMS: [(&str, Option<&str>); 4] = [
    ("block_bio_complete", None),
    ("block_rq_complete", None),
    ("block_rq_issue", Some("block_rq_issue_old")),
    ("block_bio_queue", Some("block_bio_queue_old")),
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
    cells: OwnedFd,
    watched: WatchedIds<1>,
    untimed: sys::Mapping,
    programs: Vec<OwnedFd>,
    _links: Vec<OwnedFd>,
}

impl DiskTimer {
    /// Times requests from now on, of no process yet.
    ///
    /// # Errors
    /// No BTF to find the fields by, or no right to attach.
    pub fn start(rights: &Rights) -> Result<Self, EngineError> {
        let choices = Choices { constants: places(&kernel_btf::read(UNKNOWN)?)?, ..Choices::default() };
        Self::attach(&choices).map_err(|refusal| rights.explain(&refusal))
    }

    fn attach(choices: &Choices<'_>) -> Result<Self, Refusal> {
        let mut object = Object::prepare(object::disks_object()?, &[], choices)?;
        let (mut programs, mut links) = (Vec::new(), Vec::new());
        for (event, old) in PROGRAMS {
            let hang = |name: &str| {
                let program = object.load(name)?;
                let link = sys::attach_raw(program.as_fd(), event);
                let link = link.map_err(|e| Refusal::new(Stage::Attach, event, e))?;
                Ok::<_, Refusal>((link, program))
            };
            let too_new = |refusal: &Refusal| refusal.error.raw_os_error() == Some(libc::EINVAL);
            let (link, program) = match old.map(hang) {
                Some(Err(refusal)) if refusal.stage == Stage::Attach && too_new(&refusal) => hang(event)?,
                Some(done) => done?,
                None => hang(event)?,
            };
            links.push(link);
            programs.push(program);
        }
        Ok(Self {
            untimed: object.mapping("untimed", 1, size_of::<u64>())?,
            cells: object.take_map("cells")?,
            watched: WatchedIds::new(object.take_map("watched")?),
            programs,
            _links: links,
        })
    }

    /// Sets whose requests are timed: processes, and the guest's process that each works for.
    pub fn watch(&mut self, processes: &[(i32, i32)]) {
        self.watched.set(processes);
    }

    /// What was timed so far, by the guest's process. Devices have numbers only.
    pub fn read(&mut self) -> HashMap<i32, Vec<HostDisk>> {
        let mut disks: BTreeMap<(i32, u32), HostDisk> = BTreeMap::new();
        for ([owner, device, kind, _], cell) in
            sys::lookup_all::<KEY, CELL>(self.cells.as_fd(), CELLS).unwrap_or_default()
        {
            let disk = disks.entry((owner.cast_signed(), device)).or_default();
            // MAJOR and MINOR of include/linux/kdev_t.h.
            disk.number = (device >> 20, device & 0xf_ffff);
            add(disk, kind, &cell);
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
        let missed: u64 = self.programs.iter().filter_map(|program| sys::missed(program.as_fd())).sum();
        missed + self.untimed.at::<AtomicU64>(0).map_or(0, |n| n.load(Relaxed))
    }

    /// Frees what was counted for these guests.
    pub fn forget(&self, processes: &[i32]) {
        if processes.is_empty() {
            return;
        }
        for (key, _) in sys::lookup_all::<KEY, CELL>(self.cells.as_fd(), CELLS).unwrap_or_default() {
            if processes.contains(&key[0].cast_signed()) {
                let _ = sys::delete(self.cells.as_fd(), key);
            }
        }
    }
}

/// The constants of `disks.bpf.c` for a kernel with these types.
pub(super) fn places(btf: &[u8]) -> Result<HashMap<&'static str, u32>, EngineError> {
    let wanted: Vec<KernelField> =
        FIELDS.iter().map(|(_, field)| *field).chain(ITERATOR).chain(BY_DEVICE).chain(BY_DISK).collect();
    let found = kernel_types::offsets(btf, &wanted).unwrap_or_default();
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
fn add(disk: &mut HostDisk, kind: u32, cell: &[u64; CELL]) {
    let [count, bytes, total_ns, issued, device_ns, ..] = *cell;
    let part = |start: usize, length: usize| cell.get(start..start + length).unwrap_or_default();
    for (submitter, n) in Submitter::ALL.into_iter().zip(part(SUBMITTED, Submitter::ALL.len())) {
        if *n > 0 {
            *disk.submitters.entry(submitter).or_default() += n;
        }
    }
    let timing = |count, total_ns, start| Timing {
        count,
        total_ns: Some(total_ns),
        histogram: Some(histogram(part(start, BUCKETS))),
        ..Timing::default()
    };
    let requests =
        HostRequests { bytes, total: timing(count, total_ns, TOTAL), device: timing(issued, device_ns, DEVICE) };
    match kind {
        0 => disk.reads = requests,
        1 => disk.writes = requests,
        2 => disk.flushes = requests,
        _ => disk.others = requests,
    }
}

/// Without the empty buckets at the end.
pub(super) fn histogram(buckets: &[u64]) -> Histogram {
    let used = buckets.iter().rposition(|n| *n != 0).map_or(0, |last| last + 1);
    Histogram(buckets.iter().take(used).copied().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_read_as_the_program_writes_it() {
        let mut cell = [0; CELL];
        cell[..5].copy_from_slice(&[10, 40_960, 9_000_000, 9, 8_000_000]);
        cell[SUBMITTED + 2] = 7;
        cell[SUBMITTED + 6] = 3;
        cell[TOTAL + 5] = 10;
        cell[DEVICE + 4] = 9;
        let mut disk = HostDisk::default();
        add(&mut disk, 1, &cell);
        assert_eq!(disk.submitters, [(Submitter::Pool, 7), (Submitter::Other, 3)].into());
        assert_eq!((disk.writes.bytes, disk.writes.total.count, disk.writes.device.count), (40_960, 10, 9));
        assert_eq!(disk.writes.total.histogram, Some(Histogram(vec![0, 0, 0, 0, 0, 10])));
        assert_eq!(disk.writes.device.total_ns, Some(8_000_000));
        assert_eq!(disk.reads, HostRequests::default());
    }

    #[test]
    fn places_come_from_this_kernel() {
        let Ok(btf) = kernel_btf::read("") else { return };
        let places = places(&btf).unwrap();
        assert_eq!(places.len(), 7);
        // The first fields of a bio have been these since 2002 (include/linux/blk_types.h).
        assert_eq!((places["bio_next"], places["bio_bdev"]), (0, 8));
    }
}
