//! Memory that a guest lacks, by its own account or by its cgroup, and that the host lacks: what it
//! swaps out and in.

use crate::figures::{bytes, figure, rate};
use crate::lint::facts::{
    Confidence, Context, Finding, Fix, GuestContext, Severity, Verdicts, known,
};
use crate::lint::fixes;
use sample::MemoryInGuest;

/// An answer of the balloon driver is of now for so long, seconds: libvirt and Proxmox VE ask it
/// every 10 s.
const MAX_AGE_S: i64 = 60;

pub(super) fn guest_memory_short(
    ctx: &Context<'_>,
    guest: &GuestContext<'_>,
    verdicts: &mut Verdicts,
) {
    let domain = guest.domain;
    let Some(memory) = domain.memory.in_guest else {
        return;
    };
    let Some(usable) = memory.usable else {
        return verdicts.cannot_tell("the guest's balloon driver does not say what is usable");
    };
    let age_s = ctx.model.time_ms / 1000 - i64::try_from(memory.updated_s).unwrap_or(i64::MAX);
    if age_s > MAX_AGE_S {
        return verdicts.cannot_tell(
            "the guest's balloon driver has said nothing for a minute: nobody asks it",
        );
    }
    let limits = &ctx.thresholds().machine;
    let usable_percent = 100.0 * usable as f64 / memory.total.max(1) as f64;
    let is_pressed = memory.grown.is_some_and(|grown| {
        grown.fault_rate() > limits.guest_faults || grown.swap_rate() > limits.guest_swapping
    });
    let is_short = usable_percent < limits.guest_usable && is_pressed;
    if !is_short && usable_percent >= limits.guest_empty {
        return;
    }
    let taken = taken_by_balloon(guest);
    let evidence = known([
        Some(format!(
            "of {} in the guest {} are usable ({} %)",
            bytes(memory.total),
            bytes(usable),
            figure(usable_percent)
        )),
        activity(&memory),
        taken.map(|taken| format!("its balloon gave {} back to the host", bytes(taken))),
        domain
            .memory
            .on_host()
            .map(|resident| format!("on the host {} are resident", bytes(resident))),
    ]);
    let severity = if taken.is_some() {
        Severity::Critical
    } else {
        Severity::Warning
    };
    let fix = more_memory(guest, taken);
    verdicts.find(Finding::new(severity, Confidence::High, evidence, fix));
}

/// What the guest does for lack of memory.
fn activity(memory: &MemoryInGuest) -> Option<String> {
    let grown = memory.grown?;
    Some(format!(
        "it makes {} major faults/s, and moves {}/s from and to its own swap",
        rate(grown.fault_rate()),
        bytes(grown.swap_rate() as u64)
    ))
}

/// Bytes that the balloon took, from a hundredth of the guest's memory on.
fn taken_by_balloon(guest: &GuestContext<'_>) -> Option<u64> {
    let all = guest.config.memory?;
    let taken = all.checked_sub(guest.domain.memory.balloon?)?;
    if taken > all / 100 { Some(taken) } else { None }
}

fn more_memory(guest: &GuestContext<'_>, taken: Option<u64>) -> Vec<Fix> {
    let (Some(all), Some(_)) = (guest.config.memory, taken) else {
        return vec![fixes::advice(
            "Give the guest more memory, or let it do less; see in it which program has the \
            memory",
        )];
    };
    let needs = "the host must have that memory";
    let mib = all >> 20;
    if let Some(id) = guest.proxmox_id() {
        return vec![fixes::command(format!("qm set {id} --balloon {mib}")).needing(needs)];
    }
    let setmem = fixes::virsh(guest, "setmem", &format!("{mib}M --live"));
    let by_hand = fixes::advice(format!("In its monitor (HMP): balloon {mib}"));
    let virsh = fixes::command(setmem).needing(needs);
    fixes::either(guest, virsh, by_hand.needing(needs))
}

pub(super) fn guest_swapped_in(
    ctx: &Context<'_>,
    guest: &GuestContext<'_>,
    verdicts: &mut Verdicts,
) {
    let Some(swap_in) = guest.domain.swap_in_rate else {
        return;
    };
    if swap_in < ctx.thresholds().machine.swap_in {
        return;
    }
    let full = full_nodes(ctx, guest);
    let evidence = known([
        Some(format!(
            "{}/s of its memory come back from the host's swap {}",
            bytes(swap_in as u64),
            guest.window()
        )),
        guest
            .domain
            .swap
            .map(|swap| format!("{} of the guest are in swap", bytes(swap.bytes))),
        host_available(ctx),
        full.as_ref().map(|full| full.seen.clone()),
    ]);
    let mut fix = Vec::new();
    if let Some(full) = full {
        fix.push(fixes::advice(format!(
            "Bind its memory to node {} instead (numatune), its vCPUs with it",
            full.roomy_node
        )));
    }
    fix.push(fixes::advice(
        "Give the guests less memory in total than the host has, or move one away; what is in \
        swap comes back at its next use, or at once by swapoff and swapon where there is room",
    ));
    fix.extend(locked_memory(guest));
    verdicts.find(Finding::new(
        Severity::Warning,
        Confidence::High,
        evidence,
        fix,
    ));
}

/// A node below this is full, and one from the other on has room: free memory, percent. Chosen.
const FULL_NODE: f64 = 2.0;
const ROOMY_NODE: f64 = 20.0;

/// Nodes that hold all of a guest's memory and are full, while another one has room.
struct FullNodes {
    seen: String,
    roomy_node: u32,
}

