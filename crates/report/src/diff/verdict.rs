//! Sums a comparison up in one sentence.

use super::lines::{Change, DomainDiff, ExitLine};
use super::stats::{Compared, Verdict};
use super::{FindingsDiff, View};
use crate::table::cut;
use judge::figures::{change, duration, figure, or_unknown, percent, seconds};
use judge::model::total;
use schemars::JsonSchema;
use serde::Serialize;
use std::fmt::Write as _;

/// What all changes together mean.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// Something changed by more than noise.
    Changed,
    /// Nothing changed by more than noise.
    Nothing,
    /// The same, but one input covers a longer time.
    OnlyDuration,
    /// No guest is in both inputs, or one of them counted nothing.
    #[default]
    NotComparable,
}

/// A changed mean of fewer exits than this, in percent of all, is not a change of the whole.
const TELLING_SHARE: f64 = 1.0;
/// Durations with a smaller ratio count as the same.
const OTHER_DURATION: f64 = 1.1;

/// The count in one of the inputs.
type Count = fn(&Change) -> Option<u64>;

pub(super) fn cause(domains: &[DomainDiff]) -> Cause {
    let both: Vec<_> = domains.iter().filter(|d| d.in_both()).collect();
    let exits = |f: Count| total(both.iter().flat_map(|d| &d.exits).filter_map(|e| f(&e.change)));
    let accesses = |f: Count| total(both.iter().flat_map(|d| &d.accesses).filter_map(|a| f(&a.change)));
    let (before, after) = match (exits(|c| c.before), exits(|c| c.after)) {
        (0, 0) => (accesses(|c| c.before), accesses(|c| c.after)),
        both => both,
    };
    if both.is_empty() || (before == 0) != (after == 0) || before == 0 {
        return Cause::NotComparable;
    }
    if both.iter().flat_map(|d| d.changes()).any(|c| c.verdict.is_change() || mean_moved(c)) {
        return Cause::Changed;
    }
    let ratio = after as f64 / before as f64;
    if ratio.max(1.0 / ratio) >= OTHER_DURATION { Cause::OnlyDuration } else { Cause::Nothing }
}

/// Whether the mean time changed in a row with enough of the exits.
fn mean_moved(c: &Change) -> bool {
    let share = c.share.before.unwrap_or(0.0).max(c.share.after.unwrap_or(0.0));
    c.mean_us.verdict.is_change() && share >= TELLING_SHARE
}

pub(super) fn summary(
    before: &View<'_>,
    after: &View<'_>,
    domains: &[DomainDiff],
    cause: Cause,
    findings: &FindingsDiff,
) -> String {
    let times = before.model.interval_s.zip(after.model.interval_s);
    let mut text = match cause {
        Cause::NotComparable => not_comparable(before, after, domains),
        Cause::Nothing => "Nothing changed by more than noise".to_string(),
        Cause::OnlyDuration => only_duration(times, domains),
        Cause::Changed => {
            let changed: Vec<_> =
                domains.iter().filter(|d| d.in_both()).filter_map(|d| domain(d, times.is_some())).collect();
            changed.join("; ")
        }
    };
    for (n, what) in [(findings.gone.len(), "gone"), (findings.new.len(), "new"), (findings.changed.len(), "changed")] {
        if n > 0 {
            let _ = write!(text, "; {n} finding{} {what}", if n == 1 { "" } else { "s" });
        }
    }
    text + "."
}

fn not_comparable(before: &View<'_>, after: &View<'_>, domains: &[DomainDiff]) -> String {
    match (before.guests().count(), after.guests().count()) {
        (0, 0) => "Neither input holds a guest".into(),
        (0, _) => "The first input holds no guest".into(),
        (_, 0) => "The second input holds no guest".into(),
        _ if !domains.iter().any(DomainDiff::in_both) => "No guest is in both inputs".into(),
        _ => "At least one input counted no exits, so there is nothing to compare".into(),
    }
}

fn only_duration(times: Option<(f64, f64)>, domains: &[DomainDiff]) -> String {
    if let Some((b, a)) = times {
        let (b, a) = (seconds(b), seconds(a));
        return format!("Only the duration differs, {b} before and {a} after: all rates are the same within noise");
    }
    let count =
        |f: Count| total(domains.iter().filter(|d| d.in_both()).flat_map(DomainDiff::changes).filter_map(f)) as f64;
    let ratio = count(|c| c.after) / count(|c| c.before);
    let ratio = figure(ratio);
    format!(
        "All counts are {ratio} times what they were and every share is the same: most likely the same load, \
         counted for a different time (the inputs do not say for how long; --duration does)"
    )
}

