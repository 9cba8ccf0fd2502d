//! Where threads may run against where the configuration wants them.

use super::texts::{self, helper_name};
use crate::lint::prelude::*;
use fixes::placement::{bounding_group, group_name};

/// The most threads that evidence names.
const MAX_LINES: usize = 8;

pub(super) fn affinity(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let pins = &guest.config.pins;
    if !guest.running() || guest.config.libvirt != Some(true) || *pins == crate::model::Pins::default() {
        return;
    }
    let mut threads = guest.vcpu_threads().peekable();
    let host_measured = !ctx.model.host.cpus.is_empty();
    if threads.peek().is_some() && (!host_measured || threads.all(|t| t.place.affinity.is_none())) {
        return verdicts.cannot_tell("where the guest's threads may run is unknown, so pinning cannot be verified");
    }
    let (all, layout) = (&ctx.map().all, ctx.layout(guest));
    if all.is_empty() {
        return;
    }
    let absent_vcpus = layout.absent.iter().filter_map(|v| Some((format!("vCPU {v}"), pins.vcpu(v)?.clone())));
    let absent_helpers = layout.helpers().filter(|(_, h)| h.absent).map(|(id, _)| {
        let want = id.map_or_else(|| pins.emulator(), |id| pins.iothread(id));
        (helper_name(id), want.cloned().unwrap_or_default())
    });
    let mut unreachable = false;
    let mut lines: Vec<String> = absent_vcpus
        .chain(absent_helpers)
        .map(|(thread, want)| {
            unreachable |= !want.intersects(all);
            match want.difference(all) {
                absent if absent == want => {
                    format!("{thread} is pinned to CPU {want}, which is offline or missing")
                }
                absent => format!("{thread} is pinned to CPUs {want}, of which {absent} are offline or missing"),
            }
        })
        .collect();
    let absent = lines.len();
    let now = |v: &u32| layout.vcpus.get(*v as usize).cloned().unwrap_or_default();
    let vcpus = layout.drifted.iter().map(|(v, want)| (format!("vCPU {v}"), want, now(v)));
    let helpers = layout.helpers().filter_map(|(id, helper)| {
        Some((helper_name(id), helper.drifted.as_ref()?, helper.cpus.clone().unwrap_or_default()))
    });
    let drifted: Vec<(String, &CpuSet, CpuSet)> = vcpus.chain(helpers).collect();
    lines.extend(
        drifted.iter().map(|(thread, want, now)| format!("{thread} is configured for CPU {want} and may use {now}")),
    );
    if lines.is_empty() {
        return;
    }
    let marked = layout.absent.iter().filter(|v| pins.vcpu(*v).is_some()).chain(layout.drifted.keys().copied());
    let mut marks: Vec<Mark> = marked.map(Mark::Vcpu).collect();
    let emulator = guest.domain.emulator().filter(|_| layout.emulator.drifted.is_some());
    marks.extend(emulator.map(|t| Mark::Thread(t.tid)));
    let all_absent = absent == lines.len();
    if lines.len() > MAX_LINES {
        let rest = lines.len() - MAX_LINES;
        lines.truncate(MAX_LINES);
        lines.push(format!("and {rest} more like these"));
    }
    // A group of processes that leaves fewer CPUs than a pin names.
    lines.extend(drifted.iter().find_map(|(_, want, _)| bounding_group(guest, want)).map(|group| {
        let (name, cpus) = (group_name(group), &group.cpus);
        format!("its group of processes {name} leaves it only CPUs {cpus} (cpuset.cpus, AllowedCPUs=)")
    }));
    lines.push(format!("check: {}; look at: taskset -pc TID", fixes::virsh(guest, "vcpupin", "")));
    let fix = fixes::or_advice(guest_placement(ctx, guest), fixes::libvirt_advice(texts::ONLINE_CPUS));
    let severity = if all_absent && !unreachable { Severity::Info } else { Severity::Warning };
    let mut found = Finding { marks, ..Finding::new(severity, Confidence::High, lines, fix) };
    if all_absent {
        found = found.saying(texts::OFFLINE);
    } else {
        found.title = "A thread's CPU affinity is not the one in the configuration".into();
    }
    verdicts.find(found);
}
