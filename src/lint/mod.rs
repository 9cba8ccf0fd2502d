//! Findings: what is wrong, the figures that show it, and a fix to paste. Pure: over the model only, no I/O, no clock.
//!
//! A rule looks at one interval and reports nothing, a [`Finding`], or why it cannot tell. [`run`] asks all rules, keeps
//! only patterns that last (on a running host), groups findings that have one cause, and sorts them.

mod apic;
mod checks;
mod contention;
mod context;
mod devices;
mod engine;
mod fixes;
mod machine;
mod numa;
mod pinning;
mod rules;
mod scheduling;
mod timers;

pub use engine::finding::{Confidence, Finding, Fix, FixKind, Mark, Severity, Target, order};
pub use engine::memory::RuleMemory;
pub use engine::options::{InputKind, Options};
pub use engine::thresholds::{Steps, Thresholds};
pub use rules::{RULES, RuleInfo, rank, rule};

use crate::model::Model;
use crate::sample::DomainState;
use context::guest::{Context, GuestContext};
use context::{placement as propose, totals as figures};
use engine::verdicts::{Ask, Verdicts};
use engine::{grouping as fold, memory, text};
use fixes as fix;
use serde::Serialize;

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
pub fn run(model: &Model, memory: &mut RuleMemory, options: &Options) -> Report {
    let log_judged_s = memory.log_judged_s();
    memory.watch(model);
    let guests = model.domains.iter().map(|d| GuestContext::new(model, d)).collect();
    let mut world = Context { model, guests, options, log_judged_s };
    for guest in &mut world.guests {
        guest.guarded = guarded(guest, memory, options, model);
    }
    let mut verdicts = Verdicts::default();
    for check in checks::CHECKS.iter().filter(|c| options.tells(c.rule)) {
        if let Ask::Host(ask) = check.ask {
            verdicts.turn(check.rule, None);
            ask(&world, &mut verdicts);
            continue;
        }
        for (i, guest) in world.guests.iter().enumerate().filter(|(_, g)| g.domain.state != DomainState::Ended) {
            verdicts.turn(check.rule, Some((i, guest)));
            match check.ask {
                Ask::Behaviour(ask) if guest.guarded.is_none() => ask(&world, guest, &mut verdicts),
                Ask::Setup(ask) => ask(&world, guest, &mut verdicts),
                Ask::Behaviour(_) | Ask::Host(_) => {}
            }
        }
    }
    for guest in &world.guests {
        if let Some(because) = guest.guarded.clone() {
            verdicts.cannot.push(CannotTell { rule: EVERY_RULE, domain: Some(guest.name().to_owned()), because });
        }
    }
    let Verdicts { found, cannot, unread, .. } = verdicts;
    let mut findings: Vec<Finding> = match options.input {
        InputKind::File => found.into_iter().map(|f| f.1).collect(),
        InputKind::Live => {
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
fn guarded(guest: &GuestContext<'_>, memory: &RuleMemory, options: &Options, model: &Model) -> Option<String> {
    if options.input == InputKind::File {
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