fn full_nodes(ctx: &Context<'_>, guest: &GuestContext<'_>) -> Option<FullNodes> {
    let bound = guest.config.numa.nodes.as_ref()?;
    let mut texts = Vec::new();
    let mut roomy_node = None;
    for node in ctx.model.host.nodes.as_ref()? {
        let percent = 100.0 * node.free as f64 / node.total.max(1) as f64;
        let is_bound = bound.contains(node.node);
        if is_bound && percent >= FULL_NODE {
            return None;
        }
        if is_bound || percent >= ROOMY_NODE {
            texts.push(format!(
                "node {} has {} of {} free",
                node.node,
                bytes(node.free),
                bytes(node.total)
            ));
        }
        if !is_bound && percent >= ROOMY_NODE {
            roomy_node = Some(node.node);
        }
    }
    Some(FullNodes {
        seen: format!("its memory is bound to node {bound}: {}", texts.join(", ")),
        roomy_node: roomy_node?,
    })
}

/// Memory of a guest that the host never swaps out.
fn locked_memory(guest: &GuestContext<'_>) -> Vec<Fix> {
    let element = "<memoryBacking>\n  <locked/>\n</memoryBacking>";
    let mut fix = fixes::setting(guest, element, "-overcommit mem-lock=on");
    for fix in &mut fix {
        let needs = "takes effect at the guest's next start; only where the host has the memory";
        fix.needs = Some(needs.into());
    }
    fix
}

/// What memory the host has left.
fn host_available(ctx: &Context<'_>) -> Option<String> {
    let memory = ctx.model.host.memory?;
    let [available, total] = [memory.available, memory.total].map(bytes);
    Some(format!("the host has {available} of {total} available"))
}

pub(super) fn memory_stall(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let limits = &ctx.thresholds().machine;
    let waits = guest.domain.pressure.unwrap_or_default();
    let memory = &guest.domain.memory;
    let mut at_limit = memory.charged.zip(memory.limit);
    at_limit.take_if(|_| memory.limit_percent() < Some(limits.memory_limit));
    let stalls = limits.memory_stall.severity(waits.memory);
    let Some(severity) = stalls.max(at_limit.map(|_| Severity::Warning)) else {
        return;
    };
    let evidence = known([
        at_limit.map(|(charged, limit)| {
            format!(
                "its cgroup has {} of the {} that it may have, and can drop none of it: at the \
                    limit the kernel kills QEMU",
                bytes(charged),
                bytes(limit)
            )
        }),
        guest.domain.pressure.map(|waits| {
            format!(
                "at least one of its threads waited for memory {} % of the last 10 s, all of them \
                    {} %",
                figure(waits.memory),
                figure(waits.memory_full)
            )
        }),
        guest
            .domain
            .swap
            .filter(|swap| swap.bytes > 0)
            .map(|swap| format!("{} of the guest are in swap", bytes(swap.bytes))),
        host_available(ctx),
        Some(
            "look at: the memory.high, memory.max and memory.events of its cgroup and of those \
            above"
                .into(),
        ),
    ]);
    let by_libvirt = "In its XML the limits of its cgroup are <memtune>";
    let fix = vec![
        fixes::advice(
            "Where the host is short of memory: give its guests less in total, or \
            move one away",
        ),
        fixes::advice(
            "Where it has memory to spare, a limit of the guest's cgroup holds it \
            back: raise memory.high or memory.max to the guest's memory and 1 GiB more",
        ),
        fixes::libvirt_advice(by_libvirt),
    ];
    verdicts.find(Finding {
        cost: guest.domain.pressure.map(|waits| waits.memory_full),
        ..Finding::new(severity, Confidence::High, evidence, fix)
    });
}

/// The host has hardly any memory left, and its tasks wait for some.
fn judge_host_memory(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    let host = &ctx.model.host;
    let limits = &ctx.thresholds().machine;
    let (Some(memory), Some(pressure)) = (host.memory, host.pressure) else {
        return;
    };
    let percent = 100.0 * memory.available as f64 / memory.total.max(1) as f64;
    if percent >= limits.host_available || pressure.memory < limits.host_stall {
        return;
    }
    let evidence = vec![format!(
        "{} of {} are available ({} %), and tasks waited for memory {} % of the last 10 s; the \
            guests have {}",
        bytes(memory.available),
        bytes(memory.total),
        figure(percent),
        figure(pressure.memory),
        bytes(host.guests_memory)
    )];
    let mut fix = vec![fixes::advice(
        "See which guest has the memory (key m), and move one away or give it less",
    )];
    if memory.arc.is_some_and(|arc| arc > memory.available) {
        fix.push(fixes::advice(
            "The ARC of ZFS gives memory back slowly: bound it by zfs_arc_max",
        ));
    }
    verdicts.find(Finding {
        title: "The host's memory runs out".into(),
        ..Finding::new(Severity::Warning, Confidence::High, evidence, fix)
    });
}

pub(super) fn host(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    judge_host_memory(ctx, verdicts);
    for g in &ctx.guests {
        let Some(swap) = g.domain.swap.filter(|swap| swap.grown > 0) else {
            continue;
        };
        let mut fix = vec![fixes::advice(
            "Give the guests less memory in total than the host \
            has, or run fewer of them",
        )];
        fix.extend(locked_memory(g));
        let mut evidence = vec![format!(
            "{} of the guest are in swap, {} more than before {}",
            bytes(swap.bytes),
            bytes(swap.grown.unsigned_abs()),
            g.window()
        )];
        evidence.extend(ctx.model.host.memory.map(|m| {
            format!(
                "the host has {} of {} available and {} in swap",
                bytes(m.available),
                bytes(m.total),
                bytes(m.swap_used)
            )
        }));
        verdicts.find_for(
            g,
            Finding::new(Severity::Warning, Confidence::High, evidence, fix),
        );
    }
}
