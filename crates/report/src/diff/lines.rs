//! Pairs the guests, exit reasons and addresses of both inputs.

use super::matching::{self, MatchedBy};
use super::stats::{self, Compared, Verdict};
use crate::text::exit_name;
use crate::{View, objects};
use judge::model::{AccessRow, DomainModel, ExitRow, total};
use kvm::Space;
use sample::{EngineKind, Timing};
use std::collections::BTreeMap;

/// A changed mean of fewer exits than this, in percent of all, is not a change of the whole.
const TELLING_SHARE: f64 = 1.0;

objects! {
    /// The figures of an exit reason or an address on both sides.
    #[derive(Copy)]
    pub struct Change(counts: [Option<u64>; 2], of_time: Compared, of_all: Compared, times: [Option<&Timing>; 2]) {
        /// Count on the first side. `null`: that side did not count such a thing.
        before: Option<u64> = counts[0],
        /// Count on the second side. `null`: that side did not count such a thing.
        after: Option<u64> = counts[1],
        /// Per second.
        rate: Compared = of_time,
        /// Percent: of the guest's exits, or of its accesses in the same space.
        share: Compared = of_all,
        /// Mean time, microseconds.
        mean_us: Compared = stats::means(times),
        /// 99th percentile of the time, microseconds.
        p99_us: Compared = stats::p99(times),
        /// The row's verdict: the verdict of `rate`, or of `share` where a side's duration is unknown.
        verdict: Verdict = if of_time.verdict == Verdict::Unknown { of_all.verdict } else { of_time.verdict },
    }

    /// An exit reason on both sides.
    pub struct ExitLine(name: &str, is_idle: bool, figures: Change) {
        /// Name of the reason.
        reason: String = name.to_owned(),
        /// Whether the guest sleeps in it.
        idle: bool = is_idle,
        /// The figures.
        #[serde(flatten)]
        change: Change = figures,
    }

    /// An address on both sides.
    pub struct AccessLine(row: &AccessRow, owner: Option<&str>, figures: Change) {
        /// Port, memory or model-specific register.
        #[schemars(extend("enum" = ["pio", "mmio", "msr"]))]
        space: &'static str = row.space.as_str(),
        /// As in `access`.
        #[schemars(extend("pattern" = "^(0x[0-9a-f]+|other)$"))]
        address: String = row.address_text(),
        /// Direction.
        #[schemars(extend("enum" = ["read", "write"]))]
        access: &'static str = row.direction.as_str(),
        /// The device that owns the address. `null`: unknown.
        device: Option<String> = owner.map(ToOwned::to_owned),
        /// The figures.
        #[serde(flatten)]
        change: Change = figures,
    }

    /// A guest on both sides, matched by its process, UUID or name, else by its name without the process id if no other
    /// guest has it; a single guest on each side is the same one.
    pub struct DomainDiff(pair: Pair<'_>, by: Option<MatchedBy>, seconds: [Option<f64>; 2], traced: [bool; 2]) {
        /// Its name on the first side. `null`: not there.
        before: Option<String> = pair[0].map(|d| d.name().to_owned()),
        /// Its name on the second side. `null`: not there.
        after: Option<String> = pair[1].map(|d| d.name().to_owned()),
        /// How both were matched: `process`, `uuid`, `name`, `kind` or `alone`. `kind`: the name without the process
        /// id. `alone`: each side has a single guest. `null`: on one side only.
        matched_by: Option<MatchedBy> = by,
        /// Exits per second in which the guest does not sleep.
        work: Compared = work(pair, seconds),
        /// CPU time of all threads, percent of one host CPU.
        cpu_percent: Compared = Compared::new(pair.map(|d| Some(d?.cpu?.busy())), Verdict::Unknown),
        /// By reason, largest first.
        exits: Vec<ExitLine> = exits(pair, seconds),
        /// By address, largest first.
        accesses: Vec<AccessLine> = accesses(pair, seconds, traced),
    }
}

impl Change {
    /// Whether the row changed: how often, or how long with enough of the exits.
    pub(crate) fn is_change(&self) -> bool {
        let share = self.share.before.unwrap_or(0.0).max(self.share.after.unwrap_or(0.0));
        self.verdict.is_change() || (self.mean_us.verdict.is_change() && share >= TELLING_SHARE)
    }
}

