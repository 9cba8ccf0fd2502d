//! Groups traced threads into guests, and finds the role of each thread.

use super::guest::{self, UNNAMED};
use engine::events::TracedThread;
use kvm::sanitize;
use kvm::thread_name::{Role, classify};
use sample::{DomainFacts, DomainSample, ThreadSample, Vmm};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// Limit of different event names.
const MAX_NAMES: usize = 1024;
/// Limit of counters: pairs of a thread and an event.
const MAX_COUNTS: usize = 1 << 20;

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
            facts: Arc::new(DomainFacts { vmm, ..guest::facts(pid, name) }),
            threads: threads.into_iter().map(thread_sample).collect(),
            kvm_events,
            ..DomainSample::default()
        }
    };
    groups.into_iter().zip(events).map(guest).collect()
}

/// Splits threads in order of their ids into guests. A VMM starts its vCPU threads in order, so a vCPU number that
/// occurs a second time belongs to the next guest.
fn split_by_vcpu(threads: Vec<TracedThread>) -> Vec<Vec<TracedThread>> {
    let mut groups: Vec<Vec<TracedThread>> = Vec::new();
    let mut vcpus: HashSet<u32> = HashSet::new();
    for thread in threads {
        let vcpu = thread.vcpu.or_else(|| classify(&thread.comm, false).1);
        match groups.last_mut() {
            Some(group) if vcpu.is_none_or(|vcpu| !vcpus.contains(&vcpu)) => group.push(thread),
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
    ThreadSample { tid, comm: traced.comm, role, index, events: traced.events, ..ThreadSample::default() }
}
