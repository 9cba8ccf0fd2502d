//! Findings: what is wrong, the figures that show it, and a fix to paste. Pure: over the model
//! only, no I/O, no clock.
//!
//! A rule looks at one interval and reports nothing, a [`Finding`], or why it cannot tell. [`run`]
//! asks all rules of the [table](FAMILIES), keeps only patterns that last (on a running host),
//! groups findings that have one cause, and sorts them.
//!
//! The modules are floors, each of which uses only those above it in this list:
//! - `facts`: what rules look at and answer with;
//! - `fixes`: fixes to paste, made for one guest;
//! - `incidents`: what the host's log and a guest's exits say of crashes, for the families that
//!   report it;
//! - `rules`: a module per family, whose `RULES` are its rows of the table; `docs/rules.md` is
//!   generated from them;
//! - `engine`: the table, one run over all rules, memory, grouping.

mod engine;
mod facts;
mod fixes;
mod incidents;
mod rules;

pub use engine::memory::RuleMemory;
pub use engine::plan::{HostPlan, PlannedGuest, plan};
pub use engine::run::run;
pub use engine::table::{FAMILIES, rule, rules};
pub use facts::{
    Audience, CannotTell, Confidence, Family, Finding, FindingId, Fix, FixKind, InputKind, Lasting,
    Mark, Options, Report, Rule, RuleDoc, RuleId, Severity, Steps, StillWatched, Target,
    Thresholds, is_command, is_plain_name, order,
};
pub(crate) use facts::{MAX_FINDINGS, MAX_TEXT};

#[cfg(test)]
mod tests;
