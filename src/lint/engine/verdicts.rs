//! Where rules put their verdicts.

use crate::lint::context::guest::{Context, GuestContext};
use crate::lint::{CannotTell, Finding};

/// The verdicts of all rules to one interval.
#[derive(Default)]
pub(crate) struct Verdicts {
    /// What was found: the guest's index and the finding.
    pub found: Vec<(Option<usize>, Finding)>,
    pub cannot: Vec<CannotTell>,
    /// Rules whose figures were not read this time, with the guest's index.
    pub unread: Vec<(&'static str, Option<usize>)>,
    rule: &'static str,
    guest: Option<(usize, String)>,
}

impl Verdicts {
    /// Names who speaks next, and of whom.
    pub fn turn(&mut self, rule: &'static str, guest: Option<(usize, &GuestContext<'_>)>) {
        self.rule = rule;
        self.guest = guest.map(|(i, g)| (i, g.name().to_owned()));
    }

    /// A finding; rule and domain are filled in.
    pub fn find(&mut self, finding: Finding) {
        let domain = self.guest.as_ref().map(|g| g.1.clone()).or(finding.domain.clone());
        self.found.push((self.guest.as_ref().map(|g| g.0), Finding { rule: self.rule, domain, ..finding }));
    }

    /// A finding about one guest by a rule that looks at all.
    pub fn find_for(&mut self, index: usize, guest: &GuestContext<'_>, finding: Finding) {
        let domain = Some(guest.name().to_owned());
        self.found.push((Some(index), Finding { rule: self.rule, domain, ..finding }));
    }

    /// The rule's figures are not read every time and were not this time: what was told before stands.
    pub fn unread(&mut self) {
        self.unread.push((self.rule, self.guest.as_ref().map(|g| g.0)));
    }

    /// The rule cannot be judged.
    pub fn cannot(&mut self, because: impl Into<String>) {
        let domain = self.guest.as_ref().map(|g| g.1.clone());
        self.cannot.push(CannotTell { rule: self.rule, domain, because: because.into() });
    }
}

/// How a rule is asked.
#[derive(Clone, Copy)]
pub(crate) enum Ask {
    /// Once a guest, about what the guest does: not while it starts or is paused.
    Behaviour(fn(&Context<'_>, &GuestContext<'_>, &mut Verdicts)),
    /// Once a guest, about how it is set up.
    Setup(fn(&Context<'_>, &GuestContext<'_>, &mut Verdicts)),
    /// Once, about the host and all guests together.
    Host(fn(&Context<'_>, &mut Verdicts)),
}

pub(crate) const NO_TIME: &str =
    "the time that the figures cover is not known (--duration says it), so there is no rate";
pub(crate) const NO_VCPUS: &str = "the number of vCPUs is not known (--vcpus says it), so there is no rate per vCPU";
