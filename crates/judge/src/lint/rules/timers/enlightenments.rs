//! A Windows guest without the Hyper-V clock or timers, which spare it QEMU's.

use crate::lint::facts::{
    Confidence, Context, EventTotals, Finding, GuestContext, Prose, Severity, Verdicts,
};
use crate::lint::fixes::hyperv;
use crate::model::{CpuPlace, ExitKind};
use kvm::Space;
use kvm::hyperv::CLOCK;

const NO_SYNTHETIC_TIMERS: Prose = Prose {
    title: "Windows runs without Hyper-V's synthetic timers: QEMU emulates its tick",
    problem: "no Hyper-V timers",
    why: "Windows ticks by QEMU's RTC or HPET, which costs host CPU even when the guest is idle",
};
const HIDDEN_HYPERVISOR: Prose = Prose {
    title: "Windows cannot see the hypervisor, so it uses none of its enlightenments",
    problem: "hypervisor is hidden",
    why: "Windows looks for Hyper-V's clock and timers only where CPUID says that there is a \
        hypervisor. Without it Windows uses QEMU's timers, whatever enlightenments are configured: \
        the price of hiding it from anti-cheat software",
};

pub(super) fn enlightenments(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    if !guest.config.known
        || !guest.config.is_x86()
        || !guest.kind.windows(Confidence::Low)
        || hyperv::too_old(guest)
    {
        return;
    }
    let hidden = guest.config.hypervisor_hidden;
    let mut missing = hyperv::missing(guest, hyperv::clock_and_timers(guest));
    let not_shown: Vec<_> = missing
        .extract_if(.., |name| guest.config.enlightened(name).is_none())
        .collect();
    let lacks_clock = missing.contains(&CLOCK);
    let lacks_timers = missing.contains(&"stimer");
    if !hidden && !lacks_clock && !lacks_timers {
        if !not_shown.is_empty() {
            verdicts.cannot_tell(
                "the configuration does not show the Hyper-V clock \
            and timers (add the whole virsh dumpxml)",
            );
        }
        return;
    }
    let io = unnamed_ports(ctx, guest);
    let evidence = evidence(guest, io.as_ref(), &missing);
    let severity = match &io {
        Some(io) => Severity::Warning.max(ctx.severity_by_cost(io).unwrap_or_default()),
        None => Severity::default(),
    };
    let fix = hyperv::windows_timers(ctx, guest);
    let mut found =
        Finding::new(severity, guest.kind.sure, evidence, fix).caused_by(io.unwrap_or_default());
    found.comes_first = hidden;
    if hidden {
        found = found.saying(HIDDEN_HYPERVISOR);
    } else if !lacks_clock {
        found = found.saying(NO_SYNTHETIC_TIMERS);
    }
    verdicts.find(found);
}

fn evidence(guest: &GuestContext<'_>, io: Option<&EventTotals>, missing: &[&str]) -> Vec<String> {
    let mut evidence = Vec::new();
    if let Some(io) = io {
        let unnamed = "the figures do not name the ports, by which Windows keeps time here (the \
            ioport table does)";
        evidence.push(io.describe("port exits", ""));
        evidence.push(unnamed.into());
    }
    if guest.config.hypervisor_hidden {
        evidence.push(hyperv::HYPERVISOR_OFF.to_owned());
    }
    if !missing.is_empty() {
        let missing = missing.join(", ");
        evidence.push(format!("missing from the configuration: {missing}"));
    }
    let reasons = guest.kind.reasons.join(", ");
    evidence.push(format!("the guest counts as Windows because {reasons}"));
    evidence.extend(decided_elsewhere(guest));
    evidence
}

/// Many exits for ports that no table names: in this configuration they are the timers'.
fn unnamed_ports(ctx: &Context<'_>, guest: &GuestContext<'_>) -> Option<EventTotals> {
    if !guest.running() || guest.has_accesses(Space::Pio) {
        return None;
    }
    let io = guest.exits(&[ExitKind::Io]);
    if io.rate >= Some(ctx.thresholds().timers.rtc.warning) {
        Some(io)
    } else {
        None
    }
}

/// Which `-cpu` counts, where it is not the one that a reader would look at.
fn decided_elsewhere(guest: &GuestContext<'_>) -> Option<String> {
    let argument = guest.config.cpu_argument.as_deref()?;
    if guest.config.cpu_place != CpuPlace::QemuCommandline {
        return None;
    }
    Some(format!(
        "<qemu:commandline> decides: QEMU takes the last -cpu, which is '{argument}'; <cpu>, \
         <hyperv> and the hypervclock timer of the XML have no effect"
    ))
}
