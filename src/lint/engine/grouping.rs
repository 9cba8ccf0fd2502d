//! Findings of one cause become one.

use crate::lint::{Finding, Mark, Severity, rank};

/// Timers of a Windows guest that lacks the enlightenments: one problem with one cure.
const WINDOWS_TIMERS: &[&str] =
    &["acpi-pm-timer", "rtc-tick", "hpet-clock", "pit-timer", "hpet-idle-cost", "idle-wakeups"];
/// Rules whose cause explains that vCPUs wait.
const WAIT_CAUSES: &[&str] = &["quota-throttled", "isolated-pile-up", "pin-overlap", "pinned-not-isolated"];

/// Folds what belongs together.
pub(crate) fn fold(mut findings: Vec<Finding>) -> Vec<Finding> {
    windows_timers(&mut findings);
    same_cure(&mut findings);
    absorb(&mut findings, "apicv-inhibited", &["stage2-faults"]);
    waits(&mut findings);
    findings
}

fn windows_timers(findings: &mut Vec<Finding>) {
    while let Some(at) = findings.iter().position(|f| f.rule == "windows-enlightenments" && f.folded.is_empty()) {
        let domain = findings[at].domain.clone();
        let fits = |f: &Finding| f.domain == domain && WINDOWS_TIMERS.contains(&f.rule);
        if !findings.iter().any(fits) {
            return;
        }
        let setup = findings.remove(at);
        let (mut parts, rest): (Vec<Finding>, Vec<Finding>) = std::mem::take(findings).into_iter().partition(fits);
        *findings = rest;
        parts.sort_by(|a, b| {
            b.cost.unwrap_or(0.0).total_cmp(&a.cost.unwrap_or(0.0)).then(rank(a.rule).cmp(&rank(b.rule)))
        });
        // The dearest speaks for all; a clock that was seen goes before wake-ups and before what the configuration only suggests.
        let lead = parts.iter().position(|f| f.cost.is_some()).unwrap_or(0);
        let named = if setup.cost > parts[lead].cost { "windows-enlightenments" } else { parts[lead].rule };
        let mut all = vec![setup];
        all.extend(parts);
        let mut one = Finding {
            rule: named,
            severity: all.iter().map(|f| f.severity).max().unwrap_or_default().max(Severity::Warning),
            confidence: all.iter().map(|f| f.confidence).max().unwrap_or_default(),
            domain,
            target: all[0].target,
            title: "Windows timers are emulated in QEMU".into(),
            why: all[0].why.clone(),
            fix: all[0].fix.clone(),
            since_ms: all.iter().filter_map(|f| f.since_ms).min(),
            ..Finding::default()
        };
        let costs: Vec<f64> = all.iter().filter_map(|f| f.cost).collect();
        one.cost = (!costs.is_empty()).then(|| costs.iter().sum());
        // The configuration's words come last: the figures tell more.
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
        findings.push(one);
    }
}

/// Timers of one guest that the same fix cures, where the configuration is not known to lack it.
fn same_cure(findings: &mut Vec<Finding>) {
    let mut kept: Vec<Finding> = Vec::with_capacity(findings.len());
    let mut timers = std::mem::take(findings);
    timers
        .sort_by(|a, b| b.cost.unwrap_or(0.0).total_cmp(&a.cost.unwrap_or(0.0)).then(rank(a.rule).cmp(&rank(b.rule))));
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

/// `into` of a guest takes in the findings of other rules about the same guest.
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
    // What was said already, perhaps with more words, is not said again.
    let said: Vec<String> =
        part.evidence.into_iter().filter(|e| !one.evidence.iter().any(|o| o.starts_with(e))).collect();
    join(&mut one.evidence, said);
    join(&mut one.marks, part.marks);
}

/// Wait whose cause was found is told with the cause.
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
