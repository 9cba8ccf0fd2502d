//! What rules look at (the host, its guests, the user's options), and what they answer with: findings, and why they
//! cannot tell.

pub(super) mod finding;
pub(super) mod guest;
pub(super) mod hold;
pub(super) mod host;
pub(super) mod links;
pub(super) mod options;
pub(super) mod placement;
pub(super) mod prose;
pub(super) mod rule;
pub(super) mod rule_doc;
pub(super) mod rule_id;
pub(super) mod shell;
pub(super) mod thresholds;
pub(super) mod totals;
pub(super) mod verdicts;

pub(super) use host::Context;
