//! The placement plan as fixes: commands to try at once, XML to keep.

use super::cpu_groups::widen;
use super::{
    AT_NEXT_START, LIVE_ALONE, LIVE_AND_KEPT, POWER_CYCLE, UNTIL_GUEST_ENDS, advice, command, either, into_xml,
    is_transient, qemu, scope, virsh, xml,
};
use crate::figures::bytes;
use crate::lint::context::Context;
use crate::lint::context::guest::GuestContext;
use crate::lint::engine::finding::Fix;
use crate::model::{Pins, ThreadModel};
use crate::placement::GuestPlan;
use kvm::CpuSet;
use std::fmt::Write as _;

/// The most pins in one fix.
pub(super) const MAX_PINS: usize = 512;
/// What a pin that the configuration has already needs.
const AT_ONCE: &str = "takes effect at once";
/// Comes first where CPUs are short.
const TOO_FEW_CPUS: &str = "Take load off this host first: it has too few CPUs for vCPUs with CPUs of their own. Move \
    a guest to another host, or remove vCPUs that it does not need (virsh setvcpus). Until then the guests share a \
    common set";
const MOVE_MEMORY_NEED: &str = "moves the memory at once; the guest may stall meanwhile";
pub(crate) const MORE_IN_PLAN: &str = "`kvmtop plan` prints the rest, and the plan as a whole";

/// What the plan changes of some guests. Empty where it changes nothing, or the host's CPUs are unknown.
pub(crate) fn placement(ctx: &Context<'_>, guests: &[usize]) -> Vec<Fix> {
    let plan = ctx.placement.plan();
    let changed: Vec<(&GuestContext<'_>, &GuestPlan)> = guests
        .iter()
        .filter_map(|g| Some((ctx.guests.get(*g)?, plan.guests.get(*g)?)))
        .filter(|(_, p)| !p.is_empty())
        .collect();
    let mut fix = Vec::new();
    if changed.iter().any(|(_, p)| p.shares) {
        fix.push(advice(TOO_FEW_CPUS));
    }
    fix.extend(widen(changed.iter().copied()));
    let (mut lines, mut cut) = (PinCommands::default(), false);
    for (guest, part) in &changed {
        cut |= !lines.add(guest, part);
    }
    fix.extend(lines.commands());
    // Without this the vCPUs are far from the memory until the guest starts again.
    let unbound = |g: &GuestContext<'_>| g.config.numa.nodes.is_none() && g.config.numa.cells.is_empty();
    let moved = changed.iter().filter(|(guest, _)| unbound(guest)).take(MAX_PINS);
    fix.extend(moved.filter_map(|(guest, part)| migrate(guest, part.memory.as_ref()?)));
    for (guest, part) in changed.iter().take(MAX_PINS) {
        fix.extend(pins_xml(guest, part));
        fix.extend(shape(ctx, guest, part));
    }
    if cut {
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

/// A pin of a plan.
pub(super) struct PlannedPin<'a> {
    /// The command of `virsh`, and the number of the vCPU or `IOThread` with a space behind it.
    verb: &'static str,
    number: String,
    pub cpus: &'a CpuSet,
    /// What the configuration pins the thread to.
    pub configured: Option<&'a CpuSet>,
    thread: Option<&'a ThreadModel>,
}

impl PlannedPin<'_> {
    pub(super) fn virsh(&self, guest: &GuestContext<'_>, cpus: &str, scope: &str) -> String {
        virsh(guest, self.verb, &format!("{}{cpus} {scope}", self.number))
    }
}

/// The pins of a plan: vCPUs, emulator, `IOThreads`.
pub(super) fn pins_of<'a>(
    guest: &'a GuestContext<'_>,
    part: &'a GuestPlan,
) -> impl Iterator<Item = PlannedPin<'a>> + 'a {
    let (pins, domain) = (&guest.config.pins, guest.domain);
    let vcpus = part.vcpus.iter().map(|(v, cpus)| PlannedPin {
        verb: "vcpupin",
        number: format!("{v} "),
        cpus,
        configured: pins.vcpus.get(v),
        thread: domain.vcpu(*v),
    });
    let emulator = part.emulator.iter().map(|cpus| PlannedPin {
        verb: "emulatorpin",
        number: String::new(),
        cpus,
        configured: pins.emulator.as_ref(),
        thread: domain.helper(None),
    });
    let iothreads = part.iothreads.iter().map(|(id, cpus)| PlannedPin {
        verb: "iothreadpin",
        number: format!("{id} "),
        cpus,
        configured: pins.iothreads.get(id),
        thread: domain.helper(Some(*id)),
    });
    vcpus.chain(emulator).chain(iothreads)
}

