//! What the rules say of one interval.

use super::finding::{MAX_FINDINGS, MAX_PROBLEM, MAX_TEXT};
use super::{Context, Finding, GuestContext, RuleDoc, RuleId, Target};
use schemars::JsonSchema;
use serde::Serialize;

/// The results of all rules for one interval.
#[derive(Default)]
pub(crate) struct Verdicts {
    /// The findings, each with the index of its guest.
    pub found: Vec<(Option<usize>, Finding)>,
    /// Rules that could not be judged.
    pub cannot_tell: Vec<CannotTell>,
    /// Findings beyond the limits.
    pub left_out: u64,
    /// Bytes of text in all findings.
    text: usize,
    /// The rule that is asked.
    pub rule: RuleId,
    doc: Option<&'static RuleDoc>,
    guest: Option<(usize, String)>,
}

impl Verdicts {
    /// What follows are the results of a rule about a guest, or about the host.
    pub fn begin(&mut self, rule: RuleId, doc: &'static RuleDoc, guest: Option<&GuestContext<'_>>) {
        self.rule = rule;
        self.doc = Some(doc);
        self.guest = guest.map(|g| (g.index, g.name().to_owned()));
    }

    /// Adds a finding with its rule and domain, or about the host. What it does not say is the
    /// rule's: title, explanation and links.
    pub fn find(&mut self, finding: Finding) {
        let (index, name) = self.guest.clone().unzip();
        let target = if index.is_none() {
            Target::Host
        } else {
            finding.target
        };
        self.push(index, name, Finding { target, ..finding });
    }

    /// Adds a finding about one guest by a rule that looks at all guests together.
    pub fn find_for(&mut self, guest: &GuestContext<'_>, finding: Finding) {
        self.push(Some(guest.index), Some(guest.name().to_owned()), finding);
    }

    /// Adds a finding about a guest by its index; about the host where the guest is unknown.
    pub fn find_of(&mut self, ctx: &Context<'_>, index: Option<usize>, finding: Finding) {
        match index.and_then(|i| ctx.guests.get(i)) {
            Some(guest) => self.find_for(guest, finding),
            None => self.find(finding),
        }
    }

    fn push(&mut self, index: Option<usize>, domain: Option<String>, mut finding: Finding) {
        let Some(doc) = self.doc else { return };
        if finding.see.is_empty() {
            finding.see = doc.links.iter().map(|l| (*l).to_owned()).collect();
        }
        if finding.title.is_empty() {
            let mut letters = doc.sees.chars();
            finding.title = letters
                .next()
                .into_iter()
                .flat_map(char::to_uppercase)
                .chain(letters)
                .collect();
        }
        // What names guests or CPUs may be too long.
        if finding.problem.is_empty() || finding.problem.len() > MAX_PROBLEM {
            doc.problem.clone_into(&mut finding.problem);
        }
        if finding.why.is_empty() {
            doc.why.clone_into(&mut finding.why);
        }
        let finding = Finding {
            rule: self.rule,
            domain,
            ..finding
        }
        .limited();
        self.text += finding.text_len();
        if self.found.len() < MAX_FINDINGS && self.text <= MAX_TEXT {
            self.found.push((index, finding));
        } else {
            self.left_out += 1;
        }
    }

    /// Notes why the rule cannot be judged.
    pub fn cannot_tell(&mut self, because: impl Into<String>) {
        let domain = self.guest.as_ref().map(|(_, name)| name.clone());
        self.cannot_tell.push(CannotTell {
            rule: self.rule,
            domain,
            because: because.into(),
        });
    }
}

/// A rule that could not be judged.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub struct CannotTell {
    /// Name of the rule; `*`: every rule about the guest's behaviour.
    pub rule: RuleId,
    /// The guest. `null`: the host.
    pub domain: Option<String>,
    /// What is missing.
    pub because: String,
}

/// A guest, or the host, that runs or is watched for too short a time to tell whether there is a
/// finding.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct StillWatched {
    /// The guest. `null`: the host.
    pub domain: Option<String>,
    /// What is still missing.
    pub because: String,
    /// For how long it was seen, seconds.
    pub seen_s: f64,
    /// From how many seconds on it is judged.
    pub needed_s: f64,
}

/// The answer of all rules.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Report {
    /// What was found, worst first.
    pub findings: Vec<Finding>,
    /// What could not be judged.
    pub cannot_tell: Vec<CannotTell>,
    /// Where not enough has been seen yet.
    pub watching: Vec<StillWatched>,
    /// What of the files was left out or read otherwise than it stands there, a sentence each.
    pub notes: Vec<String>,
}
