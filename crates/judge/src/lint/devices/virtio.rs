//! virtio: interrupts through `INTx`, and notifications that reach the VMM.

use super::{properties, texts};
use crate::lint::prelude::*;
use crate::model::DoorbellModel;

/// Offsets in a legacy virtio device's port window (`uapi/linux/virtio_pci.h`).
const LEGACY_NOTIFY: u64 = 0x10;
const LEGACY_ISR: u64 = 0x13;
/// `KVM_EXIT_MMIO` and `KVM_EXIT_IO` (`uapi/linux/kvm.h`).
const EXIT_MMIO: i32 = 6;
const EXIT_IO: i32 = 2;

/// Whether a row is this register of a legacy virtio device.
fn is_legacy(row: &AccessRow, offset: u64) -> bool {
    row.space == Space::Pio
        && row.device.as_ref().is_some_and(|d| d.name == "virtio-pci" && row.address == Some(d.base + offset))
}

fn reads_interrupt_status(r: &AccessRow) -> bool {
    is_legacy(r, LEGACY_ISR) && r.direction == Direction::Read
        || r.device_name().is_some_and(|n| n.starts_with("virtio-pci-isr"))
}

fn is_notification(r: &AccessRow) -> bool {
    r.direction == Direction::Write
        && (is_legacy(r, LEGACY_NOTIFY) || r.device_name().is_some_and(|n| n.starts_with("virtio-pci-notify")))
}

/// A virtio driver that asks which device interrupted.
pub(super) fn intx(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let reads = guest.accesses(reads_interrupt_status);
    let Some(rate) = reads.rate_or_tell(guest, verdicts) else { return };
    if rate < ctx.thresholds().devices.intx_reads {
        return;
    }
    let (cited, mut fix) = properties::cited(guest, &["vectors"]);
    let mut evidence = vec![reads.describe(guest, "reads", "of virtio's interrupt status")];
    evidence.extend(cited);
    evidence.push("look inside the guest: grep virtio /proc/interrupts should show MSI".into());
    fix.extend([fixes::advice(texts::USE_MSIX), fixes::advice(texts::DEFAULT_VECTORS)]);
    verdicts.find(Finding::new(Severity::Warning, Confidence::High, evidence, fix).caused_by(reads));
}

/// Notifications that reach the VMM.
pub(super) fn kicks(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let kicks = guest.accesses(is_notification);
    let Some(rate) = kicks.rate_or_tell(guest, verdicts) else { return };
    if rate < ctx.thresholds().devices.kicks {
        return;
    }
    let userspace = &guest.domain.userspace;
    if userspace.is_empty() {
        return verdicts
            .cannot_tell("exits to the VMM were not counted, so it is unknown who serves the notifications");
    }
    // An ioeventfd ends in the kernel. What remains of the exits to the VMM can only be notifications.
    let to_vmm = total(userspace.iter().filter(|u| u.0.is_none() && matches!(u.1, EXIT_MMIO | EXIT_IO)).map(|u| u.2));
    let served_by_vmm =
        |r: &AccessRow| r.space != Space::Msr && !is_notification(r) && r.device.as_ref().is_none_or(|d| !d.in_kernel);
    let others = guest.accesses(served_by_vmm).count;
    if to_vmm.saturating_sub(others).saturating_mul(2) < kicks.count {
        return;
    }
    let (cited, fix) = properties::cited(guest, &["ioeventfd", "vhost", "event-idx"]);
    let confidence = if cited.is_empty() { Confidence::Medium } else { Confidence::High };
    let (count, window) = (figure(to_vmm as f64), guest.window());
    let mut evidence = vec![
        kicks.describe(guest, "virtio notifications", ""),
        format!("{count} exits to the VMM {window}, which other accesses do not explain"),
    ];
    evidence.extend(cited);
    evidence.extend(guest.domain.doorbells.as_deref().and_then(doorbells));
    evidence.push(texts::CHECK_KICKS.into());
    let mut fix = fixes::or_advice(fix, fixes::advice("Check that nothing sets ioeventfd=off on the device"));
    fix.push(fixes::advice(texts::USE_VHOST));
    verdicts.find(Finding::new(Severity::Info, confidence, evidence, fix).caused_by(kicks));
}

/// What the VMM's threads take to answer doorbells, where that was traced.
fn doorbells(bells: &[DoorbellModel]) -> Option<String> {
    let bell = bells.first()?;
    let (rate, mean) = (figure(bell.rate()?), figure(bell.time.mean_us()?));
    Some(format!("the doorbell {:#x} wakes {} {rate} times/s, which runs {mean} us later", bell.address, bell.comm))
}
