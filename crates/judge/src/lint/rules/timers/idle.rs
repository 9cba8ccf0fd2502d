//! Idle guests that are woken often: a Windows guest by its timers, a Linux guest by its tick.

use crate::figures::figure;
use crate::lint::facts::{Confidence, Context, Finding, GuestContext, Mark, Severity, Verdicts};
use crate::lint::fixes;
use crate::model::{AccessRow, total};
use kvm::Space;
use sample::Direction;

/// Tick rates that Linux kernels are built with (`kernel/Kconfig.hz`).
const TICK_RATES_HZ: [f64; 4] = [100.0, 250.0, 300.0, 1000.0];

/// How far the mean of all vCPUs, and each vCPU, may be from a tick rate.
const MEAN_TOLERANCE: f64 = 0.06;
const VCPU_TOLERANCE: f64 = 0.1;

/// An idle Windows guest that sleeps for less than a millisecond at a time.
pub(super) fn idle_wakeups(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let t = &ctx.thresholds().timers;
    let Some(halts) = guest.halts() else {
        return;
    };
    let Some(cpu) = guest.guest_cpu() else {
        return;
    };
    if !guest.kind.windows(Confidence::Low)
        || cpu >= t.idle_guest_cpu
        || halts.sleep_ms >= t.short_sleep_ms
    {
        return;
    }
    let Some(severity) = t.idle_halts_per_vcpu.severity(halts.per_vcpu) else {
        return;
    };
    let timer_rate = guest.devices(Space::Pio, |n| n == "rtc").rate_or_zero()
        + guest.devices(Space::Mmio, |n| n == "hpet").rate_or_zero();
    let is_emulated = timer_rate >= t.rtc.info;
    if !is_emulated && guest.config.enlightened("stimer").is_none() {
        return verdicts.cannot_tell(
            "an idle guest is woken often, and what by is not in \
            these figures",
        );
    }
    // Wake-ups by a synthetic timer, which KVM serves, cost little.
    let severity = if is_emulated {
        severity
    } else {
        Severity::Info
    };
    // With so many requests and packets, these wake the guest, not its timer.
    if io_rate(guest) > halts.per_vcpu / 2.0 {
        return;
    }
    let mut fix = fixes::hyperv::windows_timers(ctx, guest);
    if fixes::hyperv::missing(guest, fixes::hyperv::clock_and_timers(guest)).is_empty() {
        fix.insert(
            0,
            fixes::inside(guest, "powercfg /energy /duration 30").needing(
                "run it as administrator; it names the programs that asked for a fine \
                timer",
            ),
        );
    }
    let evidence = vec![format!(
        "{} halts/s per vCPU {}, {} ms of sleep each, while the guest runs {} % of the time",
        figure(halts.per_vcpu),
        guest.window(),
        figure(halts.sleep_ms),
        figure(cpu)
    )];
    verdicts.find(Finding {
        marks: vec![Mark::Exit("HLT".into())],
        ..Finding::new(severity, Confidence::Medium, evidence, fix)
    });
}

/// Requests and packets per second.
fn io_rate(guest: &GuestContext<'_>) -> f64 {
    let disks = guest.domain.disks.iter();
    let requests: f64 = disks.map(|d| d.read_ops + d.write_ops).sum();
    let nics = guest.domain.nics.iter();
    let packets: f64 = nics.map(|n| n.rx_packets + n.tx_packets).sum();
    requests + packets
}

/// Registers that set the timer of the local APIC: the MSRs `IA32_TSC_DEADLINE` and the initial
/// count of x2APIC, and the initial count of xAPIC in memory.
const TSC_DEADLINE: u64 = 0x6e0;
const X2APIC_COUNT: u64 = 0x838;
const XAPIC_COUNT: u64 = 0xfee0_0380;

