//! How findings are looked for.

use crate::lint::engine::thresholds::Thresholds;
use std::collections::BTreeSet;

/// Where the model comes from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum InputKind {
    /// A running host, now or as recorded: what holds for a moment only is not told, and a guest that starts is left alone.
    #[default]
    Live,
    /// A file that covers an interval of its own: the whole of it is the window.
    File,
}

/// What the user set, and where the data comes from.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Thresholds.
    pub thresholds: Thresholds,
    /// Rules that count one level more (`--warn`).
    pub warn: BTreeSet<String>,
    /// Rules that are not told (`--allow`); `all` stands for every rule but those in `warn`.
    pub allow: BTreeSet<String>,
    /// Seconds after a guest's start in which its behaviour is not judged: firmware and the system's calibration poll timers.
    pub startup_guard_s: f64,
    /// Seconds after a resume or an incoming migration in which its behaviour is not judged.
    pub resume_guard_s: f64,
    /// Where the model comes from.
    pub input: InputKind,
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
        }
    }
}

impl Options {
    /// The options for a file.
    pub fn for_file() -> Self {
        Self { input: InputKind::File, ..Self::default() }
    }

    /// Whether findings of a rule are told at all.
    pub fn tells(&self, rule: &str) -> bool {
        self.warn.contains(rule) || !(self.allow.contains(rule) || self.allow.contains("all"))
    }

    /// Names in `warn` and `allow` that are no rules, for a clear error.
    pub fn unknown_rules(&self) -> Vec<&str> {
        let known = |name: &&str| crate::lint::rule(name).is_none() && *name != "all";
        self.warn.iter().chain(&self.allow).map(String::as_str).filter(known).collect()
    }
}
