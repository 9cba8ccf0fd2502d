//! Who may run where: pins against pins, helpers against vCPUs, sets of isolated CPUs.

pub(super) mod affinity_drift;

use crate::kvm::CpuSet;
use crate::kvm::thread_name::Role;
use crate::lint::context::guest::{Context, GuestContext};
use crate::lint::engine::text::figure;
use crate::lint::engine::verdicts::Verdicts;
use crate::lint::{Confidence, Finding, Fix, Mark, Severity, Target, fix, propose};
use crate::model::ThreadModel;

const CPUTUNE_DOC: &str = "https://libvirt.org/formatdomain.html#cpu-tuning";
const ISOLATION_DOC: &str = "https://docs.kernel.org/admin-guide/cpu-isolation.html";
const PARAMETERS_DOC: &str = "https://docs.kernel.org/admin-guide/kernel-parameters.html";

/// What a vCPU wants of a CPU, percent; `None` without figures.
fn demand(guest: &GuestContext<'_>, vcpu: u32) -> Option<f64> {
    guest.domain.vcpu(vcpu)?.cpu.map(|c| c.busy() + c.wait.unwrap_or(0.0))
}

/// A clash of two vCPUs on a CPU.
struct PinConflict {
    cpu: u32,
    mine: u32,
    other: u32,
    /// What each wants, where figures tell.
    wanted: Option<(f64, f64)>,
}

fn clashes(a: &GuestContext<'_>, b: &GuestContext<'_>, same: bool) -> Vec<PinConflict> {
    let (mine, theirs) = (&a.vcpu_cpus, &b.vcpu_cpus);
    let mut found = Vec::new();
    if !mine.single.intersects(&theirs.reach) && !theirs.single.intersects(&mine.reach) {
        return found;
    }
    for (v, set) in &mine.masks {
        for (w, other) in &theirs.masks {
            if same && w <= v {
                continue;
            }
            // A pin to one CPU is meant to be exclusive; larger sets are pools, which may be shared.
            let cpu = match (set.single(), other.single()) {
                (Some(cpu), _) if other.contains(cpu) => cpu,
                (_, Some(cpu)) if set.contains(cpu) => cpu,
                _ => continue,
            };
            found.push(PinConflict { cpu, mine: *v, other: *w, wanted: demand(a, *v).zip(demand(b, *w)) });
        }
    }
    found
}

/// P-03: pins that meet.
pub(crate) fn overlap(world: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    if !guest.running() {
        return;
    }
    let me = world.guests.iter().position(|g| std::ptr::eq(g.domain, guest.domain)).unwrap_or(0);
    for other in world.guests.iter().skip(me + 1).filter(|g| g.running()) {
        report(world, guest, Some(other), &clashes(guest, other, false), verdicts);
    }
    report(world, guest, None, &clashes(guest, guest, true), verdicts);
    partial(world, guest, verdicts);
}

