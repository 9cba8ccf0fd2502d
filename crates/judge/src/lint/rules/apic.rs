//! The interrupt controller: what keeps the hardware from accelerating it, what the guest does with
//! its local APIC (accesses as memory, where each is an exit), and interrupts between vCPUs.

use crate::figures::figure;
use crate::lint::facts::Check::Behaviour;
use crate::lint::facts::{
    Confidence, Context, EventTotals, Finding, GuestContext, Hold, Mark, Rule, RuleDoc, RuleId,
    Severity, Verdicts, links, thresholds, why_no_rate,
};
use crate::lint::fixes;
use crate::model::{AccessRow, ExitKind};
use kvm::{Isa, Space};
use sample::Direction;

pub(in crate::lint) const RULES: &[Rule] = &[
    Rule::new(RuleId::ApicvInhibited, Behaviour(inhibited), Hold::USUAL).described(RuleDoc {
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
    Rule::new(RuleId::LapicMmio, Behaviour(lapic), Hold::USUAL).described(RuleDoc {
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
    Rule::new(RuleId::AvicInhibitedByPit, Behaviour(avic_pit), Hold::USUAL).described(RuleDoc {
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
    Rule::new(RuleId::IpiStorm, Behaviour(ipis), Hold::USUAL).described(RuleDoc {
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

/// With fewer work exits per second, nothing can be said of how interrupts are delivered.
const MIN_WORK_EXITS_PER_S: f64 = 1000.0;
/// From this share of the work exits on, host interrupts are most likely kicks that deliver the
/// guest's own interrupts.
const MIN_KICK_SHARE: f64 = 0.25;
/// A warning from this cost on, percent of one CPU.
const WARNING_COST_PERCENT: f64 = 2.0;

/// `SynIC` without avic: `AutoEOI` inhibits `APICv` (`arch/x86/kvm/hyperv.c`,
/// `synic_update_vector`).
fn inhibited(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let isa = ctx.isa(guest);
    // Where the hardware or a module parameter leaves no APICv, a fix gains nothing.
    let available = ctx.apic_virtualisation();
    if guest.config.enlightened("synic") != Some(true)
        || guest.config.enlightened("avic") != Some(false)
        || isa == Some(Isa::Arm64)
        || available == Some(false)
    {
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
    let page = guest.accesses(|row| is_on_apic_page(row, 0x1000));
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
    let evidence = signs_evidence(ctx, guest, work, &signs, &kicks);
    let mut fix = fixes::hyperv::enable(guest, &["avic"]);
    fix.push(fixes::libvirt_advice(fixes::hyperv::ADD_AVIC));
    verdicts.find(Finding {
        cost: Some(cost).filter(|cost| *cost > 0.0),
        marks: signs.into_iter().flat_map(|sign| sign.marks).collect(),
        ..Finding::new(severity, confidence, evidence, fix)
    });
}

fn signs_evidence(
    ctx: &Context<'_>,
    guest: &GuestContext<'_>,
    work: u64,
    signs: &[EventTotals],
    kicks: &EventTotals,
) -> Vec<String> {
    let mut evidence = vec![format!(
        "synic is on and avic is off, and none of {} exits {} is one of an accelerated \
            APIC (APIC_WRITE, EOI_INDUCED)",
        figure(work as f64),
        guest.window()
    )];
    if signs.is_empty() {
        let only = "in the running guest, which only suggest it";
        evidence.push(kicks.describe("host interrupts", only));
    }
    for sign in signs {
        evidence.push(sign.describe("exits", "that occur only without acceleration"));
    }
    let module = apic_parameter(ctx.isa(guest).or(Some(Isa::Vmx))).unwrap_or_default();
    evidence.push(format!("look at: cat /sys/module/{module}"));
    evidence
}

/// The module parameter that lets KVM virtualise the APIC, below `/sys/module`.
fn apic_parameter(isa: Option<Isa>) -> Option<&'static str> {
    match isa? {
        Isa::Svm => Some("kvm_amd/parameters/avic"),
        Isa::Vmx => Some("kvm_intel/parameters/enable_apicv"),
        Isa::Arm64 | Isa::Other(_) => None,
    }
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
    let work = guest.exits_if(|row| !row.idle);
    let Some(rate) = work.rate else {
        verdicts.cannot_tell(why_no_rate(guest.interval_s));
        return None;
    };
    if rate < MIN_WORK_EXITS_PER_S {
        verdicts.cannot_tell(
            "the guest does too little to show whether its interrupts are accelerated",
        );
        return None;
    }
    Some(work.count)
}

/// PIT reinjection inhibits AVIC (`arch/x86/kvm/i8254.c`, `kvm_pit_set_reinject`).
fn avic_pit(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
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
            if guest.config.timers.pit_policy.is_some() {
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

fn lapic(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let exits = guest.exits(&[ExitKind::ApicAccess]);
    let page = guest.accesses(|row| is_on_apic_page(row, 0x10_0000));
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
    let Some(per_vcpu) = accesses.per_vcpu_or_tell(verdicts) else {
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
    let severity = Severity::Warning.max(ctx.severity_by_cost(&accesses).unwrap_or_default());
    let parameter =
        apic_parameter(ctx.isa(guest)).unwrap_or("kvm_*/parameters/{enable_apicv,avic}");
    let evidence = vec![
        accesses.describe("accesses", "to the local APIC's memory"),
        format!("look at: cat /sys/module/{parameter}"),
    ];
    verdicts.find(Finding::new(severity, Confidence::High, evidence, fix).caused_by(accesses));
}

/// Whether an access is to so many bytes from the start of the APIC's page.
fn is_on_apic_page(row: &AccessRow, bytes: u64) -> bool {
    let page = 0xfee0_0000..0xfee0_0000 + bytes;
    row.space == Space::Mmio && row.address.is_some_and(|address| page.contains(&address))
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

fn ipis(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
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
    let Some(per_vcpu) = sent.per_vcpu_or_tell(verdicts) else {
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
    let evidence = vec![sent.describe(counted, meaning)];
    verdicts.find(Finding::new(severity, confidence, evidence, fix).caused_by(sent));
}
