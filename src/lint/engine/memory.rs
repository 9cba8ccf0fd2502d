//! What rules remember of recent intervals. Bounded, and forgotten on a seek.
//!
//! On a running host a single second says little: a finding is told once its pattern held for a few of the last seconds, and
//! is withdrawn once it did not show for as long.

use crate::lint::{Finding, Severity, Target};
use crate::model::{DomainModel, Model};
use crate::sample::DomainState;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

/// A pattern whose figures were not read for longer than this no longer shows.
const LONGEST_UNREAD_S: f64 = 15.0;
/// Patterns followed at once; a host with more has other troubles.
const MOST: usize = 20_000;

/// How long a pattern has to hold.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Hold {
    /// It is told at once and only while it holds: configuration, states.
    While,
    /// It is told at once and kept for so many seconds: single events that matter.
    Once(f64),
    /// It has to hold for so many of the last so many seconds.
    For(f64, f64),
}

/// A guest through time: PID and start tell it from another of the same name.
pub(crate) type GuestKey = (Option<i32>, u64, String);
/// Whom a finding is about; `None` is the host.
pub(crate) type Who = Option<GuestKey>;

/// A guest's identity in the memory.
pub(crate) fn who(domain: &DomainModel) -> GuestKey {
    (domain.facts.pid, domain.facts.start_ticks, domain.facts.name.value.clone())
}

#[derive(Debug, Clone, Default)]
struct PatternTrack {
    /// Length of each recent interval, and whether and how loud the pattern showed in it.
    ring: VecDeque<(f64, Option<Severity>)>,
    /// Since how many seconds the figures were not read.
    unread_s: f64,
    since_ms: i64,
    told: bool,
    last: Finding,
}

/// Recent observations per rule, guest and target.
#[derive(Debug, Clone, Default)]
pub struct RuleMemory {
    tracks: BTreeMap<(&'static str, Who, Target), PatternTrack>,
    paused: HashMap<GuestKey, i64>,
    log_judged_s: Option<f64>,
}

impl RuleMemory {
    /// Forgets everything, as after a seek.
    pub fn clear(&mut self) {
        self.tracks.clear();
        self.paused.clear();
        self.log_judged_s = None;
    }

    /// The newest line of the host's log that was seen so far, seconds after boot.
    pub(crate) fn log_judged_s(&self) -> Option<f64> {
        self.log_judged_s
    }

    /// Notes who is paused and how far the log goes, and forgets who is gone.
    pub(crate) fn watch(&mut self, model: &Model) {
        let alive: HashSet<GuestKey> = model.domains.iter().map(who).collect();
        self.paused.retain(|w, _| alive.contains(w));
        for d in model.domains.iter().filter(|d| d.state == DomainState::Paused) {
            self.paused.insert(who(d), model.time_ms);
        }
        let newest = model.host.kernel_log.iter().filter_map(|l| l.time_s).reduce(f64::max);
        self.log_judged_s = self.log_judged_s.into_iter().chain(newest).reduce(f64::max);
        self.tracks.retain(|(_, w, _), _| w.as_ref().is_none_or(|w| alive.contains(w)));
    }

    /// Seconds since a guest was last seen paused.
    pub(crate) fn resumed_s(&self, domain: &DomainModel, now_ms: i64) -> Option<f64> {
        self.paused.get(&who(domain)).map(|at| (now_ms - at) as f64 / 1e3)
    }

    /// Takes what rules found in this interval and answers what lasts. An interval in which a rule's figures were not read
    /// speaks neither for nor against its patterns.
    pub(crate) fn settle(
        &mut self,
        found: Vec<(Who, Hold, Finding)>,
        unread: &HashSet<(&'static str, Who)>,
        hold: impl Fn(&str) -> Hold,
        now_ms: i64,
        interval_s: f64,
    ) -> Vec<Finding> {
        let mut told = Vec::new();
        let mut seen = HashSet::new();
        for (who, hold, finding) in found {
            if hold == Hold::While {
                told.push(finding);
                continue;
            }
            let key = (finding.rule, who, finding.target);
            if !seen.insert(key.clone()) || (self.tracks.len() >= MOST && !self.tracks.contains_key(&key)) {
                continue;
            }
            let track = self.tracks.entry(key).or_default();
            if track.ring.iter().all(|(_, s)| s.is_none()) {
                track.since_ms = now_ms - (interval_s * 1e3) as i64;
            }
            track.ring.push_back((interval_s, Some(finding.severity)));
            track.unread_s = 0.0;
            track.last = finding;
        }
        for (key, track) in &mut self.tracks {
            if !seen.contains(key) {
                let read = !unread.contains(&(key.0, key.1.clone()));
                track.unread_s = if read { 0.0 } else { track.unread_s + interval_s };
                if read || track.unread_s > LONGEST_UNREAD_S {
                    track.ring.push_back((interval_s, None));
                }
            }
            let (need, of) = match hold(key.0) {
                Hold::For(need, of) => (need, of),
                Hold::Once(s) => (0.0, s),
                Hold::While => (0.0, 0.0),
            };
            track.forget(of);
            if let Some(severity) = track.judge(need) {
                told.push(Finding { severity, since_ms: Some(track.since_ms), ..track.last.clone() });
            }
        }
        self.tracks.retain(|_, t| t.ring.iter().any(|(_, s)| s.is_some()));
        told
    }
}

impl PatternTrack {
    /// Drops what lies further back than so many seconds.
    fn forget(&mut self, of: f64) {
        let mut all: f64 = self.ring.iter().map(|(s, _)| s).sum();
        while self.ring.len() > 1 && self.ring.front().is_some_and(|(s, _)| all - s >= of - 1e-6) {
            all -= self.ring.pop_front().map_or(0.0, |(s, _)| s);
        }
    }

