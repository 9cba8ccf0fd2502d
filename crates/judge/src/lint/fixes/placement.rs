//! The placement plan as fixes: commands to try at once, XML to keep, and the way back to the pins
//! as they are now; and which CPUs the host can give to pinned vCPUs alone: one answer for all
//! guests, so that two findings never propose options that contradict each other.

use super::{
    AT_NEXT_START, LIVE_ALONE, LIVE_AND_KEPT, POWER_CYCLE, UNTIL_GUEST_ENDS, advice, command,
    cpu_topology, into_xml, is_transient, kernel, scope, virsh, xml,
};
use crate::figures::bytes;
use crate::lint::facts::{Audience, Context, Fix, FixKind, GuestContext};
use crate::model::ThreadModel;
use crate::placement::{GuestLayout, GuestPlan, Pinning};
use kvm::CpuSet;

/// The most pins in one fix.
const MAX_PINS: usize = 512;
pub(crate) const MORE_IN_PLAN: &str = "`kvmtop plan` prints the rest, and the plan as a whole";

/// What the plan changes of some guests. Empty where it changes nothing, or the host's CPUs are
/// unknown.
pub(crate) fn placement(ctx: &Context<'_>, guests: &[usize]) -> Vec<Fix> {
    let parts = guests
        .iter()
        .map(|g| (&ctx.guests[*g], &ctx.plan().guests[*g]));
    let changed: Vec<(&GuestContext<'_>, &GuestPlan)> =
        parts.filter(|(_, part)| !part.is_empty()).collect();
    let mut fix = Vec::new();
    if changed.iter().any(|(_, part)| part.shares) {
        fix.push(advice(
            "Take load off this host first: it has too few CPUs for vCPUs with \
            CPUs of their own. Move a guest to another host, or remove vCPUs that it does not \
            need. Until then the guests share a common set",
        ));
    }
    let mut pins = 0;
    for (guest, part) in changed {
        if pins > 0 && pins + part.vcpus.len() > MAX_PINS {
            fix.push(advice(MORE_IN_PLAN));
            break;
        }
        pins += part.vcpus.len();
        fix.extend(pin_commands(ctx, guest, part));
        // Without this the vCPUs are far from the memory until the guest starts again.
        let is_bound = guest.config.numa.nodes.is_some() || !guest.config.numa.cells.is_empty();
        if let Some(nodes) = &part.memory
            && !is_bound
        {
            fix.extend(migrate(guest, nodes));
        }
        fix.extend(pins_xml(guest, part));
        fix.extend(shape(ctx, guest, part));
    }
    fix
}

/// Moves what a running guest has of memory on other nodes.
pub(crate) fn migrate(guest: &GuestContext<'_>, nodes: &CpuSet) -> Option<Fix> {
    let others: CpuSet = guest
        .domain
        .node_memory
        .keys()
        .copied()
        .filter(|node| !nodes.contains(*node))
        .collect();
    if others.is_empty() {
        return None;
    }
    let pid = guest.domain.facts.pid?;
    Some(
        command(format!("migratepages {pid} {others} {nodes}"))
            .needing("moves the memory at once; the guest may stall meanwhile"),
    )
}

/// As [`placement`], for one guest.
pub(crate) fn guest_placement(ctx: &Context<'_>, guest: &GuestContext<'_>) -> Vec<Fix> {
    placement(ctx, &[guest.index])
}

/// A pin of a plan.
struct PlannedPin<'a> {
    /// The command of `virsh`.
    verb: &'static str,
    /// The number of the vCPU or `IOThread`.
    number: Option<u32>,
    cpus: &'a CpuSet,
    /// Where the thread may run now, if that is known.
    was: Option<&'a CpuSet>,
    thread: Option<&'a ThreadModel>,
}

/// The pins that the plan changes: of vCPUs, emulator, `IOThreads`.
fn planned_pins<'a>(
    ctx: &'a Context<'_>,
    guest: &'a GuestContext<'_>,
    part: &'a GuestPlan,
) -> Vec<PlannedPin<'a>> {
    let now = ctx.layout(guest);
    let mut pins = Vec::new();
    for (v, cpus) in &part.vcpus {
        pins.push(PlannedPin {
            verb: "vcpupin",
            number: Some(*v),
            cpus,
            was: now.vcpus.get(*v as usize),
            thread: guest.domain.vcpu(*v),
        });
    }
    for (id, cpus) in &part.helpers {
        pins.push(PlannedPin {
            verb: if id.is_some() {
                "iothreadpin"
            } else {
                "emulatorpin"
            },
            number: *id,
            cpus,
            was: now.helpers.get(id).and_then(|helper| helper.cpus.as_ref()),
            thread: guest.domain.helper(*id),
        });
    }
    pins
}

