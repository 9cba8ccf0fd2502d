//! Rounds what the host gave before anyone sees it: see [`super::precision`].

use super::precision::{
    CPU_GRID_NS, EXTREME_BITS, GRID_NS, HELD_NS, SQUARE_BITS, WAKES, no_less, of_parts, on_grid, parts_of, significant,
    significant_ns, spread_bits, total_bits,
};
use super::{
    AccessCell, Burst, Direction, ExitCell, Histogram, OtherTask, SPREAD_CLIP_NS, Sample, ThreadEvents, Timing,
};
use crate::kvm::{Isa, Space};
use std::collections::{BTreeMap, HashMap};

/// A run of accesses shorter than this is no burst.
const LEAST_BURST: u64 = 8;
/// Significant bits of a lone duration just below its bucket's end.
const LONE_BITS: u32 = 8;

/// What was given and what was told of every cell, so that growths can be rounded.
#[derive(Debug, Default)]
pub struct Rounding {
    /// By thread, then by cell; a thread that is no part of a reading is forgotten.
    threads: HashMap<i32, Told>,
}

/// What was told of a thread.
#[derive(Debug, Default)]
struct Told {
    cells: Vec<(Key, Cell)>,
    woken_by: Vec<OtherTask>,
    preempted_by: Vec<OtherTask>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Key {
    Exit(Isa, u32, Option<String>),
    Access(Space, Option<u64>, Direction),
}

#[derive(Debug, Clone, Copy, Default)]
struct Cell {
    count: u64,
    total: Sum,
    squares: Squares,
    userspace: Sum,
    halted: Sum,
}

/// A sum as given and as told.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    given: u64,
    told: u64,
    /// What the last growth was told too low.
    owed: i64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Squares {
    given: u128,
    told: u128,
}

impl Sum {
    /// What was given since the last time; a sum that fell began again.
    fn growth(&mut self, value: u64) -> u64 {
        if value < self.given {
            *self = Self::default();
        }
        value - self.given
    }

    /// Puts a growth made of the one given in the place of it. Answers with the growth given and the one told.
    fn tell(&mut self, value: &mut u64, round: impl Fn(u64) -> u64) -> (u64, u64) {
        let given = self.growth(*value);
        let told = round(given);
        *self = Self { given: *value, told: self.told.saturating_add(told), ..*self };
        *value = self.told;
        (given, told)
    }

    /// The same rounded to so many significant bits, with what is owed from before.
    fn carry(&mut self, value: &mut u64, bits: u32, lone: bool) -> (u64, u64) {
        let ns = self.growth(*value);
        if ns == 0 {
            return self.tell(value, |_| 0);
        }
        // What a long duration was told too low must not make the many short ones behind it longer: up to half a step is made up
        // for, and the rest forgiven.
        let half = (1i64 << (64 - ns.leading_zeros()).saturating_sub(bits).min(62)) / 2;
        let due = ns.saturating_add_signed(self.owed.clamp(-half, half));
        let told = match significant_ns(due, bits) {
            // A lone duration is its histogram's only one.
            told if lone && Histogram::bucket(told) != Histogram::bucket(ns) => cut(ns, LONE_BITS),
            told => told,
        };
        self.owed = due.wrapping_sub(told) as i64;
        self.tell(value, |_| told)
    }
}

impl Rounding {
    /// Rounds all that an engine counted, by thread.
    pub fn events<'a>(&mut self, threads: impl Iterator<Item = (i32, &'a mut ThreadEvents)>) {
        let mut before = std::mem::take(&mut self.threads);
        for (tid, events) in threads {
            let mut told = before.remove(&tid).unwrap_or_default();
            told.events(events);
            self.threads.insert(tid, told);
        }
    }
}

