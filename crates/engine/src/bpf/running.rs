//! The loaded programs: from checking permissions to closing their links.

use super::decode::{self, Measured, SlotDecoder};
use super::kernel_btf;
use super::layout::Slot;
use super::object::{self, Choices, Object};
use super::programs::Programs;
use super::refusal::{Refusal, Stage};
use super::snapshot::{IntervalExtremes, Snapshot};
use super::sys;
use super::tables::{Homeless, MAX_OF_PROCESS, Tables};
use crate::events::{EngineError, Reading, ThreadKey, TracedThread};
use crate::monotonic_ns;
use crate::tracefs::Tracefs;
use kvm::CpuSet;
use kvm::exit_reason::ReasonNames;
use kvm::format::EventFormat;
use kvm::topology::HostTopology;
use sample::MissingExtreme;
use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

/// After this many userspace exits without a `kvm_exit`, the kernel is taken to fire none.
const MIN_USERSPACE_EXITS: u64 = 100;

/// Programs loaded and attached.
#[derive(Debug)]
pub(super) struct Running {
    pub tables: Tables,
    snapshot: Snapshot,
    measured: Measured,
    programs: Programs,
    names: ReasonNames,
    /// The events and the overflow of forgotten threads.
    past_events: u64,
    past_overflow: u64,
    /// Events that each slot had counted at the last reading, by the slot's number.
    counted_in: HashMap<usize, u64>,
    /// Events of forgotten threads that came after their last reading.
    unread: u64,
    /// Of the last reading: the slots that were merged into another slot of the same thread, each
    /// with that other one.
    joined: HashMap<ThreadKey, ThreadKey>,
    /// Events without a slot, from the start to the last reading.
    homeless: Homeless,
    /// Those of them that came in the interval which ended with the last reading.
    left_out: Homeless,
}

impl Running {
    /// Loads and attaches the programs, with room for `slots` threads.
    ///
    /// # Errors
    /// When no program would work.
    pub fn start(topology: &HostTopology, slots: usize) -> Result<Self, EngineError> {
        // BPF programs see thread ids of the initial PID namespace.
        if rights::in_own_pid_namespace(Path::new("/proc")) {
            return Err(EngineError {
                cause:
                    "kvmtop runs in a PID namespace of its own, but BPF programs see the host's \
                    thread ids"
                        .into(),
                fix: "run it in the host's PID namespace (for a container: --pid=host)".into(),
            });
        }
        let exit_format = kvm_exit_format();
        let cpus = possible_cpus().max(topology.cpus.last().map_or(1, |c| c.cpu + 1));
        let kernel = kernel_btf::read("").unwrap_or_default();
        let exit_constants = kernel_btf::exit_reason(&kernel);
        let raw_exit = exit_constants.is_some();
        // Odd, so that processes with neighbouring ids have different cells.
        let seed = std::hash::RandomState::new().hash_one(slots) as u32 | 1;
        let mut constants = exit_constants.unwrap_or_default();
        constants.insert("seed", seed);
        constants.extend(kernel_btf::task_state(&kernel));
        let choices = Choices {
            sizes: [("cpus", cpus)].into(),
            constants,
        };
        let mut object = Object::prepare(
            object::MAIN,
            exit_format.as_ref().map_or(&[], std::slice::from_ref),
            &choices,
        )?;
        let tables = Tables::new(&mut object, slots, seed)?;
        fill_cpus(object.map("cpus")?, topology)?;
        let snapshot = Snapshot::new().map_err(|e| Refusal::new(Stage::Map, "slots", e))?;
        let programs = Programs::start(
            &object,
            exit_format.as_ref().map(|format| format.id),
            raw_exit,
        )?;
        Ok(Self {
            tables,
            snapshot,
            measured: programs.measured(),
            programs,
            names: exit_format
                .map(|format| format.reason_names())
                .unwrap_or_default(),
            past_events: 0,
            past_overflow: 0,
            counted_in: HashMap::new(),
            unread: 0,
            joined: HashMap::new(),
            homeless: Homeless::default(),
            left_out: Homeless::default(),
        })
    }

    /// All that was counted, and the extremes since the call before.
    pub fn read(&mut self) -> Reading {
        let decoder = SlotDecoder {
            measured: self.measured,
            names: &self.names,
        };
        let mut reading = Reading {
            events: self.past_events,
            overflow: self.past_overflow,
            ..Reading::default()
        };
        let mut any_exit = false;
        let mut userspace_exits = 0;
        let began = monotonic_ns();
        let taken = self.tables.taken();
        self.tables.unmap_unused(&taken);
        self.counted_in.clear();
        for index in taken {
            let copied = self
                .tables
                .slot(index)
                .and_then(|slot| self.snapshot.take(slot));
            let Some((slot, interval)) = copied else {
                continue;
            };
            any_exit |= slot.exits_seen.load(Relaxed) != 0;
            let thread = decoder.thread(slot, interval);
            reading.overflow += u64::from(slot.overflow.load(Relaxed));
            let handled = decode::handled(&thread.events);
            self.counted_in.insert(index, handled);
            reading.events += handled;
            for cell in &thread.events.userspace {
                userspace_exits += cell.count;
            }
            reading.threads.push(thread);
        }
        self.joined = join_lives(&mut reading.threads);
        // One slot is read after the other: the middle of the time this took is closest to all of
        // them.
        reading.mono_ns = Some(began.midpoint(monotonic_ns()));
        let enough = MIN_USERSPACE_EXITS.max(2 * reading.threads.len() as u64);
        reading.fires_kvm_exit = if any_exit {
            Some(true)
        } else if userspace_exits > enough {
            Some(false)
        } else {
            None
        };
        let homeless = self.tables.homeless();
        self.left_out = homeless.since(std::mem::replace(&mut self.homeless, homeless));
        if self.left_out.events > 0 {
            reading.refused = self.tables.take_refused();
        }
        reading.lost = self.programs.attached.missed("kvm_") + self.unread + homeless.events;
        reading
    }

