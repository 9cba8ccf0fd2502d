//! Pairs the guests, exit reasons and addresses of both inputs. In an array of two, the first
//! element is of the first input (before), the second of the second (after).

use super::stats::{self, Compared, Verdict};
use crate::text::exit_name;
use crate::{View, objects};
use judge::model::{AccessRow, DomainModel, ExitRow, total};
use kvm::Space;
use sample::{DomainState, EngineKind, Timing};
use std::collections::BTreeMap;

/// A changed mean of fewer exits than this does not count as a change, percent of all exits.
const TELLING_SHARE: f64 = 1.0;

objects! {
    /// The figures of an exit reason or an address on both sides.
    #[derive(Copy)]
    pub struct Change(
        counts: [Option<u64>; 2], of_time: Compared, of_all: Compared, times: [Option<&Timing>; 2]
    ) {
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
        /// The row's verdict: the verdict of `rate`, or of `share` where a side's duration is
        /// unknown.
        verdict: Verdict = match of_time.verdict {
            Verdict::Unknown => of_all.verdict,
            known => known,
        },
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
    pub struct AccessLine(row: &AccessRow, figures: Change) {
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
        device: Option<String> = row.device_name().map(ToOwned::to_owned),
        /// The figures.
        #[serde(flatten)]
        change: Change = figures,
    }

    /// A guest on both sides, matched by its UUID, else by its name without the process id at its
    /// end; a single guest on each side is the same one.
    pub struct DomainDiff(pair: Pair<'_>, seconds: [Option<f64>; 2], traced: [bool; 2]) {
        /// Its name on the first side. `null`: not there.
        before: Option<String> = pair[0].map(|d| d.name().to_owned()),
        /// Its name on the second side. `null`: not there.
        after: Option<String> = pair[1].map(|d| d.name().to_owned()),
        /// Exits per second in which the guest does not sleep.
        work: Compared = compare_work(pair, seconds),
        /// CPU time of all threads, percent of one host CPU.
        cpu_percent: Compared = Compared::new(pair.map(|d| Some(d?.cpu?.busy())), Verdict::Unknown),
        /// By reason, largest first.
        exits: Vec<ExitLine> = exit_lines(pair, seconds),
        /// By address, largest first.
        accesses: Vec<AccessLine> = access_lines(pair, seconds, traced),
    }
}

impl Change {
    /// Whether the row changed: how often, or how long if it has enough of the exits.
    pub(crate) fn is_change(&self) -> bool {
        let share = self
            .share
            .before
            .unwrap_or(0.0)
            .max(self.share.after.unwrap_or(0.0));
        self.verdict.is_change() || (self.mean_us.verdict.is_change() && share >= TELLING_SHARE)
    }

    /// The larger count, for the order of rows.
    fn most(&self) -> Option<u64> {
        self.before.max(self.after)
    }
}

/// An exit reason or an address that changed.
pub(crate) struct ChangedRow<'a> {
    pub name: String,
    pub change: &'a Change,
}

impl DomainDiff {
    /// The name in the second input, else in the first.
    pub fn name(&self) -> &str {
        self.after
            .as_deref()
            .or(self.before.as_deref())
            .unwrap_or("")
    }

    /// Whether it is in both inputs.
    pub fn in_both(&self) -> bool {
        self.before.is_some() && self.after.is_some()
    }

    /// The rows that changed.
    pub(crate) fn changed_rows(&self) -> Vec<ChangedRow<'_>> {
        let mut rows = Vec::new();
        for exit in &self.exits {
            rows.push(ChangedRow {
                name: exit_name(&exit.reason, exit.idle),
                change: &exit.change,
            });
        }
        for a in &self.accesses {
            let device = a.device.as_deref().unwrap_or_default();
            rows.push(ChangedRow {
                name: format!("{} {} {} {device}", a.space, a.address, a.access),
                change: &a.change,
            });
        }
        rows.retain(|row| row.change.is_change());
        rows
    }

    /// The figures of all rows.
    pub(super) fn changes(&self) -> impl Iterator<Item = &Change> {
        self.exits
            .iter()
            .map(|e| &e.change)
            .chain(self.accesses.iter().map(|a| &a.change))
    }
}

/// A guest on both sides.
type Pair<'a> = [Option<&'a DomainModel>; 2];

