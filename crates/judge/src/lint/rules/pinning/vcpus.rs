//! Pins of vCPUs: conflicts, sets of isolated CPUs, and threads that are not where the
//! configuration wants them.

use crate::figures::figure;
use crate::figures::listed;
use crate::lint::facts::{
    Confidence, Context, Finding, GuestContext, Mark, Prose, Severity, Target, Verdicts,
    helper_name,
};
use crate::lint::fixes;
use crate::lint::fixes::placement::{guest_placement, placement};
use crate::placement::faults::CpuOverlap;
use crate::placement::{Pinning, faults};
use kvm::CpuSet;
use std::collections::BTreeMap;

/// The most CPUs or threads that evidence lists one by one.
const MAX_LINES: usize = 8;
/// vCPUs of one CPU that evidence names.
const MAX_USERS: usize = 4;

const OFFLINE: Prose = Prose {
    title: "Threads are pinned to CPUs that the host does not have online",
    problem: "pinned to offline CPUs",
    why: "Nothing can run there: the guest does not start, or runs on other CPUs of its pins",
};
const SEPARATE_SETS: &str = "Give the guests CPU sets that do not overlap, or one common set";
const NOT_ISOLATED: &str = "Take isolcpus= off the host's kernel command line: Proxmox gives all \
    threads of a guest one set of CPUs, and nothing balances load on isolated ones";
const PIN_TO_ISOLATED: &str = "Pin each vCPU to one isolated CPU, or use a cpuset partition \
    instead of isolcpus";
const ONLINE_CPUS: &str = "Pin these threads to CPUs that are online (virsh vcpupin, emulatorpin)";

pub(super) fn overlap(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    let overlaps = faults::overlaps(ctx.map(), &ctx.layouts);
    overlaps
        .iter()
        .for_each(|overlap| report(ctx, overlap, verdicts));
}

/// A CPU and the vCPUs that want it.
struct SharedCpu<'a> {
    cpu: u32,
    users: &'a faults::CpuUsers,
    /// What each wants of the CPU, percent, where all of that is known.
    wanted: Option<Vec<f64>>,
}

impl<'a> SharedCpu<'a> {
    fn new(ctx: &Context<'_>, cpu: u32, users: &'a faults::CpuUsers) -> Self {
        let wanted =
            |(g, v): &(usize, u32)| ctx.guests.get(*g)?.domain.vcpu(*v)?.cpu.map(|c| c.wanted());
        Self {
            cpu,
            users,
            wanted: users.listed.iter().map(wanted).collect(),
        }
    }

    fn severity(&self, busy: f64) -> Severity {
        let Some(wanted) = &self.wanted else {
            return Severity::Warning;
        };
        match wanted.iter().filter(|w| **w >= busy).count() > 1 {
            true if wanted.iter().sum::<f64>() > 100.0 => Severity::Critical,
            true => Severity::Warning,
            false => Severity::Info,
        }
    }

    /// Who wants the CPU, and how much of it.
    fn describe(&self, ctx: &Context<'_>) -> String {
        let Self { cpu, users, wanted } = self;
        let user = |(g, vcpu): &(usize, u32)| {
            let several = ctx.layouts[*g]
                .vcpus
                .get(*vcpu as usize)
                .filter(|set| set.len() > 1);
            let of_set = several.map_or_else(String::new, |set| format!(" (CPUs {set})"));
            format!("vCPU {vcpu} of {}{of_set}", ctx.guests[*g].name())
        };
        let mut names: Vec<String> = users.listed.iter().take(MAX_USERS).map(user).collect();
        if users.count > names.len() {
            names.push(format!("{} more", users.count - names.len()));
        }
        let part = figure(100.0 / users.count.max(1) as f64);
        let want = wanted.as_ref().map_or_else(String::new, |wanted| {
            let mut each: Vec<String> = wanted
                .iter()
                .take(MAX_USERS)
                .map(|w| format!("{} %", figure(*w)))
                .collect();
            each.dedup();
            format!(" want {} of it", each.join(", "))
        });
        format!(
            "CPU {cpu}: {}{want}; busy at once, each gets {part} % of it",
            listed(names)
        )
    }
}

