//! Runs all rules over one interval.

use super::context::Context;
use super::context::guest::GuestContext;
use super::engine::finding::{Finding, order};
use super::engine::grouping;
use super::engine::hold::Hold;
use super::engine::memory::{RuleMemory, guest_identity};
use super::engine::options::{InputKind, Options};
use super::engine::report::{CannotTell, EVERY_RULE, Report};
use super::rule::Check;
use super::table;
use super::verdicts::Verdicts;
use crate::figures::seconds;
use crate::model::Model;
use crate::sample::DomainState;

/// Judges one interval.
pub fn run(model: &Model, memory: &mut RuleMemory, options: &Options) -> Report {
    let log_judged_s = memory.log_judged_s();
    memory.watch(model);
    let guests = model.domains.iter().enumerate().map(|(i, d)| GuestContext::new(model, i, d)).collect();
    let mut context = Context::new(model, guests, options, log_judged_s);
    for guest in &mut context.guests {
        guest.not_judged = not_judged(guest, memory, options, model);
    }
    let mut verdicts = ask_all(&context);
    for guest in &context.guests {
        if let Some(because) = guest.not_judged.clone() {
            let domain = Some(guest.name().to_owned());
            verdicts.cannot_tell.push(CannotTell { rule: EVERY_RULE, domain, because });
        }
    }
    if verdicts.left_out > 0 {
        let because = format!("there are more findings than are kept: {} are left out", verdicts.left_out);
        verdicts.cannot_tell.push(CannotTell { rule: EVERY_RULE, domain: None, because });
    }
    let Verdicts { found, mut cannot_tell, not_read, .. } = verdicts;
    let findings: Vec<Finding> = match options.input {
        InputKind::File => found.into_iter().map(|(_, finding)| finding).collect(),
        InputKind::Live => {
            let key = |guest: Option<usize>| guest.map(|i| guest_identity(context.guests[i].domain));
            let hold = |rule: &str| match table::hold(rule) {
                Hold::Once(_) if options.keep_events => Hold::Once(f64::INFINITY),
                hold => hold,
            };
            let found = found.into_iter().map(|(guest, f)| (key(guest), hold(f.rule), f)).collect();
            let not_read = not_read.into_iter().map(|(rule, guest)| (rule, key(guest))).collect();
            memory.settle(found, &not_read, hold, model.time_ms, model.interval_s.unwrap_or(0.0))
        }
    };
    let grouped = grouping::group(findings, table::rank);
    let mut findings: Vec<Finding> = grouped.into_iter().map(Finding::limited).collect();
    for f in &mut findings {
        if options.warn.contains(f.rule) {
            f.severity = f.severity.raised();
        }
    }
    findings.sort_by(order);
    cannot_tell.sort();
    cannot_tell.dedup();
    Report { findings, cannot_tell }
}

/// What every rule that is switched on reports of this interval alone.
fn ask_all(context: &Context<'_>) -> Verdicts {
    let mut verdicts = Verdicts::default();
    for rule in table::rules().filter(|r| context.options.reports(r.name)) {
        if let Check::Host(check) = rule.check {
            verdicts.start(rule.name, rule.links, None);
            check(context, &mut verdicts);
            continue;
        }
        for (i, guest) in context.guests.iter().enumerate().filter(|(_, g)| g.domain.state != DomainState::Ended) {
            verdicts.start(rule.name, rule.links, Some((i, guest)));
            match rule.check {
                Check::Behaviour(check) if guest.not_judged.is_none() => check(context, guest, &mut verdicts),
                Check::Setup(check) => check(context, guest, &mut verdicts),
                Check::Behaviour(_) | Check::Host(_) => {}
            }
        }
    }
    verdicts
}

/// Why a guest's behaviour is not judged in this interval; `None` when it is.
fn not_judged(guest: &GuestContext<'_>, memory: &RuleMemory, options: &Options, model: &Model) -> Option<String> {
    if options.input == InputKind::File {
        return None;
    }
    if guest.domain.state == DomainState::Paused {
        return Some("the guest is paused".into());
    }
    let age = guest.domain.facts.started_ms.map(|at| (model.time_ms - at) as f64 / 1e3);
    if let Some(age) = age.filter(|a| (0.0..options.startup_guard_s).contains(a)) {
        return Some(format!(
            "the guest started {} ago; firmware and a booting system poll timers heavily, so judging starts after {}",
            seconds(age),
            seconds(options.startup_guard_s)
        ));
    }
    let resumed = memory.resumed_s(guest.domain, model.time_ms).filter(|s| *s < options.resume_guard_s)?;
    Some(format!("the guest was resumed {} ago", seconds(resumed)))
}
