//! What keeps the hardware from accelerating the interrupt controller.

use crate::figures::figure;
use crate::lint::facts::{
    Confidence, Context, EventTotals, Finding, GuestContext, Severity, Verdicts, apic_parameter,
};
use crate::lint::fixes;
use crate::model::{AccessRow, ExitKind, GuestConfig, total};
use kvm::{Isa, Space};

/// With fewer work exits per second, nothing can be said of how interrupts are delivered.
const MIN_WORK_EXITS_PER_S: f64 = 1000.0;
/// From this share of the work exits on, host interrupts are most likely kicks that deliver the
/// guest's own interrupts.
const MIN_KICK_SHARE: f64 = 0.25;
/// A warning from this cost on, percent of one CPU.
const WARNING_COST_PERCENT: f64 = 2.0;

/// `SynIC` without avic: `AutoEOI` inhibits `APICv` (`arch/x86/kvm/hyperv.c`,
/// `synic_update_vector`).
pub(super) fn inhibited(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let isa = ctx.isa(guest);
    if !has_synic_without_avic(&guest.config) || isa == Some(Isa::Arm64) {
        return;
    }
    // Where the hardware or a module parameter leaves no APICv, a fix gains nothing.
    let available = ctx.apic_virtualisation();
    if available == Some(false) {
        return;
    }
    // AVIC is off by default on most kernels, where its absence means nothing.
    if isa == Some(Isa::Svm) && available.is_none() {
        return verdicts.cannot_tell("whether kvm_amd.avic is on is unknown");
    }
    let Some(work) = unaccelerated_work(guest, verdicts) else {
        return;
    };
    // Signs of an APIC that is not accelerated: exits that exist only then, or accesses to its
    // page.
    let page = guest.accesses(is_on_apic_page);
    let windows = guest.exits(&[ExitKind::InterruptWindow, ExitKind::TprBelowThreshold]);
    let mut signs = vec![windows, page];
    signs.retain(|sign| sign.count > 0);
    // Posted interrupts reach a running vCPU without an exit: many kicks suggest that nothing is
    // posted.
    let kicks = guest.exits(&[ExitKind::HostInterrupt]);
    if signs.is_empty() && (kicks.count as f64) < MIN_KICK_SHARE * work as f64 {
        return verdicts.cannot_tell(
            "synic is on, avic is off and no exit of an accelerated \
            APIC shows; nothing else tells whether APICv is off (the tracepoint \
            kvm_apicv_inhibit_changed does)",
        );
    }
    let confidence = if signs.is_empty() {
        Confidence::Low
    } else if available == Some(true) {
        Confidence::High
    } else {
        Confidence::Medium
    };
    let faults = guest.exits(&[ExitKind::MemoryFault]);
    // An inhibited APICv leaves the APIC's page unmapped: many faults whose address is not known
    // are accesses to it.
    let is_storm = faults.per_vcpu >= Some(ctx.thresholds().apic.page_faults)
        && signs.len() == 1
        && isa == Some(Isa::Vmx)
        && !guest.migrating();
    if is_storm {
        signs.push(faults);
    }
    let cost: f64 = signs.iter().filter_map(|sign| sign.cost).sum();
    let severity = if is_storm || cost >= WARNING_COST_PERCENT {
        Severity::Warning
    } else {
        Severity::Info
    };
    let mut evidence = vec![format!(
        "synic is on and avic is off, and none of {} exits {} is one of an accelerated \
            APIC (APIC_WRITE, EOI_INDUCED)",
        figure(work as f64),
        guest.window()
    )];
    evidence.extend(describe_signs(guest, &signs, &kicks));
    let module = apic_parameter(isa.or(Some(Isa::Vmx))).unwrap_or_default();
    evidence.push(format!("look at: cat /sys/module/{module}"));
    let mut fix = fixes::hyperv::enable(guest, &["avic"]);
    fix.push(fixes::libvirt_advice(fixes::hyperv::ADD_AVIC));
    let found = Finding::new(severity, confidence, evidence, fix);
    verdicts.find(Finding {
        cost: Some(cost).filter(|cost| *cost > 0.0),
        marks: signs.into_iter().flat_map(|sign| sign.marks).collect(),
        ..found
    });
}

fn has_synic_without_avic(config: &GuestConfig) -> bool {
    config.enlightened("synic") == Some(true) && config.enlightened("avic") == Some(false)
}

fn describe_signs(
    guest: &GuestContext<'_>,
    signs: &[EventTotals],
    kicks: &EventTotals,
) -> Vec<String> {
    if signs.is_empty() {
        let only = "in the running guest, which only suggest it";
        return vec![kicks.describe(guest, "host interrupts", only)];
    }
    let only = "that occur only without acceleration";
    signs
        .iter()
        .map(|sign| sign.describe(guest, "exits", only))
        .collect()
}

/// The exits for work of a guest that has enough of them and none of an accelerated APIC.
fn unaccelerated_work(guest: &GuestContext<'_>, verdicts: &mut Verdicts) -> Option<u64> {
    let accelerated = guest.exits(&[
        ExitKind::ApicWrite,
        ExitKind::EoiInduced,
        ExitKind::Avic,
        ExitKind::ApicAccess,
    ]);
    if accelerated.count > 0 || guest.domain.exits.count == 0 {
        return None;
    }
    let Some(seconds) = guest.seconds else {
        verdicts.cannot_tell(guest.why_no_rate());
        return None;
    };
    let work = total(
        guest
            .domain
            .exits
            .rows
            .iter()
            .filter(|r| !r.idle)
            .map(|r| r.span.count),
    );
    if (work as f64 / seconds) < MIN_WORK_EXITS_PER_S {
        verdicts.cannot_tell(
            "the guest does too little to show whether its interrupts are accelerated",
        );
        return None;
    }
    Some(work)
}

fn is_on_apic_page(row: &AccessRow) -> bool {
    row.space == Space::Mmio
        && row
            .address
            .is_some_and(|address| address & !0xfff == 0xfee0_0000)
}

/// PIT reinjection inhibits AVIC (`arch/x86/kvm/i8254.c`, `kvm_pit_set_reinject`).
pub(super) fn avic_pit(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let is_set = guest.config.timers.pit_policy.is_some();
    if guest.config.pit_policy() != Some("delay")
        || ctx.isa(guest) != Some(Isa::Svm)
        || ctx.param_on("kvm_amd.avic") != Some(true)
    {
        return;
    }
    let window = guest.exits(&[ExitKind::InterruptWindow]);
    let accelerated = guest.exits(&[ExitKind::Avic]);
    if window.count == 0 || accelerated.count > 0 {
        return;
    }
    let evidence = vec![
        format!(
            "{} vintr exits {} and none of AVIC's, though kvm_amd.avic is on",
            figure(window.count as f64),
            guest.window()
        ),
        format!(
            "the tick policy of timer pit is {}",
            if is_set {
                "delay"
            } else {
                "not set, which means delay"
            }
        ),
        "look at: echo 1 > /sys/kernel/tracing/events/kvm/kvm_apicv_inhibit_changed/enable \
            while the guest starts; the reason is PIT_REINJ"
            .into(),
    ];
    let discard = fixes::timer(guest, "<timer name='pit' tickpolicy='discard'/>");
    let fix = fixes::setting(guest, discard, "-global kvm-pit.lost_tick_policy=discard");
    verdicts
        .find(Finding::new(Severity::Info, Confidence::Medium, evidence, fix).caused_by(window));
}
