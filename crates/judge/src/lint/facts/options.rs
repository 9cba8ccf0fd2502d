//! What the user set for findings, and where the data comes from.

use super::{REMEMBERED_S, RuleId, Thresholds};
use std::collections::BTreeSet;
use std::time::Duration;

/// Where the model comes from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum InputKind {
    /// A running host, now or as recorded: short patterns are not reported, and a guest that starts
    /// counts less.
    #[default]
    Live,
    /// A sample of a recording: the same, but only the last minute is judged, so a longer duration
    /// is not known.
    Recording,
    /// A file that covers one interval: the whole file is the window.
    File,
}

/// What the user set, and where the data comes from.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Thresholds.
    pub thresholds: Thresholds,
    /// Rules whose findings count one severity higher (`--warn`).
    pub warn: BTreeSet<RuleId>,
    /// Rules that are not reported (`--allow`) unless they are in `warn`; [`RuleId::Every`] for
    /// all.
    pub allow: BTreeSet<RuleId>,
    /// Seconds after a guest's start in which findings about its behaviour count one severity less:
    /// firmware and a booting system poll timers.
    pub startup_guard_s: f64,
    /// Seconds after a resume or an incoming migration in which its behaviour is not judged.
    pub resume_guard_s: f64,
    /// Where the model comes from.
    pub input: InputKind,
    /// Whether single events are reported until the end, not for some seconds: for a command that
    /// prints once.
    pub keep_events: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            thresholds: Thresholds::default(),
            warn: BTreeSet::new(),
            allow: BTreeSet::new(),
            startup_guard_s: 120.0,
            resume_guard_s: 30.0,
            input: InputKind::Live,
            keep_events: false,
        }
    }
}

impl Options {
    /// How far back samples have to be judged for the findings of one sample, however it is
    /// reached.
    pub fn look_back(&self) -> Duration {
        // An interval before the first that is remembered counts for a while.
        Duration::from_secs_f64(REMEMBERED_S + 30.0)
    }

    /// Whether findings of a rule are reported at all.
    pub fn reports(&self, rule: RuleId) -> bool {
        self.warn.contains(&rule)
            || !(self.allow.contains(&rule) || self.allow.contains(&RuleId::Every))
    }
}
