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
    let halts = guest.exits_if(|row| row.idle);
    let (Some(rate), Some(sleep_us)) = (halts.rate, halts.mean_us) else {
        return;
    };
    let (Some(vcpus), Some(cpu)) = (guest.vcpus(), guest.guest_cpu()) else {
        return;
    };
    let per_vcpu = rate / vcpus;
    let sleep_ms = sleep_us / 1e3;
    if !guest.kind.windows(Confidence::Low)
        || cpu >= t.idle_guest_cpu
        || sleep_ms >= t.short_sleep_ms
    {
        return;
    }
    let Some(severity) = t.idle_halts_per_vcpu.severity(per_vcpu) else {
        return;
    };
    let timer_rate = guest.devices(Space::Pio, &["rtc"]).rate_or_zero()
        + guest.devices(Space::Mmio, &["hpet"]).rate_or_zero();
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
    if io_rate(guest) > per_vcpu / 2.0 {
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
        figure(per_vcpu),
        guest.window(),
        figure(sleep_ms),
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

/// How often the vCPU sets its timer that does so least, per second; `None` if one of them sets it
/// at another rate than `hz`. `mean` is the rate of all of them.
fn slowest_tick(guest: &GuestContext<'_>, hz: f64, mean: f64) -> Option<f64> {
    let mut slowest = mean;
    for vcpu in 0..guest.vcpus()? as u32 {
        let rows = guest.domain.vcpu_accesses.iter();
        let settings = rows.filter(|r| r.vcpu == Some(vcpu) && programs_timer(r));
        let rate = total(settings.map(|r| r.span.count)) as f64 / guest.seconds?;
        if (rate / hz - 1.0).abs() > VCPU_TOLERANCE {
            return None;
        }
        slowest = slowest.min(rate);
    }
    Some(slowest)
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
    let is_of_each = !guest.domain.vcpu_accesses.is_empty();
    let tick = if is_of_each {
        slowest_tick(guest, hz, mean)
    } else {
        Some(mean)
    };
    let Some(tick) = tick else { return };
    let is_storm = is_of_each && tick >= t.tick_per_vcpu.warning && rate >= t.tick_storm;
    let severity = if is_storm {
        Severity::Warning
    } else {
        Severity::Info
    };
    let (scope, confidence) = if is_of_each {
        ("on each of", Confidence::Medium)
    } else {
        ("on average over", Confidence::Low)
    };
    let evidence = vec![
        settings.describe("timer settings", ""),
        format!(
            "{}/s {scope} {} vCPUs, while the guest runs {} % of their time",
            figure(tick),
            figure(vcpus),
            figure(cpu)
        ),
    ];
    let look = "cat /proc/cmdline; grep -E 'CONFIG_(NO_HZ|HZ)' /boot/config-$(uname -r)";
    let advice = "Remove nohz=off from the guest's kernel command line, unless it does real-time \
        work";
    let fix = vec![fixes::inside(guest, look), fixes::advice(advice)];
    let found = Finding::new(severity, confidence, evidence, fix);
    verdicts.find(found.caused_by(settings));
}
