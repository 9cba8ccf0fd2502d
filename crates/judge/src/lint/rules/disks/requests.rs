//! Requests of a guest's disks: those that fail, wait for a limit or fill a queue, and where their
//! time goes.

use crate::figures::{duration, figure, or_unknown};
use crate::lint::facts::{
    Confidence, Context, Finding, Fix, GuestContext, Mark, Severity, Verdicts, known, shell,
};
use crate::lint::fixes;
use crate::lint::incidents;
use crate::model::{DiskConfig, DiskRates, HostDiskModel, LimitUse, addressed};
use sample::{DomainState, ThreadKind};

/// How many requests a bus takes at once. IDE knows no queue; native command queuing has
/// `NCQ_MAX_TAGS` on AHCI controllers; virtio-scsi has `cmd_per_lun`, and a queue of virtio-blk has
/// 128 places or 256 (hw/block/virtio-blk.c, hw/scsi/virtio-scsi.c).
const BUS_SLOTS: &[(&str, f64)] = &[
    ("ide", 1.0),
    ("sata", 32.0),
    ("ahci", 32.0),
    ("virtio", 128.0),
    ("scsi", 128.0),
];

/// QEMU counts requests that wait for the limit as under way: with fewer on average the limit holds
/// nothing back.
const MIN_WAITING_REQUESTS: f64 = 0.5;

const NOT_TIMED: &str = "the host's block devices are not timed: kvmtop --engine-detail disks, or \
    the list of disks";

/// The window of a disk's figures.
const WINDOW: &str = "between the last two readings";

/// How many requests the guest can have under way on a disk's bus at once.
fn disk_slots(guest: &GuestContext<'_>, disk: &DiskRates) -> Option<f64> {
    let bus = config_of(guest, disk)?.bus?;
    BUS_SLOTS
        .iter()
        .find(|(prefix, _)| bus.starts_with(prefix))
        .map(|(_, slots)| *slots)
}

fn config_of<'a>(guest: &GuestContext<'a>, disk: &DiskRates) -> Option<DiskConfig<'a>> {
    DiskConfig::find(&guest.domain.facts, &disk.name)
}

/// The disk with the largest figure, and that figure.
fn worst_disk<'a>(
    guest: &GuestContext<'a>,
    figure: impl Fn(&DiskRates) -> Option<f64>,
) -> Option<(&'a DiskRates, f64)> {
    let disks = guest.domain.disks.iter();
    disks
        .filter_map(|disk| Some((disk, figure(disk)?)))
        .max_by(|a, b| a.1.total_cmp(&b.1))
}

fn mark(disk: &DiskRates) -> Vec<Mark> {
    vec![Mark::Disk(disk.name.clone())]
}

pub(super) fn errors(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    for guest in ctx
        .guests
        .iter()
        .filter(|g| g.not_judged.is_none() && g.domain.state != DomainState::Ended)
    {
        let Some((disk, rate)) = worst_disk(guest, |disk| disk.failed_ops) else {
            continue;
        };
        if rate <= 0.0 {
            continue;
        }
        let evidence = vec![
            format!(
                "disk {}: {} failed requests/s {WINDOW}",
                disk.name,
                figure(rate)
            ),
            format!(
                "look at: {}; dmesg --level err,warn",
                fixes::virsh(guest, "domblkerror", "")
            ),
        ];
        let fix = vec![fixes::advice(
            "Look at the host's log, and mend the storage before the \
            guest writes more",
        )];
        let found = Finding::new(Severity::Warning, Confidence::High, evidence, fix);
        verdicts.find_for(
            guest,
            Finding {
                marks: mark(disk),
                ..found
            },
        );
    }
    incidents::logged(ctx, verdicts);
}

pub(super) fn flushes(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let t = &ctx.thresholds().disks;
    let Some((disk, percent)) = worst_disk(guest, |disk| {
        let ops = disk.flush_ops.filter(|ops| *ops >= t.flushes)?;
        Some(ops * disk.flush_mean_us? / 1e4)
    }) else {
        return;
    };
    let Some(severity) = t.flush_time.severity(percent) else {
        return;
    };
    let evidence = vec![
        format!(
            "disk {}: a flush is under way for {} % of the time: {} flushes/s of {}, {WINDOW}",
            disk.name,
            figure(percent),
            or_unknown(disk.flush_ops, figure),
            or_unknown(disk.flush_mean_us, duration)
        ),
        latencies(disk),
    ];
    let fix = vec![
        fixes::advice(
            "In the guest, commit in larger batches, or put the journal \
        on a disk of its own",
        ),
        fixes::advice(
            "On the host, storage with a protected write \
            cache makes a flush cheap",
        ),
    ];
    verdicts.find(Finding {
        marks: mark(disk),
        ..Finding::new(severity, Confidence::Medium, evidence, fix)
    });
}

