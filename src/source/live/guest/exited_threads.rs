//! The events of threads that were gone before any sample showed them, kept with their guest so that no count is ever lost.

use crate::sample::{AccessCell, ExitCell, Migrations, OtherTask, ThreadEvents, Timing, UserspaceCell};

/// Cells of exits and of accesses kept; what goes beyond is added to the last (exits) or to the cell without address.
const MAX_CELLS: usize = 4096;
/// Other tasks kept in a list.
const MAX_TASKS: usize = 32;

/// Adds the events of another thread of the same guest.
pub(crate) fn add(all: &mut ThreadEvents, gone: ThreadEvents) {
    for cell in gone.exits {
        add_exit(&mut all.exits, cell);
    }
    for cell in gone.accesses {
        add_access(&mut all.accesses, cell);
    }
    for cell in gone.userspace {
        // The kernel has some forty reasons, so this list is short by nature.
        match all.userspace.iter_mut().find(|c| c.reason == cell.reason) {
            Some(c) => c.count += cell.count,
            None => all.userspace.push(cell),
        }
    }
    add_migrations(&mut all.migrations, &gone.migrations);
    if let Some(w) = gone.wakeups {
        add_timing(all.wakeups.get_or_insert_default(), &w);
    }
    add_tasks(&mut all.woken_by, gone.woken_by);
    add_tasks(&mut all.preempted_by, gone.preempted_by);
}

/// Forgets the extremes, which belong to the interval in which a thread ended and to no later one.
pub(crate) fn next_interval(all: &mut ThreadEvents) {
    let timings = all.exits.iter_mut().map(|c| &mut c.time).chain(all.accesses.iter_mut().map(|c| &mut c.time));
    for t in timings.chain(all.wakeups.as_mut()) {
        (t.min_ns, t.max_ns) = (None, None);
    }
    for cell in &mut all.accesses {
        cell.burst = None;
    }
}

fn add_exit(all: &mut Vec<ExitCell>, gone: ExitCell) {
    let at = all.iter().position(|c| (c.isa, c.code) == (gone.isa, gone.code));
    let Some(i) = at.or_else(|| (all.len() >= MAX_CELLS).then_some(MAX_CELLS - 1)) else { return all.push(gone) };
    let Some(c) = all.get_mut(i) else { return };
    add_timing(&mut c.time, &gone.time);
    c.userspace_ns = both(c.userspace_ns, gone.userspace_ns);
    c.halted_ns = both(c.halted_ns, gone.halted_ns);
    c.preempted_ns = both(c.preempted_ns, gone.preempted_ns);
}

fn add_access(all: &mut Vec<AccessCell>, mut gone: AccessCell) {
    let find = |all: &[AccessCell], g: &AccessCell| {
        all.iter().position(|c| (c.space, c.address, c.direction) == (g.space, g.address, g.direction))
    };
    let mut at = find(all, &gone);
    if at.is_none() && all.len() >= MAX_CELLS && gone.address.is_some() {
        gone.address = None;
        at = find(all, &gone);
    }
    let Some(c) = at.and_then(|i| all.get_mut(i)) else { return all.push(gone) };
    add_timing(&mut c.time, &gone.time);
    c.faults += gone.faults;
    c.burst = match (c.burst, gone.burst) {
        (Some(a), Some(b)) => Some(if b.count > a.count { b } else { a }),
        (a, b) => a.or(b),
    };
}

/// Adds two timings; a part that one of them lacks is lacking in the sum, unless that one is empty.
fn add_timing(all: &mut Timing, gone: &Timing) {
    if gone.count == 0 {
        return;
    }
    if all.count == 0 {
        *all = gone.clone();
        return;
    }
    all.count += gone.count;
    all.total_ns = both(all.total_ns, gone.total_ns);
    all.sum_sq = all.sum_sq.zip(gone.sum_sq).map(|(a, b)| a + b);
    let pick = |a: Option<u64>, b: Option<u64>, f: fn(u64, u64) -> u64| match (a, b) {
        (Some(a), Some(b)) => Some(f(a, b)),
        (a, b) => a.or(b),
    };
    all.min_ns = pick(all.min_ns, gone.min_ns, u64::min);
    all.max_ns = pick(all.max_ns, gone.max_ns, u64::max);
    all.histogram = match (all.histogram.take(), &gone.histogram) {
        (Some(mut a), Some(b)) => {
            if a.0.len() < b.0.len() {
                a.0.resize(b.0.len(), 0);
            }
            a.0.iter_mut().zip(&b.0).for_each(|(x, y)| *x += y);
            Some(a)
        }
        _ => None,
    };
}

