//! One pattern through time: when it is reported, how severe it is, since when. All of it but the
//! exact beginning follows from the last minute, so that it does not matter how a sample of a
//! recording was reached.

use crate::figures::utc;
use crate::lint::facts::{Finding, Hold, Lasting, REMEMBERED_S, Severity};
use std::collections::VecDeque;

/// The most intervals that are kept of one pattern.
const MAX_KEPT: usize = 1000;
/// Intervals are never quite as long as asked for, seconds.
const TOLERANCE_S: f64 = 0.05;

/// What one interval says about a pattern.
#[derive(Debug, Clone)]
struct Observation {
    /// Length of the interval.
    seconds: f64,
    /// How severe it is, if it shows.
    shows: Option<Severity>,
}

/// A pattern in recent intervals.
#[derive(Debug, Clone, Default)]
pub(super) struct PatternTrack {
    recent: VecDeque<Observation>,
    /// When it began, by the wall clock.
    since_ms: i64,
    /// Seconds since then.
    age_s: f64,
    /// Seconds since the pattern showed.
    absent_s: f64,
    /// Whether it is a single event, which is reported although its guest is gone: it may be what
    /// ended the guest.
    pub is_event: bool,
    /// The finding of the newest interval in which it showed.
    last: Finding,
}

impl PatternTrack {
    /// A pattern that shows, with its finding, in an interval of some seconds that ends at
    /// `now_ms`.
    pub fn shows(&mut self, hold: Hold, seconds: f64, finding: Finding, now_ms: i64) {
        if self.recent.is_empty() || self.absent_s >= hold.gone_s() - TOLERANCE_S {
            self.since_ms = now_ms - (seconds * 1e3) as i64;
            self.age_s = 0.0;
        }
        self.observe(hold, seconds, Some(finding.severity));
        self.is_event = matches!(hold, Hold::Once(_));
        self.last = finding;
        self.absent_s = 0.0;
    }

    /// Takes in an interval.
    pub fn observe(&mut self, hold: Hold, seconds: f64, shows: Option<Severity>) {
        self.age_s += seconds;
        self.absent_s += seconds;
        // What is kept until the end needs only the intervals in which it showed.
        if hold.gone_s().is_infinite() && shows.is_none() {
            return;
        }
        self.recent.push_back(Observation { seconds, shows });
        let (mut kept, mut kept_s) = (0, 0.0);
        for o in self.recent.iter().rev().take(MAX_KEPT) {
            if kept_s >= REMEMBERED_S {
                break;
            }
            (kept, kept_s) = (kept + 1, kept_s + o.seconds);
        }
        self.recent.drain(..self.recent.len() - kept);
    }

    /// Whether nothing of it is left to remember.
    pub fn is_over(&self) -> bool {
        self.recent.iter().all(|o| o.shows.is_none())
    }

    /// The finding to report, if any. With `exactly`, the time since it began is known however long
    /// that was.
    pub fn report(&self, hold: Hold, now_ms: i64, exactly: bool) -> Option<Finding> {
        let mut levels = [Severity::Critical, Severity::Warning, Severity::Info].into_iter();
        let severity = levels.find(|level| self.is_reported(hold, *level))?;
        if hold == Hold::While {
            return Some(self.last.clone());
        }
        let is_longer = !exactly && self.age_s > REMEMBERED_S;
        let since_ms = if is_longer {
            now_ms - (REMEMBERED_S * 1e3) as i64
        } else {
            self.since_ms
        };
        let of_s = self.age_s.min(REMEMBERED_S);
        let shown_s = self.shown_s(self.recent.len(), of_s, Severity::Info);
        Some(Finding {
            severity,
            // A time that no clock shows is not known.
            since_ms: Some(since_ms).filter(|ms| utc(*ms).is_some()),
            lasting: Some(Lasting {
                is_longer,
                shown_s: shown_s.min(of_s),
                of_s,
                ago_s: self.absent_s,
            }),
            ..self.last.clone()
        })
    }

    /// Whether the pattern has this severity or a higher one: it showed long enough, and has not
    /// been absent for too long since.
    fn is_reported(&self, hold: Hold, level: Severity) -> bool {
        let mut absent_s = 0.0;
        for (i, o) in self.recent.iter().enumerate().rev() {
            if o.shows >= Some(level)
                && self.shown_s(i, hold.window_s(), level) >= hold.shows_s() - TOLERANCE_S
            {
                return true;
            }
            absent_s = if o.shows >= Some(level) {
                0.0
            } else {
                absent_s + o.seconds
            };
            if absent_s >= hold.gone_s() - TOLERANCE_S {
                return false;
            }
        }
        false
    }

    /// For how long it has this severity or a higher one in the window that ends with an interval.
    fn shown_s(&self, last: usize, window_s: f64, level: Severity) -> f64 {
        let (mut passed, mut shown) = (0.0, 0.0);
        for o in self.recent.iter().take(last + 1).rev() {
            if passed >= window_s - 1e-6 {
                break;
            }
            passed += o.seconds;
            if o.shows >= Some(level) {
                shown += o.seconds;
            }
        }
        shown
    }
}
