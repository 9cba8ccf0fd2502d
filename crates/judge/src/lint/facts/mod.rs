//! What rules look at (the host, its guests, the user's options), and what they answer with:
//! findings, and why they cannot tell.

pub(super) mod finding;
pub(super) mod guest;
pub(super) mod hold;
pub(super) mod host;
pub(super) mod links;
pub(super) mod options;
pub(super) mod placement;
pub(super) mod rule;
pub(super) mod rule_id;
pub(super) mod shell;
pub(super) mod thresholds;
pub(super) mod totals;
pub(super) mod verdicts;

pub(crate) use finding::{
    Audience, Confidence, Finding, FindingId, Fix, FixKind, Lasting, Mark, Prose, Severity, Target,
    is_command, join, known, order, worst_of,
};
pub(crate) use guest::{
    BY_DEFAULT, BY_PROXMOX, Guard, GuestContext, NO_VCPUS, Watched, place_text,
};
pub(crate) use hold::{Hold, REMEMBERED_S};
pub(crate) use host::{Context, apic_parameter};
pub(crate) use options::{InputKind, Options};
pub(crate) use placement::{helper_name, host_tasks_by_cpu};
pub(crate) use rule::{Check, Family, Rule, RuleDoc};
pub(crate) use rule_id::RuleId;
pub(crate) use shell::domain_argument;
pub(crate) use thresholds::thresholds;
pub(crate) use totals::EventTotals;
pub(crate) use verdicts::{CannotTell, Report, StillWatched, Verdicts};
