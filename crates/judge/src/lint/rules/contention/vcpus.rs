//! vCPUs that get too little of their CPUs: by a quota, by other vCPUs, by the limit of real-time
//! tasks.

use crate::figures::figure;
use crate::lint::facts::{
    Confidence, Context, Finding, Fix, GuestContext, Mark, Severity, Target, Verdicts,
    unit_argument, worst_of,
};
use crate::lint::fixes;
use crate::lint::fixes::isolation::Isolation;
use crate::lint::fixes::placement::guest_placement;
use crate::model::CpuShare;
use crate::model::ThreadModel;
use kvm::CpuSet;
use std::collections::BTreeMap;

/// The most distinct sets that are compared.
const MAX_SETS: usize = 512;

/// CPUs that are idle for more of the time are not short, percent.
const MOSTLY_IDLE: f64 = 50.0;

/// A real-time vCPU that uses more is close to the limit of 95 %, percent.
const NEAR_THE_LIMIT: f64 = 94.0;

const FEWER_VCPUS: &str = "If the limit is intended, give the guest fewer vCPUs: it then runs \
    without stops";
const RAISE_CGROUP_LIMIT: &str = "Raise cpu.max of the guest's cgroup, or CPUQuota= of its unit";
const UNIT_QUOTA_NEED: &str = "takes effect at once, until the next boot; removes the limit for \
    all guests in the unit";
const QUOTA_NEED: &str = "takes effect at once; the guest may then use as much CPU as it wants";
const SPREAD_GUESTS: &str = "Move guests to another host, remove unused vCPUs, or spread the \
    guests over more CPUs";
const NO_RT_LIMIT_NEED: &str = "until the next boot; nothing stops a runaway real-time task then";
const NO_REALTIME: &str = "Or remove <vcpusched> from the domain: without its own CPUs it does \
    harm";
const RT_LIMIT: &str = "a real-time vCPU uses over 94 % of its CPU; sched_rt_runtime_us stops such \
    tasks at 95 %";

/// How many vCPUs there are on a set of CPUs, what they want of it, and the part of their wait that
/// guests do not cause, percent of one CPU.
type Load = (usize, CpuShare, f64);

pub(super) fn overcommit(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    let online = ctx.online();
    if online.is_empty() {
        return;
    }
    // vCPUs by the CPUs that they may use, then by those of them that are online.
    let mut by_affinity: BTreeMap<Option<&CpuSet>, Load> = BTreeMap::new();
    for guest in ctx.guests.iter().filter(|g| g.running()) {
        for thread in guest.domain.vcpus() {
            let (vcpus, cpu, for_others) = by_affinity
                .entry(thread.place.affinity.as_deref())
                .or_default();
            (*vcpus, *cpu) = (*vcpus + 1, cpu.plus(thread.cpu.unwrap_or_default()));
            if thread.wait_percent() >= Some(ctx.thresholds().pinning.wait.info) {
                let shares = ctx.waits().shares(guest.index, thread);
                *for_others += shares.map_or(0.0, |shares| shares.sum(|holder| !holder.is_guest()));
            }
        }
    }
    let mut sets: BTreeMap<CpuSet, Load> = BTreeMap::new();
    for (affinity, (vcpus, cpu, for_others)) in by_affinity {
        let load = sets.entry(online_of(affinity, &online)).or_default();
        *load = (load.0 + vcpus, load.1.plus(cpu), load.2 + for_others);
    }
    let Some((severity, ratio, (cpus, vcpus, wait, share))) = worst_set(ctx, &sets) else {
        return;
    };
    let (ratio, share) = (figure(ratio), figure(share));
    let evidence = format!(
        "{ratio} vCPUs per CPU on CPUs {cpus}; they wait {share} % of the time they want a CPU"
    );
    let fix = vec![fixes::advice(SPREAD_GUESTS)];
    verdicts.find(Finding {
        title: format!("{vcpus} vCPUs share {} CPUs, and they wait", cpus.len()),
        // The wait of all guests together: the cause comes before what each guest loses.
        cost: Some(wait),
        also: guests_in(ctx, &online, cpus),
        marks: cpus.iter().map(Mark::Pcpu).collect(),
        ..Finding::new(severity, Confidence::High, vec![evidence], fix)
    });
}

/// The CPUs that are online and that a thread may use.
fn may_use(thread: &ThreadModel, online: &CpuSet) -> CpuSet {
    online_of(thread.place.affinity.as_deref(), online)
}

