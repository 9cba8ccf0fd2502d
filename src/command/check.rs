//! `kvmtop check`: watches for a while and prints what is wrong; scripts read the exit status.

use super::{columns, live, print, say, say_unmatched};
use crate::cli::Settings;
use crate::cli::args::{CheckArgs, EngineChoice};
use ::report::{View, findings_text, json, rules, text};
use anyhow::Context;
use judge::analysis::{JudgedInterval, Pipeline};
use judge::figures;
use judge::lint::{self, Severity, StillWatched};
use judge::model::ModelSum;
use sample::{EngineKind, Feed};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// Exit status when nothing could be judged.
pub const COULD_NOT_LOOK: u8 = 3;
/// How long it watches without `--duration`.
const DURATION: Duration = Duration::from_secs(10);
/// How late a sample may be before the user hears of it, and then again after twice the time.
const PATIENCE: Duration = Duration::from_secs(3);

/// Runs it on the live host.
pub fn run(args: &CheckArgs, settings: &Settings) -> anyhow::Result<u8> {
    if args.list_rules {
        print(&rules::text())?;
        return Ok(0);
    }
    let duration = args.duration.unwrap_or(DURATION);
    let mut settings = Settings { interval: settings.interval.min(duration), ..settings.clone() };
    settings.findings.keep_events = true;
    let mut live = live::start(&settings);
    live::stop_on_signals(live.commands)?;
    let taken = tell_when_late(settings.interval + PATIENCE, say)?;
    let seen = watch(&mut live.feed, duration, &settings, &taken)?;
    drop(taken);
    let JudgedInterval { model, mut report } = seen.context("stopped before anything was seen")?;
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
        say("exits could not be counted, so most rules could not judge; `kvmtop doctor` shows how to enable it");
        return Ok(COULD_NOT_LOOK);
    }
    let status = status(&view);
    if status == COULD_NOT_LOOK
        && let Some(needed) = shortest_s(&view).map(figures::seconds)
    {
        say(&format!("too little was seen to tell; the shortest useful --duration now is {needed}"));
    }
    Ok(status)
}

/// How long it takes to tell from the beginning of this check, seconds; `None` where enough was seen.
fn shortest_s(view: &View<'_>) -> Option<f64> {
    let young = view.selected_watching().filter(|w| w.is_every_rule());
    let missing_s = young.map(|w| w.needed_s - w.seen_s).reduce(f64::max)?;
    // An interval starts a little after the guest.
    Some((view.model.interval_s.unwrap_or(0.0) + missing_s - 0.01).ceil())
}