impl Told {
    fn events(&mut self, events: &mut ThreadEvents) {
        let cells = &mut self.cells;
        let mut at = 0;
        for exit in &mut events.exits {
            let same = |k: &Key| matches!(k, Key::Exit(isa, code, name) if (*isa, *code, name) == (exit.isa, exit.code, &exit.name));
            cell(cells, at, same, || Key::Exit(exit.isa, exit.code, exit.name.clone())).exit(exit);
            at += 1;
        }
        for access in &mut events.accesses {
            let key = Key::Access(access.space, access.address, access.direction);
            cell(cells, at, |k| *k == key, || key.clone()).access(access);
            at += 1;
        }
        cells.truncate(at);
        if let Some(w) = &mut events.wakeups {
            // Of these the count, the distribution and the longest are looked at.
            (w.total_ns, w.sum_sq, w.min_ns) = (None, None, None);
            w.max_ns = w.max_ns.map(extreme);
        }
        others(&mut self.woken_by, &mut events.woken_by, |count, _| count >= WAKES);
        others(&mut self.preempted_by, &mut events.preempted_by, |_, ns| ns >= HELD_NS);
    }
}

/// Tells of another task what it did once that is worth telling, and not again before it is so.
fn others(told: &mut Vec<OtherTask>, given: &mut Vec<OtherTask>, due: impl Fn(u64, u64) -> bool) {
    let worth = |task: &OtherTask, count: u64, ns: u64| due(task.count - count, task.ns.saturating_sub(ns));
    given.iter_mut().for_each(|task| task.ns = on_grid(task.ns, CPU_GRID_NS));
    // In the order of their first mention, which keeps recordings small.
    told.retain_mut(|t| {
        let now = given.iter().position(|g| g.tid == t.tid && g.comm == t.comm && g.count >= t.count);
        let now = now.map(|i| given.swap_remove(i));
        let kept = now.is_some();
        if let Some(now) = now.filter(|now| worth(now, t.count, t.ns)) {
            *t = now;
        }
        kept
    });
    told.extend(given.drain(..).filter(|task| worth(task, 0, 0)));
    given.clone_from(told);
}

/// The cell of a key, brought to this place: cells come in the same order each time, as a rule.
fn cell(cells: &mut Vec<(Key, Cell)>, at: usize, same: impl Fn(&Key) -> bool, key: impl FnOnce() -> Key) -> &mut Cell {
    let known = cells.iter().skip(at).position(|(k, _)| same(k)).map(|i| at + i);
    let i = known.unwrap_or_else(|| {
        cells.push((key(), Cell::default()));
        cells.len() - 1
    });
    cells.swap(at, i);
    &mut cells[at].1
}

impl Cell {
    fn exit(&mut self, exit: &mut ExitCell) {
        let told = self.timing(&mut exit.time);
        let part = |sum: &mut Sum, part: &mut Option<u64>| {
            if let Some(part) = part {
                sum.tell(part, |given| told.map_or(given, |(whole, told)| of_parts(parts_of(given, whole), told)));
            }
        };
        part(&mut self.userspace, &mut exit.userspace_ns);
        part(&mut self.halted, &mut exit.halted_ns);
        exit.preempted_ns = exit.preempted_ns.map(|ns| on_grid(ns, CPU_GRID_NS));
    }

    fn access(&mut self, access: &mut AccessCell) {
        // Nobody asks for the shortest access, nor for their distribution.
        (access.time.histogram, access.time.min_ns) = (None, None);
        self.timing(&mut access.time);
        access.burst = access.burst.map(|b| match b {
            Burst { count, ns } if count >= LEAST_BURST => Burst { count, ns: extreme(ns) },
            _ => Burst::default(),
        });
    }

    /// Answers with the growth of the total, as given and as told.
    fn timing(&mut self, t: &mut Timing) -> Option<(u64, u64)> {
        if t.count < self.count {
            *self = Self::default();
        }
        let count = t.count - std::mem::replace(&mut self.count, t.count);
        let bits = total_bits(count);
        let total = t.total_ns.as_mut().map(|total| self.total.carry(total, bits, count == 1));
        let (min, max) = (t.min_ns, t.max_ns);
        // One or two durations are told by their sum and the shorter of them.
        match (count, total) {
            (1, Some((_, told))) => (t.min_ns, t.max_ns) = (min.map(|_| told), max.map(|_| told)),
            (2, Some((given, told))) => {
                // As much too long or too short as both are together.
                let scaled = |ns: u64| u128::from(ns) * u128::from(told) / u128::from(given.max(1));
                t.min_ns = min.map(|ns| extreme(scaled(ns) as u64).min(told / 2));
                t.max_ns = max.map(|ns| match t.min_ns {
                    Some(min) => told - min,
                    None => extreme(ns).max(no_less(told.div_ceil(2), EXTREME_BITS)).min(told),
                });
            }
            _ => (t.min_ns, t.max_ns) = (min.map(extreme), max.map(extreme)),
        }
        if let Some(sum) = &mut t.sum_sq {
            let told = |given: u128| match (count, total, t.min_ns, t.max_ns) {
                (1, Some((_, told)), ..) => square(told),
                (2, _, Some(min), Some(max)) => square(min) + square(max),
                (2, Some((_, told)), None, Some(max)) => square(told - max) + square(max),
                (n, Some((whole, told)), ..) if n > 0 => about_mean(n, whole, told, given),
                _ => given,
            };
            self.squares.tell(sum, |given| significant(told(given), SQUARE_BITS));
        }
        total
    }
}

