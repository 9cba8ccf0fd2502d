//! A Windows guest without the Hyper-V clock or timers, which spare it QEMU's.

use super::texts;
use crate::lint::fixes::{self, hyperv};
use crate::lint::prelude::*;
use crate::model::CpuPlace;
use kvm::hyperv::CLOCK;

pub(super) fn enlightenments(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    if !guest.config.known || !guest.config.is_x86() {
        return;
    }
    let incomplete = guest.config.hyperv.incomplete();
    if !incomplete.is_empty() {
        return verdicts.find(refused(guest, &incomplete));
    }
    let windows = guest.kind.windows(Sureness::Medium);
    if !windows || hyperv::too_old(guest) {
        return;
    }
    let hidden = guest.config.hypervisor_hidden;
    let mut missing = hyperv::missing(guest, hyperv::clock_and_timers(guest));
    let all = missing.len();
    missing.retain(|name| !is_left_out(guest, if *name == CLOCK { "<clock" } else { "<features" }));
    let prose = match (hidden, missing.contains(&CLOCK), missing.contains(&"stimer")) {
        (true, ..) => texts::HIDDEN_HYPERVISOR,
        (_, true, true) => texts::ENLIGHTENMENTS,
        (_, true, false) => texts::NO_HYPERV_CLOCK,
        (_, false, true) => texts::NO_SYNTHETIC_TIMERS,
        _ if missing.len() < all => return verdicts.cannot_tell(texts::XML_WITHOUT_FEATURES),
        _ => return,
    };
    let mut finding = Finding {
        severity: Severity::Info,
        confidence: if guest.kind.sure == Sureness::High { Confidence::High } else { Confidence::Medium },
        evidence: hidden.then(|| texts::HYPERVISOR_OFF.to_owned()).into_iter().collect(),
        fix: hyperv::windows_timers(ctx, guest),
        ..prose.finding()
    };
    finding.evidence.extend((!missing.is_empty()).then(|| texts::missing(&missing)));
    finding.evidence.push(texts::taken_for_windows(&guest.kind.reasons));
    finding.evidence.extend(decided_elsewhere(guest));
    // Ports that no table names are the timers' in this configuration.
    let io = guest.exits(&[ExitKind::Io]);
    if !guest.has_accesses(Space::Pio)
        && io.rate.is_some_and(|r| r >= ctx.thresholds().timers.rtc.warning)
        && guest.running()
    {
        let which = texts::unknown_ports(missing.contains(&CLOCK), guest.config.hpet());
        finding.evidence.insert(0, io.describe(guest, "port exits", ""));
        finding.evidence.insert(1, which);
        finding.evidence.push(guest.perf_check("ioport"));
        let by_cost = ctx.severity_by_cost(guest, &io);
        finding.severity = worst([Some(Severity::Warning), by_cost]).unwrap_or_default();
        finding.cost = io.cost;
        finding.marks = io.marks;
    }
    finding.evidence.push(fixes::check_setup(guest));
    verdicts.find(finding);
}

/// Whether the guest's XML breaks off before this element, which libvirt writes for every PC.
fn is_left_out(guest: &GuestContext<'_>, element: &str) -> bool {
    let facts = &guest.domain.facts;
    let cut = facts.xml.as_ref().is_some_and(|xml| xml.value.cut);
    cut && facts.command.is_none() && !facts.xml_text.as_ref().is_some_and(|text| text.contains(element))
}

/// Enlightenments without what they need: QEMU does not start the guest.
fn refused(guest: &GuestContext<'_>, incomplete: &[(&'static str, Vec<&'static str>)]) -> Finding {
    let on: Vec<&str> = incomplete.iter().map(|(name, _)| *name).collect();
    let mut finding = Finding {
        severity: Severity::Warning,
        confidence: Confidence::High,
        evidence: incomplete.iter().map(|(name, missing)| texts::needs(name, missing)).collect(),
        fix: hyperv::enable(guest, &on),
        ..texts::REFUSED.finding()
    };
    if let Some((name, missing)) = incomplete.first() {
        finding.title = texts::on_without(name, missing);
    }
    finding.evidence.extend(decided_elsewhere(guest));
    finding.evidence.push(fixes::check_setup(guest));
    finding
}

/// Which `-cpu` counts, where it is not the one that a reader would look at.
fn decided_elsewhere(guest: &GuestContext<'_>) -> Option<String> {
    let argument = guest.config.cpu_argument.as_deref()?;
    match guest.config.cpu_place {
        CpuPlace::QemuCommandline => Some(texts::qemu_commandline_decides(argument)),
        CpuPlace::CommandLine(count) if count > 1 => Some(texts::last_cpu_decides(count, argument)),
        CpuPlace::CommandLine(_) | CpuPlace::Xml => None,
    }
}
