//! `SynIC` without avic: `AutoEOI` inhibits `APICv` (`arch/x86/kvm/hyperv.c`, `synic_update_vector`).

use super::texts;
use crate::lint::context::host::apic_parameter;
use crate::lint::prelude::*;
use crate::model::total;
use kvm::Isa;

/// With fewer work exits per second, nothing can be said of how interrupts are delivered.
const TRAFFIC: f64 = 1000.0;
/// From this share of the work exits on, host interrupts are most likely kicks that deliver the guest's own interrupts.
const KICKED: f64 = 0.25;
/// A warning from this cost on, percent of one CPU.
const COST_WARNING: f64 = 2.0;

/// The exits that speak for a disabled APIC virtualisation.
struct Signs {
    /// Exits other than idle ones.
    work: u64,
    /// Exits that exist only without it.
    windows: EventTotals,
    /// Accesses to the local APIC's page.
    page: EventTotals,
    /// Memory faults, among them the page's where addresses are unknown.
    faults: EventTotals,
    /// Writes to Hyper-V's APIC registers.
    registers: EventTotals,
    /// Host interrupts while the guest ran.
    kicks: EventTotals,
    /// Whether accesses to the page are many enough for a warning.
    page_storm: bool,
}

impl Signs {
    fn of(guest: &GuestContext<'_>, isa: Option<Isa>, work: u64, page_faults: f64) -> Self {
        let apic_page = |a: u64| a & !0xfff == 0xfee0_0000;
        let page = guest.accesses(|r| r.space == Space::Mmio && r.address.is_some_and(apic_page));
        let faults = guest.exits(&[ExitKind::MemoryFault]);
        let on_page = if page.count > 0 { &page } else { &faults };
        let page_storm =
            isa == Some(Isa::Vmx) && on_page.per_vcpu.is_some_and(|r| r >= page_faults) && !guest.migrating();
        Self {
            work,
            windows: guest.exits(&[ExitKind::InterruptWindow, ExitKind::TprBelowThreshold]),
            registers: guest.msrs(Direction::Write, |m| (0x4000_0070..=0x4000_0072).contains(&m)),
            kicks: guest.exits(&[ExitKind::HostInterrupt]),
            page,
            faults,
            page_storm,
        }
    }

    /// Whether an exit shows that exists only without APIC virtualisation.
    fn sure(&self) -> bool {
        self.windows.count > 0 || self.page.count > 0
    }

    /// Posted interrupts reach a running vCPU without an exit: many kicks mean that nothing is posted.
    fn kicked(&self) -> bool {
        self.kicks.count as f64 >= KICKED * self.work as f64
    }

    fn cost(&self) -> f64 {
        let mut cost = self.windows.cost.unwrap_or(0.0) + self.registers.cost.unwrap_or(0.0);
        if self.page_storm {
            let on_page = if self.page.count > 0 { &self.page } else { &self.faults };
            cost += on_page.cost.unwrap_or(0.0);
        }
        cost
    }

    fn evidence(&self, guest: &GuestContext<'_>) -> Vec<String> {
        let mut lines = vec![texts::no_accelerated_exit(self.work, &guest.window())];
        if self.windows.count > 0 {
            lines.push(texts::window_exits(self.windows.rate));
        }
        if self.page.count > 0 {
            lines.push(self.page.describe(guest, "accesses", "to the local APIC's page"));
        } else if self.page_storm {
            lines.push(texts::faults_on_the_page(&self.faults.describe(guest, "memory faults", "")));
        }
        if self.registers.count > 0 {
            lines.push(self.registers.describe(guest, "writes", "to Hyper-V's APIC registers (MSR 0x40000070-72)"));
        }
        if !self.sure() {
            lines.push(texts::not_posted(&self.kicks.describe(guest, "host interrupts", "in the running guest")));
            lines.push(texts::ONLY_SUGGESTED.into());
        }
        lines
    }
}

pub(super) fn inhibited(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let isa = ctx.isa(guest);
    if guest.config.enlightened("synic") != Some(true) || guest.config.hyperv.has("avic") || isa == Some(Isa::Arm64) {
        return;
    }
    // Without APICv, on this hardware or by a module parameter, a fix gains nothing.
    let available = ctx.apic_virtualisation();
    if available == Some(false) {
        return;
    }
    // AVIC is off by default on most kernels, where its absence means nothing.
    if isa == Some(Isa::Svm) && available.is_none() {
        return verdicts.cannot_tell(texts::AVIC_UNKNOWN);
    }
    let accelerated = guest.exits(&[ExitKind::ApicWrite, ExitKind::EoiInduced, ExitKind::Avic]);
    let legacy = guest.exits(&[ExitKind::ApicAccess]);
    if accelerated.count > 0 || legacy.count > 0 || guest.domain.exits.count == 0 {
        return;
    }
    let Some(seconds) = guest.seconds else { return verdicts.cannot_tell(guest.why_no_rate()) };
    let work = total(guest.domain.exits.rows.iter().filter(|r| !r.idle).map(|r| r.span.count));
    if (work as f64 / seconds) < TRAFFIC {
        return verdicts.cannot_tell(texts::TOO_QUIET);
    }
    let signs = Signs::of(guest, isa, work, ctx.thresholds().apic.page_faults);
    if !signs.sure() && !signs.kicked() {
        return verdicts.cannot_tell(texts::NO_SIGN_EITHER_WAY);
    }
    let cost = signs.cost();
    let costly = signs.sure() && (signs.page_storm || cost >= COST_WARNING);
    let confidence = match (signs.sure(), available) {
        (true, Some(true)) => Confidence::High,
        (true, _) => Confidence::Medium,
        (false, _) => Confidence::Low,
    };
    let module = apic_parameter(isa.or(Some(Isa::Vmx))).unwrap_or_default();
    let mut evidence = signs.evidence(guest);
    evidence.push(texts::module_parameter(module, available == Some(true)));
    let mut fix = fixes::hyperv::enable(guest, &["avic"]);
    fix.push(fixes::libvirt_advice(texts::AVIC_NEEDS));
    let mut marks = signs.windows.marks;
    if signs.page_storm && signs.page.count == 0 {
        marks.extend(signs.faults.marks);
    }
    marks.extend(signs.page.marks);
    verdicts.find(Finding {
        severity: if costly { Severity::Warning } else { Severity::Info },
        confidence,
        evidence,
        fix,
        cost: (cost > 0.0).then_some(cost),
        marks,
        ..texts::INHIBITED.finding()
    });
}
