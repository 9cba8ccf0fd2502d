//! Groups findings that have one cause into one finding.

use super::finding::{Confidence, Finding, Fix, Lasting, Mark, Severity};
use crate::figures::figure;
use crate::lint::rule_id::RuleId;
use crate::lint::table::rank;
use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Timers of a Windows guest without enlightenments: one problem with one fix.
const WINDOWS_TIMERS: [RuleId; 6] = {
    use RuleId::{AcpiPmTimer, HpetClock, HpetIdleCost, IdleWakeups, PitTimer, RtcTick};
    [AcpiPmTimer, RtcTick, HpetClock, PitTimer, HpetIdleCost, IdleWakeups]
};
/// Rules whose cause explains why vCPUs wait.
const WAIT_CAUSES: &[RuleId] = {
    use RuleId::{HostTaskHog, IsolatedPileUp, PinOverlap, PinnedNotIsolated, QuotaThrottled};
    &[QuotaThrottled, IsolatedPileUp, PinOverlap, PinnedNotIsolated, HostTaskHog]
};

/// Groups findings that have one cause. With `is_steady`, as on a running host, the costs of each second do not decide
/// which finding names the group: the name would change with them.
pub(crate) fn group(mut findings: Vec<Finding>, is_steady: bool) -> Vec<Finding> {
    let is_timer = |f: &Finding| f.folded.is_empty() && WINDOWS_TIMERS.contains(&f.rule);
    for (setup, timers) in take_groups(&mut findings, RuleId::WindowsEnlightenments, is_timer) {
        findings.push(if timers.is_empty() { setup } else { windows_group(setup, timers, is_steady) });
    }
    same_fix(&mut findings, is_steady);
    for (whole, part) in [
        (RuleId::ApicvInhibited, RuleId::Stage2Faults),
        (RuleId::VirtioKicks, RuleId::DeviceProperties),
        (RuleId::VirtioIntx, RuleId::DeviceProperties),
    ] {
        for (mut one, parts) in take_groups(&mut findings, whole, |f| f.rule == part) {
            take_in(&mut one, parts, f64::max);
            findings.push(one);
        }
    }
    not_stopped(&mut findings);
    hogs(&mut findings);
    waits(&mut findings);
    findings
}

/// Takes out the findings of a rule, each with its parts: findings about the same guest that `is_part` picks.
fn take_groups(
    findings: &mut Vec<Finding>,
    rule: RuleId,
    is_part: impl Fn(&Finding) -> bool,
) -> Vec<(Finding, Vec<Finding>)> {
    let heads: Vec<Finding> = findings.extract_if(.., |f| f.rule == rule).collect();
    let mut parts: HashMap<Option<String>, Vec<Finding>> =
        heads.iter().map(|head| (head.domain.clone(), Vec::new())).collect();
    for part in findings.extract_if(.., |f| is_part(f) && parts.contains_key(&f.domain)).collect::<Vec<_>>() {
        parts.entry(part.domain.clone()).or_default().push(part);
    }
    let with_parts = |head: Finding| {
        let parts = parts.remove(&head.domain).unwrap_or_default();
        (head, parts)
    };
    heads.into_iter().map(with_parts).collect()
}

/// One finding of a Windows guest's missing enlightenments and its timers.
fn windows_group(setup: Finding, mut timers: Vec<Finding>, is_steady: bool) -> Finding {
    timers.sort_by(|a, b| leading(a, b, is_steady));
    // The most costly one names the group. A clock that was measured comes before wake-ups and before what the
    // configuration only suggests.
    let lead = timers.iter().position(|f| f.cost.is_some()).unwrap_or(0);
    let named = if setup.cost > timers[lead].cost && !is_steady { setup.rule } else { timers[lead].rule };
    let mut one = Finding {
        rule: named,
        severity: Severity::Warning,
        confidence: Confidence::Low,
        domain: setup.domain.clone(),
        target: setup.target,
        title: "QEMU emulates the timers of this Windows guest".into(),
        problem: setup.problem.clone(),
        why: setup.why.clone(),
        fix: setup.fix.clone(),
        ..Finding::default()
    };
    // The configuration's evidence comes last: the figures say more.
    timers.push(setup);
    for f in &timers {
        one.confidence = one.confidence.max(f.confidence);
        join(&mut one.see, f.see.clone());
    }
    take_in_clocks(&mut one, timers);
    one.folded.retain(|rule| *rule != named);
    one.folded.sort_by_key(|r| rank(*r));
    one
}

