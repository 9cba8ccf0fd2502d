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
//!   slots that a process may have. A greedy process has as many and wants more.
//! - A homeless thread has found no slot.
//!
//! The programs' names of some maps are shorter: `slots` for the map of the parts, `tasks` for the
//! buckets, `shares` for the shares of processes and `users` for those of users.

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

/// How many parts stay mapped: those with the lowest numbers.
const MAX_KEPT_WINDOWS: usize = 8;

/// The most slots that one process may have: KVM gives a guest no more vCPUs on most kernels
/// (`KVM_MAX_VCPUS`).
pub const MAX_OF_PROCESS: usize = 1024;

pub(super) const MAX_SLOTS: usize = 1 << SLOT_BITS;

/// Slots take at most one eighth of the memory that kvmtop may use.
const MEMORY_DIVISOR: usize = 8;

/// As many slots as a limit of memory leaves room for, in whole parts.
pub(super) fn slots_in(limit: Option<u64>) -> usize {
    let bytes = limit.map_or(usize::MAX, |limit| limit as usize);
    let parts = bytes / MEMORY_DIVISOR / SLOT_SIZE / PART;
    (parts * PART).clamp(PART, MAX_SLOTS)
}

/// The most slots that each process may have while there are this many: half of them stay for other
/// processes until more are added.
pub(super) fn max_of_process(slots: usize) -> usize {
    MAX_OF_PROCESS.min(slots / 2)
}

/// The maps of `maps.h` and `tables.h` that user space works with.
#[derive(Debug)]
pub(super) struct Tables {
    /// The map whose elements are the parts: in it programs find the slots.
    parts_map: OwnedFd,
    /// The definition of a part's map.
    pattern: aya_obj::Map,
    parts: Vec<OwnedFd>,
    /// The windows by the number of the part. To map a part takes time, and mapped memory counts as
    /// kvmtop's: so the first few parts stay mapped, and of the others one at a time.
    windows: BTreeMap<usize, Mapping>,
    /// The thread id of each slot; 0 for a free one. Each takes eight bytes: the kernel rounds its
    /// size up (kernel/bpf/arraymap.c, `elem_size`).
    owners: Mapping,
    buckets: Mapping,
    /// The number of events of homeless threads.
    homeless_events: Mapping,
    /// One [`Quota`].
    quota: Mapping,
    /// The cells of processes, each a [`Share`].
    process_shares: Mapping,
    /// The cells of users, each a [`Share`].
    user_shares: Mapping,
    /// Makes the hash of processes and users unpredictable.
    seed: u32,
    /// A stack of the numbers of free slots.
    free_slots: OwnedFd,
    /// The most slots that there is memory for.
    pub ceiling: usize,
}

