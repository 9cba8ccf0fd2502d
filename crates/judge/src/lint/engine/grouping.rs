//! Groups findings that have one cause into one finding.

use super::finding::{Finding, Fix, Lasting, Mark, Severity};
use crate::lint::rule_id::RuleId;
use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Which of two findings names the group of both.
#[derive(Clone, Copy)]
pub(crate) struct Lead {
    /// The place of a rule in the table.
    pub rank: fn(RuleId) -> usize,
    /// On a running host the costs of each second do not decide: the name would change with them.
    pub is_steady: bool,
}

/// Timers of a Windows guest without enlightenments: one problem with one fix.
const WINDOWS_TIMERS: &[RuleId] = &[
    RuleId::AcpiPmTimer,
    RuleId::RtcTick,
    RuleId::HpetClock,
    RuleId::PitTimer,
    RuleId::HpetIdleCost,
    RuleId::IdleWakeups,
];
/// Rules whose cause explains why vCPUs wait.
const WAIT_CAUSES: &[RuleId] =
    &[RuleId::QuotaThrottled, RuleId::IsolatedPileUp, RuleId::PinOverlap, RuleId::PinnedNotIsolated];

/// Groups findings that have one cause.
pub(crate) fn group(mut findings: Vec<Finding>, lead: Lead) -> Vec<Finding> {
    windows_timers(&mut findings, lead);
    same_fix(&mut findings, lead);
    absorb(&mut findings, RuleId::ApicvInhibited, &[RuleId::Stage2Faults]);
    absorb(&mut findings, RuleId::VirtioKicks, &[RuleId::DeviceProperties]);
    absorb(&mut findings, RuleId::VirtioIntx, &[RuleId::DeviceProperties]);
    waits(&mut findings);
    findings
}

/// Timer findings of a Windows guest join the finding about its missing enlightenments.
fn windows_timers(findings: &mut Vec<Finding>, lead: Lead) {
    let is_setup = |f: &Finding| f.rule == RuleId::WindowsEnlightenments;
    let (setups, others): (Vec<Finding>, Vec<Finding>) = std::mem::take(findings).into_iter().partition(is_setup);
    let mut groups: HashMap<Option<String>, Vec<Finding>> =
        setups.iter().map(|setup| (setup.domain.clone(), Vec::new())).collect();
    for f in others {
        let fits = f.folded.is_empty() && WINDOWS_TIMERS.contains(&f.rule);
        match groups.get_mut(&f.domain).filter(|_| fits) {
            Some(timers) => timers.push(f),
            None => findings.push(f),
        }
    }
    for setup in setups {
        let timers = groups.remove(&setup.domain).unwrap_or_default();
        findings.push(if timers.is_empty() { setup } else { windows_group(setup, timers, lead) });
    }
}

/// One finding of a Windows guest's missing enlightenments and its timers.
fn windows_group(setup: Finding, mut timers: Vec<Finding>, names: Lead) -> Finding {
    timers.sort_by(|a, b| names.cmp(a, b));
    // The most costly one names the group. A clock that was measured comes before wake-ups and before what the
    // configuration only suggests.
    let lead = timers.iter().position(|f| f.cost.is_some()).unwrap_or(0);
    let named = if setup.cost > timers[lead].cost && !names.is_steady { setup.rule } else { timers[lead].rule };
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
        lasting: all.iter().filter_map(|f| f.lasting.clone()).reduce(joined),
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
    one.folded.sort_by_key(|r| (names.rank)(*r));
    one
}

impl Lead {
    /// The most costly finding first, then by the place of its rule in the table; on a running host the most severe
    /// one of those whose cost is known.
    fn cmp(self, a: &Finding, b: &Finding) -> Ordering {
        let by_cost = || b.cost.unwrap_or(0.0).total_cmp(&a.cost.unwrap_or(0.0));
        let by_severity = || (b.cost.is_some(), b.severity).cmp(&(a.cost.is_some(), a.severity));
        let first = if self.is_steady { by_severity() } else { by_cost() };
        first.then_with(|| (self.rank)(a.rule).cmp(&(self.rank)(b.rule)))
    }
}

/// How steadily two findings of one cause hold: as the one that shows more.
fn joined(a: Lasting, b: Lasting) -> Lasting {
    let is_longer = a.is_longer || b.is_longer;
    let most = if (b.of_s, b.shown_s) > (a.of_s, a.shown_s) { b } else { a };
    Lasting { is_longer, ..most }
}