fn report(ctx: &Context<'_>, overlap: &CpuOverlap, verdicts: &mut Verdicts) {
    let busy = ctx.thresholds().pinning.overlap_busy;
    let shared: Vec<SharedCpu<'_>> = overlap
        .cpus
        .iter()
        .map(|(cpu, users)| SharedCpu::new(ctx, *cpu, users))
        .collect();
    // Of equals the first.
    let Some(worst) = shared.iter().rev().max_by_key(|s| s.severity(busy)) else {
        return;
    };
    let guests: Vec<&GuestContext<'_>> = overlap
        .guests
        .iter()
        .filter_map(|g| ctx.guests.get(*g))
        .collect();
    let Some(first) = guests.first() else { return };
    let cpus: CpuSet = overlap.cpus.keys().copied().collect();
    let others = shared.iter().filter(|s| s.cpu != worst.cpu).take(MAX_LINES);
    let mut evidence: Vec<String> = [worst]
        .into_iter()
        .chain(others)
        .map(|s| s.describe(ctx))
        .collect();
    if shared.len() > evidence.len() {
        evidence.push(format!("the same on CPUs {cpus}"));
    }
    let mut fix = fixes::or_advice(
        placement(ctx, &overlap.guests),
        fixes::advice(SEPARATE_SETS),
    );
    if overlap.guest_count > overlap.guests.len() {
        fix.push(fixes::advice(fixes::placement::MORE_IN_PLAN));
    }
    let mark = |(g, v): &(usize, u32)| match g {
        g if *g == first.index => Some(Mark::Vcpu(*v)),
        g => ctx.guests[*g].domain.vcpu(*v).map(|t| Mark::Thread(t.tid)),
    };
    let users = shared.iter().flat_map(|s| &s.users.listed).filter_map(mark);
    let excess = |wanted: &Vec<f64>| (wanted.iter().sum::<f64>() - 100.0).max(0.0);
    let cost = shared
        .iter()
        .filter_map(|s| s.wanted.as_ref())
        .map(excess)
        .reduce(|a, b| a + b);
    let confidence = if worst.wanted.is_some() {
        Confidence::High
    } else {
        Confidence::Medium
    };
    let names: Vec<&str> = guests.iter().map(|guest| guest.name()).take(2).collect();
    let more = if overlap.guest_count > 2 {
        ", and others,"
    } else {
        ""
    };
    let finding = Finding {
        also: guests
            .iter()
            .skip(1)
            .map(|guest| guest.name().to_owned())
            .collect(),
        target: Target::Pcpu(worst.cpu),
        title: format!(
            "vCPUs of {}{more} are pinned to the same CPU",
            names.join(" and ")
        ),
        problem: format!("shares pinned CPU {}", worst.cpu),
        cost: cost.filter(|c| *c > 0.0),
        marks: cpus.iter().map(Mark::Pcpu).chain(users).collect(),
        ..Finding::new(worst.severity(busy), confidence, evidence, fix)
    };
    verdicts.find_for(first, finding);
}

/// A guest's vCPUs that may use several isolated CPUs.
fn on_several<'a>(
    ctx: &'a Context<'_>,
    guest: &GuestContext<'_>,
) -> impl Iterator<Item = (u32, &'a CpuSet)> {
    let map = ctx.map();
    ctx.layout(guest)
        .pooled(map)
        .filter(|(_, set)| set.is_subset(&map.isolated))
}

pub(super) fn pile_up(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    if ctx.map().isolated.is_empty() {
        return;
    }
    let busy = ctx.thresholds().pinning.busy;
    // The busy vCPUs of all guests on sets of isolated CPUs, by the CPU that they are on.
    let mut by_cpu: BTreeMap<u32, Vec<(usize, u32)>> = BTreeMap::new();
    for guest in ctx.guests.iter().filter(|g| g.running()) {
        for (v, _) in on_several(ctx, guest) {
            let thread = guest
                .domain
                .vcpu(v)
                .filter(|t| t.cpu.is_some_and(|c| c.wanted() >= busy));
            if let Some(cpu) = thread.and_then(|t| t.place.cpu) {
                by_cpu.entry(cpu).or_default().push((guest.index, v));
            }
        }
    }
    let found = ctx
        .guests
        .iter()
        .filter(|g| g.running())
        .filter_map(|g| Some((g, of_guest(ctx, g, &by_cpu)?)));
    found.for_each(|(guest, finding)| verdicts.find_for(guest, finding));
}

