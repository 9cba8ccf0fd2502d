//! The words of a rule.

/// What readers learn of a rule.
#[derive(Debug)]
pub struct RuleDoc {
    /// What it sees, in one line: the title of findings without another one.
    pub sees: &'static str,
    /// The same in at most 26 characters, for the column PROBLEM.
    pub(crate) problem: &'static str,
    /// Why its figures point to the cause, for findings that do not say it themselves.
    pub(crate) why: &'static str,
    /// The thresholds that decide, by their names in the config file (`timers.rtc`).
    pub thresholds: &'static [&'static str],
    /// What it cannot tell, or confuses with something else.
    pub limits: &'static str,
    /// What its fix changes, and what that needs.
    pub fix: &'static str,
    /// Public documents about the cause.
    pub links: &'static [&'static str],
}
