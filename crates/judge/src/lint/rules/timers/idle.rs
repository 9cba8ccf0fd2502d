//! Idle guests that are woken often: a Windows guest by its timers, a Linux guest by its tick.

use crate::figures::figure;
use crate::lint::facts::Context;
use crate::lint::facts::finding::{Confidence, Finding, Mark, Severity};
use crate::lint::facts::guest::GuestContext;
use crate::lint::facts::prose::Prose;
use crate::lint::facts::verdicts::Verdicts;
use crate::lint::fixes;
use crate::model::{AccessRow, total};
use kvm::Space;
use sample::Direction;

/// Tick rates that Linux kernels are built with (`kernel/Kconfig.hz`).
const TICK_RATES: [f64; 4] = [100.0, 250.0, 300.0, 1000.0];

/// How far the mean of all vCPUs, and each vCPU, may be from a tick rate.
const MEAN_TOLERANCE: f64 = 0.06;
const VCPU_TOLERANCE: f64 = 0.1;
/// Events that wake a vCPU for something other than its timer, and how many of them there may be for each wake-up.
const DEVICE_EVENTS: [&str; 6] =
    ["kvm_set_irq", "kvm_msi_set_irq", "kvm_apic_ipi", "kvm_fast_mmio", "kvm_mmio", "kvm_pio"];
const MAX_OTHERS: f64 = 0.2;
/// The most exits for each tick of a guest that does not sleep.
const MAX_EXITS_OF_A_TICK: f64 = 4.0;
const CAUGHT_IN_TICKS: Prose = Prose {
    title: "The guest is caught in its timer interrupt and does nothing else",
    problem: "caught in timer interrupts",
    why: "The guest sets its timer to a time that is already past, so the next interrupt is due at once. A kernel does \
        this when its clock jumped ahead, after a migration, a restore or a long pause, and it makes up for each tick",
};
const CAUGHT_FIX: &str = "If it lasts, reset the guest. Then update the guest's kernel and the hosts' kernels, and \
    compare the clocks (chronyc tracking) and TSC frequencies of both hosts if it was migrated";
const TICK_STORM_LOOK: &str = "cat /proc/cmdline; grep -E 'CONFIG_(NO_HZ|HZ)' /boot/config-$(uname -r)";
const TICK_STORM_FIX: &str = "Remove nohz=off from the guest's kernel command line, unless it does real-time work";
const POWERCFG_NEED: &str = "run it as administrator; it names the programs that asked for a fine timer";
const WAKEUPS_UNEXPLAINED: &str = "an idle guest is woken often, and what by is not in these figures";

/// Halts that last no longer than this on average and are this much of all exits are not sleep: microseconds, percent.
const NO_SLEEP_US: f64 = 100.0;
const NEARLY_ALL: f64 = 90.0;
const WOKEN_AT_ONCE: Prose = Prose {
    title: "The guest goes to sleep and is woken at once, again and again",
    problem: "halts end at once",
    why: "A guest with nothing to do halts, and sleeps for milliseconds. Halts that end within microseconds cost as \
        much as work: something is always pending for the vCPU, or what it waits for comes while KVM still polls",
};
/// With more halts per second than this, tasks of the guest wake each other: ticks and devices make fewer.
const MANY_HALTS: f64 = 50_000.0;
const WOKEN_OFTEN: Prose = Prose {
    title: "The guest's vCPUs fall asleep for a moment and are woken, very often",
    problem: "very many short halts",
    why: "Tasks of the guest that wait for each other put vCPUs to sleep and wake them. Each time the host takes the \
        CPU away, sends an interrupt and gives it back, which costs microseconds that are hidden in the halt's time",
};
const SHOW_WAKERS: &str = "trace-cmd record -e kvm:kvm_vcpu_wakeup -e kvm:kvm_apic_accept_irq -e kvm:kvm_msi_set_irq \
    -e sched:sched_waking sleep 1; trace-cmd report";
const SHOW_WAKERS_NEED: &str = "on the host; it shows what ends the halts. If polling does (kvm_stat -1, the halt_poll \
    rows), a smaller /sys/module/kvm/parameters/halt_poll_ns saves the CPU time";

