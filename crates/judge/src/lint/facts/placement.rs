//! The host and its guests as the placement plan takes them: as measured, else as configured.

use super::{GuestContext, Options, Severity};
use crate::model::{Model, ThreadModel, total};
use crate::placement::{CpuMap, GuestLayout, HelperLayout, Pinning, Shape};
use kvm::thread_name::Role;
use kvm::topology::EFFICIENCY_CPUS;
use kvm::{CpuSet, limits};
use std::collections::{BTreeMap, BTreeSet};

/// The host's CPUs, and where each guest's threads may run.
pub(super) fn layouts(
    model: &Model,
    guests: &[GuestContext<'_>],
    options: &Options,
) -> (CpuMap, Vec<GuestLayout>) {
    let host = &model.host.facts;
    let efficiency = host
        .params
        .get(EFFICIENCY_CPUS)
        .and_then(|list| CpuSet::parse(list).ok())
        .unwrap_or_default();
    let map = CpuMap::new(&host.topology, &online(model), &efficiency);
    let map = map.with_busy(&host_tasks_by_cpu(model, options).keys().copied().collect());
    let mut layouts: Vec<GuestLayout> = guests
        .iter()
        .map(|guest| layout(&map, guest, options))
        .collect();
    for guest in piled_up(&map, guests, options) {
        layouts[guest].piled_up = true;
    }
    (map, layouts)
}

/// The CPUs that are online, else all CPUs of the topology: files may describe a host without its
/// CPU times.
pub(super) fn online(model: &Model) -> CpuSet {
    let online: CpuSet = model.host.cpus.iter().map(|c| c.cpu).collect();
    if online.is_empty() {
        model.host.facts.topology.all()
    } else {
        online
    }
}

/// What host tasks use of the CPUs on which that is enough to disturb a vCPU, percent.
pub(crate) fn host_tasks_by_cpu(model: &Model, options: &Options) -> BTreeMap<u32, f64> {
    let mut used: BTreeMap<u32, f64> = BTreeMap::new();
    for task in &model.host.tasks {
        *used.entry(task.last_cpu).or_default() += task.cpu_percent;
    }
    let disturbs = &options.thresholds.pinning.host_tasks;
    used.retain(|_, percent| disturbs.severity(*percent) >= Some(Severity::Warning));
    used
}

/// The CPUs of a set that the host has; all of them where the host is unknown.
fn there(map: &CpuMap, cpus: &CpuSet) -> CpuSet {
    if map.all.is_empty() {
        cpus.clone()
    } else {
        cpus.intersection(&map.all)
    }
}

/// Whether a set names CPUs that the host does not have.
fn is_absent(map: &CpuMap, cpus: &CpuSet) -> bool {
    !map.all.is_empty() && !cpus.is_subset(&map.all)
}

/// The CPUs that each vCPU may use, by what is measured, else by what is configured; no entry:
/// unknown.
fn vcpu_cpus(guest: &GuestContext<'_>, count: u32) -> BTreeMap<u32, CpuSet> {
    let mut cpus: BTreeMap<u32, CpuSet> = BTreeMap::new();
    for vcpu in guest.domain.vcpus() {
        if let (Some(v), Some(measured)) = (vcpu.index, vcpu.place.affinity.as_deref())
            && v < limits::VCPUS
        {
            cpus.insert(v, measured.clone());
        }
    }
    if cpus.is_empty() {
        for v in 0..count {
            let pin = guest.config.pins.vcpu(v).filter(|set| !set.is_empty());
            cpus.extend(pin.map(|set| (v, set.clone())));
        }
    }
    cpus
}

fn vcpu_count(guest: &GuestContext<'_>) -> u32 {
    let seen = guest.domain.vcpus().filter_map(|t| t.index);
    let pinned = guest.config.pins.vcpus.keys().copied();
    let last = seen.chain(pinned).max();
    let count = match guest.domain.vcpu_count() {
        0 => guest.config.vcpus.unwrap_or(0),
        count => count,
    };
    count
        .max(last.map_or(0, |v| v.saturating_add(1)))
        .min(limits::VCPUS)
}

fn layout(map: &CpuMap, guest: &GuestContext<'_>, options: &Options) -> GuestLayout {
    let config = &guest.config;
    let count = vcpu_count(guest);
    let now = vcpu_cpus(guest, count);
    let mut vcpus = Vec::new();
    let mut absent = CpuSet::new();
    for v in 0..count {
        vcpus.push(match now.get(&v) {
            Some(set) => there(map, set),
            None => map.all.clone(),
        });
        if config.pins.vcpu(v).is_some_and(|set| is_absent(map, set)) {
            absent.insert(v);
        }
    }
    let libvirt = config.libvirt == Some(true);
    let measured = guest.domain.vcpus().any(|t| t.place.affinity.is_some());
    let mut layout = GuestLayout {
        running: guest.running(),
        shape: shape(guest, count),
        cells: config.shown.cells.then_some(config.numa.cells.len()),
        threads: config.threads_per_core().unwrap_or(1),
        vcpus,
        runs_on: guest
            .domain
            .vcpus()
            .filter_map(|t| Some((t.index?, t.place.cpu?)))
            .collect(),
        absent,
        bound: config.numa.nodes.clone(),
        memory: most_memory(map, guest),
        ..GuestLayout::default()
    };
    if libvirt && measured {
        for (v, wanted) in &config.pins.vcpus {
            let wanted = there(map, wanted);
            let now = layout.vcpus.get(*v as usize);
            if !wanted.is_empty() && now.is_some_and(|now| *now != wanted) {
                layout.drifted.insert(*v, wanted);
            }
        }
    }
    helpers(map, guest, options, &mut layout);
    layout.pinning = if is_pinned_as_one(guest, &layout, &now) {
        Pinning::OneSet
    } else if !config.shown.pins && !measured {
        Pinning::PartlyKnown
    } else {
        Pinning::Each
    };
    layout
}

/// Whether Proxmox pins all threads of a guest to one set of CPUs.
fn is_pinned_as_one(
    guest: &GuestContext<'_>,
    layout: &GuestLayout,
    now: &BTreeMap<u32, CpuSet>,
) -> bool {
    let mut helpers = layout.helpers.values().filter_map(|h| h.cpus.as_ref());
    guest.proxmox_id().is_some()
        && now.values().all(|set| now.values().next() == Some(set))
        && helpers.all(|cpus| Some(cpus) == layout.vcpus.first())
}

/// The nodes that hold most of a guest's memory; where that is not known, those on which its vCPUs
/// are.
fn most_memory(map: &CpuMap, guest: &GuestContext<'_>) -> CpuSet {
    let by_node = &guest.domain.node_memory;
    if by_node.is_empty() {
        return map.nodes_of(&guest.domain.vcpus().filter_map(|t| t.place.cpu).collect());
    }
    let all = total(by_node.values().copied());
    let most = by_node.iter().filter(|(_, bytes)| **bytes > all / 2);
    most.map(|(node, _)| *node).collect()
}

/// What is known of the guest's topology. It can be changed where it is for exactly these vCPUs.
fn shape(guest: &GuestContext<'_>, count: u32) -> Shape {
    let config = &guest.config;
    if config.threads_per_core().is_none() {
        Shape::Unknown
    } else if count == 0 || config.topology.is_some_and(|t| t.vcpus() != count) {
        Shape::Fixed
    } else {
        Shape::Threads
    }
}

/// The emulator and the `IOThreads`.
fn helpers(map: &CpuMap, guest: &GuestContext<'_>, options: &Options, layout: &mut GuestLayout) {
    let single = layout.single(map);
    let pins = &guest.config.pins;
    let libvirt = guest.config.libvirt == Some(true);
    // A table of exits says that the guest ran, and not what its helpers did; parts of a
    // configuration may have no pins.
    let is_unseen = guest.domain.exits.count > 0 || !guest.config.shown.pins;
    let numbers = (1..=pins.iothread_count.min(limits::IOTHREADS)).map(Some);
    let all: BTreeSet<Option<u32>> = numbers
        .chain(pins.helpers.keys().copied())
        .chain([None])
        .collect();
    for id in all.into_iter().take(limits::IOTHREADS as usize + 1) {
        let configured = pins.helper(id);
        let thread = guest.domain.helper(id);
        let wanted = configured.map(|cpus| there(map, cpus));
        let measured = thread.and_then(|thread| thread.place.affinity.as_deref());
        let measured = measured.map(|cpus| there(map, cpus));
        let drifts = libvirt && measured.is_some() && measured != wanted;
        let is_restricted = measured.as_ref().is_some_and(|cpus| map.restricts(cpus));
        let helper = HelperLayout {
            drifted: wanted.clone().filter(|wanted| drifts && !wanted.is_empty()),
            pinned: configured.is_some() || !libvirt && is_restricted,
            absent: configured.is_some_and(|cpus| is_absent(map, cpus)),
            is_idle: match thread {
                Some(thread) if thread.was_seen() => is_idle(thread, &single, options),
                _ => configured.is_none() && is_unseen,
            },
            cpus: measured.or(wanted),
        };
        layout.helpers.insert(id, helper);
    }
    // vhost threads run where the emulator may.
    let emulator = layout.helpers.entry(None).or_default();
    for thread in &guest.domain.threads {
        if thread.role == Role::Vhost {
            emulator.is_idle &= is_idle(thread, &single, options);
        }
    }
}

/// Whether a helper thread uses no part of one of these CPUs that matters.
fn is_idle(thread: &ThreadModel, cpus: &CpuSet, options: &Options) -> bool {
    let is_there = thread.place.cpu.is_some_and(|c| cpus.contains(c));
    let busy = thread.cpu.map_or(0.0, |c| c.busy());
    let is_busy = options.thresholds.pinning.emulator.severity(busy).is_some();
    !(is_busy && is_there)
}

/// The guests whose busy vCPUs share a CPU of their sets of isolated CPUs with other such vCPUs.
fn piled_up(
    map: &CpuMap,
    guests: &[GuestContext<'_>],
    options: &Options,
) -> impl Iterator<Item = usize> {
    let busy = options.thresholds.pinning.busy;
    let mut by_cpu: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for guest in guests.iter().filter(|g| g.running()) {
        for vcpu in guest.domain.vcpus() {
            let (Some(cpu), Some(affinity)) = (vcpu.place.cpu, vcpu.place.affinity.as_deref())
            else {
                continue;
            };
            let set = there(map, affinity);
            if vcpu.cpu.is_some_and(|c| c.wanted() >= busy)
                && set.len() > 1
                && set.is_subset(&map.isolated)
            {
                by_cpu.entry(cpu).or_default().push(guest.index);
            }
        }
    }
    by_cpu.into_values().filter(|on| on.len() > 1).flatten()
}

/// The words for an IOThread, or for the emulator.
pub(crate) fn helper_name(iothread: Option<u32>) -> String {
    iothread.map_or_else(|| "the emulator".into(), |id| format!("IOThread {id}"))
}
