//! On demand: counts every `kvm:*` tracepoint by process, without copying an event.

use super::guest_tables::GuestTable;
use super::layout::{EventKey, GuestKey};
use super::object::{self, Choices, Object};
use super::refusal::{Refusal, Stage};
use super::sys::{self, Mapping};
use crate::events::EngineError;
use crate::tracefs::Tracefs;
use kvm::sanitize;
use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsFd, OwnedFd};

/// `EVENT` in `events.bpf.c`: a placeholder in the program's instructions. The program is loaded
/// once for each tracepoint, with the tracepoint's number in place of it.
const EVENT: i32 = 0x4b56_4d45;

/// The most tracepoints counted. A kernel has some hundred.
const MAX_EVENTS: usize = 512;

/// One attached program for each tracepoint. Dropping this removes them from the kernel.
#[derive(Debug)]
pub(super) struct KvmEvents {
    /// The tracepoints' names: the index is the number in the program's keys.
    names: Vec<String>,
    pub counts: GuestTable<EventKey, u64>,
    /// The number of events that found no place in the table.
    pub homeless_events: Mapping,
    _links: Vec<OwnedFd>,
}

impl KvmEvents {
    /// Counts all of this kernel's `kvm:*` tracepoints from now on.
    ///
    /// # Errors
    /// No tracefs to name them, or no right to attach.
    pub fn start() -> Result<Self, EngineError> {
        let mut names = Tracefs::open()?.events("kvm")?;
        names.truncate(MAX_EVENTS);
        let mut object = Object::prepare(object::EVENTS, &[], &Choices::default())?;
        let mut links = Vec::new();
        for (number, name) in names.iter().enumerate() {
            let program = object.load_with("count", |instructions| {
                for instruction in instructions {
                    if instruction.imm == EVENT {
                        instruction.imm = number as i32;
                    }
                }
            })?;
            match sys::attach_raw(program.as_fd(), name) {
                Ok(link) => links.push(link),
                // Tracefs lists some events that are no tracepoints and never fire.
                Err(e) if e.raw_os_error() == Some(libc::ENOENT) => {}
                Err(e) => return Err(Refusal::new(Stage::Attach, name, e).into()),
            }
        }
        let homeless_events = object.homeless_events()?;
        let names = names.iter().map(|name| sanitize(name, 64)).collect();
        Ok(Self {
            names,
            counts: GuestTable::take(&mut object, "counts")?,
            homeless_events,
            _links: links,
        })
    }

    /// How often each event fired, by process and event, including processes that are not guests.
    pub fn read(&self) -> HashMap<i32, BTreeMap<String, u64>> {
        let mut by_process: HashMap<i32, BTreeMap<String, u64>> = HashMap::new();
        for (key, count) in self.counts.read() {
            if let Some(name) = self.names.get(key.event as usize) {
                by_process
                    .entry(key.guest())
                    .or_default()
                    .insert(name.clone(), count);
            }
        }
        by_process
    }
}
