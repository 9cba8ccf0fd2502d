//! Clocks and timers of the PC that QEMU emulates: the ACPI PM timer, the RTC, the PIT, the HPET;
//! and the slow way to read the Hyper-V clock.

use crate::figures::{figure, or_unknown};
use crate::lint::facts::{
    Confidence, Context, Finding, Fix, GuestContext, Mark, NO_VCPUS, Severity, Verdicts, links,
};
use crate::lint::fixes;
use crate::model::ExitKind;
use kvm::Space;
use sample::Direction;

/// An access to emulated memory that QEMU serves took at least this long on the hosts that were
/// measured, microseconds; a virtio doorbell that ends in an ioeventfd takes less.
const MIN_VMM_ACCESS_US: f64 = 5.0;

const TIME_REF_COUNT: u64 = 0x4000_0020;
const PORTS_UNNAMED: &str = "but the figures do not name the ports (the ioport table does)";

pub(super) fn acpi_pm(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let t = &ctx.thresholds().timers;
    let reads = guest.devices(Space::Pio, &["acpi-tmr"]);
    if reads.count == 0 {
        if let Some(rate) = guest.exits(&[ExitKind::Io]).rate
            && rate >= t.acpi_pm_per_vcpu.warning
            && !guest.has_accesses(Space::Pio)
        {
            verdicts.cannot_tell(format!("{} port exits/s, {PORTS_UNNAMED}", figure(rate)));
        }
        return;
    }
    let Some(rate) = reads.rate_or_tell(verdicts) else {
        return;
    };
    let is_frequent = rate >= t.acpi_pm_per_vcpu.info;
    if reads.per_vcpu.is_none() && is_frequent {
        verdicts.cannot_tell(NO_VCPUS);
    }
    let mut severity = reads.per_vcpu.and_then(|r| t.acpi_pm_per_vcpu.severity(r));
    // A kernel without kvm_exit gives no share: then the rate alone decides.
    let share = reads.exit_share.unwrap_or(100.0);
    if severity == Some(Severity::Warning) && share < t.acpi_pm_exit_share {
        severity = Some(Severity::Info);
    }
    if is_frequent {
        severity = severity.max(ctx.severity_by_cost(&reads));
        if guest.vcpus().is_none() {
            severity = severity.max(Some(Severity::Info));
        }
    }
    let Some(severity) = severity else {
        return;
    };
    let mut evidence = vec![reads.describe("reads", "of the ACPI PM timer (acpi-tmr)")];
    let ports = guest.accesses(|r| r.space == Space::Pio).count;
    if ports > reads.count {
        let share = figure(100.0 * reads.count as f64 / ports as f64);
        evidence.push(format!("{share} % of all port accesses"));
    }
    verdicts.find(emulated_timer(ctx, guest, severity, evidence).caused_by(reads));
}

/// The RTC's periodic interrupt as the guest's tick: the guest reads register C after each.
pub(super) fn rtc(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let accesses = guest.devices(Space::Pio, &["rtc"]);
    let reads = guest
        .accesses(|r| {
            r.space == Space::Pio
                && r.device_name() == Some("rtc")
                && r.direction == Direction::Read
        })
        .count;
    // A guest that ticks by the RTC reads once per interrupt. One that mostly writes sets its
    // clock, which is no fault.
    if reads * 4 < accesses.count {
        return;
    }
    let Some(rate) = accesses.rate_or_tell(verdicts) else {
        return;
    };
    let Some(by_rate) = ctx.thresholds().timers.rtc.severity(rate) else {
        return;
    };
    let severity = by_rate.max(ctx.severity_by_cost(&accesses).unwrap_or_default());
    let read_rate = or_unknown(guest.seconds.map(|s| reads as f64 / s), figure);
    let evidence = vec![
        accesses.describe("accesses", "to ports 0x70 and 0x71 (RTC)"),
        format!("{read_rate}/s of them read the data port, which acknowledges a tick"),
    ];
    verdicts.find(emulated_timer(ctx, guest, severity, evidence).caused_by(accesses));
}

