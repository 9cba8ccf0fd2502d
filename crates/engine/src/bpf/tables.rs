//! The maps of a running engine, seen from user space: the taken slots, their memory, and how to free them.

use super::layout::{Bucket, SLOT_BITS, SLOT_SIZE, Slot, TASK_BITS, WAYS, bucket_of};
use super::object::Object;
use super::refusal::{Refusal, Stage};
use super::sys::{self, Mapping};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// An element of `owners` takes eight bytes: the kernel rounds up (kernel/bpf/arraymap.c, `elem_size`).
const OWNER_SIZE: usize = 8;

/// Slots in a window of 2.25 MiB, a multiple of every page size.
const WINDOW: usize = 64;

/// Windows that stay mapped.
const KEPT: usize = 8;

/// The largest number of slots.
pub(super) const MAX_SLOTS: usize = (1 << SLOT_BITS) - 1;

#[derive(Debug)]
pub(super) struct Tables {
    slots: OwnedFd,
    /// Windows onto the slots' memory by number. Mapping takes time, and mapped memory counts as resident: the first
    /// few stay mapped, and one of the others at a time.
    windows: BTreeMap<usize, Mapping>,
    owners: Mapping,
    tasks: Mapping,
    homeless: Mapping,
    free: OwnedFd,
    /// The number of slots.
    pub count: usize,
}

impl Tables {
    /// Takes over the maps of an object that was prepared for `count` slots, and marks all as free.
    pub fn new(object: &mut Object, count: usize) -> Result<Self, Refusal> {
        let tables = Self {
            owners: object.mapping("owners", count, OWNER_SIZE)?,
            tasks: object.mapping("tasks", 1 << TASK_BITS, size_of::<Bucket>())?,
            homeless: object.homeless()?,
            slots: object.take_map("slots")?,
            free: object.take_map("free_slots")?,
            windows: BTreeMap::new(),
            count,
        };
        // A stack: low numbers are taken first, and reused, so that few pages are ever touched.
        (0..count as u32).rev().try_for_each(|slot| tables.give_back(slot))?;
        Ok(tables)
    }

    fn give_back(&self, slot: u32) -> Result<(), Refusal> {
        sys::update(self.free.as_fd(), None, &slot.to_ne_bytes()).map_err(|e| Refusal::new(Stage::Map, "free_slots", e))
    }

    /// The slots that threads have taken.
    pub fn taken(&self) -> Vec<usize> {
        (0..self.count).filter(|i| self.owners.count(i * OWNER_SIZE) != 0).collect()
    }

    /// A slot's memory. Slots that follow each other are mapped together.
    pub fn slot(&mut self, index: usize) -> Option<&Slot> {
        let number = index / WINDOW;
        if !self.windows.contains_key(&number) {
            self.windows.retain(|kept, _| *kept < KEPT);
            let start = number * WINDOW;
            let len = WINDOW.min(self.count.checked_sub(start)?) * SLOT_SIZE;
            let len = len.next_multiple_of(rustix::param::page_size());
            self.windows.insert(number, Mapping::new(self.slots.as_fd(), start * SLOT_SIZE, len).ok()?);
        }
        self.windows.get(&number)?.at(index % WINDOW * SLOT_SIZE)
    }

    /// Unmaps what only free slots are in: after a burst of threads the memory of their slots would count as kvmtop's.
    pub fn unmap_unused(&mut self, taken: &[usize]) {
        self.windows.retain(|number, _| {
            let first = taken.partition_point(|index| *index < number * WINDOW);
            taken.get(first).is_some_and(|index| *index < (number + 1) * WINDOW)
        });
    }

    /// Frees the slot of a thread that is gone: no program leads to it any more, its memory is cleared.
    pub fn release(&mut self, index: usize) {
        let Some(task) = self.slot(index).map(|slot| slot.task.load(Relaxed)) else { return };
        if let Some(bucket) = self.tasks.at::<Bucket>(bucket_of(task) * size_of::<Bucket>()) {
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
        // Refused only if it was never taken.
        let _ = self.give_back(index as u32);
    }

    /// Events of threads that found no slot.
    pub fn homeless(&self) -> u64 {
        self.homeless.count(0)
    }
}
