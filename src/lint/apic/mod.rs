//! The interrupt controller: is its hardware acceleration at work, and how much does the guest use it.

use crate::kvm::{Isa, Space};
use crate::lint::context::guest::{Context, ExitKind, GuestContext};
use crate::lint::context::totals::{by_cost, told};
use crate::lint::engine::text::{figure, maybe};
use crate::lint::engine::verdicts::{NO_VCPUS, Verdicts};
use crate::lint::{Confidence, Finding, Severity, fix};
use crate::model::Sureness;
use crate::sample::Direction;

const HYPERV_DOC: &str = "https://www.qemu.org/docs/master/system/i386/hyperv.html";
const CLOCK_DOC: &str = "https://libvirt.org/formatdomain.html#time-keeping";
const FEATURES_DOC: &str = "https://libvirt.org/formatdomain.html#hypervisor-features";

/// Work exits below this rate say nothing about how interrupts are delivered, per second.
const TRAFFIC: f64 = 1000.0;

/// From this share of the work exits on, host interrupts are most likely kicks that deliver the guest's own.
const KICKED: f64 = 0.25;

fn isa(guest: &GuestContext<'_>) -> Option<Isa> {
    guest
        .domain
        .exits
        .rows
        .iter()
        .filter_map(|r| r.id)
        .map(|id| id.0)
        .find(|i| matches!(i, Isa::Vmx | Isa::Svm | Isa::Arm64))
}

/// `SynIC` without avic: `AutoEOI` inhibits `APICv` (arch/x86/kvm/hyperv.c, `synic_update_vector`).
pub(crate) fn inhibited(world: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let isa = isa(guest);
    if guest.config.enlightened("synic") != Some(true) || guest.config.hyperv.has("avic") || isa == Some(Isa::Arm64) {
        return;
    }
    // On hardware, or with a module parameter, that has no APICv, there is nothing to be had back.
    let available = fix::apic_virtualisation(world);
    if available == Some(false) {
        return;
    }
    // AVIC is off by default on most kernels, where its absence says nothing.
    if isa == Some(Isa::Svm) && available.is_none() {
        return verdicts.cannot("whether the host's kvm_amd.avic is on is not known");
    }
    let active = guest.exits(&[ExitKind::ApicWrite, ExitKind::EoiInduced, ExitKind::Avic]);
    let legacy = guest.exits(&[ExitKind::ApicAccess]);
    if active.count > 0 || legacy.count > 0 || guest.domain.exits.count == 0 {
        return;
    }
    let Some(seconds) = guest.seconds else { return verdicts.cannot(guest.no_rate()) };
    let work: u64 = guest.domain.exits.rows.iter().filter(|r| !r.idle).map(|r| r.span.count).sum();
    if (work as f64 / seconds) < TRAFFIC {
        return verdicts.cannot("the guest does too little to tell whether its interrupts are accelerated");
    }
    let windows = guest.exits(&[ExitKind::Window, ExitKind::TprBelow]);
    let page = guest.accesses(|r| r.space == Space::Mmio && r.address.is_some_and(|a| a & !0xfff == 0xfee0_0000));
    let registers = guest.msrs(Direction::Write, |m| (0x4000_0070..=0x4000_0072).contains(&m));
    let faults = guest.exits(&[ExitKind::Fault]);
    let on_page = if page.count > 0 { &page } else { &faults };
    let sure = windows.count > 0 || page.count > 0;
    // Posted interrupts reach a running vCPU without an exit: many of these say that nothing is posted.
    let kicks = guest.exits(&[ExitKind::HostInterrupt]);
    let kicked = kicks.count as f64 >= KICKED * work as f64;
    if !sure && !kicked {
        return verdicts.cannot(
            "synic is on without avic and no exit of an accelerated APIC shows, which fits an APICv that is switched off, but nothing else does; \
             the kvm_apicv_inhibit_changed and kvm_page_fault tracepoints tell (address 0xfee00xxx)",
        );
    }
    let mut cost = windows.cost.unwrap_or(0.0) + registers.cost.unwrap_or(0.0);
    let page_storm = isa == Some(Isa::Vmx)
        && on_page.per_vcpu.is_some_and(|r| r >= world.options.thresholds.apic.page_faults)
        && !guest.migrating();
    if page_storm {
        cost += on_page.cost.unwrap_or(0.0);
    }
    let severity = if sure && (page_storm || cost >= 2.0) { Severity::Warning } else { Severity::Info };
    let mut evidence = vec![format!(
        "synic is on and avic is not, and {} exits {} show not one of an accelerated APIC (APIC_WRITE, EOI_INDUCED)",
        figure(work as f64),
        guest.window()
    )];
    if windows.count > 0 {
        evidence.push(format!(
            "{}/s exits that exist only without it (TPR_BELOW_THRESHOLD, INTERRUPT_WINDOW, vintr)",
            maybe(windows.rate)
        ));
    }
    if page.count > 0 {
        evidence.push(told(guest, &page, "accesses to the local APIC's page"));
    } else if page_storm {
        evidence.push(format!(
            "{}; an inhibited APICv leaves the local APIC's page unmapped, so probably most are accesses to it",
            told(guest, &faults, "memory faults")
        ));
    }
    if registers.count > 0 {
        evidence.push(told(guest, &registers, "writes to Hyper-V's APIC registers (MSR 0x40000070-72)"));
    }
    if !sure {
        evidence.push(told(guest, &kicks, "interrupts while the guest ran, which posting would spare"));
        evidence.push("this only suggests it: look at the kvm_apicv_inhibit_changed and kvm_page_fault tracepoints (address 0xfee00xxx)".into());
    }
    let module = if isa == Some(Isa::Svm) { "kvm_amd/parameters/avic" } else { "kvm_intel/parameters/enable_apicv" };
    evidence.push(match available {
        Some(true) => format!("the host offers it: /sys/module/{module} is on"),
        _ => format!("check: cat /sys/module/{module}"),
    });
    let mut marks = windows.marks;
    marks.extend(page.marks);
    if page_storm && page.count == 0 {
        marks.extend(faults.marks);
    }
    let mut fixes = fix::enlighten(guest, &["avic"]);
    fixes.push(fix::advice(
        "avic needs libvirt 8.10, QEMU 6.2 and a host CPU with APICv or AVIC; on an older QEMU the choice is between accelerated interrupts and stimer",
    ));
    verdicts.find(Finding {
        severity,
        confidence: match (sure, available) {
            (true, Some(true)) => Confidence::High,
            (true, _) => Confidence::Medium,
            (false, _) => Confidence::Low,
        },
        title: "SynIC without avic keeps the interrupt controller's acceleration (APICv, AVIC) switched off".into(),
        evidence,
        why: "Windows is told to acknowledge synthetic interrupts automatically (AutoEOI), which APIC virtualisation cannot do, so KVM switches it \
              off: each interrupt and each access to the APIC costs exits again. The avic enlightenment takes that recommendation back"
            .into(),
        fix: fixes,
        see: vec![HYPERV_DOC.into(), FEATURES_DOC.into()],
        cost: (cost > 0.0).then_some(cost),
        marks,
        ..Finding::default()
    });
}

