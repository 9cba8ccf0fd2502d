//! The guests that files measured: traced threads in groups, and the merge of one that several
//! files measured.

use engine::events::TracedThread;
use foldhash::fast::RandomState;
use kvm::sanitize;
use kvm::thread_name::{Role, classify, vcpu_index};
use sample::{
    DomainFacts, DomainSample, EngineKind, EngineStatus, Joining, Known, MissingExtreme, Origin,
    Sum, ThreadEvents, ThreadSample, ThreadTimes,
};
use std::collections::{BTreeMap, HashMap, HashSet, btree_map::Entry};
use std::sync::Arc;

/// Limit of counters: pairs of a thread and an event.
const MAX_COUNTS: usize = 1 << 18;
/// The process id of a thread whose process a trace does not name.
pub(super) const UNKNOWN_PID: i32 = 0;
/// The name of a guest that no file names.
pub(super) const UNNAMED: &str = "guest";

/// All event counters of a guest.
fn all_events(guest: &DomainSample) -> impl Iterator<Item = &ThreadEvents> {
    guest
        .threads
        .iter()
        .map(|t| &t.events)
        .chain([&guest.unattributed])
}

/// Whether any counter of a guest is known.
pub(super) fn is_measured(guest: &DomainSample) -> bool {
    let has_events = all_events(guest).any(|events| *events != ThreadEvents::default());
    has_events || !guest.counters.is_empty() || !guest.kvm_events.is_empty()
}

/// Completes the status of a file as the engine that counted these guests.
pub(super) fn engine(guests: &[DomainSample], mut status: EngineStatus) -> EngineStatus {
    let has_exits = guests
        .iter()
        .flat_map(all_events)
        .any(|e| !e.exits.is_empty());
    let has_userspace_exits = guests
        .iter()
        .flat_map(all_events)
        .flat_map(|e| &e.userspace)
        .any(|u| u.count > 0);
    status.kind = EngineKind::File;
    // Userspace exits without any exit show that kvm_exit did not fire.
    status.fires_kvm_exit = if has_exits {
        Some(true)
    } else if has_userspace_exits {
        Some(false)
    } else {
        None
    };
    status
}

/// Names the guests that no file names: by their process, or by a number. Guests that share a file
/// with others were named by [`group_threads`].
pub(super) fn name_unnamed(guests: &mut [DomainSample]) {
    let is_single = guests
        .iter()
        .filter(|guest| guest.facts.name.value.is_empty())
        .count()
        == 1;
    for (guest, number) in guests.iter_mut().zip(1..) {
        if !guest.facts.name.value.is_empty() {
            continue;
        }
        let facts = Arc::make_mut(&mut guest.facts);
        let name = if is_single {
            UNNAMED.to_owned()
        } else if let Some(pid) = facts.pid {
            format!("{UNNAMED}-{pid}")
        } else {
            format!("{UNNAMED}-{number}")
        };
        facts.name = Known::new(name, Origin::BuiltIn);
    }
}

/// A measured guest of which nothing but its process is known.
pub(super) fn measured(pid: Option<i32>) -> DomainSample {
    let facts = Arc::new(DomainFacts {
        pid,
        ..DomainFacts::default()
    });
    DomainSample {
        facts,
        ..DomainSample::default()
    }
}

/// A vCPU's thread of unknown id; the vCPU's number keeps such threads apart.
pub(super) fn vcpu_thread(vcpu: u32) -> ThreadSample {
    ThreadSample {
        start_ticks: u64::from(vcpu),
        comm: format!("CPU {vcpu}"),
        role: Role::Vcpu,
        index: Some(vcpu),
        ..ThreadSample::default()
    }
}

