//! The live host: starts the engine and the sources, and stops on a signal.

use super::batch::BatchPrinter;
use super::{keep, say};
use crate::cli::Settings;
use crate::cli::args::{BatchArgs, EngineChoice, EngineDetail};
use ::live::metadata::libvirt::{Libvirt, LibvirtOptions};
use ::live::{self, Collector, CollectorCommand, CollectorOptions, LibvirtAndQmp, SystemPaths};
use clap::ValueEnum;
use engine::events::{Engine, EngineError};
use engine::{bpf::BpfEngine, perf::PerfEngine};
use kvm::topology::HostTopology;
use rustix::thread::CapabilitySet;
use sample::{DomainSample, EngineKind, EngineLevel, Sample, SourceId, SourceState};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

/// Time between two queries of KVM's statistics through libvirt, made while nothing is traced. Each costs the guest's
/// monitor time; a longer pause would delay the figures.
const COUNTERS_EVERY: Duration = Duration::from_secs(1);

/// See [`settle`].
const LOOKS: u32 = 3;
/// See [`settle`].
const LOOKS_FOR_COUNTERS: u32 = 30;
/// See [`settle`].
const LOOK: Duration = Duration::from_millis(150);

/// A running collector and the way to talk to it.
pub struct LiveHost {
    /// Yields the samples.
    pub feed: Collector,
    /// Level, interval, stop.
    pub commands: Sender<CollectorCommand>,
}

/// Starts every source. Each sample reports sources that are missing; none of them is an error here. From then on the
/// calling thread, which is to sample, has the rights that sampling needs and no others.
pub fn start(settings: &Settings) -> LiveHost {
    start_with(settings, CapabilitySet::empty(), false)
}

/// The same. `files` stays as well, for the files that this thread writes; `at_once` connects to libvirt even if it has
/// no guest here.
pub fn start_with(settings: &Settings, files: CapabilitySet, at_once: bool) -> LiveHost {
    let paths = SystemPaths::default();
    keep(rights::for_start(settings.monitor) | files);
    let (engine, problems) = engine(settings.engine, &paths);
    if engine.is_none()
        && settings.engine != EngineChoice::Auto
        && let Some(why) = problems.first()
    {
        let engine = settings.engine.to_possible_value().unwrap_or_default();
        say(&format!("--engine {}: {}; {}; going on without exits", engine.get_name(), why.cause, why.fix));
    }
    let kind = engine.as_ref().map_or(EngineKind::None, |engine| engine.kind());
    let libvirt = Libvirt::start(LibvirtOptions { uri: settings.libvirt_uri.clone(), at_once });
    let outside = LibvirtAndQmp::new(libvirt, settings.monitor, COUNTERS_EVERY);
    let (commands, receiver) = channel();
    let mut feed = Collector::new(CollectorOptions {
        interval: settings.interval,
        engine,
        engine_problems: problems,
        metadata: Some(Box::new(outside)),
        commands: receiver,
        paths,
        ..CollectorOptions::default()
    });
    let traces = |detail| settings.engine_detail.contains(&detail);
    for (wanted, option, command) in [
        (settings.kvm_events, "--kvm-events", CollectorCommand::KvmEvents(true)),
        (traces(EngineDetail::Disks), "--engine-detail disks", CollectorCommand::Disks(true)),
        (traces(EngineDetail::Interrupts), "--engine-detail interrupts", CollectorCommand::Interrupts(true)),
    ] {
        if wanted && let Err(why) = feed.execute(command) {
            say(&format!("{option}: {}; {}", why.cause, why.fix));
        }
    }
    keep(rights::for_sampling(kind, settings.monitor) | files);
    LiveHost { feed, commands }
}

/// The first of the chosen engines that this host allows, and why better ones failed.
fn engine(choice: EngineChoice, paths: &SystemPaths) -> (Option<Box<dyn Engine>>, Vec<EngineError>) {
    type OpenEngine = fn(HostTopology, &SystemPaths) -> Result<Box<dyn Engine>, EngineError>;
    let bpf: OpenEngine = |topology, paths| Ok(Box::new(BpfEngine::new(topology, live::vcpus(paths))?));
    let perf: OpenEngine = |topology, _| Ok(Box::new(PerfEngine::open(EngineLevel::Full, topology)?));
    let candidates: &[OpenEngine] = match choice {
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

/// Ends the feed at the first SIGINT, SIGTERM or SIGHUP; a second one ends the process at once, in case something
/// hangs.
pub fn stop_on_signals(commands: Sender<CollectorCommand>) -> std::io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        rights::keep_none();
        let mut seen = signals.forever();
        seen.next();
        // A feed that is gone already needs no stop.
        let _ = commands.send(CollectorCommand::Stop);
        if let Some(signal) = seen.next() {
            std::process::exit(128 + signal);
        }
    })?;
    Ok(())
}

/// Waits for libvirt and the monitors before the first interval begins: the first look finds the guests, the next asks
/// who owns their addresses. The screen need not wait, because it shows names as they come; a single interval of text
/// cannot show them later. Without tracing, it waits for libvirt's counters, which take two readings.
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

/// Two samples of this host, an interval apart, once libvirt has had time to answer.
pub fn two_samples(settings: &Settings) -> [Sample; 2] {
    let mut live = start(settings);
    settle(&mut live.feed, settings.engine);
    let before = live.feed.tick();
    std::thread::sleep(settings.interval);
    [before, live.feed.tick()]
}

/// Whether libvirt answers, and has not yet given the counters of a guest that it may know.
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
    BatchPrinter::new(settings, args, "live").run(&mut live.feed)?;
    Ok(0)
}