/// Compares the guests, and says which could not be matched.
pub(super) fn compare_guests(views: [&View<'_>; 2]) -> (Vec<DomainDiff>, Vec<String>) {
    let (pairs, remarks) = pair_guests(views.map(|v| v.guests().collect()));
    let is_traced =
        |view: &View<'_>| matches!(view.model.engine.kind, EngineKind::Bpf | EngineKind::Perf);
    let compared = pairs.into_iter().map(|pair| {
        // A guest that is missing in one input was not measured there, which is not the same as
        // zero exits.
        let seconds = [0, 1].map(|side| {
            pair[side]?;
            views[side].model.interval_s
        });
        let traced = [0, 1].map(|side| pair[side].is_some() && is_traced(views[side]));
        DomainDiff::new(pair, seconds, traced)
    });
    (compared.collect(), remarks)
}

/// Pairs the guests whose UUID, or else whose name, is unique on both sides; guests of the first
/// input come first. Also returns a sentence about each name that several guests have.
fn pair_guests([mut old, mut new]: [Vec<&DomainModel>; 2]) -> (Vec<Pair<'_>>, Vec<String>) {
    let (mut pairs, mut remarks) = (Vec::new(), Vec::new());
    if let ([before], [after]) = (&*old, &*new) {
        return (vec![[Some(*before), Some(*after)]], remarks);
    }
    for sign in [uuid, name_without_pid] {
        let mut signs: BTreeMap<String, [Vec<&DomainModel>; 2]> = BTreeMap::new();
        for (side, guests) in [&old, &new].into_iter().enumerate() {
            // A recording has a restarted guest twice: the running one represents both.
            let living = guests.iter().filter(|d| d.state != DomainState::Ended);
            for guest in living {
                if let Some(sign) = sign(guest) {
                    signs.entry(sign).or_default()[side].push(guest);
                }
            }
        }
        for (sign, sides) in signs {
            match &sides {
                [before, after] if before.is_empty() || after.is_empty() => {}
                [before, after] if before.len() == 1 && after.len() == 1 => {
                    old.retain(|d| !std::ptr::eq(*d, before[0]));
                    new.retain(|d| !std::ptr::eq(*d, after[0]));
                    pairs.push([Some(before[0]), Some(after[0])]);
                }
                _ => remarks.push(format!(
                    "'{sign}' is not compared: several guests could be it"
                )),
            }
        }
    }
    pairs.extend(old.into_iter().map(|d| [Some(d), None]));
    pairs.extend(new.into_iter().map(|d| [None, Some(d)]));
    (pairs, remarks)
}

fn uuid(d: &DomainModel) -> Option<String> {
    Some(d.facts.uuid.as_ref()?.value.to_ascii_lowercase())
}

/// The name, without the process id at its end; `None` without a name.
fn name_without_pid(d: &DomainModel) -> Option<String> {
    let pid = d.facts.pid.map(|pid| format!("-{pid}")).unwrap_or_default();
    let name = d.name().strip_suffix(&pid).unwrap_or(d.name());
    Some(name.to_owned()).filter(|name| !name.is_empty())
}

/// Compares the exits per second without sleep. If neither input has exits, none were measured.
fn compare_work(pair: Pair<'_>, seconds: [Option<f64>; 2]) -> Compared {
    let is_measured = pair.iter().flatten().any(|d| d.exits.count > 0);
    if is_measured {
        stats::rates(pair.map(|d| d.map_or(0, exits_without_sleep)), seconds)
    } else {
        Compared::default()
    }
}

fn exits_without_sleep(guest: &DomainModel) -> u64 {
    let awake = guest.exits.rows.iter().filter(|r| !r.idle);
    total(awake.map(|r| r.span.count))
}

/// Pairs the rows of both sides that are about the same thing, as `key` says.
fn pair_rows<'a, R, K: Ord>(
    rows: [Vec<&'a R>; 2],
    key: impl Fn(&'a R) -> K,
) -> BTreeMap<K, [Option<&'a R>; 2]> {
    let mut pairs: BTreeMap<K, [Option<&R>; 2]> = BTreeMap::new();
    for (side, rows) in rows.into_iter().enumerate() {
        for row in rows {
            pairs.entry(key(row)).or_default()[side] = Some(row);
        }
    }
    pairs
}

fn exit_lines(pair: Pair<'_>, seconds: [Option<f64>; 2]) -> Vec<ExitLine> {
    let totals = pair.map(|d| d.map_or(0, |d| d.exits.count));
    let rows = pair.map(|d| d.into_iter().flat_map(|d| &d.exits.rows).collect());
    let watched = totals.map(|count| count > 0);
    let mut lines = Vec::new();
    for (reason, rows) in pair_rows(rows, |r| &r.reason) {
        let spans = rows.map(|r: Option<&ExitRow>| r.map(|r| &r.span));
        let is_idle = rows.iter().flatten().any(|r| r.idle);
        let change = compare_rows(spans, totals, watched, seconds);
        lines.push(ExitLine::new(reason, is_idle, change));
    }
    lines.sort_by_key(|line| (line.idle, std::cmp::Reverse(line.change.most())));
    lines
}

fn access_lines(pair: Pair<'_>, seconds: [Option<f64>; 2], traced: [bool; 2]) -> Vec<AccessLine> {
    let mut lines = Vec::new();
    for space in [Space::Pio, Space::Mmio, Space::Msr] {
        let rows = pair.map(|d| {
            d.into_iter()
                .flat_map(|d| &d.accesses)
                .filter(|r| r.space == space)
                .collect::<Vec<&AccessRow>>()
        });
        let totals = [0, 1].map(|side| total(rows[side].iter().map(|r| r.span.count)));
        // A file without any access of this space did not measure them, which is not the same as
        // zero accesses. An engine counts all of them.
        let watched = [0, 1].map(|side| traced[side] || !rows[side].is_empty());
        for rows in pair_rows(rows, |r| (r.address, r.direction)).into_values() {
            let Some(any) = rows[1].or(rows[0]) else {
                continue;
            };
            lines.push(AccessLine::new(
                any,
                compare_rows(rows.map(|r| r.map(|r| &r.span)), totals, watched, seconds),
            ));
        }
    }
    lines.sort_by_key(|line| std::cmp::Reverse(line.change.most()));
    lines
}

fn compare_rows(
    spans: [Option<&Timing>; 2],
    totals: [u64; 2],
    watched: [bool; 2],
    seconds: [Option<f64>; 2],
) -> Change {
    let count = [0, 1].map(|side| {
        if watched[side] {
            Some(spans[side].map_or(0, |s| s.count))
        } else {
            None
        }
    });
    let (rate, share) = match count {
        [Some(b), Some(a)] => (stats::rates([b, a], seconds), stats::shares([b, a], totals)),
        _ => Default::default(),
    };
    Change::new(count, rate, share, spans)
}