pub(super) fn pit(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let accesses = guest.devices(Space::Pio, &["kvm-pit", "pit"]);
    if accesses
        .rate_or_tell(verdicts)
        .is_none_or(|rate| rate < ctx.thresholds().timers.pit)
    {
        return;
    }
    let evidence = vec![accesses.describe("accesses", "to ports 0x40-0x43 (PIT)")];
    let mut found = emulated_timer(ctx, guest, Severity::Info, evidence).caused_by(accesses);
    // No Windows with Hyper-V clock support ticks by the PIT, so a weak sign of Windows does not
    // count here.
    if !guest.kind.linux() && !guest.kind.windows(Confidence::Medium) {
        found.fix = vec![fixes::advice(
            "An old system has no better timer, and KVM emulates this one in \
            the kernel: leave it. On newer systems something forces the PIT: look for noapic, \
            nolapic or clocksource= on the kernel command line",
        )];
    }
    verdicts.find(found);
}

/// A finding about a timer that QEMU emulates.
fn emulated_timer(
    ctx: &Context<'_>,
    guest: &GuestContext<'_>,
    severity: Severity,
    evidence: Vec<String>,
) -> Finding {
    let system = if guest.kind.linux() {
        links::KVM_TIMEKEEPING
    } else {
        links::HYPERV
    };
    Finding {
        see: vec![system.into(), links::CLOCK.into()],
        ..Finding::new(
            severity,
            Confidence::High,
            evidence,
            better_clock(ctx, guest),
        )
    }
}

/// Gives the guest's system a clock that needs no QEMU.
fn better_clock(ctx: &Context<'_>, guest: &GuestContext<'_>) -> Vec<Fix> {
    if guest.kind.windows(Confidence::Low) {
        return fixes::hyperv::windows_timers(ctx, guest);
    }
    if guest.kind.linux() {
        return vec![
            fixes::inside(
                guest,
                "cat \
                /sys/devices/system/clocksource/clocksource0/available_clocksource\necho \
                kvm-clock > /sys/devices/system/clocksource/clocksource0/current_clocksource",
            ),
            fixes::advice("Remove clocksource= and notsc from the guest's kernel command line"),
        ];
    }
    vec![fixes::advice(
        "Linux guest: set its clocksource to kvm-clock or tsc \
        (/sys/devices/system/clocksource/clocksource0/current_clocksource). Windows guest: enable \
        the Hyper-V clock (timer hypervclock) with vpindex, synic and stimer",
    )]
}

/// The HPET as clock or timer.
pub(super) fn hpet(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let t = &ctx.thresholds().timers;
    let named = guest.devices(Space::Mmio, &["hpet"]);
    if named.count == 0 {
        return unnamed_hpet(ctx, guest, verdicts);
    }
    let Some(rate) = named.rate_or_tell(verdicts) else {
        return;
    };
    let mut severity = t.hpet.severity(rate);
    if named.per_vcpu >= Some(t.hpet_per_vcpu) {
        let by_cost = ctx.severity_by_cost(&named);
        severity = severity.max(Some(Severity::Info)).max(by_cost);
    }
    let Some(severity) = severity else { return };
    let evidence = vec![named.describe("accesses", "to the HPET")];
    let mut found = emulated_timer(ctx, guest, severity, evidence).caused_by(named);
    let missing = fixes::hyperv::missing(guest, fixes::hyperv::clock_and_timers(guest));
    if guest.kind.linux() || (guest.kind.windows(Confidence::Low) && missing.is_empty()) {
        found.fix.extend(fixes::hpet_off(guest));
    }
    verdicts.find(found);
}

