//! Runs all rules over one interval.

use super::grouping;
use super::memory::{NewInterval, RuleMemory};
use super::table;
use crate::figures::seconds;
use crate::lint::facts::Context;
use crate::lint::facts::finding::Finding;
use crate::lint::facts::finding::{order, steady_order};
use crate::lint::facts::guest::Guard;
use crate::lint::facts::guest::GuestContext;
use crate::lint::facts::hold::Hold;
use crate::lint::facts::options::{InputKind, Options};
use crate::lint::facts::rule::{Check, Rule};
use crate::lint::facts::rule_id::RuleId;
use crate::lint::facts::verdicts::Verdicts;
use crate::lint::facts::verdicts::{CannotTell, Report, StillWatched};
use crate::lint::fixes;
use crate::lint::fixes::audience::Surroundings;
use crate::model::Model;
use sample::DomainState;

/// Why a finding about a guest that any user can make up is no alarm.
const FOREIGN: &str = "another user's process that libvirt does not know: a warning at most";

/// Judges one interval.
pub fn run(model: &Model, memory: &mut RuleMemory, options: &Options) -> Report {
    let is_steady = options.input != InputKind::File;
    let log_judged_s = memory.log_judged_s;
    memory.watch(model);
    let mut context = Context::new(model, options, log_judged_s);
    for guest in &mut context.guests {
        guest.not_judged = not_judged(guest, memory, options);
        guest.booting = booting(guest, options, model);
    }
    let Verdicts { found, mut cannot_tell, left_out, .. } = ask_all(&context);
    let mut watching = still_watched(&context, memory);
    cannot_tell.extend(unmeasured(&context));
    // A guest that is judged soon is among those still watched.
    let for_long = |g: &GuestContext<'_>| {
        let not_judged = g.not_judged.as_ref().filter(|not| not.watched.is_none())?;
        Some(CannotTell::every(Some(g), &not_judged.because))
    };
    cannot_tell.extend(context.guests.iter().filter_map(for_long));
    cannot_tell.extend(context.guests.iter().filter_map(uncounted));
    let limited = || format!("there are more findings than are kept: {left_out} are left out");
    cannot_tell.extend((left_out > 0).then(|| CannotTell::every(None, limited())));
    let findings: Vec<Finding> = if is_steady {
        let key = |guest: Option<usize>| guest.map(|i| context.guests[i].domain.key());
        let interval = NewInterval {
            found: found.into_iter().map(|(guest, f)| (key(guest), f)).collect(),
            now_ms: model.time_ms,
            booted_ms: model.booted_ms,
            seconds: model.interval_s.unwrap_or(0.0),
            exactly: options.input == InputKind::Live,
        };
        let hold = |rule: RuleId| match table::hold(rule) {
            Hold::Once(_) if options.keep_events => Hold::Once(f64::INFINITY),
            hold => hold,
        };
        let findings = memory.settle(interval, hold);
        watching.extend(memory.candidates(hold));
        findings
    } else {
        found.into_iter().map(|(_, finding)| finding.naming_guest()).collect()
    };
    let grouped = grouping::group(findings, is_steady);
    let mut findings: Vec<Finding> = grouped.into_iter().map(Finding::limited).collect();
    for f in findings.iter_mut().filter(|f| options.warn.contains(&f.rule)) {
        f.severity = f.severity.raised();
    }
    findings.sort_by(if is_steady { steady_order } else { order });
    cannot_tell.sort();
    cannot_tell.dedup();
    Report { findings, cannot_tell, watching, notes: Vec::new() }
}

/// That the engine counts no events of some vCPUs of a guest.
fn uncounted(guest: &GuestContext<'_>) -> Option<CannotTell> {
    let (uncounted, all) = (guest.domain.uncounted_vcpus, guest.domain.vcpu_count());
    let because = format!(
        "exits and accesses of {uncounted} of {all} vCPUs are not counted: the engine's tables have no place for more \
         threads of this guest's user or process"
    );
    (uncounted > 0 && guest.domain.state != DomainState::Ended).then(|| CannotTell::every(Some(guest), because))
}

/// The guests, and the host, of which less has been seen than a rule needs.
fn still_watched(context: &Context<'_>, memory: &mut RuleMemory) -> Vec<StillWatched> {
    if context.is_file() {
        return Vec::new();
    }
    let needed_s = |is_host: bool| {
        let reported = table::rules().filter(|r| context.options.reports(r.id));
        let asked = reported.filter(|r| matches!(r.check, Check::Host(_)) == is_host);
        asked.map(|r| r.hold.times().0).fold(0.0, f64::max)
    };
    let (of_host, of_guest) = (needed_s(true), needed_s(false));
    let young = |guest: Option<&GuestContext<'_>>, seen_s: f64, needed_s: f64| {
        let because = format!("watched for {}; rules look at up to {}", seconds(seen_s), seconds(needed_s));
        // A tick comes a little early now and then.
        (seen_s < needed_s * 0.95).then(|| StillWatched::every(guest, because, seen_s, needed_s))
    };
    let mut all = Vec::new();
    all.extend(young(None, memory.watched_s, of_host));
    for guest in context.guests.iter().filter(|g| g.running()) {
        match guest.not_judged.as_ref().or(guest.booting.as_ref()) {
            // After the guard a rule still needs its time.
            Some(Guard { because, watched: Some((seen_s, needed_s)) }) if of_guest > 0.0 => {
                all.push(StillWatched::every(Some(guest), because.clone(), *seen_s, needed_s + of_guest));
            }
            Some(_) => {}
            None => {
                let seen_s = memory.judged_s(guest.domain, context.model.interval_s.unwrap_or(0.0));
                all.extend(young(Some(guest), seen_s, of_guest));
            }
        }
    }
    all
}

