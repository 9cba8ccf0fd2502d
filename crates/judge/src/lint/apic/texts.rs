//! The prose of the interrupt controller rules.

use crate::figures::{figure, or_unknown};
use crate::lint::context::host::apic_parameter;
use crate::lint::engine::prose::Prose;
use kvm::Isa;

pub(super) const INHIBITED: Prose = Prose {
    title: "SynIC without avic disables the interrupt controller's acceleration (APICv, AVIC)",
    why: "SynIC recommends that Windows acknowledge synthetic interrupts automatically (AutoEOI). APIC virtualisation \
        cannot do that, so KVM disables it: each interrupt and each APIC access costs exits again. The avic \
        enlightenment withdraws that recommendation",
};
pub(super) const LAPIC: Prose = Prose {
    title: "Every access of the guest to its local APIC causes an exit",
    why: "The guest drives its interrupt controller through memory (0xfee00000), and the host's CPU does not \
        virtualise these registers: it is an old CPU, or KVM's APIC virtualisation is off. Each acknowledgement, \
        timer setting and inter-processor interrupt costs an exit, which limits I/O rates",
};
pub(super) const AVIC_PIT: Prose = Prose {
    title: "The PIT's tick policy keeps AVIC disabled",
    why: "With policy delay KVM re-injects lost PIT ticks. For that it has to see each acknowledgement, so it inhibits \
        AVIC for the whole guest. Modern guests need no re-injected PIT ticks",
};
pub(super) const IPIS: Prose = Prose {
    title: "The guest's vCPUs interrupt each other at a high rate",
    why: "A vCPU that wakes another or flushes its TLB sends it an interrupt. Each costs an exit on the sender and, \
        without posted interrupts, one on the receiver",
};

// Fixes.
pub(super) const AVIC_NEEDS: &str = "avic needs libvirt 8.10, QEMU 6.2 and a host CPU with APICv or AVIC; \
    an older QEMU offers either accelerated interrupts or stimer, not both";
pub(super) const APICV_NEED: &str =
    "only on CPUs with APICv; reboot the host, or reload kvm_intel while no guest is running";
pub(super) const VAPIC_IS_ON: &str = "The guest already has what helps on such a host (vapic). \
    A host with APIC virtualisation (APICv on Intel's Xeon E5 v2 or later, AVIC on AMD's) has none of these exits";
pub(super) const KEEP_X2APIC: &str =
    "Remove nox2apic from the guest's kernel command line: x2APIC registers cost less than APIC memory";
pub(super) const IPIS_BY_DESIGN: &str = "Some loads do this by design (databases, build jobs, hackbench): \
    fewer vCPUs, or pins to one last-level cache, make each interrupt cheaper";

// Evidence.
pub(super) const CHECK_INHIBIT_REASON: &str = "look at: echo 1 > \
     /sys/kernel/tracing/events/kvm/kvm_apicv_inhibit_changed/enable while the guest starts; the reason is PIT_REINJ";
pub(super) const ONLY_SUGGESTED: &str = "this only suggests it; the kvm_apicv_inhibit_changed and kvm_page_fault \
    tracepoints (address 0xfee00xxx) give proof";

/// Where the kernel says whether it virtualises the APIC.
pub(super) fn check_apic_virtualisation(isa: Option<Isa>) -> String {
    let parameter = apic_parameter(isa).unwrap_or("kvm_*/parameters/{enable_apicv,avic}");
    format!("look at: cat /sys/module/{parameter}")
}

pub(super) fn no_accelerated_exit(exits: u64, window: &str) -> String {
    format!(
        "synic is on and avic is off, and none of {} exits {window} is one of an accelerated APIC \
         (APIC_WRITE, EOI_INDUCED)",
        figure(exits as f64)
    )
}

pub(super) fn window_exits(rate: Option<f64>) -> String {
    let rate = or_unknown(rate, figure);
    format!("{rate} exits/s occur only without acceleration (TPR_BELOW_THRESHOLD, INTERRUPT_WINDOW, vintr)")
}

pub(super) fn faults_on_the_page(faults: &str) -> String {
    format!("{faults}; an inhibited APICv leaves the local APIC's page unmapped, so most are probably accesses to it")
}

pub(super) fn not_posted(interrupts: &str) -> String {
    format!("{interrupts}; posted interrupts would avoid them")
}

pub(super) fn module_parameter(module: &str, on: bool) -> String {
    if on {
        format!("the host offers it: /sys/module/{module} is on")
    } else {
        format!("look at: cat /sys/module/{module}")
    }
}

pub(super) fn vintr_exits(count: u64, window: &str) -> String {
    format!("{} vintr exits {window} and none of AVIC's, though kvm_amd.avic is on", figure(count as f64))
}

pub(super) fn pit_policy(policy: Option<&str>) -> String {
    format!("the tick policy of timer pit is {}", policy.map_or("not set, which means delay", |_| "delay"))
}

// What cannot be judged.
pub(super) const AVIC_UNKNOWN: &str = "whether kvm_amd.avic is on is unknown";
pub(super) const TOO_QUIET: &str = "the guest does too little to show whether its interrupts are accelerated";
pub(super) const NO_SIGN_EITHER_WAY: &str = "synic is on, avic is off and no exit of an accelerated APIC shows, which \
    fits a disabled APICv, but nothing else does; the kvm_apicv_inhibit_changed and kvm_page_fault tracepoints \
    (address 0xfee00xxx) give proof";

pub(super) fn msrs_not_named(rate: Option<f64>) -> String {
    format!("{} MSR exits/s, but the figures do not name the MSRs (the msr table does)", or_unknown(rate, figure))
}
