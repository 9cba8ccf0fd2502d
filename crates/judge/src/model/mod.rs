//! What happened between two samples: rates, shares and joins. Pure: no I/O, no clock, no thread.

mod accesses;
pub mod call_tree;
mod config;
mod cpu;
mod devices;
mod disk_config;
mod domain;
mod earlier;
mod exit_kind;
mod exits;
mod guest;
mod history;
mod host;
mod host_devices;
mod host_disks;
mod interrupts;
pub mod jobs;
mod request_time;
mod sum;
mod traced;

pub use accesses::{AccessRow, DeviceName};
pub use config::{CpuPlace, Enlightenments, GuestConfig, Machine, NumaConfig, Pins, TimerConfig};
pub use cpu::{CpuShare, ThreadModel};
pub use devices::{DiskRates, NicRates};
pub use disk_config::{DiskConfig, LimitUse};
pub use domain::{DomainModel, ExitRate, ExitRateSource, Rates, SwapUse, UserspaceExits};
pub(crate) use exit_kind::ExitKind;
pub use exits::{ExitRow, ExitTable, share};
pub use guest::{Confidence, GuestGuess, GuestKind, kind_of_name};
pub(crate) use guest::{drive_files, has_device};
pub use history::{HISTORY_POINTS, History, HistoryPoint};
pub use host::{
    CpuModel, GuestThread, HostModel, HostTaskModel, HostUsage, PressureModel, TaskGroup,
};
pub use host_devices::{ByteRates, HostLinkModel, HostNodeModel, WholeDiskModel};
pub use host_disks::{HostDiskModel, addressed};
pub use interrupts::{DoorbellModel, InjectionModel};
pub use request_time::Requests;
pub use sample::GuestId;
pub use sum::ModelSum;
pub use traced::Traced;

use std::collections::{BTreeMap, HashMap};

use sample::{
    DomainFacts, DomainState, EngineStatus, OwnCost, Sample, SourceId, SourceState, SourceStatus,
    growth,
};

/// A rate over a shorter interval says nothing, seconds.
pub(crate) const MIN_RATE_S: f64 = 0.05;

/// What a sample is compared with.
#[derive(Debug, Clone, Copy)]
pub enum Base<'a> {
    /// Without an earlier sample: facts and states only, no rates.
    Start,
    /// The sample before.
    Previous(&'a Sample),
    /// The sample's counters cover one interval (a table in a file), with its length in seconds if
    /// known.
    Whole(Option<f64>),
}

/// One interval of a host, ready to be shown and judged.
#[derive(Debug, Clone, Default)]
pub struct Model {
    /// End of the interval, milliseconds since the Unix epoch.
    pub time_ms: i64,
    /// End of the interval, seconds of `CLOCK_MONOTONIC`, by which the kernel's log is stamped; 0
    /// for files.
    pub mono_s: f64,
    /// When the host was booted by the wall clock as it stands, milliseconds since the Unix epoch:
    /// it changes when that clock is set, and not while the host sleeps. `None` where the input
    /// does not tell.
    pub booted_ms: Option<i64>,
    /// Length of the interval in seconds; `None` without an interval or if its length is unknown.
    pub interval_s: Option<f64>,
    /// Number of intervals between samples that the figures are of; 1 except for a whole recording.
    pub intervals: u64,
    /// The engine, with `lost` and `overflow` of this interval in [`Model::lost`] and
    /// [`Model::overflow`].
    pub engine: EngineStatus,
    /// Events lost within the interval.
    pub lost: u64,
    /// Events without room in a bounded table within the interval.
    pub overflow: u64,
    /// The sources.
    pub sources: Vec<SourceStatus>,
    /// kvmtop's own CPU, percent of one CPU.
    pub own_cpu: Option<f64>,
    /// kvmtop's resident memory, bytes.
    pub own_rss: u64,
    /// How much longer than asked the intervals of late samples are, nanoseconds; 0: all came in
    /// time.
    pub late_ns: u64,
    /// The host.
    pub host: HostModel,
    /// The guests, in the sample's order.
    pub domains: Vec<DomainModel>,
}

impl Model {
    /// Why not every process of the host could be seen: there may be guests that are not among the
    /// domains. `None` when all were, or where the input is no live host.
    pub fn unseen_processes(&self) -> Option<&SourceStatus> {
        self.sources
            .iter()
            .find(|s| s.id == SourceId::Procfs && s.state != SourceState::Ok)
    }

    /// The sources that are not whole.
    pub fn troubled_sources(&self) -> Vec<(SourceId, SourceState)> {
        self.sources
            .iter()
            .filter(|s| s.state != SourceState::Ok)
            .map(|s| (s.id, s.state))
            .collect()
    }

