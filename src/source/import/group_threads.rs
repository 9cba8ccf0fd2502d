//! Groups traced threads into guests, and finds the role of each thread.

use super::guest::{ImportedGuest, UNNAMED};
use crate::kvm::sanitize;
use crate::kvm::thread_name::{Role, classify};
use crate::sample::{ThreadSample, Vmm};
use crate::source::events::TracedThread;
use std::collections::{BTreeMap, HashMap};

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

    /// Sums by event name over the threads that `is_meant` accepts by thread and process id.
    fn sums(&self, is_meant: impl Fn(i32, i32) -> bool) -> BTreeMap<String, u64> {
        let names: HashMap<u16, &String> = self.names.iter().map(|(name, id)| (*id, name)).collect();
        let mut sums = BTreeMap::new();
        for ((tid, id), count) in &self.by_thread {
            if let Some(name) = names.get(id).filter(|_| is_meant(*tid, self.pids.get(tid).copied().unwrap_or(0))) {
                *sums.entry((*name).clone()).or_default() += count;
            }
        }
        sums
    }
}

/// Groups threads into guests by process; without a process, by vCPU numbers. `process_name` returns the name of a
/// process.
pub(super) fn group_threads(
    threads: HashMap<i32, TracedThread>,
    counts: &KvmEventCounts,
    process_name: impl Fn(i32) -> Option<String>,
) -> Vec<ImportedGuest> {
    let mut by_pid: BTreeMap<i32, Vec<(i32, TracedThread)>> = BTreeMap::new();
    for (tid, thread) in threads {
        by_pid.entry(thread.pid).or_default().push((tid, thread));
    }
    let mut groups = Vec::new();
    for (pid, mut threads) in by_pid {
        threads.sort_by_key(|t| t.0);
        if pid > 0 {
            groups.push((Some(pid), threads));
        } else {
            groups.extend(split_by_vcpu(threads).into_iter().map(|t| (None, t)));
        }
    }
    let single = groups.len() == 1;
    let guest = |(pid, threads): (Option<i32>, Vec<(i32, TracedThread)>)| {
        let tids: Vec<i32> = threads.iter().map(|t| t.0).collect();
        let kvm_events = counts.sums(|tid, of| single || tids.contains(&tid) || pid.is_some_and(|p| p == of));
        let comm = pid.and_then(&process_name).map(|c| sanitize(&c, 15)).filter(|c| !c.is_empty());
        ImportedGuest {
            pid,
            vmm: comm.clone().filter(|c| !c.starts_with("qemu") && !c.starts_with("kvm")).map(Vmm::Other),
            name: match (comm, pid) {
                (Some(comm), Some(pid)) => Some(format!("{comm}-{pid}")),
                // Several guests without a process can only be named by their threads.
                _ if !single => tids.first().map(|tid| format!("{UNNAMED}-{tid}")),
                _ => None,
            },
            threads: threads.into_iter().map(|(tid, t)| thread_sample(tid, t)).collect(),
            kvm_events,
            ..ImportedGuest::default()
        }
    };
    if groups.is_empty() && !counts.by_thread.is_empty() {
        // Events outside any exit still show that there is a guest.
        return vec![ImportedGuest { kvm_events: counts.sums(|_, _| true), ..ImportedGuest::default() }];
    }
    groups.into_iter().map(guest).collect()
}

/// Splits threads in order of their ids into guests. A VMM starts its vCPU threads in order, so a vCPU number that
/// occurs a second time belongs to the next guest.
fn split_by_vcpu(threads: Vec<(i32, TracedThread)>) -> Vec<Vec<(i32, TracedThread)>> {
    let mut groups: Vec<Vec<(i32, TracedThread)>> = Vec::new();
    for (tid, thread) in threads {
        let vcpu = vcpu_number(&thread);
        match groups.last_mut() {
            Some(group) if vcpu.is_none() || !group.iter().any(|(_, t)| vcpu_number(t) == vcpu) => {
                group.push((tid, thread));
            }
            _ => groups.push(vec![(tid, thread)]),
        }
    }
    groups
}

fn vcpu_number(thread: &TracedThread) -> Option<u32> {
    thread.vcpu.or_else(|| classify(&thread.comm, false).1)
}

fn thread_sample(tid: i32, traced: TracedThread) -> ThreadSample {
    let (role, index) = classify(&traced.comm, tid == traced.pid);
    let runs = traced.vcpu.is_some() || !traced.events.exits.is_empty();
    let index = traced.vcpu.or(index).or_else(|| crate::kvm::thread_name::vcpu_index(&traced.comm));
    let role = if runs { Role::Vcpu } else { role };
    ThreadSample { tid, comm: traced.comm, role, index, events: traced.events, ..ThreadSample::default() }
}
