//! A guest that a file measured, and the merge of one that several files measured.

use super::kvm_stat::TableCounters;
use kvm::thread_cpus::ThreadCpus;
use kvm::thread_name::Role;
use sample::{DomainFacts, DomainSample, Known, MissingExtreme, Origin, Placement, ThreadEvents, ThreadSample, Vmm};
use std::collections::HashMap;
use std::sync::Arc;

/// The name of a guest that no file names.
pub(super) const UNNAMED: &str = "guest";

/// A guest that a file measured.
#[derive(Debug, Clone, Default)]
pub(super) struct ImportedGuest {
    /// Its name, where the file has it.
    pub name: Option<String>,
    /// The VMM's process id, where the file has it.
    pub pid: Option<i32>,
    /// Its VMM, where the file has it.
    pub vmm: Option<Vmm>,
    /// What was measured, without its facts.
    pub sample: DomainSample,
}

impl ImportedGuest {
    /// Builds a guest from the tables of `perf kvm stat`. Each vCPU with a separate table becomes a thread.
    pub fn from_tables(pids: Option<String>, counters: TableCounters) -> Self {
        let threads = counters.vcpus.into_iter().map(|(vcpu, events)| ThreadSample {
            // The tables lack thread ids; the vCPU's number keeps the threads apart.
            start_ticks: u64::from(vcpu),
            comm: format!("CPU {vcpu}"),
            role: Role::Vcpu,
            index: Some(vcpu),
            events,
            ..ThreadSample::default()
        });
        Self {
            pid: pids.and_then(|p| p.parse().ok()),
            sample: DomainSample { threads: threads.collect(), unattributed: counters.all, ..DomainSample::default() },
            ..Self::default()
        }
    }

    /// All its event counters.
    pub fn events(&self) -> impl Iterator<Item = &ThreadEvents> + Clone {
        self.sample.threads.iter().map(|t| &t.events).chain([&self.sample.unattributed])
    }

    /// The guest as a sample's domain. What `facts` leave open is filled from the measurement.
    pub fn into_domain(self, mut facts: DomainFacts) -> DomainSample {
        if facts.name.value.is_empty() {
            facts.name = Known::new(self.name.unwrap_or_else(|| UNNAMED.into()), Origin::File);
        }
        facts.vmm = self.vmm.unwrap_or(facts.vmm);
        facts.pid = self.pid.or(facts.pid);
        DomainSample { facts: Arc::new(facts), ..self.sample }
    }

    /// Adds what others measured of the same guest.
    fn merge(&mut self, others: impl IntoIterator<Item = Self>) {
        let own = &mut self.sample;
        let key = |thread: &ThreadSample| (thread.tid, thread.start_ticks);
        let mut places: HashMap<(i32, u64), usize> =
            own.threads.iter().enumerate().map(|(place, thread)| (key(thread), place)).collect();
        for other in others.into_iter().map(|other| other.sample) {
            for thread in other.threads {
                let place = *places.entry(key(&thread)).or_insert(own.threads.len());
                match own.threads.get_mut(place) {
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
    }
}

/// Sets where a domain's threads may run. A thread that no file measured is added.
pub(super) fn place_threads(domain: &mut DomainSample, cpus: ThreadCpus) {
    let known = domain.threads.iter().enumerate().rev();
    let known = known.map(|(at, t)| ((t.role, t.index.filter(|_| t.role != Role::Emulator)), at)).collect();
    let mut threads = PlacedThreads { threads: &mut domain.threads, known };
    for (vcpu, set) in cpus.vcpus {
        threads.place(Role::Vcpu, Some(vcpu)).affinity = Some(Arc::new(set));
    }
    for (vcpu, cpu) in cpus.last {
        threads.place(Role::Vcpu, Some(vcpu)).cpu = Some(cpu);
    }
    if let Some(set) = cpus.emulator {
        threads.place(Role::Emulator, None).affinity = Some(Arc::new(set));
    }
}

/// A guest's threads, found by role and number.
struct PlacedThreads<'a> {
    threads: &'a mut Vec<ThreadSample>,
    known: HashMap<(Role, Option<u32>), usize>,
}

impl PlacedThreads<'_> {
    /// The place of a thread, which is added if it is not there.
    fn place(&mut self, role: Role, index: Option<u32>) -> &mut Placement {
        let threads = &mut *self.threads;
        let at = *self.known.entry((role, index)).or_insert_with(|| {
            // The thread id is unknown; role and number keep the threads apart.
            let (comm, order) = match role {
                Role::Vcpu => (format!("CPU {}", index.unwrap_or(0)), 0),
                _ => ("emulator".to_owned(), 2),
            };
            let start_ticks = order << 32 | u64::from(index.unwrap_or(0));
            threads.push(ThreadSample { start_ticks, comm, role, index, ..ThreadSample::default() });
            threads.len() - 1
        });
        &mut threads[at].place
    }
}

/// Merges guests that have the same process and name: tables of exits and of accesses come in a file each. If there are
/// one named guest and one without name and process, the latter belongs to the former.
pub(super) fn merge_same_guests(guests: Vec<ImportedGuest>) -> Vec<ImportedGuest> {
    let mut places: HashMap<(Option<i32>, Option<String>), usize> = HashMap::new();
    let mut merged: Vec<(ImportedGuest, Vec<ImportedGuest>)> = Vec::new();
    for guest in guests {
        let place = *places.entry((guest.pid, guest.name.clone())).or_insert(merged.len());
        match merged.get_mut(place) {
            Some((_, others)) => others.push(guest),
            None => merged.push((guest, Vec::new())),
        }
    }
    let one = |(mut guest, others): (ImportedGuest, Vec<ImportedGuest>)| {
        guest.merge(others);
        guest
    };
    let mut merged: Vec<ImportedGuest> = merged.into_iter().map(one).collect();
    let is_unnamed = |g: &ImportedGuest| g.pid.is_none() && g.name.is_none();
    if merged.len() == 2
        && let Some(at) = merged.iter().position(is_unnamed)
    {
        let unnamed = merged.remove(at);
        merged.iter_mut().for_each(|named| named.merge([unnamed.clone()]));
    }
    merged
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
            let sample = DomainSample { threads: vec![thread], ..DomainSample::default() };
            ImportedGuest { sample, ..ImportedGuest::default() }
        };
        let first = guest(vec![task(1, 2, 0)], vec![task(3, 1, 100)]);
        let second = guest(vec![task(1, 5, 0), task(2, 1, 0)], vec![task(3, 1, 50)]);
        let merged = merge_same_guests(vec![first, second]);
        let [guest] = merged.as_slice() else { panic!("{merged:?}") };
        let events = &guest.sample.threads[0].events;
        assert_eq!(events.woken_by, [task(1, 7, 0), task(2, 1, 0)]);
        assert_eq!(events.preempted_by, [task(3, 2, 150)]);
    }
}
