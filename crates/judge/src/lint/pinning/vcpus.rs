//! Pins of vCPUs: conflicts, sets of isolated CPUs, and threads that are not where the configuration wants them.

use crate::figures::listed;
use crate::lint::prelude::*;
use faults::CpuOverlap;
use std::collections::BTreeMap;

/// The most CPUs or threads that evidence lists one by one.
const MAX_LINES: usize = 8;

const OFFLINE: Prose = Prose {
    title: "Threads are pinned to CPUs that the host does not have online",
    problem: "pinned to offline CPUs",
    why: "Nothing can run on a CPU that is not there: the guest does not start, or it runs on the other CPUs of its \
        pin or where the kernel puts it",
};
const SEPARATE_SETS: &str = "Give the guests CPU sets that do not overlap. \
    With too few CPUs for that, let them share one common set instead of single CPUs";
const PIN_TO_ISOLATED: &str = "Pin each vCPU to one isolated CPU, \
    or use a cpuset partition instead of isolcpus, where the kernel balances load";
const ONLINE_CPUS: &str = "Pin these threads to CPUs that are online (virsh vcpupin, emulatorpin)";

pub(super) fn overlap(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    let overlaps = faults::overlaps(ctx.map(), &ctx.layouts);
    overlaps.iter().for_each(|overlap| report(ctx, overlap, verdicts));
    ctx.guests.iter().filter(|g| g.running()).for_each(|guest| partly_pinned(ctx, guest, verdicts));
}

/// A CPU and the vCPUs that want it.
struct SharedCpu<'a> {
    cpu: u32,
    users: &'a [(usize, u32)],
    count: usize,
    /// What each wants of the CPU, percent, where all of that is known.
    wanted: Option<Vec<f64>>,
}

impl SharedCpu<'_> {
    fn severity(&self, busy: f64) -> Severity {
        let Some(wanted) = &self.wanted else { return Severity::Warning };
        match wanted.iter().filter(|w| **w >= busy).count() > 1 {
            true if wanted.iter().sum::<f64>() > 100.0 => Severity::Critical,
            true => Severity::Warning,
            false => Severity::Info,
        }
    }
}

fn report(ctx: &Context<'_>, overlap: &CpuOverlap, verdicts: &mut Verdicts) {
    let busy = ctx.thresholds().pinning.overlap_busy;
    let wanted = |(g, v): &(usize, u32)| ctx.guests.get(*g)?.domain.vcpu(*v)?.cpu.map(|c| c.wanted());
    let shared = overlap.cpus.iter().map(|(cpu, (users, count))| {
        let wanted = users.iter().map(wanted).collect();
        SharedCpu { cpu: *cpu, users, count: *count, wanted }
    });
    let shared: Vec<SharedCpu<'_>> = shared.collect();
    let worst = shared.iter().max_by_key(|s| s.severity(busy));
    let (Some(worst), Some(first)) = (worst, overlap.guests.first().and_then(|g| ctx.guests.get(*g))) else { return };
    let cpus: CpuSet = overlap.cpus.keys().copied().collect();
    let names: Vec<&str> = overlap.guests.iter().filter_map(|g| ctx.guests.get(*g)).map(GuestContext::name).collect();
    let named = |(g, v): &(usize, u32)| {
        let of = if overlap.guest_count > 1 { format!(" of {}", ctx.guests[*g].name()) } else { String::new() };
        let set = ctx.layouts.get(*g).and_then(|l| l.vcpus.get(*v as usize)).filter(|set| set.len() > 1);
        format!("vCPU {v}{of}{}", set.map_or_else(String::new, |set| format!(" (CPUs {set})")))
    };
    let line = |s: &SharedCpu<'_>| {
        let users = s.users.iter().map(named).collect::<Vec<_>>().join(", ");
        let more = s.count.saturating_sub(s.users.len());
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let (cpu, window, part) = (s.cpu, first.window(), figure(100.0 / s.count.max(1) as f64));
        let Some(wanted) = &s.wanted else {
            return format!("CPU {cpu}: {users}{more}; busy at once, each gets {part} % of it");
        };
        let each = wanted.iter().map(|w| format!("{} %", figure(*w))).collect::<Vec<_>>().join(", ");
        format!("CPU {cpu}: {users}{more} want {each} of it {window}; busy at once, each gets {part} %")
    };
    let others = shared.iter().filter(|s| s.cpu != worst.cpu).take(MAX_LINES);
    let rest = (shared.len() > MAX_LINES + 1).then(|| format!("the same on CPUs {cpus}"));
    let last = rest.into_iter().chain([fixes::check_pins(first)]);
    let evidence = [worst].into_iter().chain(others).map(line).chain(last).collect();
    let mut fix = fixes::or_advice(placement(ctx, &overlap.guests), fixes::advice(SEPARATE_SETS));
    let more = overlap.guest_count > overlap.guests.len();
    fix.extend(more.then(|| fixes::advice(fixes::placement::MORE_IN_PLAN)));
    let mark = |(g, v): &(usize, u32)| match g {
        g if *g == first.index => Some(Mark::Vcpu(*v)),
        g => ctx.guests[*g].domain.vcpu(*v).map(|t| Mark::Thread(t.tid)),
    };
    let users = shared.iter().flat_map(|s| s.users).filter_map(mark);
    let excess = |wanted: &Vec<f64>| (wanted.iter().sum::<f64>() - 100.0).max(0.0);
    let cost = shared.iter().filter_map(|s| s.wanted.as_ref()).map(excess).reduce(|a, b| a + b);
    let confidence = if worst.wanted.is_some() { Confidence::High } else { Confidence::Medium };
    let whose = match overlap.guest_count {
        1 => "the guest".into(),
        2 => names.join(" and "),
        n => format!("{} and {} more", names.iter().take(2).copied().collect::<Vec<_>>().join(", "), n - 2),
    };
    let finding = Finding {
        also: names.iter().skip(1).map(|n| (*n).to_owned()).collect(),
        target: Target::Pcpu(worst.cpu),
        title: format!("vCPUs of {whose} are pinned to the same CPU"),
        problem: overlap_problem(overlap.guest_count, worst),
        cost: cost.filter(|c| *c > 0.0),
        marks: cpus.iter().map(Mark::Pcpu).chain(users).collect(),
        ..Finding::new(worst.severity(busy), confidence, evidence, fix)
    };
    verdicts.find_for(first, finding);
}

