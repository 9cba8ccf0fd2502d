//! Requests of a guest's disks: those that fail, wait for a limit or fill a queue, and where their
//! time goes.

use crate::figures::{duration, figure, or_unknown};
use crate::lint::facts::{
    Confidence, Context, Finding, Fix, GuestContext, Mark, Severity, Verdicts, known, shell,
};
use crate::lint::fixes;
use crate::lint::incidents;
use crate::model::{DiskConfig, DiskRates, HostDiskModel, addressed};
use sample::{DomainState, ThreadKind};

/// How many requests a bus takes at once. IDE knows no queue; native command queuing has
/// `NCQ_MAX_TAGS` on AHCI controllers; virtio-scsi has `cmd_per_lun`, and a queue of virtio-blk has
/// 128 places or 256 (hw/block/virtio-blk.c, hw/scsi/virtio-scsi.c).
const SLOTS: &[(&str, f64)] = &[
    ("ide", 1.0),
    ("sata", 32.0),
    ("ahci", 32.0),
    ("virtio", 128.0),
    ("scsi", 128.0),
];

/// QEMU counts requests that wait for the limit as under way: with fewer on average the limit holds
/// nothing back.
const MIN_WAITING: f64 = 0.5;

/// The host's devices saw at least this part of the guest's requests, else the page cache or the
/// network answers them. QEMU splits and merges requests, so the two counts differ on a healthy
/// guest as well.
const SEEN: f64 = 0.5;

/// A main thread this busy keeps requests waiting, percent.
const BUSY: f64 = 50.0;

const NOT_TIMED: &str = "the host's block devices are not timed: kvmtop --engine-detail disks, or \
    the list of disks";

/// The window of a disk's figures.
const WINDOW: &str = "between the last two readings";

const GIVE_IOTHREAD: &str = "Give the disk an IOThread (<iothreads> and <driver iothread=> in the \
    domain's XML)";
const USE_DIRECT: &str = "Use cache='none' with io='native' or io='io_uring' for the disk";
const LOOK_AT_THREADS: &str = "Look whether the thread that serves the disk waits for a CPU, or \
    uses all of one";
const LOOK_AT_STORAGE: &str = "Look at what else uses the device, at io.max of the guest's cgroup, \
    and at its health";
const LIMIT_NEED: &str = "takes effect at once and is kept; the guest may then use as much of the \
    storage as it wants";
const USE_VIRTIO: &str = "Change the disk to virtio; first install the virtio drivers in the guest";
const FEWER_REQUESTS: &str = "Faster storage, or less load: a longer queue only moves the wait";
const FLUSH_LESS: &str = "In the guest, commit in larger batches, or put the journal on a disk of \
    its own";
const FLUSH_FASTER: &str = "On the host, storage with a protected write cache makes a flush cheap";
const MEND_STORAGE: &str = "Look at the host's log, and mend the storage before the guest writes \
    more";

/// How many requests the guest can have under way on a disk's bus at once.
fn slots(disk: &DiskConfig<'_>) -> Option<f64> {
    SLOTS
        .iter()
        .find(|(prefix, _)| disk.bus.is_some_and(|bus| bus.starts_with(prefix)))
        .map(|(_, slots)| *slots)
}

fn config_of<'a>(guest: &GuestContext<'a>, disk: &DiskRates) -> Option<DiskConfig<'a>> {
    DiskConfig::find(&guest.domain.facts, &disk.name)
}