/// Merges guests that have the same process and name: tables of exits and of accesses come in a
/// file each. If there are two guests, one of them without name and process, it belongs to the
/// other.
pub(super) fn merge_same_guests(guests: Vec<DomainSample>) -> Vec<DomainSample> {
    let mut merged: BTreeMap<(Option<i32>, String), DomainSample> = BTreeMap::new();
    for guest in guests {
        match merged.entry((guest.facts.pid, guest.facts.name.value.clone())) {
            Entry::Occupied(mut same) => merge_into(same.get_mut(), guest),
            Entry::Vacant(free) => _ = free.insert(guest),
        }
    }
    if merged.len() == 2
        && let Some(unnamed) = merged.remove(&(None, String::new()))
        && let Some(only) = merged.values_mut().next()
    {
        merge_into(only, unnamed);
    }
    merged.into_values().collect()
}

/// Adds what another file measured of the same guest.
fn merge_into(known: &mut DomainSample, other: DomainSample) {
    let mut known_threads = HashMap::new();
    for (index, thread) in known.threads.iter().enumerate() {
        known_threads.insert((thread.tid, thread.start_ticks), index);
    }
    for thread in other.threads {
        match known_threads.get(&(thread.tid, thread.start_ticks)) {
            Some(index) => {
                let same = &mut known.threads[*index];
                same.events.merge(thread.events, MissingExtreme::Unknown);
                same.cpu = same.cpu.or(thread.cpu);
            }
            None => known.threads.push(thread),
        }
    }
    known
        .unattributed
        .merge(other.unattributed, MissingExtreme::Unknown);
    known.places.extend(other.places);
    known.kvm_events.join(
        other.kvm_events,
        &mut Joining::with(MissingExtreme::Unknown),
    );
    known.counters.extend(other.counters);
}

/// How often each kvm event occurred on each thread.
#[derive(Debug, Default)]
pub(super) struct KvmEventCounts {
    /// By event and thread id.
    events: HashMap<String, HashMap<i32, ThreadCount, RandomState>, RandomState>,
    /// Number of counts.
    size: usize,
}

/// How often one event occurred on one thread.
#[derive(Debug)]
struct ThreadCount {
    pid: i32,
    count: u64,
}

impl KvmEventCounts {
    /// Counts an event.
    pub fn add(&mut self, tid: i32, pid: i32, event: &str) {
        if let Some(known) = self
            .events
            .get_mut(event)
            .and_then(|threads| threads.get_mut(&tid))
        {
            known.count += 1;
        } else if self.size < MAX_COUNTS {
            self.size += 1;
            self.events
                .entry(event.to_owned())
                .or_default()
                .insert(tid, ThreadCount { pid, count: 1 });
        }
    }

    /// Whether an event occurred.
    pub fn has(&self, event: &str) -> bool {
        self.events.contains_key(event)
    }
}

/// Groups threads into guests by process; without a process, by vCPU numbers.
pub(super) fn group_threads(
    threads: Vec<TracedThread>,
    counts: &KvmEventCounts,
) -> Vec<DomainSample> {
    let mut by_pid: BTreeMap<i32, Vec<TracedThread>> = BTreeMap::new();
    for thread in threads {
        let pid = thread.pid.max(UNKNOWN_PID);
        by_pid.entry(pid).or_default().push(thread);
    }
    let without_process = by_pid.remove(&UNKNOWN_PID).unwrap_or_default();
    let of_unknown = split_by_vcpu(without_process)
        .into_iter()
        .map(|threads| (None, threads));
    let of_known = by_pid
        .into_iter()
        .map(|(pid, threads)| (Some(pid), threads));
    let mut groups: Vec<_> = of_unknown.chain(of_known).collect();
    if groups.is_empty() && !counts.events.is_empty() {
        // Events outside any exit still show that a guest exists.
        groups.push((None, Vec::new()));
    }
    let is_single = groups.len() == 1;
    let mut guests = Vec::new();
    for (pid, mut threads) in groups {
        threads.sort_by_key(|thread| thread.key.tid);
        let mut guest = measured(pid);
        if !is_single {
            // A later file cannot name one of several guests: they get the names of their processes
            // or threads.
            let id = pid.or_else(|| Some(threads.first()?.key.tid)).unwrap_or(0);
            Arc::make_mut(&mut guest.facts).name =
                Known::new(format!("{UNNAMED}-{id}"), Origin::BuiltIn);
        }
        guest.threads = threads.into_iter().map(thread_sample).collect();
        guests.push(guest);
    }
    assign_counts(&mut guests, counts);
    guests
}