/// Some vCPUs are pinned, and the others may run on their CPUs.
fn partly_pinned(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let (map, layout) = (ctx.map(), ctx.layout(guest));
    let free: CpuSet = layout.partly_pinned(map).into_iter().collect();
    if free.is_empty() {
        return;
    }
    let (single, pinned, all) = (layout.single(map), layout.pins(map).count(), layout.vcpus.len());
    let own = format!(
        "{pinned} of {all} vCPUs have their own CPU ({single}); vCPU {free} may run anywhere, also on those CPUs"
    );
    let evidence = vec![own, fixes::check_pins(guest)];
    let fix = fixes::or_advice(guest_placement(ctx, guest), fixes::advice("Pin all vCPUs or none"));
    let title = "Some vCPUs are pinned and the others may run on their CPUs".into();
    let (problem, marks) = ("only some vCPUs pinned".into(), single.iter().map(Mark::Pcpu).collect());
    let found = Finding::new(Severity::Info, Confidence::High, evidence, fix);
    verdicts.find_for(guest, Finding { title, problem, marks, ..found });
}

/// A guest's vCPUs that may use several isolated CPUs.
fn on_several<'a>(ctx: &'a Context<'_>, guest: &GuestContext<'_>) -> impl Iterator<Item = (u32, &'a CpuSet)> {
    let map = ctx.map();
    ctx.layout(guest).pooled(map).filter(|(_, set)| set.is_subset(&map.isolated))
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
            let thread = guest.domain.vcpu(v).filter(|t| t.cpu.is_some_and(|c| c.wanted() >= busy));
            if let Some(cpu) = thread.and_then(|t| t.place.cpu) {
                by_cpu.entry(cpu).or_default().push((guest.index, v));
            }
        }
    }
    let found = ctx.guests.iter().filter(|g| g.running()).filter_map(|g| Some((g, of_guest(ctx, g, &by_cpu)?)));
    found.for_each(|(guest, finding)| verdicts.find_for(guest, finding));
}

fn of_guest(ctx: &Context<'_>, guest: &GuestContext<'_>, by_cpu: &BTreeMap<u32, Vec<(usize, u32)>>) -> Option<Finding> {
    let vcpus: Vec<(u32, &CpuSet)> = on_several(ctx, guest).collect();
    let all = vcpus.iter().fold(CpuSet::new(), |a, p| a.union(p.1));
    let own = |on: &&Vec<(usize, u32)>| on.len() > 1 && on.iter().any(|(g, _)| *g == guest.index);
    let piles = all.iter().filter_map(|cpu| Some((cpu, by_cpu.get(&cpu).filter(own)?)));
    let pile = piles.max_by_key(|(_, on)| on.len());
    let measured = guest.domain.vcpus().any(|t| t.cpu.is_some());
    if pile.is_none() && (measured || vcpus.len() < 2) {
        return None;
    }
    let on_pile = pile.map(|(cpu, on)| {
        let (mine, theirs): (Vec<_>, Vec<_>) = on.iter().partition(|(g, _)| *g == guest.index);
        let mine = mine.iter().map(|(_, v)| v.to_string());
        let names = mine.chain(theirs.iter().map(|(g, v)| format!("{v} of {}", ctx.guests[*g].name())));
        let names = listed(names.collect());
        format!("vCPUs {names} are all on CPU {cpu} and want it {}", guest.window())
    });
    let (severity, confidence) =
        if pile.is_some() { (Severity::Critical, Confidence::High) } else { (Severity::Warning, Confidence::Medium) };
    let evidence = known([
        on_pile,
        Some(format!("{} vCPUs may each use several of the isolated CPUs {all}", vcpus.len())),
        Some("look at: cat /sys/devices/system/cpu/isolated".into()),
    ]);
    let marks = vcpus.iter().map(|p| Mark::Vcpu(p.0)).chain(pile.map(|p| Mark::Pcpu(p.0))).collect();
    let fix = fixes::or_advice(guest_placement(ctx, guest), fixes::advice(PIN_TO_ISOLATED));
    let target = pile.map_or(Target::Domain, |p| Target::Pcpu(p.0));
    let problem = pile.map_or_else(String::new, |(cpu, _)| format!("vCPUs crowd CPU {cpu}"));
    Some(Finding { target, problem, marks, ..Finding::new(severity, confidence, evidence, fix) })
}

