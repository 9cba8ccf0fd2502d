//! vCPUs that get too little of their CPUs: by a quota, by other vCPUs, by the limit of real-time
//! tasks.

use crate::figures::figure;
use crate::lint::facts::{
    Confidence, Context, Finding, Fix, GuestContext, Mark, Severity, Target, Verdicts, shell,
    worst_of,
};
use crate::lint::fixes;
use crate::lint::fixes::placement::{Isolation, guest_placement};
use crate::model::{CpuShare, ThreadModel};
use kvm::CpuSet;
use std::collections::BTreeMap;

/// The most distinct sets that are compared.
const MAX_SETS: usize = 512;

/// CPUs that are idle for more of the time are not short, percent.
const MOSTLY_IDLE: f64 = 50.0;

/// A real-time vCPU that uses more is close to the limit of 95 %, percent.
const NEAR_THE_LIMIT: f64 = 94.0;

/// vCPUs that may use a set of CPUs.
#[derive(Clone, Copy, Default)]
struct Load {
    vcpus: usize,
    /// What they want of the CPUs.
    cpu: CpuShare,
    /// The part of their wait that guests do not cause, percent of one CPU.
    for_others: f64,
}

impl Load {
    fn add(&mut self, more: Self) {
        self.vcpus += more.vcpus;
        self.cpu = self.cpu.plus(more.cpu);
        self.for_others += more.for_others;
    }
}

/// A set of CPUs with more vCPUs than it can serve.
struct Crowd<'a> {
    cpus: &'a CpuSet,
    vcpus: usize,
    /// How long they wait: percent of one CPU, and of the time that they want a CPU.
    wait: f64,
    wait_percent: f64,
}

pub(super) fn overcommit(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    let online = ctx.online();
    let mut sets: BTreeMap<CpuSet, Load> = BTreeMap::new();
    for guest in ctx.running() {
        for thread in guest.domain.vcpus() {
            let mut load = Load {
                vcpus: 1,
                cpu: thread.cpu.unwrap_or_default(),
                for_others: 0.0,
            };
            if thread.wait_percent() >= Some(ctx.thresholds().pinning.wait.info)
                && let Some(shares) = ctx.waits().shares(guest.index, thread)
            {
                load.for_others = shares.sum(|holder| !holder.is_guest());
            }
            sets.entry(may_use(thread, &online)).or_default().add(load);
        }
    }
    let mut crowds = Vec::new();
    for cpus in sets.keys().filter(|cpus| !cpus.is_empty()).take(MAX_SETS) {
        crowds.extend(crowd(ctx, &sets, cpus));
    }
    let Some((severity, ratio, crowd)) = worst_of(crowds) else {
        return;
    };
    let cpus = crowd.cpus;
    let evidence = format!(
        "{} vCPUs per CPU on CPUs {cpus}; they wait {} % of the time they want a CPU",
        figure(ratio),
        figure(crowd.wait_percent)
    );
    let fix = vec![fixes::advice(
        "Move guests to another host, remove unused vCPUs, or spread the guests over more CPUs",
    )];
    verdicts.find(Finding {
        title: format!(
            "{} vCPUs share {} CPUs, and they wait",
            crowd.vcpus,
            cpus.len()
        ),
        // This is the wait of all guests together, so the cause is listed before the findings about
        // single guests.
        cost: Some(crowd.wait),
        also: guests_in(ctx, &online, cpus),
        marks: cpus.iter().map(Mark::Pcpu).collect(),
        ..Finding::new(severity, Confidence::High, vec![evidence], fix)
    });
}

/// The CPUs that are online and that a thread may use.
fn may_use(thread: &ThreadModel, online: &CpuSet) -> CpuSet {
    let affinity = thread.place.affinity.as_deref();
    affinity.map_or_else(|| online.clone(), |cpus| cpus.intersection(online))
}

/// The guests with a vCPU that wants a CPU and cannot leave these: the guests that could be moved.
fn guests_in(ctx: &Context<'_>, online: &CpuSet, cpus: &CpuSet) -> Vec<String> {
    let least = ctx.thresholds().pinning.wait.info;
    let bound = ctx.running().filter(|guest| {
        guest.domain.vcpus().any(|vcpu| {
            vcpu.cpu.is_some_and(|cpu| cpu.wanted() >= least)
                && may_use(vcpu, online).is_subset(cpus)
        })
    });
    bound.map(|guest| guest.name().to_owned()).collect()
}