/// The disk with the largest first figure.
fn worst_disk<'a, T>(
    guest: &GuestContext<'a>,
    figures: impl Fn(&DiskRates) -> Option<(f64, T)>,
) -> Option<(&'a DiskRates, f64, T)> {
    let all = guest
        .domain
        .disks
        .iter()
        .filter_map(|disk| figures(disk).map(|(first, rest)| (disk, first, rest)));
    all.max_by(|a, b| a.1.total_cmp(&b.1))
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
        let failing = |disk: &DiskRates| Some((disk.failed_ops.filter(|n| *n > 0.0)?, ()));
        let Some((disk, rate, ())) = worst_disk(guest, failing) else {
            continue;
        };
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
        let fix = vec![fixes::advice(MEND_STORAGE)];
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
    let busy = |disk: &DiskRates| {
        let (ops, us) = disk
            .flush_ops
            .filter(|ops| *ops >= t.flushes)
            .zip(disk.flush_mean_us)?;
        Some((ops * us / 1e4, (ops, us)))
    };
    let Some((disk, percent, (ops, us))) = worst_disk(guest, busy) else {
        return;
    };
    let Some(severity) = t.flush_time.of(percent) else {
        return;
    };
    let (name, percent, ops, us) = (&disk.name, figure(percent), figure(ops), duration(us));
    let evidence = vec![
        format!(
            "disk {name}: a flush is under way for {percent} % of the time: {ops} flushes/s of \
            {us}, {WINDOW}"
        ),
        latencies(disk),
    ];
    let fix = vec![fixes::advice(FLUSH_LESS), fixes::advice(FLUSH_FASTER)];
    verdicts.find(Finding {
        marks: mark(disk),
        ..Finding::new(severity, Confidence::Medium, evidence, fix)
    });
}

pub(super) fn queue(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let t = &ctx.thresholds().disks;
    if guest
        .domain
        .disks
        .iter()
        .any(|d| d.queue_depth.is_none() && d.read_ops + d.write_ops > 0.0)
    {
        verdicts.cannot_tell("the VMM gives no times of its disks' requests");
    }
    let full = |disk: &DiskRates| {
        let slots = slots(&config_of(guest, disk)?)?;
        Some((100.0 * disk.queue_depth? / slots, slots))
    };
    let Some((disk, percent, slots)) =
        worst_disk(guest, full).filter(|full| full.1 >= t.queue_full)
    else {
        return;
    };
    let slow = disk.slowest_us().is_some_and(|us| us >= t.queue_us);
    let (name, depth, percent) = (
        &disk.name,
        or_unknown(disk.queue_depth, figure),
        figure(percent),
    );
    let places = figure(slots);
    let evidence = vec![
        format!(
            "disk {name}: {depth} requests under way on average, {percent} % of the {places} that \
            its bus takes"
        ),
        latencies(disk),
    ];
    let severity = if slow {
        Severity::Warning
    } else {
        Severity::Info
    };
    let fix = vec![fixes::advice(if slots < 2.0 {
        USE_VIRTIO
    } else {
        FEWER_REQUESTS
    })];
    verdicts.find(Finding {
        marks: mark(disk),
        ..Finding::new(severity, Confidence::Medium, evidence, fix)
    });
}

/// A disk at a limit.
struct AtLimit<'a> {
    disk: &'a DiskRates,
    limit: &'a str,
    rate: f64,
    most: f64,
    percent: f64,
}

pub(super) fn throttled(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let steps = &ctx.thresholds().disks.throttled;
    let waits = |at: &AtLimit<'_>| at.disk.queue_depth.is_none_or(|depth| depth >= MIN_WAITING);
    let worst = at_limits(guest)
        .filter(waits)
        .max_by(|a, b| a.percent.total_cmp(&b.percent));
    let Some(AtLimit {
        disk,
        limit,
        rate,
        most,
        percent,
    }) = worst
    else {
        return;
    };
    let Some(severity) = steps.of(percent) else {
        return;
    };
    let unit = if limit.contains("bytes") {
        "B/s"
    } else {
        "op/s"
    };
    let (name, depth) = (&disk.name, or_unknown(disk.queue_depth, figure));
    let (rate, most, percent) = (figure(rate), figure(most), figure(percent));
    let evidence = vec![
        format!(
            "disk {name}: {rate} {unit} of at most {most} ({limit}), {percent} % of the limit, \
            {WINDOW}"
        ),
        format!("{depth} requests under way on average; {}", latencies(disk)),
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
        vec![lift(guest, name, limit)],
    );
    verdicts.find(Finding {
        marks: mark(disk),
        ..found
    });
}