/// An exit reason or an address as text names it.
pub(crate) struct DiffRow<'a> {
    /// How much a change of it says: less is more. Changed exits say most; without any, slower exits, then accesses,
    /// and at last exits in which the guest sleeps.
    pub rank: u8,
    pub name: String,
    /// What a share is a part of.
    pub whole: &'static str,
    /// Whether both sides say how long they are, so that rates are known.
    pub timed: bool,
    pub change: &'a Change,
}

impl DiffRow<'_> {
    /// The rate, or the share where a side's duration is unknown.
    pub fn figure(&self) -> &Compared {
        if self.timed { &self.change.rate } else { &self.change.share }
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

    /// The rows that changed.
    pub(crate) fn changed_rows(&self, timed: bool) -> Vec<DiffRow<'_>> {
        let mut rows = Vec::new();
        for exit in self.exits.iter().filter(|e| e.change.is_change()) {
            let rank = match (exit.idle, exit.change.verdict.is_change()) {
                (true, _) => 3,
                (false, true) => 0,
                (false, false) => 1,
            };
            let name = exit_name(&exit.reason, exit.idle);
            rows.push(DiffRow { rank, name, whole: "exits", timed, change: &exit.change });
        }
        for a in self.accesses.iter().filter(|a| a.change.is_change()) {
            let device = a.device.as_deref().unwrap_or_default();
            let name = format!("{} {} {} {device}", a.space, a.address, a.access).trim_end().to_owned();
            rows.push(DiffRow { rank: 2, name, whole: "accesses", timed, change: &a.change });
        }
        rows
    }

    /// The figures of all rows.
    pub(super) fn changes(&self) -> impl Iterator<Item = &Change> {
        self.exits.iter().map(|e| &e.change).chain(self.accesses.iter().map(|a| &a.change))
    }
}

/// A guest on both sides.
pub(super) type Pair<'a> = [Option<&'a DomainModel>; 2];

/// Compares the guests, and says which could not be matched.
pub(super) fn domains(views: [&View<'_>; 2]) -> (Vec<DomainDiff>, Vec<String>) {
    let (pairs, remarks) = matching::pairs(views.map(|v| v.guests().collect()));
    let is_traced = |view: &View<'_>| matches!(view.model.engine.kind, EngineKind::Bpf | EngineKind::Perf);
    let compared = pairs.into_iter().map(|(pair, by)| {
        // A guest that is missing in one input was not measured there, which is not the same as zero exits.
        let seconds = [0, 1].map(|side| views[side].model.interval_s.filter(|_| pair[side].is_some()));
        let traced = [0, 1].map(|side| pair[side].is_some() && is_traced(views[side]));
        DomainDiff::new(pair, by, seconds, traced)
    });
    (compared.collect(), remarks)
}

/// Exits per second without sleep. If neither input has exits, they were not measured.
fn work(pair: Pair<'_>, seconds: [Option<f64>; 2]) -> Compared {
    let awake = |d: &DomainModel| total(d.exits.rows.iter().filter(|r| !r.idle).map(|r| r.span.count));
    let is_measured = pair.iter().flatten().any(|d| d.exits.count > 0);
    if is_measured { stats::rates(pair.map(|d| d.map_or(0, awake)), seconds) } else { Compared::default() }
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
    let line = |(reason, rows): (&String, [Option<&ExitRow>; 2])| {
        let change = change(rows.map(|r| r.map(|r| &r.span)), all, all.map(|count| count > 0), seconds);
        ExitLine::new(reason, rows.iter().flatten().any(|r| r.idle), change)
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
        for rows in paired(rows, |r| (r.address, r.direction)).into_values() {
            let Some(any) = rows[1].or(rows[0]) else { continue };
            let device = rows.iter().rev().flatten().find_map(|r| r.device_name());
            let change = change(rows.map(|r| r.map(|r| &r.span)), all, watched, seconds);
            lines.push(AccessLine::new(any, device, change));
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
    Change::new(count, rate, share, spans)
}

fn weight(c: &Change) -> u64 {
    // In thousandths, because a whole number has an order.
    let most = |x: &Compared| x.before.unwrap_or(0.0).max(x.after.unwrap_or(0.0));
    let figure = if c.rate.verdict == Verdict::Unknown { most(&c.share) } else { most(&c.rate) };
    let count = c.before.max(c.after).unwrap_or(0);
    if figure > 0.0 { (figure * 1e3) as u64 } else { count }
}