fn report(
    world: &Context<'_>,
    guest: &GuestContext<'_>,
    other: Option<&GuestContext<'_>>,
    clashes: &[PinConflict],
    verdicts: &mut Verdicts,
) {
    if clashes.is_empty() {
        return;
    }
    let busy = world.options.thresholds.pinning.overlap_busy;
    let judge = |c: &PinConflict| match c.wanted {
        None => Severity::Warning,
        Some((a, b)) if a + b > 100.0 && a.min(b) >= busy => Severity::Critical,
        Some((a, b)) if a.min(b) >= busy => Severity::Warning,
        Some(_) => Severity::Info,
    };
    let severity = clashes.iter().map(judge).max().unwrap_or_default();
    let Some(worst) = clashes.iter().max_by_key(|c| judge(c)) else { return };
    let cpus: CpuSet = clashes.iter().map(|c| c.cpu).collect();
    let (title, whose) = match other {
        Some(o) => (
            format!("vCPUs of {} and {} are pinned to the same CPU", guest.name(), o.name()),
            format!("vCPU {} of {}", worst.other, o.name()),
        ),
        None => (
            "Two vCPUs of the guest are pinned to the same CPU".to_owned(),
            format!("vCPU {} of the same guest", worst.other),
        ),
    };
    let wanted =
        |(a, b): (f64, f64)| format!(": they want {} % and {} % of it {}", figure(a), figure(b), guest.window());
    let wanted = worst.wanted.map(wanted).unwrap_or_default();
    let mut evidence = vec![format!("vCPU {} and {whose} may both use CPU {}{wanted}", worst.mine, worst.cpu)];
    if cpus.len() > 1 {
        evidence.push(format!("the same on CPUs {cpus}"));
    }
    evidence.push(fix::check_pins(guest));
    let mut fixes = propose::least(world, other.unwrap_or(guest));
    if fixes.is_empty() {
        fixes.push(fix::advice("Give the guests CPU sets that do not meet; where there are too few CPUs, let them share a common set instead of single CPUs"));
    }
    let mut marks: Vec<Mark> = cpus.iter().map(Mark::Pcpu).collect();
    marks.extend(clashes.iter().map(|c| Mark::Vcpu(c.mine)));
    if let Some(o) = other {
        marks.extend(clashes.iter().filter_map(|c| Some(Mark::Thread(o.domain.vcpu(c.other)?.tid))));
    }
    verdicts.find(Finding {
        also: other.map(|o| o.name().to_owned()).into_iter().collect(),
        severity,
        confidence: if worst.wanted.is_some() { Confidence::High } else { Confidence::Medium },
        target: Target::Pcpu(worst.cpu),
        title,
        evidence,
        why: "A vCPU that may use one CPU only cannot give way: when both are busy each gets half, whatever is free elsewhere".into(),
        fix: fixes,
        see: vec![CPUTUNE_DOC.into()],
        cost: clashes.iter().filter_map(|c| c.wanted).map(|(a, b)| (a + b - 100.0).max(0.0)).reduce(|a, b| a + b).filter(|c| *c > 0.0),
        marks,
        ..Finding::default()
    });
}

/// Some vCPUs pinned, the rest free to run on the pinned ones' CPUs.
fn partial(world: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let masks = &guest.vcpu_cpus.masks;
    let single = &guest.vcpu_cpus.single;
    let Some(n) = guest.vcpus() else { return };
    let free = n as usize - masks.len().min(n as usize);
    if single.is_empty() || free == 0 || masks.iter().any(|m| m.1.single().is_none()) {
        return;
    }
    let loose: Vec<String> =
        (0..n as u32).filter(|v| !masks.iter().any(|m| m.0 == *v)).map(|v| v.to_string()).collect();
    let mut fixes = propose::fixes(world, guest);
    if fixes.is_empty() {
        fixes.push(fix::advice("Pin all vCPUs or none"));
    }
    verdicts.find(Finding {
        severity: Severity::Info,
        confidence: Confidence::High,
        title: "Some vCPUs are pinned and the others may run on their CPUs".into(),
        evidence: vec![
            format!("{} of {} vCPUs have a CPU of their own ({single}); vCPU {} may run anywhere, those CPUs included", masks.len(), figure(n), loose.join(", ")),
            fix::check_pins(guest),
        ],
        why: "A pinned vCPU cannot leave when one that is not pinned is put on its CPU, so the pins do not give it what they are for".into(),
        fix: fixes,
        see: vec![CPUTUNE_DOC.into()],
        marks: single.iter().map(Mark::Pcpu).collect(),
        ..Finding::default()
    });
}

/// CPUs for emulator and IOThreads: neither pinned by a vCPU nor isolated, near the guest's vCPUs.
fn room_for_helpers(world: &Context<'_>, guest: &GuestContext<'_>) -> Option<CpuSet> {
    let host = propose::topology(world.model);
    let isolated = host.isolated.clone().unwrap_or_default();
    let free = host
        .all()
        .difference(&propose::taken(world, guest))
        .difference(&guest.vcpu_cpus.single.clone())
        .difference(&isolated);
    let nodes: CpuSet = guest.vcpu_cpus.single.clone().iter().filter_map(|c| host.node_of(c)).collect();
    let near: CpuSet = free.iter().filter(|c| host.node_of(*c).is_some_and(|n| nodes.contains(n))).collect();
    [near, free].into_iter().find(|s| !s.is_empty())
}

