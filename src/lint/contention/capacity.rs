//! How much CPU there is for the guests: quotas, and more vCPUs than CPUs.

use crate::kvm::CpuSet;
use crate::lint::context::guest::{Context, GuestContext};
use crate::lint::engine::text::{figure, quoted};
use crate::lint::engine::verdicts::Verdicts;
use crate::lint::{Confidence, Finding, Fix, Mark, Severity, Target, fix, propose};
use std::collections::BTreeMap;

const CPUTUNE_DOC: &str = "https://libvirt.org/formatdomain.html#cpu-tuning";
const BANDWIDTH_DOC: &str = "https://docs.kernel.org/scheduler/sched-bwc.html";

/// P-09: a CFS quota that runs out.
pub(crate) fn quota(world: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let Some(seconds) = guest.seconds else { return };
    let t = &world.options.thresholds.pinning;
    let mut worst: Option<(Severity, f64, f64, String)> = None;
    for g in guest.domain.throttling.iter().filter(|g| g.throttled > 0) {
        let time = g.throttled_ns as f64 / (seconds * 1e7);
        let periods = if g.periods > 0 { 100.0 * g.throttled as f64 / g.periods as f64 } else { 100.0 };
        let mut severity = t.throttled.of(periods);
        if time >= t.throttled_time {
            severity = Some(Severity::Critical);
        }
        if let Some(s) = severity
            && worst.as_ref().is_none_or(|w| (s, time) > (w.0, w.2))
        {
            worst = Some((s, periods, time, g.group.clone()));
        }
    }
    let Some((severity, periods, time, group)) = worst else { return };
    let vcpu = group.strip_prefix("vcpu").and_then(|n| n.parse::<u32>().ok());
    let mut fixes = lift(guest, &group);
    fixes.push(fix::advice(
        "If the limit is meant, give the guest fewer vCPUs: the same amount of CPU then comes without stops in between",
    ));
    // The kernel adds up what each CPU of the group was stopped for.
    let stopped = if time <= 100.0 {
        format!("for {} % of the time", figure(time))
    } else {
        format!("which cost its CPUs together {} % of one CPU's time", figure(time))
    };
    verdicts.find(Finding {
        severity,
        confidence: Confidence::High,
        target: vcpu.map_or(Target::Domain, Target::Vcpu),
        title: "A CPU quota stops the guest".into(),
        evidence: vec![
            format!("{group}: the quota ran out in {} % of its periods {}, {stopped}", figure(periods), guest.window()),
            format!("check: {} and cpu.stat (nr_throttled) in the guest's cgroup", fix::virsh(guest, "schedinfo", "")),
        ],
        why: "The quota gives the vCPUs so much CPU time a period (100 ms by default). Once it is used up they stand still until the period ends, however \
              idle the host is, and the guest sees its vCPUs stop for tens of milliseconds"
            .into(),
        fix: fixes,
        see: vec![BANDWIDTH_DOC.into(), CPUTUNE_DOC.into()],
        cost: Some(time),
        marks: vcpu.map(Mark::Vcpu).into_iter().collect(),
        ..Finding::default()
    });
}

/// What takes a group's quota away.
fn lift(guest: &GuestContext<'_>, group: &str) -> Vec<Fix> {
    let digits = |name: &str| group.strip_prefix(name).is_some_and(|n| n.parse::<u32>().is_ok());
    let which = match group {
        "domain" => "global_quota",
        "emulator" => "emulator_quota",
        _ if digits("vcpu") => "vcpu_quota",
        _ if digits("iothread") => "iothread_quota",
        unit if [".slice", ".scope", ".service"].iter().any(|end| unit.ends_with(end)) => {
            let command = format!("systemctl set-property --runtime {} CPUQuota=", quoted(unit));
            return vec![
                fix::command(command)
                    .needing("effective at once, until the next boot; lifts the limit of all guests in it"),
            ];
        }
        other => {
            return vec![fix::advice(format!(
                "The limit is that of cgroup {other}, which the guest's is in: raise its cpu.max (cpu.cfs_quota_us in version 1)"
            ))];
        }
    };
    if guest.config.libvirt == Some(false) {
        return vec![fix::advice(
            "Raise cpu.max (cpu.cfs_quota_us in version 1) of the guest's cgroup, or the CPUQuota= of its unit",
        )];
    }
    vec![
        fix::command(fix::virsh(guest, "schedinfo", &format!("--set {which}=-1 --live --config")))
            .needing("effective at once; the guest may then use as much CPU as it wants"),
    ]
}

