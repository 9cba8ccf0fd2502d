//! Counts exit events inside the kernel with BPF programs. No event is copied; once a tick the reader looks at shared
//! memory.
//!
//! The programs are written in C (`crates/engine/bpf/kvmtop.bpf.c` describes them) and shipped compiled. They use raw
//! tracepoints wherever the arguments have been the same since Linux 5.5. `kvm_exit` does not pass its reason as an
//! argument: where KVM's own BTF says where it is (`kernel_btf`), a raw tracepoint reads it there; else its program
//! uses the classic tracepoint, and finds the fields through a BTF made from the running kernel's `format` file
//! (`btf`).
//!
//! Timing block devices (`disks`) is apart: it is switched on and off, and finds the kernel's structs by its BTF. It
//! takes some 5 MiB of kernel memory while it is on. So does tracing interrupts (`interrupts`).
//!
//! Kernel memory is allocated when the programs load: 36 KiB for each of the threads that there is room for, and
//! 256 KiB for the index from task to slot. What does not fit is counted as overflow, and [`Engine::make_room`] reloads
//! the programs with larger tables. File descriptors hold everything: nothing stays in the kernel when the process
//! ends, however it ends.

mod attached;
mod btf;
mod decode;
mod disks;
mod guest_tables;
mod interrupts;
mod kernel_btf;
mod kvm_events;
mod layout;
mod object;
mod programs;
mod refusal;
mod running;
mod snapshot;
mod sys;
mod tables;

use crate::events::{Engine, EngineError, OnDemand, Reading, ThreadKey};
use disks::DiskTimer;
use interrupts::InterruptTracer;
use kvm::topology::HostTopology;
use kvm_events::KvmEvents;
use running::Running;
use sample::{EngineKind, EngineLevel};

/// The least number of slots: room for guests that start later, in 9 MiB of kernel memory.
const MIN_SLOTS: usize = 256;

/// Slots take at most this part of the memory that kvmtop may use.
const MEMORY_PART: u64 = 8;

/// Counts with BPF programs.
#[derive(Debug, Default)]
pub struct BpfEngine {
    topology: HostTopology,
    /// Number of vCPU threads, as far as known.
    threads: usize,
    running: Option<Running>,
    kvm_events: Option<KvmEvents>,
    disks: Option<DiskTimer>,
    interrupts: Option<InterruptTracer>,
    /// Kept when the level changes: whether a kernel fires `kvm_exit` does not change.
    fires: Option<bool>,
    /// Events that replaced programs had counted since their last reading.
    cut_off: u64,
    /// There is no memory for more slots than this, or the kernel refused more.
    ceiling: usize,
}

/// As many slots as a limit of memory leaves room for.
fn slots_in(limit: Option<u64>) -> usize {
    let slots = limit.map_or(u64::MAX, |limit| limit / MEMORY_PART / layout::SLOT_SIZE as u64);
    usize::try_from(slots).unwrap_or(usize::MAX).clamp(1, tables::MAX_SLOTS)
}

impl BpfEngine {
    /// Starts to count everything. `threads` is the number of vCPU threads now; the tables have room for twice as many.
    ///
    /// # Errors
    /// When BPF cannot be used at all. Whatever else is missing is in [`Engine::gaps`].
    pub fn new(topology: HostTopology, threads: usize) -> Result<Self, EngineError> {
        let ceiling = slots_in(rights::memory_limit());
        let mut engine = Self { topology, threads, ceiling, ..Self::default() };
        engine.set_level(EngineLevel::Full)?;
        Ok(engine)
    }

    fn start(&self) -> Result<Running, EngineError> {
        Running::start(&self.topology, self.slots_for(self.threads))
    }

    fn slots_for(&self, threads: usize) -> usize {
        (2 * threads).max(MIN_SLOTS).next_power_of_two().min(self.ceiling)
    }

    /// Whether there is no room for so many more slots that they are worth the memory that old and new tables take for
    /// a moment.
    fn is_full(&self, slots: usize, threads: usize) -> bool {
        self.slots_for(threads) < slots + slots / 2
    }

