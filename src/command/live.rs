//! The running host: which engine, which sources, and the end on a signal.

use super::batch::Batch;
use super::say;
use crate::cli::Settings;
use crate::cli::args::{BatchArgs, EngineChoice};
use crate::kvm::topology::HostTopology;
use crate::sample::{DomainSample, EngineLevel, Sample, SourceId, SourceState};
use crate::source::engine::{bpf::BpfEngine, perf::PerfEngine};
use crate::source::events::{Engine, EngineError};
use crate::source::live::metadata::device_maps::DeviceMaps;
use crate::source::live::metadata::libvirt::{Libvirt, LibvirtOptions};
use crate::source::live::{self, Collector, CollectorOptions, LibvirtAndQmp, SystemPaths};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

/// KVM's statistics are asked of libvirt so often while nothing is traced: more often would cost every guest's monitor, and more
/// rarely would show them that late.
const COUNTERS_EVERY: Duration = Duration::from_secs(1);

/// See [`settle`].
const LOOKS: u32 = 3;
/// See [`settle`].
const LOOKS_FOR_COUNTERS: u32 = 30;
/// See [`settle`].
const LOOK: Duration = Duration::from_millis(150);

/// A collector at work and the way to talk to it.
pub struct Live {
    /// Yields the samples.
    pub feed: Collector,
    /// Level, interval, stop.
    pub commands: Sender<live::CollectorCommand>,
}

/// Starts every source. What cannot be had is said in each sample; nothing here fails for it.
pub fn start(settings: &Settings) -> Live {
    let paths = SystemPaths::default();
    let (engine, problems) = engine(settings.engine, &paths);
    if engine.is_none()
        && settings.engine != EngineChoice::Auto
        && let Some(why) = problems.first()
    {
        say(&format!("--engine {}: {}; {}; going on without exits", settings.engine.as_str(), why.cause, why.fix));
    }
    let libvirt = Libvirt::start(LibvirtOptions { uri: settings.libvirt_uri.clone(), counters_every: None });
    let outside = LibvirtAndQmp::new(libvirt, DeviceMaps::new(settings.monitor), COUNTERS_EVERY);
    let (commands, receiver) = channel();
    let mut feed = Collector::new(CollectorOptions {
        interval: settings.interval,
        engine,
        engine_problems: problems,
        metadata_sources: vec![Box::new(outside)],
        commands: receiver,
        paths,
        ..CollectorOptions::default()
    });
    if settings.kvm_events
        && let Err(why) = feed.set_kvm_events(true)
    {
        say(&format!("--kvm-events: {}; {}", why.cause, why.fix));
    }
    Live { feed, commands }
}

/// The first engine of those asked for that this host allows, and why it is not a better one.
fn engine(choice: EngineChoice, paths: &SystemPaths) -> (Option<Box<dyn Engine>>, Vec<EngineError>) {
    type Open = fn(HostTopology, &SystemPaths) -> Result<Box<dyn Engine>, EngineError>;
    let bpf: Open = |topology, paths| Ok(Box::new(BpfEngine::new(topology, live::vcpus(paths))?));
    let perf: Open = |topology, _| Ok(Box::new(PerfEngine::open(EngineLevel::Full, topology)?));
    let candidates: &[Open] = match choice {
        EngineChoice::Auto => &[bpf, perf],
        EngineChoice::Bpf => &[bpf],
        EngineChoice::Perf => &[perf],
        EngineChoice::None => &[],
    };
    let mut problems = Vec::new();
    let topology = live::topology(paths);
    for open in candidates {
        match open(topology.clone(), paths) {
            Ok(engine) => return (Some(engine), problems),
            Err(why) => problems.push(why),
        }
    }
    (None, problems)
}

/// Ends the feed at the first SIGINT, SIGTERM or SIGHUP; a second one ends the process at once, in case something hangs.
pub fn stop_on_signals(commands: Sender<live::CollectorCommand>) -> std::io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        let mut seen = signals.forever();
        seen.next();
        // A feed that is gone already needs no stop.
        let _ = commands.send(live::CollectorCommand::Stop);
        if let Some(signal) = seen.next() {
            std::process::exit(128 + signal);
        }
    })?;
    Ok(())
}

/// Lets libvirt and the monitors answer before the first interval begins: one look finds the guests, the next asks who owns their
/// addresses. The screen needs no such wait, its names come when they come; a single interval of text has no later. Untraced, it
/// is libvirt's counters that are waited for, which take two readings.
fn settle(feed: &mut Collector, engine: EngineChoice) {
    let untraced = engine == EngineChoice::None;
    for look in 0..LOOKS_FOR_COUNTERS {
        let sample = feed.tick();
        if look >= LOOKS && !(untraced && awaits_counters(&sample)) {
            return;
        }
        std::thread::sleep(LOOK);
    }
}

/// Whether libvirt answers and has told no counters of a guest that it may know.
fn awaits_counters(sample: &Sample) -> bool {
    let answers = sample.sources.iter().any(|s| s.id == SourceId::Libvirt && s.state == SourceState::Ok);
    let lacks = |d: &DomainSample| d.facts.uuid.is_some() && d.threads.iter().all(|t| t.counters.is_empty());
    answers && sample.domains.iter().any(lacks)
}

/// `kvmtop --batch`.
pub fn batch(settings: &Settings, args: &BatchArgs) -> anyhow::Result<u8> {
    let mut live = start(settings);
    stop_on_signals(live.commands)?;
    settle(&mut live.feed, settings.engine);
    Batch::new(settings, args, "live").run(&mut live.feed)?;
    Ok(0)
}
