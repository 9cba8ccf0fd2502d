//! Pairs the guests, exit reasons and addresses of both inputs.

use super::matching::{MatchedBy, MatchedGuests};
use super::stats::{self, Compared, Verdict};
use crate::View;
use judge::model::{AccessRow, DomainModel, ExitRow, total};
use kvm::Space;
use sample::{EngineKind, Timing};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;

/// The figures of an exit reason or an address on both sides.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Change {
    /// Count on the first side. `null`: that side did not count such a thing.
    pub before: Option<u64>,
    /// Count on the second side. `null`: that side did not count such a thing.
    pub after: Option<u64>,
    /// Per second.
    pub rate: Compared,
    /// Percent: of the guest's exits, or of its accesses in the same space.
    pub share: Compared,
    /// Mean time, microseconds.
    pub mean_us: Compared,
    /// 99th percentile of the time, microseconds.
    pub p99_us: Compared,
    /// The row's verdict: the verdict of `rate`, or of `share` where a side's duration is unknown.
    pub verdict: Verdict,
}

/// An exit reason on both sides.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ExitLine {
    /// Name of the reason.
    pub reason: String,
    /// Whether the guest sleeps in it.
    pub idle: bool,
    /// The figures.
    #[serde(flatten)]
    pub change: Change,
}

/// An address on both sides.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct AccessLine {
    /// Port, memory or model-specific register.
    #[schemars(extend("enum" = ["pio", "mmio", "msr"]))]
    pub space: &'static str,
    /// As in `access`.
    #[schemars(extend("pattern" = "^(0x[0-9a-f]+|other)$"))]
    pub address: String,
    /// Direction.
    #[schemars(extend("enum" = ["read", "write"]))]
    pub access: &'static str,
    /// The device that owns the address. `null`: unknown.
    pub device: Option<String>,
    /// The figures.
    #[serde(flatten)]
    pub change: Change,
}

/// A guest on both sides, matched by its process, UUID or name, else by its name without the process id if no other
/// guest has it; a single guest on each side is the same one.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct DomainDiff {
    /// Its name on the first side. `null`: not there.
    pub before: Option<String>,
    /// Its name on the second side. `null`: not there.
    pub after: Option<String>,
    /// How both were matched: `process`, `uuid`, `name`, `kind` or `alone`. `kind`: the name without the process id.
    /// `alone`: each side has a single guest. `null`: on one side only.
    pub matched_by: Option<MatchedBy>,
    /// Exits per second in which the guest does not sleep.
    pub work: Compared,
    /// CPU time of all threads, percent of one host CPU.
    pub cpu_percent: Compared,
    /// By reason, largest first.
    pub exits: Vec<ExitLine>,
    /// By address, largest first.
    pub accesses: Vec<AccessLine>,
}

impl ExitLine {
    pub(crate) fn name(&self) -> String {
        if self.idle { format!("{} (sleep)", self.reason) } else { self.reason.clone() }
    }
}

impl AccessLine {
    pub(crate) fn name(&self) -> String {
        let device = self.device.as_deref().map(|d| format!(" {d}")).unwrap_or_default();
        format!("{} {} {}{device}", self.space, self.address, self.access)
    }
}

impl DomainDiff {
    /// The name in the second input, else in the first.
    pub fn name(&self) -> &str {
        self.after.as_deref().or(self.before.as_deref()).unwrap_or("")
    }

    /// Whether it is in both inputs.
    pub fn in_both(&self) -> bool {
        self.before.is_some() && self.after.is_some()
    }

    /// The figures of all rows.
    pub(super) fn changes(&self) -> impl Iterator<Item = &Change> {
        self.exits.iter().map(|e| &e.change).chain(self.accesses.iter().map(|a| &a.change))
    }
}

/// A guest on both sides.
type Pair<'a> = [Option<&'a DomainModel>; 2];

/// Compares the guests, and says which could not be matched.
pub(super) fn domains(views: [&View<'_>; 2]) -> (Vec<DomainDiff>, Vec<String>) {
    let MatchedGuests { pairs, remarks } = MatchedGuests::new(views.map(|v| v.guests().collect()));
    let compared = pairs.into_iter().map(|(pair, by)| DomainDiff { matched_by: by, ..domain(pair, views) });
    (compared.collect(), remarks)
}

fn domain(pair: Pair<'_>, views: [&View<'_>; 2]) -> DomainDiff {
    // A guest that is missing in one input was not measured there, which is not the same as zero exits.
    let seconds = [0, 1].map(|side| views[side].model.interval_s.filter(|_| pair[side].is_some()));
    let is_traced = |view: &View<'_>| matches!(view.model.engine.kind, EngineKind::Bpf | EngineKind::Perf);
    let traced = [0, 1].map(|side| pair[side].is_some() && is_traced(views[side]));
    let [before, after] = pair.map(|d| d.map(|d| d.name().to_string()));
    DomainDiff {
        before,
        after,
        matched_by: None,
        // If neither input has exits, they were not measured.
        work: if pair.iter().flatten().any(|d| d.exits.count > 0) {
            let awake = |d: &DomainModel| total(d.exits.rows.iter().filter(|r| !r.idle).map(|r| r.span.count));
            stats::rates(pair.map(|d| d.map_or(0, awake)), seconds)
        } else {
            Compared::default()
        },
        cpu_percent: Compared::new(pair.map(|d| Some(d?.cpu?.busy())), Verdict::Unknown),
        exits: exits(pair, seconds),
        accesses: accesses(pair, seconds, traced),
    }
}

