//! A comparison as text tables.

use super::diff::{ChangedRow, Compared, Diff, DomainDiff, Verdict};
use super::findings_text::subject;
use super::table::{Column, cut, or_dash, spread, table, wrapped};
use judge::figures::{change, micros, or_unknown, percent, rate, seconds};
use judge::lint::Finding;
use std::fmt::Write as _;

/// Rows of a guest's table.
const ROWS: usize = 25;

/// The summary, a table for each guest, and the findings.
pub fn text(diff: &Diff, columns: usize) -> String {
    let mut out = String::new();
    for c in &diff.conditions {
        let sentence = format!(
            "{}: {} before, {} after",
            c.what,
            cut(&c.before, 100),
            cut(&c.after, 100)
        );
        out.push_str(&wrapped(
            &format!("measured differently: {sentence}"),
            2,
            columns,
        ));
    }
    out.push_str(&wrapped(&cut(&diff.summary, 2000), 2, columns));
    let times = [diff.before_s, diff.after_s].map(|s| match s {
        Some(s) => seconds(s),
        None => "duration unknown (give it with --duration)".to_owned(),
    });
    let [before, after] = times;
    out.push_str(&spread(
        &format!("before: {before}  after: {after}"),
        columns,
    ));
    for remark in &diff.unsure {
        out.push_str(&wrapped(&cut(remark, 400), 2, columns));
    }
    let is_timed = diff.before_s.is_some() && diff.after_s.is_some();
    for d in &diff.domains {
        out.push_str(&guest_table(d, is_timed));
    }
    let f = &diff.findings;
    let mut lines = Vec::new();
    lines.extend(f.gone.iter().map(|f| finding_line("gone", f)));
    lines.extend(f.new.iter().map(|f| finding_line("new", f)));
    lines.extend(f.changed.iter().map(|c| finding_line("changed", &c.after)));
    lines.extend(f.same.iter().map(|f| finding_line("still", f)));
    if !lines.is_empty() {
        out.push_str("\nfindings\n");
    }
    out.extend(lines.iter().map(|line| wrapped(line, 10, columns)));
    out
}

fn finding_line(what: &str, f: &Finding) -> String {
    format!(
        "  {what:<7} {} {}: {} [{}]",
        f.severity.as_str(),
        subject(f),
        cut(&f.title, 200),
        f.rule
    )
}

fn guest_table(d: &DomainDiff, is_timed: bool) -> String {
    let mut out = match (&d.before, &d.after) {
        (Some(b), None) => return format!("\n{}: only before\n", cut(b, 64)),
        (None, Some(a)) => return format!("\n{}: only after\n", cut(a, 64)),
        (Some(b), Some(a)) if a != b => format!("\n{} (before: {})\n", cut(a, 64), cut(b, 64)),
        _ => format!("\n{}\n", cut(d.name(), 64)),
    };
    if let (Some(b), Some(a)) = (d.cpu_percent.before, d.cpu_percent.after) {
        let _ = writeln!(
            out,
            "  CPU {} % before, {} % after (of one host CPU)",
            percent(b),
            percent(a)
        );
    }
    let figures: [Column<ChangedRow<'_>>; 3] = if is_timed {
        [
            ("per s", |r| or_unknown(r.change.rate.before, rate)),
            ("per s after", |r| or_unknown(r.change.rate.after, rate)),
            ("+/-", |r| verdict_word(&r.change.rate)),
        ]
    } else {
        [
            ("share %", |r| or_unknown(r.change.share.before, percent)),
            ("share after", |r| or_unknown(r.change.share.after, percent)),
            ("+/-", |r| verdict_word(&r.change.share)),
        ]
    };
    let [before, after, moved] = figures;
    let columns: &[Column<ChangedRow<'_>>] = &[
        ("<CHANGED", |r| r.name.clone()),
        ("count", |r| or_dash(r.change.before)),
        before,
        ("count after", |r| or_dash(r.change.after)),
        after,
        moved,
        ("mean us", |r| or_unknown(r.change.mean_us.before, micros)),
        ("mean after", |r| or_unknown(r.change.mean_us.after, micros)),
        ("mean +/-", |r| verdict_word(&r.change.mean_us)),
    ];
    out + &table(2, &d.changed_rows(), ROWS, columns)
}

/// `-96.6 %`, `new`, `gone`; `=` within the noise; `-` where the inputs do not decide.
fn verdict_word(x: &Compared) -> String {
    match x.verdict {
        Verdict::New => "new".into(),
        Verdict::Gone => "gone".into(),
        Verdict::Same => "=".into(),
        Verdict::Unknown => "-".into(),
        Verdict::More | Verdict::Less => or_unknown(x.change_percent, change),
    }
}