/// the local APIC by MMIO exits.
pub(crate) fn lapic(world: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let exits = guest.exits(&[ExitKind::ApicAccess]);
    let page = guest
        .accesses(|r| r.space == Space::Mmio && r.address.is_some_and(|a| (0xfee0_0000..0xfef0_0000).contains(&a)));
    // An inhibited APICv shows the page as well; that is another rule's.
    let inhibited = guest.config.hyperv.has("synic") && !guest.config.hyperv.has("avic");
    let seen = if exits.count >= page.count { exits } else { page };
    if seen.count == 0 || (inhibited && seen.marks.iter().all(|m| matches!(m, crate::lint::Mark::Access(..)))) {
        return;
    }
    if seen.rate.is_none() {
        return verdicts.cannot(guest.no_rate());
    }
    let Some(per) = seen.per_vcpu else { return verdicts.cannot(NO_VCPUS) };
    if per < world.options.thresholds.apic.lapic_exits {
        return;
    }
    let mut fixes = Vec::new();
    if world.param_on("kvm_intel.enable_apicv") == Some(false) {
        fixes.push(
            fix::kernel("kvm_intel.enable_apicv=1")
                .needing("only on CPUs that have it; reboot the host, or reload kvm_intel while no guest runs"),
        );
    }
    if guest.kind.windows(Sureness::Low) {
        fixes.extend(fix::enlighten(guest, &["relaxed", "vapic"]));
        if fixes.is_empty() {
            fixes.push(fix::advice(
                "The guest has what helps on such a host (vapic). A host CPU with APICv (Xeon E5 v2 or later, enable_apicv says Y) has none of these exits",
            ));
        }
    } else {
        fixes.extend(fix::either(guest, fix::cpu_feature(guest, "x2apic"), fix::qemu("-cpu host,x2apic=on")));
        fixes.push(fix::advice(
            "Take nox2apic off the guest's kernel command line: x2APIC registers are cheaper than APIC memory",
        ));
    }
    verdicts.find(Finding {
        severity: Severity::Warning.max(by_cost(world, guest, &seen).unwrap_or_default()),
        confidence: Confidence::High,
        title: "Every access of the guest to its local APIC leaves the guest".into(),
        evidence: vec![
            told(guest, &seen, "accesses to the local APIC's memory"),
            "check: cat /sys/module/kvm_intel/parameters/enable_apicv".into(),
            guest.perf("mmio"),
        ],
        why: "The guest drives its interrupt controller through memory (0xfee00000) and the host's CPU does not virtualise those registers: an old \
              CPU, or enable_apicv=0. Acknowledging, timer and inter-processor interrupts each cost an exit, which caps I/O rates"
            .into(),
        fix: fixes,
        see: vec!["https://docs.kernel.org/admin-guide/kernel-parameters.html".into(), FEATURES_DOC.into()],
        cost: seen.cost,
        marks: seen.marks,
        ..Finding::default()
    });
}

