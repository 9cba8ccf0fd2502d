//! `kvmtop check`: watches for a while and prints what is wrong; scripts read the exit status.

use super::{live, print, say_unmatched};
use crate::analysis::{JudgedInterval, Pipeline};
use crate::cli::Settings;
use crate::cli::args::{CheckArgs, EngineChoice};
use crate::figures;
use crate::lint::{self, Severity, StillWatched, Thresholds};
use crate::model::ModelSum;
use crate::report::rules::{self, JsonRules};
use crate::report::{View, findings_text, json, text};
use crate::sample::EngineKind;
use crate::source::Feed;
use std::sync::Arc;
use std::time::Duration;

/// Exit status when nothing could be judged.
pub const COULD_NOT_LOOK: u8 = 3;
/// How long it watches without `--duration`.
const DURATION: Duration = Duration::from_secs(10);

/// Runs it on the live host.
pub fn run(args: &CheckArgs, settings: &Settings) -> anyhow::Result<u8> {
    if args.list_rules {
        print(&list_rules(args.json, &settings.findings.thresholds)?)?;
        return Ok(0);
    }
    let duration = args.duration.unwrap_or(DURATION);
    let mut settings = Settings { interval: settings.interval.min(duration), ..settings.clone() };
    settings.findings.keep_events = true;
    let mut live = live::start(&settings);
    live::stop_on_signals(live.commands)?;
    let seen = watch(&mut live.feed, duration, &settings)?;
    let Some(JudgedInterval { model, report }) = seen else {
        anyhow::bail!("stopped before anything was seen");
    };
    let mut report = report;
    // Nobody watches this list change: the most costly comes first.
    report.findings.sort_by(lint::order);
    let view = View { model: &model, findings: &report, source: "live", domains: &settings.domains };
    if args.json {
        say_unmatched(&view);
        print(&(json::line(&view)? + "\n"))?;
    } else {
        print(&text_of(&view))?;
    }
    if settings.engine != EngineChoice::None
        && model.engine.kind == EngineKind::None
        && view.selected_findings().next().is_none()
    {
        super::say("exits could not be counted, so most rules could not judge; `kvmtop doctor` shows how to enable it");
        return Ok(COULD_NOT_LOOK);
    }
    let status = status(&view);
    if status == COULD_NOT_LOOK {
        too_short(&view);
    }
    Ok(status)
}

/// Says how long it takes to tell.
fn too_short(view: &View<'_>) {
    let young = view.selected_watching().filter(|w| w.is_every_rule());
    let Some(missing_s) = young.map(|w| w.needed_s - w.seen_s).reduce(f64::max) else { return };
    let watched_s = view.model.interval_s.unwrap_or(0.0);
    let needed = figures::seconds((watched_s + missing_s).ceil());
    super::say(&format!("too little was seen to tell; the shortest useful --duration now is {needed}"));
}

/// All rules, for `--list-rules`.
fn list_rules(json: bool, thresholds: &Thresholds) -> anyhow::Result<String> {
    if json { Ok(json::text(&JsonRules::new(thresholds))? + "\n") } else { Ok(rules::text()) }
}

/// The whole time as one interval, with the findings at its end: the rules remember what came before.
fn watch(feed: &mut dyn Feed, duration: Duration, settings: &Settings) -> anyhow::Result<Option<JudgedInterval>> {
    let Some(first) = feed.next()? else { return Ok(None) };
    let first = Arc::new(first);
    let mut pipeline = Pipeline::new(settings.findings.clone());
    pipeline.next(first.clone());
    let (mut sum, mut report) = (ModelSum::default(), None);
    while let Some(sample) = feed.next()? {
        let sample = Arc::new(sample);
        let passed = Duration::from_nanos(sample.mono_ns.saturating_sub(first.mono_ns));
        if let Some(interval) = pipeline.next(sample) {
            sum.add(interval.model);
            report = Some(interval.report);
        }
        // A tick that comes a little early must not cost another whole interval.
        if passed + settings.interval / 10 >= duration {
            break;
        }
    }
    Ok(report.map(|report| JudgedInterval { model: sum.finish(), report }))
}

fn text_of(view: &View<'_>) -> String {
    let guests = view.guests().count();
    let time = view.model.interval_s.map(figures::seconds).unwrap_or_default();
    let complaints = text::complaints(&view.sources());
    let guests = text::count(guests, "guest");
    format!("watched {guests} for {time}\n{complaints}{}", findings_text::all(view))
}

fn status(view: &View<'_>) -> u8 {
    // A selected guest that does not run cannot be judged.
    if !view.domains.patterns.is_empty() && view.guests().next().is_none() {
        return COULD_NOT_LOOK;
    }
    let status = match view.selected_findings().map(|f| f.severity).max() {
        Some(Severity::Critical) => 2,
        Some(Severity::Warning) => 1,
        Some(Severity::Info) | None => 0,
    };
    // Nor is it one for guests that were seen too short.
    let is_young = view.selected_watching().any(StillWatched::is_every_rule);
    if status == 0 && is_young {
        return COULD_NOT_LOOK;
    }
    // "Nothing is wrong" is no answer for guests that could not be seen; selected ones that are seen are enough.
    if status == 0 && view.model.unseen_processes().is_some() && view.domains.patterns.is_empty() {
        COULD_NOT_LOOK
    } else {
        status
    }
}
