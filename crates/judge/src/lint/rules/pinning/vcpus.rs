//! Pins of vCPUs: conflicts, sets of isolated CPUs, and threads that are not where the
//! configuration wants them.

use crate::figures::{figure, listed};
use crate::lint::facts::{
    Confidence, Context, Finding, GuestContext, Mark, Prose, Severity, Target, Verdicts,
    helper_name,
};
use crate::lint::fixes;
use crate::lint::fixes::placement::{guest_placement, placement};
use crate::placement::faults::{CpuOverlap, GuestVcpu};
use crate::placement::{Pinning, faults};
use kvm::CpuSet;
use std::cmp::Reverse;
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

pub(super) fn overlap(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    for overlap in faults::overlaps(ctx.map(), &ctx.layouts) {
        report_overlap(ctx, &overlap, verdicts);
    }
}

/// `vCPU 3 of web-1`.
fn named(ctx: &Context<'_>, vcpu: &GuestVcpu) -> String {
    format!("vCPU {} of {}", vcpu.vcpu, ctx.guests[vcpu.guest].name())
}

/// A CPU and the vCPUs that want it.
struct SharedCpu<'a> {
    cpu: u32,
    users: &'a faults::CpuUsers,
    severity: Severity,
    /// What the listed vCPUs want of the CPU, percent; `None` if any of that is unknown.
    wanted: Option<f64>,
}

impl<'a> SharedCpu<'a> {
    fn new(ctx: &Context<'_>, cpu: u32, users: &'a faults::CpuUsers) -> Self {
        let mut wanted = Some(0.0);
        let mut busy = 0;
        for user in &users.listed {
            let vcpu = ctx.guests[user.guest].domain.vcpu(user.vcpu);
            let share = vcpu.and_then(|vcpu| vcpu.cpu).map(|cpu| cpu.wanted());
            wanted = wanted.zip(share).map(|(all, one)| all + one);
            busy += u32::from(share >= Some(ctx.thresholds().pinning.overlap_busy));
        }
        let severity = match wanted {
            Some(_) if busy < 2 => Severity::Info,
            Some(wanted) if wanted > 100.0 => Severity::Critical,
            _ => Severity::Warning,
        };
        Self {
            cpu,
            users,
            severity,
            wanted,
        }
    }

    /// Says which vCPUs want the CPU, and how much of it.
    fn describe(&self, ctx: &Context<'_>) -> String {
        let Self { cpu, users, .. } = self;
        let listed = users.listed.iter().take(MAX_USERS);
        let mut names: Vec<String> = listed.map(|user| named(ctx, user)).collect();
        if users.count > names.len() {
            names.push(format!("{} more", users.count - names.len()));
        }
        let want = self.wanted.map_or_else(String::new, |wanted| {
            format!(" want {} % of it together", figure(wanted))
        });
        let part = figure(100.0 / users.count.max(1) as f64);
        format!(
            "CPU {cpu}: {}{want}; busy at once, each gets {part} % of it",
            names.join(", ")
        )
    }
}

