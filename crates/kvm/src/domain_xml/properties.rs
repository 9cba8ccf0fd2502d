//! Properties of devices, as `<driver>` says them and as `<qemu:override>` changes them
//! (<https://libvirt.org/drvqemu.html>).

use super::xml::{attribute, child, children, elements, inner};
use crate::device_property::{self, DeviceProperty, MAX_PROPERTIES, PropertyPlace};
use roxmltree::Node;

/// Attributes of `<driver>` that are QEMU's properties of the same name.
const DRIVER: &[&str] = &["ioeventfd", "event_idx", "vectors"];

/// The properties of a domain's devices.
pub(super) fn of_domain(domain: Node) -> Vec<DeviceProperty> {
    let devices = child(domain, "devices").into_iter().flat_map(elements);
    let mut found: Vec<DeviceProperty> = devices.flat_map(of_device).take(MAX_PROPERTIES).collect();
    // libvirt takes it in QEMU's namespace only.
    let overrides = children(domain, "override").filter(|node| in_qemu_namespace(*node));
    for device in overrides.flat_map(|node| children(node, "device")) {
        let alias = attribute(device, "alias").unwrap_or_default();
        let properties =
            children(device, "frontend").flat_map(|frontend| children(frontend, "property"));
        for property in properties.take(MAX_PROPERTIES) {
            let Some(name) = attribute(property, "name") else {
                continue;
            };
            let device = short(&alias);
            if attribute(property, "type").as_deref() == Some("remove") {
                let name = name.replace('_', "-");
                found.retain(|known| known.device != device || known.name != name);
            } else if found.len() < MAX_PROPERTIES {
                let value = attribute(property, "value").unwrap_or_default();
                found.extend(DeviceProperty::new(
                    device,
                    &name,
                    &value,
                    PropertyPlace::Override,
                ));
            }
        }
    }
    found
}

/// Whether libvirt takes the element for one of its QEMU driver.
pub(super) fn in_qemu_namespace(node: Node) -> bool {
    node.tag_name()
        .namespace()
        .is_some_and(|space| space.contains("qemu"))
}

/// An alias without the mark of those that the user chose.
fn short(alias: &str) -> &str {
    alias.strip_prefix("ua-").unwrap_or(alias)
}

fn of_device(device: Node<'_, '_>) -> Vec<DeviceProperty> {
    let kind = device.tag_name().name();
    let target = inner(device, "target", "dev").or_else(|| inner(device, "mac", "address"));
    let alias = inner(device, "alias", "name").map(|alias| short(&alias).to_owned());
    let name = alias.or(target).unwrap_or_else(|| kind.to_owned());
    let model = match kind {
        "interface" => inner(device, "model", "type"),
        "controller" => attribute(device, "model").filter(|model| model.starts_with("virtio-scsi")),
        _ => None,
    };
    let mut values: Vec<(&str, String)> = Vec::new();
    let is_virtio = model
        .as_ref()
        .is_some_and(|model| model.starts_with("virtio"));
    values.extend(model.map(|model| (device_property::DRIVER, model)));
    if let Some(driver) = child(device, "driver") {
        for key in DRIVER {
            values.extend(attribute(driver, key).map(|value| (*key, value)));
        }
        if is_virtio && kind == "interface" && attribute(driver, "name").as_deref() == Some("qemu")
        {
            values.push(("vhost", "off".to_owned()));
        }
        if kind == "interface" && attribute(driver, "txmode").as_deref() == Some("timer") {
            values.push(("tx", "timer".to_owned()));
        }
    }
    values
        .iter()
        .filter_map(|(key, value)| DeviceProperty::new(&name, key, value, PropertyPlace::Devices))
        .collect()
}
