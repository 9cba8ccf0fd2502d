//! The prose of the timer rules.

use crate::figures::figure;
use crate::lint::engine::prose::Prose;

pub(super) const ACPI_PM: Prose = Prose {
    title: "The guest keeps time by reading the ACPI PM timer",
    why: "QEMU emulates the PM timer: each time the guest reads the time, the vCPU exits to QEMU's user space and \
        waits for the answer. A guest does this when it has no better clock that it trusts: Windows without the \
        Hyper-V clock, Linux with clocksource acpi_pm",
};
pub(super) const RTC: Prose = Prose {
    title: "The guest ticks by the emulated RTC",
    why: "The guest uses the RTC's periodic interrupt as its tick. Each tick costs an interrupt from QEMU and several \
        port accesses, even when the guest is idle. Windows does this when it has neither synthetic timers (stimer) \
        nor an HPET, and up to 2048 times a second when a program asks for a fine clock",
};
pub(super) const HPET: Prose = Prose {
    title: "The guest uses the emulated HPET as clock or timer",
    why: "QEMU emulates the HPET, so each read of its counter and each timer set in it is a round trip to user space. \
        Readers inside the guest queue up for it",
};
pub(super) const TSC_PAGE: Prose = Prose {
    title: "The guest reads the Hyper-V clock through an MSR: the TSC page is not valid",
    why: "With the reference TSC page a guest reads the time without an exit. It falls back to this MSR when KVM \
        cannot keep the page valid: the host's TSC is unstable or not its clock source, or the guest came from \
            another host",
};
pub(super) const PIT: Prose = Prose {
    title: "The guest uses the PIT",
    why: "The guest keeps time with the oldest timer of the PC. Modern systems use it only while they boot. A guest \
        that keeps using it has no better timer: no APIC timer, no Hyper-V timer, or a kernel too old for them",
};
pub(super) const TICK_STORM: Prose = Prose {
    title: "The guest is idle, yet every vCPU ticks at its full rate",
    why: "An idle Linux guest stops its tick and wakes a few times a second. With nohz=off, highres=off or a kernel \
        without tickless idle it sets its timer hundreds of times a second on every vCPU. Each setting costs exits and \
        wakes a host CPU",
};
pub(super) const IDLE_WAKEUPS: Prose = Prose {
    title: "The guest is idle, yet woken many times a second",
    why: "An idle Windows guest wakes about 64 times a second. A program that asks for a fine timer (a browser, a \
        player) raises that to 1000. When QEMU emulates the timer, each wake-up costs many exits",
};
pub(super) const HPET_IDLE: Prose = Prose {
    title: "The main thread is busy though the guest is idle, probably because of an unused HPET",
    why: "Firmware may leave the HPET's periodic timer running. QEMU then wakes about a thousand times a second to \
        raise an interrupt that the guest has masked. A remote display, a backup job or an emulated device may be the \
        cause instead",
};
pub(super) const ENLIGHTENMENTS: Prose = Prose {
    title: "Windows runs without the Hyper-V clock and timers: QEMU emulates them",
    why: "Without the Hyper-V clock Windows reads the time from QEMU's ACPI PM timer; without synthetic timers it \
        ticks by QEMU's RTC or HPET. Both cost host CPU all the time, even when the guest is idle. With the \
        enlightenments KVM serves them in the kernel, mostly without an exit",
};
pub(super) const NO_HYPERV_CLOCK: Prose = Prose {
    title: "Windows runs without the Hyper-V clock: QEMU emulates its clock",
    why: "Without the Hyper-V clock Windows reads the time from QEMU's ACPI PM timer, and each reading is a round trip \
        to user space. With it KVM serves the time in the kernel, mostly without an exit",
};
pub(super) const NO_SYNTHETIC_TIMERS: Prose = Prose {
    title: "Windows runs without Hyper-V's synthetic timers: QEMU emulates its tick",
    why: "Windows has the Hyper-V clock here, but no synthetic timers, so it ticks by QEMU's RTC or HPET. That costs \
        host CPU all the time, even when the guest is idle. With them KVM serves the tick in the kernel",
};
pub(super) const HIDDEN_HYPERVISOR: Prose = Prose {
    title: "Windows cannot see the hypervisor, so it uses none of its enlightenments",
    why: "Windows looks for Hyper-V's clock and timers only where CPUID says that there is a hypervisor. Without it \
        Windows reads the time from QEMU's ACPI PM timer and ticks by QEMU's RTC or HPET, whatever enlightenments are \
        configured, and that costs host CPU all the time. Recipes against anti-cheat software switch the feature off \
        on purpose; then this is its price",
};
pub(super) const REFUSED: Prose = Prose {
    title: "A Hyper-V enlightenment is on without another one that it needs",
    why: "Some enlightenments are built on others. QEMU 4.1 and later check this when a guest starts, and end with an \
        error instead of starting it; an older QEMU starts it, but Windows cannot use what is incomplete",
};