/// The rows of both sides by what they are about.
fn paired<'a, R, K: Ord>(rows: [Vec<&'a R>; 2], key: impl Fn(&'a R) -> K) -> BTreeMap<K, [Option<&'a R>; 2]> {
    let mut pairs: BTreeMap<K, [Option<&R>; 2]> = BTreeMap::new();
    for (side, rows) in rows.into_iter().enumerate() {
        rows.into_iter().for_each(|row| pairs.entry(key(row)).or_default()[side] = Some(row));
    }
    pairs
}

fn exits(pair: Pair<'_>, seconds: [Option<f64>; 2]) -> Vec<ExitLine> {
    let all = pair.map(|d| d.map_or(0, |d| d.exits.count));
    let rows = pair.map(|d| d.into_iter().flat_map(|d| &d.exits.rows).collect());
    let line = |(reason, rows): (&String, [Option<&ExitRow>; 2])| ExitLine {
        reason: reason.clone(),
        idle: rows.iter().flatten().any(|r| r.idle),
        change: change(rows.map(|r| r.map(|r| &r.span)), all, all.map(|count| count > 0), seconds),
    };
    let mut lines: Vec<_> = paired(rows, |r| &r.reason).into_iter().map(line).collect();
    lines.sort_by(|x, y| (x.idle, weight(&y.change)).cmp(&(y.idle, weight(&x.change))).then(x.reason.cmp(&y.reason)));
    lines
}

fn accesses(pair: Pair<'_>, seconds: [Option<f64>; 2], traced: [bool; 2]) -> Vec<AccessLine> {
    let mut lines = Vec::new();
    for space in [Space::Pio, Space::Mmio, Space::Msr] {
        let rows = pair
            .map(|d| d.into_iter().flat_map(|d| &d.accesses).filter(|r| r.space == space).collect::<Vec<&AccessRow>>());
        let all = [0, 1].map(|side| total(rows[side].iter().map(|r| r.span.count)));
        // A file without any access of this space did not measure them, which is not the same as zero accesses. An
        // engine counts all of them.
        let watched = [0, 1].map(|side| traced[side] || !rows[side].is_empty());
        for ((_, direction), rows) in paired(rows, |r| (r.address, r.direction)) {
            let Some(any) = rows[1].or(rows[0]) else { continue };
            lines.push(AccessLine {
                space: space.as_str(),
                address: any.address_text(),
                access: direction.as_str(),
                device: rows.iter().rev().flatten().find_map(|r| r.device_name()).map(ToString::to_string),
                change: change(rows.map(|r| r.map(|r| &r.span)), all, watched, seconds),
            });
        }
    }
    lines.sort_by(|x, y| weight(&y.change).cmp(&weight(&x.change)).then_with(|| x.address.cmp(&y.address)));
    lines
}

fn change(spans: [Option<&Timing>; 2], all: [u64; 2], watched: [bool; 2], seconds: [Option<f64>; 2]) -> Change {
    let count = [0, 1].map(|side| watched[side].then(|| spans[side].map_or(0, |s| s.count)));
    let (rate, share) = match count {
        [Some(b), Some(a)] => (stats::rates([b, a], seconds), stats::shares([b, a], all)),
        _ => Default::default(),
    };
    Change {
        before: count[0],
        after: count[1],
        rate,
        share,
        mean_us: stats::means(spans),
        p99_us: stats::p99(spans),
        verdict: if rate.verdict == Verdict::Unknown { share.verdict } else { rate.verdict },
    }
}

fn weight(c: &Change) -> u64 {
    // In thousandths, because a whole number has an order.
    let most = |x: &Compared| x.before.unwrap_or(0.0).max(x.after.unwrap_or(0.0));
    let figure = if c.rate.verdict == Verdict::Unknown { most(&c.share) } else { most(&c.rate) };
    let count = c.before.max(c.after).unwrap_or(0);
    if figure > 0.0 { (figure * 1e3) as u64 } else { count }
}
