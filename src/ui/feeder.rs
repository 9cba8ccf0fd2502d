//! The thread that fetches samples and makes intervals and findings of them, so that keys never wait for either.

use super::action::Replay;
use super::judge::Judge;
use super::player::Player;
use super::state::{Playback, Tick};
use crate::lint;
use crate::model::{Base, Model};
use crate::sample::Sample;
use crate::source::Feed;
use ratatui::crossterm::event::KeyEvent;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::time::{Duration, Instant};

/// What wakes the screen.
pub enum Event {
    /// Something new to show.
    Tick(Box<Tick>),
    /// A key.
    Key(KeyEvent),
    /// The terminal has another size.
    Resize,
    /// A signal asks to leave.
    Leave,
    /// The process runs again after a stop.
    Continued,
    /// Something to say.
    Say(String),
    /// The feed is at its end, with the reason if it failed.
    Ended(Option<anyhow::Error>),
}

/// Intervals before a jump's target that history and rules look back on, at most.
const LOOK_BACK: usize = 60;
/// How long looking back may take; a seek answers well within the 50 ms that feel immediate.
const LOOK_BACK_TIME: Duration = Duration::from_millis(25);
/// A replay redraws no faster than this; at high speed samples in between are passed over.
const FRAME: Duration = Duration::from_millis(50);
/// A gap in a recording is waited through for no longer than this.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// Runs a live feed until it ends or `stop` is set. A screen that is slow to draw (a stuck ssh) loses intervals, never samples:
/// the collector must go on reading.
pub fn live(mut feed: Box<dyn Feed + Send>, mut judge: Judge, events: &SyncSender<Event>, stop: &AtomicBool) {
    let run = || -> anyhow::Result<()> {
        let mut before: Option<Sample> = None;
        while !stop.load(Ordering::Relaxed) {
            let Some(sample) = feed.next()? else { break };
            let mut model = Model::new(&sample, before.as_ref().map_or(Base::Start, Base::Previous));
            let lint::Report { findings, cannot_tell } = judge.next(&mut model);
            before = Some(sample);
            let tick = Tick { model, findings, cannot_tell, ..Tick::default() };
            if let Err(TrySendError::Disconnected(_)) = events.try_send(Event::Tick(Box::new(tick))) {
                break;
            }
        }
        Ok(())
    };
    end(run, events);
    drop(feed);
}

/// Tells the screen how it ended, a panic included.
fn end(run: impl FnOnce() -> anyhow::Result<()>, events: &SyncSender<Event>) {
    let ended = match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(())) => None,
        Ok(Err(e)) => Some(e),
        Err(_) => Some(anyhow::anyhow!("reading samples failed by a fault in kvmtop; please report the message above")),
    };
    // The screen may be gone already.
    let _ = events.send(Event::Ended(ended));
}

/// Plays a recording as the screen asks.
pub fn replay(
    player: Box<dyn Player>,
    judge: Judge,
    start_ms: Option<i64>,
    events: &SyncSender<Event>,
    commands: &Receiver<Replay>,
) {
    end(
        || {
            let mut r = Replayer { player, judge, events, at: None, playing: true, speed: 1.0 };
            let first = start_ms.map_or(0, |ms| r.player.index_from(ms));
            r.playing = start_ms.is_none();
            r.go(first);
            r.run(commands);
            Ok(())
        },
        events,
    );
}

struct Replayer<'a> {
    player: Box<dyn Player>,
    judge: Judge,
    events: &'a SyncSender<Event>,
    /// The sample shown, and its number.
    at: Option<(usize, Arc<Sample>)>,
    playing: bool,
    speed: f64,
}

