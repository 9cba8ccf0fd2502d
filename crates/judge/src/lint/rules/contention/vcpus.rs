//! vCPUs that get too little of their CPUs: by a quota, by other vCPUs, by the limit of real-time tasks.

use crate::figures::figure;
use crate::lint::facts::Context;
use crate::lint::facts::finding::{Confidence, Finding, Fix, Mark, Severity, Target, known, worst_of};
use crate::lint::facts::guest::GuestContext;
use crate::lint::facts::prose::Prose;
use crate::lint::facts::shell::unit_argument;
use crate::lint::facts::verdicts::Verdicts;
use crate::lint::fixes;
use crate::lint::fixes::isolation::Isolation;
use crate::lint::fixes::placement::{guest_placement, placement};
use crate::model::CpuShare;
use crate::model::ThreadModel;
use crate::placement::{MoveReason, faults};
use kvm::CpuSet;
use std::collections::BTreeMap;

/// The most distinct sets that are compared.
const MAX_SETS: usize = 512;

/// CPUs that are idle for more of the time are not short, percent.
const MOSTLY_IDLE: f64 = 50.0;

/// A real-time vCPU that uses more is close to the limit of 95 %, percent.
const NEAR_THE_LIMIT: f64 = 94.0;

const FEWER_VCPUS: &str = "If the limit is intended, give the guest fewer vCPUs: it then runs without stops";
const RAISE_CGROUP_LIMIT: &str = "Raise cpu.max of the guest's cgroup, or CPUQuota= of its unit";
const UNIT_QUOTA_NEED: &str = "takes effect at once, until the next boot; removes the limit for all guests in the unit";
const QUOTA_NEED: &str = "takes effect at once; the guest may then use as much CPU as it wants";
const SPREAD_GUESTS: &str = "Move guests to another host, remove unused vCPUs, or spread the guests over more CPUs";
const NO_RT_LIMIT_NEED: &str = "until the next boot; nothing stops a runaway real-time task then";
const NO_REALTIME: &str = "Or remove <vcpusched> from the domain: without its own CPUs it does harm";
const REALTIME_HELPER: Prose = Prose {
    title: "A real-time thread of QEMU may run on the CPUs of the guest's vCPUs",
    problem: "real-time QEMU thread",
    why: "While a thread with real-time priority runs, nothing of normal priority gets its CPU: no vCPU, no task of \
        the host. The vCPU that needs its answer may be the one that it stops",
};
const APART_OR_NORMAL: &str = "Pin it to CPUs that no vCPU uses (<iothreadpin>, <emulatorpin>), or take \
    <iothreadsched> or <emulatorsched> away";
const ISOLATE_OR_NOT: &str = "/sys/devices/system/cpu/isolated of the host has to list these CPUs. If it does not, add \
    isolcpus= to its kernel command line, or take <vcpusched> (fifo, rr) away: what else must run there starves";
const RT_LIMIT: &str = "a real-time vCPU uses over 94 % of its CPU; sched_rt_runtime_us stops such tasks at 95 %";

/// How many vCPUs there are on a set of CPUs, what they want of it, and the part of their wait that guests do not
/// cause, percent of one CPU.
type Load = (usize, CpuShare, f64);

