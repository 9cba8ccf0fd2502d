//! The placement plan as fixes: commands to try at once, XML to keep, and the way back to the pins as they are now.

use super::{
    AT_NEXT_START, LIVE_ALONE, LIVE_AND_KEPT, POWER_CYCLE, UNTIL_GUEST_ENDS, advice, command, either, into_xml,
    is_transient, qemu, scope, virsh, xml,
};
use crate::figures::bytes;
use crate::lint::facts::Context;
use crate::lint::facts::finding::{Audience, Fix};
use crate::lint::facts::guest::GuestContext;
use crate::lint::facts::shell::{quoted, unit_argument};
use crate::model::{Pins, ThreadModel};
use crate::placement::{GuestLayout, GuestPlan, Pinning, Shape};
use kvm::CpuSet;
use sample::GroupCpus;
use std::collections::BTreeMap;

/// The most pins in one fix.
const MAX_PINS: usize = 512;
/// What a pin that the configuration has already needs.
const AT_ONCE: &str = "takes effect at once";
const TOO_FEW_FOR_OTHERS: &str = "with one left for the host, this host has too few CPUs for the others";
/// Comes first where CPUs are short.
const TOO_FEW_FOR_ONE: &str = "Give the guest fewer vCPUs: with one left for the host, there are too few CPUs or cores \
    for them. Until then its vCPUs share a common set";
const TOO_FEW_CPUS: &str = "Take load off this host first: it has too few CPUs for vCPUs with CPUs of their own. Move \
    a guest to another host, or remove vCPUs that it does not need. Until then the guests share a common set";
const MOVE_MEMORY_NEED: &str = "moves the memory at once; the guest may stall meanwhile";
pub(crate) const MORE_IN_PLAN: &str = "`kvmtop plan` prints the rest, and the plan as a whole";

/// What the plan changes of some guests. Empty where it changes nothing, or the host's CPUs are unknown.
pub(crate) fn placement(ctx: &Context<'_>, guests: &[usize]) -> Vec<Fix> {
    let plan = ctx.plan();
    let changed: Vec<(&GuestContext<'_>, &GuestPlan)> = guests
        .iter()
        .filter_map(|g| Some((ctx.guests.get(*g)?, plan.guests.get(*g)?)))
        .filter(|(_, p)| !p.is_empty())
        .collect();
    changes(ctx, &changed)
}

/// As [`placement`], for changes that are not of the plan.
pub(crate) fn changes(ctx: &Context<'_>, changed: &[(&GuestContext<'_>, &GuestPlan)]) -> Vec<Fix> {
    let mut fix = Vec::new();
    if changed.iter().any(|(_, p)| p.shares) {
        let is_alone = ctx.guests.iter().filter(|g| g.running()).nth(1).is_none();
        fix.push(advice(if is_alone { TOO_FEW_FOR_ONE } else { TOO_FEW_CPUS }));
    }
    fix.extend(widen(changed.iter().copied()));
    let lines = changed.iter().flat_map(|(guest, part)| pin_commands(ctx, guest, part));
    let mut lines: Vec<PinCommand> = lines.take(MAX_PINS + 1).collect();
    let is_cut = lines.len() > MAX_PINS;
    lines.truncate(MAX_PINS);
    for need in [LIVE_AND_KEPT, AT_NEXT_START, AT_ONCE, LIVE_ALONE, UNTIL_GUEST_ENDS] {
        let of_need = || lines.iter().filter(|line| line.need == need);
        let all = |text: fn(&PinCommand) -> &str| of_need().map(text).collect::<Vec<_>>().join("\n");
        let text = all(|line| &line.text);
        if !text.is_empty() {
            let audience = if text.contains("virsh ") { Audience::Libvirt } else { Audience::Everyone };
            fix.push(command(text).needing(need).only(audience).undone_by(all(|line| &line.undo)));
        }
    }
    // Without this the vCPUs are far from the memory until the guest starts again.
    let unbound = |g: &GuestContext<'_>| g.config.numa.nodes.is_none() && g.config.numa.cells.is_empty();
    let moved = changed.iter().filter(|(guest, _)| unbound(guest)).take(MAX_PINS);
    fix.extend(moved.filter_map(|(guest, part)| migrate(guest, part.memory.as_ref()?)));
    for (guest, part) in changed.iter().take(MAX_PINS) {
        fix.extend(pins_xml(guest, part));
        fix.extend(shape(ctx, guest, part));
    }
    if is_cut {
        fix.push(advice(MORE_IN_PLAN));
    }
    fix
}

