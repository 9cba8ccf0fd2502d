//! Timers and clocks of PCs: which of them the guest uses, and what it should use instead.

pub(super) mod windows;

use crate::kvm::Space;
use crate::lint::context::guest::{Context, EventTotals, ExitKind, GuestContext, region};
use crate::lint::context::totals::{by_cost, raise, told, worst};
use crate::lint::engine::text::{figure, maybe};
use crate::lint::engine::verdicts::{NO_VCPUS, Verdicts};
use crate::lint::{Confidence, Finding, Fix, Severity, fix};
use crate::model::Sureness;
use crate::sample::Direction;

pub(crate) const HYPERV_DOC: &str = "https://www.qemu.org/docs/master/system/i386/hyperv.html";
pub(crate) const CLOCK_DOC: &str = "https://libvirt.org/formatdomain.html#time-keeping";
const KVM_CLOCK_DOC: &str = "https://docs.kernel.org/virt/kvm/x86/timekeeping.html";

/// What to do about a clock or timer that lives in QEMU, for this guest's system.
fn cure(world: &Context<'_>, guest: &GuestContext<'_>) -> Vec<Fix> {
    if guest.kind.windows(Sureness::Low) {
        return windows::cure(world, guest);
    }
    let mut fixes = Vec::new();
    if guest.config.timers.kvmclock == Some(false) && guest.config.is_x86() {
        let on = fix::timer(guest, "<timer name='kvmclock' present='yes'/>");
        fixes.extend(fix::either(guest, fix::xml(on), fix::qemu("-cpu host,kvmclock=on")));
    }
    if guest.kind.linux() {
        fixes.push(
            fix::command(
                "cat /sys/devices/system/clocksource/clocksource0/available_clocksource\n\
                 echo kvm-clock > /sys/devices/system/clocksource/clocksource0/current_clocksource",
            )
            .needing(fix::IN_GUEST),
        );
        fixes.push(fix::advice(
            "Take clocksource= and notsc off the guest's kernel command line, so that kvm-clock or tsc is chosen at the next boot as well",
        ));
    } else {
        fixes.push(fix::advice(
            "A Linux guest: set its clocksource to kvm-clock or tsc (/sys/devices/system/clocksource/clocksource0/current_clocksource). \
             A Windows guest: switch on the Hyper-V clock (timer hypervclock) with vpindex, synic and stimer",
        ));
    }
    fixes
}

fn timer_finding(
    world: &Context<'_>,
    guest: &GuestContext<'_>,
    seen: EventTotals,
    severity: Severity,
    title: &str,
    evidence: Vec<String>,
    why: &str,
) -> Finding {
    let see = if guest.kind.linux() {
        vec![KVM_CLOCK_DOC.into(), CLOCK_DOC.into()]
    } else {
        vec![HYPERV_DOC.into(), CLOCK_DOC.into()]
    };
    Finding {
        severity,
        confidence: Confidence::High,
        title: title.into(),
        evidence,
        why: why.into(),
        fix: cure(world, guest),
        see,
        cost: seen.cost,
        marks: seen.marks,
        ..Finding::default()
    }
}

const PM_TITLE: &str = "The guest keeps time by reading the ACPI PM timer";
const PM_WHY: &str = "The PM timer is a device of QEMU: each time the guest asks for the time, the vCPU leaves for QEMU's user space and waits \
    for its answer. A guest does so when it has no better clock that it trusts: Windows without the Hyper-V clock, Linux with \
    clocksource acpi_pm";
const RTC_TITLE: &str = "The guest ticks by the emulated RTC";
const RTC_WHY: &str = "The guest takes the RTC's periodic interrupt as its tick, which costs an interrupt from QEMU and several port accesses each \
    time, even when idle. Windows does so when it has neither synthetic timers (stimer) nor an HPET, and up to 2048 times a second \
    when a program asks for a fine clock";
