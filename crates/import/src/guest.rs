//! The guests that files measured: traced threads in groups, and the merge of one that several files measured.

use engine::events::TracedThread;
use kvm::thread_name::{Role, classify};
use kvm::{CpuSet, Isa, sanitize};
use sample::{
    DomainFacts, DomainSample, EngineKind, EngineStatus, Joining, Known, MissingExtreme, Origin, Sum, ThreadEvents,
    ThreadSample, ThreadTimes, Vmm,
};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// Limit of different event names.
const MAX_NAMES: usize = 1024;
/// Limit of counters: pairs of a thread and an event.
const MAX_COUNTS: usize = 1 << 20;
/// The name of a guest that no file names.
pub(super) const UNNAMED: &str = "guest";

/// All event counters of a guest.
pub(super) fn events(guest: &DomainSample) -> impl Iterator<Item = &ThreadEvents> {
    guest.threads.iter().map(|t| &t.events).chain([&guest.unattributed])
}

/// Whether any counter of a guest is known.
pub(super) fn is_measured(guest: &DomainSample) -> bool {
    let has_events = events(guest).any(|events| *events != ThreadEvents::default());
    has_events || !guest.counters.is_empty() || !guest.kvm_events.is_empty()
}

/// The engine that counted these guests: a file. Its counts are those of `status`.
pub(super) fn engine(guests: &[DomainSample], mut status: EngineStatus) -> EngineStatus {
    let exits = guests.iter().flat_map(events).any(|e| !e.exits.is_empty());
    let served = guests.iter().flat_map(events).flat_map(|e| &e.userspace).any(|u| u.count > 0);
    status.kind = EngineKind::File;
    status.fires_kvm_exit = if exits { Some(true) } else { served.then_some(false) };
    status
}

/// Names the guests that no file names by their UUID; several without one by their process or a number.
pub(super) fn name_unnamed(guests: &mut [DomainSample]) {
    let is_unnamed = |guest: &DomainSample| guest.facts.name.value.is_empty();
    for guest in guests.iter_mut().filter(|guest| is_unnamed(guest)) {
        let facts = Arc::make_mut(&mut guest.facts);
        facts.name = facts.uuid.clone().unwrap_or_default();
    }
    let are_several = guests.iter().filter(|guest| is_unnamed(guest)).count() > 1;
    for (guest, number) in guests.iter_mut().filter(|guest| is_unnamed(guest)).zip(1..) {
        let name = match guest.facts.pid {
            Some(pid) if are_several => format!("{UNNAMED}-{pid}"),
            None if are_several => format!("{UNNAMED}-{number}"),
            _ => UNNAMED.to_owned(),
        };
        Arc::make_mut(&mut guest.facts).name = Known::new(name, Origin::BuiltIn);
    }
}

