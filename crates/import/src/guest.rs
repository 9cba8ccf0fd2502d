//! The guests that files measured, and the merge of one that several files measured.

use kvm::CpuSet;
use kvm::thread_cpus::ThreadCpus;
use kvm::thread_name::Role;
use sample::{
    DomainFacts, DomainSample, EngineKind, EngineStatus, Known, MissingExtreme, Origin, Sample, SourceStatus,
    ThreadEvents, ThreadSample,
};
use std::collections::HashMap;
use std::sync::Arc;

/// The name of a guest that no file names.
pub(super) const UNNAMED: &str = "guest";

/// All event counters of a guest.
pub(super) fn events(guest: &DomainSample) -> impl Iterator<Item = &ThreadEvents> {
    guest.threads.iter().map(|t| &t.events).chain([&guest.unattributed])
}

/// The engine that counted these guests: a file. Its counts are those of `status`.
pub(super) fn engine(guests: &[DomainSample], mut status: EngineStatus) -> EngineStatus {
    let exits = guests.iter().flat_map(events).any(|e| !e.exits.is_empty());
    let served = guests.iter().flat_map(events).flat_map(|e| &e.userspace).any(|u| u.count > 0);
    status.kind = EngineKind::File;
    status.fires_kvm_exit = if exits { Some(true) } else { served.then_some(false) };
    status
}

/// The guest, with a name in any case.
pub(super) fn with_name(mut guest: DomainSample) -> DomainSample {
    if guest.facts.name.value.is_empty() {
        Arc::make_mut(&mut guest.facts).name = Known::new(UNNAMED.into(), Origin::File);
    }
    guest
}

/// What a file had counted up to an instant of its clock, in nanoseconds.
pub(super) fn sample_at(ns: u64, source: SourceStatus, guests: Vec<DomainSample>, counts: EngineStatus) -> Sample {
    Sample {
        time_ms: (ns / 1_000_000) as i64,
        mono_ns: ns,
        boot_ns: ns,
        engine: engine(&guests, counts),
        domains: guests.into_iter().map(with_name).collect(),
        sources: vec![source],
        ..Sample::default()
    }
}

/// The facts of a measured guest that nothing else describes.
pub(super) fn facts(pid: Option<i32>, name: Option<String>) -> DomainFacts {
    DomainFacts { pid, name: Known::new(name.unwrap_or_default(), Origin::File), ..DomainFacts::default() }
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

/// Sets where a domain's threads may run. A thread that no file measured is added.
pub(super) fn place_threads(domain: &mut DomainSample, cpus: ThreadCpus) {
    let threads = &mut domain.threads;
    let key = |t: &ThreadSample| (t.role, t.index.filter(|_| t.role != Role::Emulator));
    let mut known: HashMap<_, _> = threads.iter().enumerate().rev().map(|(at, t)| (key(t), at)).collect();
    let mut place = |thread: ThreadSample, affinity: Option<CpuSet>, cpu: Option<u32>| {
        let at = *known.entry(key(&thread)).or_insert(threads.len());
        if at == threads.len() {
            threads.push(thread);
        }
        let place = &mut threads[at].place;
        place.affinity = affinity.map(Arc::new).or(place.affinity.take());
        place.cpu = cpu.or(place.cpu);
    };
    cpus.vcpus.into_iter().for_each(|(vcpu, set)| place(vcpu_thread(vcpu), Some(set), None));
    cpus.last.into_iter().for_each(|(vcpu, cpu)| place(vcpu_thread(vcpu), None, Some(cpu)));
    if let Some(set) = cpus.emulator {
        let (start_ticks, comm) = (2 << 32, "emulator".to_owned());
        let emulator = ThreadSample { start_ticks, comm, role: Role::Emulator, ..ThreadSample::default() };
        place(emulator, Some(set), None);
    }
}

/// Merges guests that have the same process and name: tables of exits and of accesses come in a file each. If there are
/// one named guest and one without name and process, the latter belongs to the former.
pub(super) fn merge_same_guests(guests: Vec<DomainSample>) -> Vec<DomainSample> {
    let mut places: HashMap<(Option<i32>, String), usize> = HashMap::new();
    let mut merged: Vec<DomainSample> = Vec::new();
    for guest in guests {
        let place = *places.entry((guest.facts.pid, guest.facts.name.value.clone())).or_insert(merged.len());
        match merged.get_mut(place) {
            Some(same) => merge(same, guest),
            None => merged.push(guest),
        }
    }
    let is_unnamed = |g: &DomainSample| g.facts.pid.is_none() && g.facts.name.value.is_empty();
    if merged.len() == 2
        && let Some(at) = merged.iter().position(is_unnamed)
    {
        let unnamed = merged.remove(at);
        merge(&mut merged[0], unnamed);
    }
    merged
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
    for (name, count) in other.kvm_events {
        let sum = own.kvm_events.entry(name).or_default();
        *sum = sum.saturating_add(count);
    }
    for (name, count) in other.counters {
        own.counters.entry(name).or_insert(count);
    }
    if own.devices_ns == 0 {
        (own.disks, own.nics) = (other.disks, other.nics);
        (own.devices_ns, own.nics_ns) = (other.devices_ns, other.nics_ns);
    }
    own.memory.balloon = own.memory.balloon.or(other.memory.balloon);
    own.memory.resident = own.memory.resident.or(other.memory.resident);
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