const HPET_TITLE: &str = "The guest uses the emulated HPET as clock or timer";
const HPET_WHY: &str = "The HPET lives in QEMU, so each read of its counter and each timer set in it is a round trip to user space, and readers inside \
    the guest queue up for it";

/// From so many accesses on, without any time known, a share of the exits is worth a word: no boot makes as many.
const TELLING: u64 = 10_000;

/// What can be said of a clock or timer when nothing tells over what time it was used: that it makes up much of what the guest
/// leaves for.
fn without_rate(
    world: &Context<'_>,
    guest: &GuestContext<'_>,
    seen: EventTotals,
    (what, title, why): (&str, &str, &str),
    event: &str,
    verdicts: &mut Verdicts,
) {
    let share = seen.exit_share.filter(|s| *s >= world.options.thresholds.timers.acpi_pm_exit_share);
    let Some(share) = share.filter(|_| seen.count >= TELLING && !guest.timed()) else {
        return verdicts.cannot(guest.no_rate());
    };
    let evidence = vec![
        format!("{} {what}, {} % of the guest's exits", figure(seen.count as f64), figure(share)),
        "how many a second is not known, and so not how much it costs: --duration tells the time that the figures cover".into(),
        guest.perf(event),
    ];
    let mut finding = timer_finding(world, guest, seen, Severity::Info, title, evidence, why);
    finding.confidence = Confidence::Low;
    verdicts.find(finding);
}

/// T-01: reads of the ACPI PM timer.
pub(crate) fn acpi_pm(world: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let t = &world.options.thresholds.timers;
    let seen = guest.devices(Space::Pio, |name| name == "acpi-tmr");
    if seen.count == 0 {
        let io = guest.exits(&[ExitKind::Io]);
        if !guest.knows(Space::Pio) && io.rate.is_some_and(|r| r >= t.acpi_pm_per_vcpu.warning) {
            verdicts.cannot(format!(
                "{} port exits/s, but the figures do not say which ports (the ioport table does)",
                figure(io.rate_or_zero())
            ));
        }
        return;
    }
    let Some(rate) = seen.rate else {
        let said = ("reads of the ACPI PM timer (acpi-tmr)", PM_TITLE, PM_WHY);
        return without_rate(world, guest, seen, said, "ioport", verdicts);
    };
    if seen.per_vcpu.is_none() && rate >= t.acpi_pm_per_vcpu.info {
        verdicts.cannot(NO_VCPUS);
    }
    let by_rate = seen.per_vcpu.and_then(|r| t.acpi_pm_per_vcpu.of(r)).map(|s| {
        // Where the kernel fires no kvm_exit there is no share to test.
        let share = seen.exit_share.unwrap_or(100.0);
        if s == Severity::Warning && share < t.acpi_pm_exit_share { Severity::Info } else { s }
    });
    let info = (rate >= t.acpi_pm_per_vcpu.info).then_some(Severity::Info);
    let Some(mut severity) =
        worst([by_rate, info.and(by_cost(world, guest, &seen)), info.filter(|_| guest.vcpus().is_none())])
    else {
        return;
    };
    // Before QEMU 10.2 every read takes the big lock, so that vCPUs queue up behind each other.
    let many = guest.vcpus().is_some_and(|n| n >= 32.0) && guest.config.machine.version.is_some_and(|v| v < (10, 2));
    if many {
        severity = raise(severity);
    }
    let ports = guest.accesses(|r| r.space == Space::Pio);
    let port = seen.marks.first().map_or_else(String::new, |m| match m {
        crate::lint::Mark::Access(_, Some(a), _) => format!("port {a:#x} "),
        _ => String::new(),
    });
    let mut evidence = vec![told(guest, &seen, &format!("reads of {port}(acpi-tmr, the ACPI PM timer)"))];
    if ports.count > seen.count {
        evidence.push(format!("{} % of all port accesses", figure(100.0 * seen.count as f64 / ports.count as f64)));
    }
    if many {
        evidence.push("32 or more vCPUs: before QEMU 10.2 such reads queue up behind QEMU's big lock".into());
    }
    evidence.push(guest.perf("ioport"));
    verdicts.find(timer_finding(world, guest, seen, severity, PM_TITLE, evidence, PM_WHY));
}

