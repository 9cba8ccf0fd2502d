//! Sums a comparison up in one sentence.

use super::lines::{Change, DomainDiff, ExitLine};
use super::stats::{Compared, Verdict};
use super::{FindingsDiff, View};
use crate::table::cut;
use judge::figures::{change, count, duration, figure, or_unknown, percent, seconds};
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
    if before == 0 || after == 0 {
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

pub(super) fn summary(views: [&View<'_>; 2], domains: &[DomainDiff], cause: Cause, findings: &FindingsDiff) -> String {
    let mut both = domains.iter().filter(|d| d.in_both()).peekable();
    let mut text = match (cause, views.map(|v| v.model.interval_s)) {
        (Cause::NotComparable, _) => match views.map(|v| v.guests().count()) {
            [0, 0] => "Neither input holds a guest".into(),
            [0, _] => "The first input holds no guest".into(),
            [_, 0] => "The second input holds no guest".into(),
            _ if both.peek().is_none() => "No guest is in both inputs".into(),
            _ => "At least one input counted no exits, so there is nothing to compare".into(),
        },
        (Cause::Nothing, _) => "Nothing changed by more than noise".into(),
        (Cause::OnlyDuration, [Some(b), Some(a)]) => format!(
            "Only the duration differs, {} before and {} after: all rates are the same within noise",
            seconds(b),
            seconds(a)
        ),
        (Cause::OnlyDuration, _) => {
            let changes: Vec<_> = both.flat_map(DomainDiff::changes).collect();
            let count = |f: Count| total(changes.iter().filter_map(|c| f(c))) as f64;
            format!(
                "All counts are {} times what they were and every share is the same: most likely the same load, \
                 counted for a different time (the inputs do not say for how long; --duration does)",
                figure(count(|c| c.after) / count(|c| c.before))
            )
        }
        (Cause::Changed, times) => {
            let is_timed = times.iter().all(Option::is_some);
            both.filter_map(|d| domain(d, is_timed)).collect::<Vec<_>>().join("; ")
        }
    };
    for (n, what) in [(findings.gone.len(), "gone"), (findings.new.len(), "new"), (findings.changed.len(), "changed")] {
        if n > 0 {
            let _ = write!(text, "; {} {what}", count(n, "finding"));
        }
    }
    text + "."
}

/// `win10: 35.1k exits/s before, 1200 after (-96.6 %): IO_INSTRUCTION 25.7k/s to 0`; `None` if nothing changed.
fn domain(d: &DomainDiff, is_timed: bool) -> Option<String> {
    let exit = |e: &ExitLine, words: String| format!("{} {words}", cut(&e.reason, 40));
    let moved = |idle: bool, most: usize| {
        let mut moved: Vec<_> = d.exits.iter().filter(|e| e.idle == idle && e.change.verdict.is_change()).collect();
        moved.sort_by(|a, b| distance(&b.change, is_timed).total_cmp(&distance(&a.change, is_timed)));
        moved.into_iter().take(most).map(|e| exit(e, from_to(&e.change, is_timed, "exits"))).collect()
    };
    let slower = d.exits.iter().filter(|e| mean_moved(&e.change) && !e.idle).take(3);
    let slower = slower.map(|e| exit(e, mean(&e.change.mean_us))).collect();
    let accesses = d.accesses.iter().filter(|a| a.change.verdict.is_change() || mean_moved(&a.change)).take(3);
    let accesses = accesses.map(|a| {
        let is_moved = a.change.verdict.is_change();
        let words = if is_moved { from_to(&a.change, is_timed, space(a.space)) } else { mean(&a.change.mean_us) };
        format!("{} {} {words}", cut(a.device.as_deref().unwrap_or(a.space), 40), a.address)
    });
    let stages: [Vec<String>; 4] = [moved(false, 3), slower, accesses.collect(), moved(true, 1)];
    let parts = stages.into_iter().find(|parts| !parts.is_empty())?;
    let work = match (d.work.before, d.work.after, d.work.verdict) {
        (Some(b), Some(a), v) if is_timed && v != Verdict::Unknown => {
            format!("{} exits/s before, {} after{}: ", figure(b), figure(a), change_words(&d.work))
        }
        _ => String::new(),
    };
    Some(format!("{}: {work}{}", cut(d.name(), 48), parts.join(", ")))
}

fn distance(c: &Change, is_timed: bool) -> f64 {
    let x = if is_timed { &c.rate } else { &c.share };
    (x.after.unwrap_or(0.0) - x.before.unwrap_or(0.0)).abs()
}

/// The accesses of an address space, in words.
fn space(space: &str) -> &'static str {
    match space {
        "pio" => "port accesses",
        "mmio" => "device memory accesses",
        _ => "MSR accesses",
    }
}

/// `of_what` is the whole of a share, which is used where no rate is known.
fn from_to(c: &Change, is_timed: bool, of_what: &str) -> String {
    let (x, write, unit): (_, fn(f64) -> String, _) = if is_timed && c.rate.verdict != Verdict::Unknown {
        (&c.rate, figure, "/s".to_owned())
    } else {
        (&c.share, percent, format!(" % of its {of_what}"))
    };
    let [before, after] = [x.before, x.after].map(|value| or_unknown(value, write));
    match c.verdict {
        Verdict::Gone => format!("is gone ({before}{unit} before)"),
        Verdict::New => format!("is new ({after}{unit})"),
        _ => format!("{before} to {after}{unit}"),
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
