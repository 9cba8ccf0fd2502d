//! The loaded programs: from checking permissions to closing their links.

use super::decode::{self, SlotDecoder};
use super::kernel_btf;
use super::object::{self, Choices, Object};
use super::programs::Programs;
use super::refusal::{Refusal, Stage};
use super::snapshot::{IntervalExtremes, Snapshot};
use super::sys;
use super::tables::{Homeless, MAX_OF_PROCESS, MAX_SLOTS, Tables, max_of_process};
use crate::events::{EngineError, Reading, ThreadKey, TracedThread, fires_kvm_exit};
use crate::monotonic_ns;
use crate::tracefs::Tracefs;
use kvm::CpuSet;
use kvm::format::EventFormat;
use kvm::topology::HostTopology;
use sample::MissingExtreme;
use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

/// Programs loaded and attached.
#[derive(Debug)]
pub(super) struct Running {
    pub tables: Tables,
    snapshot: Snapshot,
    decoder: SlotDecoder,
    programs: Programs,
    forgotten: Forgotten,
    last_reading: LastReading,
}

/// What forgotten threads had counted in the slots that they no longer have.
#[derive(Debug, Default)]
struct Forgotten {
    events: u64,
    overflow: u64,
    /// Events that came after the thread's last reading: no reading has them, so they are lost.
    events_after_last_reading: u64,
}

/// What the next reading and [`Running::forget`] need of the last one.
#[derive(Debug, Default)]
struct LastReading {
    /// Events that each slot had counted, by the slot's number.
    events_by_slot: HashMap<usize, u64>,
    /// The slots that were merged into another slot of the same thread, each with that other slot.
    merged_into: HashMap<ThreadKey, ThreadKey>,
    /// Events without a slot, from the start to this reading.
    homeless: Homeless,
    /// Events without a slot in the interval that ended with this reading.
    homeless_in_interval: Homeless,
}

impl Running {
    /// Loads and attaches the programs, with room for `slots` threads.
    ///
    /// # Errors
    /// When no program would work.
    pub fn start(topology: &HostTopology, slots: usize) -> Result<Self, EngineError> {
        require_host_pid_namespace()?;
        let exit_format = kvm_exit_format();
        let kernel = kernel_btf::of_kernel().unwrap_or_default();
        let exit_constants = kernel_btf::exit_reason(&kernel);
        let raw_exit = exit_constants.is_some();
        let seed = random_odd_number();
        let mut constants = exit_constants.unwrap_or_default();
        constants.insert("seed", seed);
        constants.extend(kernel_btf::task_state(&kernel));
        let cpus = possible_cpus().max(topology.cpus.last().map_or(1, |c| c.cpu + 1));
        let choices = Choices {
            sizes: [("cpus", cpus)].into(),
            constants,
        };
        let known_format = exit_format.clone().ok();
        let mut object = Object::prepare(object::MAIN, known_format.as_slice(), &choices)?;
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
            decoder: SlotDecoder {
                measured: programs.measured(),
                names: exit_format
                    .map(|format| format.reason_names())
                    .unwrap_or_default(),
            },
            programs,
            forgotten: Forgotten::default(),
            last_reading: LastReading::default(),
        })
    }

    /// All that was counted, and the extremes since the call before.
    pub fn read(&mut self) -> Reading {
        let mut reading = Reading {
            events: self.forgotten.events,
            overflow: self.forgotten.overflow,
            ..Reading::default()
        };
        let mut any_exit = false;
        let mut userspace_exits = 0;
        let began = monotonic_ns();
        let taken_slots = self.tables.taken_slots();
        self.tables.unmap_unused(&taken_slots);
        self.last_reading.events_by_slot.clear();
        for index in taken_slots {
            let copied = self
                .tables
                .slot(index)
                .and_then(|slot| self.snapshot.take(slot));
            let Some((slot, interval)) = copied else {
                continue;
            };
            any_exit |= slot.exits_seen.load(Relaxed) != 0;
            let thread = self.decoder.thread(slot, interval);
            reading.overflow += u64::from(slot.overflow.load(Relaxed));
            let handled = decode::handled(&thread.events);
            self.last_reading.events_by_slot.insert(index, handled);
            reading.events += handled;
            for cell in &thread.events.userspace {
                userspace_exits += cell.count;
            }
            reading.threads.push(thread);
        }
        self.last_reading.merged_into = merge_slots(&mut reading.threads);
        // One slot is read after the other: the middle of this time is closest to the times at
        // which the slots were read.
        reading.mono_ns = Some(began.midpoint(monotonic_ns()));
        reading.fires_kvm_exit = fires_kvm_exit(any_exit, userspace_exits, reading.threads.len());
        let homeless = self.tables.homeless();
        let last = &mut self.last_reading;
        last.homeless_in_interval = homeless.since(last.homeless);
        last.homeless = homeless;
        if last.homeless_in_interval.events > 0 {
            reading.refused = self.tables.take_refused();
        }
        reading.lost = self.programs.attached.missed("kvm_")
            + self.forgotten.events_after_last_reading
            + homeless.events;
        reading
    }

    /// Frees the slots of these threads, and the slots that were merged into those slots.
    pub fn forget(&mut self, threads: &[ThreadKey]) {
        let threads: HashSet<&ThreadKey> = threads.iter().collect();
        let interval = IntervalExtremes::default();
        for index in self.tables.taken_slots() {
            let Some(slot) = self.tables.slot(index) else {
                continue;
            };
            let key = decode::key_of(slot);
            let last = &mut self.last_reading;
            if !threads.contains(last.merged_into.get(&key).unwrap_or(&key)) {
                continue;
            }
            let handled = decode::handled(&self.decoder.thread(slot, &interval).events);
            let in_last_reading = last.events_by_slot.remove(&index).unwrap_or(0);
            let forgotten = &mut self.forgotten;
            forgotten.overflow += u64::from(slot.overflow.load(Relaxed));
            forgotten.events += handled;
            forgotten.events_after_last_reading += handled.saturating_sub(in_last_reading);
            self.tables.release(index);
        }
    }

    /// The number of threads that have a slot.
    pub fn threads(&self) -> usize {
        self.tables.taken_slots().len()
    }

    /// Makes room for twice `vcpus` threads. If the last interval lacked slots, makes at least
    /// twice as many as there are.
    ///
    /// # Errors
    /// When the kernel lacks the memory.
    pub fn make_room(&mut self, vcpus: usize) -> Result<(), EngineError> {
        let slots = self.tables.slot_count();
        let mut threads = vcpus;
        if more_slots_would_help(self.last_reading.homeless_in_interval, slots) {
            threads = threads.max(slots);
        }
        self.tables
            .grow(2 * threads)
            .map_err(|e| Refusal::new(Stage::Map, "slots", e).into())
    }

    /// What is missing.
    pub fn gaps(&self) -> Vec<EngineError> {
        let mut gaps = self.programs.gaps.clone();
        let homeless = self.last_reading.homeless_in_interval;
        if homeless.events > 0 {
            let slots = self.tables.slot_count();
            gaps.push(gap_of_homeless(homeless, slots, self.tables.ceiling));
        }
        gaps
    }
}

