//! Plays a recording on the screen: play, pause, step, seek, speed.

use super::feeder_thread::run_feeder;
use crate::cli::Settings;
use crate::command::recorded_intervals::RecordedIntervals;
use crate::ui::{
    self, Passed, Playback, Replay, ScreenEvent, ScreenHandlers, ScreenSession, ScreenSource, Tick,
};
use judge::analysis::JudgedInterval;
use judge::lint::{FindingId, Severity};
use session::{Cursor, KeptSamples};
use std::collections::HashSet;
use std::ops::Range;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, channel};
use std::time::Duration;

/// A replay redraws no faster than this; at high speed it skips samples in between.
const FRAME: Duration = Duration::from_millis(50);
/// The slowest and the fastest speed of a replay, in multiples of real time.
const MIN_SPEED: f64 = 0.25;
const MAX_SPEED: f64 = 64.0;
/// A replay waits no longer than this for a sample, however long the recording paused.
const MAX_WAIT: Duration = Duration::from_secs(2);
/// How many samples are judged at a time in search of a problem, and how often for one key.
const SEARCH: usize = 60;
const MAX_SEARCHES: usize = 10;

/// Shows a recording until the user leaves. With a start, milliseconds since the epoch, it begins
/// there, paused.
pub fn replay(
    cursor: Cursor<'static>,
    source: ScreenSource,
    title: String,
    start_ms: Option<i64>,
    settings: &Settings,
) -> anyhow::Result<()> {
    crate::command::needs_terminal()?;
    let filter = settings.domains.clone();
    let rules = settings.findings.clone();
    let (commands, requests) = channel();
    let feeder = move |events: SyncSender<ScreenEvent>| {
        run_feeder(
            || {
                Player::new(RecordedIntervals::new(cursor, rules, filter), &events)
                    .play(start_ms, &requests);
                Ok(())
            },
            &events,
        );
    };
    let interval_s = settings.interval.as_secs_f64();
    let session = ScreenSession {
        source,
        title,
        interval_s,
        ..ScreenSession::default()
    };
    let handlers = ScreenHandlers {
        // No key asks a recording for either.
        control: Box::new(|_| {}),
        keep: Box::new(|_| anyhow::bail!("a recording keeps no choices")),
        replay: commands,
    };
    ui::run(&settings.screen, session, handlers, feeder)
}

/// Shows the intervals of a recording as it is asked to.
pub struct Player<'a> {
    intervals: RecordedIntervals<'a>,
    events: &'a SyncSender<ScreenEvent>,
    /// The number of the sample that the user is at; a damaged one is not shown.
    position: usize,
    /// The last interval shown, and the number of the sample that ends it.
    shown: Option<(usize, JudgedInterval)>,
    playing: bool,
    speed: f64,
    /// The problem that the position was looked for, until it is shown.
    new_problem: Option<FindingId>,
}

/// A problem, and the number of the sample that it begins with.
struct NewProblem {
    index: usize,
    problem: FindingId,
}

impl<'a> Player<'a> {
    fn new(intervals: RecordedIntervals<'a>, events: &'a SyncSender<ScreenEvent>) -> Self {
        Self {
            intervals,
            events,
            position: 0,
            shown: None,
            playing: true,
            speed: 1.0,
            new_problem: None,
        }
    }

    /// At the sample of a time, which is not shown yet, without playing.
    pub fn from_time(
        intervals: RecordedIntervals<'a>,
        time_ms: i64,
        events: &'a SyncSender<ScreenEvent>,
    ) -> Self {
        let position = intervals.samples.index_from(time_ms);
        Self {
            position,
            playing: false,
            ..Self::new(intervals, events)
        }
    }

    /// Continues with the samples that are kept in memory now.
    pub fn renew(&mut self, kept: &KeptSamples) {
        let dropped = self.intervals.renew(kept);
        if dropped > 0 {
            self.position = self.position.saturating_sub(dropped);
            self.shown = None;
        }
    }

