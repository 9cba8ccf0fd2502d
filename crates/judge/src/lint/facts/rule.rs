//! What the table of rules holds for each rule.

use super::Context;
use super::guest::GuestContext;
use super::hold::Hold;
use super::rule_doc::RuleDoc;
use super::rule_id::RuleId;
use super::verdicts::Verdicts;

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
