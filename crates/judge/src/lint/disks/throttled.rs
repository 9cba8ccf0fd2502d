//! A disk that is kept to a limit.

use super::setup::DiskSetup;
use super::texts::{self, WINDOW, latencies};
use crate::lint::prelude::*;
use crate::model::DiskRates;

/// QEMU counts requests that wait for the limit as under way: with fewer on average the limit holds nothing back.
const MIN_WAITING: f64 = 0.5;

/// A disk at a limit.
struct AtLimit<'a> {
    disk: &'a DiskRates,
    limit: String,
    rate: f64,
    most: f64,
}

impl AtLimit<'_> {
    fn percent(&self) -> f64 {
        100.0 * self.rate / self.most
    }
}

pub(super) fn throttled(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let steps = &ctx.thresholds().disks.throttled;
    let waits = |disk: &&DiskRates| disk.queue_depth.is_none_or(|depth| depth >= MIN_WAITING);
    let limited = guest.domain.disks.iter().filter(waits).flat_map(|disk| at_limits(guest, disk));
    let Some(worst) = limited.max_by(|a, b| a.percent().total_cmp(&b.percent())) else { return };
    let Some(severity) = steps.of(worst.percent()) else { return };
    let AtLimit { disk, limit, rate, most } = &worst;
    let unit = if limit.contains("bytes") { "B/s" } else { "op/s" };
    let (name, depth) = (&disk.name, or_unknown(disk.queue_depth, figure));
    let (rate, most, percent) = (figure(*rate), figure(*most), figure(worst.percent()));
    let evidence = vec![
        format!("disk {name}: {rate} {unit} of at most {most} ({limit}), {percent} % of the limit, {WINDOW}"),
        format!("{depth} requests under way on average; {}", latencies(disk)),
        look_at(guest, name),
    ];
    let confidence = if disk.queue_depth.is_some() { Confidence::High } else { Confidence::Medium };
    let found = Finding::new(severity, confidence, evidence, lift(guest, name, limit));
    verdicts.find(Finding { title: "A limit holds the guest's disk back".into(), ..found });
}

/// Whether a disk of the guest is at one of its limits: what it waits for is known then.
pub(super) fn is_at_limit(ctx: &Context<'_>, guest: &GuestContext<'_>) -> bool {
    let steps = &ctx.thresholds().disks.throttled;
    let mut limited = guest.domain.disks.iter().flat_map(|disk| at_limits(guest, disk));
    limited.any(|at| steps.of(at.percent()).is_some())
}

fn at_limits<'a>(guest: &GuestContext<'_>, disk: &'a DiskRates) -> Vec<AtLimit<'a>> {
    let limits = DiskSetup::of(guest, &disk.name).map(|setup| setup.limits).unwrap_or_default();
    let of = |name: &str| match name {
        "total_iops_sec" => Some(disk.read_ops + disk.write_ops),
        "read_iops_sec" => Some(disk.read_ops),
        "write_iops_sec" => Some(disk.write_ops),
        "total_bytes_sec" => Some(disk.read_bytes + disk.write_bytes),
        "read_bytes_sec" => Some(disk.read_bytes),
        "write_bytes_sec" => Some(disk.write_bytes),
        _ => None,
    };
    let limit = |(name, most): (String, u64)| {
        Some(AtLimit { disk, rate: of(&name)?, limit: name, most: most as f64 }).filter(|at| at.most > 0.0)
    };
    limits.into_iter().filter_map(limit).collect()
}

fn look_at(guest: &GuestContext<'_>, disk: &str) -> String {
    if guest.config.libvirt == Some(false) {
        return fixes::check_setup(guest);
    }
    format!("look at: {}", fixes::virsh(guest, "blkdeviotune", &fixes::shell::quoted(disk)))
}

/// Removes a limit.
fn lift(guest: &GuestContext<'_>, disk: &str, limit: &str) -> Vec<Fix> {
    if guest.config.libvirt == Some(false) {
        return vec![fixes::advice(format!(
            "Raise or remove the throttling options of the drive {disk}; the monitor's block_set_io_throttle changes \
             them while the guest runs"
        ))];
    }
    let option = limit.replace('_', "-");
    let rest = format!("{} --{option} 0 {}", fixes::shell::quoted(disk), fixes::scope(guest));
    vec![fixes::command(fixes::virsh(guest, "blkdeviotune", &rest)).needing(texts::LIMIT_NEED)]
}