/// `win10: 35.1k exits/s before, 1200 after (-96.6 %): IO_INSTRUCTION 25.7k/s to 0`; `None` if nothing changed.
fn domain(d: &DomainDiff, timed: bool) -> Option<String> {
    let mut moved: Vec<&ExitLine> = d.exits.iter().filter(|e| e.change.verdict.is_change() && !e.idle).collect();
    moved.sort_by(|a, b| distance(&b.change, timed).total_cmp(&distance(&a.change, timed)));
    let mut parts: Vec<_> =
        moved.iter().take(3).map(|e| format!("{} {}", cut(&e.reason, 40), from_to(&e.change, timed, EXITS))).collect();
    if parts.is_empty() {
        let slower = d.exits.iter().filter(|e| mean_moved(&e.change) && !e.idle);
        parts.extend(slower.take(3).map(|e| format!("{} {}", cut(&e.reason, 40), mean(&e.change.mean_us))));
    }
    if parts.is_empty() {
        let ports = d.accesses.iter().filter(|a| a.change.verdict.is_change() || mean_moved(&a.change));
        parts.extend(ports.take(3).map(|a| {
            let name = a.device.as_deref().unwrap_or(a.space);
            let what = if a.change.verdict.is_change() {
                from_to(&a.change, timed, accesses(a.space))
            } else {
                mean(&a.change.mean_us)
            };
            format!("{} {} {}", cut(name, 40), a.address, what)
        }));
    }
    if parts.is_empty() {
        let asleep = d.exits.iter().filter(|e| e.idle && e.change.verdict.is_change());
        parts.extend(asleep.take(1).map(|e| format!("{} {}", cut(&e.reason, 40), from_to(&e.change, timed, EXITS))));
    }
    if parts.is_empty() {
        return None;
    }
    let work = match (d.work.before, d.work.after, d.work.verdict) {
        (Some(b), Some(a), v) if timed && v != Verdict::Unknown => {
            format!("{} exits/s before, {} after{}: ", figure(b), figure(a), change_words(&d.work))
        }
        _ => String::new(),
    };
    Some(format!("{}: {work}{}", cut(d.name(), 48), parts.join(", ")))
}

fn distance(c: &Change, timed: bool) -> f64 {
    let by = |x: &Compared| (x.after.unwrap_or(0.0) - x.before.unwrap_or(0.0)).abs();
    if timed { by(&c.rate) } else { by(&c.share) }
}

/// What the share of an exit reason is a share of.
const EXITS: &str = " % of its exits";

/// What the share of an address is a share of.
fn accesses(space: &str) -> &'static str {
    match space {
        "pio" => " % of its port accesses",
        "mmio" => " % of its device memory accesses",
        _ => " % of its MSR accesses",
    }
}

/// `share_of` is the unit of a share, which is used where no rate is known.
fn from_to(c: &Change, timed: bool, share_of: &'static str) -> String {
    let (x, write, unit): (_, fn(f64) -> String, _) = if timed && c.rate.verdict != Verdict::Unknown {
        (&c.rate, figure, "/s")
    } else {
        (&c.share, percent, share_of)
    };
    match c.verdict {
        Verdict::Gone => format!("is gone ({}{unit} before)", or_unknown(x.before, write)),
        Verdict::New => format!("is new ({}{unit})", or_unknown(x.after, write)),
        _ => format!("{} to {}{unit}", or_unknown(x.before, write), or_unknown(x.after, write)),
    }
}

fn mean(x: &Compared) -> String {
    format!("{} to {} on average", or_unknown(x.before, duration), or_unknown(x.after, duration))
}

/// ` (-96.6 %)`, ` (12 times as many)`, or nothing for what is the same.
fn change_words(x: &Compared) -> String {
    match (x.verdict, x.change_percent) {
        (Verdict::Same, _) => " (the same within noise)".into(),
        (_, Some(p)) if p >= 300.0 => format!(" ({} times as many)", figure(1.0 + p / 100.0)),
        (_, Some(p)) => format!(" ({})", change(p)),
        _ => String::new(),
    }
}
