//! Changes of a guest's `-cpu`: always the whole argument, because QEMU takes the last one alone.

use super::{qemu, xml};
use crate::lint::facts::{Fix, GuestContext, shell};
use crate::model::CpuPlace;

/// QEMU's CPU model without `-cpu` (hw/i386/pc.c and target/i386/cpu.h, `TARGET_DEFAULT_CPU_TYPE`).
const DEFAULT_MODEL: &str = "qemu64";

/// The guest's `-cpu` with these features (`name=value`) on top of all that it has now. QEMU takes
/// the last value of a feature.
pub(crate) fn argument(guest: &GuestContext<'_>, features: &str) -> Fix {
    let by_hand = guest.config.cpu_argument.as_deref();
    // What a guest of KVM should have in place of QEMU's default.
    let default = if guest.emulated().is_some() {
        DEFAULT_MODEL
    } else {
        "host"
    };
    let before = by_hand.unwrap_or(default);
    if guest.config.cpu_place == CpuPlace::QemuCommandline {
        let value = before.replace('&', "&amp;").replace('<', "&lt;");
        let text = format!(
            "<qemu:commandline xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>\n  \
                <qemu:arg value='-cpu'/>\n  <qemu:arg value='{},{features}'/>\n</qemu:commandline>",
            value.replace('\'', "&apos;")
        );
        return xml(guest, text).needing(
            "replace the value of the last -cpu in \
            <qemu:commandline>, then shut the guest down and start it again; a reboot from inside \
            is not enough",
        );
    }
    let fix = qemu(guest, format!("-cpu {},{features}", shell::quoted(before)));
    // The command line of a guest whose manager is unknown may be anything.
    if guest.config.libvirt.is_none() && by_hand.is_none() {
        return fix.needing("append it to the existing -cpu argument and restart QEMU");
    }
    fix
}

/// An element of libvirt's, or the features by hand; these alone where the XML's `-cpu` decides.
pub(crate) fn either(guest: &GuestContext<'_>, element: Fix, features: &str) -> Vec<Fix> {
    let argument = argument(guest, features);
    if guest.config.libvirt == Some(true) && guest.config.cpu_place == CpuPlace::QemuCommandline {
        return vec![argument];
    }
    super::either(guest, element, argument)
}
