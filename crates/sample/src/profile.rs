//! Where threads spent their CPU time, from samples of their stacks.

use super::figures::bounded;
use kvm::thread_name::Role;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use strum::IntoStaticStr;

/// Samples of the stacks of a process's threads.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StackProfile {
    /// Wall clock at its begin, milliseconds since the Unix epoch.
    pub began_ms: i64,
    /// How long it took, nanoseconds.
    pub duration_ns: u64,
    /// Samples for each second of CPU time that a thread used.
    pub frequency_hz: u32,
    /// Samples that the kernel could not deliver. They are in no stack.
    pub lost: u64,
    /// CPU time that kvmtop used for it, nanoseconds.
    pub cost_ns: u64,
    /// What the profile does not show, as sentences; of one that could not be taken at all, why.
    pub gaps: Vec<String>,
    /// The threads, in order of thread id.
    pub threads: Vec<ProfiledThread>,
    /// The functions that `stacks` number.
    pub functions: Vec<Function>,
    /// How often each stack was seen, most often first.
    pub stacks: Vec<StackCount>,
}

bounded!(StackProfile {
    duration_ns, lost, cost_ns, threads, stacks,
} began_ms, frequency_hz, gaps, functions);

/// A thread of which samples were taken.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProfiledThread {
    /// Thread id.
    pub tid: i32,
    /// Name, sanitized.
    pub comm: String,
    /// Its role in the guest.
    pub role: Role,
    /// Number of the vCPU, or of the IOThread if known.
    pub index: Option<u32>,
    /// CPU time that it used meanwhile, nanoseconds, as the kernel counted it. In a guest it counts as well.
    pub cpu_ns: Option<u64>,
}

bounded!(ProfiledThread { cpu_ns } tid, comm, role, index);

/// A function, or what stands for one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Function {
    /// Its name, sanitized. Where no symbol covers the address: the offset in its file, as `+0x1234`.
    pub name: String,
    /// The name of the file that it is in, without the path; `kernel` for the kernel and its modules.
    pub module: String,
    /// Whose code it is.
    pub space: CodeSpace,
}

/// Whose code a function is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum CodeSpace {
    /// The VMM's.
    User,
    /// The host kernel's.
    Kernel,
    /// The guest's, which is not looked into.
    Guest,
    /// None: stands for callers that could not be found.
    Unknown,
}

/// A stack and how often it was seen.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StackCount {
    /// The thread.
    pub tid: i32,
    /// Positions in [`StackProfile::functions`], the outermost caller first.
    pub functions: Vec<u32>,
    /// The number of samples.
    pub samples: u64,
}

bounded!(StackCount { samples } tid, functions);

impl Function {
    /// Its name or, without a symbol, its file and offset.
    pub fn full_name(&self) -> String {
        if self.name.starts_with('+') { format!("{}{}", self.module, self.name) } else { self.name.clone() }
    }
}

impl StackProfile {
    /// A profile that could not be taken.
    pub fn refused(began_ms: i64, threads: Vec<ProfiledThread>, why: String) -> Self {
        Self { began_ms, threads, gaps: vec![why], ..Self::default() }
    }

    /// Whether nothing was sampled because that was refused.
    pub fn is_refused(&self) -> bool {
        self.duration_ns == 0
    }

    /// Whether a thread was sampled.
    pub fn has(&self, tid: i32) -> bool {
        self.threads.iter().any(|thread| thread.tid == tid)
    }

    /// The profile with at most `most` different stacks: the rarest of each thread become one. No sample is lost.
    #[must_use]
    pub fn limited(mut self, most: usize) -> Self {
        if self.stacks.len() > most {
            let rest = self.functions.len() as u32;
            self.functions.push(Function {
                name: "[other stacks]".into(),
                module: String::new(),
                space: CodeSpace::Unknown,
            });
            let mut others: BTreeMap<i32, u64> = BTreeMap::new();
            for stack in self.stacks.drain(most..) {
                let samples = others.entry(stack.tid).or_default();
                *samples = samples.saturating_add(stack.samples);
            }
            let others = others.into_iter().map(|(tid, samples)| StackCount { tid, functions: vec![rest], samples });
            self.stacks.extend(others);
        }
        self.drop_unused_functions();
        self
    }

    fn drop_unused_functions(&mut self) {
        let mut new_numbers: HashMap<u32, u32> = HashMap::new();
        let mut used = Vec::new();
        let known = self.functions.len();
        self.stacks.iter_mut().for_each(|stack| stack.functions.retain(|number| (*number as usize) < known));
        for number in self.stacks.iter_mut().flat_map(|stack| &mut stack.functions) {
            *number = *new_numbers.entry(*number).or_insert_with(|| {
                used.extend(self.functions.get(*number as usize).cloned());
                used.len() as u32 - 1
            });
        }
        self.functions = used;
    }

    /// CPU time of a thread, percent of one host CPU.
    pub fn cpu_percent(&self, thread: &ProfiledThread) -> Option<f64> {
        let cpu_ns = thread.cpu_ns.filter(|_| self.duration_ns > 0)?;
        Some(cpu_ns as f64 / self.duration_ns as f64 * 100.0)
    }

    /// The functions of a stack, the outermost caller first.
    pub fn named<'a>(&'a self, stack: &'a StackCount) -> impl Iterator<Item = &'a Function> {
        stack.functions.iter().filter_map(|number| self.functions.get(*number as usize))
    }

    /// The number of samples of a thread, or of all.
    pub fn samples_of(&self, tid: Option<i32>) -> u64 {
        let stacks = self.stacks.iter().filter(|stack| tid.is_none_or(|tid| stack.tid == tid));
        stacks.fold(0, |sum, stack| sum.saturating_add(stack.samples))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rare_stacks_become_one_without_losing_a_sample() {
        let function = |name: &str| Function { name: name.into(), module: "qemu".into(), space: CodeSpace::User };
        let stack = |tid, functions: &[u32], samples| StackCount { tid, functions: functions.to_vec(), samples };
        let profile = StackProfile {
            functions: ["main", "poll", "rare", "rarer"].map(function).to_vec(),
            stacks: vec![stack(1, &[0, 1], 9), stack(2, &[0, 2], 3), stack(1, &[0, 3], 2), stack(1, &[3], 1)],
            ..StackProfile::default()
        };
        let (all, one) = (profile.samples_of(None), profile.samples_of(Some(1)));
        let limited = profile.clone().limited(2);
        assert_eq!((limited.samples_of(None), limited.samples_of(Some(1))), (all, one));
        let names: Vec<&str> = limited.functions.iter().map(|f| f.name.as_str()).collect();
        assert_eq!(names, ["main", "poll", "rare", "[other stacks]"]);
        assert_eq!(limited.stacks[2], stack(1, &[3], 3));
        assert_eq!(profile.clone().limited(4), profile);
    }
}
