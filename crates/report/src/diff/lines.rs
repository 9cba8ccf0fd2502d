//! Pairs the guests, exit reasons and addresses of both inputs.

use super::partners::{MatchedBy, Partners, partners};
use super::stats::{self, Compared, Verdict};
use crate::View;
use judge::model::{AccessRow, DomainModel, ExitRow, total};
use kvm::Space;
use sample::{Direction, EngineKind, Timing};
use serde::Serialize;
use std::collections::BTreeMap;

/// A row of both sides: an exit reason, or an address.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Change {
    /// Count of the first input. `null` where it did not count such a thing at all.
    pub before: Option<u64>,
    /// Count of the second input. `null` where it did not count such a thing at all.
    pub after: Option<u64>,
    /// Per second. `unknown` where the length of one input is not known.
    pub rate: Compared,
    /// Percent of the guest's exits; for an access, of the accesses to the same space.
    pub share: Compared,
    /// Mean time, microseconds. `unknown` where one input has no times.
    pub mean_us: Compared,
    /// 99th percentile, microseconds. `unknown` where one input has no histogram.
    pub p99_us: Compared,
    /// What became of the row: the verdict of its rate, of its share where no rate is known.
    pub verdict: Verdict,
}

/// An exit reason in both inputs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ExitLine {
    /// Name of the reason.
    pub reason: String,
    /// Whether the guest sleeps in these exits (HLT, `WFx`).
    pub idle: bool,
    /// The figures; they stand in the row itself.
    #[serde(flatten)]
    pub change: Change,
}

/// An address in both inputs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AccessLine {
    /// `pio` (I/O port), `mmio` (device memory) or `msr`.
    pub space: &'static str,
    /// Port, guest-physical address or MSR number in hexadecimal; `other` for what did not fit the table of addresses.
    pub address: String,
    /// `read` or `write`.
    pub access: &'static str,
    /// Name of the device that owns the address, or of the MSR. `null` where nobody names it.
    pub device: Option<String>,
    /// The figures; they stand in the row itself.
    #[serde(flatten)]
    pub change: Change,
}

/// A guest in both inputs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DomainDiff {
    /// Its name in the first input. `null` if it is not there.
    pub before: Option<String>,
    /// Its name in the second input. `null` if it is not there.
    pub after: Option<String>,
    /// What the two are taken for the same by. `null` if it is in one input only.
    pub matched_by: Option<MatchedBy>,
    /// All exits but idle ones, per second.
    pub work: Compared,
    /// CPU time, percent of one host CPU. Its verdict is always `unknown`: one value says nothing of its noise.
    pub cpu_percent: Compared,
    /// Exits by reason, the largest first.
    pub exits: Vec<ExitLine>,
    /// Accesses by address, the largest first.
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
    let Partners { pairs, remarks } = partners(&old, &new);
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
