//! What rules look at (the host, its guests, the user's options), and what they answer with:
//! findings, and why they cannot tell.

mod finding;
mod guest;
mod hold;
mod host;
pub(crate) mod links;
mod options;
mod placement;
pub(crate) mod rule;
mod rule_id;
pub(crate) mod shell;
mod thresholds;
mod totals;
mod verdicts;

pub use finding::{
    Audience, Confidence, Finding, FindingId, Fix, FixKind, Lasting, Mark, Severity, Target,
    is_command, order,
};
pub(crate) use finding::{MAX_FINDINGS, MAX_TEXT, Prose, join, known, worst_of};
pub(crate) use guest::{
    BY_DEFAULT, BY_PROXMOX, Guard, GuestContext, NO_VCPUS, why_no_rate, window,
};
pub(crate) use hold::{Hold, REMEMBERED_S};
pub(crate) use host::Context;
pub use options::{InputKind, Options};
pub(crate) use placement::{helper_name, host_tasks_by_cpu};
pub(crate) use rule::Check;
pub use rule::{Family, Rule, RuleDoc};
pub use rule_id::RuleId;
pub use shell::is_plain_name;
pub(crate) use thresholds::thresholds;
pub use thresholds::{Steps, Thresholds};
pub(crate) use totals::EventTotals;
pub(crate) use verdicts::Verdicts;
pub use verdicts::{CannotTell, Report, StillWatched};