fn report_overlap(ctx: &Context<'_>, overlap: &CpuOverlap, verdicts: &mut Verdicts) {
    let mut shared: Vec<SharedCpu<'_>> = Vec::new();
    for (cpu, users) in &overlap.cpus {
        shared.push(SharedCpu::new(ctx, *cpu, users));
    }
    shared.sort_by_key(|shared| Reverse(shared.severity));
    let guests: Vec<&GuestContext<'_>> = overlap.guests.iter().map(|g| &ctx.guests[*g]).collect();
    let (Some(worst), Some((first, others))) = (shared.first(), guests.split_first()) else {
        return;
    };
    let cpus: CpuSet = overlap.cpus.keys().copied().collect();
    let lines = shared.iter().take(MAX_LINES);
    let mut evidence: Vec<String> = lines.map(|s| s.describe(ctx)).collect();
    if shared.len() > evidence.len() {
        evidence.push(format!("the same on CPUs {cpus}"));
    }
    let mut fix = fixes::or_advice(
        placement(ctx, &overlap.guests),
        fixes::advice("Give the guests CPU sets that do not overlap, or one common set"),
    );
    if overlap.guest_count > guests.len() {
        fix.push(fixes::advice(fixes::placement::MORE_IN_PLAN));
    }
    let mut marks: Vec<Mark> = cpus.iter().map(Mark::Pcpu).collect();
    for user in shared.iter().flat_map(|shared| &shared.users.listed) {
        if user.guest == first.index {
            marks.push(Mark::Vcpu(user.vcpu));
        } else if let Some(thread) = ctx.guests[user.guest].domain.vcpu(user.vcpu) {
            marks.push(Mark::Thread(thread.tid));
        }
    }
    let confidence = if worst.wanted.is_some() {
        Confidence::High
    } else {
        Confidence::Medium
    };
    // What these vCPUs want and do not get.
    let wanted = shared.iter().filter_map(|shared| shared.wanted);
    let cost: f64 = wanted.map(|wanted| (wanted - 100.0).max(0.0)).sum();
    let names: Vec<&str> = guests.iter().map(|guest| guest.name()).take(2).collect();
    let more = if overlap.guest_count > 2 {
        ", and others,"
    } else {
        ""
    };
    let finding = Finding {
        also: others.iter().map(|guest| guest.name().to_owned()).collect(),
        target: Target::Pcpu(worst.cpu),
        title: format!(
            "vCPUs of {}{more} are pinned to the same CPU",
            names.join(" and ")
        ),
        problem: format!("{} vCPUs on CPU {}", worst.users.count, worst.cpu),
        cost: Some(cost).filter(|cost| *cost > 0.0),
        marks,
        ..Finding::new(worst.severity, confidence, evidence, fix)
    };
    verdicts.find_for(first, finding);
}

/// A guest's vCPUs that may use several isolated CPUs.
fn on_isolated_sets<'a>(
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
    let mut by_cpu: BTreeMap<u32, Vec<GuestVcpu>> = BTreeMap::new();
    for guest in ctx.running() {
        for (v, _) in on_isolated_sets(ctx, guest) {
            let thread = guest
                .domain
                .vcpu(v)
                .filter(|t| t.cpu.is_some_and(|c| c.wanted() >= busy));
            if let Some(cpu) = thread.and_then(|t| t.place.cpu) {
                by_cpu.entry(cpu).or_default().push(GuestVcpu {
                    guest: guest.index,
                    vcpu: v,
                });
            }
        }
    }
    for guest in ctx.running() {
        if let Some(finding) = largest_pile(ctx, guest, &by_cpu) {
            verdicts.find_for(guest, finding);
        }
    }
}

/// The CPU on which most vCPUs pile up, of those with a vCPU of this guest.
fn largest_pile(
    ctx: &Context<'_>,
    guest: &GuestContext<'_>,
    by_cpu: &BTreeMap<u32, Vec<GuestVcpu>>,
) -> Option<Finding> {
    let vcpus: Vec<(u32, &CpuSet)> = on_isolated_sets(ctx, guest).collect();
    let cpus = vcpus
        .iter()
        .fold(CpuSet::new(), |cpus, (_, set)| cpus.union(set));
    let piles = by_cpu.iter().filter(|(cpu, on)| {
        cpus.contains(**cpu) && on.len() > 1 && on.iter().any(|one| one.guest == guest.index)
    });
    let (cpu, on) = piles.max_by_key(|(_, on)| on.len())?;
    let names = on.iter().map(|one| named(ctx, one)).collect();
    let evidence = vec![
        format!(
            "{} are all on CPU {cpu} and want it {}",
            listed(names),
            guest.window()
        ),
        format!(
            "{} vCPUs may each use several of the isolated CPUs {cpus}",
            vcpus.len()
        ),
    ];
    let marks = vcpus
        .iter()
        .map(|(vcpu, _)| Mark::Vcpu(*vcpu))
        .chain([Mark::Pcpu(*cpu)])
        .collect();
    let otherwise = if ctx.layout(guest).pinning == Pinning::OneSet {
        "Take isolcpus= off the host's kernel command line: Proxmox gives all threads of a \
            guest one set of CPUs, and nothing balances load on isolated ones"
    } else {
        "Pin each vCPU to one isolated CPU, or use a cpuset partition instead of isolcpus"
    };
    let fix = fixes::or_advice(guest_placement(ctx, guest), fixes::advice(otherwise));
    Some(Finding {
        target: Target::Pcpu(*cpu),
        problem: format!("{} vCPUs on CPU {cpu}", on.len()),
        marks,
        ..Finding::new(Severity::Critical, Confidence::High, evidence, fix)
    })
}

