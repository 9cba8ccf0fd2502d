//! A guest that waits for its disks: on a host whose storage is fast, and on one whose storage is slow.

use super::setup::DiskSetup;
use super::{texts, throttled};
use crate::lint::prelude::*;
use crate::model::{DiskRates, HostDiskModel, addressed};
use sample::Submitter;

/// The host's devices saw at least this part of the guest's requests, else the page cache or the network answers them.
/// QEMU splits and merges requests, so the two counts differ on a healthy guest as well.
const SEEN: f64 = 0.5;
/// A main thread this busy keeps requests waiting, percent.
const BUSY: f64 = 50.0;

pub(super) fn latency(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let t = &ctx.thresholds().disks;
    let Some((ops, guest_us)) = asked(&guest.domain.disks).filter(|(ops, _)| *ops >= t.timed_ops) else { return };
    // Less than a finding needs in any case.
    if t.outside_us.of(guest_us).is_none() {
        return;
    }
    let Some(disks) = &guest.domain.host_disks else { return verdicts.cannot_tell(texts::NOT_TIMED) };
    let Some((host_ops, host_us)) = taken(disks).filter(|(host_ops, _)| *host_ops >= SEEN * ops) else { return };
    let percent = 100.0 * (guest_us - host_us) / guest_us;
    if host_ops < t.timed_ops || percent < t.outside_percent || throttled::is_at_limit(ctx, guest) {
        return;
    }
    let Some(severity) = t.outside_us.of(guest_us - host_us) else { return };
    let most = addressed(disks).max_by(|a, b| a.ops().total_cmp(&b.ops()));
    let main = guest.domain.emulator().and_then(|thread| thread.cpu).map(|cpu| cpu.busy());
    let submitter = most.and_then(HostDiskModel::submitted_most);
    let mut evidence = vec![format!(
        "the guest waits {} for a read or write, the host's block devices take {} of it: {} % is spent outside them",
        duration(guest_us),
        duration(host_us),
        figure(percent)
    )];
    evidence.extend(most.map(device));
    evidence.extend(submitter.map(|(who, percent)| {
        format!("{} % of the requests were submitted by {}", figure(percent), texts::submitter(who))
    }));
    let main = main.filter(|main| *main >= BUSY);
    evidence.extend(main.map(|main| format!("the VMM's main thread uses {} % of a CPU", figure(main))));
    let setups = guest.domain.disks.iter().filter_map(|disk| Some((&disk.name, DiskSetup::of(guest, &disk.name)?)));
    evidence.extend(setups.take(4).map(|(name, setup)| texts::configured(name, &setup)));
    let first = match submitter {
        Some((Submitter::Main, _)) => Some(fixes::libvirt_advice(texts::GIVE_IOTHREAD)),
        Some((Submitter::Pool, _)) => Some(fixes::advice(texts::USE_DIRECT)),
        _ => None,
    };
    let fix = first.into_iter().chain([fixes::advice(texts::LOOK_AT_THREADS)]).collect();
    let title = "The guest waits for its disks outside the host's storage".into();
    verdicts.find(Finding { title, ..Finding::new(severity, Confidence::Medium, evidence, fix) });
}

/// A block device of the host that is slow.
pub(super) fn slow_storage(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let t = &ctx.thresholds().disks;
    let Some(disks) = &guest.domain.host_disks else {
        let slow = |us: f64| t.storage_us.of(us).is_some();
        let mut asked = guest.domain.disks.iter().filter(|d| d.read_ops + d.write_ops >= t.timed_ops);
        if asked.any(|d| d.slowest_us().is_some_and(slow)) {
            verdicts.cannot_tell(texts::NOT_TIMED);
        }
        return;
    };
    let timed = addressed(disks).filter(|disk| disk.ops() >= t.timed_ops).filter_map(|d| Some((d, d.mean_us().0?)));
    let Some((disk, us)) = timed.max_by(|a, b| a.1.total_cmp(&b.1)) else { return };
    let Some(severity) = t.storage_us.of(us) else { return };
    let evidence = vec![device(disk), "look at: iostat -x 1".to_owned()];
    let fix = vec![fixes::advice(texts::LOOK_AT_STORAGE)];
    let title = "The host's storage is slow for the guest".into();
    verdicts.find(Finding { title, ..Finding::new(severity, Confidence::High, evidence, fix) });
}

fn device(disk: &HostDiskModel) -> String {
    let (total, inside) = disk.mean_us();
    let alias = disk.alias.as_ref().map(|alias| format!(" ({alias})")).unwrap_or_default();
    let inside = inside.map(|us| format!(", {} of it in the device", duration(us))).unwrap_or_default();
    format!(
        "{}{alias}: {} on average for {} reads and writes/s{inside}; 99 % within {}",
        disk.name,
        or_unknown(total, duration),
        figure(disk.ops()),
        or_unknown(disk.p99_us(), duration)
    )
}

/// Reads and writes of all disks per second, and their mean time, microseconds.
fn asked(disks: &[DiskRates]) -> Option<(f64, f64)> {
    let kinds = disks.iter().flat_map(|d| [(d.read_ops, d.read_mean_us), (d.write_ops, d.write_mean_us)]);
    mean(kinds.filter_map(|(ops, us)| Some((ops, us?))))
}

/// The same of the devices that the guest's threads address.
fn taken(disks: &[HostDiskModel]) -> Option<(f64, f64)> {
    mean(addressed(disks).filter_map(|disk| Some((disk.ops(), disk.mean_us().0?))))
}

fn mean(parts: impl Iterator<Item = (f64, f64)>) -> Option<(f64, f64)> {
    let (ops, time) = parts.fold((0.0, 0.0), |(ops, time), (n, us)| (ops + n, time + n * us));
    (ops > 0.0).then(|| (ops, time / ops))
}
