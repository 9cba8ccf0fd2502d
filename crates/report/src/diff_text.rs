//! A comparison as text tables.

use super::diff::{Change, Compared, Diff, DomainDiff, Verdict};
use super::table::{Table, cut};
use judge::figures::{change, figure, micros, or_unknown, percent, rate, seconds};
use judge::lint::Finding;
use std::fmt::Write as _;

/// Rows of each table.
const ROWS: usize = 25;

/// The summary, a table for each guest, and the findings.
pub fn text(diff: &Diff) -> String {
    let mut out = String::new();
    for condition in &diff.conditions {
        let _ = writeln!(out, "measured differently: {}", cut(&condition.sentence(), 400));
    }
    let _ = writeln!(out, "{}", cut(&diff.summary, 2000));
    let time = |s: Option<f64>| s.map_or_else(|| "duration unknown (give it with --duration)".to_string(), seconds);
    let _ = writeln!(out, "before: {}  after: {}", time(diff.before_s), time(diff.after_s));
    for remark in &diff.unsure {
        let _ = writeln!(out, "{}", cut(remark, 400));
    }
    let timed = diff.before_s.is_some() && diff.after_s.is_some();
    for d in &diff.domains {
        out.push_str(&domain(d, timed));
    }
    let one = |f: &Finding| {
        let who = f.domain.as_deref().map_or_else(|| "host".to_string(), |d| cut(d, 48));
        format!("{} {who}: {} [{}]", f.severity.as_str(), cut(&f.title, 200), f.rule)
    };
    let f = &diff.findings;
    if !(f.gone.is_empty() && f.new.is_empty() && f.changed.is_empty() && f.same.is_empty()) {
        out.push_str("\nfindings\n");
    }
    for (mark, list) in [("- gone ", &f.gone), ("+ new  ", &f.new)] {
        for finding in list {
            let _ = writeln!(out, "  {mark} {}", one(finding));
        }
    }
    for c in &f.changed {
        let _ = writeln!(out, "  ~ was {}, now {}", c.before.severity.as_str(), one(&c.after));
    }
    for finding in &f.same {
        let _ = writeln!(out, "    still {}", one(finding));
    }
    out
}

fn domain(d: &DomainDiff, timed: bool) -> String {
    let mut out = String::from("\n");
    match (&d.before, &d.after) {
        (Some(b), None) => return format!("\n{}: only before\n", cut(b, 64)),
        (None, Some(a)) => return format!("\n{}: only after\n", cut(a, 64)),
        (Some(b), Some(a)) if a != b => {
            let _ = writeln!(out, "{} (before: {})", cut(a, 64), cut(b, 64));
        }
        _ => {
            let _ = writeln!(out, "{}", cut(d.name(), 64));
        }
    }
    if let (Some(b), Some(a)) = (d.cpu_percent.before, d.cpu_percent.after) {
        let _ = writeln!(out, "  CPU {} % before, {} % after (of one host CPU)", percent(b), percent(a));
    }
    // The change follows its figures: in percent for a rate or a mean, in percentage points for a share.
    let figure = if timed { ["per s", "per s after", "rate +/-"] } else { ["share %", "share after", "points +/-"] };
    let exits = d.exits.iter().map(|e| {
        let name = if e.idle { format!("{} (sleep)", e.reason) } else { e.reason.clone() };
        (name, &e.change)
    });
    let accesses = d.accesses.iter().map(|a| {
        let device = a.device.as_deref().map(|d| format!(" {d}")).unwrap_or_default();
        (format!("{} {} {}{device}", a.space, a.address, a.access), &a.change)
    });
    out.push_str(&table("<EXIT", figure, exits, timed));
    out.push_str(&table("<ACCESS", figure, accesses, timed));
    out
}

/// A table of the first rows, and how many more there are.
fn table<'a>(
    name: &'static str,
    figure: [&'static str; 3],
    rows: impl ExactSizeIterator<Item = (String, &'a Change)>,
    timed: bool,
) -> String {
    let [before, after, moved] = figure;
    let times = ["mean us", "mean after", "mean +/-", "p99 us", "p99 after", "p99 +/-"];
    let counts = [name, "count", before, "count after", after, moved];
    let mut table = Table::new(&[counts, times].concat());
    let more = rows.len().saturating_sub(ROWS);
    rows.take(ROWS).for_each(|(name, change)| table.row(row(name, change, timed)));
    let mut out = if table.is_empty() { String::new() } else { table.render(2) };
    if more > 0 {
        let _ = writeln!(out, "  … {more} more");
    }
    out
}

fn row(name: String, c: &Change, timed: bool) -> [String; 12] {
    let (x, write): (_, fn(f64) -> String) = if timed { (&c.rate, rate) } else { (&c.share, percent) };
    [
        name,
        count(c.before),
        or_unknown(x.before, write),
        count(c.after),
        or_unknown(x.after, write),
        if timed { word(c.verdict, x) } else { points(c.verdict, x) },
        or_unknown(c.mean_us.before, micros),
        or_unknown(c.mean_us.after, micros),
        word(c.mean_us.verdict, &c.mean_us),
        or_unknown(c.p99_us.before, micros),
        or_unknown(c.p99_us.after, micros),
        word(c.p99_us.verdict, &c.p99_us),
    ]
}

fn count(n: Option<u64>) -> String {
    n.map_or_else(|| "-".to_string(), |n| n.to_string())
}

/// The change of a share: `+12.3`, in percentage points.
fn points(verdict: Verdict, x: &Compared) -> String {
    match (verdict, x.before.zip(x.after)) {
        (Verdict::More | Verdict::Less, Some((before, after))) => format!("{:+.1}", after - before),
        _ => word(verdict, x),
    }
}

/// `-96.6 %`, `new`, `gone`; `=` within the noise; `-` where the inputs do not decide.
fn word(verdict: Verdict, x: &Compared) -> String {
    match verdict {
        Verdict::New => "new".into(),
        Verdict::Gone => "gone".into(),
        Verdict::Same => "=".into(),
        Verdict::Unknown => "-".into(),
        Verdict::More | Verdict::Less => match x.change_percent {
            Some(p) if p >= 900.0 => format!("x{}", figure(1.0 + p / 100.0)),
            Some(p) => change(p),
            None => if verdict == Verdict::More { "more" } else { "less" }.into(),
        },
    }
}
