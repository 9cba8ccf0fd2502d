//! Inter-processor interrupts.

use super::texts;
use crate::lint::prelude::*;

/// Writes to the interrupt command register: of x2APIC, of Hyper-V, of the APIC's page.
fn sends_ipi(r: &AccessRow) -> bool {
    r.direction == Direction::Write
        && match r.space {
            Space::Msr => matches!(r.address, Some(0x830 | 0x4000_0071)),
            Space::Mmio => r.address == Some(0xfee0_0300),
            Space::Pio => false,
        }
}

pub(super) fn ipis(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let steps = &ctx.thresholds().apic.ipis;
    let mut sent = guest.accesses(sends_ipi);
    let mut confidence = Confidence::High;
    let (mut what, mut of) = ("writes", "to the interrupt command register");
    if sent.count == 0 && !guest.has_accesses(Space::Msr) {
        // With APICv an IPI is an APIC_WRITE exit, but so is a timer setting: a hint only.
        sent = guest.exits(&[ExitKind::ApicWrite]);
        confidence = Confidence::Low;
        (what, of) = ("APIC_WRITE exits", "(most likely interrupt commands; the kvm_apic_ipi tracepoint shows them)");
    }
    if sent.count == 0 {
        let msrs = guest.exits(&[ExitKind::MsrWrite]);
        if msrs.per_vcpu.is_some_and(|per| per >= steps.info) && !guest.has_accesses(Space::Msr) {
            let rate = or_unknown(msrs.rate, figure);
            verdicts
                .cannot_tell(format!("{rate} MSR exits/s, but the figures do not name the MSRs (the msr table does)"));
        }
        return;
    }
    let Some(per_vcpu) = sent.per_vcpu_or_tell(guest, verdicts) else { return };
    let Some(mut severity) = steps.of(per_vcpu) else { return };
    if confidence == Confidence::Low {
        severity = Severity::Info;
    }
    let mut fix = Vec::new();
    if guest.kind.windows(Sureness::Low) {
        fix.extend(fixes::hyperv::enable(guest, &["vpindex", "ipi", "tlbflush"]));
    }
    fix.push(fixes::advice(texts::IPIS_BY_DESIGN));
    let evidence = vec![sent.describe(guest, what, of), guest.perf_check("msr")];
    verdicts.find(Finding::new(severity, confidence, evidence, fix).caused_by(sent));
}