/// The facts of a measured guest that nothing else describes. A name is one that kvmtop made.
pub(super) fn facts(pid: Option<i32>, name: Option<String>) -> DomainFacts {
    DomainFacts { pid, name: Known::new(name.unwrap_or_default(), Origin::BuiltIn), ..DomainFacts::default() }
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

/// Sets the CPUs that all threads of a guest may use. A thread that no file measured is added.
pub(super) fn hold_threads(domain: &mut DomainSample, vcpus: u32, cpus: &CpuSet) {
    let cpus = Arc::new(cpus.clone());
    let emulator = ThreadSample {
        start_ticks: 2 << 32,
        comm: "emulator".to_owned(),
        role: Role::Emulator,
        ..ThreadSample::default()
    };
    let threads = &mut domain.threads;
    let key = |t: &ThreadSample| (t.role, t.index.filter(|_| t.role != Role::Emulator));
    let mut known: HashMap<_, _> = threads.iter().enumerate().rev().map(|(at, t)| (key(t), at)).collect();
    for thread in (0..vcpus).map(vcpu_thread).chain([emulator]) {
        let at = *known.entry(key(&thread)).or_insert(threads.len());
        if at == threads.len() {
            threads.push(thread);
        }
        threads[at].place.affinity = Some(cpus.clone());
    }
}

/// Merges guests that have the same process and name: tables of exits and of accesses come in a file each. If there are
/// one named guest and one without name and process, the latter belongs to the former. Exits of Intel and of AMD are
/// those of two hosts.
pub(super) fn merge_same_guests(guests: Vec<DomainSample>) -> Vec<DomainSample> {
    let mut places: HashMap<(Option<i32>, String), Vec<usize>> = HashMap::new();
    let mut merged: Vec<DomainSample> = Vec::new();
    for guest in guests {
        let places = places.entry((guest.facts.pid, guest.facts.name.value.clone())).or_default();
        match places.iter().find(|place| merged.get(**place).is_some_and(|same| fit(same, &guest))) {
            Some(place) => merge(&mut merged[*place], guest),
            None => {
                places.push(merged.len());
                merged.push(guest);
            }
        }
    }
    let is_unnamed = |g: &DomainSample| g.facts.pid.is_none() && g.facts.name.value.is_empty();
    if let [first, second] = merged.as_slice()
        && fit(first, second)
        && let Some(at) = merged.iter().position(is_unnamed)
    {
        let unnamed = merged.remove(at);
        merge(&mut merged[0], unnamed);
    }
    merged
}

/// Whether the exits of both can be of one host.
fn fit(a: &DomainSample, b: &DomainSample) -> bool {
    let isa = |guest| events(guest).find_map(isa);
    isa(a).zip(isa(b)).is_none_or(|(a, b)| a == b)
}

fn isa(events: &ThreadEvents) -> Option<Isa> {
    events.exits.first().map(|exit| exit.isa)
}

/// Adds what another file measured of the same guest.
fn merge(own: &mut DomainSample, other: DomainSample) {
    let key = |thread: &ThreadSample| (thread.tid, thread.start_ticks);
    let places: HashMap<_, _> = own.threads.iter().enumerate().map(|(place, thread)| (key(thread), place)).collect();
    for thread in other.threads {
        match places.get(&key(&thread)).and_then(|place| own.threads.get_mut(*place)) {
            Some(same) => {
                same.events.merge(thread.events, MissingExtreme::Unknown);
                same.cpu = same.cpu.or(thread.cpu);
                same.counters.extend(thread.counters);
            }
            None => own.threads.push(thread),
        }
    }
    own.unattributed.merge(other.unattributed, MissingExtreme::Unknown);
    own.places.extend(other.places);
    own.kvm_events.join(other.kvm_events, &mut Joining::with(MissingExtreme::Unknown));
    for (name, count) in other.counters {
        own.counters.entry(name).or_insert(count);
    }
}

/// How often each kvm event occurred on each thread.
#[derive(Debug, Clone, Default)]
pub(super) struct KvmEventCounts {
    names: HashMap<String, u16>,
    /// By thread and event: the thread's process, and the count.
    counts: HashMap<(i32, u16), (i32, u64)>,
}

impl KvmEventCounts {
    /// Counts `number` events of one name.
    pub fn add(&mut self, tid: i32, pid: i32, event: &str, number: u64) {
        let next = self.names.len();
        let id = match self.names.get(event) {
            Some(id) => *id,
            None if next < MAX_NAMES => *self.names.entry(sanitize(event, 64)).or_insert(next as u16),
            None => return,
        };
        let has_room = self.counts.len() < MAX_COUNTS;
        match self.counts.get_mut(&(tid, id)) {
            Some((_, count)) => *count = count.saturating_add(number),
            None if has_room => drop(self.counts.insert((tid, id), (pid, number))),
            None => {}
        }
    }
}

/// Groups threads into guests by process; without a process, by vCPU numbers. `process_name` returns the name of a
/// process.
pub(super) fn group_threads(
    threads: Vec<TracedThread>,
    counts: &KvmEventCounts,
    process_name: impl Fn(i32) -> Option<String>,
) -> Vec<DomainSample> {
    let mut by_pid: BTreeMap<i32, Vec<TracedThread>> = BTreeMap::new();
    for thread in threads {
        by_pid.entry(thread.pid).or_default().push(thread);
    }
    let mut groups: Vec<(Option<i32>, Vec<TracedThread>)> = Vec::new();
    for (pid, mut threads) in by_pid {
        threads.sort_by_key(|t| t.key.tid);
        if pid > 0 {
            groups.push((Some(pid), threads));
        } else {
            groups.extend(split_by_vcpu(threads).into_iter().map(|t| (None, t)));
        }
    }
    if groups.is_empty() && !counts.counts.is_empty() {
        // Events outside any exit still show that a guest exists.
        groups.push((None, Vec::new()));
    }
    let single = groups.len() == 1;
    let numbered = || groups.iter().enumerate();
    let by_tid: HashMap<i32, usize> = numbered().flat_map(|(i, g)| g.1.iter().map(move |t| (t.key.tid, i))).collect();
    let by_pid: HashMap<i32, usize> = numbered().filter_map(|(i, g)| Some((g.0?, i))).collect();
    let mut events: Vec<BTreeMap<String, u64>> = vec![BTreeMap::new(); groups.len()];
    let names: HashMap<u16, &String> = counts.names.iter().map(|(name, id)| (*id, name)).collect();
    for ((tid, id), (pid, count)) in &counts.counts {
        let group = by_tid.get(tid).or_else(|| by_pid.get(pid)).copied().or(single.then_some(0));
        let (Some(sums), Some(name)) = (group.and_then(|group| events.get_mut(group)), names.get(id)) else { continue };
        let sum = sums.entry((*name).clone()).or_default();
        *sum = sum.saturating_add(*count);
    }
    let guest = |((pid, threads), kvm_events): ((Option<i32>, Vec<TracedThread>), _)| {
        let comm = pid.and_then(&process_name).map(|c| sanitize(&c, 15)).filter(|c| !c.is_empty());
        let name = match (&comm, pid) {
            (Some(comm), Some(pid)) => Some(format!("{comm}-{pid}")),
            // Several guests without a process can only be named by their threads.
            _ if !single => threads.first().map(|t| format!("{UNNAMED}-{}", t.key.tid)),
            _ => None,
        };
        let vmm = comm.filter(|c| !c.starts_with("qemu") && !c.starts_with("kvm")).map_or(Vmm::Qemu, Vmm::Other);
        DomainSample {
            facts: Arc::new(DomainFacts { vmm, ..facts(pid, name) }),
            threads: threads.into_iter().map(thread_sample).collect(),
            kvm_events,
            ..DomainSample::default()
        }
    };
    groups.into_iter().zip(events).map(guest).collect()
}

/// Splits threads in order of their ids into guests. A VMM starts its vCPU threads in order, so a vCPU number that
/// occurs a second time belongs to the next guest; so do exits of the other vendor's CPUs.
fn split_by_vcpu(threads: Vec<TracedThread>) -> Vec<Vec<TracedThread>> {
    let mut groups: Vec<Vec<TracedThread>> = Vec::new();
    let mut vcpus: HashSet<u32> = HashSet::new();
    for thread in threads {
        let vcpu = thread.vcpu.or_else(|| classify(&thread.comm, false).1);
        let is_same_host = |t: &TracedThread| isa(&t.events).zip(isa(&thread.events)).is_none_or(|(a, b)| a == b);
        let is_new = |vcpu| !vcpus.contains(&vcpu);
        match groups.last_mut() {
            Some(group) if vcpu.is_none_or(is_new) && group.iter().all(is_same_host) => group.push(thread),
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
    let runs = traced.vcpu.is_some() || !traced.events.exits.is_empty();
    let index = traced.vcpu.or(index).or_else(|| kvm::thread_name::vcpu_index(&traced.comm));
    let role = if runs { Role::Vcpu } else { role };
    let (run_ns, wait_ns) = (traced.ran_ns, traced.waited_ns);
    let cpu = run_ns.map(|_| ThreadTimes { run_ns, wait_ns, ..ThreadTimes::default() });
    ThreadSample { cpu, tid, comm: traced.comm, role, index, events: traced.events, ..ThreadSample::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sample::OtherTask;

    #[test]
    fn two_files_of_the_same_threads_keep_who_woke_and_who_preempted() {
        let task = |tid, count, ns| OtherTask { tid, comm: "kworker".into(), count, ns };
        let guest = |woken_by, preempted_by| {
            let events = ThreadEvents { woken_by, preempted_by, ..ThreadEvents::default() };
            let thread = ThreadSample { tid: 7, events, ..ThreadSample::default() };
            DomainSample { threads: vec![thread], ..DomainSample::default() }
        };
        let first = guest(vec![task(1, 2, 0)], vec![task(3, 1, 100)]);
        let second = guest(vec![task(1, 5, 0), task(2, 1, 0)], vec![task(3, 1, 50)]);
        let merged = merge_same_guests(vec![first, second]);
        let [guest] = merged.as_slice() else { panic!("{merged:?}") };
        let events = &guest.threads[0].events;
        assert_eq!(events.woken_by, [task(1, 7, 0), task(2, 1, 0)]);
        assert_eq!(events.preempted_by, [task(3, 2, 150)]);
    }
}