pub(super) fn overcommit(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    let online = ctx.online();
    if online.is_empty() {
        return;
    }
    crowded_sets(ctx, verdicts);
    // vCPUs by the CPUs that they may use, then by those of them that are online.
    let mut by_affinity: BTreeMap<Option<&CpuSet>, Load> = BTreeMap::new();
    for guest in ctx.guests.iter().filter(|g| g.running()) {
        for thread in guest.domain.vcpus() {
            let (vcpus, cpu, for_others) = by_affinity.entry(thread.place.affinity.as_deref()).or_default();
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
    let Some((severity, ratio, (cpus, vcpus, wait, share))) = worst_set(ctx, &sets) else { return };
    let (ratio, share) = (figure(ratio), figure(share));
    let evidence = format!("{ratio} vCPUs per CPU on CPUs {cpus}; they wait {share} % of the time they want a CPU");
    let finding = crowded(cpus, severity, Confidence::High, evidence, vec![fixes::advice(SPREAD_GUESTS)]);
    verdicts.find(Finding {
        title: format!("{vcpus} vCPUs share {} CPUs, and they wait", cpus.len()),
        // The wait of all guests together: the cause comes before what each guest loses.
        cost: Some(wait),
        also: guests_in(ctx, &online, cpus),
        ..finding
    });
}

/// A finding about a set of CPUs.
fn crowded(cpus: &CpuSet, severity: Severity, confidence: Confidence, evidence: String, fix: Vec<Fix>) -> Finding {
    let marks = cpus.iter().map(Mark::Pcpu).collect();
    Finding { marks, ..Finding::new(severity, confidence, vec![evidence], fix) }
}

/// Pinned sets with more vCPUs than CPUs while other CPUs are free, where nothing says how long the vCPUs wait.
fn crowded_sets(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    let plan = ctx.plan();
    let moves = |g: &usize| plan.guests.get(*g).is_some_and(|p| p.reasons.contains_key(&MoveReason::Crowded));
    for set in faults::crowded(ctx.map(), &ctx.layouts) {
        // Without a better place this is as good as it gets: idle vCPUs may share CPUs in any number.
        let guests: Vec<usize> = set.guests.iter().copied().filter(moves).collect();
        if guests.is_empty() {
            continue;
        }
        let (vcpus, cpus) = (set.vcpus, &set.cpus);
        let ratio = vcpus as f64 / cpus.len().max(1) as f64;
        let severity = ctx.thresholds().pinning.overcommit.of(ratio).unwrap_or_default().min(Severity::Warning);
        let evidence = format!(
            "{vcpus} vCPUs may use CPUs {cpus} only: {} vCPUs per CPU; how long they wait is not measured",
            figure(ratio)
        );
        let fix = placement(ctx, &guests);
        let names = set.guests.iter().filter_map(|g| ctx.guests.get(*g)).map(|g| g.name().to_owned());
        verdicts.find(Finding {
            also: names.collect(),
            title: format!("{vcpus} vCPUs are pinned to {} CPUs while others are free", cpus.len()),
            ..crowded(cpus, severity, Confidence::Medium, evidence, fix)
        });
    }
}

/// The CPUs that are online and that a thread may use.
fn may_use(thread: &ThreadModel, online: &CpuSet) -> CpuSet {
    online_of(thread.place.affinity.as_deref(), online)
}

fn online_of(affinity: Option<&CpuSet>, online: &CpuSet) -> CpuSet {
    affinity.map_or_else(|| online.clone(), |cpus| cpus.intersection(online))
}

/// The guests with a vCPU that cannot leave these CPUs. Where all are idle but a few, these few are the guests to move.
fn guests_in(ctx: &Context<'_>, online: &CpuSet, cpus: &CpuSet) -> Vec<String> {
    let least = ctx.thresholds().pinning.wait.info;
    let wants = |t: &ThreadModel| t.cpu.is_some_and(|c| c.wanted() >= least) && may_use(t, online).is_subset(cpus);
    let guests = ctx.guests.iter().filter(|g| g.running() && g.domain.vcpus().any(wants));
    guests.map(|g| g.name().to_owned()).collect()
}

/// How idle CPUs are on average, percent; `None` where it is not measured.
fn idle(ctx: &Context<'_>, cpus: &CpuSet) -> Option<f64> {
    let times = ctx.model.host.cpus.iter().filter(|c| cpus.contains(c.cpu)).filter_map(|c| c.time.as_ref());
    let (sum, count) = times.fold((0.0, 0.0), |(sum, n), t| (sum + 100.0 - t.busy(), n + 1.0));
    (count > 0.0).then(|| sum / count)
}

/// A set of CPUs, its number of vCPUs, and what they wait: percent of one CPU and of the time that they want a CPU.
type Crowd<'a> = (&'a CpuSet, usize, f64, f64);

/// The set that is overcommitted worst, how badly, and by how many vCPUs per CPU: of all vCPUs that cannot leave it.
fn worst_set<'a>(ctx: &Context<'_>, sets: &'a BTreeMap<CpuSet, Load>) -> Option<(Severity, f64, Crowd<'a>)> {
    let t = &ctx.thresholds().pinning;
    let load = |cpus: &'a CpuSet| {
        let inside = sets.iter().filter(|(s, _)| s.is_subset(cpus)).map(|(_, load)| *load);
        let (vcpus, cpu, for_others) = inside.reduce(|a, b| (a.0 + b.0, a.1.plus(b.1), a.2 + b.2))?;
        let ratio = vcpus as f64 / cpus.len() as f64;
        // A wait that guests do not cause says nothing of their number.
        let wait = cpu.wait.filter(|wait| for_others * 2.0 < *wait)? - for_others;
        let share = 100.0 * wait / cpu.wanted();
        let most = if share < t.wait.warning { Severity::Warning } else { Severity::Critical };
        let severity = t.overcommit.of(ratio)?.min(most);
        // Idle guests wait for much of the little that they want: the wait has to be a part of the CPUs' time too.
        let waits = share >= t.wait.info && wait >= t.wait.info * cpus.len() as f64;
        // Where the CPUs are idle most of the time, their number is not the reason for the wait.
        let short = waits && idle(ctx, cpus).is_none_or(|idle| idle <= MOSTLY_IDLE);
        short.then_some((severity, ratio, (cpus, vcpus, wait, share)))
    };
    worst_of(sets.keys().filter(|s| !s.is_empty()).take(MAX_SETS).filter_map(load))
}

