//! Clocks and timers that QEMU emulates: the ACPI PM timer, the RTC, the PIT, and what the HPET shares with them.

use super::texts;
use crate::lint::prelude::*;

/// Without a known interval a share of the exits is reported from this count on: no boot makes as many accesses.
const DECISIVE_COUNT: u64 = 10_000;
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
            let rate = figure(io.rate_or_zero());
            verdicts.cannot_tell(format!(
                "{rate} port exits/s, but the figures do not name the ports (the ioport table does)"
            ));
        }
        return;
    }
    let Some(rate) = reads.rate else {
        return without_rate(ctx, guest, reads, ("reads of the ACPI PM timer (acpi-tmr)", "ioport"), verdicts);
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
    let port = match reads.marks.first() {
        Some(Mark::Access(_, Some(address), _)) => format!("port {address:#x} "),
        _ => String::new(),
    };
    let mut evidence = vec![reads.describe(guest, "reads", &format!("of {port}(acpi-tmr, the ACPI PM timer)"))];
    let ports = guest.accesses(|r| r.space == Space::Pio).count;
    if ports > reads.count {
        evidence.push(format!("{} % of all port accesses", figure(100.0 * reads.count as f64 / ports as f64)));
    }
    let version = guest.config.machine.version;
    if guest.vcpus().is_some_and(|n| n >= MANY_VCPUS) && version.is_some_and(|v| v < LOCKLESS_SINCE) {
        severity = severity.raised();
        evidence.push(texts::MANY_VCPUS.into());
    }
    evidence.push(guest.perf_check("ioport"));
    verdicts.find(finding(ctx, guest, severity, reads, evidence));
}

/// The RTC's periodic interrupt as the guest's tick: the guest reads register C after each.
pub(super) fn rtc(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let accesses = guest.devices(Space::Pio, |name| name == "rtc");
    let reads = guest.ports(|r| r.device_name() == Some("rtc") && r.direction == Direction::Read).count;
    // A guest that sets its clock writes; one that ticks by the RTC reads once per interrupt.
    if accesses.count == 0 || reads * 4 < accesses.count {
        return;
    }
    let Some(rate) = accesses.rate else {
        return without_rate(ctx, guest, accesses, ("accesses to ports 0x70 and 0x71 (RTC)", "ioport"), verdicts);
    };
    let Some(by_rate) = ctx.thresholds().timers.rtc.of(rate) else { return };
    let severity = worst([Some(by_rate), ctx.severity_by_cost(guest, &accesses)]).unwrap_or(by_rate);
    let read_rate = or_unknown(guest.seconds.map(|s| reads as f64 / s), figure);
    let mut evidence = vec![
        accesses.describe(guest, "accesses", "to ports 0x70 and 0x71 (RTC)"),
        format!("{read_rate}/s of them read the data port, which acknowledges a tick"),
    ];
    let eoi = guest.exits(&[ExitKind::EoiInduced]);
    if eoi.count > 0 {
        evidence.push(format!("{} EOI_INDUCED exits/s, one per RTC interrupt", or_unknown(eoi.rate, figure)));
    }
    evidence.push(guest.perf_check("ioport"));
    verdicts.find(finding(ctx, guest, severity, accesses, evidence));
}

pub(super) fn pit(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let accesses = guest.devices(Space::Pio, |n| matches!(n, "kvm-pit" | "pit"));
    let Some(rate) = accesses.rate_or_tell(guest, verdicts) else { return };
    if rate < ctx.thresholds().timers.pit {
        return;
    }
    let evidence = vec![accesses.describe(guest, "accesses", "to ports 0x40-0x43 (PIT)"), guest.perf_check("ioport")];
    let mut finding = finding(ctx, guest, Severity::Info, accesses, evidence);
    finding.title = "The guest uses the PIT".into();
    if !guest.kind.linux() && !guest.kind.windows(Confidence::Medium) {
        // No Windows with Hyper-V clock support ticks by the PIT, so a weak sign of Windows does not count here.
        finding.fix = vec![fixes::advice(texts::PIT_FORCED)];
    }
    verdicts.find(finding);
}

/// A finding about a timer that QEMU emulates.
pub(super) fn finding(
    ctx: &Context<'_>,
    guest: &GuestContext<'_>,
    severity: Severity,
    totals: EventTotals,
    evidence: Vec<String>,
) -> Finding {
    let system = if guest.kind.linux() { links::KVM_TIMEKEEPING } else { links::HYPERV };
    let see = vec![system.into(), links::CLOCK.into()];
    Finding { see, ..Finding::new(severity, Confidence::High, evidence, better_clock(ctx, guest)) }.caused_by(totals)
}

/// Gives the guest's system a clock that needs no QEMU.
fn better_clock(ctx: &Context<'_>, guest: &GuestContext<'_>) -> Vec<Fix> {
    if guest.kind.windows(Confidence::Low) {
        return fixes::hyperv::windows_timers(ctx, guest);
    }
    let mut found = Vec::new();
    if guest.config.timers.kvmclock == Some(false) && guest.config.is_x86() {
        let on = fixes::timer(guest, "<timer name='kvmclock' present='yes'/>");
        found.extend(fixes::either(guest, fixes::xml(on), fixes::cpu::argument(guest, &["kvmclock=on".into()])));
    }
    if guest.kind.linux() {
        found.push(fixes::command(texts::SET_CLOCKSOURCE).needing(fixes::IN_GUEST));
        found.push(fixes::advice(texts::KEEP_CLOCKSOURCE));
    } else {
        found.push(fixes::advice(texts::EITHER_SYSTEM));
    }
    found
}

/// What can be reported of a timer when the interval is unknown: that it causes a large share of the exits.
///
/// `what` are the accesses, `event` is perf's name of their table.
pub(super) fn without_rate(
    ctx: &Context<'_>,
    guest: &GuestContext<'_>,
    totals: EventTotals,
    (what, event): (&str, &str),
    verdicts: &mut Verdicts,
) {
    let share = totals.exit_share.filter(|s| *s >= ctx.thresholds().timers.acpi_pm_exit_share);
    let Some(share) = share.filter(|_| totals.count >= DECISIVE_COUNT && !guest.interval_known) else {
        return verdicts.cannot_tell(guest.why_no_rate());
    };
    let share = format!("{} {what}, {} % of the guest's exits", totals.count, figure(share));
    let evidence = vec![share, texts::RATE_UNKNOWN.into(), guest.perf_check(event)];
    let found = finding(ctx, guest, Severity::Info, totals, evidence);
    verdicts.find(Finding { confidence: Confidence::Low, ..found });
}