pub(super) fn queue(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let t = &ctx.thresholds().disks;
    let Some((disk, percent)) = worst_disk(guest, |disk| {
        Some(100.0 * disk.queue_depth? / disk_slots(guest, disk)?)
    }) else {
        return;
    };
    let Some(slots) = disk_slots(guest, disk) else {
        return;
    };
    if percent < t.queue_full {
        return;
    }
    let is_slow = disk.slowest_us().is_some_and(|us| us >= t.queue_us);
    let evidence = vec![
        format!(
            "disk {}: {} requests under way on average, {} % of the {} that its bus takes",
            disk.name,
            or_unknown(disk.queue_depth, figure),
            figure(percent),
            figure(slots)
        ),
        latencies(disk),
    ];
    let severity = if is_slow {
        Severity::Warning
    } else {
        Severity::Info
    };
    let fix = vec![fixes::advice(if slots < 2.0 {
        "Change the disk to virtio; first install the virtio drivers in the guest"
    } else {
        "Faster storage, or less load: a longer queue only moves the wait"
    })];
    verdicts.find(Finding {
        marks: mark(disk),
        ..Finding::new(severity, Confidence::Medium, evidence, fix)
    });
}

/// A disk at a limit.
struct AtLimit<'a> {
    disk: &'a DiskRates,
    used: LimitUse<'a>,
}

pub(super) fn throttled(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let steps = &ctx.thresholds().disks.throttled;
    let mut at_limits = at_limits(guest);
    at_limits.retain(|at| {
        let depth = at.disk.queue_depth;
        depth.is_none_or(|depth| depth >= MIN_WAITING_REQUESTS)
    });
    let worst = at_limits
        .iter()
        .max_by(|a, b| a.used.percent().total_cmp(&b.used.percent()));
    let Some(AtLimit { disk, used }) = worst else {
        return;
    };
    let Some(severity) = steps.severity(used.percent()) else {
        return;
    };
    let limit = used.name;
    let unit = if limit.contains("bytes") {
        "B/s"
    } else {
        "op/s"
    };
    let evidence = vec![
        format!(
            "disk {}: {} {unit} of at most {} ({limit}), {} % of the limit, {WINDOW}",
            disk.name,
            figure(used.rate),
            figure(used.most),
            figure(used.percent())
        ),
        format!(
            "{} requests under way on average; {}",
            or_unknown(disk.queue_depth, figure),
            latencies(disk)
        ),
    ];
    let confidence = if disk.queue_depth.is_some() {
        Confidence::High
    } else {
        Confidence::Medium
    };
    let found = Finding::new(
        severity,
        confidence,
        evidence,
        vec![lift(guest, &disk.name, limit)],
    );
    verdicts.find(Finding {
        marks: mark(disk),
        ..found
    });
}

/// Whether a disk of the guest is at one of its limits: what it waits for is known then.
pub(super) fn is_at_limit(ctx: &Context<'_>, guest: &GuestContext<'_>) -> bool {
    let steps = &ctx.thresholds().disks.throttled;
    at_limits(guest)
        .iter()
        .any(|at| steps.severity(at.used.percent()).is_some())
}

/// What the guest's disks use of each limit that is set.
fn at_limits<'a>(guest: &GuestContext<'a>) -> Vec<AtLimit<'a>> {
    let mut all = Vec::new();
    for disk in &guest.domain.disks {
        let limits = config_of(guest, disk).map(|config| config.limits_of(disk));
        for used in limits.into_iter().flatten() {
            all.push(AtLimit { disk, used });
        }
    }
    all
}

/// What removes a limit.
fn lift(guest: &GuestContext<'_>, disk: &str, limit: &str) -> Fix {
    if guest.config.libvirt == Some(false) {
        let raise = format!(
            "Raise the limits of the drive {disk} (block_set_io_throttle in QEMU's monitor \
                while it runs)"
        );
        return fixes::advice(raise);
    }
    let rest = format!(
        "{} --{} 0 {}",
        shell::quoted(disk),
        limit.replace('_', "-"),
        fixes::scope(guest)
    );
    fixes::command(fixes::virsh(guest, "blkdeviotune", &rest)).needing(
        "takes effect at once and is kept; the guest may then use as much of the \
        storage as it wants",
    )
}