impl Squares {
    fn tell(&mut self, value: &mut u128, round: impl Fn(u128) -> u128) {
        if *value < self.given {
            *self = Self::default();
        }
        *self = Self { given: *value, told: self.told.saturating_add(round(*value - self.given)) };
        *value = self.told;
    }
}

/// A sum of squares whose part about the mean is rounded; the mean itself is that of the time told.
fn about_mean(count: u64, whole: u64, told: u64, squares: u128) -> u128 {
    let mean = |total: u64| u128::from(total) * u128::from(total) / u128::from(count);
    match squares.checked_sub(mean(whole)) {
        Some(spread) => mean(told).saturating_add(significant(spread, spread_bits(count))),
        // Durations beyond the clip of the squares.
        None => significant(squares, total_bits(count)),
    }
}

fn square(ns: u64) -> u128 {
    u128::from(ns.min(SPREAD_CLIP_NS)).pow(2)
}

/// Never beyond the histogram's bucket that the duration is in.
fn extreme(ns: u64) -> u64 {
    let told = significant_ns(ns, EXTREME_BITS);
    // Just below a bucket's end it is cut off instead.
    if Histogram::bucket(told) == Histogram::bucket(ns) { told } else { cut(ns, EXTREME_BITS) }
}

/// The greatest number of so many significant bits that is no more.
fn cut(ns: u64, bits: u32) -> u64 {
    let drop = (64 - ns.leading_zeros()).saturating_sub(bits);
    ns >> drop << drop
}