// Fixes.
pub(super) const SET_CLOCKSOURCE: &str = "cat /sys/devices/system/clocksource/clocksource0/available_clocksource\n\
     echo kvm-clock > /sys/devices/system/clocksource/clocksource0/current_clocksource";
pub(super) const KEEP_CLOCKSOURCE: &str = "Remove clocksource= and notsc from the guest's kernel command line, \
    so that it chooses kvm-clock or tsc at the next boot too";
pub(super) const EITHER_SYSTEM: &str = "Linux guest: set its clocksource to kvm-clock or tsc \
    (/sys/devices/system/clocksource/clocksource0/current_clocksource). \
    Windows guest: enable the Hyper-V clock (timer hypervclock) with vpindex, synic and stimer";
pub(super) const INVTSC_NEED: &str = "shut the guest down and start it again; it can then no longer migrate live to a \
    host with another TSC frequency";
pub(super) const TSC_PAGE_AFTER_MIGRATION: &str =
    "After a live migration or a restore from a file, restart the guest to get the page back";
pub(super) const PIT_FORCED: &str = "An old system has no better timer, and KVM emulates this one in the kernel: \
    leave it. On newer systems something forces the PIT: look for noapic, nolapic or clocksource= on the kernel \
        command line";
pub(super) const TICK_STORM_LOOK: &str = "cat /proc/cmdline; grep -E 'CONFIG_(NO_HZ|HZ)' /boot/config-$(uname -r)";
pub(super) const TICK_STORM_FIX: &str = "Remove nohz=off from the guest's kernel command line; \
    keep it if the guest does real-time work on purpose";
pub(super) const POWERCFG: &str = "powercfg /energy /duration 30";
pub(super) const POWERCFG_NEED: &str =
    "run it inside the guest as administrator; its report names the programs that asked for a fine timer";

// Evidence.
pub(super) const HYPERVISOR_OFF: &str =
    "the CPU feature hypervisor (CPUID leaf 1, ECX bit 31) is switched off in the configuration";
pub(super) const MANY_VCPUS: &str =
    "the guest has 32 or more vCPUs: before QEMU 10.2 these reads queue up behind QEMU's big lock";
pub(super) const RATE_UNKNOWN: &str = "Rate and cost unknown; pass --duration with the time that the figures cover";
pub(super) const HPET_ADDRESSES_UNKNOWN: &str = "the addresses are unknown; the guest has an HPET, and reads of its \
    counter have this cost and rate. The mmio table shows whether they are its accesses";
pub(super) const CHECK_CLOCKSOURCE: &str =
    "look at: cat /sys/devices/system/clocksource/clocksource0/current_clocksource on the host should print tsc";
pub(super) const CHECK_PPOLL: &str = "look at: top -H -p PID; \
    with an unused HPET, strace -c -p PID of the main thread shows about a thousand ppoll calls a second";

pub(super) fn port_share(percent: f64) -> String {
    format!("{} % of all port accesses", figure(percent))
}

pub(super) fn count_and_share(count: u64, what: &str, percent: f64) -> String {
    format!("{count} {what}, {} % of the guest's exits", figure(percent))
}

pub(super) fn tick_acknowledgements(rate: &str) -> String {
    format!("{rate}/s of them read the data port, which acknowledges a tick")
}

pub(super) fn eoi_exits(rate: &str) -> String {
    format!("{rate} EOI_INDUCED exits/s, one per RTC interrupt")
}

pub(super) fn counter_reads(rate: &str) -> String {
    format!("{rate}/s of them read the counter (+0xf0), as a clock does")
}

