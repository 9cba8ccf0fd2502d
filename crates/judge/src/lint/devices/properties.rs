//! Properties of devices that make QEMU serve what the kernel could.

use super::texts;
use crate::lint::prelude::*;
use kvm::device_property::{self, DeviceProperty, PropertyPlace};
use sample::DomainFacts;

/// The most properties that evidence lists.
const MAX_LISTED: usize = 8;

/// Properties that cost performance.
pub(super) fn costly(_: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let all = of(&guest.domain.facts, |_| true);
    if all.is_empty() {
        return;
    }
    let mut evidence: Vec<String> = all.iter().take(MAX_LISTED).filter_map(texts::property).collect();
    if all.len() > MAX_LISTED {
        evidence.push(texts::more_properties(all.len() - MAX_LISTED));
    }
    evidence.push(fixes::check_setup(guest));
    verdicts.find(Finding {
        severity: Severity::Info,
        confidence: Confidence::High,
        evidence,
        fix: fixes_of(&all),
        ..texts::PROPERTIES.finding()
    });
}

/// What a rule about behaviour cites: evidence and fixes of the properties of these names.
pub(super) fn cited(guest: &GuestContext<'_>, names: &[&str]) -> (Vec<String>, Vec<Fix>) {
    let all = of(&guest.domain.facts, |property| names.contains(&property.name.as_str()));
    (all.iter().take(MAX_LISTED).filter_map(texts::property).collect(), fixes_of(&all))
}

/// The effective properties that cost something. A property that XML and command line both have counts as the XML's.
fn of(facts: &DomainFacts, wanted: impl Fn(&DeviceProperty) -> bool) -> Vec<DeviceProperty> {
    let xml = facts.xml.as_ref().map(|xml| &xml.value);
    let of_xml = || {
        let added = xml.and_then(|xml| xml.qemu_command.as_ref()).into_iter().flat_map(|c| &c.device_properties);
        xml.into_iter().flat_map(|xml| &xml.device_properties).chain(added)
    };
    let repeats = |property: &DeviceProperty| {
        let same =
            |a: &DeviceProperty| (&a.device, &a.name, &a.value) == (&property.device, &property.name, &property.value);
        device_property::in_force(of_xml()).into_iter().any(same)
    };
    let running = facts.command.iter().flat_map(|command| &command.device_properties).filter(|p| !repeats(p));
    let all = device_property::in_force(of_xml().chain(running));
    all.into_iter().filter(|property| property.cost().is_some() && wanted(property)).cloned().collect()
}

fn fixes_of(all: &[DeviceProperty]) -> Vec<Fix> {
    let fix = |property: &DeviceProperty| match property.place {
        PropertyPlace::Devices => fixes::advice(texts::remove_from_devices(property)).needing(fixes::POWER_CYCLE),
        PropertyPlace::Override => fixes::advice(texts::remove_override(property)).needing(fixes::POWER_CYCLE),
        PropertyPlace::CommandLine => fixes::advice(texts::remove_argument(property)).needing(fixes::POWER_CYCLE),
    };
    all.iter().take(MAX_LISTED).map(fix).collect()
}
