//! Puts the page together: style, scripts and data in one file that loads nothing.

use super::charts::{Chart, ChartTracks, OTHER, OwnerTracks};
use super::spans::FindingSpan;
use super::timeline::{GuestTracks, TimelineBuilder};
use super::tracks::{TimeAxis, Track, TrackCell};
use crate::document::JsonDomain;
use crate::{View, json, text};
use base64::Engine as _;
use judge::lint::Finding;
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;

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
pub const WANTED_BYTES: usize = 4_900_000;
/// Slots below which thinning does not go.
const MIN_SLOTS: usize = 64;
/// Slots that the series of vCPUs are thinned to before the series of guests are thinned.
const FEW_SLOTS: usize = 256;

/// A page, ready to be written.
#[derive(Debug, Clone, PartialEq)]
pub struct HtmlPage {
    /// The file.
    pub html: String,
    /// What had to be thinned or left out, a sentence each; the page says it as well.
    pub notes: Vec<String>,
}

/// Makes the page of a report. `input` is what it was made from, in words; the time line is empty for an input without
/// intervals.
///
/// # Errors
/// Never in practice: the page's data holds nothing that JSON cannot.
pub fn page(view: &View<'_>, mut timeline: TimelineBuilder, input: &str) -> serde_json::Result<HtmlPage> {
    let document = json::document(view);
    let report = embedded(&json::text(&document)?);
    let plain = escaped(&text::report(view));
    let fixed = report.len() + plain.len() + UPLOT.len() + SCRIPT.len() + BODY.len() + STYLE.len();
    let room = WANTED_BYTES.saturating_sub(fixed);
    timeline.settle();
    link_findings(&mut timeline.spans.all, &document.findings);
    let places = places(&timeline, &document.domains);
    let (data, notes) = loop {
        let notes = notes(&timeline);
        let page = PageData { input, notes: notes.clone(), ..PageData::new(view, &timeline, &places) };
        let data = embedded(&json::text(&page)?);
        // The length is about proportional to the number of values.
        let wanted = timeline.values() as f64 * room as f64 / data.len() as f64;
        if data.len() <= room || !thin(&mut timeline) {
            break (data, notes);
        }
        while timeline.values() as f64 > wanted && thin(&mut timeline) {}
    };
    let (script, style) = (format!("{UPLOT}\n{SCRIPT}"), format!("{UPLOT_STYLE}\n{STYLE}"));
    let policy = format!(
        "default-src 'none'; script-src '{}'; style-src '{}'; base-uri 'none'; form-action 'none'",
        hash(&script),
        hash(&style)
    );
    let mut html = String::with_capacity(fixed + data.len());
    let mut rest = BODY;
    while let Some((before, (slot, after))) = rest.split_once("{{").and_then(|(b, r)| Some((b, r.split_once("}}")?))) {
        html.push_str(before);
        html.push_str(match slot {
            "policy" => &policy,
            "style" => &style,
            "script" => &script,
            "report" => &report,
            "data" => &data,
            _ => &plain,
        });
        rest = after;
    }
    html.push_str(rest);
    Ok(HtmlPage { html, notes })
}

/// Joins slots of vCPUs or of guests; false when nothing is left to join.
fn thin(timeline: &mut TimelineBuilder) -> bool {
    let (guests, vcpus) = (timeline.guest_axis.slots.len(), timeline.vcpu_axis.slots.len());
    if vcpus > FEW_SLOTS || (vcpus > MIN_SLOTS && guests <= FEW_SLOTS) {
        timeline.halve_vcpus();
    } else if guests > MIN_SLOTS {
        timeline.halve_guests();
    } else {
        return false;
    }
    true
}

fn notes(timeline: &TimelineBuilder) -> Vec<String> {
    let mut notes = Vec::new();
    for (of, axis) in [("guests and host", &timeline.guest_axis), ("vCPUs", &timeline.vcpu_axis)] {
        if axis.is_thinned() {
            let length = judge::figures::seconds(axis.slot_seconds());
            notes.push(format!(
                "time lines of {of} are thinned: a point stands for up to {length}, its mean is drawn and its maximum \
                 kept; tables and findings are of all {} intervals",
                timeline.intervals
            ));
        }
    }
    if timeline.is_cut {
        notes.push("there are too many guests or vCPUs for a time line each; the tables have them all".into());
    }
    if timeline.spans.left_out > 0 {
        notes.push(format!("findings came and went too often: {} spans are not drawn", timeline.spans.left_out));
    }
    notes
}

