//! On demand: counts every `kvm:*` tracepoint by process, without copying an event.

use super::super::tracefs::Tracefs;
use super::object::{self, Choices, Object};
use super::refusal::{Refusal, Rights, Stage};
use super::sys;
use crate::events::EngineError;
use kvm::sanitize;
use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// `max_entries` of `counts` in `events.bpf.c`.
const SIZE: usize = 16384;

/// `EVENT` there.
const EVENT: i32 = 0x4b56_4d45;

/// The most tracepoints counted. A kernel has some hundred.
const MAX_EVENTS: usize = 512;

/// One program on each event.
#[derive(Debug)]
pub(super) struct KvmEvents {
    names: Vec<String>,
    counts: OwnedFd,
    uncounted: sys::Mapping,
    _links: Vec<OwnedFd>,
}

impl KvmEvents {
    /// Counts all of this kernel's `kvm:*` tracepoints from now on.
    ///
    /// # Errors
    /// No tracefs to name them, or no right to attach.
    pub fn start(rights: &Rights) -> Result<Self, EngineError> {
        let names: Vec<String> = Tracefs::open()?.events("kvm")?.into_iter().take(MAX_EVENTS).collect();
        Self::attach(&names).map_err(|refusal| rights.explain(&refusal))
    }

    fn attach(names: &[String]) -> Result<Self, Refusal> {
        let mut object = Object::prepare(object::events_object()?, &[], &Choices::default())?;
        let mut links = Vec::new();
        for (number, name) in names.iter().enumerate() {
            let program = object.load_with("count", |instructions| {
                instructions.iter_mut().filter(|i| i.imm == EVENT).for_each(|i| i.imm = number as i32);
            })?;
            match sys::attach_raw(program.as_fd(), name) {
                Ok(link) => links.push(link),
                // Listed in tracefs, but not a tracepoint of its own: it never fires.
                Err(e) if e.raw_os_error() == Some(libc::ENOENT) => {}
                Err(e) => return Err(Refusal::new(Stage::Attach, name, e)),
            }
        }
        let uncounted = object.mapping("uncounted", 1, size_of::<u64>())?;
        let names = names.iter().map(|name| sanitize(name, 64)).collect();
        Ok(Self { names, counts: object.take_map("counts")?, uncounted, _links: links })
    }

    /// Counts by process of the events that fired, including processes that are not guests.
    pub fn read(&self) -> HashMap<i32, BTreeMap<String, u64>> {
        let mut by_process: HashMap<i32, BTreeMap<String, u64>> = HashMap::new();
        for ([process, event], [count]) in sys::lookup_all(self.counts.as_fd(), SIZE).unwrap_or_default() {
            if let Some(name) = self.names.get(event as usize) {
                by_process.entry(process.cast_signed()).or_default().insert(name.clone(), count);
            }
        }
        by_process
    }

    /// Events that found no place in the table.
    pub fn overflow(&self) -> u64 {
        self.uncounted.at::<AtomicU64>(0).map_or(0, |n| n.load(Relaxed))
    }

    /// Frees what was counted for these processes.
    pub fn forget(&self, processes: &[i32]) {
        for process in processes {
            for event in 0..self.names.len() as u32 {
                // Most have no entry.
                let _ = sys::delete(self.counts.as_fd(), [process.cast_unsigned(), event]);
            }
        }
    }
}
