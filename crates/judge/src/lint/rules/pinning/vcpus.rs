//! Pins of vCPUs: conflicts, sets of isolated CPUs, and threads that are not where the configuration wants them.

use crate::figures::figure;
use crate::figures::listed;
use crate::lint::facts::Context;
use crate::lint::facts::finding::{Confidence, Finding, Mark, Severity, Target, known};
use crate::lint::facts::guest::GuestContext;
use crate::lint::facts::placement::helper_name;
use crate::lint::facts::prose::Prose;
use crate::lint::facts::verdicts::Verdicts;
use crate::lint::fixes;
use crate::lint::fixes::placement::{guest_placement, placement};
use crate::model::ThreadModel;
use crate::placement::faults::CpuOverlap;
use crate::placement::{Pinning, faults};
use kvm::CpuSet;
use std::collections::BTreeMap;

/// The most CPUs or threads that evidence lists one by one.
const MAX_LINES: usize = 8;

const OFFLINE: Prose = Prose {
    title: "Threads are pinned to CPUs that the host does not have online",
    problem: "pinned to offline CPUs",
    why: "Nothing can run there: the guest does not start, or runs on other CPUs of its pins",
};
const STRAY: Prose = Prose {
    title: "vCPUs were on CPUs that their affinity excludes",
    problem: "on CPUs it may not use",
    why: "A thread keeps its CPU until it runs again: the affinity was changed after that, or one of the two figures \
        is not of this guest",
};
const WHICH_IS_RIGHT: &str = "Pin the vCPUs to the CPUs that they are meant for: those where they were, or those of \
    their affinity (virsh vcpupin)";
const SEPARATE_SETS: &str = "Give the guests CPU sets that do not overlap, or one common set";
const ONE_CPU_EACH: &str = "Pin each of these vCPUs to another CPU, or remove their pins";
const NOT_ISOLATED: &str = "Take isolcpus= off the host's kernel command line: Proxmox gives all threads of a guest \
    one set of CPUs, and nothing balances load on isolated ones";
const PIN_TO_ISOLATED: &str = "Pin each vCPU to one isolated CPU, or use a cpuset partition instead of isolcpus";
const ONLINE_CPUS: &str = "Pin these threads to CPUs that are online (virsh vcpupin, emulatorpin)";

pub(super) fn overlap(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    let overlaps = faults::overlaps(ctx.map(), &ctx.layouts);
    overlaps.iter().for_each(|overlap| report(ctx, overlap, verdicts));
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
    let shared = overlap.cpus.iter().map(|(cpu, faults::CpuUsers { listed: users, count })| {
        let wanted = users.iter().map(wanted).collect();
        SharedCpu { cpu: *cpu, users, count: *count, wanted }
    });
    let shared: Vec<SharedCpu<'_>> = shared.collect();
    // Of equals the first.
    let worst = shared.iter().rev().max_by_key(|s| s.severity(busy));
    let cpus: CpuSet = overlap.cpus.keys().copied().collect();
    // The guests that cause it come first.
    let mut guests = overlap.guests.clone();
    guests.sort_by_key(|g| !ctx.layouts.get(*g).is_some_and(|layout| layout.strays_to(ctx.map(), &cpus)));
    let (Some(worst), Some(first)) = (worst, guests.first().and_then(|g| ctx.guests.get(*g))) else { return };
    let names: Vec<&str> = guests.iter().filter_map(|g| ctx.guests.get(*g)).map(GuestContext::name).collect();
    let line = |s: &SharedCpu<'_>| {
        let users = users_of(ctx, s, &cpus, overlap.guest_count > 1);
        let more = s.count.saturating_sub(s.users.len());
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let (cpu, window, part) = (s.cpu, first.window(), figure(100.0 / s.count.max(1) as f64));
        let Some(wanted) = &s.wanted else {
            return format!("CPU {cpu}: {users}{more}; busy at once, each gets {part} % of it");
        };
        let mut each: Vec<String> = wanted.iter().map(|w| format!("{} %", figure(*w))).collect();
        each.dedup();
        let want = if each.len() == 1 { "each want" } else { "want" };
        let each = each.join(", ");
        format!("CPU {cpu}: {users}{more} {want} {each} of it {window}; busy at once, each gets {part} %")
    };
    let others = shared.iter().filter(|s| s.cpu != worst.cpu).take(MAX_LINES);
    let rest = (shared.len() > MAX_LINES + 1).then(|| format!("the same on CPUs {cpus}"));
    let evidence = [worst].into_iter().chain(others).map(line).chain(rest).collect();
    let otherwise = if overlap.guest_count > 1 { SEPARATE_SETS } else { ONE_CPU_EACH };
    let mut fix = fixes::or_advice(placement(ctx, &guests), fixes::advice(otherwise));
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