fn online_of(affinity: Option<&CpuSet>, online: &CpuSet) -> CpuSet {
    affinity.map_or_else(|| online.clone(), |cpus| cpus.intersection(online))
}

/// The guests with a vCPU that cannot leave these CPUs. Where all are idle but a few, these few are
/// the guests to move.
fn guests_in(ctx: &Context<'_>, online: &CpuSet, cpus: &CpuSet) -> Vec<String> {
    let least = ctx.thresholds().pinning.wait.info;
    let wants = |t: &ThreadModel| {
        t.cpu.is_some_and(|c| c.wanted() >= least) && may_use(t, online).is_subset(cpus)
    };
    let guests = ctx
        .guests
        .iter()
        .filter(|g| g.running() && g.domain.vcpus().any(wants));
    guests.map(|g| g.name().to_owned()).collect()
}

/// How idle CPUs are on average, percent; `None` where it is not measured.
fn idle(ctx: &Context<'_>, cpus: &CpuSet) -> Option<f64> {
    let times = ctx
        .model
        .host
        .cpus
        .iter()
        .filter(|c| cpus.contains(c.cpu))
        .filter_map(|c| c.time.as_ref());
    let (sum, count) = times.fold((0.0, 0.0), |(sum, n), t| (sum + 100.0 - t.busy(), n + 1.0));
    (count > 0.0).then(|| sum / count)
}

/// A set of CPUs, its number of vCPUs, and what they wait: percent of one CPU and of the time that
/// they want a CPU.
type Crowd<'a> = (&'a CpuSet, usize, f64, f64);

/// The set that is overcommitted worst, how badly, and by how many vCPUs per CPU: of all vCPUs that
/// cannot leave it.
fn worst_set<'a>(
    ctx: &Context<'_>,
    sets: &'a BTreeMap<CpuSet, Load>,
) -> Option<(Severity, f64, Crowd<'a>)> {
    let t = &ctx.thresholds().pinning;
    let load = |cpus: &'a CpuSet| {
        let inside = sets
            .iter()
            .filter(|(s, _)| s.is_subset(cpus))
            .map(|(_, load)| *load);
        let (vcpus, cpu, for_others) =
            inside.reduce(|a, b| (a.0 + b.0, a.1.plus(b.1), a.2 + b.2))?;
        let ratio = vcpus as f64 / cpus.len() as f64;
        // A wait that guests do not cause says nothing of their number.
        let wait = cpu.wait.filter(|wait| for_others * 2.0 < *wait)? - for_others;
        let share = 100.0 * wait / cpu.wanted();
        let most = if share < t.wait.warning {
            Severity::Warning
        } else {
            Severity::Critical
        };
        let severity = t.overcommit.of(ratio)?.min(most);
        // Idle guests wait for much of the little that they want: the wait has to be a part of the
        // CPUs' time too.
        let waits = share >= t.wait.info && wait >= t.wait.info * cpus.len() as f64;
        // Where the CPUs are idle most of the time, their number is not the reason for the wait.
        let short = waits && idle(ctx, cpus).is_none_or(|idle| idle <= MOSTLY_IDLE);
        short.then_some((severity, ratio, (cpus, vcpus, wait, share)))
    };
    worst_of(
        sets.keys()
            .filter(|s| !s.is_empty())
            .take(MAX_SETS)
            .filter_map(load),
    )
}

pub(super) fn quota(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let Some(seconds) = guest.seconds else { return };
    let t = &ctx.thresholds().pinning;
    let stops = guest
        .domain
        .throttling
        .iter()
        .filter(|g| g.throttled > 0)
        .filter_map(|g| {
            let time = g.throttled_ns as f64 / (seconds * 1e7);
            let periods = if g.periods > 0 {
                100.0 * g.throttled as f64 / g.periods as f64
            } else {
                100.0
            };
            let severity = if time >= t.throttled_time {
                Some(Severity::Critical)
            } else {
                t.throttled.of(periods)
            };
            Some((severity?, time, (periods, g.group.as_str())))
        });
    let Some((severity, time, (periods, group))) = worst_of(stops) else {
        return;
    };
    let vcpu = group
        .strip_prefix("vcpu")
        .and_then(|n| n.parse::<u32>().ok());
    let stopped = format!(
        "the stops cost its CPUs together {} % of one CPU's time",
        figure(time)
    );
    let window = guest.window();
    let evidence = vec![format!(
        "{group}: the quota ran out in {} % of the periods {window}; {stopped}",
        figure(periods)
    )];
    let fix = vec![lift(guest, group), fixes::advice(FEWER_VCPUS)];
    let (target, marks) = (
        vcpu.map_or(Target::Domain, Target::Vcpu),
        vcpu.map(Mark::Vcpu).into_iter().collect(),
    );
    let found = Finding::new(severity, Confidence::High, evidence, fix);
    verdicts.find(Finding {
        target,
        cost: Some(time),
        marks,
        ..found
    });
}

