//! Groups findings that have one cause into one finding.

use super::table::rank;
use crate::figures::figure;
use crate::lint::facts::finding::{Finding, Fix, Lasting, Mark, Severity, join};
use crate::lint::facts::rule_id::RuleId;
use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Timers of a Windows guest without enlightenments: one problem with one fix.
const WINDOWS_TIMERS: [RuleId; 6] = {
    use RuleId::{AcpiPmTimer, HpetClock, HpetIdleCost, IdleWakeups, PitTimer, RtcTick};
    [AcpiPmTimer, RtcTick, HpetClock, PitTimer, HpetIdleCost, IdleWakeups]
};
/// Rules whose findings are part of another one about the same guest, which comes first here. A wait is part of the
/// first of its causes.
const PARTS: [(RuleId, RuleId); 9] = [
    (RuleId::ApicvInhibited, RuleId::Stage2Faults),
    (RuleId::VirtioKicks, RuleId::DeviceProperties),
    (RuleId::VirtioIntx, RuleId::DeviceProperties),
    (RuleId::HostTaskHog, RuleId::PinnedNotIsolated),
    (RuleId::QuotaThrottled, RuleId::VcpuWait),
    (RuleId::IsolatedPileUp, RuleId::VcpuWait),
    (RuleId::PinOverlap, RuleId::VcpuWait),
    (RuleId::PinnedNotIsolated, RuleId::VcpuWait),
    (RuleId::HostTaskHog, RuleId::VcpuWait),
];

/// Groups findings that have one cause. With `is_steady`, as on a running host, the costs of each second do not decide
/// which finding names the group: the name would change with them.
pub(crate) fn group(mut findings: Vec<Finding>, is_steady: bool) -> Vec<Finding> {
    clocks(&mut findings, is_steady);
    not_stopped(&mut findings);
    PARTS.iter().for_each(|(whole, part)| join_parts(&mut findings, *whole, *part));
    findings
}

/// Joins the findings of two rules that concern the same guest.
fn join_parts(findings: &mut Vec<Finding>, whole: RuleId, part: RuleId) {
    let parts: Vec<Finding> = findings.extract_if(.., |f| f.rule == part && f.domain.is_some()).collect();
    let is_whole = |f: &Finding| f.rule == whole && (part != RuleId::VcpuWait || f.severity >= Severity::Warning);
    let mut wholes: HashMap<String, usize> = HashMap::new();
    for (at, f) in findings.iter().enumerate().filter(|(_, f)| is_whole(f)) {
        for guest in f.domain.iter().chain(&f.also) {
            wholes.entry(guest.clone()).or_insert(at);
        }
    }
    let mut joined: BTreeMap<usize, Vec<Finding>> = BTreeMap::new();
    for mut f in parts {
        let Some(at) = f.domain.as_ref().and_then(|guest| wholes.get(guest)) else {
            findings.push(f);
            continue;
        };
        if let (Some(guest), Some(figure)) = (&f.domain, f.evidence.first_mut())
            && findings[*at].domain != f.domain
        {
            *figure = format!("{guest}: {figure}");
        }
        joined.entry(*at).or_default().push(f);
    }
    joined.into_iter().for_each(|(at, parts)| take_in(&mut findings[at], parts, f64::max));
}

/// Makes one finding of the clocks and timers of a guest: of all of them where its enlightenments are known to be
/// missing, else of those that share their first fix. The most costly one names it.
fn clocks(findings: &mut Vec<Finding>, is_steady: bool) {
    let mut setups: HashMap<Option<String>, Finding> = HashMap::new();
    for setup in findings.extract_if(.., |f| f.rule == RuleId::WindowsEnlightenments).collect::<Vec<_>>() {
        findings.extend(setups.insert(setup.domain.clone(), setup));
    }
    let mut timers: Vec<Finding> = findings.extract_if(.., |f| WINDOWS_TIMERS.contains(&f.rule)).collect();
    timers.sort_by(|a, b| leading(a, b, is_steady));
    let mut places: HashMap<(Option<String>, Option<Fix>), usize> = HashMap::new();
    let mut groups: Vec<Vec<Finding>> = Vec::new();
    for f in timers {
        let fix = f.fix.first().filter(|_| !setups.contains_key(&f.domain)).cloned();
        let at = *places.entry((f.domain.clone(), fix)).or_insert(groups.len());
        groups.resize_with(groups.len().max(at + 1), Vec::new);
        groups[at].push(f);
    }
    for mut parts in groups {
        let mut one = parts.remove(0);
        // The configuration's evidence comes last: the figures say more.
        if let Some(setup) = setups.remove(&one.domain) {
            one.severity = one.severity.max(Severity::Warning);
            one.target = setup.target;
            one.comes_first = setup.comes_first;
            one.title = "QEMU emulates the timers of this Windows guest".into();
            (one.problem, one.why, one.fix) = (setup.problem.clone(), setup.why.clone(), setup.fix.clone());
            parts.push(setup);
        }
        take_in_clocks(&mut one, parts);
        findings.push(one);
    }
    findings.extend(setups.into_values());
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

/// Adds clocks and timers to the finding that names them. Their sum comes first, then the most costly.
fn take_in_clocks(one: &mut Finding, mut parts: Vec<Finding>) {
    let cost = |f: &Finding| f.cost.unwrap_or(0.0);
    parts.sort_by(|a, b| cost(b).total_cmp(&cost(a)));
    let own = one.cost.map(|cost| (clock_name(one.rule), cost)).into_iter();
    let mut costs: Vec<(&str, f64)> =
        own.chain(parts.iter().filter_map(|f| Some((clock_name(f.rule), f.cost?)))).collect();
    costs.sort_by(|a, b| b.1.total_cmp(&a.1));
    for part in &parts {
        one.confidence = one.confidence.max(part.confidence);
        join(&mut one.see, part.see.clone());
    }
    take_in(one, parts, |a, b| a + b);
    one.folded.sort_by_key(|rule| rank(*rule));
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