/// The vCPUs that want a CPU; many of one guest together, unless each has its figure. One that was seen elsewhere than
/// on the shared CPUs is told so.
fn users_of(ctx: &Context<'_>, shared: &SharedCpu<'_>, cpus: &CpuSet, names_guests: bool) -> String {
    let place = |(guest, vcpu): &(usize, u32)| {
        let layout = &ctx.layouts[*guest];
        let set = layout.vcpus.get(*vcpu as usize).filter(|set| set.len() > 1);
        (*guest, set, layout.runs_on.get(vcpu).filter(|now| !cpus.contains(**now)))
    };
    let named = |users: &[(usize, u32)]| {
        let (guest, set, elsewhere) = place(&users[0]);
        let vcpus: CpuSet = users.iter().map(|(_, vcpu)| *vcpu).collect();
        let of = if names_guests { format!(" of {}", ctx.guests[guest].name()) } else { String::new() };
        let several = if vcpus.len() > 1 { "s" } else { "" };
        let set = set.map_or_else(String::new, |set| format!(" (CPUs {set})"));
        let seen = elsewhere.map_or_else(String::new, |now| format!(" (seen on CPU {now})"));
        format!("vCPU{several} {vcpus}{of}{seen}{set}")
    };
    let are_many = shared.wanted.is_none() && shared.users.len() > 2;
    let groups = shared.users.chunk_by(|a, b| are_many && place(a) == place(b));
    groups.map(named).collect::<Vec<_>>().join(", ")
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
    let evidence =
        known([on_pile, Some(format!("{} vCPUs may each use several of the isolated CPUs {all}", vcpus.len()))]);
    let marks = vcpus.iter().map(|p| Mark::Vcpu(p.0)).chain(pile.map(|p| Mark::Pcpu(p.0))).collect();
    let otherwise = if ctx.layout(guest).pinning == Pinning::OneSet { NOT_ISOLATED } else { PIN_TO_ISOLATED };
    let fix = fixes::or_advice(guest_placement(ctx, guest), fixes::advice(otherwise));
    let target = pile.map_or(Target::Domain, |p| Target::Pcpu(p.0));
    let problem = pile.map_or_else(String::new, |(cpu, _)| format!("vCPUs crowd CPU {cpu}"));
    Some(Finding { target, problem, marks, ..Finding::new(severity, confidence, evidence, fix) })
}

/// Threads of a text that were on a CPU outside of their affinity. On a live host both are read at different times.
fn stray(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let online = &ctx.map().all;
    let outside = |t: &ThreadModel| {
        let (vcpu, cpu, cpus) = (t.index?, t.place.cpu?, t.place.affinity.as_deref()?);
        // With none of them online it runs where it can, and the pins are the finding.
        let is_stray = !cpus.contains(cpu) && (online.is_empty() || cpus.intersects(online));
        is_stray.then(|| format!("vCPU {vcpu} was on CPU {cpu} and may run on CPU {cpus} only"))
    };
    let strays: Vec<String> = guest.domain.vcpus().filter_map(outside).take(MAX_LINES).collect();
    if !strays.is_empty() && ctx.model.host.cpus.is_empty() {
        let found = Finding::new(Severity::Info, Confidence::Medium, strays, vec![fixes::advice(WHICH_IS_RIGHT)]);
        verdicts.find(found.saying(STRAY));
    }
}

pub(super) fn affinity(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let pins = &guest.config.pins;
    if guest.running() {
        stray(ctx, guest, verdicts);
    }
    if !guest.running() || guest.config.libvirt != Some(true) || *pins == crate::model::Pins::default() {
        return;
    }
    let mut threads = guest.domain.vcpus().peekable();
    if threads.peek().is_some() && threads.all(|t| t.place.affinity.is_none()) {
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
    let online = (!absent.is_empty()).then(|| format!("the host has CPUs {all} online"));
    let lines: Vec<String> = absent.iter().map(absent_line).chain(online).chain(drifted.iter().map(drift)).collect();
    if lines.is_empty() {
        return;
    }
    let marked = layout.absent.iter().filter(|v| pins.vcpu(*v).is_some()).chain(layout.drifted.keys().copied());
    let mut marks: Vec<Mark> = marked.map(Mark::Vcpu).collect();
    let emulator = guest.domain.emulator().filter(|_| layout.helpers.get(&None).is_some_and(|h| h.drifted.is_some()));
    marks.extend(emulator.map(|t| Mark::Thread(t.tid)));
    let fix = fixes::or_advice(guest_placement(ctx, guest), fixes::libvirt_advice(ONLINE_CPUS));
    let is_mild = drifted.is_empty() && absent.iter().all(|(_, want)| want.intersects(all));
    // Of two texts, one can be older than the other.
    let is_dated = absent.is_empty() && ctx.model.host.cpus.is_empty();
    let severity = if is_mild || is_dated { Severity::Info } else { Severity::Warning };
    let confidence = if is_dated { Confidence::Medium } else { Confidence::High };
    let title = "A thread's CPU affinity is not the one in the configuration".into();
    let found = Finding { title, marks, ..Finding::new(severity, confidence, lines, fix) };
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