/// Without addresses there is only the exit for emulated memory, which any device without an
/// ioeventfd causes; the configuration has to name the device.
fn unnamed_hpet(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let exits = guest.exits(&[ExitKind::EptMisconfig]);
    let is_slow = exits.mean_us.is_some_and(|mean| mean >= MIN_VMM_ACCESS_US);
    let is_frequent = exits.rate >= Some(ctx.thresholds().timers.hpet.warning);
    if !is_slow || !is_frequent || guest.has_accesses(Space::Mmio) {
        return;
    }
    let Some(has_hpet) = guest.config.hpet() else {
        return verdicts
            .cannot_tell("EPT_MISCONFIG exits are frequent, but their addresses are not known");
    };
    if has_hpet {
        let evidence = vec![
            exits.describe("EPT_MISCONFIG exits", "(emulated memory)"),
            "the guest has an HPET; the mmio table shows whether these are its accesses".into(),
        ];
        // By default a guest has an HPET, whether it uses that or not. So only a configured one is
        // a sign of use.
        let mut found = emulated_timer(ctx, guest, Severity::Info, evidence).caused_by(exits);
        found.confidence = Confidence::Low;
        if guest.config.timers.hpet == Some(true) {
            found.severity = Severity::Warning;
            found.confidence = Confidence::Medium;
        }
        verdicts.find(found);
    }
}

/// An HPET that nobody uses still fires in QEMU.
pub(super) fn unused_hpet(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let t = &ctx.thresholds().timers;
    let (Some(thread), Some(cpu)) = (guest.domain.emulator(), guest.guest_cpu()) else {
        return;
    };
    let Some(main_percent) = thread.cpu.map(|cpu| cpu.busy()) else {
        return;
    };
    let needed = guest.kind.windows(Confidence::Low) && !guest.config.hyperv.has("stimer");
    let used = guest.devices(Space::Mmio, &["hpet"]).rate_or_zero() >= t.hpet_per_vcpu;
    let is_spare = guest.config.hpet() == Some(true) && guest.config.is_x86() && !needed && !used;
    if !is_spare || cpu >= t.idle_guest_cpu || main_percent >= ctx.thresholds().machine.main_loop {
        return;
    }
    let Some(severity) = t.hpet_idle_main.severity(main_percent) else {
        return;
    };
    let evidence = vec![
        format!(
            "QEMU's main thread uses {} % of a CPU {}, while the guest runs {} % of its time",
            figure(main_percent),
            guest.window(),
            figure(cpu)
        ),
        "the guest has an HPET and does not read it".to_owned(),
        "look at: strace -c -p PID, where an unused HPET shows \
        a thousand ppoll calls a second"
            .into(),
    ];
    let found = Finding::new(severity, Confidence::Low, evidence, fixes::hpet_off(guest));
    verdicts.find(Finding {
        cost: Some(main_percent),
        marks: vec![Mark::Thread(thread.tid)],
        ..found
    });
}

pub(super) fn tsc_page(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let reads = guest.accesses(|r| {
        r.space == Space::Msr && r.direction == Direction::Read && r.address == Some(TIME_REF_COUNT)
    });
    let rate = reads.rate_or_tell(verdicts);
    let Some(severity) = rate.and_then(|r| ctx.thresholds().timers.time_ref_count.severity(r))
    else {
        return;
    };
    let evidence = vec![
        reads.describe("reads", "of MSR 0x40000020 (HV_X64_MSR_TIME_REF_COUNT)"),
        "look at: clocksource0/current_clocksource of the host, which should be tsc".into(),
    ];
    let mut fix = Vec::new();
    if guest.config.enlightened("hypervclock") == Some(false) {
        fix.extend(fixes::hyperv::enable(guest, &["hypervclock"]));
    }
    fix.extend(fixes::cpu_feature(
        guest,
        "invtsc",
        "power-off and start of the guest, which then migrates live only between equal TSCs",
        "migratable=off,invtsc=on,hv-time=on",
    ));
    fix.push(fixes::advice(
        "After a live migration or a restore from a file, restart the guest to get the page back",
    ));
    verdicts.find(Finding::new(severity, Confidence::High, evidence, fix).caused_by(reads));
}
