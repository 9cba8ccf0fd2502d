//! The interrupt controller: whether its hardware acceleration works, and how much the guest uses
//! it.

mod apicv;
mod lapic;

use crate::lint::facts::rule::Check::Behaviour;
use crate::lint::facts::{Hold, Rule, RuleDoc, RuleId, links, thresholds};

pub(in crate::lint) const RULES: &[Rule] = &[
    Rule::new(
        RuleId::ApicvInhibited,
        Behaviour(apicv::inhibited),
        Hold::USUAL,
    )
    .described(RuleDoc {
        sees: "SynIC without avic disables the interrupt controller's acceleration (APICv, AVIC)",
        problem: "APIC acceleration is off",
        why: "SynIC makes Windows acknowledge interrupts automatically (AutoEOI), which APIC \
            virtualisation cannot do: KVM switches it off, and each APIC access is an exit. The \
            avic enlightenment withdraws that",
        thresholds: thresholds![apic.page_faults],
        limits: "KVM does not report the state of APICv; the rule infers it from exits that exist \
            only with or only without it. It needs 1000 exits/s other than idle ones. A guest in \
            x2APIC mode shows no page faults",
        fix: "The avic enlightenment in the domain's XML, after a power cycle; needs libvirt 8.10 \
            and QEMU 6.2",
        links: &[links::HYPERV, links::HYPERVISOR_FEATURES],
    }),
    Rule::new(RuleId::LapicMmio, Behaviour(lapic::lapic), Hold::USUAL).described(RuleDoc {
        sees: "every access of the guest to its local APIC causes an exit",
        problem: "each APIC access exits",
        why: "The guest drives its interrupt controller through memory (0xfee00000), and the \
            host's CPU is too old to virtualise these registers, or KVM's APIC virtualisation is \
            off. Each access costs an exit",
        thresholds: thresholds![apic.lapic_exits, cost.of_one_cpu, cost.of_vcpus],
        limits: "Whether the host's CPU has APICv is not visible",
        fix: "A kvm_intel parameter on the host, CPU features in the domain's XML, or the guest's \
            kernel command line",
        links: &[links::KERNEL_PARAMETERS, links::HYPERVISOR_FEATURES],
    }),
    Rule::new(
        RuleId::AvicInhibitedByPit,
        Behaviour(apicv::avic_pit),
        Hold::USUAL,
    )
    .described(RuleDoc {
        sees: "the PIT's tick policy keeps AMD's AVIC disabled",
        problem: "PIT policy disables AVIC",
        why: "With policy delay KVM re-injects lost PIT ticks. For that it has to see each \
            acknowledgement, so it inhibits AVIC for the whole guest. Modern guests need no \
            re-injected PIT ticks",
        thresholds: &[],
        limits: "AMD only, with kvm_amd.avic on. The kvm_apicv_inhibit_changed tracepoint names \
            the reason",
        fix: "The pit timer in the domain's XML, after a power cycle",
        links: &[links::CLOCK],
    }),
    Rule::new(RuleId::IpiStorm, Behaviour(lapic::ipis), Hold::USUAL).described(RuleDoc {
        sees: "the guest's vCPUs interrupt each other at a high rate",
        problem: "vCPUs interrupt each other",
        why: "Waking another vCPU or flushing its TLB is an exit on the sender and, without posted \
            interrupts, on both",
        thresholds: thresholds![apic.ipis],
        limits: "Without MSR addresses, APIC_WRITE exits stand for interrupts. Many loads do this \
            by design",
        fix: "Enlightenments for Windows, after a power cycle; otherwise fewer vCPUs or pins to \
            one last-level cache",
        links: &[
            links::HYPERV,
            "https://docs.kernel.org/virt/kvm/x86/cpuid.html",
        ],
    }),
];