pub(crate) fn is_rtc(name: &str) -> bool {
    matches!(name, "rtc" | "rtc-index")
}

/// T-02: the RTC's periodic interrupt as tick: register C is read after each.
pub(crate) fn rtc(world: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let seen = guest.devices(Space::Pio, is_rtc);
    if seen.count == 0 {
        return;
    }
    let reads = guest.ports(|r| region(r).is_some_and(is_rtc) && r.direction == Direction::Read).count;
    // A guest that sets its clock writes; one that ticks reads once an interrupt.
    if reads * 4 < seen.count {
        return;
    }
    let Some(rate) = seen.rate else {
        let said = ("accesses to ports 0x70 and 0x71 (RTC)", RTC_TITLE, RTC_WHY);
        return without_rate(world, guest, seen, said, "ioport", verdicts);
    };
    let steps = &world.options.thresholds.timers.rtc;
    let Some(mut severity) = steps.of(rate) else { return };
    severity = worst([Some(severity), by_cost(world, guest, &seen)]).unwrap_or(severity);
    let mut evidence = vec![told(guest, &seen, "accesses to ports 0x70 and 0x71 (RTC)")];
    evidence.push(format!(
        "{}/s of them read its data port, as acknowledging a tick does",
        maybe(guest.seconds.map(|s| reads as f64 / s))
    ));
    let eoi = guest.exits(&[ExitKind::EoiInduced]);
    if eoi.count > 0 {
        evidence.push(format!("{} EOI_INDUCED exits/s, one an RTC interrupt", maybe(eoi.rate)));
    }
    evidence.push(guest.perf("ioport"));
    verdicts.find(timer_finding(world, guest, seen, severity, RTC_TITLE, evidence, RTC_WHY));
}

/// An access to emulated memory that QEMU serves takes at least this long on the hosts that were measured, microseconds; a virtio
/// doorbell that ends in an ioeventfd takes less.
const TO_VMM_US: f64 = 5.0;

/// T-03: the HPET as clock or timer.
pub(crate) fn hpet(world: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let t = &world.options.thresholds.timers;
    let mut seen = guest.devices(Space::Mmio, |name| name == "hpet");
    let direct = seen.count > 0;
    if !direct {
        // Without addresses there is only the marker of emulated memory; the configuration has to vouch for the device.
        if guest.knows(Space::Mmio) {
            return;
        }
        let misconfig = guest.exits(&[ExitKind::EptMisconfig]);
        if misconfig.rate.is_none_or(|r| r < t.hpet.warning) || misconfig.mean_us.is_none_or(|m| m < TO_VMM_US) {
            return;
        }
        match guest.config.hpet() {
            Some(true) => seen = misconfig,
            Some(false) => return,
            None => return verdicts.cannot(
                "EPT_MISCONFIG exits are frequent, but neither their addresses nor the guest's configuration are known",
            ),
        }
    }
    let Some(rate) = seen.rate else {
        return without_rate(world, guest, seen, ("accesses to the HPET", HPET_TITLE, HPET_WHY), "mmio", verdicts);
    };
    let by_vcpu = seen.per_vcpu.filter(|r| *r >= t.hpet_per_vcpu).map(|_| Severity::Info);
    let Some(mut severity) = worst([t.hpet.of(rate), by_vcpu, by_vcpu.and(by_cost(world, guest, &seen))]) else {
        return;
    };
    let confidence = match (direct, guest.config.timers.hpet) {
        (true, _) => Confidence::High,
        (false, Some(true)) => Confidence::Medium,
        (false, _) => Confidence::Low,
    };
    if confidence == Confidence::Low {
        // Any device without an ioeventfd fits as well.
        severity = Severity::Info;
    }
    let mut evidence = Vec::new();
    if direct {
        let clock = guest.accesses(|r| {
            r.space == Space::Mmio && region(r) == Some("hpet") && r.address.is_some_and(|a| a & 0xff8 == 0xf0)
        });
        evidence.push(told(guest, &seen, "accesses to the HPET"));
        if clock.count > 0 {
            evidence.push(format!("{} of them/s read its counter (+0xf0), as a clock does", maybe(clock.rate)));
        }
    } else {
        evidence.push(told(guest, &seen, "EPT_MISCONFIG exits (emulated memory)"));
        evidence.push("their addresses are not known; the guest has an HPET, and accesses at this cost and rate fit its counter. Look at the mmio table to be sure".into());
    }
    evidence.push(guest.perf("mmio"));
    let mut finding = timer_finding(world, guest, seen, severity, HPET_TITLE, evidence, HPET_WHY);
    finding.confidence = confidence;
    let enlightened = windows::core(guest).iter().all(|n| guest.config.hyperv.has(n));
    if guest.kind.linux() || (guest.kind.windows(Sureness::Low) && enlightened) {
        let off = fix::timer(guest, "<timer name='hpet' present='no'/>");
        finding.fix.extend(fix::either(guest, fix::xml(off), fix::qemu("-machine hpet=off")));
    }
    verdicts.find(finding);
}