fn helper_fixes(
    world: &Context<'_>,
    guest: &GuestContext<'_>,
    emulator: bool,
    iothreads: &[u32],
    tid: Option<i32>,
) -> Vec<Fix> {
    if propose::topology(world.model).cpus.is_empty() {
        let pinned = propose::taken(world, guest).union(&guest.vcpu_cpus.single);
        return vec![fix::advice(format!(
            "Pin emulator and IOThreads to CPUs outside of {pinned} (<emulatorpin>, <iothreadpin>); which ones the host has is not known here"
        ))];
    }
    let Some(room) = room_for_helpers(world, guest) else {
        return vec![fix::advice(
            "No CPU of this host is free of pinned vCPUs: take one vCPU away, so that emulator and IOThreads have a CPU",
        )];
    };
    if guest.config.libvirt == Some(false) {
        return tid
            .map(|tid| fix::command(format!("taskset -pc {room} {tid}")).needing("holds until the guest ends"))
            .into_iter()
            .collect();
    }
    let (mut pins, mut commands) = (Vec::new(), Vec::new());
    if emulator {
        pins.push(format!("  <emulatorpin cpuset='{room}'/>"));
        commands.push(fix::virsh(guest, "emulatorpin", &format!("{room} --live --config")));
    }
    for id in iothreads {
        pins.push(format!("  <iothreadpin iothread='{id}' cpuset='{room}'/>"));
        commands.push(fix::virsh(guest, "iothreadpin", &format!("{id} {room} --live --config")));
    }
    vec![
        fix::command(commands.join("\n")).needing("effective at once and kept"),
        fix::xml(format!("<cputune>\n{}\n</cputune>", pins.join("\n")))
            .needing("kept in the domain's XML; effective when the guest is started anew"),
    ]
}

/// P-04: emulator, IOThreads or vhost on a pinned vCPU's CPU.
pub(crate) fn emulator(world: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let single = guest.vcpu_cpus.single.clone();
    if single.is_empty() {
        return;
    }
    neighbours(world, guest, &single, verdicts);
    let helpers: Vec<&ThreadModel> = guest
        .domain
        .threads
        .iter()
        .filter(|t| matches!(t.role, Role::Emulator | Role::Iothread | Role::Vhost))
        .collect();
    if helpers.is_empty() {
        return configured_helpers(world, guest, &single, verdicts);
    }
    let t = &world.options.thresholds.pinning.emulator;
    let mut worst: Option<(Severity, f64, &ThreadModel, CpuSet)> = None;
    for thread in helpers {
        let Some(mask) = thread.place.affinity.as_deref() else { continue };
        let shared = mask.intersection(&single);
        if shared.is_empty() {
            continue;
        }
        let busy = thread.cpu.map_or(0.0, |c| c.busy());
        let there = thread.place.cpu.is_some_and(|c| shared.contains(c));
        // Nowhere else to go, or found there.
        let severity = if mask.is_subset(&single) {
            t.of(busy).unwrap_or_default()
        } else if there && let Some(s) = t.of(busy) {
            s
        } else {
            continue;
        };
        let realtime = guest
            .vcpu_threads()
            .any(|v| matches!(v.place.policy, Some(1 | 2)) && v.pinned_cpu().is_some_and(|c| shared.contains(c)));
        let severity = if realtime { severity.max(Severity::Warning) } else { severity };
        if worst.as_ref().is_none_or(|w| (severity, busy) > (w.0, w.1)) {
            worst = Some((severity, busy, thread, shared));
        }
    }
    let Some((severity, busy, thread, shared)) = worst else { return };
    let iothreads: Vec<u32> =
        if thread.role == Role::Iothread { thread.index.into_iter().collect() } else { Vec::new() };
    let mut marks = vec![Mark::Thread(thread.tid)];
    marks.extend(shared.iter().map(Mark::Pcpu));
    verdicts.find(Finding {
        severity,
        confidence: Confidence::High,
        target: Target::Thread(thread.tid),
        title: format!("The guest's {} may run on the CPU of a pinned vCPU", name_of(thread)),
        evidence: vec![
            format!(
                "{} ({}) may use CPUs {}, and CPU {shared} holds a pinned vCPU; it uses {} % of a CPU {}",
                name_of(thread),
                thread.tid,
                thread.place.affinity.as_deref().map_or_else(String::new, ToString::to_string),
                figure(busy),
                guest.window()
            ),
            format!("check: taskset -pc {}", thread.tid),
        ],
        why: "While it runs the vCPU does not, and the vCPU cannot move away. Device work of the guest (timers, disks, network) then stops the guest itself".into(),
        fix: helper_fixes(world, guest, thread.role != Role::Iothread || iothreads.is_empty(), &iothreads, Some(thread.tid)),
        see: vec![CPUTUNE_DOC.into(), "https://libvirt.org/kbase/kvm-realtime.html".into()],
        cost: Some(busy).filter(|b| *b > 0.0),
        marks,
        ..Finding::default()
    });
}