    /// The severity to tell, if any: the loudest that held for `need` seconds.
    fn judge(&mut self, need: f64) -> Option<Severity> {
        let mut hits: Vec<(Severity, f64)> = self.ring.iter().filter_map(|(s, v)| Some(((*v)?, *s))).collect();
        hits.sort_by_key(|h| std::cmp::Reverse(h.0));
        let long_enough = hits.iter().map(|h| h.1).sum::<f64>() >= need - 0.05;
        self.told = !hits.is_empty() && (self.told || long_enough);
        if !self.told {
            return None;
        }
        let mut held = 0.0;
        for (severity, seconds) in &hits {
            held += seconds;
            if held >= need - 0.05 {
                return Some(*severity);
            }
        }
        hits.last().map(|h| h.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(severity: Severity) -> Finding {
        Finding { rule: "rtc-tick", severity, ..Finding::default() }
    }

    /// Feeds one second a letter (`.` nothing, `-` not read, `i` info, `w` warning, `c` critical) and answers what was told, likewise.
    fn play(hold: Hold, seconds: &str) -> String {
        let mut memory = RuleMemory::default();
        let letters = [('i', Severity::Info), ('w', Severity::Warning), ('c', Severity::Critical)];
        seconds
            .chars()
            .enumerate()
            .map(|(n, c)| {
                let unread = if c == '-' { HashSet::from([("rtc-tick", None)]) } else { HashSet::new() };
                let found = letters.iter().find(|l| l.0 == c).map(|l| (None, hold, finding(l.1)));
                let told = memory.settle(found.into_iter().collect(), &unread, |_| hold, n as i64 * 1000, 1.0);
                told.first().and_then(|f| letters.iter().find(|l| l.1 == f.severity)).map_or('.', |l| l.0)
            })
            .collect()
    }

    #[test]
    fn a_pattern_has_to_last() {
        assert_eq!(play(Hold::For(3.0, 5.0), "w.w...."), ".......");
        assert_eq!(play(Hold::For(3.0, 5.0), "www......"), "..wwwww..");
        assert_eq!(play(Hold::For(3.0, 5.0), "w.w.w"), "....w");
    }

    #[test]
    fn one_loud_second_does_not_raise_the_severity() {
        assert_eq!(play(Hold::For(3.0, 5.0), "iiciicc"), "..iiiic");
    }

    #[test]
    fn single_events_are_kept_for_a_while() {
        assert_eq!(play(Hold::Once(3.0), ".w....."), ".www...");
        assert_eq!(play(Hold::While, ".w.."), ".w..");
    }

    #[test]
    fn what_is_not_read_speaks_neither_for_nor_against() {
        assert_eq!(play(Hold::For(3.0, 5.0), "www------www......"), "..wwwwwwwwwwwwww..");
        assert_eq!(play(Hold::For(3.0, 5.0), "ww------w"), "........w");
        let long = format!("www{}", "-".repeat(25));
        assert!(play(Hold::For(3.0, 5.0), &long).ends_with("....."), "figures that are gone for good");
    }

    #[test]
    fn nothing_is_remembered_of_what_is_gone() {
        let mut memory = RuleMemory::default();
        memory.settle(
            vec![(None, Hold::For(3.0, 5.0), finding(Severity::Info))],
            &HashSet::new(),
            |_| Hold::For(3.0, 5.0),
            0,
            1.0,
        );
        for n in 1..=5 {
            memory.settle(Vec::new(), &HashSet::new(), |_| Hold::For(3.0, 5.0), n * 1000, 1.0);
        }
        assert!(memory.tracks.is_empty());
    }

    #[test]
    fn a_long_interval_is_its_own_window() {
        let mut memory = RuleMemory::default();
        let found = vec![(None, Hold::For(3.0, 5.0), finding(Severity::Info))];
        assert_eq!(memory.settle(found, &HashSet::new(), |_| Hold::For(3.0, 5.0), 10_000, 10.0).len(), 1);
    }
}
