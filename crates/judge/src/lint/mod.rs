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
pub use facts::finding::{
    Audience, Confidence, Finding, FindingId, Fix, FixKind, Lasting, Mark, Severity, Target,
    is_command, order,
};
pub(crate) use facts::finding::{MAX_FINDINGS, MAX_TEXT};
pub use facts::options::{InputKind, Options};
pub use facts::rule::{Family, Rule, RuleDoc};
pub use facts::rule_id::RuleId;
pub use facts::shell::is_plain_name;
pub use facts::thresholds::{Steps, Thresholds};
pub use facts::verdicts::{CannotTell, Report, StillWatched};

#[cfg(test)]
mod tests;
