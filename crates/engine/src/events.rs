//! What the tracing engines and the importers of recorded events have in common: counters by
//! thread, and the engines' trait.
//!
//! Every engine follows these rules. Offsets and names come from the running kernel's `format`
//! files. An exit is paired with the next entry of the same thread, never by CPU and never across a
//! gap of lost events. The whole exit is charged to the port, address or MSR seen inside it.

use kvm::exit_reason::{self, ReasonNames};
use kvm::isa::Isa;
use sample::{EngineKind, EngineLevel, GuestInterrupts, HostDisk, ThreadEvents};
use std::collections::{BTreeMap, HashMap};

/// One life of a thread id: the kernel gives an id to another thread once its thread has ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ThreadKey {
    /// Thread id.
    pub tid: i32,
    /// When the engine first saw the thread, `CLOCK_MONOTONIC` in nanoseconds: no two threads of
    /// one id have the same.
    pub born_ns: u64,
}

/// What one thread did, and what the events themselves say about the thread.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TracedThread {
    /// The thread.
    pub key: ThreadKey,
    /// When the thread ended, on the same clock; `None` while it lives, or where the engine does
    /// not see threads end.
    pub died_ns: Option<u64>,
    /// Process id (thread group).
    pub pid: i32,
    /// The thread's name when last seen; a guest may have ended before /proc was read.
    pub comm: String,
    /// vCPU number, where the events carry it.
    pub vcpu: Option<u32>,
    /// Time on a CPU, nanoseconds; `None` where no switch of the
    /// thread was seen, or events were lost.
    pub ran_ns: Option<u64>,
    /// Time runnable without a CPU, nanoseconds; `None` where it is not known as a whole.
    pub waited_ns: Option<u64>,
    /// The counters, cumulative since the engine started; extremes of the interval since the
    /// reading before.
    pub events: ThreadEvents,
}

/// A task's name as the kernel has it, which ends with a zero, sanitized.
pub(crate) fn task_name(comm: [u8; 16]) -> String {
    let name = comm.split(|byte| *byte == 0).next().unwrap_or_default();
    kvm::sanitize(&String::from_utf8_lossy(name), 15)
}

/// The name of an exit reason that only the running kernel's `format` file has, sanitized.
pub(crate) fn kernel_name(names: &ReasonNames, isa: Isa, code: u32) -> Option<String> {
    if exit_reason::name(isa, code).is_some() {
        return None;
    }
    names
        .get(&(isa, exit_reason::basic(isa, code)))
        .map(|name| kvm::sanitize(name, 64))
}

/// Without a `kvm_exit`, at least as many other events show that a kernel fires none.
const ENOUGH_WITHOUT_EXIT: u64 = 100;

/// Whether `kvm_exit` fires; `None` until enough other events of KVM came without one.
pub(crate) fn fires_kvm_exit(any_exit: bool, others: u64, threads: usize) -> Option<bool> {
    // At the start each thread can be within an exit whose kvm_exit fired earlier.
    let enough = ENOUGH_WITHOUT_EXIT.max(2 * threads as u64);
    if any_exit {
        Some(true)
    } else if others > enough {
        Some(false)
    } else {
        None
    }
}

/// All that an engine counted. Counters are cumulative since it started.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reading {
    /// `CLOCK_MONOTONIC` at which the counters had these values, nanoseconds; `None` where no
    /// engine counts.
    pub mono_ns: Option<u64>,
    /// All threads that fired KVM's events; a thread that has ended is among them until it is
    /// forgotten.
    pub threads: Vec<TracedThread>,
    /// Counts of all `kvm:*` tracepoints by process id, where switched on.
    pub kvm_events: HashMap<i32, BTreeMap<String, u64>>,
    /// What the host's block devices did for each guest, by its process; no guest where they are
    /// not timed. Names are missing.
    pub disks: HashMap<i32, Vec<HostDisk>>,
    /// What interrupted each guest, by its process; no guest where it is not traced.
    pub interrupts: HashMap<i32, GuestInterrupts>,
    /// Processes with a thread that found no place in the engine's tables since the reading before.
    pub refused: Vec<i32>,
    /// Events the kernel dropped, and events of threads without a place.
    pub lost: u64,
    /// Events counted in an `other` cell because a table was full.
    pub overflow: u64,
    /// Whether `kvm_exit` fires, as `EngineStatus::fires_kvm_exit`.
    pub fires_kvm_exit: Option<bool>,
    /// Events handled.
    pub events: u64,
}

