//! Exit events counted inside the kernel by BPF programs: nothing is copied per event, and the reader looks at shared memory
//! once a tick.
//!
//! The programs are C (`assets/bpf/kvmtop.bpf.c`, which says how they work) and are shipped compiled. Raw tracepoints serve
//! wherever the arguments have been the same since 5.5; `kvm_exit`, whose reason is no argument of it, is a classic one, its
//! fields found through a BTF made of this kernel's `format` file ([`btf`]).
//!
//! Memory in the kernel is fixed when the programs load: 16 KiB a thread (`BpfEngine::new` says how many), 256 KiB for the
//! way from a task to its slot. What does not fit is counted as overflow. Everything hangs on file descriptors: nothing stays
//! in the kernel when the process ends, however it ends.

mod btf;
mod decode;
mod explain;
mod layout;
mod object;
mod parts;
mod sys;
mod tables;

use super::tracefs::Tracefs;
use super::{Engine, EngineError, Reading, TracedThread};
use crate::kvm::exit_reason::ReasonNames;
use crate::kvm::format::{self, EventFormat};
use crate::kvm::topology::HostTopology;
use crate::sample::{EngineKind, EngineLevel};
use decode::{Decoder, Parts};
use explain::{Refusal, Rights, Stage};
use object::{Choices, Object};
use parts::Attached;
use std::collections::hash_map::Entry;
use std::sync::atomic::Ordering::Relaxed;
use tables::Tables;

/// Slots at least: room for guests that start later.
const MIN_SLOTS: usize = 256;

/// Accesses and userspace exits without one `kvm_exit` after which this kernel is held to fire none.
const ENOUGH_TO_TELL: u64 = 100;

/// Counts with BPF programs.
#[derive(Debug)]
pub struct BpfEngine {
    topology: HostTopology,
    slots: usize,
    names: ReasonNames,
    level: EngineLevel,
    running: Option<Running>,
    fires: Option<bool>,
}

/// Programs at work.
#[derive(Debug)]
struct Running {
    tables: Tables,
    parts: Parts,
    attached: Attached,
    /// What threads that were forgotten had counted.
    past: Totals,
}

/// Sums over threads.
#[derive(Debug, Clone, Copy, Default)]
struct Totals {
    events: u64,
    overflow: u64,
}

impl BpfEngine {
    /// Starts to count everything. `threads` is how many vCPU threads there are now; there is room for twice as many.
    ///
    /// # Errors
    /// When BPF may not be used here at all. Parts that are missing are in [`Engine::gaps`].
    pub fn new(topology: HostTopology, threads: usize) -> Result<Self, EngineError> {
        let slots = (2 * threads).max(MIN_SLOTS).next_power_of_two().min(tables::MAX_SLOTS);
        let mut engine =
            Self { topology, slots, names: ReasonNames::new(), level: EngineLevel::None, running: None, fires: None };
        engine.set_level(EngineLevel::Full)?;
        Ok(engine)
    }
}

impl Engine for BpfEngine {
    fn kind(&self) -> EngineKind {
        EngineKind::Bpf
    }

    fn level(&self) -> EngineLevel {
        self.level
    }

    fn set_level(&mut self, level: EngineLevel) -> Result<(), EngineError> {
        if level != self.level {
            self.running = match level {
                EngineLevel::None => None,
                _ => Some(Running::start(level, &self.topology, self.slots, &mut self.names)?),
            };
            self.level = level;
        }
        Ok(())
    }

    fn set_kvm_events(&mut self, _on: bool) -> Result<(), EngineError> {
        Ok(())
    }

    fn read(&mut self) -> Reading {
        let Some(running) = &mut self.running else { return Reading::default() };
        let mut reading = running.read(&self.names);
        if reading.fires_kvm_exit == Some(true) || self.fires.is_none() {
            self.fires = reading.fires_kvm_exit;
        }
        reading.fires_kvm_exit = self.fires;
        reading
    }

    fn forget(&mut self, tids: &[i32]) {
        if let Some(running) = &mut self.running {
            running.forget(tids);
        }
    }

    fn gaps(&self) -> Vec<EngineError> {
        self.running.as_ref().map(|r| r.attached.gaps.clone()).unwrap_or_default()
    }
}

