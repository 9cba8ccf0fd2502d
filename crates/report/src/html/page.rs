//! Puts the page together: style, scripts and data in one file that loads nothing.

use super::charts::{Chart, ChartLine, OTHER, OwnerTracks};
use super::spans::FindingSpan;
use super::timeline::{FollowedGuest, TimelineBuilder};
use super::tracks::{TimeAxis, Track, TrackCell};
use crate::document::{JsonDocument, JsonDomain};
use crate::table::COLUMNS;
use crate::{View, json as documents, text};
use base64::Engine as _;
use judge::lint::Finding;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::collections::HashSet;

const UPLOT: &str = include_str!("../../uplot/uPlot.iife.min.js");
const UPLOT_STYLE: &str = include_str!("../../uplot/uPlot.min.css");
const SCRIPT: &str = concat!(
    include_str!("../../page/figures.js"),
    include_str!("../../page/charts.js"),
    include_str!("../../page/tables.js"),
    include_str!("../../page/summary.js"),
    include_str!("../../page/page.js"),
);
const STYLE: &str = include_str!("../../page/page.css");
const BODY: &str = include_str!("../../page/page.html");

/// Size of the page that thinning aims at, bytes.
const WANTED_BYTES: usize = 4_900_000;

/// No slots are joined for a smaller page unless there are more than these.
const MIN_SLOTS: usize = 64;

/// A page, ready to be written.
#[derive(Debug, Clone, PartialEq)]
pub struct HtmlPage {
    /// The file.
    pub html: String,
    /// What had to be thinned or left out, a sentence each; the page says it as well.
    pub notes: Vec<String>,
}

/// Makes the page of a report. `input` is what it was made from, in words; the time line is empty
/// for an input without intervals.
///
/// # Errors
/// Never in practice: the page's data holds nothing that JSON cannot.
pub fn page(
    view: &View<'_>,
    mut timeline: TimelineBuilder,
    input: &str,
) -> serde_json::Result<HtmlPage> {
    let document = JsonDocument::new(view);
    let report = embedded(&documents::text(&document)?);
    let plain = escaped(&text::report(view, COLUMNS));
    let fixed = report.len() + plain.len() + UPLOT.len() + SCRIPT.len() + BODY.len() + STYLE.len();
    // The page's data may take what the other parts leave of the wanted size.
    let room = WANTED_BYTES.saturating_sub(fixed);
    timeline.keep_largest();
    link_findings(&mut timeline.spans.all, &document.findings);
    link_guests(&mut timeline.guests, &document.domains);
    let (data, notes) = loop {
        let notes = thinning_notes(&timeline);
        let data = page_data(view, &timeline, input, &notes);
        let data = embedded(&documents::text(&data)?);
        if data.len() <= room || timeline.axis.slots.len() <= MIN_SLOTS {
            break (data, notes);
        }
        timeline.halve();
    };
    let script = format!("{UPLOT}\n{SCRIPT}");
    let style = format!("{UPLOT_STYLE}\n{STYLE}");
    let policy = format!(
        "default-src 'none'; script-src '{}'; style-src '{}'; base-uri 'none'; form-action 'none'",
        source_hash(&script),
        source_hash(&style)
    );
    let parts = [
        ("policy", policy),
        ("style", style),
        ("script", script),
        ("report", report),
        ("data", data),
        ("text", plain),
    ];
    let html = fill_template(BODY, &parts);
    Ok(HtmlPage { html, notes })
}

/// A template in which each mark, as `{{policy}}`, is replaced by the part of that name.
fn fill_template(template: &str, parts: &[(&str, String)]) -> String {
    let mut filled = String::new();
    let mut rest = template;
    while let Some((before, marked)) = rest.split_once("{{")
        && let Some((mark, after)) = marked.split_once("}}")
    {
        filled.push_str(before);
        let part = parts.iter().find(|(name, _)| *name == mark);
        filled.push_str(part.map_or("", |(_, text)| text));
        rest = after;
    }
    filled + rest
}

/// What had to be thinned or left out of the time lines, a sentence each.
fn thinning_notes(timeline: &TimelineBuilder) -> Vec<String> {
    let mut notes = Vec::new();
    if timeline.axis.is_thinned() {
        notes.push(format!(
            "time lines are thinned: a point stands for up to {}, its mean is drawn and its \
             maximum kept; tables and findings are of all {} intervals",
            judge::figures::seconds(timeline.axis.slot_seconds()),
            timeline.intervals
        ));
    }
    if timeline.is_cut {
        notes.push(
            "there are too many guests for a time line each; the tables have them all".into(),
        );
    }
    let left_out = timeline.spans.left_out;
    if left_out > 0 {
        notes.push(format!(
            "findings came and went too often: {left_out} spans are not drawn"
        ));
    }
    notes
}

/// JSON inside a script element: nothing in it ends the element or begins a comment.
fn embedded(json: &str) -> String {
    let signs = [
        ('<', "\\u003c"),
        ('>', "\\u003e"),
        ('&', "\\u0026"),
        ('\u{2028}', "\\u2028"),
        ('\u{2029}', "\\u2029"),
    ];
    signs.iter().fold(json.to_owned(), |json, (sign, escape)| {
        json.replace(*sign, escape)
    })
}

/// Text as the content of an element.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// The source expression of the Content Security Policy for an inline element: the hash of all
/// between its tags.
fn source_hash(text: &str) -> String {
    format!(
        "sha256-{}",
        base64::engine::general_purpose::STANDARD.encode(Sha256::digest(text.as_bytes()))
    )
}

