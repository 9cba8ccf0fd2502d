//! Runs all rules over one interval.

use super::grouping;
use super::memory::{NewInterval, RuleMemory};
use super::table;
use crate::figures::seconds;
use crate::lint::facts::{
    CannotTell, Check, Context, Finding, Guard, GuestContext, Hold, InputKind, Options, Report,
    Rule, RuleId, Severity, StillWatched, Verdicts, order,
};
use crate::lint::fixes;
use crate::model::Model;
use sample::DomainState;

/// Why a finding about a guest that any user can make up is no alarm.
const FOREIGN: &str = "another user's process that libvirt does not know: a warning at most";

/// Judges one interval.
pub fn run(model: &Model, memory: &mut RuleMemory, options: &Options) -> Report {
    let is_steady = options.input != InputKind::File;
    memory.watch(model);
    let mut context = Context::new(model, options);
    if is_steady {
        for guest in &mut context.guests {
            guest.not_judged = not_judged(guest, memory, options, model);
        }
    }
    let Verdicts {
        found,
        mut cannot_tell,
        left_out,
        ..
    } = ask_all(&context);
    for guest in &context.guests {
        cannot_tell.extend(why_unmeasured(&context, guest).map(|because| CannotTell {
            rule: RuleId::Every,
            domain: Some(guest.name().to_owned()),
            because,
        }));
    }
    if left_out > 0 {
        cannot_tell.push(CannotTell {
            rule: RuleId::Every,
            domain: None,
            because: format!("there are more findings than are kept: {left_out} are left out"),
        });
    }
    let mut watching = Vec::new();
    let findings = if is_steady {
        watching = still_watched(&context, memory);
        hold(&context, found, memory)
    } else {
        found.into_iter().map(|(_, finding)| finding).collect()
    };
    let grouped = grouping::group(findings, is_steady);
    let mut findings: Vec<Finding> = grouped.into_iter().map(Finding::limited).collect();
    for f in findings
        .iter_mut()
        .filter(|f| options.warn.contains(&f.rule))
    {
        f.severity = f.severity.raised();
    }
    findings.sort_by(order);
    cannot_tell.sort();
    cannot_tell.dedup();
    Report {
        findings,
        cannot_tell,
        watching,
        notes: Vec::new(),
    }
}

/// What still holds of this interval's findings and of those before, each as long as its rule says.
fn hold(
    context: &Context<'_>,
    found: Vec<(Option<usize>, Finding)>,
    memory: &mut RuleMemory,
) -> Vec<Finding> {
    let by_guest = found
        .into_iter()
        .map(|(guest, finding)| (guest.map(|i| context.guests[i].domain.key()), finding));
    let interval = NewInterval {
        found: by_guest.collect(),
        now_ms: context.model.time_ms,
        seconds: context.model.interval_s.unwrap_or(0.0),
        exactly: context.options.input == InputKind::Live,
    };
    memory.take_interval(interval, |rule| match table::hold(rule) {
        Hold::Once(_) if context.options.keep_events => Hold::Once(f64::INFINITY),
        hold => hold,
    })
}

/// A guest or the host that was watched for less time than rules need.
fn young(guest: Option<&GuestContext<'_>>, seen_s: f64, needed_s: f64) -> Option<StillWatched> {
    // A tick comes a little early now and then.
    if seen_s >= needed_s * 0.95 {
        return None;
    }
    Some(StillWatched {
        domain: guest.map(|guest| guest.name().to_owned()),
        because: format!(
            "watched for {}; rules look at up to {}",
            seconds(seen_s),
            seconds(needed_s)
        ),
        seen_s,
        needed_s,
    })
}

