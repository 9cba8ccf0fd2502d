//! Findings: what is wrong, how one knows, what to paste. Pure: over the model only, no I/O, no clock.
//!
//! A rule looks at one interval and answers nothing, a [`Finding`], or that it cannot tell and why. [`run`] asks all rules,
//! keeps only what lasts (on a running host), folds findings of one cause into one, and sorts them.

mod answers;
mod apic;
mod capacity;
mod checks;
mod devices;
mod errors;
mod figures;
mod finding;
mod fix;
mod fold;
mod machine;
mod memory;
mod numa;
mod options;
mod pinning;
mod propose;
mod rules;
mod scheduling;
mod seats;
mod tenants;
mod text;
mod thresholds;
mod timers;
mod view;
mod windows;

pub use finding::{Confidence, Finding, Fix, FixKind, Mark, Severity, Target, order};
pub use memory::Memory;
pub use options::{Options, Source};
pub use rules::{RULES, RuleInfo, rank, rule};
pub use thresholds::{Steps, Thresholds};

use crate::model::Model;
use crate::sample::DomainState;
use answers::{Answers, Ask};
use serde::Serialize;
use view::{Guest, World};

/// A rule that could not be judged, and why.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct CannotTell {
    /// The rule.
    pub rule: &'static str,
    /// The guest; `None` for the host.
    pub domain: Option<String>,
    /// What is missing, in a sentence.
    pub because: String,
}

/// The answer of all rules.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Report {
    /// What was found, worst first.
    pub findings: Vec<Finding>,
    /// What could not be judged.
    pub cannot_tell: Vec<CannotTell>,
}

impl Report {
    /// The worst severity found.
    pub fn worst(&self) -> Option<Severity> {
        self.findings.iter().map(|f| f.severity).max()
    }

    /// The findings of one guest.
    pub fn of_domain<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Finding> {
        self.findings.iter().filter(move |f| f.domain.as_deref() == Some(name))
    }
}

/// Judges one interval.
pub fn run(model: &Model, memory: &mut Memory, options: &Options) -> Report {
    let log_judged_s = memory.log_judged_s();
    memory.watch(model);
    let guests = model.domains.iter().map(|d| Guest::new(model, d)).collect();
    let mut world = World { model, guests, options, log_judged_s };
    for guest in &mut world.guests {
        guest.guarded = guarded(guest, memory, options, model);
    }
    let mut answers = Answers::default();
    for check in checks::CHECKS.iter().filter(|c| options.tells(c.rule)) {
        if let Ask::Host(ask) = check.ask {
            answers.turn(check.rule, None);
            ask(&world, &mut answers);
            continue;
        }
        for (i, guest) in world.guests.iter().enumerate().filter(|(_, g)| g.domain.state != DomainState::Ended) {
            answers.turn(check.rule, Some((i, guest)));
            match check.ask {
                Ask::Behaviour(ask) if guest.guarded.is_none() => ask(&world, guest, &mut answers),
                Ask::Setup(ask) => ask(&world, guest, &mut answers),
                Ask::Behaviour(_) | Ask::Host(_) => {}
            }
        }
    }
    for guest in &world.guests {
        if let Some(because) = guest.guarded.clone() {
            answers.cannot.push(CannotTell { rule: EVERY_RULE, domain: Some(guest.name().to_owned()), because });
        }
    }
    let Answers { found, cannot, unread, .. } = answers;
    let mut findings: Vec<Finding> = match options.source {
        Source::File => found.into_iter().map(|f| f.1).collect(),
        Source::Live => {
            let who = |guest: Option<usize>| guest.map(|i| memory::who(world.guests[i].domain));
            let found = found.into_iter().map(|(guest, f)| (who(guest), checks::hold(f.rule), f)).collect();
            let unread = unread.into_iter().map(|(rule, guest)| (rule, who(guest))).collect();
            memory.settle(found, &unread, checks::hold, model.time_ms, model.interval_s.unwrap_or(0.0))
        }
    };
    findings = fold::fold(findings);
    for f in &mut findings {
        if options.warn.contains(f.rule) {
            f.severity = figures::raise(f.severity);
        }
    }
    findings.sort_by(order);
    let mut cannot_tell = cannot;
    cannot_tell.sort();
    cannot_tell.dedup();
    Report { findings, cannot_tell }
}

/// In [`CannotTell::rule`]: no rule about the guest's behaviour can be judged.
pub const EVERY_RULE: &str = "*";

/// Why a guest's behaviour is not judged now, if it is not.
fn guarded(guest: &Guest<'_>, memory: &Memory, options: &Options, model: &Model) -> Option<String> {
    if options.source == Source::File {
        return None;
    }
    if guest.domain.state == DomainState::Paused {
        return Some("the guest is paused".into());
    }
    let age = guest.domain.facts.started_ms.map(|at| (model.time_ms - at) as f64 / 1e3);
    if let Some(age) = age.filter(|a| (0.0..options.startup_guard_s).contains(a)) {
        return Some(format!(
            "the guest started {} s ago, and firmware and a booting system poll timers heavily; judged from {} s on",
            text::figure(age),
            text::figure(options.startup_guard_s)
        ));
    }
    let resumed = memory.resumed_s(guest.domain, model.time_ms).filter(|s| *s < options.resume_guard_s)?;
    Some(format!("the guest was resumed {} s ago", text::figure(resumed)))
}

#[cfg(test)]
mod tests;