/// The commands that pin a guest's threads, and those that undo them.
fn pin_commands(ctx: &Context<'_>, guest: &GuestContext<'_>, part: &GuestPlan) -> Vec<Fix> {
    let mut lines = Vec::new();
    let mut undo = Vec::new();
    for pin in planned_pins(ctx, guest, part) {
        let was = pin.was.filter(|cpus| !cpus.is_empty());
        lines.extend(pin_command(ctx, guest, &pin, pin.cpus));
        undo.extend(pin_command(ctx, guest, &pin, was.unwrap_or(&ctx.map().all)));
    }
    let commands = command(lines.join("\n")).undone_by(undo.join("\n"));
    let mut fix = Vec::new();
    if guest.config.libvirt == Some(false) {
        fix.extend(one_affinity(ctx, guest));
        fix.push(commands.needing(UNTIL_GUEST_ENDS));
    } else {
        let need = if guest.is_shut_off() {
            AT_NEXT_START
        } else if is_transient(guest) {
            LIVE_ALONE
        } else {
            LIVE_AND_KEPT
        };
        fix.push(commands.needing(need).only(Audience::Libvirt));
    }
    fix.retain(|fix| !fix.text.is_empty());
    fix
}

/// The command that lets a thread run on these CPUs.
fn pin_command(
    ctx: &Context<'_>,
    guest: &GuestContext<'_>,
    pin: &PlannedPin<'_>,
    cpus: &CpuSet,
) -> Option<String> {
    if guest.config.libvirt == Some(false) {
        // A file may not have the threads' ids, and 0 is the shell's own.
        let tid = pin.thread.map(|thread| thread.tid).filter(|tid| *tid > 0)?;
        return Some(format!("taskset -pc {cpus} {tid}"));
    }
    let number = pin
        .number
        .map_or_else(String::new, |number| format!("{number} "));
    // `virsh` takes `r` for all CPUs of the host (virsh(1), vcpupin, emulatorpin, iothreadpin).
    let cpus = if ctx.map().restricts(cpus) {
        cpus.to_string()
    } else {
        "r".to_owned()
    };
    let arguments = format!("{number}{cpus} {}", scope(guest));
    Some(virsh(guest, pin.verb, &arguments))
}

/// The one set of CPUs that Proxmox gives all threads of a guest.
fn one_affinity(ctx: &Context<'_>, guest: &GuestContext<'_>) -> Option<Fix> {
    let id = guest.proxmox_id()?;
    let now = ctx.layout(guest);
    if now.pinning != Pinning::OneSet {
        return None;
    }
    let text = set_affinity(ctx, id, &ctx.plan().after[guest.index]);
    let undo = set_affinity(ctx, id, now);
    if text == undo {
        None
    } else {
        Some(command(text).needing(AT_NEXT_START).undone_by(undo))
    }
}

fn set_affinity(ctx: &Context<'_>, id: &str, layout: &GuestLayout) -> String {
    match layout.vcpus.first() {
        Some(cpus) if ctx.map().restricts(cpus) => format!("qm set {id} --affinity {cpus}"),
        _ => format!("qm set {id} --delete affinity"),
    }
}

/// The pins as XML, for a guest of libvirt: all of them, also those that stay, since they replace
/// the whole element.
fn pins_xml(guest: &GuestContext<'_>, part: &GuestPlan) -> Option<Fix> {
    if guest.config.libvirt == Some(false) || part.vcpus.is_empty() && part.helpers.is_empty() {
        return None;
    }
    let mut pins = guest.config.pins.clone();
    pins.vcpus.extend(part.vcpus.clone());
    pins.helpers.extend(part.helpers.clone());
    let mut text = String::new();
    for (v, cpus) in pins.vcpus.iter().take(MAX_PINS) {
        text += &format!("\n  <vcpupin vcpu='{v}' cpuset='{cpus}'/>");
    }
    for (id, cpus) in pins.helpers.iter().take(MAX_PINS) {
        text += &match id {
            Some(id) => format!("\n  <iothreadpin iothread='{id}' cpuset='{cpus}'/>"),
            None => format!("\n  <emulatorpin cpuset='{cpus}'/>"),
        };
    }
    Some(
        xml(guest, format!("<cputune>{text}\n</cputune>")).needing(&into_xml(guest, AT_NEXT_START)),
    )
}