/// An idle Windows guest that sleeps for less than a millisecond at a time.
pub(super) fn idle_wakeups(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let t = &ctx.thresholds().timers;
    if ctx.is_file() && !(guest.kind.windows(Confidence::Low) && guest.guest_cpu().is_some()) {
        return short_halts(guest, t.short_sleep_ms, verdicts);
    }
    let (Some((rate, sleep_ms)), Some(cpu)) = (guest.halts(), guest.guest_cpu()) else { return };
    let is_idle = guest.kind.windows(Confidence::Low) && cpu < t.idle_guest_cpu && sleep_ms < t.short_sleep_ms;
    let Some(severity) = t.idle_halts_per_vcpu.of(rate).filter(|_| is_idle) else { return };
    let timers = guest.devices(Space::Pio, |n| n == "rtc").rate_or_zero()
        + guest.devices(Space::Mmio, |n| n == "hpet").rate_or_zero();
    if timers < t.rtc.info && guest.config.enlightened("stimer").is_none() {
        return verdicts.cannot_tell(WAKEUPS_UNEXPLAINED);
    }
    let severity = if timers < t.rtc.info { Severity::Info } else { severity };
    let io: f64 = guest.domain.disks.iter().map(|d| d.read_ops + d.write_ops).sum::<f64>()
        + guest.domain.nics.iter().map(|n| n.rx_packets + n.tx_packets).sum::<f64>();
    if io > rate / 2.0 {
        return;
    }
    let mut fix = fixes::hyperv::windows_timers(ctx, guest);
    if fixes::hyperv::missing(guest, fixes::hyperv::clock_and_timers(guest)).is_empty() {
        fix.insert(0, fixes::inside(guest, "powercfg /energy /duration 30").needing(POWERCFG_NEED));
    }
    let (rate, sleep, cpu, window) = (figure(rate), figure(sleep_ms), figure(cpu), guest.window());
    let halts =
        format!("{rate} halts/s per vCPU {window}, {sleep} ms of sleep each, while the guest runs {cpu} % of the time");
    let marks = vec![Mark::Exit("HLT".into())];
    let evidence = vec![halts];
    verdicts.find(Finding { marks, ..Finding::new(severity, Confidence::Medium, evidence, fix) });
}

/// Halts that are too short to be sleep, or far too many, by a table of exits, on any system. What ends them is not in
/// the table.
fn short_halts(guest: &GuestContext<'_>, short_ms: f64, verdicts: &mut Verdicts) {
    let rows = || guest.domain.exits.rows.iter().filter(|row| row.idle);
    let (halts, exits) = (total(rows().map(|row| row.span.count)), guest.domain.exits.count);
    let Some(slept_ns) = rows().map(|row| row.span.total_ns).sum::<Option<u64>>() else { return };
    let us = slept_ns as f64 / 1e3 / halts.max(1) as f64;
    let is_many = guest.seconds.is_some_and(|seconds| halts as f64 / seconds >= MANY_HALTS);
    let prose = if halts > 0 && us <= NO_SLEEP_US && halts as f64 >= NEARLY_ALL / 100.0 * exits as f64 {
        WOKEN_AT_ONCE
    } else if is_many && us < 1e3 * short_ms && halts >= exits / 2 {
        WOKEN_OFTEN
    } else {
        return;
    };
    let (us, window) = (figure(us), guest.window());
    let evidence = vec![format!("{halts} of its {exits} exits are halts {window}, which last {us} us on average")];
    let fix = vec![fixes::command(SHOW_WAKERS).needing(SHOW_WAKERS_NEED)];
    verdicts.find(Finding::new(Severity::Info, Confidence::Low, evidence, fix).saying(prose));
}

/// `IA32_TSC_DEADLINE`, x2APIC's and xAPIC's timer initial count.
fn programs_timer(r: &AccessRow) -> bool {
    r.direction == Direction::Write
        && match r.space {
            Space::Msr => matches!(r.address, Some(0x6e0 | 0x838)),
            Space::Mmio => r.address == Some(0xfee0_0380),
            Space::Pio => false,
        }
}