pub(super) fn latency(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let t = &ctx.thresholds().disks;
    let Some(requests) = guest.domain.requests() else {
        return;
    };
    // The whole wait is less than a finding needs in any case.
    if requests.ops < t.timed_ops || t.outside_us.severity(requests.mean_us).is_none() {
        return;
    }
    let Some(disks) = &guest.domain.host_disks else {
        return verdicts.cannot_tell(NOT_TIMED);
    };
    let Some(host_requests) = guest.domain.device_requests() else {
        return;
    };
    let Some(outside_us) = guest.domain.outside_devices_us() else {
        return;
    };
    let percent = 100.0 * outside_us / requests.mean_us;
    let Some(severity) = t.outside_us.severity(outside_us) else {
        return;
    };
    if host_requests.ops < t.timed_ops || percent < t.outside_percent || is_at_limit(ctx, guest) {
        return;
    }
    let most = addressed(disks).max_by(|a, b| a.ops().total_cmp(&b.ops()));
    let submitter = most.and_then(HostDiskModel::submitted_most);
    let evidence = known([
        Some(format!(
            "the guest waits {} for a read or write, the host's block devices take {} of it: {} % \
                is spent outside them",
            duration(requests.mean_us),
            duration(host_requests.mean_us),
            figure(percent)
        )),
        most.map(device),
        submitter.map(|(who, of)| {
            format!(
                "{} % of the requests were submitted by: {}",
                figure(of),
                who.as_str()
            )
        }),
    ]);
    let submitter = submitter.map(|(who, _)| who);
    let disks = guest.domain.disks.iter();
    let timed = disks.filter(|disk| disk.slowest_us().is_some());
    let fix = faster_requests(submitter);
    verdicts.find(Finding {
        marks: timed.flat_map(mark).collect(),
        ..Finding::new(severity, Confidence::Medium, evidence, fix)
    });
}

/// What shortens the way to the host's devices, by the thread that submits most requests.
fn faster_requests(submitter: Option<ThreadKind>) -> Vec<Fix> {
    let mut fix = Vec::new();
    match submitter {
        Some(ThreadKind::Main) => fix.push(fixes::libvirt_advice(
            "Give the disk an IOThread (<iothreads> and <driver iothread=> in the domain's XML)",
        )),
        Some(ThreadKind::Pool) => fix.push(fixes::advice(
            "Use cache='none' with io='native' or io='io_uring' for the disk",
        )),
        _ => {}
    }
    fix.push(fixes::advice(
        "Look whether the thread that serves the disk waits for a CPU, or uses all of one",
    ));
    fix
}

/// A block device of the host that is slow.
pub(super) fn slow_storage(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let t = &ctx.thresholds().disks;
    let Some(disks) = &guest.domain.host_disks else {
        let slow = guest
            .domain
            .disks
            .iter()
            .filter_map(DiskRates::slowest_us)
            .any(|us| t.storage_us.severity(us).is_some());
        if slow {
            verdicts.cannot_tell(NOT_TIMED);
        }
        return;
    };
    let timed = addressed(disks)
        .filter(|disk| disk.ops() >= t.timed_ops)
        .filter_map(|d| Some((d, d.mean_us()?)));
    let Some((disk, us)) = timed.max_by(|a, b| a.1.total_cmp(&b.1)) else {
        return;
    };
    let Some(severity) = t.storage_us.severity(us) else {
        return;
    };
    let evidence = vec![device(disk)];
    let fix = vec![fixes::advice(
        "Look at what else uses the device, at io.max of the guest's \
        cgroup, and at its health",
    )];
    let marks = vec![Mark::HostDisk(disk.name.clone())];
    verdicts.find(Finding {
        marks,
        ..Finding::new(severity, Confidence::High, evidence, fix)
    });
}

fn device(disk: &HostDiskModel) -> String {
    let mean_us = disk.mean_us();
    let inside_us = disk.device_mean_us();
    let alias = disk
        .alias
        .as_ref()
        .map(|alias| format!(" ({alias})"))
        .unwrap_or_default();
    let inside = inside_us
        .map(|us| format!(", {} of it in the device", duration(us)))
        .unwrap_or_default();
    let p99 = disk
        .p99_us()
        .map(|us| format!("; 99 % within {}", duration(us)))
        .unwrap_or_default();
    format!(
        "{}{alias}: {} on average for {} reads and writes/s{inside}{p99}",
        disk.name,
        or_unknown(mean_us, duration),
        figure(disk.ops())
    )
}

fn latencies(disk: &DiskRates) -> String {
    let times = [
        ("read", disk.read_mean_us),
        ("write", disk.write_mean_us),
        ("flush", disk.flush_mean_us),
    ];
    let known = times
        .into_iter()
        .filter_map(|(what, us)| Some(format!("a {what} takes {}", duration(us?))));
    let known = known.collect::<Vec<_>>().join(", ");
    if known.is_empty() {
        "no request's time is known".into()
    } else {
        format!("{known} on average in QEMU and below")
    }
}
