//! Copies a slot consistently while programs write to it, and ends the slot's epoch.
//!
//! `layout.h` describes the programs' side: `changes` is odd while a program writes, and all
//! figures of an event go into the epoch that the program read when it started. The reader closes
//! an interval without a lock: it sets a new epoch, copies the slot, and checks whether an event
//! was counted in between. Usually none was. Otherwise the event is in the sums of the copy but in
//! the extremes of the new epoch; the reader then closes that epoch too and adds its extremes to
//! the interval. So every event belongs to exactly one interval with all its figures.
//!
//! Extremes are kept in pairs: index 0 is for the last even epoch, index 1 for the last odd one.
//! The number of an epoch has the number of its reading above the low byte, and in the low byte
//! counts the epochs within that reading.
//!
//! x86 may delay a program's first write to `changes` in the CPU's store buffer, for some ten
//! nanoseconds: the reader waits for longer before it copies, because the copy of a few cells takes
//! no longer than that.

use super::layout::{ACCESSES, EXITS, RawAccess, RawExit, RawTiming, SLOT_SIZE, Slot};
use super::sys::Mapping;
use sample::Burst;
use std::io;
use std::mem::offset_of;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::sync::atomic::fence;
use std::time::Duration;

/// The cell of exits that found no other cell; valid only if the slot overflowed.
pub(super) const OTHER_EXIT: usize = EXITS - 1;
/// The most epochs closed in one reading; the low byte has room for more.
const MAX_EPOCHS: u32 = 64;
/// The most attempts at a consistent copy.
const MAX_COPIES: u32 = 64;
/// The most attempts at a copy of one cell.
const MAX_CELL_COPIES: u32 = 8;
/// How often the reader checks a slot that a program is writing to, before it waits.
const CHECKS_PER_WAIT: u32 = 200;
/// Turns between the new epoch and the copy, each of ten cycles or more.
const DRAIN_SPINS: u32 = 100;
const WAIT_TIME: Duration = Duration::from_micros(50);
/// The most waits. Where this host is itself a guest, the program's CPU may be descheduled for a
/// while.
const MAX_WAITS: u32 = 1000;

/// The shortest and the longest duration of an interval, nanoseconds; 0 in `max`: nothing was
/// timed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Extremes {
    pub min: u64,
    pub max: u64,
}

/// The extremes of each cell of a slot within one interval.
#[derive(Debug, Clone)]
pub(super) struct IntervalExtremes {
    pub exits: [Extremes; EXITS],
    pub accesses: [AccessExtremes; ACCESSES],
    pub wakeups: Extremes,
    pub preempted: Extremes,
}

/// The extremes of an access cell, and its longest burst.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct AccessExtremes {
    pub time: Extremes,
    pub burst: Burst,
}

impl Default for IntervalExtremes {
    fn default() -> Self {
        Self {
            exits: [Extremes::default(); EXITS],
            accesses: [AccessExtremes::default(); ACCESSES],
            wakeups: Extremes::default(),
            preempted: Extremes::default(),
        }
    }
}

/// Memory for the copy of one slot, used again for the next.
#[derive(Debug)]
pub(super) struct Snapshot {
    memory: Mapping,
    interval: IntervalExtremes,
    /// The most waits for a program that writes to a slot.
    waits: u32,
}

impl Snapshot {
    /// # Errors
    /// ENOMEM.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            memory: Mapping::anonymous(SLOT_SIZE)?,
            interval: IntervalExtremes::default(),
            waits: MAX_WAITS,
        })
    }

    /// Copies a slot and ends its epoch. Only cells in use are copied; the others still hold data
    /// of the previous slot.
    pub fn take(&mut self, slot: &Slot) -> Option<(&Slot, &IntervalExtremes)> {
        let copy = self.memory.at::<Slot>(0)?;
        self.interval = IntervalExtremes::default();
        let mut epoch = slot.epoch.load(Relaxed);
        let mut next = next_reading(epoch);
        for attempt in 1..=MAX_EPOCHS {
            let changes_before = wait_until_settled(slot, self.waits);
            slot.epoch.store(next, Relaxed);
            fence(SeqCst);
            (0..DRAIN_SPINS).for_each(|_| std::hint::spin_loop());
            let changes = consistent_copy(slot, copy, self.waits);
            self.interval.add(copy, epoch);
            // No event was counted between both looks at `changes`: so none is in the copied sums
            // but in the extremes of the new epoch.
            if changes.is_some() && changes == changes_before {
                break;
            }
            // Where the host is slow, this copy has to do. Some of its events may be of the new
            // epoch, whose extremes then count for both intervals; events that the copy lacks come
            // with the next reading.
            if changes.is_none() || attempt == MAX_EPOCHS {
                self.interval.add(copy, next);
                break;
            }
            epoch = next;
            next = next.wrapping_add(1);
        }
        Some((copy, &self.interval))
    }
}

