//! A comparison as text tables.

use super::diff::{Change, Compared, Diff, DiffRow, DomainDiff, Verdict};
use super::findings_text::who;
use super::table::{Column, cut, or_dash, spread, table, wrapped};
use judge::figures::{change, figure, micros, or_unknown, percent, rate, seconds};
use judge::lint::Finding;
use std::fmt::Write as _;

/// Rows of a guest's table.
const ROWS: usize = 25;

/// The summary, a table for each guest, and the findings.
pub fn text(diff: &Diff, columns: usize) -> String {
    let mut out = String::new();
    for condition in &diff.conditions {
        let sentence = cut(&condition.sentence(), 400);
        out.push_str(&wrapped(&format!("measured differently: {sentence}"), 2, columns));
    }
    out.push_str(&wrapped(&cut(&diff.summary, 2000), 2, columns));
    let time = |s: Option<f64>| s.map_or_else(|| "duration unknown (give it with --duration)".to_string(), seconds);
    out.push_str(&spread(&format!("before: {}  after: {}", time(diff.before_s), time(diff.after_s)), columns));
    for remark in &diff.unsure {
        out.push_str(&wrapped(&cut(remark, 400), 2, columns));
    }
    let timed = diff.before_s.is_some() && diff.after_s.is_some();
    for d in &diff.domains {
        out.push_str(&domain(d, timed));
    }
    let one = |f: &Finding| format!("{} {}: {} [{}]", f.severity.as_str(), who(f), cut(&f.title, 200), f.rule);
    let f = &diff.findings;
    let gone = f.gone.iter().map(|f| format!("  - gone  {}", one(f)));
    let new = f.new.iter().map(|f| format!("  + new   {}", one(f)));
    let changed = f.changed.iter();
    let changed = changed.map(|c| format!("  ~ was {}, now {}", c.before.severity.as_str(), one(&c.after)));
    let same = f.same.iter().map(|f| format!("    still {}", one(f)));
    let mut findings = gone.chain(new).chain(changed).chain(same).peekable();
    if findings.peek().is_some() {
        out.push_str("\nfindings\n");
    }
    out.extend(findings.map(|line| wrapped(&line, 10, columns)));
    out
}

fn domain(d: &DomainDiff, timed: bool) -> String {
    let mut out = match (&d.before, &d.after) {
        (Some(b), None) => return format!("\n{}: only before\n", cut(b, 64)),
        (None, Some(a)) => return format!("\n{}: only after\n", cut(a, 64)),
        (Some(b), Some(a)) if a != b => format!("\n{} (before: {})\n", cut(a, 64), cut(b, 64)),
        _ => format!("\n{}\n", cut(d.name(), 64)),
    };
    if let (Some(b), Some(a)) = (d.cpu_percent.before, d.cpu_percent.after) {
        let _ = writeln!(out, "  CPU {} % before, {} % after (of one host CPU)", percent(b), percent(a));
    }
    // The change follows its figures: in percent for a rate or a mean, in percentage points for a share.
    let figure = if timed { ["per s", "per s after", "rate +/-"] } else { ["share %", "share after", "points +/-"] };
    let columns: &[Column<DiffRow<'_>>] = &[
        ("<CHANGED", |r| r.name.clone()),
        ("count", |r| or_dash(r.change.before)),
        (figure[0], |r| or_unknown(r.figure().before, if r.timed { rate } else { percent })),
        ("count after", |r| or_dash(r.change.after)),
        (figure[1], |r| or_unknown(r.figure().after, if r.timed { rate } else { percent })),
        (figure[2], moved),
        ("mean us", |r| or_unknown(r.change.mean_us.before, micros)),
        ("mean after", |r| or_unknown(r.change.mean_us.after, micros)),
        ("mean +/-", |r| word(r.change.mean_us.verdict, &r.change.mean_us)),
        ("p99 us", |r| or_unknown(r.change.p99_us.before, micros)),
        ("p99 after", |r| or_unknown(r.change.p99_us.after, micros)),
        ("p99 +/-", |r| word(r.change.p99_us.verdict, &r.change.p99_us)),
    ];
    out + &table(2, &d.changed_rows(timed), ROWS, columns)
}

/// The change of the figure; of a share `+12.3`, in percentage points.
fn moved(row: &DiffRow<'_>) -> String {
    let Change { share, verdict, .. } = row.change;
    match (verdict, share.before.zip(share.after)) {
        (Verdict::More | Verdict::Less, Some((before, after))) if !row.timed => format!("{:+.1}", after - before),
        _ => word(*verdict, row.figure()),
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
