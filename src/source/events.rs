//! Exit events: engines behind one trait.
//!
//! Rules that hold in each (DESIGN.md): offsets and names come from the running kernel's `format` files; an exit is paired with
//! the next entry of the same thread, never by CPU and never across a gap of lost events; the whole exit is charged to the
//! port, address or MSR seen inside it.

use crate::sample::{EngineKind, EngineLevel, ThreadEvents};
use std::collections::{BTreeMap, HashMap};

/// What one thread did, with what the events themselves tell of it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TracedThread {
    /// Process id (thread group).
    pub pid: i32,
    /// The thread's name when last seen; a guest may have ended before /proc was read.
    pub comm: String,
    /// vCPU number, where the events carry it.
    pub vcpu: Option<u32>,
    /// The counters, cumulative since the engine started.
    pub events: ThreadEvents,
}

/// All that an engine counted, cumulative since it started.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reading {
    /// `CLOCK_MONOTONIC` at which the counters stood like this, nanoseconds; `None` where nothing counts.
    pub mono_ns: Option<u64>,
    /// By thread id.
    pub threads: HashMap<i32, TracedThread>,
    /// Further `kvm:*` tracepoints by process id, where they were asked for.
    pub kvm_events: HashMap<i32, BTreeMap<String, u64>>,
    /// Events the kernel dropped.
    pub lost: u64,
    /// Events that fell into `other` cells.
    pub overflow: u64,
    /// Whether `kvm_exit` fires, as `EngineStatus::fires_kvm_exit`.
    pub fires_kvm_exit: Option<bool>,
    /// Events handled.
    pub events: u64,
    /// Nanoseconds the kernel spent in the engine's programs, where it is measured.
    pub program_ns: Option<u64>,
}

/// Why an engine or a part of it cannot work: a sentence each.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{cause}")]
pub struct EngineError {
    /// What failed, on what, why.
    pub cause: String,
    /// What to run or to change.
    pub fix: String,
}

/// A way to count exits. Lives on the collector's thread.
pub trait Engine: Send {
    /// Which one.
    fn kind(&self) -> EngineKind;

    /// How much it watches now.
    fn level(&self) -> EngineLevel;

    /// Watches more or less. Counters begin again from zero.
    ///
    /// # Errors
    /// When the kernel refuses; the engine then stays as it was.
    fn set_level(&mut self, level: EngineLevel) -> Result<(), EngineError>;

    /// Counts every `kvm:*` tracepoint by domain, or ceases to.
    ///
    /// # Errors
    /// When the kernel refuses.
    fn set_kvm_events(&mut self, on: bool) -> Result<(), EngineError>;

    /// Called often (each 50 to 100 ms) by the collector between ticks; engines that copy events drain their rings here.
    fn drain(&mut self) {}

    /// Everything counted so far. Interval extremes (`min`, `max`, bursts) cover the time since the call before.
    fn read(&mut self) -> Reading;

    /// Frees the cells of threads that are gone and were reported.
    fn forget(&mut self, tids: &[i32]);

    /// Makes room for so many vCPU threads where its tables have less; answers whether counters began again from zero.
    ///
    /// # Errors
    /// When the kernel refuses; the engine then stays as it was.
    fn make_room(&mut self, vcpus: usize) -> Result<bool, EngineError> {
        let _ = vcpus;
        Ok(false)
    }

    /// What it cannot see and why; empty when it is whole.
    fn gaps(&self) -> Vec<EngineError> {
        Vec::new()
    }
}