/// The number of events of homeless threads.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Homeless {
    /// The events of all homeless threads.
    pub events: u64,
    /// The events of threads whose process has as many slots as it may have.
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
    /// Takes over the maps of an object, and makes `wanted` free slots. `seed` is the object's.
    pub fn new(object: &mut Object, wanted: usize, seed: u32) -> Result<Self, Refusal> {
        let mut tables = Self {
            owners: object.mapping::<AtomicU64>("owners", MAX_SLOTS)?,
            buckets: object.mapping::<Bucket>("tasks", 1 << TASK_BITS)?,
            homeless_events: object.homeless_events()?,
            quota: object.mapping::<Quota>("quota", 1)?,
            process_shares: object.mapping::<Share>("shares", 1 << SHARE_BITS)?,
            user_shares: object.mapping::<Share>("users", 1 << SHARE_BITS)?,
            seed,
            parts_map: object.take_map("slots")?,
            pattern: object.definition(PATTERN)?,
            free_slots: object.take_map("free_slots")?,
            parts: Vec::new(),
            windows: BTreeMap::new(),
            ceiling: slots_in(rights::memory_limit()),
        };
        tables
            .grow(wanted)
            .map_err(|e| Refusal::new(Stage::Map, "slots", e))?;
        Ok(tables)
    }

    /// The number of slots.
    pub fn slot_count(&self) -> usize {
        self.parts.len() * PART
    }

    /// Adds slots until there are `wanted`, or as many as there is memory for, while programs
    /// count. Parts that could be created are of use even if the kernel refuses a further one.
    pub fn grow(&mut self, wanted: usize) -> io::Result<()> {
        let wanted_parts = wanted.min(self.ceiling).div_ceil(PART);
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
            let first_slot = self.slot_count() as u32;
            self.parts.push(part);
            // In reverse, since programs pop the last number of the stack: they take low numbers
            // first, and again once these are free, so that few pages are ever touched.
            for slot in (first_slot..first_slot + PART as u32).rev() {
                self.push_free(slot)?;
            }
        }
        if let Some(quota) = self.quota.at::<Quota>(0) {
            quota
                .slots
                .store(max_of_process(self.slot_count()) as u64, Relaxed);
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
                let parts_map = self.parts_map.as_fd();
                updates.push(std::thread::Builder::new().spawn_scoped(scope, move || {
                    sys::update(parts_map, Some(number), &descriptor)
                })?);
            }
            for update in updates {
                update.join().map_err(|_| io::ErrorKind::Other)??;
            }
            Ok(())
        })
    }

    /// Puts a slot on the stack of free ones.
    fn push_free(&self, slot: u32) -> io::Result<()> {
        // `quota.free` grows before the stack does, and a program takes a slot from the stack
        // before it reduces `quota.free`: so `quota.free` never falls below 0.
        if let Some(quota) = self.quota.at::<Quota>(0) {
            quota.free.fetch_add(1, Relaxed);
        }
        sys::update(self.free_slots.as_fd(), None, &slot.to_ne_bytes())
    }

    /// The numbers of the slots that threads have taken, in ascending order.
    pub fn taken_slots(&self) -> Vec<usize> {
        (0..self.slot_count())
            .filter(|index| self.owners.read_u64(*index) != 0)
            .collect()
    }

    /// A slot's memory. Maps the slot's part if it is not mapped.
    pub fn slot(&mut self, index: usize) -> Option<&Slot> {
        let number = index / PART;
        if !self.windows.contains_key(&number) {
            self.windows.retain(|mapped, _| *mapped < MAX_KEPT_WINDOWS);
            let part = self.parts.get(number)?;
            // The length is a multiple of every page size.
            let window = Mapping::new(part.as_fd(), PART * SLOT_SIZE).ok()?;
            self.windows.insert(number, window);
        }
        self.windows.get(&number)?.at(index % PART)
    }

    /// Unmaps the parts whose slots are all free: after a burst of threads the memory of these
    /// parts would count as kvmtop's. `taken`: what [`Tables::taken_slots`] returned.
    pub fn unmap_unused(&mut self, taken: &[usize]) {
        self.windows
            .retain(|number, _| taken.iter().any(|index| index / PART == *number));
    }

    /// Frees the slot of a thread that is gone.
    pub fn release(&mut self, index: usize) {
        let Some(slot) = self.slot(index) else { return };
        let task = slot.task.load(Relaxed);
        let process = slot.tgid.load(Relaxed);
        let user = slot.uid.load(Relaxed);
        self.unlink(task, index);
        self.clear(index);
        self.reduce_share(&self.process_shares, process);
        self.reduce_share(&self.user_shares, user);
        // It fails only if the stack is full, which it cannot be while a slot is taken.
        let _ = self.push_free(index as u32);
    }

    /// Removes the slot from its task's bucket: programs no longer find the slot.
    fn unlink(&self, task: u64, slot: usize) {
        let Some(bucket) = self.buckets.at::<Bucket>(bucket_of(task)) else {
            return;
        };
        for entry in bucket.entry.iter().take(WAYS) {
            // Fails for the bucket's other entries, which stay.
            let _ = entry.compare_exchange(bucket_entry(task, slot), 0, Relaxed, Relaxed);
        }
    }

    /// Clears a slot's memory, and then its owner.
    fn clear(&mut self, index: usize) {
        if let Some(slot) = self.slot(index) {
            slot.words().iter().for_each(|word| word.store(0, Relaxed));
        }
        if let Some(owner) = self.owners.at::<AtomicU64>(index) {
            owner.store(0, Relaxed);
        }
    }

    /// Counts one slot less for the process or the user with this id.
    fn reduce_share(&self, cells: &Mapping, id: u32) {
        if let Some(share) = cells.at::<Share>(share_of(id, self.seed)) {
            share.slots.fetch_sub(1, Relaxed);
        }
    }

    /// The events of homeless threads, since the start.
    pub fn homeless(&self) -> Homeless {
        let quota = self.quota.at::<Quota>(0);
        Homeless {
            events: self.homeless_events.read_u64(0),
            of_greedy_processes: quota.map_or(0, |quota| quota.refused.load(Relaxed)),
        }
    }

    /// The processes that were refused a slot since the last call. Where several processes share a
    /// cell, it names the last that was refused.
    pub fn take_refused(&self) -> Vec<i32> {
        let mut refused = Vec::new();
        for cell in 0..1 << SHARE_BITS {
            if let Some(share) = self.process_shares.at::<Share>(cell) {
                let process = share.refused.swap(0, Relaxed);
                if process != 0 {
                    refused.push(process.cast_signed());
                }
            }
        }
        refused
    }
}