/// What the page knows besides the report.
fn page_data(view: &View<'_>, timeline: &TimelineBuilder, input: &str, notes: &[String]) -> Value {
    let facts = &view.model.host.facts;
    let end_ms = timeline.axis.slots.last().map(|s| s.end_ms);
    let (utc_offset_s, zone) = local_zone(end_ms.unwrap_or(view.model.time_ms));
    let guests = timeline.guests.iter().map(|guest| {
        json!({
            "domain": guest.domain,
            "name": guest.name,
            "charts": charts_json(&guest.tracks, &timeline.axis),
        })
    });
    json!({
        "input": input,
        // `(none)` is the kernel's word where no name is set (init/version.c).
        "hostname": Some(&facts.hostname).filter(|name| *name != "(none)"),
        "kernel": facts.kernel,
        // Begin and end of the measured time, milliseconds since the epoch.
        "begin_ms": timeline.axis.slots.first().map(|s| s.begin_ms),
        "end_ms": end_ms,
        // Offset and name of the time zone in which times are shown.
        "utc_offset_s": utc_offset_s,
        "zone": zone,
        "notes": notes,
        "guests": guests.collect::<Value>(),
        "axis": axis_json(&timeline.axis),
        "host": charts_json(&timeline.host, &timeline.axis),
        "spans": timeline.spans.all,
    })
}

/// A value of a chart, with four significant digits; whole numbers without a fraction.
fn point(value: Option<f64>) -> Value {
    let Some(value) = value.filter(|v| v.is_finite()) else {
        return Value::Null;
    };
    let digits = 3 - value.abs().max(1e-9).log10().floor() as i32;
    let scale = 10_f64.powi(digits);
    let value = (value * scale).round() / scale;
    let is_whole = value.fract() == 0.0 && value.abs() < 1e15;
    if is_whole {
        json!(value as i64)
    } else {
        json!(value)
    }
}

/// Sets for each guest of the time line its index in the report's domains.
fn link_guests(guests: &mut [FollowedGuest], domains: &[JsonDomain]) {
    let mut linked = HashSet::new();
    // The only guest needs no name: that may have come from a file other than the trace.
    let is_alone = domains.len() == 1 && guests.len() == 1;
    for g in guests {
        g.domain = (0..domains.len()).find(|i| {
            let d = &domains[*i];
            let is_same = d.pid == g.pid && (d.pid.is_some() || d.name == g.name);
            is_alone || (is_same && !linked.contains(i))
        });
        linked.extend(g.domain);
    }
}

/// Sets for each span which finding of the report it belongs to: the one about the same target, or
/// else the first that covers the span's rule.
fn link_findings(spans: &mut [FindingSpan], findings: &[Finding]) {
    for s in spans {
        let mut covering = (0..findings.len()).filter(|index| {
            let f = &findings[*index];
            f.domain == s.domain && f.covers(s.rule)
        });
        let first = covering.clone().next();
        s.finding = covering
            .find(|index| findings[*index].target == s.target)
            .or(first);
    }
}

fn axis_json(axis: &TimeAxis) -> Value {
    let begin_ms = axis.slots.first().map_or(0, |s| s.begin_ms);
    json!({
        "begin_ms": begin_ms,
        // Ends of the slots, milliseconds after `begin_ms`.
        "ends": axis.slots.iter().map(|s| s.end_ms - begin_ms).collect::<Value>(),
        // Measured seconds of each slot.
        "seconds": axis.slots.iter().map(|s| point(Some(s.seconds))).collect::<Value>(),
        // Slots before which nothing was measured for a while.
        "gaps": (0..axis.slots.len()).filter(|&i| axis.follows_gap(i)).collect::<Value>(),
    })
}

fn charts_json(owner: &OwnerTracks, axis: &TimeAxis) -> Vec<Value> {
    let slots = axis.slots.len();
    let mut charts = Vec::new();
    for (chart, tracks) in &owner.charts {
        let lines = tracks.lines.iter();
        let lines = lines.map(|line| line_json(line, *chart, slots));
        charts.push(json!({ "id": chart, "lines": lines.collect::<Value>() }));
    }
    charts
}

fn line_json(line: &ChartLine, chart: Chart, slots: usize) -> Value {
    let ChartLine { name, track } = line;
    let max = points(track, slots, TrackCell::max);
    let mean = if chart.shows_peaks() {
        max.clone()
    } else {
        points(track, slots, TrackCell::mean)
    };
    // The sum of the other lines has no maximum: their maxima are of different moments.
    let max = Some(max).filter(|max| name != OTHER && *max != mean);
    json!({ "name": name, "mean": mean, "max": max })
}

/// A value of each slot.
fn points(track: &Track, slots: usize, value: fn(&TrackCell) -> Option<f64>) -> Value {
    (0..slots)
        .map(|slot| point(track.cells.get(slot).and_then(value)))
        .collect()
}

/// Earlier times are from the clock of a trace, which counts from the boot of its host.
const MIN_WALL_MS: i64 = 365 * 86_400_000;

/// Offset from UTC in seconds, and name, of the system's time zone at a time.
fn local_zone(ms: i64) -> (i32, String) {
    if ms < MIN_WALL_MS {
        return (0, "by the clock of the trace".into());
    }
    let instant = jiff::Timestamp::from_millisecond(ms).unwrap_or_default();
    let zoned = instant.to_zoned(jiff::tz::TimeZone::system());
    (zoned.offset().seconds(), zoned.strftime("%Z").to_string())
}
