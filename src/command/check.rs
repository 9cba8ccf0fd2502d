//! `kvmtop check`: watches for a while and prints what is wrong; scripts read the exit status.

use super::{columns, live, print, say, say_unmatched, view};
use crate::cli::Settings;
use crate::cli::args::{CheckArgs, EngineChoice};
use ::report::{View, findings_text, json, rules, text};
use anyhow::Context;
use judge::analysis::{JudgedInterval, Pipeline};
use judge::figures;
use judge::lint::{self, Severity};
use judge::model::ModelSum;
use sample::{EngineKind, Feed};
use std::sync::Arc;
use std::time::Duration;

/// Exit status when nothing could be judged.
pub const COULD_NOT_LOOK: u8 = 3;
/// How long it watches without `--duration`.
const DURATION: Duration = Duration::from_secs(10);
/// Runs it on the live host.
pub fn run(args: &CheckArgs, settings: &Settings) -> anyhow::Result<u8> {
    if args.list_rules {
        print(&rules::text())?;
        return Ok(0);
    }
    let duration = args.duration.unwrap_or(DURATION);
    let mut settings = Settings {
        interval: settings.interval.min(duration),
        ..settings.clone()
    };
    settings.findings.keep_events = true;
    let mut live = live::start(&settings);
    live::stop_on_signals(live.commands, Some(COULD_NOT_LOOK))?;
    let seen = watch(&mut live.feed, duration, &settings)?;
    let mut seen = seen.context("stopped before anything was seen")?;
    // Nobody watches this list change: the most costly comes first.
    seen.report.findings.sort_by(lint::order);
    let view = view(&seen, "live", &settings);
    if args.json {
        say_unmatched(&view);
        print(&(json::line(&view)? + "\n"))?;
    } else {
        print(&text_of(&view))?;
    }
    if settings.engine != EngineChoice::None
        && view.model.engine.kind == EngineKind::None
        && view.selected_findings().next().is_none()
    {
        say(
            "exits could not be counted, so most rules could not judge; `kvmtop doctor` shows how \
            to enable it",
        );
        return Ok(COULD_NOT_LOOK);
    }
    let status = status(&view);
    if status == COULD_NOT_LOOK {
        say("too little was seen to tell; give a longer --duration");
    }
    Ok(status)
}

/// The whole time as one interval, with the findings at its end: the rules remember what came
/// before.
fn watch(
    feed: &mut dyn Feed,
    duration: Duration,
    settings: &Settings,
) -> anyhow::Result<Option<JudgedInterval>> {
    let Some(first) = feed.next()? else {
        return Ok(None);
    };
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
    Ok(report.map(|report| JudgedInterval {
        model: sum.finish(),
        report,
    }))
}

fn text_of(view: &View<'_>) -> String {
    let time = view
        .model
        .interval_s
        .map(figures::seconds)
        .unwrap_or_default();
    let complaints = text::complaints(&view.sources(), columns());
    let guests = figures::count(view.guests().count(), "guest");
    format!(
        "watched {guests} for {time}\n{complaints}{}",
        findings_text::all_findings(view, columns())
    )
}

fn status(view: &View<'_>) -> u8 {
    // A selected guest that does not run cannot be judged.
    if !view.filter.patterns.is_empty() && view.guests().next().is_none() {
        return COULD_NOT_LOOK;
    }
    let status = match view.selected_findings().map(|f| f.severity).max() {
        Some(Severity::Critical) => 2,
        Some(Severity::Warning) => 1,
        Some(Severity::Info) | None => 0,
    };
    // Guests that were seen too short may have findings later; so may those that could not be seen,
    // unless the selected guests were seen.
    let is_young = view.selected_watching().next().is_some();
    let is_blind = view.model.unseen_processes().is_some() && view.filter.patterns.is_empty();
    if status == 0 && (is_young || is_blind) {
        COULD_NOT_LOOK
    } else {
        status
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::ChoiceArgs;
    use crate::cli::config::Config;
    use sample::Sample;
    use testkit::Fixture;

    /// A host at one second after the other.
    struct Seconds(Fixture, f64);

    impl Feed for Seconds {
        fn next(&mut self) -> anyhow::Result<Option<Sample>> {
            self.1 += 1.0;
            Ok(Some(self.0.sample(self.1)))
        }
    }

    /// The exit status after this many seconds.
    fn checked(fixture: &Fixture, seconds: u64) -> u8 {
        let settings = Settings::new(&Config::default(), None, &ChoiceArgs::default(), None);
        let feed = &mut Seconds(fixture.clone(), 0.0);
        let seen = watch(feed, Duration::from_secs(seconds), &settings)
            .unwrap()
            .unwrap();
        status(&View {
            model: &seen.model,
            findings: &seen.report,
            source: "live",
            filter: &settings.domains,
        })
    }

    #[test]
    fn a_host_without_guests_is_watched_for_long_enough_too() {
        assert_eq!(checked(&Fixture::empty_host(), 1), COULD_NOT_LOOK);
        assert_eq!(checked(&Fixture::empty_host(), 8), 0);
    }

    #[test]
    fn a_short_look_at_a_guest_tells_nothing() {
        let windows =
            Fixture::new(testkit::Host::numa(2, 9, 2)).guest(Fixture::windows_on_pm_timer());
        assert_eq!(checked(&windows, 2), COULD_NOT_LOOK);
        assert_eq!(checked(&windows, 200), 1);
    }
}