/// Whether a disk of the guest is at one of its limits: what it waits for is known then.
pub(super) fn is_at_limit(ctx: &Context<'_>, guest: &GuestContext<'_>) -> bool {
    let steps = &ctx.thresholds().disks.throttled;
    at_limits(guest).any(|at| steps.of(at.percent).is_some())
}

fn at_limits<'a>(guest: &GuestContext<'a>) -> impl Iterator<Item = AtLimit<'a>> {
    let limits = |disk: &'a DiskRates| {
        let set = config_of(guest, disk)
            .into_iter()
            .flat_map(|config| config.limits);
        set.map(move |(name, most)| (disk, name.as_str(), *most as f64))
    };
    let all = guest
        .domain
        .disks
        .iter()
        .flat_map(limits)
        .filter(|(.., most)| *most > 0.0);
    all.filter_map(|(disk, limit, most)| {
        let rate = match limit {
            "total_iops_sec" => disk.read_ops + disk.write_ops,
            "read_iops_sec" => disk.read_ops,
            "write_iops_sec" => disk.write_ops,
            "total_bytes_sec" => disk.read_bytes + disk.write_bytes,
            "read_bytes_sec" => disk.read_bytes,
            "write_bytes_sec" => disk.write_bytes,
            _ => return None,
        };
        Some(AtLimit {
            disk,
            limit,
            rate,
            most,
            percent: 100.0 * rate / most,
        })
    })
}

/// What removes a limit.
fn lift(guest: &GuestContext<'_>, disk: &str, limit: &str) -> Fix {
    if let Some(id) = guest.proxmox_id() {
        let others =
            format!("qm config {id} | sed -n 's/,\\(m\\?b\\|io\\)ps[^,]*//g; s/^{disk}: //p'");
        return fixes::command(format!("qm set {id} --{disk} \"$({others})\""));
    }
    if guest.config.libvirt == Some(false) {
        let raise = format!(
            "Raise the throttling options of the drive {disk} (block_set_io_throttle while it runs)"
        );
        return fixes::advice(raise);
    }
    let (disk, option) = (shell::quoted(disk), limit.replace('_', "-"));
    let rest = format!("{disk} --{option} 0 {}", fixes::scope(guest));
    fixes::command(fixes::virsh(guest, "blkdeviotune", &rest)).needing(LIMIT_NEED)
}