    /// Frees the slots of these threads, also those that were merged into them.
    pub fn forget(&mut self, threads: &[ThreadKey]) {
        let threads: HashSet<&ThreadKey> = threads.iter().collect();
        let decoder = SlotDecoder {
            measured: self.measured,
            names: &self.names,
        };
        let interval = IntervalExtremes::default();
        for index in self.tables.taken() {
            let Some(slot) = self.tables.slot(index) else {
                continue;
            };
            let key = key_of(slot);
            if !threads.contains(self.joined.get(&key).unwrap_or(&key)) {
                continue;
            }
            self.past_overflow += u64::from(slot.overflow.load(Relaxed));
            let handled = decode::handled(&decoder.thread(slot, &interval).events);
            self.past_events += handled;
            self.unread += handled.saturating_sub(self.counted_in.remove(&index).unwrap_or(0));
            self.tables.release(index);
        }
    }

    /// The number of threads that have a slot.
    pub fn threads(&self) -> usize {
        self.tables.taken().len()
    }

    /// Makes room for twice `vcpus` threads. If the slots there are did not suffice, makes at least
    /// twice as many.
    ///
    /// # Errors
    /// When the kernel lacks the memory.
    pub fn make_room(&mut self, vcpus: usize) -> Result<(), EngineError> {
        let mut threads = vcpus;
        if self.is_full() {
            threads = threads.max(self.tables.count());
        }
        self.tables
            .grow(2 * threads)
            .map_err(|e| Refusal::new(Stage::Map, "slots", e).into())
    }

    /// Whether more slots would help: they do not help a process that has as many as any process
    /// may ever have.
    fn is_full(&self) -> bool {
        let of_greedy = self.left_out.of_greedy_processes;
        let quota_can_grow = self.tables.max_of_process() < MAX_OF_PROCESS;
        self.left_out.events > of_greedy || (of_greedy > 0 && quota_can_grow)
    }

    /// What is missing.
    pub fn gaps(&self) -> Vec<EngineError> {
        let mut gaps = self.programs.gaps.clone();
        if self.left_out.events > 0 {
            let count = self.tables.count();
            let fix = if self.is_full() && count < self.tables.ceiling {
                "nothing to do: kvmtop makes more room from the next interval on"
            } else {
                "raise the memory limit of kvmtop's cgroup (memory.max), or start kvmtop with \
                    --engine perf, which has no such limit"
            };
            gaps.push(EngineError {
                cause: format!(
                    "there are more vCPU threads, in all or of one user or process, than the \
                        {count} places have room for: events of the others are lost"
                ),
                fix: fix.into(),
            });
        }
        gaps
    }
}

/// Merges the slots of one thread; returns the key of each slot that was merged, with that of the
/// slot it was merged into. Of two slots with one thread id, either the first belongs to a thread
/// that has ended, or it lost the race for an entry of its bucket (`new_slot` in `threads.h`) and
/// its thread went on in the other slot.
fn join_lives(threads: &mut Vec<TracedThread>) -> HashMap<ThreadKey, ThreadKey> {
    let mut joined = HashMap::new();
    threads.sort_unstable_by_key(|thread| thread.key);
    threads.dedup_by(|later, first| {
        if first.key.tid != later.key.tid || first.died_ns.is_some() {
            return false;
        }
        if first.pid != later.pid {
            // Its end was not noticed, but a thread of another process has its id now.
            first.died_ns = Some(later.key.born_ns);
            return false;
        }
        first.events.merge(
            std::mem::take(&mut later.events),
            MissingExtreme::NothingInInterval,
        );
        first.died_ns = later.died_ns;
        joined.insert(later.key, first.key);
        true
    });
    joined
}

fn key_of(slot: &Slot) -> ThreadKey {
    ThreadKey {
        tid: slot.tid.load(Relaxed).cast_signed(),
        born_ns: slot.born.load(Relaxed),
    }
}

/// The number, fields and reasons of `kvm_exit` on this kernel.
pub(super) fn kvm_exit_format() -> Result<EventFormat, EngineError> {
    Tracefs::open()?.format("kvm", "kvm_exit")
}

/// One more than the highest possible CPU number.
fn possible_cpus() -> u32 {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    CpuSet::parse(text.trim())
        .unwrap_or_default()
        .iter()
        .last()
        .map_or(1, |last| last + 1)
}

/// The number plus 1; 0 for none.
fn from_one(number: Option<u32>) -> u32 {
    number.map_or(0, |number| number.wrapping_add(1))
}

/// Tells the programs the core, the last-level cache and the node of each CPU that is online, each
/// numbered from 1. For a CPU that is offline now they stay 0: what a migration to it crosses is
/// not known.
fn fill_cpus(cpus: BorrowedFd<'_>, topology: &HostTopology) -> Result<(), Refusal> {
    for cpu in &topology.cpus {
        let core = cpu.siblings.iter().next().unwrap_or(cpu.cpu);
        // `struct cpu` of `maps.h`.
        let value = [core + 1, from_one(cpu.llc), from_one(cpu.node), 0]
            .map(u32::to_ne_bytes)
            .concat();
        sys::update(cpus, Some(cpu.cpu), &value)
            .map_err(|e| Refusal::new(Stage::Map, "cpus", e))?;
    }
    Ok(())
}