/// Whether homeless threads would find a slot if there were more slots: not a thread whose process
/// has as many as any process may ever have.
fn more_slots_would_help(homeless: Homeless, slots: usize) -> bool {
    let of_greedy = homeless.of_greedy_processes;
    let quota_can_grow = max_of_process(slots) < MAX_OF_PROCESS;
    homeless.events > of_greedy || (of_greedy > 0 && quota_can_grow)
}

/// Why threads were homeless with this number of slots, and what to do. `ceiling`: the most slots
/// that there is memory for.
fn gap_of_homeless(homeless: Homeless, slots: usize, ceiling: usize) -> EngineError {
    let slots_would_help = more_slots_would_help(homeless, slots);
    let cause = if slots_would_help {
        format!(
            "there are more vCPU threads, in all or of one user or process, than the {slots} \
                places have room for: events of the others are lost"
        )
    } else {
        format!(
            "a process has more vCPU threads than the {MAX_OF_PROCESS} places that it may have: \
                events of the others are lost"
        )
    };
    let fix = if slots_would_help && slots < ceiling {
        "nothing to do: kvmtop makes more room from the next interval on"
    } else if slots_would_help && ceiling < MAX_SLOTS {
        "raise the memory limit of kvmtop's cgroup (memory.max), or start kvmtop with \
            --engine perf, which has no such limit"
    } else {
        "start kvmtop with --engine perf, which has no such limit"
    };
    EngineError::new(cause, fix)
}

/// BPF programs see thread ids of the initial PID namespace, where kvmtop must run too.
fn require_host_pid_namespace() -> Result<(), EngineError> {
    if rights::in_own_pid_namespace(Path::new("/proc")) {
        return Err(EngineError::new(
            "kvmtop runs in a PID namespace of its own, but BPF programs see the host's thread ids",
            "run it in the host's PID namespace (for a container: --pid=host)",
        ));
    }
    Ok(())
}

/// A random number by which programs hash the ids of processes and users: each `RandomState` has
/// new random keys. It is odd, so that processes with neighbouring ids have different cells.
fn random_odd_number() -> u32 {
    std::hash::RandomState::new().hash_one(0) as u32 | 1
}

/// Merges the slots of one thread; returns the key of each slot that was merged, with the key of
/// the slot that it was merged into. Of two slots with one thread id, either the first belongs to a
/// thread that has ended, or the first lost the race for an entry of its bucket (`new_slot` in
/// `threads.h`) and its thread went on in the other slot.
fn merge_slots(threads: &mut Vec<TracedThread>) -> HashMap<ThreadKey, ThreadKey> {
    let mut merged_into = HashMap::new();
    threads.sort_unstable_by_key(|thread| thread.key);
    threads.dedup_by(|later, first| {
        if first.key.tid != later.key.tid || first.died_ns.is_some() {
            return false;
        }
        if first.pid != later.pid {
            // The end of the first was not noticed, but a thread of another process has its id now.
            first.died_ns = Some(later.key.born_ns);
            return false;
        }
        first.events.merge(
            std::mem::take(&mut later.events),
            MissingExtreme::NothingInInterval,
        );
        first.died_ns = later.died_ns;
        merged_into.insert(later.key, first.key);
        true
    });
    merged_into
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

/// The number plus 1, since 0 stands for an unknown number.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fix_for_homeless_threads_is_one_that_helps() {
        let fix = |of_greedy_processes, slots, ceiling| {
            let homeless = Homeless {
                events: 9,
                of_greedy_processes,
            };
            gap_of_homeless(homeless, slots, ceiling).fix
        };
        assert!(fix(9, 512, 4096).starts_with("nothing"));
        assert!(fix(8, 2048, 4096).starts_with("nothing"));
        assert!(fix(8, 4096, 4096).starts_with("raise the memory limit"));
        // More slots do not help a process that has as many as any process may have, and more
        // memory does not help where there are as many slots as can be numbered.
        assert!(fix(9, 2048, 2048).starts_with("start kvmtop with"));
        assert!(fix(8, MAX_SLOTS, MAX_SLOTS).starts_with("start kvmtop with"));
    }
}