    /// Compares a sample with its base.
    pub fn new(sample: &Sample, base: Base<'_>) -> Self {
        let (previous, interval_s) = match base {
            Base::Start => (None, None),
            Base::Previous(p) => (
                Some(p),
                Some(sample.mono_ns.saturating_sub(p.mono_ns) as f64 / 1e9),
            ),
            Base::Whole(s) => (None, s),
        };
        let interval_s = interval_s.filter(|s| *s > 0.0);
        let same_engine = previous.filter(|p| p.engine.generation == sample.engine.generation);
        let interval = SampleInterval {
            // A file may hold a few lines of a trace.
            seconds: interval_s.filter(|s| *s >= MIN_RATE_S),
            started: !matches!(base, Base::Start),
            engine_continues: same_engine.is_some(),
            whole: matches!(base, Base::Whole(_)),
            previous_boot_ns: previous.map(|p| p.boot_ns),
        };
        // The first one stays where two have the same identity. What ended does not continue: of a
        // guest that lived between two samples the start is not known, so a guest with the same id
        // would seem to continue it.
        let before = previous.into_iter().flat_map(|p| p.domains.iter().rev());
        let before = before.filter(|d| d.state != DomainState::Ended);
        let before: HashMap<_, _> = before.map(|d| (d.facts.id(), d)).collect();
        let domains = sample
            .domains
            .iter()
            .map(|d| DomainModel::new(d, before.get(&d.facts.id()).copied(), &interval, sample))
            .collect::<Vec<_>>();
        Self {
            time_ms: sample.time_ms,
            mono_s: sample.mono_ns as f64 / 1e9,
            booted_ms: (sample.boot_ns > 0)
                .then(|| sample::booted_ms(sample.time_ms, sample.boot_ns)),
            interval_s,
            intervals: 1,
            engine: sample.engine.clone(),
            lost: growth(sample.engine.lost, same_engine.map(|p| p.engine.lost)),
            overflow: growth(
                sample.engine.overflow,
                same_engine.map(|p| p.engine.overflow),
            ),
            sources: sample.sources.clone(),
            own_cpu: previous
                .filter(|p| p.own != OwnCost::default())
                .and_then(|p| interval.percent(sample.own.cpu_ns.checked_sub(p.own.cpu_ns)?)),
            own_rss: sample.own.rss_bytes,
            late_ns: if previous.is_some() {
                sample.own.late_ns
            } else {
                0
            },
            host: HostModel::new(&sample.host, previous.map(|p| &p.host), &domains, &interval),
            domains,
        }
    }

    /// Removes every other domain, also from the host's CPUs.
    pub fn retain(&mut self, wanted: impl Fn(&DomainFacts) -> bool) {
        self.domains.retain(|d| wanted(&d.facts));
        host::list_tenants(&mut self.host.cpus, &self.domains);
    }
}

/// The interval between two samples.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SampleInterval {
    /// Its length, if known.
    pub seconds: Option<f64>,
    /// False for a first sample, whose counters belong to no interval.
    pub started: bool,
    /// Whether event counters continue from the previous sample.
    pub engine_continues: bool,
    /// Whether all counters began at zero with the interval.
    pub whole: bool,
    /// `boot_ns` of the previous sample.
    pub previous_boot_ns: Option<u64>,
}

impl SampleInterval {
    /// A count as a rate per second.
    pub fn rate(&self, count: u64) -> Option<f64> {
        self.seconds.map(|s| count as f64 / s)
    }

    /// CPU nanoseconds as percent of one CPU.
    pub fn percent(&self, ns: u64) -> Option<f64> {
        self.seconds.map(|s| ns as f64 / (s * 1e7))
    }

    /// Whether something that started at `start_ticks` was born within the interval.
    pub fn born_within(&self, start_ticks: u64) -> bool {
        self.previous_boot_ns
            .is_some_and(|boot| born_since(start_ticks, boot))
    }
}

/// Whether something that started at `start_ticks` (1/100 s after boot) was born after a sample's
/// `boot_ns`. `USER_HZ` is 100 on every architecture that runs KVM (include/asm-generic/param.h).
pub fn born_since(start_ticks: u64, boot_ns: u64) -> bool {
    const TICK_NS: u64 = 10_000_000;
    start_ticks
        .saturating_mul(TICK_NS)
        .saturating_add(2 * TICK_NS)
        >= boot_ns
}

/// Growth of named counters, per second. A counter that the previous sample lacks is left out.
pub(crate) fn counter_rates(
    now: &BTreeMap<String, u64>,
    before: Option<&BTreeMap<String, u64>>,
    interval: &SampleInterval,
) -> Rates {
    let mut rates = Rates::default();
    for (name, n) in now {
        let grown = match before {
            Some(before) => before.get(name).and_then(|old| n.checked_sub(*old)),
            None if interval.whole => Some(*n),
            None => None,
        };
        if let Some(rate) = grown.and_then(|grown| interval.rate(grown)) {
            rates.insert(name.clone(), rate);
        }
    }
    rates
}

/// The sum of figures. Forged ones could be more than fits.
pub fn total(figures: impl Iterator<Item = u64>) -> u64 {
    figures.fold(0, u64::saturating_add)
}