/// What a guest has to see of cores and nodes, and where its memory belongs.
fn shape(ctx: &Context<'_>, guest: &GuestContext<'_>, part: &GuestPlan) -> Vec<Fix> {
    let mut all = Vec::new();
    let need = into_xml(guest, POWER_CYCLE);
    let count = ctx.layout(guest).vcpus.len() as u32;
    if let Some(threads) = part.threads.filter(|t| *t > 0) {
        for fix in cpu_topology(guest, 1, count / threads, threads) {
            all.push(match fix.kind {
                FixKind::LibvirtXml => fix.needing(&need),
                _ => fix,
            });
        }
    }
    if let Some(id) = guest.proxmox_id()
        && let Some(nodes) = &part.memory
        && let Some(memory) = guest.config.memory
    {
        let cell = format!(
            "cpus=0-{},hostnodes={},memory={},policy=bind",
            count.saturating_sub(1),
            nodes.to_string().replace(',', ";"),
            memory >> 20
        );
        let room = format!(
            "{AT_NEXT_START}; the guest's memory ({}) has to fit on the node",
            bytes(memory)
        );
        let bind = command(format!("qm set {id} --numa 1 --numa0 '{cell}'")).needing(&room);
        all.push(bind.undone_by(format!("qm set {id} --delete numa0")));
    }
    if guest.config.libvirt == Some(false) {
        return all;
    }
    if let Some(nodes) = &part.memory {
        let size = guest
            .config
            .memory
            .map_or_else(|| "size unknown".into(), bytes);
        let room = format!("{need}; the guest's memory ({size}) has to fit on the node");
        all.push(xml(guest, numatune(nodes)).needing(&room));
    }
    all
}

/// The nodes of a guest's memory.
pub(crate) fn numatune(nodes: &CpuSet) -> String {
    format!("<numatune>\n  <memory mode='strict' nodeset='{nodes}'/>\n</numatune>")
}

/// The fixes that undo the plan for a guest. Empty where the plan changes nothing.
pub(crate) fn undo(ctx: &Context<'_>, guest: &GuestContext<'_>) -> Vec<Fix> {
    let part = &ctx.plan().guests[guest.index];
    let lines: Vec<String> = guest_placement(ctx, guest)
        .into_iter()
        .rev()
        .filter_map(|fix| fix.undo)
        .collect();
    let mut fix = Vec::new();
    if !lines.is_empty() {
        fix.push(command(lines.join("\n")));
    }
    let changes_xml = part.threads.is_some() || part.memory.is_some();
    if changes_xml && guest.config.libvirt != Some(false) {
        let save = virsh(guest, "dumpxml", "--inactive");
        fix.push(advice(format!(
            "the rest of its XML: {save} > FILE before, virsh define FILE to go back"
        )));
    }
    fix
}

/// What a host without a spare CPU can do.
pub(crate) const KEEP_FIRST_CORES: &str = "Keep a core free of vCPU pins, or move a guest to \
    another host";

/// The CPUs of a host by what they are for after the plan.
pub(crate) struct Isolation {
    /// CPUs that single vCPUs have, and those that are isolated now.
    guests: CpuSet,
    /// The rest, for the host's own tasks. Some CPU has to keep house for the isolated ones.
    pub host: CpuSet,
    /// The most vCPUs of a guest that are not pinned to single CPUs. They have to do with the
    /// host's CPUs.
    roaming: usize,
    /// Whether pinned vCPUs have CPUs that are not isolated yet.
    pub gives: bool,
    is_known: bool,
}

impl Isolation {
    /// Divides the host. A guest that the plan need not move counts as it is, unless it is
    /// real-time: then its fix is to move.
    pub fn new(ctx: &Context<'_>) -> Self {
        let map = ctx.map();
        let plan = ctx.plan();
        let mut guests = map.isolated.clone();
        let mut roaming = 0;
        for guest in ctx.running() {
            let stays = plan.guests[guest.index].optional && !guest.is_realtime();
            let layout = if stays {
                ctx.layout(guest)
            } else {
                &plan.after[guest.index]
            };
            guests = guests.union(&layout.single(map));
            roaming = roaming.max(layout.vcpus.len() - layout.pins(map).count());
        }
        // The boot CPU stays with the host whatever the option says (kernel/sched/isolation.c,
        // housekeeping_setup).
        let kept: CpuSet = map.general().first().into_iter().collect();
        let guests = guests.difference(&kept);
        Self {
            host: map.general().difference(&guests),
            roaming,
            gives: !guests.is_subset(&map.isolated),
            guests,
            is_known: !map.all.is_empty(),
        }
    }

    /// The kernel options that give the CPUs to the guests, each with the same list; or the reason
    /// against them.
    pub fn options(&self, names: &[&str]) -> Option<Fix> {
        if !self.is_known {
            return Some(advice(
                "Isolate the CPUs of pinned vCPUs with isolcpus= on the host's \
                kernel command line, and leave CPU 0 to the host; lscpu -p beside the other files \
                says which CPUs there are",
            ));
        }
        if !self.gives {
            return None;
        }
        if self.roaming > self.host.len() {
            return Some(advice(
                "isolcpus= is not proposed: a guest has more vCPUs without \
                CPUs of their own than CPUs would be left for them. Pin them first, or move a \
                guest to another host",
            ));
        }
        let options: Vec<String> = names
            .iter()
            .map(|name| format!("{name}={}", self.guests))
            .collect();
        Some(kernel(options.join(" ")))
    }
}
