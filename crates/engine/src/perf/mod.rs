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
            return Ok(());
        }
        let mut wanted = Vec::new();
        let mut decoder = EventDecoder::default();
        let mut gaps = Vec::new();
        for event in &EVENTS {
            if !self.tracefs.has(event.group, event.name) {
                continue;
            }
            match self.tracefs.format(event.group, event.name) {
                Ok(format) if decoder.add_format(&format) => {
                    wanted.push(Wanted::new(event.name, format.id));
                }
                Ok(_) => gaps.push(EngineError::new(
                    format!("tracepoint {} lacks a field that is needed", event.name),
                    "no fix on this kernel; kvmtop shows what the other events provide",
                )),
                Err(e) => gaps.push(e),
            }
        }
        let mut pairing = Pairing::new(decoder.names.clone(), self.topology.clone());
        pairing.counts_migrations = true;
        pairing.separates_lives = true;
        self.watcher = Some(Watcher::start(wanted, decoder, pairing)?);
        self.gaps = gaps;
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