    /// Plays until nobody sends commands any more.
    fn play(&mut self, start_ms: Option<i64>, commands: &Receiver<Replay>) {
        self.playing = start_ms.is_none();
        let first = start_ms.map_or(0, |ms| self.intervals.samples.index_from(ms));
        self.go(first);
        loop {
            match commands.recv_timeout(self.due().unwrap_or(Duration::MAX)) {
                Ok(command) => self.handle(command),
                Err(RecvTimeoutError::Timeout) => self.go(self.position + self.stride()),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn last(&self) -> usize {
        self.intervals.samples.len().saturating_sub(1)
    }

    /// Time from this sample to the next at the speed of playing.
    fn step(&self) -> Duration {
        let i = self.position;
        let times = self
            .intervals
            .samples
            .time_ms(i + 1)
            .zip(self.intervals.samples.time_ms(i));
        let ms = times.map_or(1000, |(b, a)| b.saturating_sub(a).max(1));
        Duration::from_secs_f64((ms as f64 / 1e3 / self.speed).min(MAX_WAIT.as_secs_f64()))
    }

    /// How long until the next sample is due; `None`: only a command moves on.
    fn due(&self) -> Option<Duration> {
        if self.playing && self.position < self.last() {
            Some(self.step().max(FRAME))
        } else {
            None
        }
    }

    /// How many samples to move on so that playing keeps its speed.
    fn stride(&self) -> usize {
        let step = self.step().as_secs_f64().max(1e-6);
        ((FRAME.as_secs_f64() / step).round() as usize).max(1)
    }

    /// Carries out a command.
    pub fn handle(&mut self, command: Replay) {
        let at = self.position;
        let to = match command {
            Replay::Play(on) => {
                self.playing = on;
                if on && at == self.last() { 0 } else { at }
            }
            Replay::Faster | Replay::Slower => {
                let by = if command == Replay::Faster { 2.0 } else { 0.5 };
                self.speed = (self.speed * by).clamp(MIN_SPEED, MAX_SPEED);
                at
            }
            Replay::Step(n) => {
                self.playing = false;
                at.saturating_add_signed(isize::try_from(n).unwrap_or(0))
            }
            Replay::Jump(ms) => {
                let to = self.intervals.samples.index_beside(at, ms);
                // Samples may lie further apart than the jump: move at least one.
                if to == at {
                    at.saturating_add_signed(if ms < 0 { -1 } else { 1 })
                } else {
                    to
                }
            }
            Replay::Seek(ms) => self.intervals.samples.index_from(ms),
            Replay::Problem(is_next) => self.find_problem(is_next),
            Replay::From(_) | Replay::Now => at,
            Replay::Last => self.last(),
            Replay::First => 0,
        };
        self.go(to);
    }

    /// The next or previous sample with a new problem; else the end of what was searched.
    fn find_problem(&mut self, is_next: bool) -> usize {
        self.playing = false;
        let at = self.position;
        let len = self.intervals.samples.len();
        let mut end = at;
        for _ in 0..MAX_SEARCHES {
            let range = if is_next {
                (end + 1).min(len)..(end + 1 + SEARCH).min(len)
            } else {
                end.saturating_sub(SEARCH)..end
            };
            if range.is_empty() {
                let when = if is_next { "after" } else { "before" };
                let none = format!("no problem begins {when} this");
                let _ = self.events.send(ScreenEvent::Say(none));
                return at;
            }
            end = if is_next { range.end - 1 } else { range.start };
            let mut found = self.new_problems(range);
            let found = if is_next {
                found.into_iter().next()
            } else {
                found.pop()
            };
            if let Some(found) = found {
                self.new_problem = Some(found.problem);
                return found.index;
            }
        }
        let none = "no problem begins in between; the same key searches on";
        let _ = self.events.send(ScreenEvent::Say(none.into()));
        end
    }

    /// The problems of some samples that the sample before each does not have, the worst of each
    /// sample. What is only good to know is none.
    fn new_problems(&mut self, range: Range<usize>) -> Vec<NewProblem> {
        let mut new = Vec::new();
        let mut known: Option<HashSet<FindingId>> = None;
        for index in range.start.saturating_sub(1)..range.end {
            let Ok((interval, _)) = self.intervals.at(index) else {
                continue;
            };
            let mut problems = HashSet::new();
            let mut worst = None;
            for finding in interval.report.findings {
                if finding.severity == Severity::Info {
                    continue;
                }
                let id = finding.id();
                if worst.is_none() && known.as_ref().is_some_and(|known| !known.contains(&id)) {
                    worst = Some(id.clone());
                }
                problems.insert(id);
            }
            if let Some(problem) = worst {
                new.push(NewProblem { index, problem });
            }
            known = Some(problems);
        }
        new
    }

    /// Shows the interval that ends with a sample. A damaged sample is reported and skipped.
    fn go(&mut self, index: usize) {
        let index = index.min(self.last());
        self.position = index;
        if let Some((_, interval)) = self.shown.as_ref().filter(|(shown, _)| *shown == index) {
            let interval = interval.clone();
            return self.show(interval, Passed::default(), true);
        }
        let (interval, passed) = match self.intervals.at(index) {
            Ok(reached) => reached,
            Err(e) => {
                let _ = self
                    .events
                    .send(ScreenEvent::Say(format!("sample {}: {e:#}", index + 1)));
                self.playing &= index < self.last();
                return;
            }
        };
        self.shown = Some((index, interval.clone()));
        if index == self.last() {
            self.playing = false;
        }
        self.show(interval, passed, false);
    }

    fn show(&mut self, interval: JudgedInterval, passed: Passed, again: bool) {
        let playback = Playback {
            index: self.position,
            len: self.intervals.samples.len(),
            range_ms: self
                .intervals
                .samples
                .session()
                .range_ms()
                .unwrap_or_default(),
            speed: self.speed,
            playing: self.playing,
        };
        let tick = Tick {
            playback: Some(playback),
            passed,
            again,
            new_problem: self.new_problem.take(),
            ..interval.into()
        };
        let _ = self.events.send(ScreenEvent::Tick(Box::new(tick)));
    }
}

#[cfg(test)]
mod same_findings_tests;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::{AppState, Charset, Palette, Theme, Tone, paint};
    use judge::analysis::{DomainFilter, Pipeline};
    use judge::lint;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use session::{Limits, Recorder, Session};
    use std::sync::mpsc;
    use testkit::Fixture;

    /// A recording of 100 seconds in two runs.
    fn recorded(path: &std::path::Path) -> Session {
        for seconds in [0..50, 50..100] {
            let mut recorder = Recorder::create(path, Limits::default()).unwrap();
            seconds.for_each(|s| {
                recorder
                    .append(&Fixture::busy_host().sample(f64::from(s)))
                    .unwrap();
            });
            recorder.close().unwrap();
        }
        Session::open(path).unwrap()
    }

    fn events(session: Session, commands: &[Replay]) -> Vec<ScreenEvent> {
        let (tx, rx) = mpsc::sync_channel(100);
        let (ctx, crx) = mpsc::channel();
        commands.iter().for_each(|c| ctx.send(*c).unwrap());
        drop(ctx);
        let start = Fixture::busy_host().sample(10.0).time_ms;
        let intervals = RecordedIntervals::new(
            session.cursor(),
            lint::Options::default(),
            DomainFilter::default(),
        );
        Player::new(intervals, &tx).play(Some(start), &crx);
        drop(tx);
        rx.into_iter().collect()
    }

    fn ticks(events: Vec<ScreenEvent>) -> Vec<(usize, Tick)> {
        let tick = |e| match e {
            ScreenEvent::Tick(t) => Some((t.playback.as_ref().unwrap().index, *t)),
            _ => None,
        };
        events.into_iter().filter_map(tick).collect()
    }

    fn play(commands: &[Replay]) -> Vec<(usize, Tick)> {
        let folder = tempfile::tempdir().unwrap();
        ticks(events(recorded(&folder.path().join("s.kvmtop")), commands))
    }

    #[test]
    fn commands_move_and_say_where() {
        let ticks = play(&[
            Replay::Step(1),
            Replay::Step(-2),
            Replay::Jump(60_000),
            Replay::Last,
            Replay::First,
            Replay::Step(-1),
            Replay::Faster,
        ]);
        let at: Vec<usize> = ticks.iter().map(|(i, _)| *i).collect();
        assert_eq!(at, [10, 11, 9, 69, 99, 0, 0, 0]);
        let last = ticks.last().unwrap().1.playback.as_ref().unwrap();
        assert!((last.speed - 2.0).abs() < f64::EPSILON && !last.playing && last.len == 100);
    }

    #[test]
    fn a_jump_looks_back_and_a_step_does_not() {
        let ticks = play(&[Replay::Step(1), Replay::Jump(30_000)]);
        let passed: Vec<(bool, usize)> = ticks
            .iter()
            .map(|(_, t)| (t.passed.is_jump, t.passed.before.len()))
            .collect();
        assert_eq!(passed, [(true, 10), (false, 0), (false, 29)]);
        assert!(ticks.iter().all(|(_, t)| t.model.interval_s == Some(1.0)));
    }

    #[test]
    fn a_damaged_sample_is_reported_and_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.kvmtop");
        let session = recorded(&path);
        // Damaged after it was opened: the last byte of the first run's last frame, before the
        // header of the second run, which is a frame with a map that begins with `tool`.
        let mut bytes = std::fs::read(&path).unwrap();
        let tool = bytes.windows(5).rposition(|w| w == b"\xa4tool").unwrap();
        bytes[tool - 10] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        let events = events(
            session,
            &[Replay::Jump(38_000), Replay::Step(1), Replay::Step(1)],
        );
        let said = |e: &ScreenEvent| {
            matches!(e, ScreenEvent::Say(text) if text.starts_with("sample \
            50: "))
        };
        assert!(events.iter().any(said));
        let shown = ticks(events);
        assert_eq!(
            shown.iter().map(|(i, _)| *i).collect::<Vec<_>>(),
            [10, 48, 50]
        );
        assert_eq!(shown[2].1.model.interval_s, None, "the second run begins");
    }

    /// What the screen of a replay shows of a recording's first sample.
    fn screen(path: &std::path::Path) -> String {
        let session = Session::open(path).unwrap();
        let sample = session.cursor().sample(0).unwrap();
        let mut state = AppState::new(ui::ScreenSession::default(), (120, 40));
        state.absorb(Pipeline::default().next_or_first(sample).into());
        let mut terminal = Terminal::new(TestBackend::new(120, 40)).unwrap();
        let theme = Theme::new(Palette::None, Tone::Dark, Charset::Unicode);
        terminal
            .draw(|frame| _ = paint(frame.buffer_mut(), &state, &theme))
            .unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn a_damaged_recording_is_reported_and_not_shown_as_being_recorded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.kvmtop");
        let mut recorder = Recorder::create(&path, Limits::default()).unwrap();
        for second in 0..50 {
            recorder
                .append(&Fixture::busy_host().sample(f64::from(second)))
                .unwrap();
        }
        recorder.close().unwrap();
        assert!(!screen(&path).contains("session degraded"));
        let mut bytes = std::fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x55;
        std::fs::write(&path, bytes).unwrap();
        let shown = screen(&path);
        assert!(shown.contains("session degraded"), "{shown}");
        assert!(!shown.contains("● rec"), "{shown}");
    }
}