/// Emulators of other guests that are pinned where this guest's vCPUs are.
fn neighbours(world: &Context<'_>, guest: &GuestContext<'_>, single: &CpuSet, verdicts: &mut Verdicts) {
    let others = world.guests.iter().filter(|g| !std::ptr::eq(g.domain, guest.domain) && g.running());
    let shared: Vec<(&GuestContext<'_>, CpuSet)> = others
        .filter_map(|g| Some((g, g.config.pins.emulator.as_ref()?.intersection(single))))
        .filter(|(_, cpus)| !cpus.is_empty())
        .take(8)
        .collect();
    let Some(first) = shared.first().and_then(|(_, cpus)| cpus.first()) else { return };
    let told = |(other, cpus): &(&GuestContext<'_>, CpuSet)| {
        [format!("the emulator of {} is pinned to CPUs {cpus} of its vCPUs", other.name()), fix::check_pins(other)]
    };
    verdicts.find(Finding {
        also: shared.iter().map(|(other, _)| other.name().to_owned()).collect(),
        severity: if guest.config.pins.realtime.is_empty() { Severity::Info } else { Severity::Warning },
        confidence: Confidence::High,
        target: Target::Pcpu(first),
        title: "Another guest's emulator is pinned to CPUs of its vCPUs".into(),
        evidence: shared.iter().flat_map(told).collect(),
        why: "While it runs there the vCPU does not, and the vCPU cannot move away".into(),
        fix: shared.iter().flat_map(|(other, _)| helper_fixes(world, other, true, &[], None)).collect(),
        see: vec![CPUTUNE_DOC.into()],
        marks: shared.iter().flat_map(|(_, cpus)| cpus.iter()).map(Mark::Pcpu).collect(),
        ..Finding::default()
    });
}

fn name_of(thread: &ThreadModel) -> &'static str {
    match thread.role {
        Role::Iothread => "IOThread",
        Role::Vhost => "vhost thread",
        _ => "emulator thread",
    }
}

/// The same from the configuration alone.
fn configured_helpers(world: &Context<'_>, guest: &GuestContext<'_>, single: &CpuSet, verdicts: &mut Verdicts) {
    let pins = &guest.config.pins;
    let meets = |set: Option<&CpuSet>| set.is_some_and(|s| s.intersects(single));
    let emulator = meets(pins.emulator());
    let iothreads: Vec<u32> = (1..=pins.iothread_count).filter(|id| meets(pins.iothread(*id))).collect();
    let host = propose::topology(world.model);
    // A thread without a pin may run anywhere, but the scheduler puts nothing on isolated CPUs by itself.
    let may_roam = guest.domain.exits.count == 0
        && !host.cpus.is_empty()
        && !single.iter().all(|c| host.is_isolated(c))
        && guest.vcpus().is_some_and(|n| guest.vcpu_cpus.masks.len() as f64 >= n);
    let roams = may_roam && pins.emulator().is_none();
    let loose: Vec<u32> = (1..=pins.iothread_count).filter(|id| may_roam && pins.iothread(*id).is_none()).collect();
    if !emulator && iothreads.is_empty() && !roams && loose.is_empty() {
        return;
    }
    let mut evidence = Vec::new();
    if emulator {
        evidence.push(format!(
            "the emulator may use CPUs {}; vCPUs are pinned to {single}",
            pins.emulator().map_or_else(String::new, ToString::to_string)
        ));
    }
    for id in &iothreads {
        evidence.push(format!(
            "IOThread {id} may use CPUs {}; vCPUs are pinned to {single}",
            pins.iothread(*id).map_or_else(String::new, ToString::to_string)
        ));
    }
    if roams {
        evidence.push(format!("the emulator has no pin and may run on all CPUs, {single} of the vCPUs included"));
    }
    for id in &loose {
        evidence.push(format!("IOThread {id} has no pin and may run on all CPUs, {single} of the vCPUs included"));
    }
    evidence.push(fix::check_pins(guest));
    let mut to_pin = iothreads.clone();
    to_pin.extend(&loose);
    verdicts.find(Finding {
        // A vCPU of real-time priority does not let them run at all while it works.
        severity: if pins.realtime.is_empty() { Severity::Info } else { Severity::Warning },
        confidence: if emulator || !iothreads.is_empty() { Confidence::High } else { Confidence::Medium },
        title: "Emulator or IOThreads may run on CPUs of pinned vCPUs".into(),
        evidence,
        why: "While one of them runs there the vCPU does not, and the vCPU cannot move away".into(),
        fix: helper_fixes(world, guest, emulator || roams, &to_pin, None),
        see: vec![CPUTUNE_DOC.into(), "https://libvirt.org/kbase/kvm-realtime.html".into()],
        marks: single.iter().map(Mark::Pcpu).collect(),
        ..Finding::default()
    });
}

