//! The local APIC as memory, where each access is an exit.

use super::texts;
use crate::lint::context::host::apic_parameter;
use crate::lint::prelude::*;

pub(super) fn lapic(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let exits = guest.exits(&[ExitKind::ApicAccess]);
    let on_page = |a: u64| (0xfee0_0000..0xfef0_0000).contains(&a);
    let page = guest.accesses(|r| r.space == Space::Mmio && r.address.is_some_and(on_page));
    // An inhibited APICv shows accesses to the page too; that is the rule apicv-inhibited.
    let inhibited = guest.config.hyperv.has("synic") && !guest.config.hyperv.has("avic");
    let accesses = if exits.count >= page.count { exits } else { page };
    if accesses.count == 0 || (inhibited && accesses.marks.iter().all(|m| matches!(m, Mark::Access(..)))) {
        return;
    }
    let Some(per_vcpu) = accesses.per_vcpu_or_tell(guest, verdicts) else { return };
    if per_vcpu < ctx.thresholds().apic.lapic_exits {
        return;
    }
    let mut fix = Vec::new();
    if ctx.param_on("kvm_intel.enable_apicv") == Some(false) {
        fix.push(fixes::kernel("kvm_intel.enable_apicv=1").needing(texts::APICV_NEED));
    }
    if guest.kind.windows(Sureness::Low) {
        fix.extend(fixes::hyperv::enable(guest, &["relaxed", "vapic"]));
        if fix.is_empty() {
            fix.push(fixes::advice(texts::VAPIC_IS_ON));
        }
    } else {
        fix.extend(fixes::cpu_feature(guest, "x2apic", fixes::POWER_CYCLE, &["x2apic=on"]));
        fix.push(fixes::advice(texts::KEEP_X2APIC));
    }
    let severity = Severity::Warning.max(ctx.severity_by_cost(guest, &accesses).unwrap_or_default());
    let parameter = apic_parameter(ctx.isa(guest)).unwrap_or("kvm_*/parameters/{enable_apicv,avic}");
    let evidence = vec![
        accesses.describe(guest, "accesses", "to the local APIC's memory"),
        format!("look at: cat /sys/module/{parameter}"),
        guest.perf_check("mmio"),
    ];
    verdicts.find(Finding::new(severity, Confidence::High, evidence, fix).caused_by(accesses));
}
