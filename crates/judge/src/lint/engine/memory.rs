//! What rules remember of recent intervals. Bounded, and cleared on a seek.
//!
//! On a running host a single second says little: a finding is reported once its pattern showed in
//! a few of the last seconds, and is withdrawn when the pattern has been absent for a while.

use super::pattern::PatternTrack;
use crate::lint::facts::{Finding, FindingId, Hold, REMEMBERED_S, RuleId};
use crate::model::{DomainModel, GuestId, Model};
use sample::DomainState;
use std::collections::{BTreeMap, HashMap, HashSet};

/// The most patterns that are tracked at once.
const MAX_PATTERNS: usize = 20_000;

/// The subject of a finding; `None` is the host.
type Subject = Option<GuestId>;
/// A pattern of a subject; the number tells those apart that look the same.
type PatternKey = (FindingId, Subject, usize);

/// Recent observations per rule and guest.
#[derive(Debug, Clone, Default)]
pub struct RuleMemory {
    tracks: BTreeMap<PatternKey, PatternTrack>,
    paused: HashMap<GuestId, f64>,
    /// For how long each guest's behaviour was judged, at most a minute.
    judged_s: HashMap<GuestId, f64>,
    /// For how long the host was watched, at most a minute.
    pub(crate) watched_s: f64,
}

/// One interval, for the memory.
pub(crate) struct NewInterval {
    /// What the rules found, and who it is about.
    pub found: Vec<(Subject, Finding)>,
    /// The end of the interval, milliseconds since the epoch.
    pub now_ms: i64,
    /// Its length.
    pub seconds: f64,
    /// Whether findings say exactly since when they hold, however long that is.
    pub exactly: bool,
}

impl RuleMemory {
    /// Forgets everything, for example after a seek.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Notes which guests are paused, and forgets guests that are gone.
    pub(crate) fn watch(&mut self, model: &Model) {
        let seconds = model.interval_s.unwrap_or(0.0);
        let alive: HashSet<GuestId> = model.domains.iter().map(DomainModel::key).collect();
        self.paused.retain(|w, _| alive.contains(w));
        self.judged_s.retain(|w, _| alive.contains(w));
        for since_s in self.paused.values_mut() {
            *since_s += seconds;
        }
        for domain in &model.domains {
            if domain.state == DomainState::Paused {
                self.paused.insert(domain.key(), 0.0);
            }
        }
        self.tracks.retain(|(_, w, _), track| {
            track.is_event || w.as_ref().is_none_or(|w| alive.contains(w))
        });
        self.watched_s = (self.watched_s + seconds).min(REMEMBERED_S);
    }

    /// Notes that a guest's behaviour is judged in an interval of this length. Returns for how long
    /// it was by now.
    pub(crate) fn judged_s(&mut self, domain: &DomainModel, seconds: f64) -> f64 {
        let judged = self.judged_s.entry(domain.key()).or_default();
        *judged = (*judged + seconds).min(REMEMBERED_S);
        *judged
    }

    /// Seconds since a guest was last seen paused, by the clock that nobody sets.
    pub(crate) fn resumed_s(&self, domain: &DomainModel) -> Option<f64> {
        self.paused.get(&domain.key()).copied()
    }