/// Whether CPUs are idle most of the time: then their number is not the reason for a wait.
fn are_mostly_idle(ctx: &Context<'_>, cpus: &CpuSet) -> bool {
    let busy: Vec<f64> = cpus.iter().filter_map(|cpu| ctx.busy_of(cpu)).collect();
    let room = 100.0 * busy.len() as f64 - busy.iter().sum::<f64>();
    room > MOSTLY_IDLE * busy.len() as f64
}

/// How badly a set of CPUs is overcommitted, and how many vCPUs there are per CPU. Only vCPUs that
/// cannot leave the set count.
fn crowd<'a>(
    ctx: &Context<'_>,
    sets: &BTreeMap<CpuSet, Load>,
    cpus: &'a CpuSet,
) -> Option<(Severity, f64, Crowd<'a>)> {
    let t = &ctx.thresholds().pinning;
    let mut load = Load::default();
    for (set, more) in sets {
        if set.is_subset(cpus) {
            load.add(*more);
        }
    }
    let ratio = load.vcpus as f64 / cpus.len() as f64;
    // A wait that is mostly for others than guests does not show that there are too many guests.
    let whole_wait = load.cpu.wait.filter(|wait| load.for_others * 2.0 < *wait)?;
    let wait = whole_wait - load.for_others;
    let wait_percent = 100.0 * wait / load.cpu.wanted();
    // Idle guests want little and wait for much of that. So the wait has to be a share of the CPUs'
    // time as well.
    if wait_percent < t.wait.info
        || wait < t.wait.info * cpus.len() as f64
        || are_mostly_idle(ctx, cpus)
    {
        return None;
    }
    let most = if wait_percent < t.wait.warning {
        Severity::Warning
    } else {
        Severity::Critical
    };
    let crowd = Crowd {
        cpus,
        vcpus: load.vcpus,
        wait,
        wait_percent,
    };
    Some((t.overcommit.severity(ratio)?.min(most), ratio, crowd))
}

pub(super) fn quota(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let Some(seconds) = guest.seconds else { return };
    let t = &ctx.thresholds().pinning;
    let mut stops = Vec::new();
    for group in guest.domain.throttling.iter().filter(|g| g.throttled > 0) {
        // In percent: of one CPU's time, and of the periods.
        let time = group.throttled_ns as f64 / (seconds * 1e7);
        let periods = 100.0 * group.throttled as f64 / group.periods.max(1) as f64;
        if time >= t.throttled_time {
            stops.push((Severity::Critical, time, (periods, group)));
        } else if let Some(severity) = t.throttled.severity(periods) {
            stops.push((severity, time, (periods, group)));
        }
    }
    let Some((severity, time, (periods, group))) = worst_of(stops) else {
        return;
    };
    let group = group.group.as_str();
    let vcpu = group.strip_prefix("vcpu").and_then(|n| n.parse().ok());
    let evidence = vec![format!(
        "{group}: the quota ran out in {} % of the periods {}; the stops cost its CPUs together {} \
            % of one CPU's time",
        figure(periods),
        guest.window(),
        figure(time)
    )];
    let fix = vec![
        lift(guest, group),
        fixes::advice(
            "If the limit is intended, give the guest fewer vCPUs: it then runs without stops",
        ),
    ];
    verdicts.find(Finding {
        target: vcpu.map_or(Target::Domain, Target::Vcpu),
        cost: Some(time),
        marks: vcpu.map(Mark::Vcpu).into_iter().collect(),
        ..Finding::new(severity, Confidence::High, evidence, fix)
    });
}

/// Whether a cgroup is one of systemd's units, by the characters of their names (systemd.unit(5)).
fn is_unit(group: &str) -> bool {
    let ends = [".slice", ".scope", ".service"];
    let mut chars = group.chars();
    ends.iter().any(|end| group.ends_with(end))
        && chars.all(|c| c.is_ascii_alphanumeric() || ":-_.\\@".contains(c))
}

