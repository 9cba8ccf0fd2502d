//! What every rule shares: findings, thresholds, options, the memory of recent intervals, and the grouping of findings
//! that have one cause.

pub(super) mod finding;
pub(super) mod grouping;
pub(super) mod memory;
pub(super) mod options;
pub(super) mod text;
pub(super) mod thresholds;
pub(super) mod verdicts;
