//! The maps of a running engine, seen from user space: the taken slots, their memory, and how to
//! free them.

use super::layout::{
    Bucket, PART, Quota, SHARE_BITS, SLOT_BITS, SLOT_SIZE, Share, Slot, TASK_BITS, WAYS, bucket_of,
    share_of,
};
use super::object::{Object, PATTERN};
use super::refusal::{Refusal, Stage};
use super::sys::{self, Mapping};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// An element of `owners` takes eight bytes: the kernel rounds up (kernel/bpf/arraymap.c,
/// `elem_size`).
const OWNER_SIZE: usize = 8;

/// Parts that stay mapped.
const MAX_KEPT_WINDOWS: usize = 8;

/// The most slots of one process: KVM gives a guest no more vCPUs on most kernels
/// (`KVM_MAX_VCPUS`).
pub const MAX_OF_PROCESS: usize = 1024;

/// The largest number of slots.
pub(super) const MAX_SLOTS: usize = 1 << SLOT_BITS;

/// Slots take at most this part of the memory that kvmtop may use.
const MEMORY_PART: u64 = 8;

/// As many slots as a limit of memory leaves room for, in whole parts.
pub(super) fn slots_in(limit: Option<u64>) -> usize {
    let slots = limit.map_or(u64::MAX, |limit| limit / MEMORY_PART / SLOT_SIZE as u64);
    let parts = usize::try_from(slots).unwrap_or(usize::MAX) / PART;
    (parts * PART).clamp(PART, MAX_SLOTS)
}

#[derive(Debug)]
pub(super) struct Tables {
    slots: OwnedFd,
    /// What each part is like.
    pattern: aya_obj::Map,
    parts: Vec<OwnedFd>,
    /// The memory of parts by number. Mapping takes time, and mapped memory counts as resident: the
    /// first few stay mapped, and one of the others at a time.
    windows: BTreeMap<usize, Mapping>,
    owners: Mapping,
    tasks: Mapping,
    homeless: Mapping,
    quota: Mapping,
    shares: Mapping,
    users: Mapping,
    seed: u32,
    free: OwnedFd,
    /// There is memory for no more slots.
    pub ceiling: usize,
}

/// Events of threads without a slot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Homeless {
    /// All of them.
    pub events: u64,
    /// Those whose process has its share of the slots.
    pub of_greedy_processes: u64,
}

impl Homeless {
    pub fn since(self, before: Self) -> Self {
        Self {
            events: self.events - before.events,
            of_greedy_processes: self.of_greedy_processes - before.of_greedy_processes,
        }
    }
}

impl Tables {
    /// Takes over the maps of an object, and marks `count` slots as free. `seed`: the object's.
    pub fn new(object: &mut Object, count: usize, seed: u32) -> Result<Self, Refusal> {
        let mut tables = Self {
            owners: object.mapping("owners", MAX_SLOTS, OWNER_SIZE)?,
            tasks: object.mapping("tasks", 1 << TASK_BITS, size_of::<Bucket>())?,
            homeless: object.homeless()?,
            quota: object.mapping("quota", 1, size_of::<Quota>())?,
            shares: object.mapping("shares", 1 << SHARE_BITS, size_of::<Share>())?,
            users: object.mapping("users", 1 << SHARE_BITS, size_of::<Share>())?,
            seed,
            slots: object.take_map("slots")?,
            pattern: object.definition(PATTERN)?,
            free: object.take_map("free_slots")?,
            parts: Vec::new(),
            windows: BTreeMap::new(),
            ceiling: slots_in(rights::memory_limit()),
        };
        tables
            .grow(count)
            .map_err(|e| Refusal::new(Stage::Map, "slots", e))?;
        Ok(tables)
    }

    /// The number of slots.
    pub fn count(&self) -> usize {
        self.parts.len() * PART
    }

    /// How many slots each process may have: other processes' new threads find one until more are
    /// added.
    pub fn quota(&self) -> usize {
        MAX_OF_PROCESS.min(self.count() / 2)
    }

    /// Adds slots until there are `count`, or as many as there is memory for, while programs count.
    pub fn grow(&mut self, count: usize) -> io::Result<()> {
        let wanted = count.min(self.ceiling).div_ceil(PART);
        let mut added = Vec::new();
        let mut refused = Ok(());
        while refused.is_ok() && self.parts.len() + added.len() < wanted {
            match sys::create_map(&self.pattern, PATTERN, None) {
                Ok(part) => added.push(part),
                Err(e) => refused = Err(e),
            }
        }
        self.insert(&added)?;
        for part in added {
            let first = self.count() as u32;
            self.parts.push(part);
            // A stack: low numbers are taken first, and reused, so that few pages are ever touched.
            for slot in (first..first + PART as u32).rev() {
                self.give_back(slot)?;
            }
        }
        if let Some(quota) = self.quota.at::<Quota>(0) {
            quota.slots.store(self.quota() as u64, Relaxed);
        }
        refused
    }