/// PIT reinjection inhibits AVIC (arch/x86/kvm/i8254.c, `kvm_pit_set_reinject`).
pub(crate) fn avic_pit(world: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let policy = guest.config.timers.pit_policy.as_deref();
    if !guest.config.known || isa(guest) != Some(Isa::Svm) || world.param_on("kvm_amd.avic") != Some(true) {
        return;
    }
    let window = guest.exits(&[ExitKind::Window]);
    if policy.is_some_and(|p| p != "delay") || window.count == 0 || guest.exits(&[ExitKind::Avic]).count > 0 {
        return;
    }
    let policy_text = policy.map_or("not set, which means delay", |_| "delay");
    let discard = fix::timer(guest, "<timer name='pit' tickpolicy='discard'/>");
    verdicts.find(Finding {
        severity: Severity::Info,
        title: "The PIT's tick policy keeps AVIC switched off".into(),
        evidence: vec![
            format!("{} vintr exits {} and none of AVIC's, though kvm_amd.avic is on", figure(window.count as f64), guest.window()),
            format!("the tick policy of timer pit is {policy_text}"),
            "check: echo 1 > /sys/kernel/tracing/events/kvm/kvm_apicv_inhibit_changed/enable while the guest starts; the reason says PIT_REINJ".into(),
        ],
        why: "With policy delay KVM re-injects lost PIT ticks and has to see each acknowledgement, so it inhibits AVIC for the whole guest. No modern \
              system needs PIT ticks made up for"
            .into(),
        fix: fix::either(guest, fix::xml(discard), fix::qemu("-global kvm-pit.lost_tick_policy=discard")),
        see: vec![CLOCK_DOC.into()],
        cost: window.cost,
        marks: window.marks,
        ..Finding::default()
    });
}

/// inter-processor interrupts.
pub(crate) fn ipis(world: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let icr = |r: &crate::model::AccessRow| {
        r.direction == Direction::Write
            && match r.space {
                Space::Msr => matches!(r.address, Some(0x830 | 0x4000_0071)),
                Space::Mmio => r.address == Some(0xfee0_0300),
                Space::Pio => false,
            }
    };
    let mut seen = guest.accesses(icr);
    let mut confidence = Confidence::High;
    let mut what = "writes to the interrupt command register";
    if seen.count == 0 && !guest.knows(Space::Msr) {
        // With APICv an IPI is an APIC_WRITE exit, but so are timer counts: take it for a hint.
        seen = guest.exits(&[ExitKind::ApicWrite]);
        confidence = Confidence::Low;
        what = "APIC_WRITE exits (most likely interrupt commands; kvm_apic_ipi tells)";
    }
    if seen.count == 0 {
        let msrs = guest.exits(&[ExitKind::MsrWrite]);
        let many = msrs.per_vcpu.is_some_and(|per| per >= world.options.thresholds.apic.ipis.info);
        if many && !guest.knows(Space::Msr) {
            verdicts.cannot(format!(
                "{} MSR exits/s, but the figures do not say which MSRs (the msr table does)",
                maybe(msrs.rate)
            ));
        }
        return;
    }
    if seen.rate.is_none() {
        return verdicts.cannot(guest.no_rate());
    }
    let Some(per) = seen.per_vcpu else { return verdicts.cannot(NO_VCPUS) };
    let Some(mut severity) = world.options.thresholds.apic.ipis.of(per) else { return };
    if confidence == Confidence::Low {
        severity = Severity::Info;
    }
    let mut fixes = Vec::new();
    if guest.kind.windows(Sureness::Low) {
        fixes.extend(fix::enlighten(guest, &["vpindex", "ipi", "tlbflush"]));
    }
    fixes.push(fix::advice(
        "Some loads do this by design (databases, build jobs, hackbench): fewer vCPUs, or pinning them to one last-level cache, makes each interrupt cheaper",
    ));
    verdicts.find(Finding {
        severity,
        confidence,
        title: "The guest's vCPUs interrupt each other at a high rate".into(),
        evidence: vec![told(guest, &seen, what), guest.perf("msr")],
        why: "Waking another vCPU or flushing its TLB takes an interrupt from vCPU to vCPU; each costs an exit on the sender and, without posted \
              interrupts, one on the receiver"
            .into(),
        fix: fixes,
        see: vec![HYPERV_DOC.into(), "https://docs.kernel.org/virt/kvm/x86/cpuid.html".into()],
        cost: seen.cost,
        marks: seen.marks,
        ..Finding::default()
    });
}
