//! Runs the rules: all of them over one interval, what lasts of their answers, and which findings
//! have one cause.

pub(super) mod grouping;
pub(super) mod memory;
pub(super) mod pattern;
pub(super) mod plan;
pub(super) mod run;
pub(super) mod table;
