//! Sums a comparison up in one sentence.

use super::lines::{Change, DiffRow, DomainDiff};
use super::stats::{Compared, Verdict};
use super::{FindingsDiff, View};
use crate::table::cut;
use judge::figures::{change, count, duration, figure, or_unknown, percent, seconds};
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

/// Durations with a smaller ratio count as the same.
const OTHER_DURATION: f64 = 1.1;

/// How many there are in each of the inputs.
fn counted<'a>(changes: impl Iterator<Item = &'a Change>) -> [u64; 2] {
    let add = |sum: u64, more: Option<u64>| sum.saturating_add(more.unwrap_or(0));
    changes.fold([0, 0], |[before, after], c| [add(before, c.before), add(after, c.after)])
}

pub(super) fn cause(domains: &[DomainDiff]) -> Cause {
    let both: Vec<_> = domains.iter().filter(|d| d.in_both()).collect();
    let exits = counted(both.iter().flat_map(|d| &d.exits).map(|e| &e.change));
    let accesses = || counted(both.iter().flat_map(|d| &d.accesses).map(|a| &a.change));
    let [before, after] = if exits == [0, 0] { accesses() } else { exits };
    if before == 0 || after == 0 {
        return Cause::NotComparable;
    }
    if both.iter().flat_map(|d| d.changes()).any(Change::is_change) {
        return Cause::Changed;
    }
    let ratio = after as f64 / before as f64;
    if ratio.max(1.0 / ratio) >= OTHER_DURATION { Cause::OnlyDuration } else { Cause::Nothing }
}

pub(super) fn summary(views: [&View<'_>; 2], domains: &[DomainDiff], findings: &FindingsDiff) -> String {
    let mut both = domains.iter().filter(|d| d.in_both()).peekable();
    let mut text = match (cause(domains), views.map(|v| v.model.interval_s)) {
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
            let [before, after] = counted(both.flat_map(DomainDiff::changes));
            format!(
                "All counts are {} times what they were and every share is the same: most likely the same load, \
                 counted for a different time (the inputs do not say for how long; --duration does)",
                figure(after as f64 / before as f64)
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
    let mut rows = d.changed_rows(is_timed);
    let first = rows.iter().map(|row| row.rank).min()?;
    rows.retain(|row| row.rank == first);
    rows.sort_by(|a, b| distance(b).total_cmp(&distance(a)));
    let parts: Vec<String> = rows.iter().take(3).map(from_to).collect();
    let work = match (d.work.before, d.work.after) {
        (Some(before), Some(after)) if is_timed && d.work.verdict != Verdict::Unknown => {
            format!("{} exits/s before, {} after{}: ", figure(before), figure(after), change_words(&d.work))
        }
        _ => String::new(),
    };
    Some(format!("{}: {work}{}", cut(d.name(), 48), parts.join(", ")))
}

fn distance(row: &DiffRow<'_>) -> f64 {
    let figure = row.figure();
    (figure.after.unwrap_or(0.0) - figure.before.unwrap_or(0.0)).abs()
}

/// `HLT 120/s to 5.00/s`; a share where no rate is known.
fn from_to(row: &DiffRow<'_>) -> String {
    let change = row.change;
    let is_rate = row.timed && change.rate.verdict != Verdict::Unknown;
    let is_mean = !change.verdict.is_change();
    let [before, after] = match (is_mean, is_rate) {
        (true, _) => sides(&change.mean_us, duration),
        (false, true) => sides(&change.rate, figure),
        (false, false) => sides(&change.share, percent),
    };
    let unit = match (is_mean, is_rate) {
        (true, _) => " on average".to_owned(),
        (false, true) => "/s".to_owned(),
        (false, false) => format!(" % of its {}", row.whole),
    };
    let what = match change.verdict {
        Verdict::Gone => format!("is gone ({before}{unit} before)"),
        Verdict::New => format!("is new ({after}{unit})"),
        _ => format!("{before} to {after}{unit}"),
    };
    format!("{} {what}", cut(&row.name, 64))
}

fn sides(figure: &Compared, print: fn(f64) -> String) -> [String; 2] {
    [figure.before, figure.after].map(|value| or_unknown(value, print))
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
