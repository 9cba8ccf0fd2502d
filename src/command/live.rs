//! The live host: starts the engine and the sources, and stops on a signal.

use super::batch::BatchPrinter;
use super::{give_up_all_but, say, say_kept};
use crate::cli::Settings;
use crate::cli::args::{BatchArgs, EngineChoice};
use crate::ui::EngineDetail;
use ::live::metadata::libvirt::Libvirt;
use ::live::{
    self, Collector, CollectorCommand, CollectorOptions, Discovery, LibvirtAndQmp, MonitorUse,
    SystemPaths,
};
use clap::ValueEnum;
use engine::events::{Engine, EngineError, OnDemand};
use engine::{bpf::BpfEngine, perf::PerfEngine};
use kvm::topology::HostTopology;
use rights::LaterCalls;
use rustix::thread::CapabilitySet;
use sample::{EngineKind, Sample};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

/// See [`settle`].
const LOOKS: u32 = 3;
/// See [`settle`].
const LOOK: Duration = Duration::from_millis(150);

/// A running collector and the way to talk to it.
pub struct LiveHost {
    /// Yields the samples.
    pub feed: Collector,
    /// Level, interval, stop.
    pub commands: Sender<CollectorCommand>,
}

/// Starts every source. Each sample reports sources that are missing; none of them is an error
/// here. From then on the calling thread, which is to sample, has the rights that sampling needs
/// and no others, and is not root.
pub fn start(settings: &Settings) -> LiveHost {
    start_with(settings, None, false)
}

/// The same. With `files`, the calling thread writes files: it stays root if it is, and keeps these
/// rights as well. `at_once` connects to libvirt even without guests of it.
pub fn start_with(settings: &Settings, files: Option<CapabilitySet>, at_once: bool) -> LiveHost {
    let paths = SystemPaths::default();
    // Its thread stays root, without capabilities: the daemon lets root query a guest's monitor,
    // and hardly others.
    let asks_monitors = settings.monitor != MonitorUse::Never;
    let libvirt = Libvirt::start(settings.libvirt_uri.clone(), at_once);
    let start = rights::for_start(asks_monitors);
    match files {
        Some(files) => give_up_all_but(start | files),
        None => say_kept(rights::give_up_root(start)),
    }
    let discovery = Discovery::begin(&paths);
    let (engine, problems) = engine(settings.engine, &paths, discovery.vcpus());
    let kind = engine
        .as_ref()
        .map_or(EngineKind::None, |engine| engine.kind());
    let outside = LibvirtAndQmp::new(libvirt, settings.monitor);
    let (commands, receiver) = channel();
    let mut feed = Collector::new(CollectorOptions {
        interval: settings.interval,
        engine,
        engine_problems: problems,
        metadata: Some(outside),
        commands: receiver,
        paths,
        discovery: Some(discovery),
        ..CollectorOptions::default()
    });
    let mut asked = Vec::new();
    if settings.kvm_events {
        let command = CollectorCommand::OnDemand(OnDemand::KvmEvents, true);
        asked.push(("--kvm-events".to_owned(), command));
    }
    for detail in &settings.engine_detail {
        let name = detail.to_possible_value().unwrap_or_default();
        let option = format!("--engine-detail {}", name.get_name());
        asked.push((option, detail.command(true)));
    }
    for (option, command) in asked {
        if let Err(why) = feed.execute(command) {
            say(&format!("{option}: {}; {}", why.cause, why.fix));
        }
    }
    give_up_all_but(
        rights::for_sampling(kind, asks_monitors) | files.unwrap_or(CapabilitySet::empty()),
    );
    // libvirt starts ssh, or a user's own daemon, for URIs of that kind.
    let has_uri =
        settings.libvirt_uri.is_some() || std::env::var_os("LIBVIRT_DEFAULT_URI").is_some();
    rights::forbid_system_calls(LaterCalls {
        programs: has_uri,
        monitors: asks_monitors,
    });
    LiveHost { feed, commands }
}

impl EngineDetail {
    /// Starts or ends taking it.
    pub fn command(self, on: bool) -> CollectorCommand {
        match self {
            Self::Disks => CollectorCommand::OnDemand(OnDemand::Disks, on),
            Self::Interrupts => CollectorCommand::OnDemand(OnDemand::Interrupts, on),
        }
    }
}

/// The first of the chosen engines that this host allows, and why better ones failed.
fn engine(
    choice: EngineChoice,
    paths: &SystemPaths,
    vcpus: usize,
) -> (Option<Box<dyn Engine>>, Vec<EngineError>) {
    type OpenEngine = fn(HostTopology, usize) -> Result<Box<dyn Engine>, EngineError>;
    let bpf: OpenEngine = |topology, vcpus| Ok(Box::new(BpfEngine::new(topology, vcpus)?));
    let perf: OpenEngine = |topology, _| Ok(Box::new(PerfEngine::open(topology)?));
    let candidates: &[OpenEngine] = match choice {
        EngineChoice::Auto => &[bpf, perf],
        EngineChoice::Bpf => &[bpf],
        EngineChoice::Perf => &[perf],
        EngineChoice::None => &[],
    };
    let mut problems = Vec::new();
    let topology = live::topology(&paths.sys);
    for open in candidates {
        match open(topology.clone(), vcpus) {
            Ok(engine) => return (Some(engine), problems),
            Err(why) => problems.push(why),
        }
    }
    (None, problems)
}

/// How long a writer may take to end after a signal, before its reader counts as one that takes
/// nothing.
const MAX_WAIT_AT_END: Duration = Duration::from_secs(3);

/// Ends the feed at the first SIGINT, SIGTERM or SIGHUP; a second one ends the process at once, in
/// case something hangs. A writer of text whose reader takes nothing is not waited for: the process
/// then ends with the status `unread`.
///
/// # Errors
/// The kernel gives no thread.
pub fn stop_on_signals(
    commands: Sender<CollectorCommand>,
    unread: Option<u8>,
) -> std::io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    crate::spawn("kvmtop/signals", move || {
        rights::keep_none();
        signals.forever().next();
        // A feed that is gone already needs no stop.
        let _ = commands.send(CollectorCommand::Stop);
        let end = unread.map(|status| (Instant::now() + MAX_WAIT_AT_END, status));
        loop {
            if let Some(signal) = signals.pending().next() {
                std::process::exit(128 + signal);
            }
            if let Some((at, status)) = end
                && Instant::now() >= at
            {
                std::process::exit(status.into());
            }
            std::thread::sleep(LOOK);
        }
    })?;
    Ok(())
}

/// Waits for libvirt and the monitors before the first interval begins: the first look finds the
/// guests, the next asks who owns their addresses. The screen need not wait, because it shows names
/// as they come; a single interval of text cannot show them later.
fn settle(feed: &mut Collector) {
    for _ in 0..LOOKS {
        feed.tick();
        std::thread::sleep(LOOK);
    }
}

/// Two samples of this host, an interval apart, once libvirt has had time to answer.
pub fn two_samples(settings: &Settings) -> [Sample; 2] {
    let mut live = start(settings);
    settle(&mut live.feed);
    let before = live.feed.tick();
    std::thread::sleep(settings.interval);
    [before, live.feed.tick()]
}

/// `kvmtop --batch`.
pub fn batch(settings: &Settings, args: &BatchArgs) -> anyhow::Result<u8> {
    let mut live = start(settings);
    stop_on_signals(live.commands, Some(super::FAILED))?;
    settle(&mut live.feed);
    BatchPrinter::new(settings, args, "live")?.run(&mut live.feed)?;
    Ok(0)
}
