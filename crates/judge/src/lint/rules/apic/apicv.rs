//! What keeps the hardware from accelerating the interrupt controller.

use crate::figures::{figure, or_unknown};
use crate::lint::facts::Context;
use crate::lint::facts::finding::{Confidence, Finding, Severity};
use crate::lint::facts::guest::GuestContext;
use crate::lint::facts::host::apic_parameter;
use crate::lint::facts::verdicts::Verdicts;
use crate::lint::fixes;
use crate::model::{ExitKind, total};
use kvm::{Isa, Space};
use sample::Direction;

const CHECK_INHIBIT_REASON: &str = "look at: echo 1 > \
     /sys/kernel/tracing/events/kvm/kvm_apicv_inhibit_changed/enable while the guest starts; the reason is PIT_REINJ";
const FAULTS_ON_THE_PAGE: &str = "an inhibited APICv leaves the local APIC's page unmapped";
const ONLY_SUGGESTED: &str = "this only suggests it; the tracepoint kvm_apicv_inhibit_changed gives proof";
const NO_SIGN_EITHER_WAY: &str = "synic is on, avic is off and no exit of an accelerated APIC shows; nothing \
    else tells whether APICv is off (the tracepoint kvm_apicv_inhibit_changed does)";

/// With fewer work exits per second, nothing can be said of how interrupts are delivered.
const TRAFFIC: f64 = 1000.0;
/// From this share of the work exits on, host interrupts are most likely kicks that deliver the guest's own interrupts.
const KICKED: f64 = 0.25;
/// A warning from this cost on, percent of one CPU.
const COST_WARNING: f64 = 2.0;

/// `SynIC` without avic: `AutoEOI` inhibits `APICv` (`arch/x86/kvm/hyperv.c`, `synic_update_vector`).
pub(super) fn inhibited(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let isa = ctx.isa(guest);
    let config = &guest.config;
    let inhibits = config.enlightened("synic") == Some(true) && config.enlightened("avic") == Some(false);
    if !inhibits || isa == Some(Isa::Arm64) {
        return;
    }
    // Without APICv, on this hardware or by a module parameter, a fix gains nothing.
    let available = ctx.apic_virtualisation();
    if available == Some(false) {
        return;
    }
    // AVIC is off by default on most kernels, where its absence means nothing.
    if isa == Some(Isa::Svm) && available.is_none() {
        return verdicts.cannot_tell("whether kvm_amd.avic is on is unknown");
    }
    let accelerated = guest.exits(&[ExitKind::ApicWrite, ExitKind::EoiInduced, ExitKind::Avic, ExitKind::ApicAccess]);
    if accelerated.count > 0 || guest.domain.exits.count == 0 {
        return;
    }
    let Some(seconds) = guest.seconds else { return verdicts.cannot_tell(guest.why_no_rate()) };
    let work = total(guest.domain.exits.rows.iter().filter(|r| !r.idle).map(|r| r.span.count));
    if (work as f64 / seconds) < TRAFFIC {
        return verdicts.cannot_tell("the guest does too little to show whether its interrupts are accelerated");
    }
    // Exits that exist only without acceleration.
    let windows = guest.exits(&[ExitKind::InterruptWindow, ExitKind::TprBelowThreshold]);
    let on_page = |a: u64| a & !0xfff == 0xfee0_0000;
    let page = guest.accesses(|r| r.space == Space::Mmio && r.address.is_some_and(on_page));
    let page_seen = page.count > 0;
    // Where addresses are unknown, accesses to the APIC's page are among the memory faults.
    let page = if page_seen { page } else { guest.exits(&[ExitKind::MemoryFault]) };
    let many = page.per_vcpu.is_some_and(|r| r >= ctx.thresholds().apic.page_faults);
    let page_storm = isa == Some(Isa::Vmx) && many && !guest.migrating();
    let registers = guest.msrs(Direction::Write, |m| (0x4000_0070..=0x4000_0072).contains(&m));
    // Posted interrupts reach a running vCPU without an exit: many kicks mean that nothing is posted.
    let kicks = guest.exits(&[ExitKind::HostInterrupt]);
    let sure = windows.count > 0 || page_seen;
    if !sure && (kicks.count as f64) < KICKED * work as f64 {
        return verdicts.cannot_tell(NO_SIGN_EITHER_WAY);
    }
    let of_page = page.cost.filter(|_| page_storm);
    let cost: f64 = [windows.cost, registers.cost, of_page].into_iter().flatten().sum();
    let costly = sure && (page_storm || cost >= COST_WARNING);
    let severity = if costly { Severity::Warning } else { Severity::Info };
    let confidence = match (sure, available) {
        (true, Some(true)) => Confidence::High,
        (true, _) => Confidence::Medium,
        (false, _) => Confidence::Low,
    };
    let (work, window) = (figure(work as f64), guest.window());
    let off = "synic is on and avic is off, and none of";
    let mut evidence =
        vec![format!("{off} {work} exits {window} is one of an accelerated APIC (APIC_WRITE, EOI_INDUCED)")];
    if windows.count > 0 {
        let rate = or_unknown(windows.rate, figure);
        evidence
            .push(format!("{rate} exits/s occur only without acceleration (TPR_BELOW_THRESHOLD, INTERRUPT_WINDOW)"));
    }
    if page_seen {
        evidence.push(page.describe(guest, "accesses", "to the local APIC's page"));
    } else if page_storm {
        let faults = page.describe(guest, "memory faults", "");
        evidence.push(format!("{faults}; {FAULTS_ON_THE_PAGE}"));
    }
    if registers.count > 0 {
        evidence.push(registers.describe(guest, "writes", "to Hyper-V's APIC registers (MSR 0x40000070-72)"));
    }
    if !sure {
        let kicks = kicks.describe(guest, "host interrupts", "in the running guest");
        evidence.push(format!("{kicks}; posted interrupts would avoid them"));
        evidence.push(ONLY_SUGGESTED.into());
    }
    let module = apic_parameter(isa.or(Some(Isa::Vmx))).unwrap_or_default();
    evidence.push(match available {
        Some(true) => format!("the host offers it: /sys/module/{module} is on"),
        _ => format!("look at: cat /sys/module/{module}"),
    });
    let mut fix = fixes::hyperv::enable(guest, &["avic"]);
    fix.push(fixes::libvirt_advice(fixes::hyperv::ADD_AVIC));
    let mut marks = windows.marks;
    if page_seen || page_storm {
        marks.extend(page.marks);
    }
    let cost = Some(cost).filter(|cost| *cost > 0.0);
    let found = Finding::new(severity, confidence, evidence, fix);
    verdicts.find(Finding { cost, marks, ..found });
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
    let (count, over) = (figure(window.count as f64), guest.window());
    let evidence = vec![
        format!("{count} vintr exits {over} and none of AVIC's, though kvm_amd.avic is on"),
        format!("the tick policy of timer pit is {}", if is_set { "delay" } else { "not set, which means delay" }),
        CHECK_INHIBIT_REASON.into(),
    ];
    let discard = fixes::timer(guest, "<timer name='pit' tickpolicy='discard'/>");
    let fix = fixes::setting(guest, discard, "-global kvm-pit.lost_tick_policy=discard");
    verdicts.find(Finding::new(Severity::Info, Confidence::Medium, evidence, fix).caused_by(window));
}