/// What every rule that is switched on reports of this interval alone.
fn ask_all(context: &Context<'_>) -> Verdicts {
    let mut verdicts = Verdicts::default();
    for rule in table::rules().filter(|r| context.options.reports(r.id)) {
        let of_host = matches!(rule.check, Check::Host(_));
        let guests = if of_host { 0..0 } else { 0..context.guests.len() };
        for guest in guests.map(Some).chain(of_host.then_some(None)) {
            ask(context, rule, guest, &mut verdicts);
        }
    }
    let mut found = Vec::new();
    for (guest, finding) in std::mem::take(&mut verdicts.found) {
        let mut finding = Surroundings::of(context, guest, &finding).fit(finding);
        finding.fix = finding.fix.into_iter().map(|fix| fixes::in_place(&context.guests, guest, fix)).collect();
        if guest.and_then(|i| context.guests.get(i)).is_some_and(|guest| guest.domain.facts.foreign) {
            finding = finding.at_most_warning(FOREIGN);
        }
        found.push((guest, finding));
    }
    verdicts.found = found;
    verdicts
}

/// Asks a rule about a guest, or about the host.
fn ask(context: &Context<'_>, rule: &'static Rule, guest: Option<usize>, verdicts: &mut Verdicts) {
    let guest = guest.and_then(|i| context.guests.get(i));
    let guest = guest.filter(|g| g.emulated.is_none() || !table::is_of_kvm(rule.id));
    verdicts.begin(rule.id, &rule.doc, guest);
    let before = verdicts.found.len();
    let is_over = guest.is_some_and(|g| g.domain.state == DomainState::Ended);
    match (rule.check, guest) {
        (Check::Host(check), None) => check(context, verdicts),
        _ if is_over => {}
        (Check::Behaviour(check), Some(guest)) if guest.not_judged.is_none() => {
            check(context, guest, verdicts);
            if let Some(guard) = &guest.booting {
                verdicts.temper(before, &guard.because);
            }
        }
        (Check::Setup(check), Some(guest)) => check(context, guest, verdicts),
        _ => {}
    }
}

/// What files leave open as a whole: guests that they describe and do not measure, or whose exits they only count.
fn unmeasured(context: &Context<'_>) -> Vec<CannotTell> {
    if !context.is_file() {
        return Vec::new();
    }
    let of_guest = |guest: &GuestContext<'_>| {
        let d = guest.domain;
        let events = d.exits.count > 0 || !d.accesses.is_empty() || !d.userspace.is_empty();
        let threads = d.threads.iter().any(|t| t.cpu.is_some());
        let counts = !d.counters.is_empty() || !d.kvm_events.is_empty();
        let only_sleep = d.accesses.is_empty() && d.userspace.is_empty() && d.exits.rows.iter().all(|r| r.idle);
        let because = match (events, counts, threads) {
            (true, ..) if guest.interval_s.is_some() && guest.seconds.is_none() => {
                "the figures cover less than 50 ms, which is too short for a rate (record some seconds)"
            }
            (true, ..) if only_sleep => "nothing but sleep (HLT or WFI) is in these figures",
            (true, ..) | (_, false, true) => return None,
            (_, true, _) if d.counters.is_empty() && d.kvm_events.values().all(|count| *count == 0) => {
                "all of these counts are 0: the guest did not run in KVM meanwhile (it was paused, or QEMU emulates it)"
            }
            (_, true, _) => "these counts have no exit reasons (add perf kvm stat, or kvm_stat -1 -f kvm_exit)",
            _ => "these files describe the guest and measure nothing of it (add perf kvm stat or a recording)",
        };
        Some(CannotTell::every(Some(guest), because))
    };
    if context.guests.is_empty() {
        return vec![CannotTell::every(None, "no file describes or measures a guest")];
    }
    context.guests.iter().filter_map(of_guest).collect()
}

/// Why a guest's behaviour is not judged in this interval; `None` when it is.
fn not_judged(guest: &GuestContext<'_>, memory: &RuleMemory, options: &Options) -> Option<Guard> {
    if options.input == InputKind::File {
        return None;
    }
    if guest.domain.state == DomainState::Paused {
        return Some(Guard { because: "the guest is paused".into(), watched: None });
    }
    let resumed = memory.resumed_s(guest.domain).filter(|s| *s < options.resume_guard_s)?;
    let because = format!("the guest was resumed {} ago", seconds(resumed));
    Some(Guard { because, watched: Some((resumed, options.resume_guard_s)) })
}

/// What lowers the findings about a guest that may still boot; `None` when it runs for long enough, or in a file.
fn booting(guest: &GuestContext<'_>, options: &Options, model: &Model) -> Option<Guard> {
    let guard_s = options.startup_guard_s;
    let age = (model.time_ms - guest.domain.facts.started_ms?) as f64 / 1e3;
    let is_young = options.input != InputKind::File && (0.0..guard_s).contains(&age);
    let because = || {
        let (age, guard) = (seconds(age), seconds(guard_s));
        format!(
            "the guest started {age} ago: a booting system polls timers heavily and counts in full only after {guard}"
        )
    };
    is_young.then(|| Guard { because: because(), watched: Some((age, guard_s)) })
}
