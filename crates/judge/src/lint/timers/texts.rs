//! The prose of the timer rules.

use crate::lint::engine::prose::Prose;

/// The rule says why.
pub(super) const NO_CLOCK_AND_TIMERS: Prose =
    Prose { title: "Windows runs without the Hyper-V clock and timers: QEMU emulates them", why: "" };
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
pub(super) const PIT_FORCED: &str = "An old system has no better timer, and KVM emulates this one in the kernel: \
    leave it. On newer systems something forces the PIT: look for noapic, nolapic or clocksource= on the kernel \
        command line";
pub(super) const TICK_STORM_LOOK: &str = "cat /proc/cmdline; grep -E 'CONFIG_(NO_HZ|HZ)' /boot/config-$(uname -r)";
pub(super) const TICK_STORM_FIX: &str = "Remove nohz=off from the guest's kernel command line; \
    keep it if the guest does real-time work on purpose";
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

// What cannot be judged.
pub(super) const XML_WITHOUT_FEATURES: &str = "the XML breaks off before <features> or <clock>: which \
    enlightenments are on is unknown (add the whole virsh dumpxml)";
pub(super) const SHORT_HALTS_UNTIMED: &str = "the guest halts for less than a millisecond at a time; without the time \
    that the figures cover it is unknown how often (pass --duration)";
pub(super) const WAKEUPS_UNEXPLAINED: &str =
    "an idle guest is woken often; neither its timer accesses nor its configuration are known";
pub(super) const MISCONFIG_UNEXPLAINED: &str =
    "EPT_MISCONFIG exits are frequent, but neither their addresses nor the guest's configuration are known";
