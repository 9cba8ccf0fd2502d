//! The `perf` engine: one ring per CPU receives the tracepoints, and user space pairs and counts
//! them.
//!
//! For kernels and policies without BPF. Each event is copied, so it costs the guest some six times
//! as much as the BPF engine; the results are the same. A separate thread empties the rings, as one
//! holds only 30 ms at 100 000 exits a second.

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

    /// The tracepoints that this kernel has, and those that it lacks.
    fn learn(&self) -> (Vec<Wanted>, EventDecoder, Vec<EngineError>) {
        let (mut wanted, mut decoder, mut gaps) = (Vec::new(), EventDecoder::default(), Vec::new());
        for event in EVENTS
            .iter()
            .filter(|event| self.tracefs.has(event.group, event.name))
        {
            match self.tracefs.format(event.group, event.name) {
                Ok(format) if decoder.add_format(&format) => {
                    wanted.push(Wanted::new(event.name, format.id));
                }
                Ok(_) => gaps.push(EngineError {
                    cause: format!("tracepoint {} lacks a field that is needed", event.name),
                    fix: "no fix on this kernel; kvmtop shows what the other events provide".into(),
                }),
                Err(e) => gaps.push(e),
            }
        }
        (wanted, decoder, gaps)
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
            (self.watcher, self.gaps) = (None, Vec::new());
        } else {
            let (wanted, decoder, gaps) = self.learn();
            let names = decoder.names.clone();
            let mut pairing = Pairing::new(names, self.topology.clone());
            (pairing.counts_migrations, pairing.separates_lives) = (true, true);
            self.watcher = Some(Watcher::start(wanted, decoder, pairing)?);
            self.gaps = gaps;
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
        let watcher = self.watcher.as_ref().and_then(Watcher::gap);
        self.gaps.iter().cloned().chain(watcher).collect()
    }
}