/// The guests, and the host, of which less has been seen than a rule needs.
fn still_watched(context: &Context<'_>, memory: &mut RuleMemory) -> Vec<StillWatched> {
    let reported = table::rules().filter(|r| context.options.reports(r.id));
    let needed_s = reported.map(|r| r.hold.shows_s()).fold(0.0, f64::max);
    let mut all = Vec::new();
    all.extend(young(None, memory.watched_s, needed_s));
    for guest in context.guests.iter().filter(|g| g.running()) {
        match &guest.not_judged {
            // After the guard a rule still needs its time.
            Some(Guard::Young {
                because,
                seen_s,
                needed_s: guarded_s,
            }) if needed_s > 0.0 => all.push(StillWatched {
                domain: Some(guest.name().to_owned()),
                because: because.clone(),
                seen_s: *seen_s,
                needed_s: guarded_s + needed_s,
            }),
            Some(_) => {}
            None => {
                let seen_s = memory.judged_s(guest.domain, context.model.interval_s.unwrap_or(0.0));
                all.extend(young(Some(guest), seen_s, needed_s));
            }
        }
    }
    all
}

/// What every rule that is switched on reports of this interval alone.
fn ask_all(context: &Context<'_>) -> Verdicts {
    let mut verdicts = Verdicts::default();
    for rule in table::rules().filter(|r| context.options.reports(r.id)) {
        if let Check::Host(check) = rule.check {
            verdicts.begin(rule.id, &rule.doc, None);
            check(context, &mut verdicts);
        } else {
            for guest in &context.guests {
                ask(context, rule, guest, &mut verdicts);
            }
        }
    }
    for (guest, finding) in &mut verdicts.found {
        fixes::fit(context, *guest, finding);
        fixes::in_place(&context.guests, *guest, &mut finding.fix);
        if guest.is_some_and(|i| context.guests[i].domain.facts.foreign) {
            finding.severity = finding.severity.min(Severity::Warning);
            finding.evidence.push(FOREIGN.into());
        }
    }
    verdicts
}

/// Asks a rule about a guest.
fn ask(
    context: &Context<'_>,
    rule: &'static Rule,
    guest: &GuestContext<'_>,
    verdicts: &mut Verdicts,
) {
    let is_over = guest.domain.state == DomainState::Ended;
    if is_over || guest.emulated().is_some() && table::is_of_kvm(rule.id) {
        return;
    }
    verdicts.begin(rule.id, &rule.doc, Some(guest));
    match rule.check {
        Check::Behaviour(check) if guest.not_judged.is_none() => check(context, guest, verdicts),
        Check::Setup(check) => check(context, guest, verdicts),
        _ => {}
    }
}

/// Why the rules about a guest's behaviour say little.
fn why_unmeasured(context: &Context<'_>, guest: &GuestContext<'_>) -> Option<String> {
    let d = guest.domain;
    // A guest that is judged soon is among those still watched.
    if let Some(Guard::Paused) = &guest.not_judged {
        return Some("the guest is paused".into());
    }
    if d.uncounted_vcpus > 0 && d.state != DomainState::Ended {
        return Some(format!(
            "exits and accesses of {} of {} vCPUs are not counted: the engine's \
                 tables have no place for more threads of this guest's user or process",
            d.uncounted_vcpus,
            d.vcpu_count()
        ));
    }
    let has_events = d.exits.count > 0 || !d.accesses.is_empty() || !d.userspace.is_empty();
    if !context.is_file() || has_events || d.threads.iter().any(|t| t.cpu.is_some()) {
        return None;
    }
    Some("these files hold no exits of the guest (add perf kvm stat or a recording)".into())
}

/// Why a guest's behaviour is not judged in this interval of a running host; `None` when it is.
fn not_judged(
    guest: &GuestContext<'_>,
    memory: &RuleMemory,
    options: &Options,
    model: &Model,
) -> Option<Guard> {
    if guest.domain.state == DomainState::Paused {
        return Some(Guard::Paused);
    }
    if let Some(seen_s) = memory
        .resumed_s(guest.domain)
        .filter(|s| *s < options.resume_guard_s)
    {
        return Some(Guard::Young {
            because: format!("the guest was resumed {} ago", seconds(seen_s)),
            seen_s,
            needed_s: options.resume_guard_s,
        });
    }
    let seen_s = (model.time_ms - guest.domain.facts.started_ms?) as f64 / 1e3;
    let needed_s = options.startup_guard_s;
    if !(0.0..needed_s).contains(&seen_s) {
        return None;
    }
    Some(Guard::Young {
        because: format!(
            "the guest started {} ago: a booting system polls timers heavily",
            seconds(seen_s)
        ),
        seen_s,
        needed_s,
    })
}
