//! Several files that measured one domain, added up.

use super::join::Guest;
use crate::sample::MissingExtreme::Unknown;

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
            Some(same) => same.events.merge(thread.events, Unknown),
            None => sum.threads.push(thread),
        }
    }
    sum.unattributed.merge(other.unattributed, Unknown);
    for (name, count) in other.kvm_events {
        let sum = sum.kvm_events.entry(name).or_default();
        *sum = sum.saturating_add(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{OtherTask, ThreadEvents, ThreadSample};

    #[test]
    fn two_files_of_the_same_threads_keep_who_woke_and_who_preempted() {
        let task = |tid, count, ns| OtherTask { tid, comm: "kworker".into(), count, ns };
        let guest = |woken_by, preempted_by| {
            let events = ThreadEvents { woken_by, preempted_by, ..ThreadEvents::default() };
            Guest { threads: vec![ThreadSample { tid: 7, events, ..ThreadSample::default() }], ..Guest::default() }
        };
        let first = guest(vec![task(1, 2, 0)], vec![task(3, 1, 100)]);
        let second = guest(vec![task(1, 5, 0), task(2, 1, 0)], vec![task(3, 1, 50)]);
        let sum = same_guests(vec![first, second]);
        let [guest] = sum.as_slice() else { panic!("{sum:?}") };
        let events = &guest.threads[0].events;
        assert_eq!(events.woken_by, [task(1, 7, 0), task(2, 1, 0)]);
        assert_eq!(events.preempted_by, [task(3, 2, 150)]);
    }
}