/// Removes a group's quota.
fn lift(guest: &GuestContext<'_>, group: &str) -> Fix {
    if is_unit(group) {
        let unit = shell::unit_argument(group);
        return fixes::command(format!("systemctl set-property --runtime {unit} CPUQuota="))
            .needing(
                "takes effect at once, until the next boot; removes the limit for all guests in \
                    the unit",
            );
    }
    // The names of libvirt's groups (`vcpu3`), and of its settings for them.
    let setting = match group.trim_end_matches(|c: char| c.is_ascii_digit()) {
        "domain" => "global",
        name @ ("emulator" | "vcpu" | "iothread") => name,
        _ => {
            return fixes::advice(format!(
                "Raise cpu.max of cgroup {group}, which contains the guest's"
            ));
        }
    };
    if guest.config.libvirt == Some(false) {
        return fixes::advice("Raise cpu.max of the guest's cgroup, or CPUQuota= of its unit");
    }
    let limit = format!("--set {setting}_quota=-1 {}", fixes::scope(guest));
    fixes::command(fixes::virsh(guest, "schedinfo", &limit))
        .needing("takes effect at once; the guest may then use as much CPU as it wants")
}

/// A vCPU with a real-time priority.
struct RealtimeVcpu {
    vcpu: u32,
    /// The single CPU to which it is pinned, if any.
    cpu: Option<u32>,
    /// Its use of the CPU, percent; 0 for a configuration.
    busy: f64,
}

/// The real-time vCPUs of a guest; without threads as they are configured.
fn realtime_vcpus(guest: &GuestContext<'_>) -> Vec<RealtimeVcpu> {
    let mut vcpus = Vec::new();
    for thread in guest.domain.vcpus().filter(|t| t.is_realtime()) {
        vcpus.extend(thread.index.map(|vcpu| RealtimeVcpu {
            vcpu,
            cpu: thread.pinned_cpu(),
            busy: thread.cpu.map_or(0.0, |cpu| cpu.busy()),
        }));
    }
    let pins = &guest.config.pins;
    if guest.domain.vcpus().next().is_none() && guest.config.shown.pins {
        vcpus.extend(pins.realtime.iter().map(|vcpu| RealtimeVcpu {
            vcpu: *vcpu,
            cpu: pins.vcpu(*vcpu).and_then(CpuSet::single),
            busy: 0.0,
        }));
    }
    vcpus
}

pub(super) fn realtime(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let host = ctx.topology();
    let mut vcpus = realtime_vcpus(guest);
    let is_full = vcpus.iter().any(|v| v.busy > NEAR_THE_LIMIT);
    vcpus.retain(|v| match v.cpu {
        Some(cpu) => host.isolated.is_some() && !host.is_isolated(cpu),
        None => true,
    });
    if let Some(RealtimeVcpu { vcpu, cpu, .. }) = vcpus.first() {
        let place = cpu.map_or_else(
            || "no pin to one CPU".into(),
            |cpu| format!("CPU {cpu}, which is not isolated"),
        );
        let evidence = format!(
            "vCPU {vcpu} has a real-time policy and {place}; vCPUs like this: {}",
            vcpus.len()
        );
        let mut fix = guest_placement(ctx, guest);
        fix.extend(Isolation::new(ctx).options(&["isolcpus", "nohz_full", "rcu_nocbs"]));
        fix.push(fixes::libvirt_advice(
            "Or remove <vcpusched> from the domain: without its own CPUs it does harm",
        ));
        return verdicts.find(Finding {
            title: "A real-time vCPU shares its CPU".into(),
            marks: vcpus.iter().map(|v| Mark::Vcpu(v.vcpu)).collect(),
            ..Finding::new(Severity::Warning, Confidence::High, vec![evidence], fix)
        });
    }
    let limit = ctx.param("kernel.sched_rt_runtime_us");
    if is_full && limit.is_some_and(|us| !us.starts_with('-')) {
        let evidence = "a real-time vCPU uses over 94 % of its CPU; sched_rt_runtime_us stops such \
            tasks at 95 %";
        let evidence = vec![evidence.into()];
        let fix = vec![
            fixes::command("sysctl kernel.sched_rt_runtime_us=-1")
                .needing("until the next boot; nothing stops a runaway real-time task then"),
        ];
        verdicts.find(Finding {
            title: "The kernel stops a real-time vCPU that uses its whole CPU".into(),
            problem: "real-time limit stops vCPU".into(),
            ..Finding::new(Severity::Warning, Confidence::High, evidence, fix)
        });
    }
}