pub(super) fn latency(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let t = &ctx.thresholds().disks;
    let kinds = guest
        .domain
        .disks
        .iter()
        .flat_map(|d| [(d.read_ops, d.read_mean_us), (d.write_ops, d.write_mean_us)]);
    let asked = mean(kinds.filter_map(|(ops, us)| Some((ops, us?))));
    // The whole wait is less than a finding needs in any case.
    let asked = asked.filter(|(ops, us)| *ops >= t.timed_ops && t.outside_us.of(*us).is_some());
    let Some((ops, guest_us)) = asked else { return };
    let Some(disks) = &guest.domain.host_disks else {
        return verdicts.cannot_tell(NOT_TIMED);
    };
    let taken = mean(addressed(disks).filter_map(|disk| Some((disk.ops(), disk.mean_us().0?))));
    let Some((_, host_us)) = taken.filter(|(of_host, _)| *of_host >= t.timed_ops.max(SEEN * ops))
    else {
        return;
    };
    let percent = 100.0 * (guest_us - host_us) / guest_us;
    let outside = t
        .outside_us
        .of(guest_us - host_us)
        .filter(|_| percent >= t.outside_percent);
    let Some(severity) = outside.filter(|_| !is_at_limit(ctx, guest)) else {
        return;
    };
    let most = addressed(disks).max_by(|a, b| a.ops().total_cmp(&b.ops()));
    let main = guest
        .domain
        .emulator()
        .and_then(|thread| thread.cpu)
        .map(|cpu| cpu.busy())
        .filter(|main| *main >= BUSY);
    let submitter = most.and_then(HostDiskModel::submitted_most);
    let (waits, takes, outside) = (duration(guest_us), duration(host_us), figure(percent));
    let mut evidence = known([
        Some(format!(
            "the guest waits {waits} for a read or write, the host's block devices take {takes} of \
             it: {outside} % is spent outside them"
        )),
        most.map(device),
        submitter.map(|(who, of)| {
            format!(
                "{} % of the requests were submitted by: {}",
                figure(of),
                who.as_str()
            )
        }),
        main.map(|main| format!("the VMM's main thread uses {} % of a CPU", figure(main))),
    ]);
    let configs = guest
        .domain
        .disks
        .iter()
        .filter_map(|disk| Some((&disk.name, config_of(guest, disk)?)));
    evidence.extend(
        configs
            .take(4)
            .map(|(name, config)| configured(name, &config)),
    );
    let first = match submitter {
        Some((ThreadKind::Main, _)) => Some(fixes::libvirt_advice(GIVE_IOTHREAD)),
        Some((ThreadKind::Pool, _)) => Some(fixes::advice(USE_DIRECT)),
        _ => None,
    };
    let fix = first
        .into_iter()
        .chain([fixes::advice(LOOK_AT_THREADS)])
        .collect();
    let marks = guest
        .domain
        .disks
        .iter()
        .filter(|disk| disk.slowest_us().is_some())
        .flat_map(mark)
        .collect();
    verdicts.find(Finding {
        marks,
        ..Finding::new(severity, Confidence::Medium, evidence, fix)
    });
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
            .any(|us| t.storage_us.of(us).is_some());
        return if slow {
            verdicts.cannot_tell(NOT_TIMED);
        };
    };
    let timed = addressed(disks)
        .filter(|disk| disk.ops() >= t.timed_ops)
        .filter_map(|d| Some((d, d.mean_us().0?)));
    let Some((disk, us)) = timed.max_by(|a, b| a.1.total_cmp(&b.1)) else {
        return;
    };
    let Some(severity) = t.storage_us.of(us) else {
        return;
    };
    let evidence = vec![device(disk)];
    let fix = vec![fixes::advice(LOOK_AT_STORAGE)];
    let marks = vec![Mark::HostDisk(disk.name.clone())];
    verdicts.find(Finding {
        marks,
        ..Finding::new(severity, Confidence::High, evidence, fix)
    });
}

fn device(disk: &HostDiskModel) -> String {
    let (total, inside) = disk.mean_us();
    let alias = disk
        .alias
        .as_ref()
        .map(|alias| format!(" ({alias})"))
        .unwrap_or_default();
    let inside = inside
        .map(|us| format!(", {} of it in the device", duration(us)))
        .unwrap_or_default();
    let (name, ops, total) = (&disk.name, figure(disk.ops()), or_unknown(total, duration));
    let p99 = disk
        .p99_us()
        .map(|us| format!("; 99 % within {}", duration(us)))
        .unwrap_or_default();
    format!("{name}{alias}: {total} on average for {ops} reads and writes/s{inside}{p99}")
}

/// The sum of rates, and the mean time.
fn mean(parts: impl Iterator<Item = (f64, f64)>) -> Option<(f64, f64)> {
    let (ops, time) = parts.fold((0.0, 0.0), |(ops, time), (n, us)| (ops + n, time + n * us));
    (ops > 0.0).then(|| (ops, time / ops))
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

fn configured(disk: &str, config: &DiskConfig<'_>) -> String {
    let (cache, aio) = (
        config.cache.unwrap_or("default"),
        config.aio.unwrap_or("default"),
    );
    format!(
        "disk {disk}: cache {cache}, aio {aio}, {} IOThread",
        if config.iothread { "an" } else { "no" }
    )
}
