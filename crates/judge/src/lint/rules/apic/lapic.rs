//! What the guest does with its local APIC: accesses as memory, where each is an exit, and
//! interrupts between vCPUs.

use crate::lint::facts::{
    Confidence, Context, Finding, GuestContext, Mark, Severity, Verdicts, apic_parameter,
};
use crate::lint::fixes;
use crate::model::{AccessRow, ExitKind};
use kvm::Space;
use sample::Direction;

pub(super) fn lapic(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let exits = guest.exits(&[ExitKind::ApicAccess]);
    let page = guest.accesses(is_on_apic_page);
    // An inhibited APICv causes accesses to the page too: apicv-inhibited is the rule for them.
    let inhibited = guest.config.hyperv.has("synic") && !guest.config.hyperv.has("avic");
    let accesses = if exits.count >= page.count {
        exits
    } else {
        page
    };
    if accesses.count == 0
        || (inhibited && accesses.marks.iter().all(|m| matches!(m, Mark::Access(..))))
    {
        return;
    }
    let Some(per_vcpu) = accesses.per_vcpu_or_tell(guest, verdicts) else {
        return;
    };
    if per_vcpu < ctx.thresholds().apic.lapic_exits {
        return;
    }
    let mut fix = Vec::new();
    if ctx.param_on("kvm_intel.enable_apicv") == Some(false) {
        fix.push(fixes::kernel("kvm_intel.enable_apicv=1").needing(
            "only on CPUs with APICv; reboot the host, or reload kvm_intel while no \
            guest is running",
        ));
    }
    if guest.kind.windows(Confidence::Low) {
        fix.extend(fixes::hyperv::enable(guest, &["relaxed", "vapic"]));
        if fix.is_empty() {
            fix.push(fixes::advice(
                "It has what helps on such a host (vapic); one with APICv \
                or AVIC has none of these exits",
            ));
        }
    } else {
        fix.extend(fixes::cpu_feature(
            guest,
            "x2apic",
            fixes::POWER_CYCLE,
            "x2apic=on",
        ));
    }
    let severity =
        Severity::Warning.max(ctx.severity_by_cost(guest, &accesses).unwrap_or_default());
    let parameter =
        apic_parameter(ctx.isa(guest)).unwrap_or("kvm_*/parameters/{enable_apicv,avic}");
    let evidence = vec![
        accesses.describe(guest, "accesses", "to the local APIC's memory"),
        format!("look at: cat /sys/module/{parameter}"),
    ];
    verdicts.find(Finding::new(severity, Confidence::High, evidence, fix).caused_by(accesses));
}

fn is_on_apic_page(row: &AccessRow) -> bool {
    row.space == Space::Mmio
        && row
            .address
            .is_some_and(|address| (0xfee0_0000..0xfef0_0000).contains(&address))
}

/// Interrupt command registers: the MSRs of x2APIC and of Hyper-V, and that of xAPIC in memory.
const X2APIC_ICR: u64 = 0x830;
const HYPERV_ICR: u64 = 0x4000_0071;
const XAPIC_ICR: u64 = 0xfee0_0300;

fn sends_ipi(r: &AccessRow) -> bool {
    r.direction == Direction::Write
        && match r.space {
            Space::Msr => matches!(r.address, Some(X2APIC_ICR | HYPERV_ICR)),
            Space::Mmio => r.address == Some(XAPIC_ICR),
            Space::Pio => false,
        }
}

pub(super) fn ipis(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let steps = &ctx.thresholds().apic.ipis;
    let mut sent = guest.accesses(sends_ipi);
    let mut confidence = Confidence::High;
    let mut counted = "writes";
    let mut meaning = "to the interrupt command register";
    if sent.count == 0 && !guest.has_accesses(Space::Msr) {
        // With APICv an IPI is an APIC_WRITE exit, but so is a timer setting: a hint only.
        sent = guest.exits(&[ExitKind::ApicWrite]);
        confidence = Confidence::Low;
        counted = "APIC_WRITE exits";
        meaning = "(most likely interrupt commands; the kvm_apic_ipi tracepoint shows them)";
    }
    if sent.count == 0
        && !guest.has_accesses(Space::Msr)
        && guest.exits(&[ExitKind::MsrWrite]).per_vcpu >= Some(steps.info)
    {
        return verdicts.cannot_tell(
            "these figures do not name the MSRs that the guest writes (the msr table does)",
        );
    }
    let Some(per_vcpu) = sent.per_vcpu_or_tell(guest, verdicts) else {
        return;
    };
    let Some(mut severity) = steps.severity(per_vcpu) else {
        return;
    };
    if confidence == Confidence::Low {
        severity = Severity::Info;
    }
    let mut fix = Vec::new();
    if guest.kind.windows(Confidence::Low) {
        fix.extend(fixes::hyperv::enable(
            guest,
            &["vpindex", "ipi", "tlbflush"],
        ));
    }
    fix.push(fixes::advice(
        "Some loads do this by design: fewer vCPUs, or pins to one \
        last-level cache, help",
    ));
    let evidence = vec![sent.describe(guest, counted, meaning)];
    verdicts.find(Finding::new(severity, confidence, evidence, fix).caused_by(sent));
}
