//! What the VMM says about a disk's requests: those that fail, flushes that take most of its time, a full queue.

use super::setup::DiskSetup;
use super::texts::{self, WINDOW, latencies};
use crate::lint::prelude::*;
use crate::model::DiskRates;

fn check_stats(guest: &GuestContext<'_>) -> String {
    format!("check: {}", fixes::virsh(guest, "domstats", "--block"))
}

/// The disk with the largest first figure.
fn worst_disk<'a, T>(
    guest: &GuestContext<'a>,
    figures: impl Fn(&DiskRates) -> Option<(f64, T)>,
) -> Option<(&'a DiskRates, f64, T)> {
    let all = guest.domain.disks.iter().filter_map(|disk| figures(disk).map(|(first, rest)| (disk, first, rest)));
    all.max_by(|a, b| a.1.total_cmp(&b.1))
}

pub(super) fn errors(_: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let failing = |disk: &DiskRates| Some((disk.failed_ops.filter(|n| *n > 0.0)?, ()));
    let Some((disk, rate, ())) = worst_disk(guest, failing) else { return };
    let evidence = vec![
        format!("disk {}: {} failed requests/s {WINDOW}", disk.name, figure(rate)),
        format!("look at: {}; dmesg --level err,warn", fixes::virsh(guest, "domblkerror", "")),
    ];
    let fix = vec![fixes::advice(texts::MEND_STORAGE)];
    verdicts.find(Finding::new(Severity::Warning, Confidence::High, evidence, fix));
}

pub(super) fn flushes(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let t = &ctx.thresholds().disks;
    let busy = |disk: &DiskRates| {
        let (ops, us) = disk.flush_ops.filter(|ops| *ops >= t.flushes).zip(disk.flush_mean_us)?;
        Some((ops * us / 1e4, (ops, us)))
    };
    let Some((disk, percent, (ops, us))) = worst_disk(guest, busy) else { return };
    let Some(severity) = t.flush_time.of(percent) else { return };
    let (name, percent, ops, us) = (&disk.name, figure(percent), figure(ops), duration(us));
    let evidence = vec![
        format!("disk {name}: a flush is under way for {percent} % of the time: {ops} flushes/s of {us}, {WINDOW}"),
        latencies(disk),
        check_stats(guest),
    ];
    let fix = vec![fixes::advice(texts::FLUSH_LESS), fixes::advice(texts::FLUSH_FASTER)];
    let title = "Flushes take most of the time of the guest's disk".into();
    verdicts.find(Finding { title, ..Finding::new(severity, Confidence::Medium, evidence, fix) });
}

pub(super) fn queue(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let t = &ctx.thresholds().disks;
    if guest.domain.disks.iter().any(|d| d.queue_depth.is_none() && d.read_ops + d.write_ops > 0.0) {
        verdicts.cannot_tell("the VMM gives no times of its disks' requests");
    }
    let full = |disk: &DiskRates| {
        let slots = DiskSetup::of(guest, &disk.name)?.slots()?;
        Some((100.0 * disk.queue_depth? / slots, slots))
    };
    let Some((disk, percent, slots)) = worst_disk(guest, full).filter(|full| full.1 >= t.queue_full) else { return };
    let slow = disk.slowest_us().is_some_and(|us| us >= t.queue_us);
    let full = format!(
        "disk {}: {} requests under way on average, {} % of the {} that its bus takes, {WINDOW}",
        disk.name,
        or_unknown(disk.queue_depth, figure),
        figure(percent),
        figure(slots)
    );
    let evidence = vec![full, latencies(disk), check_stats(guest)];
    let severity = if slow { Severity::Warning } else { Severity::Info };
    let fix = vec![fixes::advice(if slots < 2.0 { texts::USE_VIRTIO } else { texts::FEWER_REQUESTS })];
    let title = "The queue of the guest's disk is full".into();
    verdicts.find(Finding { title, ..Finding::new(severity, Confidence::Medium, evidence, fix) });
}
