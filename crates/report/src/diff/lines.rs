//! Pairs the guests, exit reasons and addresses of both inputs.

use super::matching::{MatchedBy, MatchedGuests, matched};
use super::stats::{self, Compared, Verdict};
use crate::View;
use judge::model::{AccessRow, DomainModel, ExitRow, total};
use kvm::Space;
use sample::{Direction, EngineKind, Timing};
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

/// Compares the guests, and says which could not be matched.
pub(super) fn domains(before: &View<'_>, after: &View<'_>) -> (Vec<DomainDiff>, Vec<String>) {
    let (old, new): (Vec<_>, Vec<_>) = (before.guests().collect(), after.guests().collect());
    let MatchedGuests { pairs, remarks } = matched(&old, &new);
    let compared = pairs.into_iter().map(|(b, a, by)| DomainDiff { matched_by: by, ..domain(b, a, before, after) });
    (compared.collect(), remarks)
}

fn domain(b: Option<&DomainModel>, a: Option<&DomainModel>, before: &View<'_>, after: &View<'_>) -> DomainDiff {
    // A guest that is missing in one input was not measured there, which is not the same as zero exits.
    let seconds = (before.model.interval_s.filter(|_| b.is_some()), after.model.interval_s.filter(|_| a.is_some()));
    let work =
        |d: Option<&DomainModel>| d.map_or(0, |d| total(d.exits.rows.iter().filter(|r| !r.idle).map(|r| r.span.count)));
    let traced = |d: Option<&DomainModel>, view: &View<'_>| {
        d.is_some() && matches!(view.model.engine.kind, EngineKind::Bpf | EngineKind::Perf)
    };
    let cpu = |d: Option<&DomainModel>| d.and_then(|d| d.cpu).map(|c| c.busy());
    DomainDiff {
        before: b.map(|d| d.name().to_string()),
        after: a.map(|d| d.name().to_string()),
        matched_by: None,
        // If neither input has exits, they were not measured.
        work: if [b, a].iter().flatten().any(|d| d.exits.count > 0) {
            stats::rates(work(b), seconds.0, work(a), seconds.1)
        } else {
            Compared::default()
        },
        cpu_percent: Compared::new(cpu(b), cpu(a), Verdict::Unknown),
        exits: exits(b, a, seconds),
        accesses: accesses(b, a, seconds, (traced(b, before), traced(a, after))),
    }
}

type Seconds = (Option<f64>, Option<f64>);

fn exits(b: Option<&DomainModel>, a: Option<&DomainModel>, seconds: Seconds) -> Vec<ExitLine> {
    let mut pairs: BTreeMap<&str, [Option<&ExitRow>; 2]> = BTreeMap::new();
    for (side, d) in [b, a].into_iter().enumerate() {
        for row in d.into_iter().flat_map(|d| &d.exits.rows) {
            pairs.entry(&row.reason).or_default()[side] = Some(row);
        }
    }
    let all = [b, a].map(|d| d.map_or(0, |d| d.exits.count));
    let watched = all.map(|count| count > 0);
    let mut lines: Vec<_> = pairs
        .into_iter()
        .map(|(reason, rows)| ExitLine {
            reason: reason.to_string(),
            idle: rows.iter().flatten().any(|r| r.idle),
            change: change(rows.map(|r| r.map(|r| &r.span)), all, watched, seconds),
        })
        .collect();
    lines.sort_by(|x, y| (x.idle, weight(&y.change)).cmp(&(y.idle, weight(&x.change))).then(x.reason.cmp(&y.reason)));
    lines
}

fn accesses(
    b: Option<&DomainModel>,
    a: Option<&DomainModel>,
    seconds: Seconds,
    traced: (bool, bool),
) -> Vec<AccessLine> {
    type AddressKey = (Space, Option<u64>, Direction);
    let mut pairs: BTreeMap<AddressKey, [Option<&AccessRow>; 2]> = BTreeMap::new();
    let mut all = [BTreeMap::<Space, u64>::new(), BTreeMap::new()];
    for (side, d) in [b, a].into_iter().enumerate() {
        for row in d.into_iter().flat_map(|d| &d.accesses) {
            pairs.entry((row.space, row.address, row.direction)).or_default()[side] = Some(row);
            let sum = all[side].entry(row.space).or_default();
            *sum = sum.saturating_add(row.span.count);
        }
    }
    // A file without any access of this space did not measure them, which is not the same as zero accesses. An engine
    // counts all of them.
    let watched = |space: Space| [traced.0 || all[0].contains_key(&space), traced.1 || all[1].contains_key(&space)];
    let mut lines: Vec<_> = pairs
        .into_iter()
        .filter_map(|((space, _, direction), rows)| {
            let sums = [0, 1].map(|side| all[side].get(&space).copied().unwrap_or(0));
            let any = rows[1].or(rows[0])?;
            Some(AccessLine {
                space: space.as_str(),
                address: any.address_text(),
                access: direction.as_str(),
                device: rows.iter().rev().flatten().find_map(|r| r.device_name()).map(ToString::to_string),
                change: change(rows.map(|r| r.map(|r| &r.span)), sums, watched(space), seconds),
            })
        })
        .collect();
    lines.sort_by(|x, y| weight(&y.change).cmp(&weight(&x.change)).then_with(|| x.address.cmp(&y.address)));
    lines
}

fn change(spans: [Option<&Timing>; 2], all: [u64; 2], watched: [bool; 2], seconds: Seconds) -> Change {
    let count = [0, 1].map(|side| watched[side].then(|| spans[side].map_or(0, |s| s.count)));
    let (rate, share) = match (count[0], count[1]) {
        (Some(b), Some(a)) => (stats::rates(b, seconds.0, a, seconds.1), stats::shares((b, all[0]), (a, all[1]))),
        _ => (Compared::default(), Compared::default()),
    };
    Change {
        before: count[0],
        after: count[1],
        rate,
        share,
        mean_us: stats::means(spans[0], spans[1]),
        p99_us: stats::p99(spans[0], spans[1]),
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
