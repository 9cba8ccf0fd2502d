//! Pins that conflict: vCPUs of several guests or of one on a CPU, and free vCPUs among pinned ones.

use super::texts;
use crate::lint::prelude::*;
use faults::CpuOverlap;

/// The most CPUs that evidence lists one by one.
const MAX_CPUS: usize = 8;

pub(super) fn overlap(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    for overlap in faults::overlaps(ctx.map(), &ctx.placement.layouts) {
        report(ctx, &overlap, verdicts);
    }
    for guest in ctx.guests.iter().filter(|g| g.running()) {
        partly_pinned(ctx, guest, verdicts);
    }
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

    fn line(&self, names: &[String], window: &str) -> String {
        let Self { cpu, count, .. } = self;
        let more = if *count > names.len() { format!(" and {} more", count - names.len()) } else { String::new() };
        let (users, part) = (names.join(", "), figure(100.0 / (*count).max(1) as f64));
        match &self.wanted {
            Some(wanted) => {
                let each = wanted.iter().map(|w| format!("{} %", figure(*w))).collect::<Vec<_>>().join(", ");
                format!("CPU {cpu}: {users}{more} want {each} of it {window}; busy at once, each gets {part} %")
            }
            None => format!("CPU {cpu}: {users}{more}; busy at once, each gets {part} % of it"),
        }
    }
}

fn report(ctx: &Context<'_>, overlap: &CpuOverlap, verdicts: &mut Verdicts) {
    let busy = ctx.thresholds().pinning.overlap_busy;
    let wanted = |(g, v): &(usize, u32)| ctx.guests.get(*g)?.domain.vcpu(*v)?.cpu.as_ref().map(demand);
    let shared: Vec<SharedCpu<'_>> = overlap
        .cpus
        .iter()
        .map(|(cpu, (users, count))| {
            let wanted = users.iter().map(wanted).collect();
            SharedCpu { cpu: *cpu, users, count: *count, wanted }
        })
        .collect();
    let worst = shared.iter().max_by_key(|s| s.severity(busy));
    let (Some(worst), Some(first)) = (worst, overlap.guests.first().and_then(|g| ctx.guests.get(*g))) else { return };
    let cpus: CpuSet = overlap.cpus.keys().copied().collect();
    let names: Vec<&str> = overlap.guests.iter().filter_map(|g| ctx.guests.get(*g)).map(GuestContext::name).collect();
    let named = |(g, v): &(usize, u32)| {
        let of = if overlap.guest_count > 1 { format!(" of {}", ctx.guests[*g].name()) } else { String::new() };
        let set = ctx.placement.layouts.get(*g).and_then(|l| l.vcpus.get(*v as usize)).filter(|set| set.len() > 1);
        format!("vCPU {v}{of}{}", set.map_or_else(String::new, |set| format!(" (CPUs {set})")))
    };
    let line = |s: &SharedCpu<'_>| s.line(&s.users.iter().map(named).collect::<Vec<_>>(), &first.window());
    let mut evidence: Vec<String> = vec![line(worst)];
    evidence.extend(shared.iter().filter(|s| s.cpu != worst.cpu).take(MAX_CPUS).map(line));
    if shared.len() > MAX_CPUS + 1 {
        evidence.push(format!("the same on CPUs {cpus}"));
    }
    evidence.push(fixes::check_pins(first));
    let mut fix = fixes::or_advice(placement(ctx, &overlap.guests), fixes::advice(texts::SEPARATE_SETS));
    if overlap.guest_count > overlap.guests.len() {
        fix.push(fixes::advice(fixes::placement::MORE_IN_PLAN));
    }
    let mark = |(g, v): &(usize, u32)| match g {
        g if *g == first.index => Some(Mark::Vcpu(*v)),
        g => ctx.guests[*g].domain.vcpu(*v).map(|t| Mark::Thread(t.tid)),
    };
    let users = shared.iter().flat_map(|s| s.users).filter_map(mark);
    let excess = |wanted: &Vec<f64>| (wanted.iter().sum::<f64>() - 100.0).max(0.0);
    let cost = shared.iter().filter_map(|s| s.wanted.as_ref()).map(excess).reduce(|a, b| a + b);
    let confidence = if worst.wanted.is_some() { Confidence::High } else { Confidence::Medium };
    let finding = Finding {
        also: names.iter().skip(1).map(|n| (*n).to_owned()).collect(),
        target: Target::Pcpu(worst.cpu),
        title: texts::overlap_title(&names, overlap.guest_count, worst.count),
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
    let found = Finding::new(Severity::Info, Confidence::High, evidence, fix).saying(texts::PARTLY_PINNED);
    let finding = Finding { marks: single.iter().map(Mark::Pcpu).collect(), ..found };
    verdicts.find_for(guest, finding);
}