/// Says when no sample is taken for a time, from another thread: a host where processes, open files or groups
/// abound can hold a sample up. Hears of each sample, and ends with the sender.
fn tell_when_late(patience: Duration, say: impl Fn(&str) + Send + 'static) -> std::io::Result<Sender<()>> {
    let (taken, samples) = channel();
    std::thread::Builder::new().name("late".into()).spawn(move || {
        rights::keep_none();
        let (mut since, mut wait) = (Instant::now(), patience);
        loop {
            match samples.recv_timeout(wait) {
                Ok(()) => (since, wait) = (Instant::now(), patience),
                Err(RecvTimeoutError::Timeout) => {
                    let late = figures::seconds(since.elapsed().as_secs_f64().round());
                    say(&format!(
                        "no sample for {late}: reading this host takes long, as with very many processes, open files \
                         or groups; the check ends with the next sample that is due (Ctrl-C twice: at once)"
                    ));
                    wait *= 2;
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    })?;
    Ok(taken)
}

/// The whole time as one interval, with the findings at its end: the rules remember what came before. `taken` hears of
/// each sample.
fn watch(
    feed: &mut dyn Feed,
    duration: Duration,
    settings: &Settings,
    taken: &Sender<()>,
) -> anyhow::Result<Option<JudgedInterval>> {
    let Some(first) = feed.next()? else { return Ok(None) };
    let first = Arc::new(first);
    let mut pipeline = Pipeline::new(settings.findings.clone());
    pipeline.next(first.clone());
    let (mut sum, mut report) = (ModelSum::default(), None);
    while let Some(sample) = feed.next()? {
        // Nobody may listen.
        let _ = taken.send(());
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
    let time = view.model.interval_s.map(figures::seconds).unwrap_or_default();
    let complaints = text::complaints(&view.sources(), columns());
    let guests = figures::count(view.guests().count(), "guest");
    let late = text::late(view.model).map_or_else(String::new, |late| format!(", {late}: kvmtop was held up"));
    format!("watched {guests} for {time}{late}\n{complaints}{}", findings_text::all(view, columns()))
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
    // Guests that were seen too short may have findings later; so may those that could not be seen, unless the selected
    // guests were seen.
    let is_young = view.selected_watching().any(StillWatched::is_every_rule);
    let is_blind = view.model.unseen_processes().is_some() && view.domains.patterns.is_empty();
    if status == 0 && (is_young || is_blind) { COULD_NOT_LOOK } else { status }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::args::ChoiceArgs;
    use crate::cli::config::Config;
    use sample::Sample;
    use testkit::{Fixture, START_MS};

    /// A host at one second after the other.
    struct Seconds(Fixture, f64);

    impl Feed for Seconds {
        fn next(&mut self) -> anyhow::Result<Option<Sample>> {
            self.1 += 1.0;
            Ok(Some(self.0.sample(self.1)))
        }
    }

    /// The exit status after this many seconds, and the shortest useful duration that is then printed.
    fn checked(fixture: &Fixture, seconds: u64) -> (u8, Option<f64>) {
        let settings = Settings::new(&Config::default(), None, &ChoiceArgs::default(), None, true);
        let (duration, taken) = (Duration::from_secs(seconds), channel().0);
        let seen = watch(&mut Seconds(fixture.clone(), 0.0), duration, &settings, &taken).unwrap().unwrap();
        let view = View { model: &seen.model, findings: &seen.report, source: "live", domains: &settings.domains };
        (status(&view), shortest_s(&view))
    }

    /// The second sample comes once the user has heard that it is late.
    #[test]
    fn a_late_sample_is_said_while_it_is_waited_for() {
        let (said, heard) = channel();
        let taken = tell_when_late(Duration::from_millis(5), move |text| drop(said.send(text.to_owned()))).unwrap();
        for _ in 0..2 {
            assert!(heard.recv().unwrap().starts_with("no sample for "), "twice the time later once more");
        }
        drop(taken);
        // The thread ends.
        while heard.recv().is_ok() {}
    }

    #[test]
    fn a_host_without_guests_is_watched_for_long_enough_too() {
        assert_eq!(checked(&Fixture::empty_host(), 1), (COULD_NOT_LOOK, Some(8.0)));
        assert_eq!(checked(&Fixture::empty_host(), 8), (0, None));
    }

    #[test]
    fn the_shortest_useful_duration_is_enough() {
        let windows = || Fixture::new(testkit::Host::numa(2, 9, 2)).guest(Fixture::windows_on_pm_timer());
        let started = |ago_s: i64| {
            let mut fixture = windows();
            fixture.guests[0] = fixture.guests[0].clone().facts(|f| f.started_ms = Some(START_MS - ago_s * 1000));
            fixture
        };
        for fixture in [windows(), started(60), started(117), started(119), started(400)] {
            let (first, needed_s) = checked(&fixture, 2);
            let needed_s = needed_s.unwrap();
            assert_eq!(first, COULD_NOT_LOOK);
            assert_eq!(checked(&fixture, needed_s as u64), (1, None), "{needed_s} s");
            // Only the interval in which a guard ends makes a second of difference.
            let late = checked(&fixture, needed_s as u64 - 2).1.unwrap();
            assert!((needed_s - 1.0..=needed_s).contains(&late), "{needed_s} s were said, and then {late} s");
        }
    }
}
