//! The storage that guests' disks are kept on: whether it fills, is slow, or only looks busy.

use crate::figures::{bytes, duration, figure, rate};
use crate::lint::facts::{
    Confidence, Context, Finding, GuestContext, Mark, Severity, Verdicts, known,
};
use crate::lint::fixes;
use sample::{DomainState, StoredDisk};
use std::collections::BTreeMap;

/// Below this part of its size left, percent, or this many hours, a storage is as good as full.
const MIN_LEFT: f64 = 1.0;
/// A disk of the host does nothing below this part of the time, percent.
const MAX_IDLE_BUSY: f64 = 5.0;

/// A storage with disks that may grow, and the guests that have them.
#[derive(Default)]
struct GrowingStorage<'a> {
    disks: Vec<&'a StoredDisk>,
    guests: Vec<String>,
}

pub(super) fn filling(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    let mut storages: BTreeMap<&str, GrowingStorage<'_>> = BTreeMap::new();
    for guest in &ctx.guests {
        for disk in &guest.domain.storage {
            if disk.may_grow && guest.domain.state != DomainState::Ended {
                let storage = storages.entry(&disk.storage).or_default();
                storage.disks.push(disk);
                storage.guests.push(guest.name().to_owned());
            }
        }
    }
    for (name, mut storage) in storages {
        storage.guests.dedup();
        judge_storage(ctx, name, storage, verdicts);
    }
}

fn judge_storage(
    ctx: &Context<'_>,
    name: &str,
    storage: GrowingStorage<'_>,
    verdicts: &mut Verdicts,
) {
    let limits = &ctx.thresholds().disks;
    let Some(disk) = storage.disks.first() else {
        return;
    };
    let (Some(free), Some(size)) = (disk.free_bytes, disk.size_bytes) else {
        return;
    };
    let percent = 100.0 * free as f64 / size.max(1) as f64;
    let filled = storage.disks.iter().filter_map(|disk| disk.filled_per_hour);
    let filled = filled.max().filter(|bytes| *bytes > 0);
    let hours = filled.map(|filled| free as f64 / filled as f64);
    let fills_soon = hours.is_some_and(|hours| hours < limits.storage_hours);
    if percent >= limits.storage_free && !fills_soon {
        return;
    }
    let severity = if percent < MIN_LEFT || hours.is_some_and(|hours| hours < MIN_LEFT) {
        Severity::Critical
    } else {
        Severity::Warning
    };
    let evidence = known([
        Some(format!(
            "{name}: {} of {} are free ({} %)",
            bytes(free),
            bytes(size),
            figure(percent)
        )),
        filled.zip(hours).map(|(filled, hours)| {
            format!(
                "{} more are used each hour: it is full in {} h",
                bytes(filled),
                figure(hours)
            )
        }),
        Some(format!(
            "disks that grow there: {} of {}",
            storage.disks.len(),
            storage.guests.join(", ")
        )),
    ]);
    let fix = vec![
        fixes::advice(format!(
            "Free room on {name} or extend it before QEMU stops these guests at their next write; \
                see what takes it: du -xh --max-depth 1 {name} | sort -h"
        )),
        fixes::advice("Disks with discard=unmap give room back after fstrim -a in the guest"),
    ];
    verdicts.find(Finding {
        title: format!("The storage of guests' disks fills up: {name}"),
        problem: "its storage fills up".into(),
        also: storage.guests,
        ..Finding::new(severity, Confidence::High, evidence, fix)
    });
}

/// I/O pressure without I/O: QEMU 10.2 and later sleep in a ring of `io_uring`, which the kernel
/// counts as a wait for a disk.
pub(super) fn false_pressure(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    let host = &ctx.model.host;
    let Some(disks) = &host.disks else { return };
    let is_idle = disks
        .iter()
        .all(|disk| disk.in_flight == 0 && disk.busy_percent() < Some(MAX_IDLE_BUSY));
    let limit = ctx.thresholds().disks.false_pressure;
    if !is_idle {
        return;
    }
    let mut is_said = false;
    for guest in ctx.running() {
        let Some(pressure) = guest.domain.pressure.filter(|p| p.io >= limit) else {
            continue;
        };
        is_said = true;
        if has_idle_disks(guest) {
            verdicts.find_for(
                guest,
                no_io(&format!(
                    "of the guest's cgroup is {} %",
                    figure(pressure.io)
                )),
            );
        }
    }
    let of_host = host.pressure.map_or(0.0, |pressure| pressure.io);
    if !is_said && of_host >= limit && ctx.running().any(has_idle_disks) {
        verdicts.find(no_io(&format!("of the host is {} %", figure(of_host))));
    }
}

/// Whether all disks of a guest are known to do nothing.
fn has_idle_disks(guest: &GuestContext<'_>) -> bool {
    let disks = &guest.domain.disks;
    !disks.is_empty()
        && disks.iter().all(|disk| {
            let ops = disk.read_ops + disk.write_ops + disk.flush_ops.unwrap_or(0.0);
            ops < 1.0 && disk.queue_depth.unwrap_or(0.0) < 0.01
        })
}

fn no_io(of_what: &str) -> Finding {
    let evidence = vec![
        format!(
            "the I/O pressure (some, 10 s) {of_what}, while the guests' disks make fewer than one \
                request per second and the host's disks are idle"
        ),
        "look at: ps -eLo pid,stat,wchan:20,comm | grep io_cqring; a thread in state D instead \
            waits for storage that does not answer, such as NFS"
            .into(),
    ];
    let fix = vec![fixes::advice(
        "Nothing to do: QEMU from 10.2 on sleeps in a ring of io_uring, and the kernel counts that \
            sleep as a wait for a disk. iowait and graphs drawn of it are wrong in the same way",
    )];
    Finding::new(Severity::Info, Confidence::Medium, evidence, fix)
}

/// Disks of the host that take long, whoever uses them.
pub(super) fn slow_host_disks(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    let limits = &ctx.thresholds().disks;
    for disk in ctx.model.host.disks.iter().flatten() {
        let Some(us) = disk.mean_us().filter(|_| !disk.is_stacked) else {
            continue;
        };
        let ops = disk.ops().unwrap_or(0.0);
        let Some(severity) = limits.host_disk_us.severity(us) else {
            continue;
        };
        if ops < limits.timed_ops {
            continue;
        }
        let evidence = vec![format!(
            "{}: {} a request, {} requests/s, {} under way",
            disk.name,
            duration(us),
            rate(ops),
            disk.in_flight
        )];
        let fix = vec![fixes::advice(
            "See who uses it: the list by disks (key d) and its column STORAGE, and tasks of the \
                host (scrub, backup); then smartctl -a of the device",
        )];
        verdicts.find(Finding {
            title: format!("The host's disk {} takes long", disk.name),
            marks: vec![Mark::HostDisk(disk.name.clone())],
            ..Finding::new(severity, Confidence::High, evidence, fix)
        });
    }
}