    /// Lets programs find these parts behind the others. Each update waits for running programs
    /// (kernel/bpf/syscall.c, `maybe_wait_bpf_programs`), some milliseconds: those made at the same
    /// time wait together.
    fn insert(&self, added: &[OwnedFd]) -> io::Result<()> {
        std::thread::scope(|scope| {
            let mut updates = Vec::new();
            for (number, part) in (self.parts.len() as u32..).zip(added) {
                let file = part.as_raw_fd().to_ne_bytes();
                let slots = self.slots.as_fd();
                updates.push(
                    std::thread::Builder::new()
                        .spawn_scoped(scope, move || sys::update(slots, Some(number), &file))?,
                );
            }
            for update in updates {
                update.join().map_err(|_| io::ErrorKind::Other)??;
            }
            Ok(())
        })
    }

    fn give_back(&self, slot: u32) -> io::Result<()> {
        // First, as a program takes a slot before it counts it.
        if let Some(quota) = self.quota.at::<Quota>(0) {
            quota.free.fetch_add(1, Relaxed);
        }
        sys::update(self.free.as_fd(), None, &slot.to_ne_bytes())
    }

    /// The slots that threads have taken.
    pub fn taken(&self) -> Vec<usize> {
        (0..self.count())
            .filter(|i| self.owners.count(i * OWNER_SIZE) != 0)
            .collect()
    }

    /// A slot's memory. The slots of a part are mapped together.
    pub fn slot(&mut self, index: usize) -> Option<&Slot> {
        let number = index / PART;
        if !self.windows.contains_key(&number) {
            self.windows.retain(|kept, _| *kept < MAX_KEPT_WINDOWS);
            let part = self.parts.get(number)?;
            // A multiple of every page size.
            self.windows.insert(
                number,
                Mapping::new(part.as_fd(), 0, PART * SLOT_SIZE).ok()?,
            );
        }
        self.windows.get(&number)?.at(index % PART * SLOT_SIZE)
    }

    /// Unmaps what only free slots are in: after a burst of threads the memory of their slots would
    /// count as kvmtop's.
    pub fn unmap_unused(&mut self, taken: &[usize]) {
        self.windows.retain(|number, _| {
            let first = taken.partition_point(|index| *index < number * PART);
            taken
                .get(first)
                .is_some_and(|index| *index < (number + 1) * PART)
        });
    }

    /// Frees the slot of a thread that is gone: no program leads to it any more, its memory is
    /// cleared.
    pub fn release(&mut self, index: usize) {
        let Some(slot) = self.slot(index) else { return };
        let task = slot.task.load(Relaxed);
        let process = slot.tgid.load(Relaxed);
        let user = slot.uid.load(Relaxed);
        if let Some(bucket) = self
            .tasks
            .at::<Bucket>(bucket_of(task) * size_of::<Bucket>())
        {
            let entry = task << 7 | index as u64;
            for way in bucket.entry.iter().take(WAYS) {
                let _ = way.compare_exchange(entry, 0, Relaxed, Relaxed);
            }
        }
        let words = self.slot(index).into_iter().flat_map(Slot::words);
        words.for_each(|word| word.store(0, Relaxed));
        if let Some(owner) = self.owners.at::<AtomicU64>(index * OWNER_SIZE) {
            owner.store(0, Relaxed);
        }
        for (cells, id) in [(&self.shares, process), (&self.users, user)] {
            if let Some(share) = cells.at::<Share>(share_of(id, self.seed) * size_of::<Share>()) {
                share.slots.fetch_sub(1, Relaxed);
            }
        }
        // Refused only if it was never taken.
        let _ = self.give_back(index as u32);
    }

    /// Events of threads that found no slot.
    pub fn homeless(&self) -> Homeless {
        let quota = self.quota.at::<Quota>(0);
        Homeless {
            events: self.homeless.count(0),
            of_greedy_processes: quota.map_or(0, |quota| quota.refused.load(Relaxed)),
        }
    }

    /// The processes that were refused a slot since this was last asked. Of processes that share a
    /// cell only the last.
    pub fn refused(&self) -> Vec<i32> {
        let mut refused = Vec::new();
        for cell in 0..1 << SHARE_BITS {
            if let Some(share) = self.shares.at::<Share>(cell * size_of::<Share>()) {
                let process = share.refused.swap(0, Relaxed);
                if process != 0 {
                    refused.push(process.cast_signed());
                }
            }
        }
        refused
    }
}
