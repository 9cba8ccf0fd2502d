//! What every rule shares: the finding, thresholds and options, the memory of recent intervals, and
//! the grouping of findings that have one cause.

pub(super) mod finding;
pub(super) mod grouping;
pub(super) mod hold;
pub(super) mod memory;
pub(super) mod options;
pub(super) mod pattern;
pub(super) mod prose;
pub(super) mod thresholds;
