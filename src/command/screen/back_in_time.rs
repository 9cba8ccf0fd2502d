//! A live screen goes back to the samples that are kept in memory.

use super::player::Player;
use crate::command::recorded_intervals::RecordedIntervals;
use crate::ui::{Replay, ScreenEvent};
use judge::analysis::DomainFilter;
use judge::lint;
use session::KeptSamples;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::Duration;

/// How often a screen that is back in time lets go of samples that were dropped.
const RENEW: Duration = Duration::from_secs(1);

/// Shows kept samples as the commands ask, until nobody sends any more.
pub fn serve(
    kept: &KeptSamples,
    rules: &lint::Options,
    filter: &DomainFilter,
    commands: &Receiver<Replay>,
    events: &SyncSender<ScreenEvent>,
) {
    let mut player: Option<Player<'_>> = None;
    loop {
        let wait = if player.is_some() {
            RENEW
        } else {
            Duration::MAX
        };
        let command = match commands.recv_timeout(wait) {
            Ok(command) => Some(command),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        match command {
            Some(Replay::Now) => player = None,
            Some(Replay::From(time_ms)) => {
                let intervals =
                    RecordedIntervals::new(kept.cursor(), rules.clone(), filter.clone());
                player = Some(Player::from_time(intervals, time_ms, events));
            }
            command => {
                if let Some(player) = &mut player {
                    player.renew(kept);
                    if let Some(command) = command {
                        player.handle(command);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::Tick;
    use std::sync::mpsc;
    use testkit::Fixture;

    fn shown(commands: &[Replay]) -> Vec<Tick> {
        let kept = KeptSamples::new(16 << 20);
        for second in 0..100 {
            kept.push(&Fixture::busy_host().sample(f64::from(second)))
                .unwrap();
        }
        let (events, receiver) = mpsc::sync_channel(100);
        let (sender, requests) = mpsc::channel();
        for command in commands {
            sender.send(*command).unwrap();
        }
        drop(sender);
        let (rules, filter) = (lint::Options::default(), DomainFilter::default());
        serve(&kept, &rules, &filter, &requests, &events);
        drop(events);
        let mut ticks = Vec::new();
        for event in receiver {
            if let ScreenEvent::Tick(tick) = event {
                ticks.push(*tick);
            }
        }
        ticks
    }

    fn at(second: u32) -> i64 {
        Fixture::busy_host().sample(f64::from(second)).time_ms
    }

    #[test]
    fn keys_move_through_what_is_kept_from_the_interval_that_was_shown() {
        let ticks = shown(&[
            Replay::Step(-1),
            Replay::From(at(90)),
            Replay::Step(-1),
            Replay::Jump(-60_000),
            Replay::Step(1),
            Replay::Seek(at(50)),
            Replay::Now,
            Replay::Step(-1),
            Replay::From(at(99)),
            Replay::Step(-1),
        ]);
        let times: Vec<i64> = ticks.iter().map(|tick| tick.model.time_ms).collect();
        assert_eq!(times, [89, 29, 30, 50, 98].map(at));
        for tick in &ticks {
            assert_eq!(tick.model.interval_s, Some(1.0));
            assert!(!tick.playback.as_ref().unwrap().playing);
        }
    }

    #[test]
    fn the_previous_problem_is_found_where_it_begins() {
        let ticks = shown(&[
            Replay::From(at(99)),
            Replay::Problem(false),
            Replay::Step(-1),
            Replay::Problem(true),
        ]);
        let [first, before, again] = &ticks[..] else {
            panic!("{} intervals", ticks.len())
        };
        let problem = first.new_problem.as_ref().unwrap();
        let has_problem = |tick: &Tick| tick.report.findings.iter().any(|f| f.id() == *problem);
        assert!(has_problem(first) && !has_problem(before));
        assert_eq!(before.new_problem, None);
        assert_eq!(again.new_problem.as_ref(), Some(problem));
        assert_eq!(again.model.time_ms, first.model.time_ms);
    }
}
