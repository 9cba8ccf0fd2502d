//! Properties of a guest's devices that change how KVM and QEMU serve it, and where each was set.

use super::sanitize;
use serde::{Deserialize, Serialize};
use strum::Display;

/// Limit of the properties of a guest.
pub const MAX_PROPERTIES: usize = 1024;

/// Where a property was set, in the order in which QEMU and libvirt apply them: the last one
/// decides.
#[derive(
    Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Display,
)]
pub enum PropertyPlace {
    /// The XML's `<devices>`.
    #[default]
    #[strum(to_string = "<devices>")]
    Devices,
    /// `<qemu:override>` (libvirt 8.2 and newer), which changes the device's `-device`.
    #[strum(to_string = "<qemu:override>")]
    Override,
    /// `-device`, `-set` or `-global` on QEMU's command line, also by `<qemu:commandline>`.
    #[strum(to_string = "QEMU's command line")]
    CommandLine,
}

/// One property of one device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceProperty {
    /// The device's alias or id without libvirt's `ua-`, else what it is; `-global` has the driver.
    /// Sanitized.
    pub device: String,
    /// QEMU's name of the property, with `-`: `ioeventfd`.
    pub name: String,
    /// Its value: `on`, `off`, a number, a word. Sanitized.
    pub value: String,
    /// Where it was set.
    pub place: PropertyPlace,
}

impl DeviceProperty {
    /// A property that matters; `None` for any other.
    pub fn new(device: &str, name: &str, value: &str, place: PropertyPlace) -> Option<Self> {
        let name = name.replace('_', "-");
        let value = match value {
            "yes" | "true" | "True" => "on",
            "no" | "false" | "False" => "off",
            other => other,
        };
        let property = Self {
            device: sanitize(device, 80),
            name,
            value: sanitize(value, 80),
            place,
        };
        let is_known = KINDS.iter().any(|kind| property.is_device(kind))
            || EFFECTS.iter().any(|(known, ..)| *known == property.name);
        if is_known || property.cost().is_some() {
            Some(property)
        } else {
            None
        }
    }

    /// Whether it is the model of a device of this kind. The `virtio` of an `<interface>` and of
    /// `-nic` is a network card.
    pub fn is_device(&self, kind: &str) -> bool {
        let model = if self.value == "virtio" {
            "virtio-net"
        } else {
            &self.value
        };
        self.name == DRIVER && model.starts_with(kind)
    }

    /// What the value costs; `None` where it is as it should be.
    pub fn cost(&self) -> Option<&'static str> {
        if self.name == DRIVER {
            let is_emulated = EMULATED.iter().any(|driver| self.value.starts_with(driver));
            return if is_emulated {
                Some("the guest stops for QEMU at each access to its registers")
            } else {
                None
            };
        }
        let (_, bad, cost) = EFFECTS.iter().find(|(known, ..)| *known == self.name)?;
        // A zero may be written `0x0`.
        let is_zero = self.value.trim_start_matches("0x").parse() == Ok(0u32);
        if *bad == self.value || (*bad == "0" && is_zero) {
            Some(*cost)
        } else {
            None
        }
    }
}

/// The name under which the device's model is kept, if QEMU emulates it: `-device e1000`, `<model
/// type='e1000'/>`.
pub const DRIVER: &str = "driver";

/// Devices that tell something of their guest: that it has drivers of virtio, or is a macOS.
const KINDS: [&str; 3] = ["virtio-net", "virtio-scsi", "isa-applesmc"];

/// Network cards and SCSI controllers that QEMU emulates, as the names of its devices begin
/// (hw/net, hw/scsi); each has a counterpart of virtio.
const EMULATED: &[&str] = &[
    "e1000", "rtl8139", "pcnet", "ne2k_", "i8255", "vmxnet3", "lsi53c", "megasas", "mptsas",
    "pvscsi",
];

/// The value of each property that costs performance, and why (QEMU's hw/virtio/virtio-pci.c,
/// hw/virtio/virtio.c, hw/net/virtio-net.c, hw/vfio/pci.c, accel/kvm/kvm-all.c).
const EFFECTS: &[(&str, &str, &str)] = &[
    (
        "ioeventfd",
        "off",
        "each notification stops the vCPU until QEMU has served it",
    ),
    (
        "vectors",
        "0",
        "it has no MSI-X: the guest asks QEMU for the state of a shared interrupt line each time",
    ),
    (
        "event-idx",
        "off",
        "driver and device cannot hold back notifications and interrupts, and send one for each \
            request",
    ),
    (
        "indirect-desc",
        "off",
        "large requests take several entries of the ring, which is full sooner",
    ),
    (
        "tx",
        "timer",
        "packets that the guest sends wait for a timer",
    ),
    (
        "vhost",
        "off",
        "QEMU's main loop moves its packets, not the kernel",
    ),
    ("x-no-kvm-intx", "on", "its interrupts go through QEMU"),
    ("x-no-kvm-msi", "on", "its interrupts go through QEMU"),
    ("x-no-kvm-msix", "on", "its interrupts go through QEMU"),
    (
        "x-no-kvm-ioeventfd",
        "on",
        "writes to its emulated registers go through QEMU",
    ),
    (
        "x-no-mmap",
        "on",
        "each access to its registers goes through QEMU",
    ),
    (
        "kernel-irqchip",
        "off",
        "QEMU, not KVM, emulates the interrupt controllers: each interrupt, IPI and timer of the \
            guest goes through it",
    ),
];

/// The effective properties: for each device and name, the property that takes precedence.
pub fn in_force<'a>(all: impl IntoIterator<Item = &'a DeviceProperty>) -> Vec<&'a DeviceProperty> {
    let mut found: Vec<&DeviceProperty> = Vec::new();
    for property in all.into_iter().take(2 * MAX_PROPERTIES) {
        match found
            .iter_mut()
            .find(|known| known.device == property.device && known.name == property.name)
        {
            Some(known) if known.place <= property.place => *known = property,
            Some(_) => {}
            None => found.push(property),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_place_decides() {
        let of = |value, place| DeviceProperty::new("net0", "ioeventfd", value, place).unwrap();
        let all = [
            of("off", PropertyPlace::CommandLine),
            of("on", PropertyPlace::Override),
            of("yes", PropertyPlace::Devices),
        ];
        let found = in_force(&all);
        assert_eq!(
            (found.len(), found[0].place, found[0].cost().is_some()),
            (1, PropertyPlace::CommandLine, true)
        );
        assert_eq!(in_force(&all[1..])[0].cost(), None);
    }

    #[test]
    fn only_what_matters_is_kept() {
        let of = |name, value| DeviceProperty::new("d", name, value, PropertyPlace::Devices);
        assert_eq!(of("x-vga", "on"), None);
        assert!(
            of("event_idx", "false").unwrap().cost().is_some()
                && of("vectors", "0x0").unwrap().cost().is_some()
        );
        assert_eq!(of("vectors", "4").unwrap().cost(), None);
        assert!(
            of("driver", "e1000-82545em").unwrap().cost().is_some()
                && of("driver", "virtio-blk-pci").is_none()
        );
        assert!(
            of("driver", "virtio").unwrap().is_device("virtio-net")
                && of("driver", "isa-applesmc").is_some()
        );
    }
}