/// Rounds what needs no past: times that lie on a grid.
pub fn times(sample: &mut Sample) {
    let counters = |all: &mut BTreeMap<String, u64>| {
        all.iter_mut().filter(|(name, _)| name.ends_with("_ns")).for_each(|(_, n)| *n = on_grid(*n, GRID_NS));
    };
    for domain in &mut sample.domains {
        counters(&mut domain.counters);
        for thread in &mut domain.threads {
            counters(&mut thread.counters);
            if let Some(cpu) = &mut thread.cpu {
                cpu.run_ns = cpu.run_ns.map(|ns| on_grid(ns, CPU_GRID_NS));
                cpu.wait_ns = cpu.wait_ns.map(|ns| on_grid(ns, CPU_GRID_NS));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn exit(time: &Timing, halted: u64) -> ThreadEvents {
        let time = time.clone();
        let cell = ExitCell {
            isa: Isa::Vmx,
            code: 12,
            name: None,
            time,
            userspace_ns: Some(0),
            halted_ns: Some(halted),
            preempted_ns: None,
        };
        ThreadEvents { exits: vec![cell], ..ThreadEvents::default() }
    }

    proptest! {
        /// Counts are exact, sums grow and are right over any stretch of time, and the spread never contradicts the mean.
        #[test]
        fn what_is_told_is_right(ticks in prop::collection::vec(prop::collection::vec(1u64..1 << 32, 0..9), 1..20)) {
            let (mut rounding, mut given, mut halted) = (Rounding::default(), Timing::default(), 0);
            let mut before = (0, 0);
            for durations in &ticks {
                (given.min_ns, given.max_ns) = (None, None);
                durations.iter().for_each(|ns| given.add(*ns));
                halted += durations.iter().sum::<u64>() / 3;
                let mut events = exit(&given, halted);
                rounding.events([(7, &mut events)].into_iter());
                let cell = &events.exits[0];
                let (t, total) = (&cell.time, cell.time.total_ns.unwrap_or(0));
                prop_assert_eq!((t.count, &t.histogram), (given.count, &given.histogram));
                prop_assert!(total.abs_diff(given.total_ns.unwrap_or(0)) <= total / 15 + 1);
                let told_halted = cell.halted_ns.unwrap_or(0);
                prop_assert!(before.0 <= total && before.1 <= told_halted && told_halted <= total);
                prop_assert!(told_halted.abs_diff(halted) <= total / 14 + 1);
                for (told, exact) in [(t.min_ns, given.min_ns), (t.max_ns, given.max_ns)] {
                    prop_assert_eq!(told.is_some(), exact.is_some());
                    let (told, exact) = (told.unwrap_or(0), exact.unwrap_or(0));
                    prop_assert!(told.abs_diff(exact) <= exact / 7 + 1, "{} told for {}", told, exact);
                }
                before = (total, told_halted);
            }
        }
    }

    #[test]
    fn a_counter_that_begins_again_is_told_from_zero() {
        let mut rounding = Rounding::default();
        let mut told = |ns: &[u64]| {
            let mut t = Timing::default();
            ns.iter().for_each(|ns| t.add(*ns));
            let mut events = exit(&t, 0);
            rounding.events([(7, &mut events)].into_iter());
            events.exits[0].time.total_ns
        };
        assert_eq!(told(&[1000, 2001]), Some(2944));
        assert_eq!(told(&[496]), Some(496));
        assert_eq!(told(&[496, 496]), Some(992));
    }

    #[test]
    fn what_is_told_too_high_is_told_lower_next_time() {
        let (mut rounding, mut given, mut told) = (Rounding::default(), Timing::default(), Vec::new());
        for _ in 0..100 {
            given.add(10_100);
            let mut events = exit(&given, 0);
            rounding.events([(7, &mut events)].into_iter());
            told.push(events.exits[0].time.total_ns.unwrap());
            // Nor is it forgotten while nothing happens.
            let mut events = exit(&given, 0);
            rounding.events([(7, &mut events)].into_iter());
        }
        assert_eq!(told[..3], [10_240, 19_968, 30_208], "steps of 512 ns");
        assert!(told[99].abs_diff(1_010_000) <= 512, "{}", told[99]);
        // What a long one was told too low or too high does not change the many short ones behind it.
        given.add(1_030_000_000);
        let mut tell = |given: &Timing| {
            let mut events = exit(given, 0);
            rounding.events([(7, &mut events)].into_iter());
            events.exits[0].time.total_ns.unwrap()
        };
        let before = tell(&given);
        for _ in 0..100 {
            given.add(8_700);
            tell(&given);
        }
        assert!((tell(&given) - before).abs_diff(870_000) <= 512);
        // Nor is one just below its histogram's bucket's end told much too low each time.
        let before = tell(&given);
        for _ in 0..100 {
            given.add(255);
            tell(&given);
        }
        assert!((tell(&given) - before).abs_diff(25_500) <= 150);
    }

    #[test]
    fn other_tasks_are_told_when_they_did_something_worth_telling() {
        let task = |comm: &str, count, ns| OtherTask { tid: 5, comm: comm.into(), count, ns };
        let mut told = Vec::new();
        let mut tell = |mut given: Vec<OtherTask>| {
            others(&mut told, &mut given, |_, ns| ns >= 5_000_000);
            given.into_iter().map(|t| (t.comm, t.count, t.ns)).collect::<Vec<_>>()
        };
        assert_eq!(tell(vec![task("a", 9, 4_999_999), task("b", 1, 6_000_000)]), [("b".into(), 1, 6_000_000)]);
        // In the order of their first mention; nothing is lost, it is only told later.
        let both = [("b".into(), 1, 6_000_000), ("a".into(), 12, 5_500_000)];
        assert_eq!(tell(vec![task("a", 12, 5_700_000), task("b", 3, 10_400_000)]), both);
        assert_eq!(tell(vec![task("b", 4, 11_000_000)]), [("b".into(), 4, 11_000_000)]);
        // One that begins again, or is another of that name, begins at zero.
        assert_eq!(tell(vec![task("b", 1, 4_000_000)]), []);
    }
}