/// JSON inside a script element: nothing in it ends the element or begins a comment.
fn embedded(json: &str) -> String {
    let mut out = String::with_capacity(json.len() + json.len() / 64);
    for c in json.chars() {
        match c {
            '<' => out.push_str("\\u003c"),
            '>' => out.push_str("\\u003e"),
            '&' => out.push_str("\\u0026"),
            '\u{2028}' => out.push_str("\\u2028"),
            '\u{2029}' => out.push_str("\\u2029"),
            c => out.push(c),
        }
    }
    out
}

/// Text as the content of an element.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The source expression of the Content Security Policy for an inline element: the hash of all between its tags.
fn hash(text: &str) -> String {
    format!("sha256-{}", base64::engine::general_purpose::STANDARD.encode(Sha256::digest(text.as_bytes())))
}

/// What the page knows besides the report.
#[derive(Serialize)]
struct PageData<'a> {
    input: &'a str,
    hostname: String,
    kernel: String,
    /// Begin and end of the measured time, milliseconds since the epoch.
    begin_ms: Option<i64>,
    end_ms: Option<i64>,
    /// Offset of the zone in which times are shown, seconds, and its name.
    utc_offset_s: i32,
    zone: String,
    intervals: u64,
    notes: Vec<String>,
    axes: BTreeMap<&'static str, PageAxis>,
    host: Vec<PageChart<'a>>,
    guests: Vec<PageGuest<'a>>,
    spans: &'a [FindingSpan],
}

#[derive(Serialize)]
struct PageAxis {
    begin_ms: i64,
    /// Ends of the slots, milliseconds after `begin_ms`.
    ends: Vec<i64>,
    /// Measured seconds of each slot.
    seconds: Vec<Point>,
    /// Slots before which nothing was measured for a while.
    gaps: Vec<usize>,
    is_thinned: bool,
}

#[derive(Serialize)]
struct PageGuest<'a> {
    /// Its place in the report's domains.
    domain: Option<usize>,
    name: &'a str,
    charts: Vec<PageChart<'a>>,
    vcpus: Vec<(u32, Vec<PageChart<'a>>)>,
}

#[derive(Serialize)]
struct PageChart<'a> {
    id: Chart,
    lines: Vec<PageLine<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    total: Option<PageLine<'a>>,
}

#[derive(Serialize)]
struct PageLine<'a> {
    name: &'a str,
    mean: Vec<Point>,
    /// Left out where it is the mean.
    #[serde(skip_serializing_if = "Option::is_none")]
    max: Option<Vec<Point>>,
}

/// A value of a chart, with four digits; whole numbers without a fraction.
#[derive(PartialEq, Serialize)]
#[serde(untagged)]
enum Point {
    Whole(i64),
    Fraction(f64),
    Unknown,
}

impl Point {
    fn new(value: Option<f64>) -> Self {
        let Some(value) = value.filter(|v| v.is_finite()) else { return Self::Unknown };
        let digits = 3 - value.abs().max(1e-9).log10().floor() as i32;
        let scale = 10_f64.powi(digits);
        let value = (value * scale).round() / scale;
        let is_whole = value.fract() == 0.0 && value.abs() < 1e15;
        if is_whole { Self::Whole(value as i64) } else { Self::Fraction(value) }
    }
}