/// P-07: sets of isolated CPUs, where nothing spreads the load.
pub(crate) fn pile_up(world: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let host = propose::topology(world.model);
    let Some(isolated) = host.isolated.as_ref().filter(|s| !s.is_empty()) else { return };
    let loose = |g: &GuestContext<'_>| -> Vec<(u32, CpuSet)> {
        g.vcpu_cpus.masks.iter().filter(|(_, s)| s.len() > 1 && s.is_subset(isolated)).cloned().collect()
    };
    let piles = loose(guest);
    let busy = world.options.thresholds.pinning.busy;
    let mut per_cpu: std::collections::BTreeMap<u32, Vec<String>> = std::collections::BTreeMap::new();
    let mut sit = |g: &GuestContext<'_>, vcpus: &[(u32, CpuSet)], own: bool| {
        for (v, _) in vcpus {
            if let Some(cpu) = g.domain.vcpu(*v).and_then(|t| t.place.cpu)
                && demand(g, *v).is_some_and(|d| d >= busy)
                && (own || per_cpu.contains_key(&cpu))
            {
                let name = if own { v.to_string() } else { format!("{v} of {}", g.name()) };
                per_cpu.entry(cpu).or_default().push(name);
            }
        }
    };
    sit(guest, &piles, true);
    for other in world.guests.iter().filter(|g| !std::ptr::eq(g.domain, guest.domain) && g.running()) {
        sit(other, &loose(other), false);
    }
    let figures = guest.vcpu_threads().any(|t| t.cpu.is_some());
    let pile = per_cpu.iter().max_by_key(|p| p.1.len()).filter(|p| p.1.len() > 1);
    if pile.is_none() && (figures || piles.len() < 2) {
        return;
    }
    let all = piles.iter().fold(CpuSet::new(), |a, p| a.union(&p.1));
    let mut evidence = vec![format!("{} vCPUs may use the isolated CPUs {all}, several each", piles.len())];
    let mut marks: Vec<Mark> = piles.iter().map(|p| Mark::Vcpu(p.0)).collect();
    if let Some((cpu, vcpus)) = pile {
        evidence.insert(0, format!("vCPUs {} are all on CPU {cpu} and want it {}", vcpus.join(", "), guest.window()));
        marks.push(Mark::Pcpu(*cpu));
    }
    evidence.push("check: cat /sys/devices/system/cpu/isolated".into());
    let mut fixes = propose::fixes(world, guest);
    if fixes.is_empty() {
        fixes.push(fix::advice("Pin each vCPU to one isolated CPU, or use a cpuset partition instead of isolcpus, in which load is balanced"));
    }
    verdicts.find(Finding {
        severity: if pile.is_some() { Severity::Critical } else { Severity::Warning },
        confidence: if pile.is_some() { Confidence::High } else { Confidence::Medium },
        target: pile.map_or(Target::Domain, |p| Target::Pcpu(*p.0)),
        title: "vCPUs pile up on an isolated CPU: nothing balances load there".into(),
        evidence,
        why: "Isolated CPUs are taken out of the scheduler's load balancing. A task that may use several of them stays where it was first put, usually all \
              on the first, while the others idle"
            .into(),
        fix: fixes,
        see: vec![PARAMETERS_DOC.into(), ISOLATION_DOC.into()],
        marks,
        ..Finding::default()
    });
}