/// What to run where KVM is not there.
pub const LOAD_KVM: &str = if cfg!(target_arch = "aarch64") {
    "`dmesg | grep -i kvm`: KVM is part of an arm64 kernel, and needs a host that boots it at EL2"
} else {
    "modprobe kvm_intel (or kvm_amd)"
};

/// Why an engine or a part of it cannot work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{cause}")]
pub struct EngineError {
    /// What failed, on what, why.
    pub cause: String,
    /// What to run or to change.
    pub fix: String,
}

impl EngineError {
    /// The error with this cause and this fix.
    pub fn new(cause: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            cause: cause.into(),
            fix: fix.into(),
        }
    }
}

/// What an engine counts only on demand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnDemand {
    /// Every `kvm:*` tracepoint, by process ([`Reading::kvm_events`]).
    KvmEvents,
    /// What the host's block devices do for guests ([`Reading::disks`]).
    Disks,
    /// What interrupts guests ([`Reading::interrupts`]).
    Interrupts,
}

/// A vCPU thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VcpuThread {
    /// The thread.
    pub tid: i32,
    /// Its guest's process.
    pub process: i32,
    /// KVM's number of the vCPU, where it is known: arm64's events do not say it.
    pub number: Option<u32>,
}

/// A way to count exits. It runs on the collector's thread.
pub trait Engine: Send {
    /// Which engine this is.
    fn kind(&self) -> EngineKind;

    /// How much it watches.
    fn level(&self) -> EngineLevel;

    /// Changes how much it watches. Counters start again from zero.
    ///
    /// # Errors
    /// When the kernel refuses; the engine then stays as it was.
    fn set_level(&mut self, level: EngineLevel) -> Result<(), EngineError>;

    /// Starts or stops counting something on demand.
    ///
    /// # Errors
    /// When the kernel refuses, or the engine cannot.
    fn set_on_demand(&mut self, what: OnDemand, on: bool) -> Result<(), EngineError> {
        if !on {
            return Ok(());
        }
        let does = match what {
            OnDemand::KvmEvents => "count every tracepoint of KVM",
            OnDemand::Disks => "time the host's block devices",
            OnDemand::Interrupts => "trace interrupts of guests",
        };
        let cause = format!("the {} engine does not {does}", self.kind().as_str());
        Err(EngineError::new(cause, "use --engine bpf"))
    }

    /// Says whose requests of block devices and whose interrupts count. `processes`: each with the
    /// guest's process that it works for. `vcpus`: the targets of interrupts.
    fn watch(&mut self, processes: &[(i32, i32)], vcpus: &mut dyn Iterator<Item = VcpuThread>) {
        let _ = (processes, vcpus);
    }

    /// Everything counted so far. Extremes (`min_ns`, `max_ns`, bursts) cover the time since the
    /// call before.
    fn read(&mut self) -> Reading;

    /// Frees the cells of threads, and of whole processes, that ended and were reported.
    fn forget(&mut self, threads: &[ThreadKey], processes: &[i32]);

    /// Makes room in the engine's tables for the vCPU threads of guests. `vcpus`: how many each
    /// guest has.
    ///
    /// # Errors
    /// When the kernel refuses; the engine then stays as it was.
    fn make_room(&mut self, vcpus: &mut dyn Iterator<Item = usize>) -> Result<(), EngineError> {
        let _ = vcpus;
        Ok(())
    }

    /// What the engine cannot measure and why; empty when nothing is missing.
    fn gaps(&self) -> Vec<EngineError> {
        Vec::new()
    }
}