/// The most costly finding first, then by the place of its rule in the table; on a running host the most severe one of
/// those whose cost is known.
fn leading(a: &Finding, b: &Finding, is_steady: bool) -> Ordering {
    let by_cost = || b.cost.unwrap_or(0.0).total_cmp(&a.cost.unwrap_or(0.0));
    let by_severity = || (b.cost.is_some(), b.severity).cmp(&(a.cost.is_some(), a.severity));
    let first = if is_steady { by_severity() } else { by_cost() };
    first.then_with(|| rank(a.rule).cmp(&rank(b.rule)))
}

/// How steadily two findings of one cause hold: as the one that shows more.
fn joined(a: Lasting, b: Lasting) -> Lasting {
    let is_longer = a.is_longer || b.is_longer;
    let most = if (b.of_s, b.shown_s) > (a.of_s, a.shown_s) { b } else { a };
    Lasting { is_longer, ..most }
}

/// Joins timer findings of one guest that share their first fix, where the configuration is not known to lack it.
fn same_fix(findings: &mut Vec<Finding>, is_steady: bool) {
    findings.sort_by(|a, b| leading(a, b, is_steady));
    let mut leads: HashMap<(Option<String>, Option<Fix>), usize> = HashMap::new();
    let mut parts: BTreeMap<usize, Vec<Finding>> = BTreeMap::new();
    for f in std::mem::take(findings) {
        let mut lead = || *leads.entry((f.domain.clone(), f.fix.first().cloned())).or_insert(findings.len());
        let lead = WINDOWS_TIMERS.contains(&f.rule).then(&mut lead);
        match lead.filter(|at| *at < findings.len()) {
            Some(at) => parts.entry(at).or_default().push(f),
            None => findings.push(f),
        }
    }
    for (at, parts) in parts {
        take_in_clocks(&mut findings[at], parts);
    }
}

/// Adds clocks and timers to the finding that names them. Their sum comes first, then the most costly.
fn take_in_clocks(one: &mut Finding, mut parts: Vec<Finding>) {
    let cost = |f: &Finding| f.cost.unwrap_or(0.0);
    parts.sort_by(|a, b| cost(b).total_cmp(&cost(a)));
    let own = one.cost.map(|cost| (clock_name(one.rule), cost)).into_iter();
    let mut costs: Vec<(&str, f64)> =
        own.chain(parts.iter().filter_map(|f| Some((clock_name(f.rule), f.cost?)))).collect();
    costs.sort_by(|a, b| b.1.total_cmp(&a.1));
    take_in(one, parts, |a, b| a + b);
    if let (Some(all), true) = (one.cost, costs.len() > 1) {
        let costs: Vec<String> = costs.iter().map(|(name, cost)| format!("{name} {}", figure(*cost))).collect();
        one.evidence.insert(0, format!("{} % of a CPU on emulated clocks: {}", figure(all), costs.join(", ")));
    }
}

/// The device of a rule about clocks.
fn clock_name(rule: RuleId) -> &'static str {
    match rule {
        RuleId::AcpiPmTimer => "acpi-tmr",
        RuleId::RtcTick => "rtc",
        RuleId::HpetClock => "hpet",
        RuleId::PitTimer => "pit",
        RuleId::HpetIdleCost => "QEMU's main thread",
        _ => "ports",
    }
}

/// Adds findings that have the same cause to the one that names it.
fn take_in(one: &mut Finding, parts: Vec<Finding>, cost: fn(f64, f64) -> f64) {
    let own = one.evidence.len();
    let mut lines: HashSet<String> = HashSet::new();
    let mut marks: HashSet<Mark> = one.marks.iter().cloned().collect();
    for part in parts {
        one.severity = one.severity.max(part.severity);
        one.since_ms = one.since_ms.into_iter().chain(part.since_ms).min();
        one.lasting = one.lasting.take().into_iter().chain(part.lasting).reduce(joined);
        one.cost = one.cost.into_iter().chain(part.cost).reduce(cost);
        join(&mut one.folded, vec![part.rule]);
        for line in part.evidence {
            // Evidence that is already there, perhaps with more detail, is not repeated.
            if !one.evidence.iter().take(own).any(|o| o.starts_with(&line)) && lines.insert(line.clone()) {
                one.evidence.push(line);
            }
        }
        one.marks.extend(part.marks.into_iter().filter(|mark| marks.insert(mark.clone())));
    }
}

