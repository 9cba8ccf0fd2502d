//! Which check stands behind which rule, and how long its pattern has to hold.

use super::contention::{self as tenants, capacity};
use super::engine::memory::Hold;
use super::engine::verdicts::Ask::{self, Behaviour, Host, Setup};
use super::machine::{self, abnormal as errors};
use super::pinning::{self, affinity_drift as drift};
use super::timers::{self, windows};
use super::{apic, devices, numa, scheduling};

pub(super) struct Check {
    pub rule: &'static str,
    pub ask: Ask,
    pub hold: Hold,
}

/// Three of the last five seconds.
const USUAL: Hold = Hold::For(3.0, 5.0);
/// Most of the last ten seconds.
const LONG: Hold = Hold::For(8.0, 10.0);
/// Some five seconds, for clocks that a program may read in a short burst.
const CLOCK: Hold = Hold::For(5.0, 8.0);
/// Figures that are read every other second.
const SPARSE: Hold = Hold::For(3.0, 10.0);
/// Single events stay on screen for half a minute at most, so that they can be read.
const EVENT: Hold = Hold::Once(20.0);

const fn check(rule: &'static str, ask: Ask, hold: Hold) -> Check {
    Check { rule, ask, hold }
}

pub(super) const CHECKS: &[Check] = &[
    check("acpi-pm-timer", Behaviour(timers::acpi_pm), CLOCK),
    check("rtc-tick", Behaviour(timers::rtc), CLOCK),
    check("hpet-clock", Behaviour(timers::hpet), USUAL),
    check("hyperv-tsc-page", Behaviour(timers::tsc_page), USUAL),
    check("idle-wakeups", Behaviour(windows::idle_wakeups), USUAL),
    check("pit-timer", Behaviour(timers::pit), USUAL),
    check("hpet-idle-cost", Behaviour(windows::hpet_idle), LONG),
    check("windows-enlightenments", Setup(windows::enlightenments), Hold::While),
    check("guest-tick-storm", Behaviour(timers::tick_storm), USUAL),
    check("apicv-inhibited", Behaviour(apic::inhibited), USUAL),
    check("lapic-mmio", Behaviour(apic::lapic), USUAL),
    check("avic-inhibited-by-pit", Behaviour(apic::avic_pit), USUAL),
    check("ipi-storm", Behaviour(apic::ipis), USUAL),
    check("virtio-intx", Behaviour(devices::intx), USUAL),
    check("virtio-kicks", Behaviour(devices::kicks), USUAL),
    check("emulated-device", Behaviour(devices::emulated), USUAL),
    check("serial-burst", Behaviour(devices::serial), Hold::For(1.0, 10.0)),
    check("legacy-port-polling", Behaviour(devices::polling), USUAL),
    check("irqfd-kworker", Behaviour(devices::kworker), USUAL),
    check("pause-loops", Behaviour(scheduling::pauses), USUAL),
    check("host-interrupts", Behaviour(scheduling::interrupts), USUAL),
    check("halt-poll-burn", Behaviour(scheduling::halt_poll), USUAL),
    check("vcpu-migrating", Behaviour(scheduling::migrating), USUAL),
    check("vcpu-wait", Behaviour(scheduling::wait), USUAL),
    check("pin-overlap", Setup(pinning::overlap), USUAL),
    check("emulator-on-vcpu", Setup(pinning::emulator), USUAL),
    check("smt-mismatch", Setup(numa::smt), Hold::While),
    check("numa-split", Setup(numa::split), Hold::While),
    check("isolated-pile-up", Setup(pinning::pile_up), USUAL),
    check("isolated-noise", Setup(tenants::noise), USUAL),
    check("quota-throttled", Setup(capacity::quota), USUAL),
    check("overcommit", Host(capacity::overcommit), USUAL),
    check("realtime-vcpu", Setup(tenants::realtime), USUAL),
    check("wakeup-latency", Behaviour(scheduling::wakeups), USUAL),
    check("affinity-drift", Setup(drift::drift), Hold::For(5.0, 6.0)),
    check("pinned-not-isolated", Setup(tenants::strangers), USUAL),
    check("host-cpus-starved", Host(tenants::starved), USUAL),
    check("unhandled-msr", Host(machine::msrs), Hold::While),
    check("stage2-faults", Behaviour(machine::faults), USUAL),
    check("host-memory-pressure", Host(machine::memory), SPARSE),
    check("host-steal", Host(machine::steal), USUAL),
    check("abnormal-exit", Host(errors::abnormal), EVENT),
    check("main-loop-busy", Behaviour(machine::main_loop), LONG),
    check("nested-guest", Behaviour(machine::nested), USUAL),
];

/// How long a rule's pattern has to hold.
pub(super) fn hold(rule: &str) -> Hold {
    CHECKS.iter().find(|c| c.rule == rule).map_or(USUAL, |c| c.hold)
}
