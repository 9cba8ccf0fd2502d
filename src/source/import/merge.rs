//! Several files that measured one domain, added up.

use super::join::Guest;
use crate::sample::{AccessCell, ExitCell, Histogram, ThreadEvents, Timing, UserspaceCell};

/// Guests that nothing tells apart become one: tables of exits and of accesses come in a file each. Beside a single guest that is
/// named, what has no name is that guest's.
pub(super) fn same_guests(guests: Vec<Guest>) -> Vec<Guest> {
    let mut out: Vec<Guest> = Vec::new();
    for guest in guests {
        match out.iter_mut().find(|g| g.pid == guest.pid && g.name == guest.name) {
            Some(same) => add(same, guest),
            None => out.push(guest),
        }
    }
    let nameless = |g: &Guest| g.pid.is_none() && g.name.is_none();
    if out.len() == 2
        && let Some(at) = out.iter().position(nameless)
    {
        let other = out.remove(at);
        out.iter_mut().for_each(|named| add(named, other.clone()));
    }
    out
}

fn add(sum: &mut Guest, other: Guest) {
    for thread in other.threads {
        match sum.threads.iter_mut().find(|t| (t.tid, t.start_ticks) == (thread.tid, thread.start_ticks)) {
            Some(same) => events(&mut same.events, thread.events),
            None => sum.threads.push(thread),
        }
    }
    events(&mut sum.unattributed, other.unattributed);
    for (name, count) in other.kvm_events {
        let sum = sum.kvm_events.entry(name).or_default();
        *sum = sum.saturating_add(count);
    }
}

fn events(sum: &mut ThreadEvents, other: ThreadEvents) {
    cells(&mut sum.exits, other.exits, |a, b| (a.isa, a.code) == (b.isa, b.code) && a.name == b.name, exit);
    let same = |a: &AccessCell, b: &AccessCell| (a.space, a.address, a.direction) == (b.space, b.address, b.direction);
    cells(&mut sum.accesses, other.accesses, same, |a, b| {
        timing(&mut a.time, &b.time);
        a.faults = a.faults.saturating_add(b.faults);
        a.burst = a.burst.max_by_count(b.burst);
    });
    let same = |a: &UserspaceCell, b: &UserspaceCell| a.reason == b.reason;
    cells(&mut sum.userspace, other.userspace, same, |a, b| a.count = a.count.saturating_add(b.count));
    let (a, b) = (&mut sum.migrations, &other.migrations);
    a.total = either(a.total, b.total, u64::saturating_add);
    a.cross_core = a.cross_core.saturating_add(b.cross_core);
    a.cross_llc = a.cross_llc.saturating_add(b.cross_llc);
    a.cross_node = a.cross_node.saturating_add(b.cross_node);
    match (&mut sum.wakeups, other.wakeups) {
        (Some(a), Some(b)) => timing(a, &b),
        (a @ None, b) => *a = b,
        (Some(_), None) => {}
    }
}

fn cells<T>(sum: &mut Vec<T>, other: Vec<T>, same: impl Fn(&T, &T) -> bool, add: impl Fn(&mut T, &T)) {
    if sum.is_empty() {
        *sum = other;
        return;
    }
    let before = sum.len();
    for cell in other {
        match sum.iter_mut().take(before).find(|s| same(s, &cell)) {
            Some(s) => add(s, &cell),
            None => sum.push(cell),
        }
    }
}

fn exit(a: &mut ExitCell, b: &ExitCell) {
    timing(&mut a.time, &b.time);
    let both = |a: Option<u64>, b: Option<u64>| a.zip(b).map(|(a, b)| a.saturating_add(b));
    a.userspace_ns = both(a.userspace_ns, b.userspace_ns);
    a.halted_ns = both(a.halted_ns, b.halted_ns);
    a.preempted_ns = both(a.preempted_ns, b.preempted_ns);
}

fn either<T>(a: Option<T>, b: Option<T>, both: impl Fn(T, T) -> T) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(both(a, b)),
        (a, b) => a.or(b),
    }
}

/// Adds durations; what one side does not know, the sum does not know.
pub(super) fn timing(sum: &mut Timing, other: &Timing) {
    if other.count == 0 {
        return;
    }
    if sum.count == 0 {
        *sum = other.clone();
        return;
    }
    sum.count = sum.count.saturating_add(other.count);
    sum.total_ns = sum.total_ns.zip(other.total_ns).map(|(a, b)| a.saturating_add(b));
    sum.sum_sq = sum.sum_sq.zip(other.sum_sq).map(|(a, b)| a.saturating_add(b));
    sum.min_ns = sum.min_ns.zip(other.min_ns).map(|(a, b)| a.min(b));
    sum.max_ns = sum.max_ns.zip(other.max_ns).map(|(a, b)| a.max(b));
    sum.histogram = match (sum.histogram.take(), &other.histogram) {
        (Some(Histogram(mut a)), Some(Histogram(b))) => {
            a.resize(a.len().max(b.len()), 0);
            a.iter_mut().zip(b).for_each(|(x, y)| *x = x.saturating_add(*y));
            Some(Histogram(a))
        }
        _ => None,
    };
}

trait Longest {
    fn max_by_count(self, other: Self) -> Self;
}

impl Longest for Option<crate::sample::Burst> {
    fn max_by_count(self, other: Self) -> Self {
        self.into_iter().chain(other).max_by_key(|b| b.count)
    }
}