const QUOTA_SET: Prose = Prose {
    title: "The guest's configuration limits the CPU time that it gets",
    problem: "a CPU quota limits it",
    why: "When the quota of a period is used up, the vCPUs stop, however idle the host is; the guest sees steal time. \
        Clouds set a quota on purpose, and then the guest needs another flavor",
};

pub(super) fn quota(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    if ctx.is_file() && guest.domain.throttling.is_empty() {
        configured_quota(guest).into_iter().for_each(|found| verdicts.find(found));
    }
    let Some(seconds) = guest.seconds else { return };
    let t = &ctx.thresholds().pinning;
    let stops = guest.domain.throttling.iter().filter(|g| g.throttled > 0).filter_map(|g| {
        let time = g.throttled_ns as f64 / (seconds * 1e7);
        let periods = if g.periods > 0 { 100.0 * g.throttled as f64 / g.periods as f64 } else { 100.0 };
        let severity = if time >= t.throttled_time { Some(Severity::Critical) } else { t.throttled.of(periods) };
        Some((severity?, time, (periods, g.group.as_str())))
    });
    let Some((severity, time, (periods, group))) = worst_of(stops) else { return };
    let vcpu = group.strip_prefix("vcpu").and_then(|n| n.parse::<u32>().ok());
    let stopped = format!("the stops cost its CPUs together {} % of one CPU's time", figure(time));
    let window = guest.window();
    let evidence =
        vec![format!("{group}: the quota ran out in {} % of the periods {window}; {stopped}", figure(periods))];
    let fix = vec![lift(guest, group), fixes::advice(FEWER_VCPUS)];
    let (target, marks) = (vcpu.map_or(Target::Domain, Target::Vcpu), vcpu.map(Mark::Vcpu).into_iter().collect());
    let found = Finding::new(severity, Confidence::High, evidence, fix);
    verdicts.find(Finding { target, cost: Some(time), marks, ..found });
}