/// T-04: `HV_X64_MSR_TIME_REF_COUNT`, the slow way to read the Hyper-V clock.
pub(crate) fn tsc_page(world: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let seen = guest.msrs(Direction::Read, |msr| msr == 0x4000_0020);
    if seen.count == 0 {
        return;
    }
    let Some(rate) = seen.rate else { return verdicts.cannot(guest.no_rate()) };
    let Some(severity) = world.options.thresholds.timers.time_ref_count.of(rate) else { return };
    let evidence = vec![
        told(guest, &seen, "reads of MSR 0x40000020 (HV_X64_MSR_TIME_REF_COUNT)"),
        guest.perf("msr"),
        "check: cat /sys/devices/system/clocksource/clocksource0/current_clocksource on the host should say tsc".into(),
    ];
    let mut fixes = Vec::new();
    if guest.config.known && !guest.config.hyperv.has("hypervclock") {
        fixes.extend(fix::enlighten(guest, &["hypervclock"]));
    }
    fixes.extend(fix::either(
        guest,
        fix::cpu_feature(guest, "invtsc").needing("the guest has to be shut down and started again; it can then no longer be migrated live to a host with another TSC frequency"),
        fix::qemu("-cpu host,migratable=off,invtsc=on,hv-time=on"),
    ));
    fixes.push(fix::advice(
        "After a live migration or a restore from a file, a restart of the guest gives it the page back",
    ));
    verdicts.find(Finding {
        severity,
        confidence: Confidence::High,
        title: "The guest reads the Hyper-V clock through an MSR: the TSC page does not serve".into(),
        evidence,
        why: "With the reference TSC page a guest reads the time without leaving. It falls back to this register when KVM cannot keep the page \
              valid: the host's TSC is not its clock source or not stable, or the guest came from another host"
            .into(),
        fix: fixes,
        see: vec![HYPERV_DOC.into(), KVM_CLOCK_DOC.into()],
        cost: seen.cost,
        marks: seen.marks,
        ..Finding::default()
    });
}

/// T-06: the PIT.
pub(crate) fn pit(world: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let seen = guest.devices(Space::Pio, |n| matches!(n, "kvm-pit" | "pit"));
    if seen.count == 0 {
        return;
    }
    let Some(rate) = seen.rate else { return verdicts.cannot(guest.no_rate()) };
    if rate < world.options.thresholds.timers.pit {
        return;
    }
    let evidence = vec![told(guest, &seen, "accesses to ports 0x40-0x43 (PIT)"), guest.perf("ioport")];
    let why = "The guest counts time with the oldest timer of the PC. Modern systems touch it at boot only; one that goes on has no better \
               timer: no APIC timer, no Hyper-V timer, or a kernel too old for them";
    let mut finding = timer_finding(world, guest, seen, Severity::Info, "The guest uses the PIT", evidence, why);
    if !guest.kind.linux() && !guest.kind.windows(Sureness::Medium) {
        // No Windows that knows the Hyper-V clock counts by the PIT, so a weak hint at Windows is none here.
        finding.fix = vec![fix::advice(
            "An old system has no better timer, and KVM serves this one in the kernel: leave it. A newer one was told to use it: look for noapic, \
             nolapic or clocksource= on its kernel command line",
        )];
    }
    verdicts.find(finding);
}