/// Timer findings of one guest that share their first fix, where the configuration is not known to lack it.
fn same_fix(findings: &mut Vec<Finding>, names: Lead) {
    let mut kept: Vec<Finding> = Vec::with_capacity(findings.len());
    let mut leads: HashMap<(Option<String>, Option<Fix>), usize> = HashMap::new();
    let mut timers = std::mem::take(findings);
    timers.sort_by(|a, b| names.cmp(a, b));
    for f in timers {
        if !WINDOWS_TIMERS.contains(&f.rule) {
            kept.push(f);
            continue;
        }
        let lead = *leads.entry((f.domain.clone(), f.fix.first().cloned())).or_insert(kept.len());
        match kept.get_mut(lead) {
            Some(k) => {
                k.cost = k.cost.zip(f.cost).map(|(a, b)| a + b).or(k.cost).or(f.cost);
                let sum = k.cost;
                take_in(k, vec![f]);
                k.cost = sum;
            }
            None => kept.push(f),
        }
    }
    *findings = kept;
}

/// A guest's finding of the rule `into` takes in the guest's findings of other rules.
fn absorb(findings: &mut Vec<Finding>, into: RuleId, rules: &[RuleId]) {
    let (ones, others): (Vec<Finding>, Vec<Finding>) =
        std::mem::take(findings).into_iter().partition(|f| f.rule == into);
    let mut parts: HashMap<Option<String>, Vec<Finding>> =
        ones.iter().map(|one| (one.domain.clone(), Vec::new())).collect();
    for f in others {
        match parts.get_mut(&f.domain).filter(|_| rules.contains(&f.rule)) {
            Some(parts) => parts.push(f),
            None => findings.push(f),
        }
    }
    for mut one in ones {
        let parts = parts.remove(&one.domain).unwrap_or_default();
        take_in(&mut one, parts);
        findings.push(one);
    }
}

/// Adds findings that have the same cause to the one that names it.
fn take_in(one: &mut Finding, parts: Vec<Finding>) {
    let own = one.evidence.len();
    let mut lines: HashSet<String> = HashSet::new();
    let mut marks: HashSet<Mark> = one.marks.iter().cloned().collect();
    for part in parts {
        one.severity = one.severity.max(part.severity);
        one.since_ms = one.since_ms.into_iter().chain(part.since_ms).min();
        one.lasting = one.lasting.take().into_iter().chain(part.lasting).reduce(joined);
        one.cost = one.cost.into_iter().chain(part.cost).reduce(f64::max);
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

/// Wait whose cause was found joins the finding of the cause.
fn waits(findings: &mut Vec<Finding>) {
    let mut kept = Vec::new();
    let (waits, mut others): (Vec<Finding>, Vec<Finding>) =
        std::mem::take(findings).into_iter().partition(|f| f.rule == RuleId::VcpuWait);
    let causes = WaitCauses::of(&others);
    let mut explained: BTreeMap<usize, Vec<Finding>> = BTreeMap::new();
    for wait in waits {
        match causes.explain(&wait) {
            Some(at) => explained.entry(at).or_default().push(wait),
            None => kept.push(wait),
        }
    }
    for (at, mut waits) in explained {
        let cause = &mut others[at];
        let mut names: HashSet<String> = cause.also.iter().cloned().collect();
        for wait in waits.iter_mut().filter(|wait| wait.domain != cause.domain) {
            let Some(name) = &wait.domain else { continue };
            if let Some(figure) = wait.evidence.first_mut() {
                *figure = format!("{name}: {figure}");
            }
            cause.also.extend(Some(name.clone()).filter(|name| names.insert(name.clone())));
        }
        take_in(cause, waits);
    }
    others.extend(kept);
    *findings = others;
}

/// Where the findings are that can explain why vCPUs wait: the first of each guest, and the first of each CPU.
#[derive(Default)]
struct WaitCauses {
    by_guest: HashMap<Option<String>, usize>,
    by_cpu: HashMap<u32, usize>,
}

impl WaitCauses {
    fn of(findings: &[Finding]) -> Self {
        let mut causes = Self::default();
        let explains = |f: &Finding| WAIT_CAUSES.contains(&f.rule) && f.severity >= Severity::Warning;
        for (at, f) in findings.iter().enumerate().filter(|(_, f)| explains(f)) {
            if f.rule == RuleId::QuotaThrottled || f.rule == RuleId::IsolatedPileUp {
                causes.by_guest.entry(f.domain.clone()).or_insert(at);
            }
            for cpu in f.marks.iter().filter_map(pcpu) {
                causes.by_cpu.entry(cpu).or_insert(at);
            }
        }
        causes
    }

    /// The first finding that explains a wait: it is about the same guest, or about a CPU that the guest shares.
    fn explain(&self, wait: &Finding) -> Option<usize> {
        let shared = wait.marks.iter().filter_map(pcpu).filter_map(|cpu| self.by_cpu.get(&cpu));
        self.by_guest.get(&wait.domain).into_iter().chain(shared).min().copied()
    }
}

fn pcpu(mark: &Mark) -> Option<u32> {
    if let Mark::Pcpu(cpu) = mark { Some(*cpu) } else { None }
}

fn join<T: PartialEq>(into: &mut Vec<T>, from: Vec<T>) {
    for x in from {
        if !into.contains(&x) {
            into.push(x);
        }
    }
}
