//! What rules remember of recent intervals. Bounded, and cleared on a seek.
//!
//! On a running host a single second says little: a finding is reported once its pattern showed in a few of the last
//! seconds, and is withdrawn when the pattern has been absent for as long.

use super::finding::{Finding, Severity, Target};
use super::hold::Hold;
use crate::model::{DomainModel, Model};
use crate::sample::DomainState;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

/// A pattern whose figures have not been read for longer than this counts as absent.
const LONGEST_NOT_READ_S: f64 = 15.0;
/// The most patterns that are tracked at once.
const MOST_PATTERNS: usize = 20_000;

/// A guest through time: PID and start time distinguish it from another guest of the same name.
type GuestIdentity = (Option<i32>, u64, String);
/// The subject of a finding; `None` is the host.
type Subject = Option<GuestIdentity>;

/// A guest's key in the memory.
pub(crate) fn guest_identity(domain: &DomainModel) -> GuestIdentity {
    (domain.facts.pid, domain.facts.start_ticks, domain.facts.name.value.clone())
}

#[derive(Debug, Clone, Default)]
struct PatternTrack {
    /// Length of each recent interval, and the severity of the pattern in it, if it showed.
    intervals: VecDeque<(f64, Option<Severity>)>,
    /// For how many seconds the figures have not been read.
    not_read_s: f64,
    since_ms: i64,
    /// Whether it is a single event, which is reported although its guest is gone: it may be what ended the guest.
    is_event: bool,
    reported: bool,
    last: Finding,
}

/// Recent observations per rule, guest and target.
#[derive(Debug, Clone, Default)]
pub struct RuleMemory {
    tracks: BTreeMap<(&'static str, Subject, Target), PatternTrack>,
    paused: HashMap<GuestIdentity, i64>,
    log_judged_s: Option<f64>,
}

impl RuleMemory {
    /// Forgets everything, for example after a seek.
    pub fn clear(&mut self) {
        self.tracks.clear();
        self.paused.clear();
        self.log_judged_s = None;
    }

    /// The newest line of the host's log that was judged so far, seconds after boot.
    pub(crate) fn log_judged_s(&self) -> Option<f64> {
        self.log_judged_s
    }

    /// Notes which guests are paused and how far the log goes, and forgets guests that are gone.
    pub(crate) fn watch(&mut self, model: &Model) {
        let alive: HashSet<GuestIdentity> = model.domains.iter().map(guest_identity).collect();
        self.paused.retain(|w, _| alive.contains(w));
        for d in model.domains.iter().filter(|d| d.state == DomainState::Paused) {
            self.paused.insert(guest_identity(d), model.time_ms);
        }
        let newest = model.host.kernel_log.iter().filter_map(|l| l.time_s).reduce(f64::max);
        self.log_judged_s = self.log_judged_s.into_iter().chain(newest).reduce(f64::max);
        self.tracks.retain(|(_, w, _), track| track.is_event || w.as_ref().is_none_or(|w| alive.contains(w)));
    }

    /// Seconds since a guest was last seen paused.
    pub(crate) fn resumed_s(&self, domain: &DomainModel, now_ms: i64) -> Option<f64> {
        self.paused.get(&guest_identity(domain)).map(|at| (now_ms - at) as f64 / 1e3)
    }

    /// Takes the findings of this interval and returns those that last. An interval in which a rule's figures were not
    /// read counts neither for nor against its patterns.
    pub(crate) fn settle(
        &mut self,
        found: Vec<(Subject, Hold, Finding)>,
        not_read: &HashSet<(&'static str, Subject)>,
        hold: impl Fn(&str) -> Hold,
        now_ms: i64,
        interval_s: f64,
    ) -> Vec<Finding> {
        let mut reported = Vec::new();
        let mut seen = HashSet::new();
        for (subject, hold, finding) in found {
            if hold == Hold::While {
                reported.push(finding);
                continue;
            }
            let key = (finding.rule, subject, finding.target);
            if !seen.insert(key.clone()) || (self.tracks.len() >= MOST_PATTERNS && !self.tracks.contains_key(&key)) {
                continue;
            }
            let track = self.tracks.entry(key).or_default();
            if track.intervals.iter().all(|(_, s)| s.is_none()) {
                track.since_ms = now_ms - (interval_s * 1e3) as i64;
            }
            track.intervals.push_back((interval_s, Some(finding.severity)));
            track.not_read_s = 0.0;
            track.is_event = matches!(hold, Hold::Once(_));
            track.last = finding;
        }
        for (key, track) in &mut self.tracks {
            if !seen.contains(key) {
                let read = !not_read.contains(&(key.0, key.1.clone()));
                track.not_read_s = if read { 0.0 } else { track.not_read_s + interval_s };
                if read || track.not_read_s > LONGEST_NOT_READ_S {
                    track.intervals.push_back((interval_s, None));
                }
            }
            let (need, of) = match hold(key.0) {
                Hold::For(need, of) => (need, of),
                Hold::Once(s) => (0.0, s),
                Hold::While => (0.0, 0.0),
            };
            track.forget(of);
            if let Some(severity) = track.judge(need) {
                reported.push(Finding { severity, since_ms: Some(track.since_ms), ..track.last.clone() });
            }
        }
        self.tracks.retain(|_, t| t.intervals.iter().any(|(_, s)| s.is_some()));
        reported
    }
}

impl PatternTrack {
    /// Drops intervals that lie further back than `of` seconds.
    fn forget(&mut self, of: f64) {
        let mut all: f64 = self.intervals.iter().map(|(s, _)| s).sum();
        while self.intervals.len() > 1 && self.intervals.front().is_some_and(|(s, _)| all - s >= of - 1e-6) {
            all -= self.intervals.pop_front().map_or(0.0, |(s, _)| s);
        }
    }

    /// The severity to report, if any: the highest that lasted for `need` seconds.
    fn judge(&mut self, need: f64) -> Option<Severity> {
        let mut hits: Vec<(Severity, f64)> = self.intervals.iter().filter_map(|(s, v)| Some(((*v)?, *s))).collect();
        hits.sort_by_key(|h| std::cmp::Reverse(h.0));
        let long_enough = hits.iter().map(|h| h.1).sum::<f64>() >= need - 0.05;
        self.reported = !hits.is_empty() && (self.reported || long_enough);
        if !self.reported {
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

    /// Feeds one second a letter (`.` nothing, `-` not read, `i` info, `w` warning, `c` critical); the returned letters
    /// say what was reported.
    fn play(hold: Hold, seconds: &str) -> String {
        let mut memory = RuleMemory::default();
        let letters = [('i', Severity::Info), ('w', Severity::Warning), ('c', Severity::Critical)];
        seconds
            .chars()
            .enumerate()
            .map(|(n, c)| {
                let not_read = if c == '-' { HashSet::from([("rtc-tick", None)]) } else { HashSet::new() };
                let found = letters.iter().find(|l| l.0 == c).map(|l| (None, hold, finding(l.1)));
                let reported = memory.settle(found.into_iter().collect(), &not_read, |_| hold, n as i64 * 1000, 1.0);
                reported.first().and_then(|f| letters.iter().find(|l| l.1 == f.severity)).map_or('.', |l| l.0)
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
