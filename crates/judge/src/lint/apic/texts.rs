//! The prose of the interrupt controller rules.

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
pub(super) const FAULTS_ON_THE_PAGE: &str =
    "an inhibited APICv leaves the local APIC's page unmapped, so most are probably accesses to it";
pub(super) const ONLY_SUGGESTED: &str = "this only suggests it; the kvm_apicv_inhibit_changed and kvm_page_fault \
    tracepoints (address 0xfee00xxx) give proof";

// What cannot be judged.
pub(super) const NO_SIGN_EITHER_WAY: &str = "synic is on, avic is off and no exit of an accelerated APIC shows, which \
    fits a disabled APICv, but nothing else does; the kvm_apicv_inhibit_changed and kvm_page_fault tracepoints \
    (address 0xfee00xxx) give proof";