    /// Takes the findings of this interval and returns those that last.
    pub(crate) fn take_interval(
        &mut self,
        new: NewInterval,
        hold: impl Fn(RuleId) -> Hold,
    ) -> Vec<Finding> {
        let NewInterval {
            found,
            now_ms,
            seconds,
            exactly,
        } = new;
        let mut now: BTreeMap<PatternKey, Finding> = BTreeMap::new();
        let mut same: HashMap<(FindingId, Subject), usize> = HashMap::new();
        for (subject, finding) in found {
            let number = same.entry((finding.id(), subject.clone())).or_default();
            *number += 1;
            now.insert((finding.id(), subject, *number), finding);
        }
        let paused = &self.paused;
        self.tracks.retain(|key, track| {
            if now.contains_key(key) {
                return true;
            }
            track.observe(hold(key.0.rule), seconds, None);
            // Nothing that a guest did still holds while it does not run; what was set up shows.
            let guest = key.1.as_ref();
            track.is_event || guest.is_none_or(|guest| paused.get(guest) != Some(&0.0))
        });
        for (key, finding) in now {
            if self.tracks.len() < MAX_PATTERNS || self.tracks.contains_key(&key) {
                let hold = hold(finding.rule);
                self.tracks
                    .entry(key)
                    .or_default()
                    .shows(hold, seconds, finding, now_ms);
            }
        }
        let tracks = self.tracks.iter();
        let reported = tracks.filter_map(|(key, t)| t.report(hold(key.0.rule), now_ms, exactly));
        let reported = reported.collect();
        self.tracks.retain(|_, track| !track.is_over());
        reported
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lint::facts::{Lasting, Severity};

    const THREE_OF_FIVE: Hold = Hold::For(3.0, 5.0);

    fn finding(severity: Severity) -> Finding {
        Finding {
            rule: RuleId::RtcTick,
            severity,
            ..Finding::default()
        }
    }

    fn interval(second: usize, c: char) -> NewInterval {
        let letters = [
            ('i', Severity::Info),
            ('w', Severity::Warning),
            ('c', Severity::Critical),
        ];
        let of = |c: char| {
            letters
                .iter()
                .filter(|l| l.0 == c)
                .map(|l| (None, finding(l.1)))
                .collect::<Vec<_>>()
        };
        NewInterval {
            found: of(c),
            now_ms: second as i64 * 1000,
            seconds: 1.0,
            exactly: false,
        }
    }

    /// Feeds one second a letter (`.` nothing, `i` info, `w` warning, `c` critical); the returned
    /// letters say what was reported.
    fn play(hold: Hold, seconds: &str) -> String {
        let mut memory = RuleMemory::default();
        let letter = |f: &Finding| f.severity.as_str().chars().next();
        let second = |(n, c): (usize, char)| {
            let reported = memory.take_interval(interval(n, c), |_| hold);
            reported.first().and_then(letter).unwrap_or('.')
        };
        seconds.chars().enumerate().map(second).collect()
    }

    #[test]
    fn a_pattern_has_to_last_and_to_be_gone_for_a_while() {
        assert_eq!(play(THREE_OF_FIVE, "w.w...."), ".......");
        assert_eq!(play(THREE_OF_FIVE, "w.w.w"), "....w");
        assert_eq!(
            play(THREE_OF_FIVE, &format!("www{}", ".".repeat(17))),
            format!("..{}...", "w".repeat(15))
        );
        assert_eq!(
            play(THREE_OF_FIVE, &"www.......".repeat(3)),
            format!("..{}", "w".repeat(28))
        );
    }

    #[test]
    fn one_loud_second_does_not_raise_the_severity_and_one_quiet_second_does_not_lower_it() {
        assert_eq!(play(THREE_OF_FIVE, "iiciicc"), "..iiiic");
        assert_eq!(play(THREE_OF_FIVE, "ccciiic"), "..ccccc");
        assert_eq!(
            play(THREE_OF_FIVE, &format!("ccc{}", "i".repeat(16))),
            format!("..{}ii", "c".repeat(15))
        );
    }

    #[test]
    fn a_figure_around_its_thresholds_does_not_make_a_finding_of_any_rule_flicker() {
        for rule in super::super::table::rules().filter(|r| matches!(r.hold, Hold::For(..))) {
            let played = play(rule.hold, &"iwciwiwcwi.wc..".repeat(24));
            let changes = played
                .as_bytes()
                .windows(2)
                .filter(|two| two[0] != two[1])
                .count();
            // It begins, and rises once it has shown for long enough; it is still there 360 seconds
            // later.
            assert!(
                changes <= 3 && !played.ends_with('.'),
                "{}: {played}",
                rule.id
            );
        }
        for rule in super::super::table::rules().filter(|r| r.hold == Hold::While) {
            assert!(
                rule.doc.thresholds.is_empty(),
                "{} compares a figure, which may move around its threshold",
                rule.id
            );
        }
    }

    #[test]
    fn single_events_are_kept_for_a_while() {
        assert_eq!(play(Hold::Once(3.0), ".w....."), ".www...");
        assert_eq!(play(Hold::While, ".w.."), ".w..");
        assert!(
            play(Hold::Once(f64::INFINITY), &format!("w{}", ".".repeat(200))).ends_with('w'),
            "kept to the end"
        );
    }

    #[test]
    fn nothing_is_remembered_of_what_is_gone() {
        let mut memory = RuleMemory::default();
        memory.take_interval(interval(0, 'w'), |_| THREE_OF_FIVE);
        assert_eq!(memory.tracks.len(), 1);
        for n in 1..=61 {
            memory.take_interval(interval(n, '.'), |_| THREE_OF_FIVE);
        }
        assert!(memory.tracks.is_empty());
    }

    #[test]
    fn a_long_interval_is_its_own_window() {
        let mut memory = RuleMemory::default();
        let long = NewInterval {
            seconds: 10.0,
            ..interval(10, 'i')
        };
        assert_eq!(memory.take_interval(long, |_| THREE_OF_FIVE).len(), 1);
    }

    #[test]
    fn what_happened_more_than_a_minute_and_a_half_ago_changes_nothing() {
        let noise: Vec<char> = (0..400_u32)
            .map(|n| b"..wWi-c.WW.i"[(n * n * 7 % 97 % 12) as usize] as char)
            .collect();
        let mut played = RuleMemory::default();
        for (now, c) in noise.iter().enumerate() {
            let expected = played.take_interval(interval(now, *c), |_| THREE_OF_FIVE);
            let mut jumped = RuleMemory::default();
            let first = now.saturating_sub(90);
            let last = (first..=now)
                .map(|n| jumped.take_interval(interval(n, noise[n]), |_| THREE_OF_FIVE))
                .last();
            assert_eq!(last, Some(expected), "at {now}");
        }
    }

    #[test]
    fn a_finding_says_since_when_and_how_often() {
        let mut memory = RuleMemory::default();
        let costs = [20.0, 80.0, 30.0, 30.0];
        let mut last = Vec::new();
        for (n, cost) in costs.into_iter().enumerate() {
            let finding = Finding {
                cost: Some(cost),
                evidence: vec![format!("{cost} %")],
                ..finding(Severity::Info)
            };
            let found = vec![(None, finding)];
            let new = NewInterval {
                found,
                ..interval(n + 10, '.')
            };
            last = memory.take_interval(new, |_| THREE_OF_FIVE);
        }
        let steady = Lasting {
            is_longer: false,
            shown_s: 4.0,
            of_s: 4.0,
            ago_s: 0.0,
        };
        assert_eq!(
            (last[0].since_ms, &last[0].lasting),
            (Some(9000), &Some(steady))
        );
        last = memory.take_interval(interval(14, '.'), |_| THREE_OF_FIVE);
        let seen = last[0].lasting.as_ref().unwrap();
        assert_eq!((seen.shown_s, seen.of_s, seen.ago_s), (4.0, 5.0, 1.0));
        for n in 15..100 {
            last = memory.take_interval(interval(n, 'i'), |_| THREE_OF_FIVE);
        }
        assert_eq!(last[0].since_ms, Some(39_000), "a minute before");
        assert!(last[0].lasting.as_ref().unwrap().is_longer);
        let exact = memory.take_interval(
            NewInterval {
                exactly: true,
                ..interval(100, 'i')
            },
            |_| THREE_OF_FIVE,
        );
        assert_eq!(
            (
                exact[0].since_ms,
                exact[0].lasting.as_ref().unwrap().is_longer
            ),
            (Some(9000), false)
        );
    }
}