/// Removes a group's quota.
fn lift(guest: &GuestContext<'_>, group: &str) -> Fix {
    let of_libvirt = |part: &str| {
        let set = fixes::virsh(
            guest,
            "schedinfo",
            &format!("--set {part}_quota=-1 {}", fixes::scope(guest)),
        );
        let by_virsh = fixes::command(set).needing(QUOTA_NEED);
        if guest.config.libvirt == Some(false) {
            fixes::advice(RAISE_CGROUP_LIMIT)
        } else {
            by_virsh
        }
    };
    let part = group.trim_end_matches(|c: char| c.is_ascii_digit());
    // The characters of unit names (systemd.unit(5)).
    let of_unit = |c: char| c.is_ascii_alphanumeric() || ":-_.\\@".contains(c);
    let is_unit = [".slice", ".scope", ".service"]
        .iter()
        .any(|end| group.ends_with(end))
        && group.chars().all(of_unit);
    match part {
        "domain" => of_libvirt("global"),
        "emulator" | "vcpu" | "iothread" => of_libvirt(part),
        _ if is_unit => {
            let lift = format!(
                "systemctl set-property --runtime {} CPUQuota=",
                unit_argument(group)
            );
            fixes::command(lift).needing(UNIT_QUOTA_NEED)
        }
        _ => fixes::advice(format!(
            "Raise cpu.max of cgroup {group}, which contains the guest's"
        )),
    }
}

pub(super) fn realtime(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let (host, pins) = (ctx.topology(), &guest.config.pins);
    let realtime: Vec<&ThreadModel> = guest.domain.vcpus().filter(|t| t.is_realtime()).collect();
    // Each with the single CPU to which it is pinned, if any; without threads as they are
    // configured.
    let mut placed: Vec<(u32, Option<u32>)> = Vec::new();
    if guest.domain.vcpus().next().is_some() {
        placed.extend(
            realtime
                .iter()
                .filter_map(|t| Some((t.index?, t.pinned_cpu()))),
        );
    } else if guest.config.shown.pins {
        placed.extend(
            pins.realtime
                .iter()
                .map(|v| (*v, pins.vcpu(*v).and_then(CpuSet::single))),
        );
    }
    let shares = |cpu: u32| host.isolated.is_some() && !host.is_isolated(cpu);
    let sharing: Vec<&(u32, Option<u32>)> = placed
        .iter()
        .filter(|(_, cpu)| cpu.is_none_or(shares))
        .collect();
    let found = if let Some((vcpu, cpu)) = sharing.first() {
        let place = cpu.map_or_else(
            || "no pin to one CPU".into(),
            |cpu| format!("CPU {cpu}, which is not isolated"),
        );
        let alike = sharing.len();
        let evidence =
            format!("vCPU {vcpu} has a real-time policy and {place}; vCPUs like this: {alike}");
        let mut fix = guest_placement(ctx, guest);
        fix.extend(Isolation::new(ctx).options(&["isolcpus", "nohz_full", "rcu_nocbs"]));
        fix.push(fixes::libvirt_advice(NO_REALTIME));
        Finding {
            title: "A real-time vCPU shares its CPU".into(),
            ..Finding::new(Severity::Warning, Confidence::High, vec![evidence], fix)
        }
    } else {
        let limit = ctx
            .param("kernel.sched_rt_runtime_us")
            .and_then(|v| v.parse::<i64>().ok());
        let is_full = realtime
            .iter()
            .any(|t| t.cpu.is_some_and(|c| c.busy() > NEAR_THE_LIMIT));
        if !is_full || limit.is_none_or(|us| us < 0) {
            return;
        }
        let no_limit =
            fixes::command("sysctl kernel.sched_rt_runtime_us=-1").needing(NO_RT_LIMIT_NEED);
        Finding {
            title: "The kernel stops a real-time vCPU that uses its whole CPU".into(),
            problem: "real-time limit stops vCPU".into(),
            ..Finding::new(
                Severity::Warning,
                Confidence::High,
                vec![RT_LIMIT.into()],
                vec![no_limit],
            )
        }
    };
    verdicts.find(Finding {
        marks: sharing.iter().map(|(v, _)| Mark::Vcpu(*v)).collect(),
        ..found
    });
}
