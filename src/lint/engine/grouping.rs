//! Groups findings that have one cause into one finding.

use super::finding::{Finding, Mark, Severity};

/// The place of a rule in the table.
type Rank = fn(&str) -> usize;

/// Timers of a Windows guest without enlightenments: one problem with one fix.
const WINDOWS_TIMERS: &[&str] =
    &["acpi-pm-timer", "rtc-tick", "hpet-clock", "pit-timer", "hpet-idle-cost", "idle-wakeups"];
/// Rules whose cause explains why vCPUs wait.
const WAIT_CAUSES: &[&str] = &["quota-throttled", "isolated-pile-up", "pin-overlap", "pinned-not-isolated"];

/// Groups findings that have one cause.
pub(crate) fn group(mut findings: Vec<Finding>, rank: Rank) -> Vec<Finding> {
    windows_timers(&mut findings, rank);
    same_fix(&mut findings, rank);
    absorb(&mut findings, "apicv-inhibited", &["stage2-faults"]);
    waits(&mut findings);
    findings
}

/// Timer findings of a Windows guest join the finding about its missing enlightenments.
fn windows_timers(findings: &mut Vec<Finding>, rank: Rank) {
    let is_setup = |f: &Finding| f.rule == "windows-enlightenments";
    let (setups, mut others): (Vec<Finding>, Vec<Finding>) = std::mem::take(findings).into_iter().partition(is_setup);
    for setup in setups {
        let fits = |f: &Finding| f.domain == setup.domain && f.folded.is_empty() && WINDOWS_TIMERS.contains(&f.rule);
        let (timers, rest): (Vec<Finding>, Vec<Finding>) = others.into_iter().partition(fits);
        others = rest;
        others.push(if timers.is_empty() { setup } else { windows_group(setup, timers, rank) });
    }
    *findings = others;
}

/// One finding of a Windows guest's missing enlightenments and its timers.
fn windows_group(setup: Finding, mut timers: Vec<Finding>, rank: Rank) -> Finding {
    timers.sort_by(|a, b| by_cost(a, b, rank));
    // The most costly one names the group. A clock that was measured comes before wake-ups and before what the
    // configuration only suggests.
    let lead = timers.iter().position(|f| f.cost.is_some()).unwrap_or(0);
    let named = if setup.cost > timers[lead].cost { setup.rule } else { timers[lead].rule };
    let mut all = vec![setup];
    all.extend(timers);
    let costs: Vec<f64> = all.iter().filter_map(|f| f.cost).collect();
    let mut one = Finding {
        rule: named,
        severity: all.iter().map(|f| f.severity).max().unwrap_or_default().max(Severity::Warning),
        confidence: all.iter().map(|f| f.confidence).max().unwrap_or_default(),
        domain: all[0].domain.clone(),
        target: all[0].target,
        title: "QEMU emulates the timers of this Windows guest".into(),
        why: all[0].why.clone(),
        fix: all[0].fix.clone(),
        since_ms: all.iter().filter_map(|f| f.since_ms).min(),
        cost: (!costs.is_empty()).then(|| costs.iter().sum()),
        ..Finding::default()
    };
    // The configuration's evidence comes last: the figures say more.
    all.rotate_left(1);
    for f in all {
        if f.rule != named {
            one.folded.push(f.rule);
        }
        join(&mut one.evidence, f.evidence);
        join(&mut one.see, f.see);
        join(&mut one.marks, f.marks);
    }
    one.folded.sort_by_key(|r| rank(r));
    one
}

/// The most costly finding first, then by the place of its rule in the table.
fn by_cost(a: &Finding, b: &Finding, rank: Rank) -> std::cmp::Ordering {
    b.cost.unwrap_or(0.0).total_cmp(&a.cost.unwrap_or(0.0)).then_with(|| rank(a.rule).cmp(&rank(b.rule)))
}

/// Timer findings of one guest that share their first fix, where the configuration is not known to lack it.
fn same_fix(findings: &mut Vec<Finding>, rank: Rank) {
    let mut kept: Vec<Finding> = Vec::with_capacity(findings.len());
    let mut timers = std::mem::take(findings);
    timers.sort_by(|a, b| by_cost(a, b, rank));
    for f in timers {
        let lead = kept.iter_mut().find(|k| {
            WINDOWS_TIMERS.contains(&k.rule)
                && WINDOWS_TIMERS.contains(&f.rule)
                && k.domain == f.domain
                && k.fix.first() == f.fix.first()
        });
        match lead {
            Some(k) => {
                k.cost = k.cost.zip(f.cost).map(|(a, b)| a + b).or(k.cost).or(f.cost);
                let sum = k.cost;
                take_in(k, f);
                k.cost = sum;
            }
            None => kept.push(f),
        }
    }
    *findings = kept;
}

/// A guest's finding of the rule `into` takes in the guest's findings of other rules.
fn absorb(findings: &mut Vec<Finding>, into: &'static str, rules: &[&'static str]) {
    let Some(at) = findings.iter().position(|f| f.rule == into) else { return };
    let mut one = findings.remove(at);
    let (parts, rest): (Vec<Finding>, Vec<Finding>) =
        std::mem::take(findings).into_iter().partition(|f| f.domain == one.domain && rules.contains(&f.rule));
    *findings = rest;
    for part in parts {
        take_in(&mut one, part);
    }
    absorb(findings, into, rules);
    findings.push(one);
}

fn take_in(one: &mut Finding, part: Finding) {
    one.severity = one.severity.max(part.severity);
    one.since_ms = one.since_ms.into_iter().chain(part.since_ms).min();
    one.cost = one.cost.into_iter().chain(part.cost).reduce(f64::max);
    join(&mut one.folded, vec![part.rule]);
    // Evidence that is already there, perhaps with more detail, is not repeated.
    let new: Vec<String> =
        part.evidence.into_iter().filter(|e| !one.evidence.iter().any(|o| o.starts_with(e))).collect();
    join(&mut one.evidence, new);
    join(&mut one.marks, part.marks);
}

/// Wait whose cause was found joins the finding of the cause.
fn waits(findings: &mut Vec<Finding>) {
    let mut kept = Vec::with_capacity(findings.len());
    let (waits, mut others): (Vec<Finding>, Vec<Finding>) =
        std::mem::take(findings).into_iter().partition(|f| f.rule == "vcpu-wait");
    for mut wait in waits {
        let shares_cpu = |f: &Finding| f.marks.iter().any(|m| matches!(m, Mark::Pcpu(_)) && wait.marks.contains(m));
        let explains = |f: &Finding| {
            WAIT_CAUSES.contains(&f.rule)
                && f.severity >= Severity::Warning
                && (f.domain == wait.domain && (f.rule == "quota-throttled" || f.rule == "isolated-pile-up")
                    || shares_cpu(f))
        };
        let cause = others.iter().position(explains);
        if let Some(at) = cause
            && others[at].domain != wait.domain
            && let Some(name) = &wait.domain
        {
            if let Some(figure) = wait.evidence.first_mut() {
                *figure = format!("{name}: {figure}");
            }
            join(&mut others[at].also, vec![name.clone()]);
        }
        match cause {
            Some(at) => take_in(&mut others[at], wait),
            None => kept.push(wait),
        }
    }
    others.extend(kept);
    *findings = others;
}

fn join<T: PartialEq>(into: &mut Vec<T>, from: Vec<T>) {
    for x in from {
        if !into.contains(&x) {
            into.push(x);
        }
    }
}
