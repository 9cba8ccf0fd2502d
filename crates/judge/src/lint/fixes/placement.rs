//! The placement plan as fixes: commands to try at once, XML to keep, and the way back to the pins
//! as they are now.

use super::{
    AT_NEXT_START, LIVE_ALONE, LIVE_AND_KEPT, POWER_CYCLE, UNTIL_GUEST_ENDS, advice, command,
    cpu_topology, into_xml, is_transient, scope, virsh, xml,
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
    /// Where the thread may run now.
    was: &'a CpuSet,
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
        let was = now.vcpus.get(*v as usize);
        pins.push(PlannedPin {
            verb: "vcpupin",
            number: Some(*v),
            cpus,
            was: known_or_all(ctx, was),
            thread: guest.domain.vcpu(*v),
        });
    }
    for (id, cpus) in &part.helpers {
        let was = now.helpers.get(id).and_then(|helper| helper.cpus.as_ref());
        pins.push(PlannedPin {
            verb: if id.is_some() {
                "iothreadpin"
            } else {
                "emulatorpin"
            },
            number: *id,
            cpus,
            was: known_or_all(ctx, was),
            thread: guest.domain.helper(*id),
        });
    }
    pins
}

/// These CPUs; all of the host where they are not known.
fn known_or_all<'a>(ctx: &'a Context<'_>, cpus: Option<&'a CpuSet>) -> &'a CpuSet {
    match cpus {
        Some(cpus) if !cpus.is_empty() => cpus,
        _ => &ctx.map().all,
    }
}

/// The commands that pin a guest's threads, and those that undo them.
fn pin_commands(ctx: &Context<'_>, guest: &GuestContext<'_>, part: &GuestPlan) -> Vec<Fix> {
    let pins = planned_pins(ctx, guest, part);
    if guest.config.libvirt == Some(false) {
        let mut fix = Vec::new();
        fix.extend(one_affinity(ctx, guest));
        if let Some(commands) = by_commands(&pins, taskset) {
            fix.push(commands.needing(UNTIL_GUEST_ENDS));
        }
        return fix;
    }
    let need = if guest.is_shut_off() {
        AT_NEXT_START
    } else if is_transient(guest) {
        LIVE_ALONE
    } else {
        LIVE_AND_KEPT
    };
    by_commands(&pins, |pin, cpus| Some(virsh_pin(ctx, guest, pin, cpus)))
        .map(|fix| fix.needing(need).only(Audience::Libvirt))
        .into_iter()
        .collect()
}

fn taskset(pin: &PlannedPin<'_>, cpus: &CpuSet) -> Option<String> {
    let tid = pin.thread?.tid;
    // A file may not have the threads' ids, and 0 is the shell's own.
    if tid <= 0 {
        return None;
    }
    Some(format!("taskset -pc {cpus} {tid}"))
}

fn virsh_pin(
    ctx: &Context<'_>,
    guest: &GuestContext<'_>,
    pin: &PlannedPin<'_>,
    cpus: &CpuSet,
) -> String {
    let mut arguments = String::new();
    if let Some(number) = pin.number {
        arguments += &format!("{number} ");
    }
    // `virsh` takes `r` for all CPUs of the host (virsh(1), vcpupin, emulatorpin, iothreadpin).
    arguments += &if ctx.map().restricts(cpus) {
        cpus.to_string()
    } else {
        "r".to_owned()
    };
    virsh(guest, pin.verb, &format!("{arguments} {}", scope(guest)))
}

fn by_commands(
    pins: &[PlannedPin<'_>],
    line: impl Fn(&PlannedPin<'_>, &CpuSet) -> Option<String>,
) -> Option<Fix> {
    let text: Vec<String> = pins.iter().filter_map(|pin| line(pin, pin.cpus)).collect();
    let undo: Vec<String> = pins.iter().filter_map(|pin| line(pin, pin.was)).collect();
    if text.is_empty() {
        None
    } else {
        Some(command(text.join("\n")).undone_by(undo.join("\n")))
    }
}

/// The one set of CPUs that Proxmox gives all threads of a guest.
fn one_affinity(ctx: &Context<'_>, guest: &GuestContext<'_>) -> Option<Fix> {
    let id = guest.proxmox_id()?;
    let now = ctx.layout(guest);
    if now.pinning != Pinning::OneSet {
        return None;
    }
    let text = set_affinity(ctx, id, ctx.plan().after.get(guest.index)?);
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
    let part = ctx.plan().guests.get(guest.index);
    let Some(part) = part.filter(|part| !part.is_empty()) else {
        return Vec::new();
    };
    let lines: Vec<String> = guest_placement(ctx, guest)
        .into_iter()
        .rev()
        .filter_map(|fix| fix.undo)
        .collect();
    let mut fix = if lines.is_empty() {
        Vec::new()
    } else {
        vec![command(lines.join("\n"))]
    };
    let changes_xml = part.threads.is_some() || part.memory.is_some();
    if changes_xml && guest.config.libvirt != Some(false) {
        let save = virsh(guest, "dumpxml", "--inactive");
        fix.push(advice(format!(
            "the rest of its XML: {save} > FILE before, virsh define FILE to go back"
        )));
    }
    fix
}
