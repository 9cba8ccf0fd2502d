//! Reads of the ACPI PM timer.

use super::{pc_timer, texts};
use crate::lint::prelude::*;

/// From this number of vCPUs on, readers queue for QEMU's big lock.
const MANY_VCPUS: f64 = 32.0;
/// QEMU of this version reads the PM timer without its big lock.
const LOCKLESS_SINCE: (u32, u32) = (10, 2);

pub(super) fn acpi_pm(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let t = &ctx.thresholds().timers;
    let reads = guest.devices(Space::Pio, |name| name == "acpi-tmr");
    if reads.count == 0 {
        let io = guest.exits(&[ExitKind::Io]);
        if !guest.has_accesses(Space::Pio) && io.rate.is_some_and(|r| r >= t.acpi_pm_per_vcpu.warning) {
            verdicts.cannot_tell(texts::ports_not_named(io.rate_or_zero()));
        }
        return;
    }
    let Some(rate) = reads.rate else {
        let what = ("reads of the ACPI PM timer (acpi-tmr)", "ioport");
        return pc_timer::without_rate(ctx, guest, texts::ACPI_PM, reads, what, verdicts);
    };
    if reads.per_vcpu.is_none() && rate >= t.acpi_pm_per_vcpu.info {
        verdicts.cannot_tell(NO_VCPUS);
    }
    let by_rate = reads.per_vcpu.and_then(|r| t.acpi_pm_per_vcpu.of(r)).map(|s| {
        // A kernel without kvm_exit gives no share to test.
        let share = reads.exit_share.unwrap_or(100.0);
        if s == Severity::Warning && share < t.acpi_pm_exit_share { Severity::Info } else { s }
    });
    let info = (rate >= t.acpi_pm_per_vcpu.info).then_some(Severity::Info);
    let by_cost = info.and(ctx.severity_by_cost(guest, &reads));
    let Some(mut severity) = worst([by_rate, by_cost, info.filter(|_| guest.vcpus().is_none())]) else { return };
    let many = guest.vcpus().is_some_and(|n| n >= MANY_VCPUS)
        && guest.config.machine.version.is_some_and(|v| v < LOCKLESS_SINCE);
    if many {
        severity = severity.raised();
    }
    let port = match reads.marks.first() {
        Some(Mark::Access(_, Some(address), _)) => format!("port {address:#x} "),
        _ => String::new(),
    };
    let mut evidence = vec![reads.describe(guest, "reads", &format!("of {port}(acpi-tmr, the ACPI PM timer)"))];
    let ports = guest.accesses(|r| r.space == Space::Pio);
    if ports.count > reads.count {
        evidence.push(texts::port_share(100.0 * reads.count as f64 / ports.count as f64));
    }
    if many {
        evidence.push(texts::MANY_VCPUS.into());
    }
    evidence.push(guest.perf_check("ioport"));
    verdicts.find(pc_timer::finding(ctx, guest, texts::ACPI_PM, severity, reads, evidence));
}
