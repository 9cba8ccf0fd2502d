//! Groups traced threads into guests, and finds the role of each thread.

use super::guest::{ImportedGuest, UNNAMED};
use engine::events::TracedThread;
use kvm::sanitize;
use kvm::thread_name::{Role, classify};
use sample::{DomainSample, ThreadSample, Vmm};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Limit of different event names.
const MAX_NAMES: usize = 1024;
/// Limit of counters: pairs of a thread and an event.
const MAX_COUNTS: usize = 1 << 20;

/// How often each kvm event occurred on each thread.
#[derive(Debug, Clone, Default)]
pub(super) struct KvmEventCounts {
    names: HashMap<String, u16>,
    by_thread: HashMap<(i32, u16), u64>,
    pids: HashMap<i32, i32>,
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
        let room = self.by_thread.len() < MAX_COUNTS;
        match self.by_thread.get_mut(&(tid, id)) {
            Some(count) => *count = count.saturating_add(number),
            None if room => {
                self.by_thread.insert((tid, id), number);
                self.pids.insert(tid, pid);
            }
            None => {}
        }
    }

    /// Sums by event name over all threads.
    fn sums(&self) -> BTreeMap<String, u64> {
        self.sums_of(1, |_, _| Some(0)).pop().unwrap_or_default()
    }

    /// Sums by event name for each of `groups` groups of threads; `group` says to which one a thread belongs, by thread
    /// and process id.
    fn sums_of(&self, groups: usize, group: impl Fn(i32, i32) -> Option<usize>) -> Vec<BTreeMap<String, u64>> {
        let names: HashMap<u16, &String> = self.names.iter().map(|(name, id)| (*id, name)).collect();
        let mut sums = vec![BTreeMap::new(); groups];
        for ((tid, id), count) in &self.by_thread {
            let of = group(*tid, self.pids.get(tid).copied().unwrap_or(0));
            if let (Some(name), Some(sums)) = (names.get(id), of.and_then(|of| sums.get_mut(of))) {
                let sum: &mut u64 = sums.entry((*name).clone()).or_default();
                *sum = sum.saturating_add(*count);
            }
        }
        sums
    }
}

/// The threads of a guest, and its process where that is known.
type ThreadGroup = (Option<i32>, Vec<(i32, TracedThread)>);

/// Groups threads into guests by process; without a process, by vCPU numbers. `process_name` returns the name of a
/// process.
pub(super) fn group_threads(
    threads: Vec<TracedThread>,
    counts: &KvmEventCounts,
    process_name: impl Fn(i32) -> Option<String>,
) -> Vec<ImportedGuest> {
    let mut by_pid: BTreeMap<i32, Vec<(i32, TracedThread)>> = BTreeMap::new();
    for thread in threads {
        by_pid.entry(thread.pid).or_default().push((thread.key.tid, thread));
    }
    let mut groups: Vec<ThreadGroup> = Vec::new();
    for (pid, mut threads) in by_pid {
        threads.sort_by_key(|t| t.0);
        if pid > 0 {
            groups.push((Some(pid), threads));
        } else {
            groups.extend(split_by_vcpu(threads).into_iter().map(|t| (None, t)));
        }
    }
    if groups.is_empty() && !counts.by_thread.is_empty() {
        // Events outside any exit still show that a guest exists.
        let sample = DomainSample { kvm_events: counts.sums(), ..DomainSample::default() };
        return vec![ImportedGuest { sample, ..ImportedGuest::default() }];
    }
    let single = groups.len() == 1;
    let threads = groups.iter().enumerate().flat_map(|(i, (_, threads))| threads.iter().map(move |t| (t.0, i)));
    let by_tid: HashMap<i32, usize> = threads.collect();
    let by_pid: HashMap<i32, usize> = groups.iter().enumerate().filter_map(|(i, g)| Some((g.0?, i))).collect();
    let group = |tid: i32, pid: i32| by_tid.get(&tid).or_else(|| by_pid.get(&pid)).copied().or(single.then_some(0));
    let events = counts.sums_of(groups.len(), group);
    let guest = |((pid, threads), kvm_events): (ThreadGroup, BTreeMap<String, u64>)| {
        let comm = pid.and_then(&process_name).map(|c| sanitize(&c, 15)).filter(|c| !c.is_empty());
        ImportedGuest {
            pid,
            vmm: comm.clone().filter(|c| !c.starts_with("qemu") && !c.starts_with("kvm")).map(Vmm::Other),
            name: match (comm, pid) {
                (Some(comm), Some(pid)) => Some(format!("{comm}-{pid}")),
                // Several guests without a process can only be named by their threads.
                _ if !single => threads.first().map(|(tid, _)| format!("{UNNAMED}-{tid}")),
                _ => None,
            },
            sample: DomainSample {
                threads: threads.into_iter().map(|(tid, t)| thread_sample(tid, t)).collect(),
                kvm_events,
                ..DomainSample::default()
            },
        }
    };
    groups.into_iter().zip(events).map(guest).collect()
}

/// Splits threads in order of their ids into guests. A VMM starts its vCPU threads in order, so a vCPU number that
/// occurs a second time belongs to the next guest.
fn split_by_vcpu(threads: Vec<(i32, TracedThread)>) -> Vec<Vec<(i32, TracedThread)>> {
    let mut groups: Vec<Vec<(i32, TracedThread)>> = Vec::new();
    let mut vcpus: HashSet<u32> = HashSet::new();
    for (tid, thread) in threads {
        let vcpu = vcpu_number(&thread);
        match groups.last_mut() {
            Some(group) if vcpu.is_none_or(|vcpu| !vcpus.contains(&vcpu)) => group.push((tid, thread)),
            _ => {
                vcpus.clear();
                groups.push(vec![(tid, thread)]);
            }
        }
        vcpus.extend(vcpu);
    }
    groups
}

fn vcpu_number(thread: &TracedThread) -> Option<u32> {
    thread.vcpu.or_else(|| classify(&thread.comm, false).1)
}

fn thread_sample(tid: i32, traced: TracedThread) -> ThreadSample {
    let (role, index) = classify(&traced.comm, tid == traced.pid);
    let runs = traced.vcpu.is_some() || !traced.events.exits.is_empty();
    let index = traced.vcpu.or(index).or_else(|| kvm::thread_name::vcpu_index(&traced.comm));
    let role = if runs { Role::Vcpu } else { role };
    ThreadSample { tid, comm: traced.comm, role, index, events: traced.events, ..ThreadSample::default() }
}
