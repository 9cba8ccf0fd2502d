//! virtio: interrupts through `INTx` or a workqueue, and notifications that reach the VMM.

use super::properties;
use crate::figures::figure;
use crate::lint::facts::{Confidence, Context, Finding, GuestContext, Severity, Verdicts};
use crate::lint::fixes;
use crate::model::{AccessRow, ThreadModel, total};
use kvm::Space;
use sample::Direction;

/// Offsets in a legacy virtio device's port window (`uapi/linux/virtio_pci.h`).
const LEGACY_NOTIFY: u64 = 0x10;
const LEGACY_ISR: u64 = 0x13;

/// `KVM_EXIT_MMIO` and `KVM_EXIT_IO` (`uapi/linux/kvm.h`).
const EXIT_MMIO: i32 = 6;
const EXIT_IO: i32 = 2;

/// Whether a row is this register of a legacy virtio device.
fn is_legacy(row: &AccessRow, offset: u64) -> bool {
    row.space == Space::Pio
        && row
            .device
            .as_ref()
            .is_some_and(|d| d.name == "virtio-pci" && row.address == Some(d.base + offset))
}

fn is_notification(r: &AccessRow) -> bool {
    r.direction == Direction::Write
        && (is_legacy(r, LEGACY_NOTIFY)
            || r.device_name()
                .is_some_and(|n| n.starts_with("virtio-pci-notify")))
}

/// A virtio driver that asks which device interrupted.
pub(super) fn intx(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let reads = guest.accesses(|r| {
        (is_legacy(r, LEGACY_ISR) && r.direction == Direction::Read)
            || r.device_name()
                .is_some_and(|n| n.starts_with("virtio-pci-isr"))
    });
    if reads
        .rate_or_tell(verdicts)
        .is_none_or(|rate| rate < ctx.thresholds().devices.intx_reads)
    {
        return;
    }
    let cited = properties::cited(guest, &["vectors"]);
    let mut evidence = vec![reads.describe("reads", "of virtio's interrupt status")];
    evidence.extend(cited.evidence);
    evidence.push("look inside the guest: grep virtio /proc/interrupts should show MSI".into());
    let mut fix = cited.fixes;
    fix.extend(
        [
            "Remove pci=nomsi from the guest's kernel command line; in Windows, update \
        the drivers",
            "Give the device the default number of vectors: with vectors='0' it has \
            no MSI-X",
        ]
        .map(fixes::advice),
    );
    verdicts
        .find(Finding::new(Severity::Warning, Confidence::High, evidence, fix).caused_by(reads));
}

/// Notifications that reach the VMM.
pub(super) fn kicks(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let kicks = guest.accesses(is_notification);
    if kicks
        .rate_or_tell(verdicts)
        .is_none_or(|rate| rate < ctx.thresholds().devices.kicks)
    {
        return;
    }
    let userspace = &guest.domain.userspace;
    if userspace.is_empty() {
        return verdicts.cannot_tell(
            "exits to the VMM were not counted, so it is unknown who \
            serves the notifications",
        );
    }
    // A notification through an ioeventfd ends in the kernel. Exits to the VMM that no other access
    // explains can only be notifications.
    let to_vmm = total(
        userspace
            .iter()
            .filter(|row| row.vcpu.is_none() && matches!(row.reason, EXIT_MMIO | EXIT_IO))
            .map(|row| row.count),
    );
    let others = guest.accesses(|r| {
        r.space != Space::Msr
            && !is_notification(r)
            && r.device.as_ref().is_none_or(|d| !d.in_kernel)
    });
    if to_vmm.saturating_sub(others.count).saturating_mul(2) < kicks.count {
        return;
    }
    let cited = properties::cited(guest, &["ioeventfd", "vhost", "event-idx"]);
    let confidence = if cited.evidence.is_empty() {
        Confidence::Medium
    } else {
        Confidence::High
    };
    let to_vmm = format!(
        "{} exits to the VMM {}",
        figure(to_vmm as f64),
        guest.window()
    );
    let mut evidence = vec![
        kicks.describe("virtio notifications", ""),
        format!("{to_vmm}, which other accesses do not explain"),
    ];
    evidence.extend(cited.evidence);
    let mut fix = fixes::or_advice(
        cited.fixes,
        fixes::advice("Check that nothing sets ioeventfd=off on the device"),
    );
    fix.push(fixes::advice(
        "Network: use vhost (modprobe vhost_net). Disk: leave ioeventfd \
        on, and give it an IOThread",
    ));
    verdicts.find(Finding::new(Severity::Info, confidence, evidence, fix).caused_by(kicks));
}

/// Wake-ups per second that are reported when the kworker is on an isolated CPU.
const MIN_ISOLATED_WAKES_PER_S: f64 = 10.0;

/// The CPU of a bound kworker: `kworker/3:1`, `kworker/3:1H-kblockd`. Unbound ones are
/// `kworker/u8:2`.
fn kworker_cpu(comm: &str) -> Option<u32> {
    let (cpu, _) = comm.strip_prefix("kworker/")?.split_once(':')?;
    cpu.parse().ok()
}

/// How often kworkers woke a thread.
fn kworker_wakes(thread: &ThreadModel) -> u64 {
    let kworkers = thread
        .woken_by
        .iter()
        .filter(|waker| waker.comm.starts_with("kworker/"));
    total(kworkers.map(|waker| waker.count))
}

/// kworkers that inject the interrupts of devices.
pub(super) fn kworker(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let Some(seconds) = guest.seconds else { return };
    if guest
        .domain
        .vcpus()
        .all(|vcpu| vcpu.wakeups.is_none() && vcpu.woken_by.is_empty())
    {
        let mut pins = guest.domain.vcpus().filter_map(ThreadModel::pinned_cpu);
        if pins.any(|cpu| ctx.topology().is_isolated(cpu)) {
            verdicts
                .cannot_tell("who wakes the vCPUs on isolated CPUs is visible only with tracing");
        }
        return;
    }
    let Some(thread) = guest.domain.vcpus().max_by_key(|vcpu| kworker_wakes(vcpu)) else {
        return;
    };
    let rate = kworker_wakes(thread) as f64 / seconds;
    let is_isolated = thread
        .woken_by
        .iter()
        .any(|waker| kworker_cpu(&waker.comm).is_some_and(|cpu| ctx.topology().is_isolated(cpu)));
    let severity = if rate >= ctx.thresholds().devices.kworker_wakes {
        Severity::Warning
    } else if is_isolated && rate >= MIN_ISOLATED_WAKES_PER_S {
        Severity::Info
    } else {
        return;
    };
    let mut evidence = vec![format!(
        "kworkers wake {} {} times/s {}",
        thread.label(),
        figure(rate),
        guest.window()
    )];
    if is_isolated {
        evidence.push(
            "the kworker runs on an isolated CPU and delays the tasks that the CPU is reserved for"
                .into(),
        );
    }
    let fix = vec![fixes::advice(
        "A newer host kernel injects MSIs directly; inside the guest, use MSI-X",
    )];
    let found = Finding::new(severity, Confidence::Medium, evidence, fix);
    verdicts.find(found.about_vcpu(thread));
}
