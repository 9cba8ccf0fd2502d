//! Counts exit events inside the kernel with BPF programs. No event is copied; once a tick the
//! reader looks at shared memory.
//!
//! The programs are written in C (`crates/engine/bpf/kvmtop.bpf.c` describes them) and shipped
//! compiled. They use raw tracepoints wherever the arguments have been the same since Linux 5.5.
//! `kvm_exit` does not pass its reason as an argument: where KVM's own BTF says where it is
//! (`kernel_btf`), a raw tracepoint reads it there; else its program uses the classic tracepoint,
//! and finds the fields through a BTF made from the running kernel's `format` file (`btf`).
//!
//! Timing block devices (`disks`), tracing interrupts (`interrupts`) and counting all of KVM's
//! tracepoints (`kvm_events`) are separate programs, which are switched on and off. The first two
//! find the kernel's structs by its BTF, and take some 5 MiB of kernel memory each while they are
//! on.
//!
//! Each vCPU thread has its counters in a slot of 36 KiB of kernel memory (`tables`); all else
//! takes some 400 KiB. [`Engine::make_room`] adds slots while the programs count. Events of threads
//! that come before there is a slot for them are lost, and counted as lost. A process has at most
//! half of the slots, and never more than 1,024; a user has at most four times as many as are left.
//! So what one process or one user does costs nobody else's events. File descriptors hold
//! everything: nothing stays in the kernel when the process ends, however it ends.

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

use crate::events::{Engine, EngineError, OnDemand, Reading, ThreadKey, VcpuThread};
use disks::DiskTimer;
use guest_tables::Owner;
use interrupts::InterruptTracer;
use kvm::topology::HostTopology;
use kvm_events::KvmEvents;
use running::Running;
use sample::{EngineKind, EngineLevel};

/// The least number of slots: room for guests that start later, in 9 MiB of kernel memory.
const MIN_SLOTS: usize = 256;

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
    /// Whether this kernel fires `kvm_exit`, once that is known; kept when the level changes.
    fires_kvm_exit: Option<bool>,
}

impl BpfEngine {
    /// Starts to count everything. `threads` is the number of vCPU threads now; the tables have
    /// room for twice as many.
    ///
    /// # Errors
    /// When BPF cannot be used at all. Whatever else is missing is in [`Engine::gaps`].
    pub fn new(topology: HostTopology, threads: usize) -> Result<Self, EngineError> {
        let mut engine = Self {
            topology,
            threads,
            ..Self::default()
        };
        engine.set_level(EngineLevel::Full)?;
        Ok(engine)
    }
}

impl Engine for BpfEngine {
    fn kind(&self) -> EngineKind {
        EngineKind::Bpf
    }

    fn level(&self) -> EngineLevel {
        if self.running.is_some() {
            EngineLevel::Full
        } else {
            EngineLevel::None
        }
    }

    fn set_level(&mut self, level: EngineLevel) -> Result<(), EngineError> {
        if level != self.level() {
            self.threads = self
                .threads
                .max(self.running.as_ref().map_or(0, Running::threads));
            self.running = match level {
                EngineLevel::None => None,
                EngineLevel::Full => {
                    let slots = (2 * self.threads).max(MIN_SLOTS);
                    let start = || Running::start(&self.topology, slots);
                    Some(rights::with_locked_memory(start)?)
                }
            };
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

    fn watch(&mut self, processes: &[(i32, i32)], vcpus: &mut dyn Iterator<Item = VcpuThread>) {
        let watched = processes
            .iter()
            .map(|(id, process)| (*id, Owner::of_process(*process)));
        if let Some(disks) = &mut self.disks {
            disks.watched.set(watched.clone());
        }
        if let Some(interrupts) = &mut self.interrupts {
            interrupts.watched.set(watched);
            let vcpus = vcpus.map(|thread| {
                let owner = Owner {
                    process: thread.process,
                    vcpu: thread.number,
                };
                (thread.tid, owner)
            });
            interrupts.vcpus.set(vcpus);
        }
    }

    fn read(&mut self) -> Reading {
        let mut reading = self.running.as_mut().map(Running::read).unwrap_or_default();
        // `None` is less than `Some(false)`, and that is less than `Some(true)`.
        self.fires_kvm_exit = self.fires_kvm_exit.max(reading.fires_kvm_exit);
        reading.fires_kvm_exit = self.fires_kvm_exit;
        if let Some(events) = &self.kvm_events {
            reading.kvm_events = events.read();
            reading.overflow += events.homeless_events.read_u64(0);
        }
        if let Some(disks) = &mut self.disks {
            reading.disks = disks.read();
            reading.lost += disks.lost();
        }
        if let Some(interrupts) = &mut self.interrupts {
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
        if let Some(interrupts) = &mut self.interrupts {
            interrupts.forget(processes);
        }
    }

    fn make_room(&mut self, vcpus: &mut dyn Iterator<Item = usize>) -> Result<(), EngineError> {
        let Some(running) = &mut self.running else {
            return Ok(());
        };
        self.threads = vcpus
            .map(|of_guest| of_guest.min(tables::MAX_OF_PROCESS))
            .sum();
        rights::with_locked_memory(|| running.make_room(self.threads))
    }

    fn gaps(&self) -> Vec<EngineError> {
        self.running.as_ref().map(Running::gaps).unwrap_or_default()
    }
}

/// Starts or ends the programs that count on demand.
fn switch<T>(
    counting: &mut Option<T>,
    on: bool,
    start: impl FnOnce() -> Result<T, EngineError>,
) -> Result<(), EngineError> {
    if on != counting.is_some() {
        *counting = if on {
            Some(rights::with_locked_memory(start)?)
        } else {
            None
        };
    }
    Ok(())
}

#[cfg(test)]
mod tests;