/// Tick rates that kernels are built with.
const RATES: [f64; 4] = [100.0, 250.0, 300.0, 1000.0];

/// T-09: timer reprogramming near a tick rate on every vCPU of an idle guest.
pub(crate) fn tick_storm(world: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let t = &world.options.thresholds.timers;
    let is_timer = |r: &crate::model::AccessRow| {
        r.direction == Direction::Write
            && match r.space {
                Space::Msr => matches!(r.address, Some(0x6e0 | 0x838)),
                Space::Mmio => r.address == Some(0xfee0_0380),
                Space::Pio => false,
            }
    };
    let all = guest.accesses(is_timer);
    let Some(vcpus) = guest.vcpus() else { return };
    if guest.kind.windows(Sureness::Low) || all.rate.is_none_or(|r| r < t.tick_per_vcpu.info * vcpus) {
        return;
    }
    let Some(cpu) = guest.guest_cpu() else { return verdicts.cannot("whether the guest is idle is not known") };
    if cpu >= t.idle_guest_cpu / 2.0 {
        return;
    }
    let Some(seconds) = guest.seconds else { return };
    let mut slowest = f64::INFINITY;
    let mean = all.rate_or_zero() / vcpus;
    let Some(hz) = RATES.iter().copied().find(|hz| (mean / hz - 1.0).abs() <= 0.06) else { return };
    let told_apart = !guest.domain.vcpu_accesses.is_empty();
    for v in (0..vcpus as u32).filter(|_| told_apart) {
        let of_vcpu = |r: &&crate::model::AccessRow| r.vcpu == Some(v) && is_timer(r);
        let rate =
            guest.domain.vcpu_accesses.iter().filter(of_vcpu).map(|r| r.span.count).sum::<u64>() as f64 / seconds;
        if (rate / hz - 1.0).abs() > 0.1 {
            return;
        }
        slowest = slowest.min(rate);
    }
    if !told_apart {
        slowest = mean;
    }
    let mut severity = if slowest >= t.tick_per_vcpu.info { Severity::Info } else { return };
    if told_apart && slowest >= t.tick_per_vcpu.warning && all.rate_or_zero() >= t.tick_storm {
        severity = Severity::Warning;
    }
    verdicts.find(Finding {
        severity,
        confidence: if told_apart { Confidence::Medium } else { Confidence::Low },
        title: "The guest is idle, yet every vCPU ticks at its full rate".into(),
        evidence: vec![
            told(guest, &all, "timer programmings"),
            format!(
                "{}/s on {} of {} vCPUs, while the guest runs {} % of their time",
                figure(slowest),
                if told_apart { "every one" } else { "average" },
                figure(vcpus),
                figure(cpu)
            ),
            guest.perf("msr"),
        ],
        why: "An idle Linux stops its tick and wakes a handful of times a second. One that was booted with nohz=off (or highres=off, or without \
              tickless idle) arms its timer hundreds of times a second on every vCPU, and each costs exits and wakes a CPU of the host"
            .into(),
        fix: vec![
            fix::command("cat /proc/cmdline; grep -E 'CONFIG_(NO_HZ|HZ)' /boot/config-$(uname -r)").needing(fix::IN_GUEST),
            fix::advice("Take nohz=off off the guest's kernel command line; leave it if the guest does real-time work on purpose"),
        ],
        see: vec!["https://docs.kernel.org/timers/no_hz.html".into()],
        cost: all.cost,
        marks: all.marks,
        ..Finding::default()
    });
}