/// A quota of the configuration, where no counter tells whether it ran out.
fn configured_quota(guest: &GuestContext<'_>) -> Option<Finding> {
    let xml = &guest.domain.facts.xml.as_ref()?.value;
    let percent = |(quota, period): (u64, u64)| 100.0 * quota as f64 / period as f64;
    let of_vcpu = ("each vCPU", "vcpu0", xml.vcpu_quota, Some(1));
    let of_all = ("all its threads together", "domain", xml.global_quota, guest.config.vcpus);
    let limits =
        [of_vcpu, of_all].into_iter().filter_map(|(who, group, quota, cpus)| Some((who, group, quota?, cpus?)));
    let mut low = limits.filter(|(.., quota, cpus)| percent(*quota) < 100.0 * f64::from(*cpus));
    let (who, group, (quota, period), _) = low.next()?;
    let allowed = percent((quota, period));
    let limit = format!("{who} may use {} % of a CPU: quota {quota} of {period} us, by its XML", figure(allowed));
    Some(Finding::new(Severity::Info, Confidence::High, vec![limit], vec![lift(guest, group)]).saying(QUOTA_SET))
}

/// Removes a group's quota.
fn lift(guest: &GuestContext<'_>, group: &str) -> Fix {
    let numbered = |name: &str| group.strip_prefix(name).is_some_and(|n| n.parse::<u32>().is_ok());
    // The characters of unit names (systemd.unit(5)).
    let of_unit = |c: char| c.is_ascii_alphanumeric() || ":-_.\\@".contains(c);
    let is_unit = |name: &str| {
        [".slice", ".scope", ".service"].iter().any(|end| name.ends_with(end)) && name.chars().all(of_unit)
    };
    let schedinfo = |which: &str| {
        if guest.config.libvirt == Some(false) {
            return fixes::advice(RAISE_CGROUP_LIMIT);
        }
        let set = fixes::virsh(guest, "schedinfo", &format!("--set {which}=-1 {}", fixes::scope(guest)));
        let kept = if fixes::is_transient(guest) { fixes::LIVE_ALONE } else { QUOTA_NEED };
        fixes::command(set).needing(if guest.is_shut_off() { fixes::AT_NEXT_START } else { kept })
    };
    match group {
        "domain" => schedinfo("global_quota"),
        "emulator" => schedinfo("emulator_quota"),
        _ if numbered("vcpu") => schedinfo("vcpu_quota"),
        _ if numbered("iothread") => schedinfo("iothread_quota"),
        unit if is_unit(unit) => {
            let lift = format!("systemctl set-property --runtime {} CPUQuota=", unit_argument(unit));
            fixes::command(lift).needing(UNIT_QUOTA_NEED)
        }
        other => fixes::advice(format!(
            "The limit belongs to cgroup {other}, which contains the guest's: raise its cpu.max (cpu.cfs_quota_us in \
             version 1)"
        )),
    }
}

/// An IOThread or emulator whose real-time priority pushes the guest's own vCPUs aside.
fn realtime_helper(guest: &GuestContext<'_>) -> Option<Finding> {
    let pins = &guest.config.pins;
    let is_on = |helper: &&Option<u32>| {
        let cpus = pins.helper(**helper);
        let meets =
            |(vcpu, on): (&u32, &CpuSet)| !pins.realtime.contains(vcpu) && cpus.is_none_or(|c| c.intersects(on));
        (cpus.is_some() || guest.config.shown.pins) && pins.vcpus.iter().any(meets)
    };
    let helper = guest.domain.facts.xml.as_ref()?.value.realtime_helpers.iter().find(is_on)?;
    let name = helper.map_or_else(|| "the emulator".to_owned(), |number| format!("IOThread {number}"));
    let cpus = pins.helper(*helper).map_or_else(|| "any CPU".to_owned(), |cpus| format!("CPUs {cpus}"));
    let evidence = format!("{name} has a real-time policy and may run on {cpus}, as vCPUs without one do");
    let fix = vec![fixes::libvirt_advice(APART_OR_NORMAL)];
    Some(Finding::new(Severity::Info, Confidence::Medium, vec![evidence], fix).saying(REALTIME_HELPER))
}