/// Moves what a running guest has of memory on other nodes.
pub(crate) fn migrate(guest: &GuestContext<'_>, nodes: &CpuSet) -> Option<Fix> {
    let others: CpuSet = guest.domain.node_memory.keys().copied().filter(|node| !nodes.contains(*node)).collect();
    let pid = guest.domain.facts.pid.filter(|_| !others.is_empty())?;
    Some(command(format!("migratepages {pid} {others} {nodes}")).needing(MOVE_MEMORY_NEED))
}

/// As [`placement`], for one guest.
pub(crate) fn guest_placement(ctx: &Context<'_>, guest: &GuestContext<'_>) -> Vec<Fix> {
    placement(ctx, &[guest.index])
}

/// What a guest needs that has too many vCPUs for this host and whose pins are right: only the vCPUs with a CPU of
/// their own, and their cores as they are. `None` where its pins have to change.
pub(crate) fn keep_pins(ctx: &Context<'_>, guest: &GuestContext<'_>) -> Option<Vec<Fix>> {
    let (map, layout, part) = (ctx.map(), ctx.layout(guest), ctx.plan().guests.get(guest.index)?);
    let own = layout.single(map);
    let takes_own = |other: &GuestLayout| other.single(map).intersects(&own) || other.reach(map).intersects(&own);
    let mut others = ctx.layouts.iter().enumerate().filter(|(g, other)| *g != guest.index && other.running);
    let is_wrong = !layout.absent.is_empty() || !layout.drifted.is_empty() || layout.pooled(map).next().is_some();
    let takes_xml = layout.cells.len() < 2 && guest.config.libvirt != Some(false);
    if !part.shares || !takes_xml || is_wrong || others.any(|(_, other)| takes_own(other)) {
        return None;
    }
    let pinned: Vec<u32> = layout.pins(map).map(|(vcpu, _)| vcpu).collect();
    let count = pinned.len() as u32;
    let are_first = pinned.iter().copied().eq(0..count);
    if count == 0 || !are_first || own.len() != pinned.len() {
        return None;
    }
    let of_host = GuestLayout { shape: Shape::Fixed, threads: map.threads(), ..layout.clone() };
    let of_one = GuestLayout { shape: Shape::Fixed, threads: 1, ..layout.clone() };
    let threads =
        if of_host.threads > 1 && count.is_multiple_of(of_host.threads) && of_host.threads_apart(map).is_empty() {
            of_host.threads
        } else if of_one.shared_cores(map).is_empty() {
            1
        } else {
            return None;
        };
    let mut fix = Vec::new();
    let mut text = String::new();
    if count < layout.vcpus.len() as u32 {
        fix.push(advice(format!("Give the guest {count} vCPUs, those with a CPU of their own: {TOO_FEW_FOR_OTHERS}")));
        text = format!("<vcpu placement='static'>{count}</vcpu>\n");
    }
    let cores = count / threads;
    text += &format!("<cpu>\n  <topology sockets='1' dies='1' cores='{cores}' threads='{threads}'/>\n</cpu>");
    fix.push(xml(guest, text).needing(&into_xml(guest, POWER_CYCLE)));
    Some(fix)
}

/// A pin of a plan.
struct PlannedPin<'a> {
    /// The command of `virsh`.
    verb: &'static str,
    /// The number of the vCPU or `IOThread`.
    number: Option<u32>,
    cpus: &'a CpuSet,
    /// Where the thread may run now.
    was: Option<&'a CpuSet>,
    /// What the configuration pins the thread to.
    configured: Option<&'a CpuSet>,
    thread: Option<&'a ThreadModel>,
}