/// The first epoch of the next reading. It is even where the last one was odd, and odd where that
/// was even.
fn next_reading(epoch: u32) -> u32 {
    let is_even = epoch.is_multiple_of(2);
    (epoch >> 8).wrapping_add(1) << 8 | u32::from(is_even)
}

/// The number of changes once no program is writing; `None` when that takes too long.
fn wait_until_settled(slot: &Slot, waits: u32) -> Option<u32> {
    for _ in 0..waits {
        for _ in 0..CHECKS_PER_WAIT {
            let changes = slot.changes.load(Acquire);
            if changes.is_multiple_of(2) {
                return Some(changes);
            }
            std::hint::spin_loop();
        }
        std::thread::sleep(WAIT_TIME);
    }
    None
}

/// Copies until no program wrote during the copy. Returns the number of changes; `None` without a
/// consistent copy.
fn consistent_copy(slot: &Slot, copy: &Slot, waits: u32) -> Option<u32> {
    for _ in 0..MAX_COPIES {
        let before = wait_until_settled(slot, waits);
        copy_used(slot, copy);
        fence(Acquire);
        if before.is_none_or(|before| before == slot.changes.load(Relaxed)) {
            return before;
        }
    }
    None
}

/// Copies the cells in use, each whole if that can be had: where the host is slow, programs write
/// during every copy of the slot.
fn copy_used(slot: &Slot, copy: &Slot) {
    copy_bytes(slot, copy, 0, offset_of!(Slot, exits));
    for (i, cell) in copy.exits.iter().enumerate().take(OTHER_EXIT) {
        copy_exit(slot, copy, i);
        if cell.used.load(Relaxed) == 0 {
            break;
        }
    }
    if copy.overflow.load(Relaxed) != 0 {
        copy_exit(slot, copy, OTHER_EXIT);
    }
    let used = copy.accesses_used.load(Relaxed);
    let size = size_of::<RawAccess>();
    let histogram_size = size_of_val(&copy.access_histogram) / ACCESSES;
    for i in 0..ACCESSES {
        if used >> i & 1 == 0 {
            continue;
        }
        copy_bytes(slot, copy, offset_of!(Slot, accesses) + i * size, size);
        let start = offset_of!(Slot, access_histogram) + i * histogram_size;
        copy_bytes(slot, copy, start, histogram_size);
    }
}

fn copy_exit(slot: &Slot, copy: &Slot, index: usize) {
    let size = size_of::<RawExit>();
    copy_bytes(slot, copy, offset_of!(Slot, exits) + index * size, size);
}

/// Copies some bytes, again if a program wrote meanwhile.
fn copy_bytes(slot: &Slot, copy: &Slot, start: usize, len: usize) {
    let words = start / 8..(start + len) / 8;
    let to = &copy.words()[words.clone()];
    let from = &slot.words()[words];
    for _ in 0..MAX_CELL_COPIES {
        let before = slot.changes.load(Acquire);
        for (to, from) in to.iter().zip(from) {
            to.store(from.load(Relaxed), Relaxed);
        }
        fence(Acquire);
        if before.is_multiple_of(2) && before == slot.changes.load(Relaxed) {
            break;
        }
    }
}

impl IntervalExtremes {
    /// Adds the extremes of an epoch that is over.
    fn add(&mut self, slot: &Slot, epoch: u32) {
        let odd = (epoch & 1) as usize;
        for (extremes, cell) in self.exits.iter_mut().zip(&slot.exits).take(OTHER_EXIT) {
            if cell.used.load(Relaxed) == 0 {
                break;
            }
            extremes.add(&cell.time, epoch);
        }
        if slot.overflow.load(Relaxed) != 0 {
            self.exits[OTHER_EXIT].add(&slot.exits[OTHER_EXIT].time, epoch);
        }
        let used = slot.accesses_used.load(Relaxed);
        for (i, cell) in slot.accesses.iter().enumerate() {
            if used >> i & 1 == 0 {
                continue;
            }
            let access = &mut self.accesses[i];
            access.time.add(&cell.time, epoch);
            let longest = cell.longest[odd].load(Relaxed).into();
            if cell.time.epoch[odd].load(Relaxed) == epoch && longest > access.burst.count {
                access.burst = Burst {
                    count: longest,
                    ns: cell.longest_ns[odd].load(Relaxed),
                };
            }
        }
        self.wakeups.add(&slot.wakeup, epoch);
        self.preempted.add(&slot.preempted, epoch);
    }
}

