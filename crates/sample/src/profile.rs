//! Where threads spent their CPU time, from samples of their stacks.

use kvm::thread_name::Role;
use strum::IntoStaticStr;

/// Samples of the stacks of a process's threads.
#[derive(Debug, Clone, Default, PartialEq)]
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
    /// What the profile does not show, as sentences.
    pub gaps: Vec<String>,
    /// The threads, in order of thread id.
    pub threads: Vec<ProfiledThread>,
    /// The functions that `stacks` number.
    pub functions: Vec<Function>,
    /// How often each stack was seen, most often first.
    pub stacks: Vec<StackCount>,
}

/// A thread of which samples were taken.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ProfiledThread {
    /// Thread id.
    pub tid: i32,
    /// Name, sanitized.
    pub comm: String,
    /// Its role in the guest.
    pub role: Role,
    /// Number of the vCPU, or of the IOThread if known.
    pub index: Option<u32>,
    /// CPU time that it used meanwhile, nanoseconds, as the kernel counted it. In a guest it counts
    /// as well.
    pub cpu_ns: Option<u64>,
}

/// A function, or what stands for one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Function {
    /// Its name, sanitized. Where no symbol covers the address: the offset in its file, as
    /// `+0x1234`.
    pub name: String,
    /// The name of the file that it is in, without the path; `kernel` for the kernel and its
    /// modules.
    pub module: String,
    /// Whose code it is.
    pub space: CodeSpace,
}

/// Whose code a function is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, IntoStaticStr)]
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
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StackCount {
    /// The thread.
    pub tid: i32,
    /// Positions in [`StackProfile::functions`], the outermost caller first.
    pub functions: Vec<u32>,
    /// The number of samples.
    pub samples: u64,
}

impl Function {
    /// Its name or, without a symbol, its file and offset.
    pub fn full_name(&self) -> String {
        if self.name.starts_with('+') {
            format!("{}{}", self.module, self.name)
        } else {
            self.name.clone()
        }
    }
}

impl StackProfile {
    /// CPU time of a thread, percent of one host CPU.
    pub fn cpu_percent(&self, thread: &ProfiledThread) -> Option<f64> {
        if self.duration_ns == 0 {
            return None;
        }
        Some(thread.cpu_ns? as f64 / self.duration_ns as f64 * 100.0)
    }

    /// The functions of a stack, the outermost caller first.
    pub fn named<'a>(&'a self, stack: &'a StackCount) -> impl Iterator<Item = &'a Function> {
        stack
            .functions
            .iter()
            .filter_map(|number| self.functions.get(*number as usize))
    }

    /// The number of samples of a thread, or of all.
    pub fn samples_of(&self, tid: Option<i32>) -> u64 {
        let stacks = self
            .stacks
            .iter()
            .filter(|stack| tid.is_none_or(|tid| stack.tid == tid));
        stacks.fold(0, |sum, stack| sum.saturating_add(stack.samples))
    }
}