/// A command that pins, and its opposite.
struct PinCommand {
    need: &'static str,
    text: String,
    undo: String,
}

/// The commands that pin a guest's threads: vCPUs, emulator, `IOThreads`.
fn pin_commands(ctx: &Context<'_>, guest: &GuestContext<'_>, part: &GuestPlan) -> Vec<PinCommand> {
    let (map, pins, domain, now) = (ctx.map(), &guest.config.pins, guest.domain, ctx.layout(guest));
    let vcpus = part.vcpus.iter().map(|(v, cpus)| PlannedPin {
        verb: "vcpupin",
        number: Some(*v),
        cpus,
        was: now.vcpus.get(*v as usize),
        configured: pins.vcpus.get(v),
        thread: domain.vcpu(*v),
    });
    let pins = vcpus.chain(part.helpers.iter().map(|(id, cpus)| PlannedPin {
        verb: if id.is_some() { "iothreadpin" } else { "emulatorpin" },
        number: *id,
        cpus,
        was: now.helpers.get(id).and_then(|helper| helper.cpus.as_ref()),
        configured: pins.helpers.get(id),
        thread: domain.helper(*id),
    }));
    let was = |pin: &PlannedPin<'_>| pin.was.filter(|cpus| !cpus.is_empty()).unwrap_or(&map.all).clone();
    if guest.config.libvirt != Some(false) {
        let line = |pin: PlannedPin<'_>| {
            let (need, keep) = match scope(guest) {
                at_start if guest.is_shut_off() => (AT_NEXT_START, at_start),
                _ if pin.configured == Some(pin.cpus) => (AT_ONCE, "--live"),
                alone if is_transient(guest) => (LIVE_ALONE, alone),
                both => (LIVE_AND_KEPT, both),
            };
            // `virsh` takes `r` for all CPUs of the host (virsh(1), vcpupin, emulatorpin, iothreadpin).
            let was =
                Some(was(&pin)).filter(|was| map.restricts(was)).map_or_else(|| "r".into(), |was| was.to_string());
            let number = pin.number.map_or_else(String::new, |n| format!("{n} "));
            let set = |cpus: &str| virsh(guest, pin.verb, &format!("{number}{cpus} {keep}"));
            PinCommand { need, text: set(&pin.cpus.to_string()), undo: set(&was) }
        };
        return pins.map(line).collect();
    }
    // A file may not have the threads' ids, and 0 is the shell's own.
    let taskset = |pin: PlannedPin<'_>| {
        let tid = pin.thread.map(|thread| thread.tid).filter(|tid| *tid > 0)?;
        let [text, undo] = [pin.cpus, &was(&pin)].map(|cpus| format!("taskset -pc {cpus} {tid}"));
        Some(PinCommand { need: UNTIL_GUEST_ENDS, text, undo })
    };
    let kept = guest.proxmox_id().filter(|_| now.pinning == Pinning::OneSet).map(|id| {
        // All threads have one set.
        let set = |layout: Option<&GuestLayout>| match layout.and_then(|l| l.vcpus.first()) {
            Some(cpus) if map.restricts(cpus) => format!("qm set {id} --affinity {cpus}"),
            _ => format!("qm set {id} --delete affinity"),
        };
        PinCommand { need: AT_NEXT_START, text: set(ctx.planned(guest)), undo: set(Some(now)) }
    });
    kept.filter(|line| line.text != line.undo).into_iter().chain(pins.filter_map(taskset)).collect()
}

