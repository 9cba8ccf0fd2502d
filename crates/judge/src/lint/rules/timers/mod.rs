//! Timers and clocks: which of them the guest uses, and which it should use instead.

mod clocks;
mod enlightenments;
mod idle;

use crate::lint::facts::Check::{Behaviour, Setup};
use crate::lint::facts::{Hold, Rule, RuleDoc, RuleId, links, thresholds};

const CLOCK_FIX: &str = "Windows: Hyper-V clock and timers, after a power cycle. Linux: the \
    clocksource, at once";

pub(in crate::lint) const RULES: &[Rule] = &[
    Rule::new(RuleId::AcpiPmTimer, Behaviour(clocks::acpi_pm), Hold::CLOCK).described(RuleDoc {
        sees: "the guest keeps time by reading the ACPI PM timer",
        problem: "clock is the PM timer",
        why: "QEMU emulates the PM timer: each reading of the time is an exit to user space. A \
            guest does this if it trusts no better clock: Windows without the Hyper-V clock, Linux \
            with clocksource acpi_pm",
        thresholds: thresholds![
            timers.acpi_pm_per_vcpu,
            timers.acpi_pm_exit_share,
            cost.of_one_cpu,
            cost.of_vcpus
        ],
        limits: "Port addresses have to be in the figures: exits for ports alone are not enough",
        fix: CLOCK_FIX,
        links: &[links::HYPERV, links::CLOCK],
    }),
    Rule::new(RuleId::RtcTick, Behaviour(clocks::rtc), Hold::CLOCK).described(RuleDoc {
        sees: "the guest ticks by the emulated RTC",
        problem: "ticks by the emulated RTC",
        why: "Each tick of the RTC costs an interrupt from QEMU and several port accesses. Windows \
            uses it when it has neither synthetic timers (stimer) nor an HPET, up to 2048 times a \
            second when a program wants a fine clock",
        thresholds: thresholds![timers.rtc, cost.of_one_cpu, cost.of_vcpus],
        limits: "A program that reads the RTC's clock again and again looks the same",
        fix: CLOCK_FIX,
        links: &[links::HYPERV, links::CLOCK],
    }),
    Rule::new(RuleId::HpetClock, Behaviour(clocks::hpet), Hold::USUAL).described(RuleDoc {
        sees: "the guest uses the emulated HPET as clock or timer",
        problem: "clock is the HPET",
        why: "QEMU emulates the HPET, so each read of its counter and each timer set in it is a \
            round trip to user space. Readers inside the guest queue up for it",
        thresholds: thresholds![
            timers.hpet,
            timers.hpet_per_vcpu,
            cost.of_one_cpu,
            cost.of_vcpus
        ],
        limits: "Without MMIO addresses only exits of 5 us and more with an HPET in the \
            configuration count",
        fix: CLOCK_FIX,
        links: &[links::HYPERV, links::CLOCK],
    }),
    Rule::new(
        RuleId::HypervTscPage,
        Behaviour(clocks::tsc_page),
        Hold::USUAL,
    )
    .described(RuleDoc {
        sees: "a Hyper-V guest reads its clock through an MSR because the TSC page is not valid",
        problem: "Hyper-V TSC page invalid",
        why: "With the reference TSC page a guest reads the time without an exit. It reads this \
            MSR when KVM cannot keep the page valid: the host's TSC is unstable, or the guest came \
            from another host",
        thresholds: thresholds![timers.time_ref_count],
        limits: "Why KVM does not keep the page valid is not visible",
        fix: "CPU features in the domain's XML, after a power cycle; invtsc hinders live migration",
        links: &[links::HYPERV, links::KVM_TIMEKEEPING],
    }),
    Rule::new(
        RuleId::IdleWakeups,
        Behaviour(idle::idle_wakeups),
        Hold::USUAL,
    )
    .described(RuleDoc {
        sees: "an idle guest is woken by its timer many times a second",
        problem: "idle, yet woken often",
        why: "An idle Windows guest wakes about 64 times a second. A program that asks for a fine \
            timer (a browser, a player) raises that to 1000. When QEMU emulates the timer, each \
            wake-up costs many exits",
        thresholds: thresholds![
            timers.idle_halts_per_vcpu,
            timers.idle_guest_cpu,
            timers.short_sleep_ms,
            timers.rtc
        ],
        limits: "Windows only. A guest with one request or packet per two halts is left out",
        fix: "The domain's XML, after a power cycle; or the program inside the guest that asks for \
            a fine timer",
        links: &[links::HYPERV],
    }),
    Rule::new(RuleId::PitTimer, Behaviour(clocks::pit), Hold::USUAL).described(RuleDoc {
        sees: "the guest uses the PIT, the oldest timer of the PC",
        problem: "clock is the old PIT",
        why: "Modern systems use it only while they boot. A guest that goes on has no better \
            timer, or an old kernel",
        thresholds: thresholds![timers.pit],
        limits: "The rule cannot tell an old system from a newer one that is forced to use the PIT",
        fix: "The guest's kernel command line",
        links: &[links::HYPERV, links::CLOCK],
    }),
    Rule::new(
        RuleId::HpetIdleCost,
        Behaviour(clocks::unused_hpet),
        Hold::LONG,
    )
    .described(RuleDoc {
        sees: "the main thread is busy though the guest is idle, probably because of an unused \
            HPET",
        problem: "unused HPET keeps ticking",
        why: "Firmware may leave the HPET's periodic timer running. QEMU then wakes about a \
            thousand times a second to raise an interrupt that the guest has masked. A remote \
            display or a backup job may be the cause instead",
        thresholds: thresholds![
            timers.hpet_idle_main,
            timers.hpet_per_vcpu,
            timers.idle_guest_cpu,
            machine.main_loop
        ],
        limits: "The main thread's work is not broken down, so confidence is low",
        fix: "The hpet timer in the domain's XML, after a power cycle",
        links: &[links::CLOCK],
    }),
    Rule::new(
        RuleId::WindowsEnlightenments,
        Setup(enlightenments::enlightenments),
        Hold::AT_ONCE,
    )
    .described(RuleDoc {
        sees: "Windows runs without the Hyper-V clock or timers: QEMU emulates them",
        problem: "no Hyper-V clock",
        why: "Without the Hyper-V clock Windows reads the time from QEMU's ACPI PM timer, and \
            without synthetic timers it ticks by QEMU's RTC or HPET. Both cost host CPU all the \
            time, also when the guest is idle",
        thresholds: thresholds![timers.rtc, cost.of_one_cpu, cost.of_vcpus],
        limits: "Needs the guest's configuration and a good sign that it is Windows, 7 or 2008 R2 \
            at least. A warning needs port exits whose ports are not in the figures",
        fix: "<hyperv> features and the hypervclock timer in the domain's XML, after a power cycle",
        links: &[links::HYPERV, links::HYPERVISOR_FEATURES, links::CLOCK],
    }),
    Rule::new(
        RuleId::GuestTickStorm,
        Behaviour(idle::tick_storm),
        Hold::USUAL,
    )
    .described(RuleDoc {
        sees: "an idle guest ticks at its full rate on every vCPU",
        problem: "idle, yet ticks full rate",
        why: "An idle Linux guest stops its tick and wakes a few times a second. With nohz=off, \
            highres=off or a kernel without tickless idle it sets its timer hundreds of times a \
            second on every vCPU",
        thresholds: thresholds![
            timers.tick_per_vcpu,
            timers.tick_storm,
            timers.idle_guest_cpu
        ],
        limits: "Not for Windows. Rates within 6 % of 100, 250, 300 or 1000 Hz count. A guest that \
            ticks on purpose looks the same",
        fix: "The guest's kernel command line (nohz=)",
        links: &["https://docs.kernel.org/timers/no_hz.html"],
    }),
];
