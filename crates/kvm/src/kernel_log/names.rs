//! Names of VMMs and their threads in logs, all in lower case.

use crate::pattern::{Pattern, group, number};
use crate::sanitize;

/// Names (`comm`, 15 bytes) that only VMMs, their threads and KVM's kernel threads have; `kvm` is Proxmox's QEMU.
static VMM: Pattern = Pattern::new(concat!(
    r"^(?:qemu|cloud-hyperviso|firecracker|fc_vcpu|crosvm|lkvm|kvmtool|kvm-|vhost-|virt-launcher|",
    r"io (?:mon_)?iothread|spice worker|vnc_worker|cpu [0-9]{1,5}/kv|kvm(?:[^a-z0-9_]|$))",
));
static VCPU: Pattern = Pattern::new("^cpu (?P<vcpu>[0-9]{1,5})/kv");
static SCOPE: Pattern = Pattern::new(r"machine-qemu\\x2d[^.]*?\\x2d(?P<name>.*?)\.scope");
static ESCAPE: Pattern = Pattern::new(r"\\x(?P<code>[0-7][0-9a-f])");

/// Whether a text begins with the name of a VMM or of one of its threads.
pub(super) fn begins_with_vmm(text: &str) -> bool {
    VMM.is_match(text)
}

/// The vCPU of a text that begins with the name of its thread, `cpu 3/kvm`.
pub(super) fn begins_with_vcpu(text: &str) -> Option<u32> {
    number(&VCPU.captures(text)?, "vcpu")
}

/// The guest of a systemd scope of libvirt: `machine-qemu\x2d3\x2dweb.scope` belongs to guest `web` (systemd.unit(5)
/// describes the escapes).
pub(super) fn guest_of_scope(text: &str) -> Option<String> {
    let scope = SCOPE.captures(text)?;
    let unescape = |escape: &regex::Captures<'_>| {
        let code = group(escape, "code").and_then(|code| u8::from_str_radix(code, 16).ok());
        code.map(char::from).map(String::from).unwrap_or_default()
    };
    let name = ESCAPE.regex()?.replace_all(group(&scope, "name")?, unescape);
    Some(sanitize(&name, 128)).filter(|name| !name.is_empty())
}
