//! Groups findings that have one cause into one finding.

use super::table::rank;
use crate::lint::facts::{Finding, Fix, Mark, RuleId, Severity, join, order};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Timers of a Windows guest without enlightenments: one problem with one fix.
const WINDOWS_TIMERS: [RuleId; 7] = [
    RuleId::WindowsEnlightenments,
    RuleId::AcpiPmTimer,
    RuleId::RtcTick,
    RuleId::HpetClock,
    RuleId::PitTimer,
    RuleId::HpetIdleCost,
    RuleId::IdleWakeups,
];
/// Rules whose findings are part of another one about the same guest, which comes first here. A
/// wait is part of the first of its causes.
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

/// Groups findings that have one cause. With `is_steady`, as on a running host, the costs of each
/// second do not decide which finding names the group: the name would change with them.
pub(crate) fn group(mut findings: Vec<Finding>, is_steady: bool) -> Vec<Finding> {
    clocks(&mut findings, is_steady);
    PARTS
        .iter()
        .for_each(|(whole, part)| join_parts(&mut findings, *whole, *part));
    findings
}

/// Joins the findings of two rules that concern the same guest.
fn join_parts(findings: &mut Vec<Finding>, whole: RuleId, part: RuleId) {
    let parts: Vec<Finding> = findings
        .extract_if(.., |f| f.rule == part && f.domain.is_some())
        .collect();
    let mut wholes: HashMap<String, usize> = HashMap::new();
    for (at, f) in findings.iter().enumerate() {
        let takes_part = part != RuleId::VcpuWait || f.severity >= Severity::Warning;
        if f.rule != whole || !takes_part {
            continue;
        }
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
    joined
        .into_iter()
        .for_each(|(at, parts)| take_in(&mut findings[at], parts, f64::max));
}

/// Makes one finding of the clocks and timers of a guest: of all of them where its enlightenments
/// are known to be missing, else of those that share their first fix. The most costly one names it;
/// on a running host the most severe.
fn clocks(findings: &mut Vec<Finding>, is_steady: bool) {
    let mut timers: Vec<Finding> = findings
        .extract_if(.., |f| WINDOWS_TIMERS.contains(&f.rule))
        .collect();
    if is_steady {
        timers.sort_by_key(|f| (Reverse(f.severity), rank(f.rule)));
    } else {
        timers.sort_by(order);
    }
    // The finding about the setup comes last: others name the group.
    timers.sort_by_key(|f| f.rule == RuleId::WindowsEnlightenments);
    let setups = timers
        .iter()
        .filter(|f| f.rule == RuleId::WindowsEnlightenments);
    let setups: HashSet<Option<String>> = setups.map(|f| f.domain.clone()).collect();
    let mut groups: HashMap<(Option<String>, Option<Fix>), Vec<Finding>> = HashMap::new();
    for f in timers {
        let fix = if setups.contains(&f.domain) {
            None
        } else {
            f.fix.first().cloned()
        };
        groups.entry((f.domain.clone(), fix)).or_default().push(f);
    }
    for mut parts in groups.into_values() {
        let mut one = parts.remove(0);
        for part in &parts {
            one.confidence = one.confidence.max(part.confidence);
            if part.rule == RuleId::WindowsEnlightenments {
                one.severity = one.severity.max(Severity::Warning);
                one.title = "QEMU emulates the timers of this Windows guest".into();
                (one.target, one.comes_first) = (part.target, part.comes_first);
                one.problem.clone_from(&part.problem);
                one.why.clone_from(&part.why);
                one.fix.clone_from(&part.fix);
            }
        }
        take_in(&mut one, parts, |a, b| a + b);
        findings.push(one);
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
        // As the one that shows for longer.
        one.lasting = one
            .lasting
            .take()
            .into_iter()
            .chain(part.lasting)
            .max_by(|a, b| a.of_s.total_cmp(&b.of_s));
        one.cost = one.cost.into_iter().chain(part.cost).reduce(cost);
        join(&mut one.folded, vec![part.rule]);
        for line in part.evidence {
            // Evidence that is already there, perhaps with more detail, is not repeated.
            if !one.evidence.iter().take(own).any(|o| o.starts_with(&line))
                && lines.insert(line.clone())
            {
                one.evidence.push(line);
            }
        }
        let new = part.marks.into_iter();
        one.marks
            .extend(new.filter(|mark| marks.insert(mark.clone())));
    }
}
