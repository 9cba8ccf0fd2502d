//! Properties of devices that make QEMU serve what the kernel could.

use crate::lint::facts::{Confidence, Context, Finding, Fix, GuestContext, Severity, Verdicts};
use crate::lint::fixes;
use kvm::device_property::PropertyPlace::{CommandLine, Devices, Override};
use kvm::device_property::{self, DRIVER, DeviceProperty};
use sample::DomainFacts;

/// The most properties for which there are fixes.
const MAX_FIXES: usize = 8;

/// Properties that cost performance.
pub(super) fn costly(_: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let Cited { evidence, fixes } = cited_if(guest, |property| property.name != DRIVER);
    if !evidence.is_empty() {
        verdicts.find(Finding::new(
            Severity::Info,
            Confidence::High,
            evidence,
            fixes,
        ));
    }
}

/// A property, what it costs, and where it was set.
fn cost_line(property: &DeviceProperty) -> Option<String> {
    let DeviceProperty {
        device,
        name,
        value,
        place,
    } = property;
    Some(format!(
        "{device}: {name}={value}, set in {place}: {}",
        property.cost()?
    ))
}

/// What a rule about behaviour cites of a guest's properties.
pub(super) struct Cited {
    pub evidence: Vec<String>,
    pub fixes: Vec<Fix>,
}

/// What the properties of these names say.
pub(super) fn cited(guest: &GuestContext<'_>, names: &[&str]) -> Cited {
    cited_if(guest, |property| names.contains(&property.name.as_str()))
}

fn cited_if(guest: &GuestContext<'_>, is_wanted: impl Fn(&DeviceProperty) -> bool) -> Cited {
    let properties = costly_properties(&guest.domain.facts, is_wanted);
    Cited {
        evidence: properties.iter().filter_map(cost_line).collect(),
        fixes: fixes_of(&properties),
    }
}

/// The models of emulated network cards and SCSI controllers, each with its device.
pub(super) fn emulated(guest: &GuestContext<'_>) -> Vec<DeviceProperty> {
    let mut models = costly_properties(&guest.domain.facts, |property| property.name == DRIVER);
    // libvirt's command line repeats the devices of its XML under other names: they count once.
    if models.iter().any(|property| property.place == Devices) {
        models.retain(|property| property.place == Devices);
    }
    models
}

/// The effective properties that cost something. A property that XML and command line both have
/// counts as the XML's.
fn costly_properties(
    facts: &DomainFacts,
    is_wanted: impl Fn(&DeviceProperty) -> bool,
) -> Vec<DeviceProperty> {
    let mut properties: Vec<&DeviceProperty> = Vec::new();
    if let Some(xml) = &facts.xml {
        properties.extend(&xml.value.device_properties);
        if let Some(added) = &xml.value.qemu_command {
            properties.extend(&added.device_properties);
        }
    }
    let of_xml = device_property::in_force(properties.iter().copied());
    for property in facts.command.iter().flat_map(|c| &c.device_properties) {
        let is_repeated = of_xml.iter().any(|known| {
            known.device == property.device
                && known.name == property.name
                && known.value == property.value
        });
        if !is_repeated {
            properties.push(property);
        }
    }
    device_property::in_force(properties)
        .into_iter()
        .filter(|property| property.cost().is_some() && is_wanted(property))
        .cloned()
        .collect()
}

fn fixes_of(properties: &[DeviceProperty]) -> Vec<Fix> {
    let mut fix = Vec::new();
    for property in properties.iter().take(MAX_FIXES) {
        let DeviceProperty {
            device,
            name,
            value,
            place,
        } = property;
        let text = match place {
            Devices => {
                let attribute = match name.as_str() {
                    "vhost" => "name='qemu'".to_owned(),
                    "tx" => "txmode='timer'".to_owned(),
                    name => format!("{}='{value}'", name.replace('-', "_")),
                };
                format!("Remove {attribute} from the <driver> of {device}")
            }
            Override => format!(
                "Remove <qemu:property name='{name}' .../> of the device with the alias {device} \
                    from <qemu:override>"
            ),
            CommandLine => format!("Start QEMU without {name}={value} of {device}"),
        };
        fix.push(fixes::advice(text).needing(fixes::POWER_CYCLE));
    }
    fix
}