impl Extremes {
    /// Adds the extremes of an epoch, if anything was timed in the epoch.
    fn add(&mut self, time: &RawTiming, epoch: u32) {
        let odd = (epoch & 1) as usize;
        let min = time.extremes[odd].min.load(Relaxed);
        let max = time.extremes[odd].max.load(Relaxed);
        if time.epoch[odd].load(Relaxed) != epoch || max == 0 {
            return;
        }
        self.min = if self.max == 0 {
            min
        } else {
            self.min.min(min)
        };
        self.max = self.max.max(max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    /// Counts a duration as a program does.
    fn exit_and_access(slot: &Slot, ns: u64) {
        slot.changes.store(slot.changes.load(Relaxed) + 1, Relaxed);
        std::sync::atomic::compiler_fence(SeqCst);
        let epoch = slot.epoch.load(Relaxed);
        let odd = (epoch & 1) as usize;
        for time in [&slot.exits[0].time, &slot.accesses[63].time] {
            time.count.store(time.count.load(Relaxed) + 1, Relaxed);
            time.total.store(time.total.load(Relaxed) + ns, Relaxed);
            let extremes = &time.extremes[odd];
            if time.epoch[odd].load(Relaxed) != epoch {
                time.epoch[odd].store(epoch, Relaxed);
                extremes.min.store(0, Relaxed);
                extremes.max.store(0, Relaxed);
            }
            if extremes.min.load(Relaxed) == 0 {
                extremes.min.store(ns, Relaxed);
            }
            extremes.max.store(ns, Relaxed);
        }
        slot.changes.store(
            slot.changes.load(Relaxed) + 1,
            std::sync::atomic::Ordering::Release,
        );
    }

    struct Stop<'a>(&'a AtomicBool);

    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Relaxed);
        }
    }

    fn slot(memory: &Mapping) -> &Slot {
        memory.at(0).unwrap()
    }

    #[test]
    fn every_event_is_in_one_interval_with_all_its_figures() {
        let memory = Mapping::anonymous(SLOT_SIZE).unwrap();
        let theirs = slot(&memory);
        theirs.exits[0].used.store(1, Relaxed);
        theirs.accesses_used.store(1 << 63, Relaxed);
        // Programs are not preempted, this thread is: it may take long on a busy machine.
        let mut snapshot = Snapshot {
            waits: 100_000,
            ..Snapshot::new().unwrap()
        };
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for ns in 1.. {
                    if stop.load(Relaxed) {
                        break;
                    }
                    exit_and_access(theirs, ns);
                    // A guest does something between two exits, and for longer than a copy takes.
                    (0..4000).for_each(|_| std::hint::spin_loop());
                }
            });
            let _stop = Stop(&stop);
            let (mut before, mut busy) = (0, 0);
            // A busy machine takes longer over them; only a program that never runs uses up the
            // time.
            let began = std::time::Instant::now();
            while busy < 2000 && began.elapsed() < Duration::from_secs(180) {
                let (copy, interval) = snapshot.take(slot(&memory)).unwrap();
                let (exit, access) = (&copy.exits[0].time, &copy.accesses[63].time);
                let count = exit.count.load(Relaxed);
                assert_eq!(
                    exit.total.load(Relaxed),
                    count * (count + 1) / 2,
                    "a whole copy"
                );
                assert_eq!(access.count.load(Relaxed), count);
                let wanted = match count - before {
                    0 => Extremes::default(),
                    _ => Extremes {
                        min: before + 1,
                        max: count,
                    },
                };
                assert_eq!(
                    (interval.exits[0], interval.accesses[63].time),
                    (wanted, wanted)
                );
                busy += u32::from(count > before);
                before = count;
            }
            assert!(busy >= 2000, "{busy} intervals with an event");
        });
    }

    #[test]
    fn a_program_that_does_not_end_stops_no_reading() {
        let memory = Mapping::anonymous(SLOT_SIZE).unwrap();
        let shared = slot(&memory);
        shared.exits[0].used.store(1, Relaxed);
        exit_and_access(shared, 7);
        shared.changes.store(3, Relaxed);
        // An event while the slot is copied: it is of the epoch that the reader began.
        shared.epoch.store(next_reading(0), Relaxed);
        exit_and_access(shared, 9);
        shared.epoch.store(0, Relaxed);
        let mut snapshot = Snapshot {
            waits: 2,
            ..Snapshot::new().unwrap()
        };
        let (copy, interval) = snapshot.take(shared).unwrap();
        let extremes = Extremes { min: 7, max: 9 };
        assert_eq!(
            (copy.exits[0].time.count.load(Relaxed), interval.exits[0]),
            (2, extremes)
        );
    }
}