impl<'a> PageData<'a> {
    fn new(view: &View<'_>, timeline: &'a TimelineBuilder, places: &[Option<usize>]) -> Self {
        let facts = &view.model.host.facts;
        let (guest_axis, vcpu_axis) = (&timeline.guest_axis, &timeline.vcpu_axis);
        let begin_ms = guest_axis.slots.first().map(|s| s.begin_ms);
        let end_ms = guest_axis.slots.last().map(|s| s.end_ms);
        let (utc_offset_s, zone) = zone(end_ms.unwrap_or(view.model.time_ms));
        let guests = timeline.guests.iter().zip(places).map(|(g, &domain)| PageGuest {
            domain,
            name: &g.name,
            charts: charts(&g.charts, guest_axis),
            vcpus: g.vcpus.iter().map(|(v, owner)| (*v, charts(owner, vcpu_axis))).collect(),
        });
        Self {
            input: "",
            // The kernel's word where no name is set (init/version.c).
            hostname: Some(facts.hostname.as_str()).filter(|name| *name != "(none)").unwrap_or_default().to_string(),
            kernel: facts.kernel.clone(),
            begin_ms,
            end_ms,
            utc_offset_s,
            zone,
            intervals: timeline.intervals,
            notes: Vec::new(),
            guests: guests.collect(),
            axes: BTreeMap::from([("guests", axis(guest_axis)), ("vcpus", axis(vcpu_axis))]),
            host: charts(&timeline.host, guest_axis),
            spans: &timeline.spans.all,
        }
    }
}

/// The place of each guest of the time line in the report's domains.
fn places(timeline: &TimelineBuilder, domains: &[JsonDomain]) -> Vec<Option<usize>> {
    // Another file may name the only guest of a trace.
    if domains.len() == 1 && timeline.guests.len() == 1 {
        return vec![Some(0)];
    }
    let mut taken = vec![false; domains.len()];
    let place = |g: &GuestTracks| {
        let same = |d: &JsonDomain| d.pid == g.pid && (d.pid.is_some() || d.name == g.name);
        let place = (0..domains.len()).find(|&i| !taken[i] && same(&domains[i]))?;
        taken[place] = true;
        Some(place)
    };
    timeline.guests.iter().map(place).collect()
}

/// Notes for each span which finding of the report it belongs to.
fn link_findings(spans: &mut [FindingSpan], findings: &[Finding]) {
    for s in spans {
        let same = |f: &Finding| f.domain == s.domain && f.covers(s.rule);
        let exact = findings.iter().position(|f| same(f) && f.target == s.target);
        s.finding = exact.or_else(|| findings.iter().position(same));
    }
}

fn axis(axis: &TimeAxis) -> PageAxis {
    let begin_ms = axis.slots.first().map_or(0, |s| s.begin_ms);
    PageAxis {
        begin_ms,
        ends: axis.slots.iter().map(|s| s.end_ms - begin_ms).collect(),
        seconds: axis.slots.iter().map(|s| Point::new(Some(s.seconds))).collect(),
        gaps: (0..axis.slots.len()).filter(|&i| axis.follows_gap(i)).collect(),
        is_thinned: axis.is_thinned(),
    }
}

fn charts<'a>(owner: &'a OwnerTracks, axis: &TimeAxis) -> Vec<PageChart<'a>> {
    let slots = axis.slots.len();
    let chart = |c: &'a ChartTracks| PageChart {
        id: c.chart,
        lines: c.lines.iter().map(|(name, track)| line(name, track, c.chart, slots)).collect(),
        total: c.total.as_ref().map(|track| line("all", track, c.chart, slots)),
    };
    owner.charts.iter().map(chart).collect()
}

fn line<'a>(name: &'a str, track: &Track, chart: Chart, slots: usize) -> PageLine<'a> {
    let values = |of: fn(&TrackCell) -> Option<f64>| -> Vec<Point> {
        (0..slots).map(|i| Point::new(track.cells.get(i).and_then(of))).collect()
    };
    let max = values(TrackCell::max);
    if chart.shows_peaks() {
        return PageLine { name, mean: max, max: None };
    }
    let mean = values(TrackCell::mean);
    // Maxima of different moments do not add up.
    let has_max = name != OTHER && max != mean;
    PageLine { name, mean, max: has_max.then_some(max) }
}

/// Earlier times are from the clock of a trace, which counts from the boot of its host.
const MIN_WALL_MS: i64 = 365 * 86_400_000;

/// Offset from UTC in seconds, and name, of the system's time zone at a time.
fn zone(ms: i64) -> (i32, String) {
    if ms < MIN_WALL_MS {
        return (0, "by the clock of the trace".into());
    }
    let instant = jiff::Timestamp::from_millisecond(ms).unwrap_or_default();
    let zoned = instant.to_zoned(jiff::tz::TimeZone::system());
    (zoned.offset().seconds(), zoned.strftime("%Z").to_string())
}
