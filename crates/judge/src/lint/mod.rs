//! Findings: what is wrong, the figures that show it, and a fix to paste. Pure: over the model only, no I/O, no clock.
//!
//! A rule looks at one interval and reports nothing, a [`Finding`], or why it cannot tell. [`run`] asks all rules of
//! the [table](FAMILIES), keeps only patterns that last (on a running host), groups findings that have one cause, and
//! sorts them. Each family of rules has a module, whose `RULES` are its rows of the table. `docs/rules.md` is generated
//! from the table.

mod apic;
mod contention;
mod context;
mod devices;
mod disks;
mod engine;
mod fixes;
mod incidents;
mod jobs;
mod links;
mod machine;
mod numa;
mod pinning;
mod plan;
mod prelude;
mod rule;
mod rule_id;
mod run;
mod scheduling;
mod table;
mod timers;
mod verdicts;

pub use engine::finding::{
    Audience, Confidence, Finding, FindingId, Fix, FixKind, Lasting, Mark, Severity, Target, is_command, order,
};
pub(crate) use engine::finding::{MAX_FINDINGS, MAX_TEXT};
pub use engine::memory::RuleMemory;
pub use engine::options::{InputKind, Options};
pub use engine::thresholds::{Steps, Threshold, Thresholds};
pub use fixes::shell::is_plain_name;
pub use plan::{HostPlan, PlannedGuest, plan};
pub use rule::{Family, Rule, RuleDoc};
pub use rule_id::RuleId;
pub use run::run;
pub use table::{FAMILIES, rule, rules};
pub use verdicts::{CannotTell, Report, StillWatched};

#[cfg(test)]
mod tests;
