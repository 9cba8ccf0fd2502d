//! The events of threads that ended before any sample showed them, kept with their guest so that no count is lost.

use sample::{MissingExtreme, ThreadEvents, UserspaceCell};

/// Cells of accesses kept; further ones are added to the cells without an address.
const MAX_CELLS: usize = 4096;
/// Tasks kept in a list.
const MAX_TASKS: usize = 32;

/// Adds the events of another thread of the same guest.
pub(crate) fn add(all: &mut ThreadEvents, gone: ThreadEvents) {
    all.merge(gone, MissingExtreme::NothingInInterval);
    all.limit(MAX_CELLS, MAX_TASKS);
}

/// Drops the extremes, which belong to the interval in which a thread ended.
pub(crate) fn next_interval(all: &mut ThreadEvents) {
    let timings = all.exits.iter_mut().map(|c| &mut c.time).chain(all.accesses.iter_mut().map(|c| &mut c.time));
    for t in timings.chain(all.wakeups.as_deref_mut()).chain(all.run_delays.as_deref_mut()) {
        (t.min_ns, t.max_ns) = (None, None);
    }
    for cell in &mut all.accesses {
        cell.burst = None;
    }
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
    use kvm::{Isa, Space};
    use sample::{AccessCell, Direction, ExitCell, Timing};

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
    fn extremes_belong_to_one_interval() {
        let mut all = ThreadEvents { exits: vec![exit(30, &[100, 300])], ..ThreadEvents::default() };
        add(&mut all, ThreadEvents { exits: vec![exit(30, &[5000])], ..ThreadEvents::default() });
        assert_eq!((all.exits[0].time.min_ns, all.exits[0].time.max_ns), (Some(100), Some(5000)));
        next_interval(&mut all);
        assert_eq!((all.exits[0].time.min_ns, all.exits[0].time.count), (None, 3));
        add(&mut all, ThreadEvents { exits: vec![exit(30, &[7])], ..ThreadEvents::default() });
        assert_eq!((all.exits[0].time.min_ns, all.exits[0].time.max_ns), (Some(7), Some(7)));
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