/// The threads of a guest whose pins are not followed.
#[derive(Default)]
struct Unfollowed {
    evidence: Vec<String>,
    marks: Vec<Mark>,
    /// Whether the pins of all these threads name CPUs that are offline or missing.
    is_offline: bool,
    /// Whether these pins all name CPUs that are online as well.
    is_mild: bool,
}

impl Unfollowed {
    /// Adds a thread. `now`: where it may run instead of on the CPUs `want`; `None` where such CPUs
    /// are offline or missing.
    fn add(&mut self, name: &str, want: &CpuSet, now: Option<&CpuSet>, online: &CpuSet) {
        self.evidence.push(if let Some(now) = now {
            format!("{name} is configured for CPU {want} and may use {now}")
        } else {
            format!("{name} is pinned to CPU {want}, and the host has CPUs {online} online")
        });
        self.is_offline &= now.is_none();
        self.is_mild &= now.is_none() && want.intersects(online);
    }

    fn of_guest(ctx: &Context<'_>, guest: &GuestContext<'_>) -> Self {
        let pins = &guest.config.pins;
        let layout = ctx.layout(guest);
        let online = &ctx.map().all;
        let mut unfollowed = Self {
            is_offline: true,
            is_mild: true,
            ..Self::default()
        };
        for v in layout.absent.iter() {
            if let Some(want) = pins.vcpu(v) {
                unfollowed.add(&format!("vCPU {v}"), want, None, online);
                unfollowed.marks.push(Mark::Vcpu(v));
            }
        }
        for (v, want) in &layout.drifted {
            unfollowed.add(
                &format!("vCPU {v}"),
                want,
                layout.vcpus.get(*v as usize),
                online,
            );
            unfollowed.marks.push(Mark::Vcpu(*v));
        }
        for (id, helper) in &layout.helpers {
            let name = helper_name(*id);
            match (&helper.drifted, pins.helper(*id)) {
                (_, Some(want)) if helper.absent => unfollowed.add(&name, want, None, online),
                (Some(want), _) => unfollowed.add(&name, want, helper.cpus.as_ref(), online),
                _ => continue,
            }
            let thread = guest.domain.helper(*id);
            unfollowed.marks.extend(thread.map(|t| Mark::Thread(t.tid)));
        }
        unfollowed
    }
}

pub(super) fn affinity(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let has_pins = guest.config.pins != crate::model::Pins::default();
    let is_known = !ctx.map().all.is_empty() && guest.config.libvirt == Some(true);
    if !guest.running() || !is_known || !has_pins {
        return;
    }
    if !guest.domain.threads.is_empty() && guest.domain.vcpus().all(|t| t.place.affinity.is_none())
    {
        return verdicts.cannot_tell(
            "where the guest's threads may run is unknown, so pinning cannot be verified",
        );
    }
    let unfollowed = Unfollowed::of_guest(ctx, guest);
    if unfollowed.evidence.is_empty() {
        return;
    }
    let severity = if unfollowed.is_mild {
        Severity::Info
    } else {
        Severity::Warning
    };
    let fix = fixes::or_advice(
        guest_placement(ctx, guest),
        fixes::libvirt_advice(
            "Pin these threads to CPUs that are online (virsh vcpupin, emulatorpin)",
        ),
    );
    let found = Finding {
        title: "A thread's CPU affinity is not the one in the configuration".into(),
        marks: unfollowed.marks,
        ..Finding::new(severity, Confidence::High, unfollowed.evidence, fix)
    };
    verdicts.find(if unfollowed.is_offline {
        found.saying(OFFLINE)
    } else {
        found
    });
}
