//! What the table of rules holds for each rule.

use super::{Context, GuestContext, Hold, RuleId, Verdicts};

/// One rule.
#[derive(Debug)]
pub struct Rule {
    /// The rule.
    pub id: RuleId,
    /// When it runs, and on what.
    pub(crate) check: Check,
    /// How long its pattern has to last.
    pub(crate) hold: Hold,
    /// What readers learn of it.
    pub doc: RuleDoc,
}

impl Rule {
    pub(crate) const fn new(id: RuleId, check: Check, hold: Hold) -> Self {
        let doc = RuleDoc {
            sees: "",
            problem: "",
            why: "",
            thresholds: &[],
            limits: "",
            fix: "",
            links: &[],
        };
        Self {
            id,
            check,
            hold,
            doc,
        }
    }

    pub(crate) const fn described(self, doc: RuleDoc) -> Self {
        Self { doc, ..self }
    }

    /// When a pattern is reported on a running host: `after 3 of the last 5 s`.
    pub fn reported(&self) -> String {
        self.hold.to_string()
    }
}

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

/// Rules about one part of the machine.
#[derive(Debug)]
pub struct Family {
    /// The heading in lists of rules.
    pub name: &'static str,
    /// Its rules.
    pub rules: &'static [Rule],
    /// Whether they are about what KVM makes cheap or costly: they say nothing of a guest without
    /// KVM.
    pub(crate) of_kvm: bool,
}

/// When a rule runs, and on what.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Check {
    /// Once a guest, about what the guest does: not while it starts or is paused.
    Behaviour(fn(&Context<'_>, &GuestContext<'_>, &mut Verdicts)),
    /// Once a guest, about how it is set up.
    Setup(fn(&Context<'_>, &GuestContext<'_>, &mut Verdicts)),
    /// Once, about the host and all guests together.
    Host(fn(&Context<'_>, &mut Verdicts)),
}
