//! The maps of a running engine, seen from user space: the taken slots, their memory, and how to
//! free them.
//!
//! - A slot is the memory of one vCPU thread: all its counters ([`Slot`]). A program takes a free
//!   slot for a thread that it has not seen before. The owner of a slot is that thread's id.
//! - A part is a map of [`PART`] slots. Parts are added while the programs run. A window is a
//!   part's memory, mapped into this process.
//! - A task is the address of a thread's `task_struct`, by which programs find the thread's slot: a
//!   hash of the task selects a bucket of the map `tasks`, and each of the bucket's [`WAYS`]
//!   entries holds a task and its slot.
//! - A share is how many slots a process or a user has. It is counted in a cell that a hash of the
//!   process or the user selects, so several processes can have one cell. The quota is the most
//!   slots that a process may have.
//! - A homeless thread has found no slot.

use super::layout::{
    Bucket, PART, Quota, SHARE_BITS, SLOT_BITS, SLOT_SIZE, Share, Slot, TASK_BITS, WAYS,
    bucket_entry, bucket_of, share_of,
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

/// How many parts, the first ones, stay mapped.
const MAX_KEPT_WINDOWS: usize = 8;

/// The most slots that one process may have: KVM gives a guest no more vCPUs on most kernels
/// (`KVM_MAX_VCPUS`).
pub const MAX_OF_PROCESS: usize = 1024;

pub(super) const MAX_SLOTS: usize = 1 << SLOT_BITS;

/// Slots take at most one eighth of the memory that kvmtop may use.
const MEMORY_DIVISOR: u64 = 8;

/// As many slots as a limit of memory leaves room for, in whole parts.
pub(super) fn slots_in(limit: Option<u64>) -> usize {
    let slots = limit.map_or(u64::MAX, |limit| limit / MEMORY_DIVISOR / SLOT_SIZE as u64);
    let parts = usize::try_from(slots).unwrap_or(usize::MAX) / PART;
    (parts * PART).clamp(PART, MAX_SLOTS)
}

/// The maps of `maps.h` and `tables.h` that user space works with.
#[derive(Debug)]
pub(super) struct Tables {
    /// The map whose elements are the parts.
    slots: OwnedFd,
    /// The definition of a part's map.
    pattern: aya_obj::Map,
    parts: Vec<OwnedFd>,
    /// By the number of the part. To map a part takes time, and mapped memory counts as kvmtop's:
    /// the first few parts stay mapped, and one of the others at a time.
    windows: BTreeMap<usize, Mapping>,
    /// The thread id of each slot; 0 for a free one.
    owners: Mapping,
    /// The buckets.
    tasks: Mapping,
    /// The number of events of homeless threads.
    homeless: Mapping,
    /// One [`Quota`].
    quota: Mapping,
    /// The cells of processes.
    shares: Mapping,
    /// The cells of users.
    users: Mapping,
    /// Makes the hash of processes and users unpredictable.
    seed: u32,
    /// A stack of the numbers of free slots.
    free: OwnedFd,
    /// The most slots that there is memory for.
    pub ceiling: usize,
}

/// Events of threads without a slot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Homeless {
    /// All of them.
    pub events: u64,
    /// Those whose process has as many slots as it may have.
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
    /// Takes over the maps of an object, and makes `count` free slots. `seed` is the object's.
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

    /// The most slots that each process may have now: half of them stay for other processes until
    /// more are added.
    pub fn max_of_process(&self) -> usize {
        MAX_OF_PROCESS.min(self.count() / 2)
    }

    /// Adds slots until there are `count`, or as many as there is memory for, while programs count.
    /// Parts that could be created are of use even if the kernel refuses a further one.
    pub fn grow(&mut self, count: usize) -> io::Result<()> {
        let wanted_parts = count.min(self.ceiling).div_ceil(PART);
        let mut added = Vec::new();
        let mut outcome = Ok(());
        while outcome.is_ok() && self.parts.len() + added.len() < wanted_parts {
            match sys::create_map(&self.pattern, PATTERN, None) {
                Ok(part) => added.push(part),
                Err(e) => outcome = Err(e),
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
            quota.slots.store(self.max_of_process() as u64, Relaxed);
        }
        outcome
    }

    /// Puts these parts behind the others, where programs find them. Each update waits some
    /// milliseconds for running programs (kernel/bpf/syscall.c, `maybe_wait_bpf_programs`), so a
    /// thread makes each of them: all wait at the same time.
    fn insert(&self, added: &[OwnedFd]) -> io::Result<()> {
        std::thread::scope(|scope| {
            let mut updates = Vec::new();
            for (number, part) in (self.parts.len() as u32..).zip(added) {
                let descriptor = part.as_raw_fd().to_ne_bytes();
                let slots = self.slots.as_fd();
                updates.push(
                    std::thread::Builder::new().spawn_scoped(scope, move || {
                        sys::update(slots, Some(number), &descriptor)
                    })?,
                );
            }
            for update in updates {
                update.join().map_err(|_| io::ErrorKind::Other)??;
            }
            Ok(())
        })
    }

    /// Puts a slot on the stack of free ones.
    fn give_back(&self, slot: u32) -> io::Result<()> {
        // The number grows before the stack does: a program takes a slot from the stack before it
        // reduces the number, which so never falls below 0.
        if let Some(quota) = self.quota.at::<Quota>(0) {
            quota.free.fetch_add(1, Relaxed);
        }
        sys::update(self.free.as_fd(), None, &slot.to_ne_bytes())
    }

    /// The slots that threads have taken, in order.
    pub fn taken(&self) -> Vec<usize> {
        (0..self.count())
            .filter(|i| self.owners.count(i * OWNER_SIZE) != 0)
            .collect()
    }

    /// A slot's memory. Maps the slot's part if it is not mapped.
    pub fn slot(&mut self, index: usize) -> Option<&Slot> {
        let number = index / PART;
        if !self.windows.contains_key(&number) {
            self.windows.retain(|mapped, _| *mapped < MAX_KEPT_WINDOWS);
            let part = self.parts.get(number)?;
            // The length is a multiple of every page size.
            let window = Mapping::new(part.as_fd(), 0, PART * SLOT_SIZE).ok()?;
            self.windows.insert(number, window);
        }
        self.windows.get(&number)?.at(index % PART * SLOT_SIZE)
    }

    /// Unmaps the parts with free slots alone: after a burst of threads the memory of their slots
    /// would count as kvmtop's. `taken`: what [`Tables::taken`] returned.
    pub fn unmap_unused(&mut self, taken: &[usize]) {
        self.windows.retain(|number, _| {
            let first = number * PART;
            let next_taken = taken.partition_point(|index| *index < first);
            taken
                .get(next_taken)
                .is_some_and(|index| *index < first + PART)
        });
    }

    /// Frees the slot of a thread that is gone.
    pub fn release(&mut self, index: usize) {
        let Some(slot) = self.slot(index) else { return };
        let task = slot.task.load(Relaxed);
        let process = slot.tgid.load(Relaxed);
        let user = slot.uid.load(Relaxed);
        self.unlink(task, index);
        self.clear(index);
        self.reduce_share(&self.shares, process);
        self.reduce_share(&self.users, user);
        // The stack is full only if the slot was never taken.
        let _ = self.give_back(index as u32);
    }

    /// Removes the slot from its task's bucket: programs no longer find it.
    fn unlink(&self, task: u64, slot: usize) {
        let byte = bucket_of(task) * size_of::<Bucket>();
        let Some(bucket) = self.tasks.at::<Bucket>(byte) else {
            return;
        };
        for entry in bucket.entry.iter().take(WAYS) {
            let _ = entry.compare_exchange(bucket_entry(task, slot), 0, Relaxed, Relaxed);
        }
    }

    /// Clears a slot's memory, and then its owner.
    fn clear(&mut self, index: usize) {
        if let Some(slot) = self.slot(index) {
            slot.words().iter().for_each(|word| word.store(0, Relaxed));
        }
        if let Some(owner) = self.owners.at::<AtomicU64>(index * OWNER_SIZE) {
            owner.store(0, Relaxed);
        }
    }

    /// Counts one slot less for a process or a user.
    fn reduce_share(&self, cells: &Mapping, id: u32) {
        if let Some(share) = cells.at::<Share>(share_of(id, self.seed) * size_of::<Share>()) {
            share.slots.fetch_sub(1, Relaxed);
        }
    }

    /// Events of threads that found no slot.
    pub fn homeless(&self) -> Homeless {
        let quota = self.quota.at::<Quota>(0);
        Homeless {
            events: self.homeless.count(0),
            of_greedy_processes: quota.map_or(0, |quota| quota.refused.load(Relaxed)),
        }
    }

    /// The processes that were refused a slot since the last call; of those that share a cell only
    /// the last.
    pub fn take_refused(&self) -> Vec<i32> {
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
