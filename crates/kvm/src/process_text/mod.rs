//! What tools print about the process of a VMM and its threads: `numastat -p` and `-c`, `taskset -p`, `ps -L` and
//! `ps -T`, `/proc/PID/status` and `/proc/PID/numa_maps`.

mod numa;
mod threads;

use super::cpu_set::CpuSet;
use super::sanitize;
use super::thread_cpus::ThreadCpus;
use super::thread_name::{Role, classify};
use std::collections::BTreeMap;

/// Lines of a text that are read.
const MAX_LINES: usize = 500_000;
/// Processes and threads of one text.
const MAX_PROCESSES: usize = 4096;
const MAX_THREADS: usize = 65_536;

/// The memory of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessMemory {
    /// Its name, at most 15 characters (`comm`).
    pub comm: Option<String>,
    /// Bytes by NUMA node.
    pub nodes: BTreeMap<u32, u64>,
    /// Bytes in swap.
    pub swap: Option<u64>,
}

/// One thread, which may be a process's first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadText {
    /// Its process, where the text says it.
    pub pid: Option<i32>,
    /// Its name.
    pub comm: Option<String>,
    /// Where it may run.
    pub cpus: Option<CpuSet>,
    /// Where it ran last.
    pub last: Option<u32>,
}

/// What texts say about processes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessText {
    /// By process id.
    pub memory: BTreeMap<i32, ProcessMemory>,
    /// By thread id.
    pub threads: BTreeMap<i32, ThreadText>,
}

/// Whether a text holds such an output about a VMM, or about a process without a name.
pub fn looks_like(text: &str, pid: Option<i32>) -> bool {
    !parse(text, pid).is_empty()
}

/// Reads a text. `pid`: the process of a `/proc/PID/numa_maps`, which does not name it.
pub fn parse(text: &str, pid: Option<i32>) -> ProcessText {
    let mut found = ProcessText::default();
    numa::read(text, pid, &mut found);
    threads::read(text, &mut found);
    let is_vmm = |pid: i32, found: &ProcessText| {
        let names = found.memory.get(&pid).and_then(|m| m.comm.as_deref());
        let main = found.threads.get(&pid).and_then(|t| t.comm.as_deref());
        names.or(main).is_none_or(is_vmm)
    };
    let whole = found.clone();
    found.memory.retain(|pid, memory| is_vmm(*pid, &whole) && (!memory.nodes.is_empty() || memory.swap.is_some()));
    found.threads.retain(|tid, thread| {
        let main = thread.pid.unwrap_or(*tid);
        let vcpu = thread.comm.as_deref().is_some_and(|comm| classify(comm, false).0 == Role::Vcpu);
        (vcpu || is_vmm(main, &whole)) && (thread.cpus.is_some() || thread.last.is_some() || vcpu)
    });
    found
}

/// Whether a process's name is that of a VMM. Names are cut at 15 characters; Proxmox's QEMU is called `kvm`.
fn is_vmm(comm: &str) -> bool {
    ["qemu-", "cloud-hyper", "firecracker", "crosvm"].iter().any(|name| comm.starts_with(name)) || comm == "kvm"
}

impl ProcessText {
    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        self.memory.is_empty() && self.threads.is_empty()
    }

    /// Adds another text.
    pub fn merge(&mut self, other: Self) {
        for (pid, memory) in other.memory {
            if let Some(known) = self.process(pid) {
                known.comm = known.comm.take().or(memory.comm);
                known.swap = known.swap.or(memory.swap);
                if known.nodes.is_empty() {
                    known.nodes = memory.nodes;
                }
            }
        }
        for (tid, thread) in other.threads {
            if let Some(known) = self.thread(tid) {
                known.pid = known.pid.or(thread.pid);
                known.comm = known.comm.take().or(thread.comm);
                known.cpus = known.cpus.take().or(thread.cpus);
                known.last = known.last.or(thread.last);
            }
        }
    }

    /// The processes that it is about.
    pub fn pids(&self) -> Vec<i32> {
        let mut all: Vec<i32> = self.memory.keys().copied().collect();
        all.extend(self.threads.iter().map(|(tid, thread)| thread.pid.unwrap_or(*tid)));
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Where the threads of a process may run. `known`: roles and numbers of threads that another file names.
    pub fn cpus(&self, pid: i32, known: &BTreeMap<i32, (Role, u32)>) -> ThreadCpus {
        let mut out = ThreadCpus::default();
        for (tid, thread) in &self.threads {
            let (role, index) = match known.get(tid) {
                Some((role, index)) => (*role, Some(*index)),
                None if thread.pid == Some(pid) || *tid == pid => {
                    classify(thread.comm.as_deref().unwrap_or_default(), *tid == pid)
                }
                None => continue,
            };
            let cpus = thread.cpus.clone();
            match (role, index) {
                (Role::Vcpu, Some(vcpu)) => {
                    out.vcpus.extend(cpus.map(|cpus| (vcpu, cpus)));
                    out.last.extend(thread.last.map(|cpu| (vcpu, cpu)));
                }
                (Role::Iothread, Some(id)) => out.iothreads.extend(cpus.map(|cpus| (id, cpus))),
                (Role::Emulator, _) => out.emulator = cpus.or(out.emulator),
                _ => {}
            }
        }
        out
    }

    fn process(&mut self, pid: i32) -> Option<&mut ProcessMemory> {
        let room = self.memory.len() < MAX_PROCESSES || self.memory.contains_key(&pid);
        (pid > 0 && room).then(|| self.memory.entry(pid).or_default())
    }

    fn thread(&mut self, tid: i32) -> Option<&mut ThreadText> {
        let room = self.threads.len() < MAX_THREADS || self.threads.contains_key(&tid);
        (tid > 0 && room).then(|| self.threads.entry(tid).or_default())
    }
}

fn name(text: &str) -> String {
    sanitize(text.trim(), 64)
}

#[cfg(test)]
mod tests;