/// An idle guest that programs its timer at a tick rate on every vCPU.
pub(super) fn tick_storm(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let t = &ctx.thresholds().timers;
    let all = guest.accesses(programs_timer);
    if all.count == 0 {
        return counted_ticks(ctx, guest, verdicts);
    }
    let Some(vcpus) = guest.vcpus() else { return };
    if guest.kind.windows(Confidence::Low) || all.rate.is_none_or(|r| r < t.tick_per_vcpu.info * vcpus) {
        return;
    }
    let Some(cpu) = guest.guest_cpu() else { return verdicts.cannot_tell("whether the guest is idle is unknown") };
    if cpu >= t.idle_guest_cpu / 2.0 {
        return;
    }
    let Some(seconds) = guest.seconds else { return };
    let mean = all.rate_or_zero() / vcpus;
    let Some(hz) = TICK_RATES.iter().copied().find(|hz| (mean / hz - 1.0).abs() <= MEAN_TOLERANCE) else { return };
    let rows = &guest.domain.vcpu_accesses;
    let by_vcpu = !rows.is_empty();
    let own = |v| total(rows.iter().filter(|r| r.vcpu == Some(v) && programs_timer(r)).map(|r| r.span.count));
    let rates = || (0..vcpus as u32).filter(|_| by_vcpu).map(|v| own(v) as f64 / seconds);
    if rates().any(|rate| (rate / hz - 1.0).abs() > VCPU_TOLERANCE) {
        return;
    }
    let slowest = rates().reduce(f64::min).unwrap_or(mean);
    let storm = by_vcpu && slowest >= t.tick_per_vcpu.warning && all.rate_or_zero() >= t.tick_storm;
    let severity = if storm { Severity::Warning } else { Severity::Info };
    let (on, confidence) = if by_vcpu { ("each of", Confidence::Medium) } else { ("average over", Confidence::Low) };
    let (rate, vcpus, cpu) = (figure(slowest), figure(vcpus), figure(cpu));
    let evidence = vec![
        all.describe(guest, "timer settings", ""),
        format!("{rate}/s on {on} {vcpus} vCPUs, while the guest runs {cpu} % of their time"),
    ];
    let look = fixes::inside(guest, TICK_STORM_LOOK);
    let fix = vec![look, fixes::advice(TICK_STORM_FIX)];
    verdicts.find(Finding::new(severity, confidence, evidence, fix).caused_by(all));
}

/// The same by counts of tracepoints alone (`kvm_stat`): as many wake-ups of vCPUs as timer interrupts and timer
/// settings, and next to nothing else; or no wake-ups, and as many timers in KVM. How many vCPUs share them is mostly
/// unknown.
fn counted_ticks(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let Some(seconds) = guest.seconds.filter(|_| ctx.is_file() && !guest.kind.windows(Confidence::Low)) else { return };
    let rate = |event: &str| guest.domain.kvm_events.get(event).map(|count| *count as f64 / seconds);
    let accepted = rate("kvm_apic_accept_irq").or_else(|| rate("kvm_inj_virq"));
    let (Some(set), Some(accepted), Some(exits)) = (rate("kvm_msr"), accepted, rate("kvm_exit")) else { return };
    let woken = rate("kvm_vcpu_wakeup").filter(|woken| *woken > MAX_OTHERS * set);
    let Some(ticks) = woken.or_else(|| rate("kvm_hv_timer_state")) else { return };
    let as_many = |figure: f64| (figure / ticks - 1.0).abs() <= VCPU_TOLERANCE;
    // A halt and a timer setting are two exits; without halts, the timer's end and an interrupt window can be others.
    // What devices and other vCPUs cause is counted by other events.
    let few_exits = if woken.is_some() { as_many(exits / 2.0) } else { exits <= MAX_EXITS_OF_A_TICK * ticks };
    let others = DEVICE_EVENTS.iter().filter_map(|event| rate(event)).fold(0.0, f64::max);
    let only_ticks = as_many(set) && as_many(accepted) && few_exits && others <= MAX_OTHERS * ticks;
    if ticks < ctx.thresholds().timers.tick_storm || !only_ticks {
        return;
    }
    let on_each = guest.vcpus().map(|vcpus| format!(", {} on each vCPU", figure(ticks / vcpus)));
    let (window, on_each) = (guest.window(), on_each.unwrap_or_default());
    let (ticks, set, exits) = (figure(ticks), figure(set), figure(exits));
    if woken.is_none() {
        let evidence = vec![
            format!("{ticks} timers/s expire {window}{on_each}, and the guest sets each again ({set}/s, kvm_msr)"),
            format!("all {exits} exits/s are the timer's: no vCPU is seen to sleep, no device to be used"),
        ];
        let fix = vec![fixes::advice(CAUGHT_FIX)];
        return verdicts
            .find(Finding::new(Severity::Warning, Confidence::Medium, evidence, fix).saying(CAUGHT_IN_TICKS));
    }
    let evidence = vec![
        format!("vCPUs that sleep are woken {ticks} times/s {window}{on_each}"),
        format!("each time by a timer that the guest then sets again ({set} settings/s, kvm_msr)"),
    ];
    let fix = vec![fixes::inside(guest, TICK_STORM_LOOK), fixes::advice(TICK_STORM_FIX)];
    let title = "The guest sleeps, and a timer wakes it all the time".into();
    verdicts.find(Finding { title, ..Finding::new(Severity::Info, Confidence::Medium, evidence, fix) });
}
