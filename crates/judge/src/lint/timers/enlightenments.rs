//! A Windows guest without the Hyper-V clock or timers, which spare it QEMU's.

use super::texts;
use crate::lint::fixes::hyperv;
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
    if !guest.kind.windows(Confidence::Medium) || hyperv::too_old(guest) {
        return;
    }
    let hidden = guest.config.hypervisor_hidden;
    let mut missing = hyperv::missing(guest, hyperv::clock_and_timers(guest));
    let all = missing.len();
    missing.retain(|name| !is_left_out(guest, if *name == CLOCK { "<clock" } else { "<features" }));
    let prose = match (hidden, missing.contains(&CLOCK), missing.contains(&"stimer")) {
        (true, ..) => texts::HIDDEN_HYPERVISOR,
        (_, true, true) => texts::NO_CLOCK_AND_TIMERS,
        (_, true, false) => texts::NO_HYPERV_CLOCK,
        (_, false, true) => texts::NO_SYNTHETIC_TIMERS,
        _ if missing.len() < all => return verdicts.cannot_tell(texts::XML_WITHOUT_FEATURES),
        _ => return,
    };
    let confidence = if guest.kind.sure == Confidence::High { Confidence::High } else { Confidence::Medium };
    let mut evidence: Vec<String> = hidden.then(|| texts::HYPERVISOR_OFF.to_owned()).into_iter().collect();
    if !missing.is_empty() {
        evidence.push(format!("missing from the configuration: {}", described(&missing)));
    }
    evidence.push(format!("the guest counts as Windows because {}", guest.kind.reasons.join(", ")));
    evidence.extend(decided_elsewhere(guest));
    let fix = hyperv::windows_timers(ctx, guest);
    let mut finding = Finding::new(Severity::Info, confidence, evidence, fix).saying(prose);
    // Ports that no table names are the timers' in this configuration.
    let io = guest.exits(&[ExitKind::Io]);
    if !guest.has_accesses(Space::Pio)
        && io.rate.is_some_and(|r| r >= ctx.thresholds().timers.rtc.warning)
        && guest.running()
    {
        let which = match (missing.contains(&CLOCK), guest.config.hpet()) {
            (false, Some(false)) => {
                "with the Hyper-V clock, without stimer and HPET, Windows ticks by the RTC (ports 0x70 and 0x71)"
            }
            (false, _) => "with the Hyper-V clock and without stimer, Windows ticks by HPET or RTC",
            (true, _) => "without the Hyper-V clock, Windows reads the ACPI PM timer and ticks by RTC or HPET",
        };
        let which = format!("the figures do not name the ports; {which}. The ioport table shows them");
        finding.evidence.splice(..0, [io.describe(guest, "port exits", ""), which]);
        finding.evidence.push(guest.perf_check("ioport"));
        let by_cost = ctx.severity_by_cost(guest, &io);
        finding.severity = worst([Some(Severity::Warning), by_cost]).unwrap_or_default();
        finding = finding.caused_by(io);
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
    let line = |(name, missing): &(&str, Vec<&str>)| {
        format!("{name} is on and needs {}, which the configuration lacks", described(missing))
    };
    let mut evidence: Vec<String> = incomplete.iter().map(line).collect();
    evidence.extend(decided_elsewhere(guest));
    evidence.push(fixes::check_setup(guest));
    let fix = hyperv::enable(guest, &on);
    let mut finding = Finding::new(Severity::Warning, Confidence::High, evidence, fix).saying(texts::REFUSED);
    if let Some((name, missing)) = incomplete.first() {
        finding.title = format!("{name} is on without {}: QEMU refuses to start the guest", missing.join(" and "));
    }
    finding
}

fn described(names: &[&str]) -> String {
    let describe = |n: &&str| match *n {
        "hypervclock" => "the Hyper-V clock (hypervclock)".to_owned(),
        "stimer" => "synthetic timers (stimer)".to_owned(),
        other => other.to_owned(),
    };
    names.iter().map(describe).collect::<Vec<_>>().join(", ")
}

/// Which `-cpu` counts, where it is not the one that a reader would look at.
fn decided_elsewhere(guest: &GuestContext<'_>) -> Option<String> {
    let argument = guest.config.cpu_argument.as_deref()?;
    match guest.config.cpu_place {
        CpuPlace::QemuCommandline => Some(format!(
            "<qemu:commandline> decides: QEMU takes the last -cpu, which is '{argument}'; <cpu>, <hyperv> and the \
             hypervclock timer of the XML have no effect"
        )),
        CpuPlace::CommandLine(count) if count > 1 => {
            Some(format!("the command line has {count} -cpu options, and QEMU takes the last one: '{argument}'"))
        }
        CpuPlace::CommandLine(_) | CpuPlace::Xml => None,
    }
}