fn both(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    a.zip(b).map(|(a, b)| a + b)
}

fn add_migrations(all: &mut Migrations, gone: &Migrations) {
    all.total = match (all.total, gone.total) {
        (Some(a), Some(b)) => Some(a + b),
        (a, b) => a.or(b),
    };
    all.cross_core += gone.cross_core;
    all.cross_llc += gone.cross_llc;
    all.cross_node += gone.cross_node;
    all.from = gone.from.or(all.from);
}

fn add_tasks(all: &mut Vec<OtherTask>, gone: Vec<OtherTask>) {
    for task in gone {
        match all.iter_mut().find(|t| t.tid == task.tid && t.comm == task.comm) {
            Some(t) => {
                t.count += task.count;
                t.ns += task.ns;
            }
            None => all.push(task),
        }
    }
    all.sort_by_key(|t| std::cmp::Reverse((t.ns, t.count)));
    all.truncate(MAX_TASKS);
}

/// Whether a thread did what only a vCPU does.
pub(crate) fn ran_a_vcpu(events: &ThreadEvents) -> bool {
    !events.exits.is_empty()
        || !events.accesses.is_empty()
        || events.userspace.iter().any(|c: &UserspaceCell| c.count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kvm::{Isa, Space};
    use crate::sample::Direction;

    fn exit(code: u32, ns: &[u64]) -> ExitCell {
        let mut time = Timing::default();
        for n in ns {
            time.add(*n);
        }
        ExitCell {
            isa: Isa::Vmx,
            code,
            name: None,
            time,
            userspace_ns: Some(1),
            halted_ns: None,
            preempted_ns: Some(2),
        }
    }

    fn access(address: Option<u64>, count: u64) -> AccessCell {
        AccessCell {
            space: Space::Pio,
            address,
            direction: Direction::Read,
            time: Timing { count, ..Timing::default() },
            faults: 1,
            burst: None,
        }
    }

    #[test]
    fn counts_times_and_spread_add_up() {
        let mut all = ThreadEvents { exits: vec![exit(30, &[100, 300])], ..ThreadEvents::default() };
        add(&mut all, ThreadEvents { exits: vec![exit(30, &[5000]), exit(12, &[7])], ..ThreadEvents::default() });
        assert_eq!(all.exits[0].time, exit(30, &[100, 300, 5000]).time);
        assert_eq!((all.exits[0].userspace_ns, all.exits[0].halted_ns), (Some(2), None));
        assert_eq!(all.exits.len(), 2);
        next_interval(&mut all);
        assert_eq!((all.exits[0].time.min_ns, all.exits[0].time.count), (None, 3));
    }

    #[test]
    fn a_part_that_one_lacks_is_not_made_up() {
        let mut all = ThreadEvents { accesses: vec![access(Some(1), 2)], ..ThreadEvents::default() };
        let mut timed = access(Some(1), 3);
        timed.time.total_ns = Some(9);
        add(&mut all, ThreadEvents { accesses: vec![timed], ..ThreadEvents::default() });
        assert_eq!((all.accesses[0].time.count, all.accesses[0].time.total_ns), (5, None));
    }

    #[test]
    fn cells_are_bounded_and_counts_are_kept() {
        let mut all = ThreadEvents::default();
        for i in 0..2 * MAX_CELLS as u64 {
            let gone = ThreadEvents { accesses: vec![access(Some(i), 1)], ..ThreadEvents::default() };
            add(&mut all, gone);
        }
        assert_eq!(all.accesses.len(), MAX_CELLS + 1);
        assert_eq!(all.accesses.iter().map(|c| c.time.count).sum::<u64>(), 2 * MAX_CELLS as u64);
    }
}