impl Running {
    fn start(
        level: EngineLevel,
        topology: &HostTopology,
        slots: usize,
        names: &mut ReasonNames,
    ) -> Result<Self, EngineError> {
        own_pid_namespace()?;
        let rights = Rights::here();
        let explain = |refusal: Refusal| rights.explain(&refusal);
        let full = level == EngineLevel::Full;
        let exit = kvm_exit_format();
        let places = topology.cpus.last().map_or(1, |c| c.cpu + 1);
        let slots_of = |map| (map, slots as u32);
        let choices = Choices {
            sizes: [slots_of("slots"), slots_of("owners"), slots_of("free_slots"), ("places", places)].into(),
            constants: [("level", if full { 2 } else { 1 })].into(),
        };
        let object = object::main_object().map_err(explain)?;
        let mut object =
            Object::prepare(object, &exit.iter().cloned().collect::<Vec<_>>(), &choices).map_err(explain)?;
        fill_places(&object, topology).map_err(explain)?;
        let tables = Tables::new(&mut object, slots).map_err(explain)?;
        let attached = Attached::start(&object, &rights, full, exit.as_ref().map(|e| e.id).map_err(Clone::clone))?;
        if let Ok(exit) = exit {
            *names = exit.reason_names();
        }
        Ok(Self { tables, parts: attached.parts(), attached, past: Totals::default() })
    }

    fn read(&mut self, names: &ReasonNames) -> Reading {
        let decoder = Decoder { parts: self.parts, names, epoch: self.tables.epoch() };
        let mut reading = Reading::default();
        let (mut exits, mut sum, mut served) = (false, self.past, 0);
        for index in self.tables.taken() {
            let Some(slot) = self.tables.slot(index) else { continue };
            let tid = slot.tid.load(Relaxed).cast_signed();
            let dead = slot.dead.load(Relaxed) != 0;
            exits |= slot.exits_seen.load(Relaxed) != 0;
            let thread = decoder.thread(slot);
            sum.overflow += u64::from(slot.overflow.load(Relaxed));
            sum.events += decode::handled(&thread.events);
            served += thread.events.userspace.iter().map(|c| c.count).sum::<u64>();
            keep(reading.threads.entry(tid), thread, dead);
        }
        self.tables.next_epoch();
        let enough = ENOUGH_TO_TELL.max(2 * reading.threads.len() as u64);
        reading.fires_kvm_exit = if exits { Some(true) } else { (served > enough).then_some(false) };
        reading.events = sum.events;
        reading.overflow = sum.overflow + self.tables.homeless();
        reading
    }

    fn forget(&mut self, tids: &[i32]) {
        for index in self.tables.taken() {
            let Some(slot) = self.tables.slot(index) else { continue };
            if !tids.contains(&slot.tid.load(Relaxed).cast_signed()) {
                continue;
            }
            self.past.overflow += u64::from(slot.overflow.load(Relaxed));
            self.tables.release(index);
        }
    }
}

/// Of two slots with one thread id the living thread's counts: the id was given anew.
fn keep(entry: Entry<'_, i32, TracedThread>, thread: TracedThread, dead: bool) {
    match entry {
        Entry::Vacant(free) => {
            free.insert(thread);
        }
        Entry::Occupied(mut other) if !dead => {
            other.insert(thread);
        }
        Entry::Occupied(_) => {}
    }
}

/// The number, fields and reasons of `kvm_exit` on this kernel.
fn kvm_exit_format() -> Result<EventFormat, EngineError> {
    let text = Tracefs::open()?.format_text("kvm", "kvm_exit")?;
    format::parse(&text).map_err(|e| EngineError {
        cause: format!("the format file of kvm:kvm_exit cannot be read: {e}"),
        fix: "report this kernel's version to the authors of kvmtop".into(),
    })
}

/// BPF programs see thread ids of the initial PID namespace, whose inode is fixed (include/linux/proc_ns.h, `PROC_PID_INIT_INO`).
fn own_pid_namespace() -> Result<(), EngineError> {
    match std::fs::read_link("/proc/self/ns/pid") {
        Ok(link) if link.as_os_str() != "pid:[4026531836]" => Err(EngineError {
            cause: "kvmtop runs in a PID namespace of its own, but BPF programs see the host's thread ids".into(),
            fix: "run it in the host's PID namespace (for a container: --pid=host)".into(),
        }),
        _ => Ok(()),
    }
}

/// Tells the programs which core, cache and node each CPU belongs to, numbered from 1.
fn fill_places(object: &Object, topology: &HostTopology) -> Result<(), Refusal> {
    for cpu in &topology.cpus {
        let core = cpu.siblings.iter().next().unwrap_or(cpu.cpu);
        let number = |n: Option<u32>| n.map_or(0, |n| n.wrapping_add(1));
        let place = [core + 1, number(cpu.llc), number(cpu.node), 0].map(u32::to_ne_bytes).concat();
        sys::update(object.map("places")?, Some(cpu.cpu), &place).map_err(|e| Refusal::new(Stage::Map, "places", e))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