/// Takes back what was said of tasks of the host in the seconds in which a new quota was not known yet.
fn not_stopped(findings: &mut Vec<Finding>) {
    let stopped = findings.iter().filter(|f| f.rule == RuleId::QuotaThrottled && f.severity >= Severity::Warning);
    let stopped: HashSet<String> = stopped.filter_map(|f| f.domain.clone()).collect();
    let is_past = |f: &Finding| f.lasting.as_ref().is_some_and(|lasting| lasting.ago_s > 0.0);
    findings.retain_mut(|f| match f.rule {
        RuleId::PinnedNotIsolated if is_past(f) => !f.domain.as_ref().is_some_and(|guest| stopped.contains(guest)),
        RuleId::HostTaskHog if is_past(f) => {
            f.also.retain(|guest| !stopped.contains(guest));
            !f.also.is_empty()
        }
        _ => true,
    });
}

/// What tasks of the host do on the CPUs of pinned vCPUs joins the finding about those tasks if the vCPUs wait for
/// them.
fn hogs(findings: &mut Vec<Finding>) {
    let Some(mut hog) = findings.extract_if(.., |f| f.rule == RuleId::HostTaskHog).next() else { return };
    let is_part = |f: &mut Finding| {
        f.rule == RuleId::PinnedNotIsolated && f.domain.as_ref().is_some_and(|d| hog.also.contains(d))
    };
    let parts = findings.extract_if(.., is_part).collect();
    take_in(&mut hog, parts, f64::max);
    findings.push(hog);
}

/// Wait whose cause was found joins the finding of the cause: the first about the same guest, or about a CPU that the
/// guest shares.
fn waits(findings: &mut Vec<Finding>) {
    let waits: Vec<Finding> = findings.extract_if(.., |f| f.rule == RuleId::VcpuWait).collect();
    let (mut by_guest, mut by_cpu) = (HashMap::new(), HashMap::new());
    let explains = |f: &Finding| WAIT_CAUSES.contains(&f.rule) && f.severity >= Severity::Warning;
    for (at, f) in findings.iter().enumerate().filter(|(_, f)| explains(f)) {
        let guests: Vec<Option<String>> = match f.rule {
            RuleId::QuotaThrottled | RuleId::IsolatedPileUp => vec![f.domain.clone()],
            RuleId::HostTaskHog => f.also.iter().cloned().map(Some).collect(),
            _ => Vec::new(),
        };
        for guest in guests {
            by_guest.entry(guest).or_insert(at);
        }
        for cpu in f.marks.iter().filter_map(pcpu) {
            by_cpu.entry(cpu).or_insert(at);
        }
    }
    let mut explained: BTreeMap<Option<usize>, Vec<Finding>> = BTreeMap::new();
    for wait in waits {
        let shared = wait.marks.iter().filter_map(pcpu).filter_map(|cpu| by_cpu.get(&cpu));
        let cause = by_guest.get(&wait.domain).into_iter().chain(shared).min().copied();
        explained.entry(cause).or_default().push(wait);
    }
    for (cause, mut waits) in explained {
        let Some(cause) = cause.and_then(|at| findings.get_mut(at)) else {
            findings.extend(waits);
            continue;
        };
        let mut names: HashSet<String> = cause.also.iter().cloned().collect();
        for wait in waits.iter_mut().filter(|wait| wait.domain != cause.domain) {
            let Some(name) = &wait.domain else { continue };
            if let Some(figure) = wait.evidence.first_mut() {
                *figure = format!("{name}: {figure}");
            }
            cause.also.extend(Some(name.clone()).filter(|name| names.insert(name.clone())));
        }
        take_in(cause, waits, f64::max);
    }
}

fn pcpu(mark: &Mark) -> Option<u32> {
    if let Mark::Pcpu(cpu) = mark { Some(*cpu) } else { None }
}

/// Adds what is not there yet.
pub(crate) fn join<T: PartialEq>(into: &mut Vec<T>, from: Vec<T>) {
    for x in from {
        if !into.contains(&x) {
            into.push(x);
        }
    }
}