pub(super) fn affinity(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let pins = &guest.config.pins;
    if !guest.running() || guest.config.libvirt != Some(true) || *pins == crate::model::Pins::default() {
        return;
    }
    let mut threads = guest.domain.vcpus().peekable();
    let host_measured = !ctx.model.host.cpus.is_empty();
    if threads.peek().is_some() && (!host_measured || threads.all(|t| t.place.affinity.is_none())) {
        return verdicts.cannot_tell("where the guest's threads may run is unknown, so pinning cannot be verified");
    }
    let (all, layout) = (&ctx.map().all, ctx.layout(guest));
    if all.is_empty() {
        return;
    }
    let absent_vcpus = layout.absent.iter().filter_map(|v| Some((format!("vCPU {v}"), pins.vcpu(v)?.clone())));
    let absent_helpers = layout.helpers.iter().filter(|(_, h)| h.absent);
    let absent_helpers =
        absent_helpers.map(|(id, _)| (helper_name(*id), pins.helper(*id).cloned().unwrap_or_default()));
    let absent: Vec<(String, CpuSet)> = absent_vcpus.chain(absent_helpers).collect();
    let now = |v: &u32| layout.vcpus.get(*v as usize).cloned().unwrap_or_default();
    let vcpus = layout.drifted.iter().map(|(v, want)| (format!("vCPU {v}"), want, now(v)));
    let helpers = layout.helpers.iter().filter_map(|(id, helper)| {
        Some((helper_name(*id), helper.drifted.as_ref()?, helper.cpus.clone().unwrap_or_default()))
    });
    let drifted: Vec<(String, &CpuSet, CpuSet)> = vcpus.chain(helpers).collect();
    let absent_line = |(thread, want): &(String, CpuSet)| match want.difference(all) {
        absent if absent == *want => format!("{thread} is pinned to CPU {want}, which is offline or missing"),
        absent => format!("{thread} is pinned to CPUs {want}, of which {absent} are offline or missing"),
    };
    let drift = |(thread, want, now): &(String, &CpuSet, CpuSet)| {
        format!("{thread} is configured for CPU {want} and may use {now}")
    };
    let mut lines: Vec<String> = absent.iter().map(absent_line).chain(drifted.iter().map(drift)).collect();
    if lines.is_empty() {
        return;
    }
    let marked = layout.absent.iter().filter(|v| pins.vcpu(*v).is_some()).chain(layout.drifted.keys().copied());
    let mut marks: Vec<Mark> = marked.map(Mark::Vcpu).collect();
    let emulator = guest.domain.emulator().filter(|_| layout.helpers.get(&None).is_some_and(|h| h.drifted.is_some()));
    marks.extend(emulator.map(|t| Mark::Thread(t.tid)));
    lines.push(format!("check: {}; look at: taskset -pc TID", fixes::virsh(guest, "vcpupin", "")));
    let fix = fixes::or_advice(guest_placement(ctx, guest), fixes::libvirt_advice(ONLINE_CPUS));
    let is_mild = drifted.is_empty() && absent.iter().all(|(_, want)| want.intersects(all));
    let severity = if is_mild { Severity::Info } else { Severity::Warning };
    let title = "A thread's CPU affinity is not the one in the configuration".into();
    let found = Finding { title, marks, ..Finding::new(severity, Confidence::High, lines, fix) };
    let found = if drifted.is_empty() { found.saying(OFFLINE) } else { found };
    verdicts.find(found);
}

fn overlap_problem(guests: usize, worst: &SharedCpu<'_>) -> String {
    match worst.users {
        [(_, a), (_, b)] if guests == 1 => format!("vCPUs {a} and {b} share a pin"),
        _ if guests == 1 => "its vCPUs share a pin".into(),
        _ => format!("shares pinned CPU {}", worst.cpu),
    }
}

pub(in crate::lint) fn helper_name(iothread: Option<u32>) -> String {
    iothread.map_or_else(|| "the emulator".into(), |id| format!("IOThread {id}"))
}
