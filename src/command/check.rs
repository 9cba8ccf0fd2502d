//! `kvmtop check`: watches for a while, says what is wrong, and tells scripts by its exit status.

use super::{live, print, say_unmatched};
use crate::cli::Settings;
use crate::cli::args::{CheckArgs, EngineChoice};
use crate::figures;
use crate::lint::{self, Severity};
use crate::model::{Base, Model};
use crate::report::{View, json, text};
use crate::sample::{EngineKind, Sample, SourceId, SourceState};
use crate::source::Feed;
use std::time::Duration;

/// Exit status when nothing could be seen.
pub const COULD_NOT_LOOK: u8 = 3;
/// How long it watches unless told otherwise.
const DURATION: Duration = Duration::from_secs(10);

/// Runs it on the live host.
pub fn run(args: &CheckArgs, settings: &Settings) -> anyhow::Result<u8> {
    let duration = args.duration.unwrap_or(DURATION);
    let settings = Settings { interval: settings.interval.min(duration), ..settings.clone() };
    let mut live = live::start(&settings);
    live::stop_on_signals(live.commands)?;
    let seen = watch(&mut live.feed, duration, &settings)?;
    let Some((model, findings)) = seen else {
        anyhow::bail!("stopped before anything was seen");
    };
    let view = View { model: &model, findings: &findings, source: "live", domains: &settings.domains };
    if args.json {
        say_unmatched(&view);
        print(&(json::line(&view)? + "\n"))?;
    } else {
        print(&told(&view))?;
    }
    if settings.engine != EngineChoice::None && model.engine.kind == EngineKind::None && view.told().next().is_none() {
        super::say("exits could not be counted, so most rules could not look; `kvmtop doctor` says what mends that");
        return Ok(COULD_NOT_LOOK);
    }
    Ok(status(&view))
}

/// The whole time as one interval, and what the rules said of its last part: a rule remembers what came before.
fn watch(
    feed: &mut dyn Feed,
    duration: Duration,
    settings: &Settings,
) -> anyhow::Result<Option<(Model, lint::Report)>> {
    let Some(first) = feed.next()? else { return Ok(None) };
    let mut memory = lint::RuleMemory::default();
    let mut previous: Option<Sample> = None;
    let mut findings = lint::Report::default();
    while let Some(sample) = feed.next()? {
        let interval = Model::new(&sample, Base::Previous(previous.as_ref().unwrap_or(&first)));
        findings = lint::run(&interval, &mut memory, &settings.findings);
        let passed = Duration::from_nanos(sample.mono_ns.saturating_sub(first.mono_ns));
        previous = Some(sample);
        // A tick that comes a little early must not cost another whole interval.
        if passed + settings.interval / 10 >= duration {
            break;
        }
    }
    Ok(previous.map(|last| (Model::new(&last, Base::Previous(&first)), findings)))
}

fn told(view: &View<'_>) -> String {
    let guests = view.shown().count();
    let time = view.model.interval_s.map(figures::seconds).unwrap_or_default();
    let complaints = text::complaints(&view.sources());
    let guests = text::count(guests, "guest");
    format!("watched {guests} for {time}\n{complaints}{}", text::findings(view))
}

fn status(view: &View<'_>) -> u8 {
    // A guest that is not there is not well.
    if !view.domains.patterns.is_empty() && view.shown().next().is_none() {
        return COULD_NOT_LOOK;
    }
    // Without a look at the processes "no guest" is no answer.
    let blind = view.model.sources.iter().any(|s| s.id == SourceId::Procfs && s.state != SourceState::Ok);
    if blind && view.model.domains.is_empty() {
        return COULD_NOT_LOOK;
    }
    match view.told().map(|f| f.severity).max() {
        Some(Severity::Critical) => 2,
        Some(Severity::Warning) => 1,
        Some(Severity::Info) | None => 0,
    }
}