/// P-10: more vCPUs than CPUs, and they wait.
pub(crate) fn overcommit(world: &Context<'_>, verdicts: &mut Verdicts) {
    let t = &world.options.thresholds.pinning;
    let host = propose::topology(world.model);
    let online: CpuSet = world.model.host.cpus.iter().map(|c| c.cpu).collect();
    let online = if online.is_empty() { host.all() } else { online };
    if online.is_empty() {
        return;
    }
    // vCPUs by the CPUs they may use; a set is overcommitted by all vCPUs that cannot leave it.
    let mut sets: BTreeMap<CpuSet, (usize, f64, f64)> = BTreeMap::new();
    for guest in world.guests.iter().filter(|g| g.running()) {
        for thread in guest.vcpu_threads() {
            let mask = thread.place.affinity.as_ref().map_or_else(|| online.clone(), |a| a.intersection(&online));
            let cpu = thread.cpu.unwrap_or_default();
            let entry = sets.entry(mask).or_default();
            entry.0 += 1;
            entry.1 += cpu.wait.unwrap_or(0.0);
            entry.2 += cpu.busy();
        }
    }
    let mut worst: Option<(Severity, f64, usize, CpuSet, f64, f64)> = None;
    for set in sets.keys().filter(|s| !s.is_empty()) {
        let inside = sets.iter().filter(|(s, _)| s.is_subset(set)).map(|(_, v)| v);
        let (n, wait, busy) = inside.fold((0, 0.0, 0.0), |a, b| (a.0 + b.0, a.1 + b.1, a.2 + b.2));
        let ratio = n as f64 / set.len() as f64;
        let share = if wait + busy > 0.0 { 100.0 * wait / (wait + busy) } else { 0.0 };
        let Some(mut severity) = t.overcommit.of(ratio) else { continue };
        // Idle guests wait for much of the little they want: what counts is a CPU's time.
        if share < t.wait.info || wait < t.wait.info * set.len() as f64 {
            continue;
        }
        if severity == Severity::Critical && share < t.wait.warning {
            severity = Severity::Warning;
        }
        if worst.as_ref().is_none_or(|w| (severity, ratio) > (w.0, w.1)) {
            worst = Some((severity, ratio, n, set.clone(), share, wait));
        }
    }
    let Some((severity, ratio, n, set, share, wait)) = worst else { return };
    verdicts.find(Finding {
        severity,
        confidence: Confidence::High,
        target: Target::Host,
        title: format!("{n} vCPUs share {} CPUs, and they wait", set.len()),
        // Of all the guests together: it comes before what each of them loses.
        cost: Some(wait),
        evidence: vec![
            format!("{} vCPUs a CPU on CPUs {set}; they wait {} % of the time they want a CPU", figure(ratio), figure(share)),
            "check: virsh vcpuinfo of each guest".into(),
        ],
        why: "vCPUs that are idle may share CPUs in any number; as soon as they are busy they queue up. Red Hat's guide takes 5 vCPUs a CPU, none of them \
              fully busy, for a safe limit, and advises against more than 10"
            .into(),
        fix: vec![fix::advice("Move guests to another host, take vCPUs away from those that do not use them (virsh setvcpus), or spread the guests over more CPUs")],
        see: vec![CPUTUNE_DOC.into()],
        marks: set.iter().take(64).map(Mark::Pcpu).collect(),
        ..Finding::default()
    });
}
