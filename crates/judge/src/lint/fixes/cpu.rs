//! Changes of a guest's `-cpu`: always the whole argument, because QEMU takes the last one alone.

use super::{POWER_CYCLE, qemu, xml};
use crate::lint::facts::{Fix, GuestContext, shell};
use crate::model::CpuPlace;

/// QEMU's CPU model without `-cpu` (hw/i386/pc.c and target/i386/cpu.h, `TARGET_DEFAULT_CPU_TYPE`).
const DEFAULT_MODEL: &str = "qemu64";
const REPLACE_ARGUMENT: &str = "replace the value of the last -cpu in <qemu:commandline>, then \
    shut the guest down and start it again; a reboot from inside is not enough";
const ADD_TO_CPU: &str = "append it to the existing -cpu argument and restart QEMU";

/// The guest's `-cpu` with these features (`name=value`) on top of all that it has now.
pub(crate) fn argument(guest: &GuestContext<'_>, features: &[String]) -> Fix {
    let by_hand = guest.config.cpu_argument.as_deref();
    // The command line of a guest whose manager is unknown may be anything.
    let known = guest.config.libvirt.is_some() || by_hand.is_some();
    // What a guest of KVM should have in place of QEMU's default.
    let default = if guest.emulated.is_some() {
        DEFAULT_MODEL
    } else {
        "host"
    };
    let before = by_hand.unwrap_or(default);
    if !known {
        return qemu(guest, format!("-cpu host,{}", features.join(","))).needing(ADD_TO_CPU);
    }
    let after = with(before, features);
    if guest.config.cpu_place == CpuPlace::QemuCommandline {
        let value = after
            .replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('\'', "&apos;");
        let text = format!(
            "<qemu:commandline xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>\n  \
             <qemu:arg value='-cpu'/>\n  <qemu:arg value='{value}'/>\n</qemu:commandline>"
        );
        return xml(guest, text).needing(if by_hand.is_some() {
            REPLACE_ARGUMENT
        } else {
            POWER_CYCLE
        });
    }
    let word = if after.contains('=') {
        quoted(&after)
    } else {
        shell::quoted(&after)
    };
    qemu(guest, format!("-cpu {word}"))
}

/// An element of libvirt's, or the features by hand; these alone where the XML's `-cpu` decides.
pub(crate) fn either(guest: &GuestContext<'_>, element: Fix, features: &[String]) -> Vec<Fix> {
    let argument = argument(guest, features);
    if guest.config.libvirt == Some(true) && guest.config.cpu_place == CpuPlace::QemuCommandline {
        return vec![argument];
    }
    super::either(guest, element, argument)
}

/// A quoted word, in which `=` needs no quotes: it follows an option.
fn quoted(word: &str) -> String {
    let plain = word.replace('=', "");
    if shell::quoted(&plain) == plain {
        word.to_owned()
    } else {
        shell::quoted(word)
    }
}

/// An argument of `-cpu` with features: those that it switches off or sets otherwise are replaced.
fn with(before: &str, features: &[String]) -> String {
    let name = |part: &str| {
        let part = part.split_once('=').map_or(part, |(name, _)| name);
        part.trim_start_matches(['+', '-']).replace('_', "-")
    };
    let mut parts: Vec<&str> = before.split(',').filter(|part| !part.is_empty()).collect();
    let first = parts.first().copied();
    parts.retain(|part| {
        Some(*part) == first || !features.iter().any(|feature| name(feature) == name(part))
    });
    parts
        .into_iter()
        .chain(features.iter().map(String::as_str))
        .collect::<Vec<_>>()
        .join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_was_there_stays_and_nothing_is_said_twice() {
        let features = ["hv-time=on".to_owned(), "hv-synic=on".to_owned()];
        for (before, after) in [
            ("host", "host,hv-time=on,hv-synic=on"),
            (
                "host,hv_time=off,kvm=off",
                "host,kvm=off,hv-time=on,hv-synic=on",
            ),
            (
                "EPYC,-hv-time,+topoext,hv_vendor_id=a b",
                "EPYC,+topoext,hv_vendor_id=a b,hv-time=on,hv-synic=on",
            ),
        ] {
            assert_eq!(with(before, &features), after);
        }
        assert_eq!(quoted("host,hv-time=on"), "host,hv-time=on");
        assert_eq!(quoted("host,a=b c"), "'host,a=b c'");
    }
}