pub(super) fn realtime(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    realtime_helper(guest).into_iter().for_each(|found| verdicts.find(found));
    let (host, pins) = (ctx.topology(), &guest.config.pins);
    // Without threads the configuration counts. Not every description of a host says which CPUs are isolated.
    let by_config = guest.domain.vcpus().next().is_none();
    let shows_pin = |v: &&u32| by_config && (pins.vcpu(**v).is_some() || guest.config.shown.pins);
    let configured = pins.realtime.iter().filter(shows_pin).map(|v| (*v, pins.vcpu(*v).and_then(CpuSet::single)));
    let configured: Vec<(u32, Option<u32>)> = configured.collect();
    let measured = guest.domain.vcpus().filter(|t| t.is_realtime()).filter_map(|t| Some((t.index?, t.pinned_cpu())));
    // The kernel's own work is on CPU 0.
    let shares = |cpu: u32| (host.isolated.is_some() && !host.is_isolated(cpu)) || by_config && cpu == 0;
    // Each with the single CPU to which it is pinned, if any.
    let sharing: Vec<(u32, Option<u32>)> =
        measured.chain(configured.iter().copied()).filter(|(_, c)| c.is_none_or(shares)).collect();
    let limit = ctx.param("kernel.sched_rt_runtime_us").and_then(|v| v.parse::<i64>().ok());
    let throttled = limit.is_some_and(|us| us >= 0)
        && guest.domain.vcpus().any(|t| t.is_realtime() && t.cpu.is_some_and(|c| c.busy() > NEAR_THE_LIMIT));
    if sharing.is_empty() && !throttled {
        if host.isolated.is_none() && !configured.is_empty() {
            let (vcpus, cpus): (CpuSet, Vec<Option<u32>>) = configured.into_iter().unzip();
            let cpus: CpuSet = cpus.into_iter().flatten().collect();
            let text =
                format!("vCPUs {vcpus} have a real-time scheduler on CPUs {cpus}; these files do not show isolation");
            let fix = vec![fixes::advice(ISOLATE_OR_NOT)];
            let title = "Real-time vCPUs need isolated CPUs".into();
            verdicts.find(Finding { title, ..Finding::new(Severity::Info, Confidence::Low, vec![text], fix) });
        }
        return;
    }
    let place = |cpu: u32| format!("is on CPU {cpu}, which is not isolated");
    let first = sharing.first().map(|(v, cpu)| (v, cpu.map_or_else(|| "is not pinned to one CPU".into(), place)));
    let alike = sharing.len();
    let evidence = known([
        first.map(|(v, place)| format!("vCPU {v} has a real-time policy and {place}; vCPUs like this: {alike}")),
        throttled.then(|| RT_LIMIT.into()),
    ]);
    let (title, problem, fix) = if sharing.is_empty() {
        let no_limit = fixes::command("sysctl kernel.sched_rt_runtime_us=-1").needing(NO_RT_LIMIT_NEED);
        ("The kernel stops a real-time vCPU that uses its whole CPU", "real-time limit stops vCPU", vec![no_limit])
    } else {
        let mut fix = guest_placement(ctx, guest);
        fix.extend(Isolation::new(ctx).options(&["isolcpus", "nohz_full", "rcu_nocbs"]));
        fix.push(fixes::libvirt_advice(NO_REALTIME));
        ("A real-time vCPU shares its CPU", "", fix)
    };
    let marks = sharing.iter().map(|b| Mark::Vcpu(b.0)).collect();
    let found = Finding::new(Severity::Warning, Confidence::High, evidence, fix);
    verdicts.find(Finding { title: title.into(), problem: problem.into(), marks, ..found });
}
