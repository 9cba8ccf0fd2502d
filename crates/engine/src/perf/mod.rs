//! The `perf` engine: one ring per CPU receives the tracepoints, and user space pairs and counts
//! them.
//!
//! For kernels and policies without BPF. Each event is copied, so this engine costs the guest some
//! six times as much as the BPF engine; the results are the same. A separate thread empties the
//! rings, because a ring holds the events of only 30 ms at 100 000 exits a second.

mod rings;
mod time_order;
mod watcher;

#[cfg(test)]
mod tests;

use crate::events::{Engine, EngineError, Reading, ThreadKey};
use crate::pairing::{EVENTS, EventDecoder, Pairing};
use crate::tracefs::Tracefs;
use kvm::topology::HostTopology;
pub(crate) use rings::refused;
use sample::{EngineKind, EngineLevel};

use rings::Wanted;
use watcher::Watcher;

/// Counts exits through perf rings.
pub struct PerfEngine {
    tracefs: Tracefs,
    topology: HostTopology,
    watcher: Option<Watcher>,
    gaps: Vec<EngineError>,
}

impl PerfEngine {
    /// Starts watching all CPUs. `topology` says whether a migration crosses cores, caches or
    /// nodes.
    ///
    /// # Errors
    /// When the kernel's tracepoints cannot be found or opened, with the reason.
    pub fn open(topology: HostTopology) -> Result<Self, EngineError> {
        let mut engine = Self {
            tracefs: Tracefs::open()?,
            topology,
            watcher: None,
            gaps: Vec::new(),
        };
        engine.set_level(EngineLevel::Full)?;
        Ok(engine)
    }

    /// Finds the tracepoints of [`EVENTS`] that this kernel has.
    fn known_events(&self) -> KnownEvents {
        let mut known = KnownEvents::default();
        for event in &EVENTS {
            if !self.tracefs.has(event.group, event.name) {
                continue;
            }
            match self.tracefs.format(event.group, event.name) {
                Ok(format) if known.decoder.add_format(&format) => {
                    known.wanted.push(Wanted::new(event.name, format.id));
                }
                Ok(_) => known.gaps.push(EngineError::new(
                    format!("tracepoint {} lacks a field that is needed", event.name),
                    "no fix on this kernel; kvmtop shows what the other events provide",
                )),
                Err(e) => known.gaps.push(e),
            }
        }
        known
    }
}

/// The tracepoints that a kernel has, and why some cannot be used.
#[derive(Default)]
struct KnownEvents {
    wanted: Vec<Wanted>,
    decoder: EventDecoder,
    gaps: Vec<EngineError>,
}

impl Engine for PerfEngine {
    fn kind(&self) -> EngineKind {
        EngineKind::Perf
    }

    fn level(&self) -> EngineLevel {
        if self.watcher.is_some() {
            EngineLevel::Full
        } else {
            EngineLevel::None
        }
    }

    fn set_level(&mut self, level: EngineLevel) -> Result<(), EngineError> {
        if level == EngineLevel::None {
            self.watcher = None;
            self.gaps = Vec::new();
        } else {
            let known = self.known_events();
            let names = known.decoder.names.clone();
            let mut pairing = Pairing::new(names, self.topology.clone());
            pairing.counts_migrations = true;
            pairing.separates_lives = true;
            self.watcher = Some(Watcher::start(known.wanted, known.decoder, pairing)?);
            self.gaps = known.gaps;
        }
        Ok(())
    }

    fn read(&mut self) -> Reading {
        self.watcher.as_ref().map(Watcher::read).unwrap_or_default()
    }

    fn forget(&mut self, threads: &[ThreadKey], _: &[i32]) {
        if let Some(watcher) = &self.watcher {
            watcher.forget(threads);
        }
    }

    fn gaps(&self) -> Vec<EngineError> {
        let mut gaps = self.gaps.clone();
        gaps.extend(self.watcher.as_ref().and_then(Watcher::gap));
        gaps
    }
}