pub(super) fn tick_rate(slowest: f64, every: bool, vcpus: f64, guest_percent: f64) -> String {
    let on = if every { "each of" } else { "average over" };
    let (rate, vcpus, percent) = (figure(slowest), figure(vcpus), figure(guest_percent));
    format!("{rate}/s on {on} {vcpus} vCPUs, while the guest runs {percent} % of their time")
}

pub(super) fn halts(rate: f64, window: &str, sleep_ms: f64, guest_percent: f64) -> String {
    let (rate, sleep, percent) = (figure(rate), figure(sleep_ms), figure(guest_percent));
    format!("{rate} halts/s per vCPU {window}, {sleep} ms of sleep each, while the guest runs {percent} % of the time")
}

pub(super) fn idle_main_thread(main_percent: f64, window: &str, guest_percent: f64) -> String {
    let (main, guest) = (figure(main_percent), figure(guest_percent));
    format!(
        "QEMU's main thread uses {main} % of a CPU {window}, while the guest runs {guest} % of its vCPUs' time; \
         the guest has an HPET and does not read it"
    )
}

pub(super) fn missing(names: &[&str]) -> String {
    format!("missing from the configuration: {}", described(names))
}

fn described(names: &[&str]) -> String {
    let describe = |n: &&str| match *n {
        "hypervclock" => "the Hyper-V clock (hypervclock)".to_owned(),
        "stimer" => "synthetic timers (stimer)".to_owned(),
        other => other.to_owned(),
    };
    names.iter().map(describe).collect::<Vec<_>>().join(", ")
}

pub(super) fn on_without(name: &str, missing: &[&str]) -> String {
    format!("{name} is on without {}: QEMU refuses to start the guest", missing.join(" and "))
}

pub(super) fn needs(name: &str, missing: &[&str]) -> String {
    format!("{name} is on and needs {}, which the configuration lacks", described(missing))
}

pub(super) fn qemu_commandline_decides(argument: &str) -> String {
    format!(
        "<qemu:commandline> decides: QEMU takes the last -cpu, which is '{argument}'; \
         <cpu>, <hyperv> and the hypervclock timer of the XML have no effect"
    )
}

pub(super) fn last_cpu_decides(count: usize, argument: &str) -> String {
    format!("the command line has {count} -cpu options, and QEMU takes the last one: '{argument}'")
}

pub(super) fn taken_for_windows(reasons: &[String]) -> String {
    format!("the guest counts as Windows because {}", reasons.join(", "))
}

/// What an enlightened or plain Windows does with port exits whose ports are unknown.
pub(super) fn unknown_ports(clock_missing: bool, hpet: Option<bool>) -> String {
    let which = match (clock_missing, hpet) {
        (false, Some(false)) => {
            "with the Hyper-V clock, without stimer and HPET, Windows ticks by the RTC (ports 0x70 and 0x71)"
        }
        (false, _) => "with the Hyper-V clock and without stimer, Windows ticks by HPET or RTC",
        (true, _) => "without the Hyper-V clock, Windows reads the ACPI PM timer and ticks by RTC or HPET",
    };
    format!("the figures do not name the ports; {which}. The ioport table shows them")
}

// What cannot be judged.
pub(super) const XML_WITHOUT_FEATURES: &str = "the XML breaks off before <features> or <clock>: which \
    enlightenments are on is unknown (add the whole virsh dumpxml)";
pub(super) const SHORT_HALTS_UNTIMED: &str = "the guest halts for less than a millisecond at a time; without the time \
    that the figures cover it is unknown how often (pass --duration)";
pub(super) const IDLE_UNKNOWN: &str = "whether the guest is idle is unknown";
pub(super) const WAKEUPS_UNEXPLAINED: &str =
    "an idle guest is woken often; neither its timer accesses nor its configuration are known";
pub(super) const MISCONFIG_UNEXPLAINED: &str =
    "EPT_MISCONFIG exits are frequent, but neither their addresses nor the guest's configuration are known";

pub(super) fn short_halts(rate: f64, sleep_ms: f64) -> String {
    format!(
        "the guest is nearly idle, yet each vCPU halts {} times a second, for {} ms each; these figures do not show \
         what wakes it (add perf kvm stat's msr and ioport tables, and the guest's configuration)",
        figure(rate),
        figure(sleep_ms)
    )
}

pub(super) fn ports_not_named(rate: f64) -> String {
    format!("{} port exits/s, but the figures do not name the ports (the ioport table does)", figure(rate))
}