/// Commands, each with what it needs.
#[derive(Default)]
struct PinCommands(Vec<(&'static str, String)>);

impl PinCommands {
    /// Adds a guest's commands; whether there was room for all.
    fn add(&mut self, guest: &GuestContext<'_>, part: &GuestPlan) -> bool {
        let room = MAX_PINS.saturating_sub(self.0.len());
        let line = |pin: PlannedPin<'_>| {
            let (need, keep) = match scope(guest) {
                at_start if guest.is_shut_off() => (AT_NEXT_START, at_start),
                _ if pin.configured == Some(pin.cpus) => (AT_ONCE, "--live"),
                alone if is_transient(guest) => (LIVE_ALONE, alone),
                both => (LIVE_AND_KEPT, both),
            };
            (need, pin.virsh(guest, &pin.cpus.to_string(), keep))
        };
        if guest.config.libvirt == Some(false) {
            self.0.extend(tasksets(guest, part).take(room).map(|line| (UNTIL_GUEST_ENDS, line)));
        } else {
            self.0.extend(pins_of(guest, part).take(room).map(line));
        }
        pins_of(guest, part).count() <= room
    }

    fn commands(self) -> impl Iterator<Item = Fix> {
        let needs = [LIVE_AND_KEPT, AT_NEXT_START, AT_ONCE, LIVE_ALONE, UNTIL_GUEST_ENDS];
        needs.into_iter().filter_map(move |need| {
            let lines: Vec<&str> = self.0.iter().filter(|(of, _)| *of == need).map(|(_, line)| line.as_str()).collect();
            (!lines.is_empty()).then(|| command(lines.join("\n")).needing(need))
        })
    }
}

/// For a guest that libvirt does not run: one `taskset` per thread.
pub(super) fn tasksets<'a>(guest: &'a GuestContext<'_>, part: &'a GuestPlan) -> impl Iterator<Item = String> + 'a {
    // A file may not have the threads' ids, and 0 is the shell's own.
    let tid = |pin: &PlannedPin<'_>| pin.thread.map(|thread| thread.tid).filter(|tid| *tid > 0);
    pins_of(guest, part).filter_map(move |pin| Some(format!("taskset -pc {} {}", pin.cpus, tid(&pin)?)))
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
    kept.iothreads.extend(part.iothreads.clone());
    let emulator = part.emulator.as_ref().filter(|cpus| vcpus_move || pins.emulator.as_ref() != Some(cpus));
    let mut text = String::new();
    for (v, cpus) in kept.vcpus.iter().take(MAX_PINS) {
        let _ = write!(text, "\n  <vcpupin vcpu='{v}' cpuset='{cpus}'/>");
    }
    if let Some(cpus) = emulator.or(kept.emulator.as_ref()) {
        let _ = write!(text, "\n  <emulatorpin cpuset='{cpus}'/>");
    }
    for (id, cpus) in kept.iothreads.iter().take(MAX_PINS) {
        let _ = write!(text, "\n  <iothreadpin iothread='{id}' cpuset='{cpus}'/>");
    }
    let need = into_xml(guest, AT_NEXT_START);
    (!text.is_empty()).then(|| xml(format!("<cputune>{text}\n</cputune>")).needing(&need))
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
        fix.extend(either(guest, xml(topology).needing(&need), qemu(smp)));
    }
    if guest.config.libvirt == Some(false) {
        return fix;
    }
    if let (false, Some(memory)) = (part.cells.is_empty(), guest.config.memory) {
        fix.push(xml(cells_xml(part, memory, count)).needing(&need));
    } else if part.memory.is_some() || !part.memnodes.is_empty() {
        let room = format!("{need}; the guest's memory ({}) has to fit on the node", size(guest));
        fix.push(xml(numatune_xml(guest, part)).needing(&room));
    }
    fix
}

fn size(guest: &GuestContext<'_>) -> String {
    guest.config.memory.map_or_else(|| "size unknown".into(), bytes)
}

/// The nodes of a guest's memory, and of all its cells where one of them changes.
fn numatune_xml(guest: &GuestContext<'_>, part: &GuestPlan) -> String {
    let mut text = String::from("<numatune>\n");
    if let Some(nodes) = &part.memory {
        let _ = writeln!(text, "  <memory mode='strict' nodeset='{nodes}'/>");
    }
    if part.memnodes.is_empty() {
        return text + "</numatune>";
    }
    for (position, cell) in guest.config.numa.cells.iter().enumerate() {
        if let Some(nodes) = part.memnodes.get(&position).or(cell.host_nodes.as_ref()) {
            let _ = writeln!(text, "  <memnode cellid='{}' mode='strict' nodeset='{nodes}'/>", cell.id);
        }
    }
    text + "</numatune>"
}

/// Cells with a part of the memory that fits their number of vCPUs.
fn cells_xml(part: &GuestPlan, memory: u64, vcpus: u32) -> String {
    let nodes = part.cells.iter().fold(CpuSet::new(), |all, c| all.union(&c.1));
    let mut text = String::from("<cpu>\n  <numa>\n");
    let kib = memory / 1024;
    let mut left = kib;
    for (id, (of_cell, _)) in part.cells.iter().enumerate() {
        let share =
            if id + 1 == part.cells.len() { left } else { kib / u64::from(vcpus.max(1)) * of_cell.len() as u64 };
        left = left.saturating_sub(share);
        let _ = writeln!(text, "    <cell id='{id}' cpus='{of_cell}' memory='{share}' unit='KiB'/>");
    }
    let _ = writeln!(text, "  </numa>\n</cpu>\n<numatune>\n  <memory mode='strict' nodeset='{nodes}'/>");
    for (id, (_, nodes)) in part.cells.iter().enumerate() {
        let _ = writeln!(text, "  <memnode cellid='{id}' mode='strict' nodeset='{nodes}'/>");
    }
    text + "</numatune>"
}
