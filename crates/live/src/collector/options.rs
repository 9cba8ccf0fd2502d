//! What a collector is made of, and the commands that it takes while it runs.

use crate::metadata::source::MetadataSource;
use crate::proc::paths::SystemPaths;
use crate::timestamps::Timestamps;
use engine::events::{Engine, EngineError};
use sample::EngineLevel;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// A command to a running collector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CollectorCommand {
    /// Change the tracing level.
    Level(EngineLevel),
    /// Switch counting of every `kvm:*` tracepoint on or off.
    KvmEvents(bool),
    /// Switch timing of the host's block devices on or off.
    Disks(bool),
    /// Switch tracing of interrupts of guests on or off.
    Interrupts(bool),
    /// Set the time between samples.
    Interval(Duration),
    /// Take a sample at once.
    Now,
    /// End the feed.
    Stop,
}

/// The sources and settings of a collector.
pub struct CollectorOptions {
    /// Time between samples.
    pub interval: Duration,
    /// The tracing engine; `None`: no tracing.
    pub engine: Option<Box<dyn Engine>>,
    /// Why the engine, or a better one, is missing.
    pub engine_problems: Vec<EngineError>,
    /// libvirt and the QEMU monitor.
    pub metadata: Option<Box<dyn MetadataSource>>,
    /// Commands for the collector while it runs.
    pub commands: Receiver<CollectorCommand>,
    /// Where the kernel's files are.
    pub paths: SystemPaths,
    /// The clock.
    pub clock: Box<dyn FnMut() -> Timestamps + Send>,
}

impl Default for CollectorOptions {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(1),
            engine: None,
            engine_problems: Vec::new(),
            metadata: None,
            commands: channel().1,
            paths: SystemPaths::default(),
            clock: Box::new(Timestamps::now),
        }
    }
}