/// The pins as XML, for a guest of libvirt. Where vCPUs move these are all pins, also those that stay: who replaces
/// the element loses none. Where only helper threads move it is their pins alone.
fn pins_xml(guest: &GuestContext<'_>, part: &GuestPlan) -> Option<Fix> {
    if guest.config.libvirt == Some(false) {
        return None;
    }
    let pins = &guest.config.pins;
    let vcpus_move = part.vcpus.iter().any(|(v, cpus)| pins.vcpus.get(v) != Some(cpus));
    let mut kept = if vcpus_move { pins.clone() } else { Pins::default() };
    if vcpus_move {
        kept.vcpus.extend(part.vcpus.clone());
    }
    let moved = part.helpers.iter().filter(|(id, cpus)| vcpus_move || pins.helpers.get(id) != Some(cpus));
    kept.helpers.extend(moved.map(|(id, cpus)| (*id, cpus.clone())));
    let vcpu = |(v, cpus): (&u32, &CpuSet)| format!("\n  <vcpupin vcpu='{v}' cpuset='{cpus}'/>");
    let helper = |(id, cpus): (&Option<u32>, &CpuSet)| match id {
        Some(id) => format!("\n  <iothreadpin iothread='{id}' cpuset='{cpus}'/>"),
        None => format!("\n  <emulatorpin cpuset='{cpus}'/>"),
    };
    let vcpus = kept.vcpus.iter().take(MAX_PINS).map(vcpu);
    let text: String = vcpus.chain(kept.helpers.iter().take(MAX_PINS).map(helper)).collect();
    let need = into_xml(guest, AT_NEXT_START);
    (!text.is_empty()).then(|| xml(guest, format!("<cputune>{text}\n</cputune>")).needing(&need))
}

/// What a guest has to see of cores and nodes, and where its memory belongs.
fn shape(ctx: &Context<'_>, guest: &GuestContext<'_>, part: &GuestPlan) -> Vec<Fix> {
    let mut fix = Vec::new();
    let need = into_xml(guest, POWER_CYCLE);
    let count = ctx.layout(guest).vcpus.len() as u32;
    if let Some(threads) = part.threads.filter(|t| *t > 0) {
        let cores = count / threads;
        let topology = format!("<cpu>\n  <topology sockets='1' dies='1' cores='{cores}' threads='{threads}'/>\n</cpu>");
        let smp = format!("-smp {count},sockets=1,cores={cores},threads={threads}");
        fix.extend(either(guest, xml(guest, topology).needing(&need), qemu(guest, smp)));
    }
    if let (Some(id), Some(nodes), Some(memory)) = (guest.proxmox_id(), &part.memory, guest.config.memory) {
        let (nodes, mib) = (nodes.to_string().replace(',', ";"), memory >> 20);
        let cell = format!("cpus=0-{},hostnodes={nodes},memory={mib},policy=bind", count.saturating_sub(1));
        let room = format!("{AT_NEXT_START}; the guest's memory ({}) has to fit on the node", bytes(memory));
        let bind = command(format!("qm set {id} --numa 1 --numa0 '{cell}'")).needing(&room);
        fix.push(if guest.config.numa.cells.is_empty() {
            bind.undone_by(format!("qm set {id} --delete numa0"))
        } else {
            bind
        });
    }
    if guest.config.libvirt == Some(false) {
        return fix;
    }
    if let (false, Some(memory)) = (part.cells.is_empty(), guest.config.memory) {
        fix.push(xml(guest, cells_xml(part, memory, count)).needing(&need));
    } else if part.memory.is_some() || !part.memnodes.is_empty() {
        let size = guest.config.memory.map_or_else(|| "size unknown".into(), bytes);
        let room = format!("{need}; the guest's memory ({size}) has to fit on the node");
        // All its cells where one of them changes.
        let cells = guest.config.numa.cells.iter().enumerate().filter(|_| !part.memnodes.is_empty());
        let cells = cells.filter_map(|(at, c)| Some((c.id, part.memnodes.get(&at).or(c.host_nodes.as_ref())?)));
        fix.push(xml(guest, numatune(part.memory.as_ref(), cells)).needing(&room));
    }
    fix
}

/// The nodes of a guest's memory, and of its cells.
pub(crate) fn numatune<'a>(memory: Option<&CpuSet>, cells: impl Iterator<Item = (u32, &'a CpuSet)>) -> String {
    let memory = memory.map(|nodes| format!("  <memory mode='strict' nodeset='{nodes}'/>\n"));
    let cells = cells.map(|(id, nodes)| format!("  <memnode cellid='{id}' mode='strict' nodeset='{nodes}'/>\n"));
    format!("<numatune>\n{}</numatune>", memory.into_iter().chain(cells).collect::<String>())
}