fn of_guest(
    ctx: &Context<'_>,
    guest: &GuestContext<'_>,
    by_cpu: &BTreeMap<u32, Vec<(usize, u32)>>,
) -> Option<Finding> {
    let vcpus: Vec<(u32, &CpuSet)> = on_several(ctx, guest).collect();
    let all = vcpus.iter().fold(CpuSet::new(), |a, p| a.union(p.1));
    let own = |on: &&Vec<(usize, u32)>| on.len() > 1 && on.iter().any(|(g, _)| *g == guest.index);
    let piles = all
        .iter()
        .filter_map(|cpu| Some((cpu, by_cpu.get(&cpu).filter(own)?)));
    let (cpu, on) = piles.max_by_key(|(_, on)| on.len())?;
    let names = on
        .iter()
        .map(|(g, v)| format!("vCPU {v} of {}", ctx.guests[*g].name()));
    let names = listed(names.collect());
    let evidence = vec![
        format!(
            "{names} are all on CPU {cpu} and want it {}",
            guest.window()
        ),
        format!(
            "{} vCPUs may each use several of the isolated CPUs {all}",
            vcpus.len()
        ),
    ];
    let marks = vcpus
        .iter()
        .map(|p| Mark::Vcpu(p.0))
        .chain([Mark::Pcpu(cpu)])
        .collect();
    let otherwise = if ctx.layout(guest).pinning == Pinning::OneSet {
        NOT_ISOLATED
    } else {
        PIN_TO_ISOLATED
    };
    let fix = fixes::or_advice(guest_placement(ctx, guest), fixes::advice(otherwise));
    let found = Finding::new(Severity::Critical, Confidence::High, evidence, fix);
    Some(Finding {
        target: Target::Pcpu(cpu),
        problem: format!("vCPUs crowd CPU {cpu}"),
        marks,
        ..found
    })
}

/// A thread whose pins are not followed.
struct Unfollowed {
    name: String,
    configured: CpuSet,
    /// Where it may run instead; `None` where the configured CPUs are absent.
    now: Option<CpuSet>,
    mark: Option<Mark>,
}

/// The threads that run under other pins than the configured ones, and those pinned to CPUs that
/// the host lacks.
fn unfollowed(ctx: &Context<'_>, guest: &GuestContext<'_>) -> Vec<Unfollowed> {
    let (pins, layout) = (&guest.config.pins, ctx.layout(guest));
    let mut all = Vec::new();
    for v in layout.absent.iter() {
        let configured = pins.vcpu(v).cloned().unwrap_or_default();
        all.push(Unfollowed {
            name: format!("vCPU {v}"),
            configured,
            now: None,
            mark: Some(Mark::Vcpu(v)),
        });
    }
    for (v, want) in &layout.drifted {
        let (name, now) = (format!("vCPU {v}"), layout.vcpus.get(*v as usize).cloned());
        all.push(Unfollowed {
            name,
            configured: want.clone(),
            now,
            mark: Some(Mark::Vcpu(*v)),
        });
    }
    for (id, helper) in &layout.helpers {
        let (name, mark) = (
            helper_name(*id),
            guest.domain.helper(*id).map(|t| Mark::Thread(t.tid)),
        );
        if helper.absent {
            let configured = pins.helper(*id).cloned().unwrap_or_default();
            all.push(Unfollowed {
                name,
                configured,
                now: None,
                mark,
            });
        } else if let Some(want) = &helper.drifted {
            all.push(Unfollowed {
                name,
                configured: want.clone(),
                now: helper.cpus.clone(),
                mark,
            });
        }
    }
    all
}

pub(super) fn affinity(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let online = &ctx.map().all;
    let has_pins = guest.config.pins != crate::model::Pins::default();
    if !guest.running() || guest.config.libvirt != Some(true) || !has_pins || online.is_empty() {
        return;
    }
    if !guest.domain.threads.is_empty() && guest.domain.vcpus().all(|t| t.place.affinity.is_none())
    {
        return verdicts.cannot_tell(
            "where the guest's threads may run is unknown, so pinning cannot be verified",
        );
    }
    let all = unfollowed(ctx, guest);
    let is_offline = all.iter().all(|thread| thread.now.is_none());
    let line = |thread: &Unfollowed| match (&thread.name, &thread.configured, &thread.now) {
        (name, want, Some(now)) => format!("{name} is configured for CPU {want} and may use {now}"),
        (name, want, None) => {
            format!("{name} is pinned to CPU {want}, and the host has CPUs {online} online")
        }
    };
    let evidence: Vec<String> = all.iter().map(line).collect();
    if evidence.is_empty() {
        return;
    }
    let is_mild = is_offline
        && all
            .iter()
            .all(|thread| thread.configured.intersects(online));
    let severity = if is_mild {
        Severity::Info
    } else {
        Severity::Warning
    };
    let fix = fixes::or_advice(
        guest_placement(ctx, guest),
        fixes::libvirt_advice(ONLINE_CPUS),
    );
    let title = "A thread's CPU affinity is not the one in the configuration".into();
    let marks = all.into_iter().filter_map(|thread| thread.mark).collect();
    let found = Finding {
        title,
        marks,
        ..Finding::new(severity, Confidence::High, evidence, fix)
    };
    verdicts.find(if is_offline {
        found.saying(OFFLINE)
    } else {
        found
    });
}