    /// What to do where threads have no slot.
    fn cure(&self, slots: usize) -> String {
        if slots == tables::MAX_SLOTS {
            "start kvmtop with --engine perf, which has no such limit".into()
        } else if self.is_full(slots, slots + 1) {
            "raise the memory limit of kvmtop's cgroup (memory.max), which leaves room for no more".into()
        } else {
            "nothing to do: kvmtop makes more room from the next interval on".into()
        }
    }
}

impl Engine for BpfEngine {
    fn kind(&self) -> EngineKind {
        EngineKind::Bpf
    }

    fn level(&self) -> EngineLevel {
        if self.running.is_some() { EngineLevel::Full } else { EngineLevel::None }
    }

    fn set_level(&mut self, level: EngineLevel) -> Result<(), EngineError> {
        if level != self.level() {
            self.threads = self.threads.max(self.running.as_ref().map_or(0, Running::threads));
            self.running = match level {
                EngineLevel::None => None,
                EngineLevel::Full => Some(self.start()?),
            };
            self.cut_off = 0;
        }
        Ok(())
    }

    fn set_on_demand(&mut self, what: OnDemand, on: bool) -> Result<(), EngineError> {
        match what {
            OnDemand::KvmEvents => switch(&mut self.kvm_events, on, KvmEvents::start),
            OnDemand::Disks => switch(&mut self.disks, on, DiskTimer::start),
            OnDemand::Interrupts => switch(&mut self.interrupts, on, InterruptTracer::start),
        }
    }

    fn watch(&mut self, processes: &[(i32, i32)], vcpus: &mut dyn Iterator<Item = (i32, i32)>) {
        if let Some(disks) = &mut self.disks {
            disks.watched.set(processes);
        }
        if let Some(interrupts) = &mut self.interrupts {
            interrupts.watched.set(processes);
            interrupts.vcpus.set(&vcpus.collect::<Vec<_>>());
        }
    }

    fn read(&mut self) -> Reading {
        let mut reading = self.running.as_mut().map(Running::read).unwrap_or_default();
        self.fires = match reading.fires_kvm_exit {
            Some(true) => Some(true),
            other => self.fires.or(other),
        };
        reading.fires_kvm_exit = self.fires;
        reading.lost += self.cut_off;
        if let Some(events) = &self.kvm_events {
            reading.kvm_events = events.read();
            reading.overflow += events.homeless.count(0);
        }
        if let Some(disks) = &mut self.disks {
            reading.disks = disks.read();
            reading.lost += disks.lost();
        }
        if let Some(interrupts) = &self.interrupts {
            reading.interrupts = interrupts.read();
            reading.lost += interrupts.lost();
            reading.overflow += interrupts.of_nobody();
        }
        reading
    }

    fn forget(&mut self, threads: &[ThreadKey], processes: &[i32]) {
        if let Some(running) = &mut self.running {
            running.forget(threads);
        }
        if let Some(events) = &self.kvm_events {
            events.counts.forget(processes);
        }
        if let Some(disks) = &self.disks {
            disks.cells.forget(processes);
        }
        if let Some(interrupts) = &self.interrupts {
            interrupts.forget(processes);
        }
    }

    fn make_room(&mut self, vcpus: usize) -> Result<bool, EngineError> {
        let Some(old) = &mut self.running else { return Ok(false) };
        let slots = old.tables.count;
        // A thread without a slot proves that more threads exist, even where the guest's files cannot be read.
        let wanted = if old.tables.homeless() > 0 { vcpus.max(slots + 1) } else { vcpus };
        if wanted <= slots || self.is_full(slots, wanted) {
            return Ok(false);
        }
        self.threads = wanted;
        let new = self.start().inspect_err(|_| self.ceiling = slots)?;
        if let Some(mut old) = self.running.replace(new) {
            let before = old.counted;
            self.cut_off = old.read().events.saturating_sub(before);
        }
        Ok(true)
    }

    fn gaps(&self) -> Vec<EngineError> {
        self.running.as_ref().map(|running| running.gaps(|slots| self.cure(slots))).unwrap_or_default()
    }
}

/// Starts or ends what counts on demand.
fn switch<T>(
    counting: &mut Option<T>,
    on: bool,
    start: impl FnOnce() -> Result<T, EngineError>,
) -> Result<(), EngineError> {
    if on != counting.is_some() {
        *counting = if on { Some(start()?) } else { None };
    }
    Ok(())
}

#[cfg(test)]
mod tests;