impl Replayer<'_> {
    fn run(&mut self, commands: &Receiver<Replay>) {
        loop {
            let command = match self.due() {
                Some(wait) => match commands.recv_timeout(wait) {
                    Ok(c) => Some(c),
                    Err(RecvTimeoutError::Timeout) => None,
                    Err(RecvTimeoutError::Disconnected) => return,
                },
                None => match commands.recv() {
                    Ok(c) => Some(c),
                    Err(_) => return,
                },
            };
            if let Some(c) = command {
                self.obey(c);
            } else {
                let next = self.index() + self.stride();
                self.go(next);
            }
        }
    }

    fn index(&self) -> usize {
        self.at.as_ref().map_or(0, |(i, _)| *i)
    }

    fn last(&self) -> usize {
        self.player.len().saturating_sub(1)
    }

    /// Time from the sample shown to the one after, at the speed of playing.
    fn step(&mut self) -> Duration {
        let i = self.index();
        let ms =
            self.player.time_ms(i + 1).zip(self.player.time_ms(i)).map_or(1000, |(b, a)| b.saturating_sub(a).max(1));
        Duration::from_secs_f64((ms as f64 / 1e3 / self.speed).min(LONGEST_WAIT.as_secs_f64()))
    }

    /// How long until the next sample is due; `None`: only a command moves on.
    fn due(&mut self) -> Option<Duration> {
        (self.playing && self.index() < self.last()).then(|| self.step().max(FRAME))
    }

    /// How many samples to go on so that playing keeps its speed.
    fn stride(&mut self) -> usize {
        let step = self.step().as_secs_f64().max(1e-6);
        ((FRAME.as_secs_f64() / step).round() as usize).max(1)
    }

    fn obey(&mut self, command: Replay) {
        let at = self.index();
        let to = match command {
            Replay::Play(on) => {
                self.playing = on;
                if on && at == self.last() { 0 } else { at }
            }
            Replay::Speed(speed) => {
                self.speed = speed;
                at
            }
            Replay::Step(n) => {
                self.playing = false;
                at.saturating_add_signed(isize::try_from(n).unwrap_or(0))
            }
            Replay::Jump(ms) => {
                let now = self.player.time_ms(at).unwrap_or(0);
                let to = self.player.index_at(now.saturating_add(ms));
                // Samples further apart than the jump: at least one on.
                if to == at { at.saturating_add_signed(if ms < 0 { -1 } else { 1 }) } else { to }
            }
            Replay::Seek(ms) => self.player.index_from(ms),
            Replay::End { last } => {
                if last {
                    self.last()
                } else {
                    0
                }
            }
            Replay::Mark { forward } => {
                self.playing = false;
                if let Some(i) = self.player.next_mark(at, forward) {
                    i
                } else {
                    let side = if forward { "after" } else { "before" };
                    let _ = self.events.send(Event::Say(format!("no mark {side} this sample")));
                    return;
                }
            }
        };
        self.go(to);
    }

    /// Shows a sample. A damaged one is said and passed over.
    fn go(&mut self, index: usize) {
        let index = index.min(self.last());
        let sample = match self.fetch(index) {
            Ok(s) => s,
            Err(e) => {
                let _ = self.events.send(Event::Say(format!("sample {}: {e:#}", index + 1)));
                self.playing &= index < self.last();
                if let Some((i, _)) = &mut self.at {
                    *i = index;
                }
                return;
            }
        };
        let follows = self.at.as_ref().is_some_and(|(i, _)| *i + 1 == index);
        let stays = self.at.as_ref().is_some_and(|(i, _)| *i == index);
        let before = if follows || stays { None } else { Some(self.look_back(index)) };
        let mut model = self.model(index, &sample);
        let lint::Report { findings, cannot_tell } = self.judge.next(&mut model);
        self.at = Some((index, sample));
        if index == self.last() {
            self.playing = false;
        }
        let playback = Playback {
            index,
            len: self.player.len(),
            range_ms: (self.player.time_ms(0).unwrap_or(0), self.player.time_ms(self.last()).unwrap_or(0)),
            speed: self.speed,
            playing: self.playing,
            marks: self.player.marks(),
        };
        let tick = Tick { model, findings, cannot_tell, playback: Some(playback), before, again: stays };
        let _ = self.events.send(Event::Tick(Box::new(tick)));
    }

    fn fetch(&mut self, index: usize) -> anyhow::Result<Arc<Sample>> {
        match &self.at {
            Some((i, sample)) if *i == index => Ok(sample.clone()),
            _ => self.player.sample(index),
        }
    }

    fn model(&mut self, index: usize, sample: &Sample) -> Model {
        if let Some(seconds) = self.player.stands_alone(index) {
            return Model::new(sample, Base::Whole(seconds));
        }
        let before = index.checked_sub(1).and_then(|i| self.fetch(i).ok());
        Model::new(sample, before.as_ref().map_or(Base::Start, |b| Base::Previous(b)))
    }

    /// The intervals before a sample that was jumped to: history and rules know them as if they had been played.
    fn look_back(&mut self, index: usize) -> Vec<Model> {
        self.judge.forget();
        let Some(nearest) = index.checked_sub(1) else { return Vec::new() };
        let begin = Instant::now();
        if let Ok(s) = self.fetch(nearest) {
            self.model(nearest, &s);
        }
        let each = begin.elapsed().max(Duration::from_micros(1));
        let n = (LOOK_BACK_TIME.as_micros() / each.as_micros().max(1)).clamp(2, LOOK_BACK as u128) as usize;
        let mut models = Vec::new();
        for i in index.saturating_sub(n)..index {
            let Ok(sample) = self.fetch(i) else { continue };
            let mut model = self.model(i, &sample);
            self.judge.next(&mut model);
            models.push(model);
        }
        models
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::Fixture;
    use std::sync::mpsc;

    struct Made(Fixture, usize);

    impl Player for Made {
        fn len(&self) -> usize {
            self.1
        }
        fn time_ms(&mut self, index: usize) -> Option<i64> {
            (index < self.1).then(|| self.0.sample(index as f64).time_ms)
        }
        fn index_at(&mut self, time_ms: i64) -> usize {
            let first = self.0.sample(0.0).time_ms;
            (((time_ms - first).max(0) / 1000) as usize).min(self.1 - 1)
        }
        fn index_from(&mut self, time_ms: i64) -> usize {
            self.index_at(time_ms + 999)
        }
        fn sample(&mut self, index: usize) -> anyhow::Result<Arc<Sample>> {
            anyhow::ensure!(index != 50, "damaged");
            Ok(Arc::new(self.0.sample(index as f64)))
        }
        fn next_mark(&mut self, from: usize, forward: bool) -> Option<usize> {
            (forward && from < 30).then_some(30)
        }
    }

    fn play(commands: &[Replay]) -> Vec<(usize, Tick)> {
        let (tx, rx) = mpsc::sync_channel(100);
        let (ctx, crx) = mpsc::channel();
        commands.iter().for_each(|c| ctx.send(*c).unwrap());
        drop(ctx);
        let start = Fixture::busy_host().sample(10.0).time_ms;
        replay(Box::new(Made(Fixture::busy_host(), 100)), Judge::default(), Some(start), &tx, &crx);
        drop(tx);
        rx.into_iter()
            .filter_map(|e| match e {
                Event::Tick(t) => Some((t.playback.as_ref().unwrap().index, *t)),
                _ => None,
            })
            .collect()
    }

    #[test]
    fn commands_move_and_say_where() {
        let ticks = play(&[
            Replay::Step(1),
            Replay::Step(-2),
            Replay::Jump(60_000),
            Replay::End { last: true },
            Replay::End { last: false },
            Replay::Step(-1),
            Replay::Mark { forward: true },
            Replay::Mark { forward: true },
            Replay::Speed(4.0),
        ]);
        let at: Vec<usize> = ticks.iter().map(|(i, _)| *i).collect();
        assert_eq!(at, [10, 11, 9, 69, 99, 0, 0, 30, 30]);
        let last = ticks.last().unwrap().1.playback.as_ref().unwrap();
        assert!((last.speed - 4.0).abs() < f64::EPSILON && !last.playing && last.len == 100);
    }

    #[test]
    fn a_jump_looks_back_and_a_step_does_not() {
        let ticks = play(&[Replay::Step(1), Replay::Jump(30_000)]);
        assert!(ticks[0].1.before.as_ref().is_some_and(|b| !b.is_empty()));
        assert!(ticks[1].1.before.is_none());
        assert!(ticks[2].1.before.is_some());
        assert!(ticks.iter().all(|(_, t)| t.model.interval_s == Some(1.0)));
    }

    #[test]
    fn a_damaged_sample_is_passed_over() {
        let ticks = play(&[Replay::Jump(39_000), Replay::Step(1), Replay::Step(1)]);
        let at: Vec<usize> = ticks.iter().map(|(i, _)| *i).collect();
        assert_eq!(at, [10, 49, 51]);
    }
}