fn programs_timer(r: &AccessRow) -> bool {
    r.direction == Direction::Write
        && match r.space {
            Space::Msr => matches!(r.address, Some(TSC_DEADLINE | X2APIC_COUNT)),
            Space::Mmio => r.address == Some(XAPIC_COUNT),
            Space::Pio => false,
        }
}

/// How often a vCPU programmed its timer.
fn timer_settings(guest: &GuestContext<'_>, vcpu: u32) -> u64 {
    let rows = guest.domain.vcpu_accesses.iter();
    let settings = rows.filter(|r| r.vcpu == Some(vcpu) && programs_timer(r));
    total(settings.map(|r| r.span.count))
}

/// Timer settings at a tick rate.
struct TickPattern {
    /// Of which vCPUs it is known, in words of the evidence.
    scope: &'static str,
    /// Settings per second of a vCPU.
    rate: f64,
    severity: Severity,
    confidence: Confidence,
}

/// The tick where each vCPU's settings are known; `None` if one of them sets its timer at another
/// rate than `hz`. `rate` is that of all vCPUs together.
fn tick_of_each(
    ctx: &Context<'_>,
    guest: &GuestContext<'_>,
    hz: f64,
    rate: f64,
) -> Option<TickPattern> {
    let t = &ctx.thresholds().timers;
    let vcpus = guest.vcpus()?;
    let mut slowest = rate / vcpus;
    for vcpu in 0..vcpus as u32 {
        let of_vcpu = timer_settings(guest, vcpu) as f64 / guest.seconds?;
        if (of_vcpu / hz - 1.0).abs() > VCPU_TOLERANCE {
            return None;
        }
        slowest = slowest.min(of_vcpu);
    }
    let is_storm = slowest >= t.tick_per_vcpu.warning && rate >= t.tick_storm;
    Some(TickPattern {
        scope: "on each of",
        rate: slowest,
        severity: if is_storm {
            Severity::Warning
        } else {
            Severity::Info
        },
        confidence: Confidence::Medium,
    })
}

/// An idle guest that programs its timer at a tick rate on every vCPU.
pub(super) fn tick_storm(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let t = &ctx.thresholds().timers;
    let settings = guest.accesses(programs_timer);
    let Some(vcpus) = guest.vcpus() else { return };
    if guest.kind.windows(Confidence::Low)
        || settings
            .rate
            .is_none_or(|r| r < t.tick_per_vcpu.info * vcpus)
    {
        return;
    }
    let Some(cpu) = guest.guest_cpu() else {
        return verdicts.cannot_tell("whether the guest is idle is unknown");
    };
    if cpu >= t.idle_guest_cpu / 2.0 {
        return;
    }
    let rate = settings.rate_or_zero();
    let mean = rate / vcpus;
    let mut tick_rates = TICK_RATES_HZ.into_iter();
    let Some(hz) = tick_rates.find(|hz| (mean / hz - 1.0).abs() <= MEAN_TOLERANCE) else {
        return;
    };
    let tick = if guest.domain.vcpu_accesses.is_empty() {
        Some(TickPattern {
            scope: "on average over",
            rate: mean,
            severity: Severity::Info,
            confidence: Confidence::Low,
        })
    } else {
        tick_of_each(ctx, guest, hz, rate)
    };
    let Some(tick) = tick else { return };
    let evidence = vec![
        settings.describe("timer settings", ""),
        format!(
            "{}/s {} {} vCPUs, while the guest runs {} % of their time",
            figure(tick.rate),
            tick.scope,
            figure(vcpus),
            figure(cpu)
        ),
    ];
    let look = "cat /proc/cmdline; grep -E 'CONFIG_(NO_HZ|HZ)' /boot/config-$(uname -r)";
    let advice = "Remove nohz=off from the guest's kernel command line, unless it does real-time \
        work";
    let fix = vec![fixes::inside(guest, look), fixes::advice(advice)];
    let found = Finding::new(tick.severity, tick.confidence, evidence, fix);
    verdicts.find(found.caused_by(settings));
}