/// Cells with a part of the memory that fits their number of vCPUs.
fn cells_xml(part: &GuestPlan, memory: u64, vcpus: u32) -> String {
    let nodes = part.cells.iter().fold(CpuSet::new(), |all, c| all.union(&c.1));
    let kib = memory / 1024;
    let mut left = kib;
    let cell = |(id, (of_cell, _)): (usize, &(CpuSet, CpuSet))| {
        let is_last = id + 1 == part.cells.len();
        let share = if is_last { left } else { kib / u64::from(vcpus.max(1)) * of_cell.len() as u64 };
        left = left.saturating_sub(share);
        format!("    <cell id='{id}' cpus='{of_cell}' memory='{share}' unit='KiB'/>\n")
    };
    let text: String = part.cells.iter().enumerate().map(cell).collect();
    let cells = part.cells.iter().enumerate().map(|(id, (_, nodes))| (id as u32, nodes));
    format!("<cpu>\n  <numa>\n{text}  </numa>\n</cpu>\n{}", numatune(Some(&nodes), cells))
}

/// The fixes that undo the plan for a guest. Empty where the plan changes nothing.
pub(crate) fn undo(ctx: &Context<'_>, guest: &GuestContext<'_>) -> Vec<Fix> {
    let Some(part) = ctx.plan().guests.get(guest.index).filter(|part| !part.is_empty()) else {
        return Vec::new();
    };
    let lines: Vec<String> = guest_placement(ctx, guest).into_iter().rev().filter_map(|fix| fix.undo).collect();
    let mut fix = if lines.is_empty() { Vec::new() } else { vec![command(lines.join("\n"))] };
    let reshapes = part.threads.is_some() || !part.cells.is_empty();
    let by_hand = guest.config.libvirt == Some(false);
    let changes_xml = !by_hand && (reshapes || part.memory.is_some() || !part.memnodes.is_empty());
    if changes_xml && is_transient(guest) {
        fix.push(advice("the rest of its XML stays as it is in what it is created from"));
    } else if changes_xml {
        let save = virsh(guest, "dumpxml", "--inactive");
        fix.push(advice(format!("the rest of its XML: {save} > FILE before, virsh define FILE to go back")));
    }
    fix
}

/// The commands without which the kernel refuses the pins of a plan: from the root downwards, one for each group.
fn widen<'a>(changed: impl Iterator<Item = (&'a GuestContext<'a>, &'a GuestPlan)>) -> Vec<Fix> {
    // A folder is shorter than those in it.
    let mut groups: BTreeMap<(usize, &str), (&GroupCpus, CpuSet)> = BTreeMap::new();
    for (guest, part) in changed {
        let pins = part.vcpus.values().chain(part.helpers.values());
        let wanted = pins.fold(CpuSet::new(), |all, cpus| all.union(cpus));
        for group in guest.domain.facts.cpu_groups.iter().filter(|group| !wanted.is_subset(&group.cpus)) {
            let all = &mut groups.entry((group.folder.len(), &group.folder)).or_insert((group, group.cpus.clone())).1;
            *all = all.union(&wanted);
        }
    }
    let widened = |(group, cpus): (&GroupCpus, CpuSet)| {
        // systemd names its units by the last folder.
        let unit = group.folder.rsplit('/').next().unwrap_or_default();
        let is_unit = [".slice", ".scope", ".service"].iter().any(|end| unit.ends_with(end));
        let set = |cpus: &CpuSet| {
            if is_unit {
                return format!("systemctl set-property {} AllowedCPUs={cpus}", unit_argument(unit));
            }
            format!("echo {cpus} > {}", quoted(&format!("{}/cpuset.cpus", group.folder)))
        };
        command(set(&cpus)).undone_by(set(&group.cpus)).needing(&format!(
            "comes first: {unit} leaves its guests only CPUs {}, and the kernel refuses pins beyond them; to keep that \
             bound, pin the guests within it instead",
            group.cpus
        ))
    };
    groups.into_values().map(widened).collect()
}