/// Adds each thread's kvm events to the guest that has the thread, or else its process. A single
/// guest gets those of all other threads as well.
fn assign_counts(guests: &mut [DomainSample], counts: &KvmEventCounts) {
    let mut guest_of_tid = HashMap::new();
    let mut guest_of_pid = HashMap::new();
    for (index, guest) in guests.iter().enumerate() {
        guest_of_pid.insert(guest.facts.pid, index);
        for thread in &guest.threads {
            guest_of_tid.insert(thread.tid, index);
        }
    }
    for (event, threads) in &counts.events {
        for (tid, on_thread) in threads {
            let guest = match guest_of_tid
                .get(tid)
                .or_else(|| guest_of_pid.get(&Some(on_thread.pid)))
            {
                Some(index) => guests.get_mut(*index),
                None if guests.len() == 1 => guests.first_mut(),
                None => None,
            };
            if let Some(guest) = guest {
                *guest.kvm_events.entry(sanitize(event, 64)).or_default() += on_thread.count;
            }
        }
    }
}

/// Splits threads in order of their ids into guests. A VMM starts its vCPU threads in order, so a
/// vCPU number that occurs a second time belongs to the next guest.
fn split_by_vcpu(mut threads: Vec<TracedThread>) -> Vec<Vec<TracedThread>> {
    threads.sort_by_key(|thread| thread.key.tid);
    let mut groups: Vec<Vec<TracedThread>> = Vec::new();
    let mut vcpus: HashSet<u32> = HashSet::new();
    for thread in threads {
        let vcpu = thread.vcpu.or_else(|| vcpu_index(&thread.comm));
        let occurs_again = vcpu.is_some_and(|vcpu| vcpus.contains(&vcpu));
        match groups.last_mut() {
            Some(group) if !occurs_again => group.push(thread),
            _ => {
                vcpus.clear();
                groups.push(vec![thread]);
            }
        }
        vcpus.extend(vcpu);
    }
    groups
}

fn thread_sample(traced: TracedThread) -> ThreadSample {
    let tid = traced.key.tid;
    let (role, index) = classify(&traced.comm, tid == traced.pid);
    let is_vcpu = traced.vcpu.is_some() || !traced.events.exits.is_empty();
    let index = traced.vcpu.or(index).or_else(|| vcpu_index(&traced.comm));
    let role = if is_vcpu { Role::Vcpu } else { role };
    let cpu = traced.ran_ns.map(|_| ThreadTimes {
        run_ns: traced.ran_ns,
        wait_ns: traced.waited_ns,
        ..ThreadTimes::default()
    });
    ThreadSample {
        cpu,
        tid,
        comm: traced.comm,
        role,
        index,
        events: traced.events,
        ..ThreadSample::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sample::OtherTask;

    #[test]
    fn two_files_of_the_same_threads_keep_who_woke_and_who_preempted() {
        let task = |tid, count, ns| OtherTask {
            tid,
            comm: "kworker".into(),
            count,
            ns,
        };
        let guest = |woken_by, preempted_by| {
            let events = ThreadEvents {
                woken_by,
                preempted_by,
                ..ThreadEvents::default()
            };
            let thread = ThreadSample {
                tid: 7,
                events,
                ..ThreadSample::default()
            };
            DomainSample {
                threads: vec![thread],
                ..DomainSample::default()
            }
        };
        let first = guest(vec![task(1, 2, 0)], vec![task(3, 1, 100)]);
        let second = guest(vec![task(1, 5, 0), task(2, 1, 0)], vec![task(3, 1, 50)]);
        let merged = merge_same_guests(vec![first, second]);
        let [guest] = merged.as_slice() else {
            panic!("{merged:?}")
        };
        let events = &guest.threads[0].events;
        assert_eq!(events.woken_by, [task(1, 7, 0), task(2, 1, 0)]);
        assert_eq!(events.preempted_by, [task(3, 2, 150)]);
    }
}
