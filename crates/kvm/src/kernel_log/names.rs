//! Names of VMMs and their threads in logs, all in lower case.

/// Beginnings of names (`comm`, 15 bytes) that only VMMs, their threads and KVM's kernel threads have.
const BEGINNINGS: [&str; 14] = [
    "qemu",
    "cloud-hyperviso",
    "firecracker",
    "fc_vcpu",
    "crosvm",
    "lkvm",
    "kvmtool",
    "kvm-",
    "vhost-",
    "virt-launcher",
    "io iothread",
    "io mon_iothread",
    "spice worker",
    "vnc_worker",
];

/// Whether a text begins with the name of a VMM or of one of its threads.
pub(super) fn begins_with_vmm(text: &str) -> bool {
    BEGINNINGS.iter().any(|name| text.starts_with(name)) || begins_with_vcpu(text).is_some() || is_kvm(text)
}

/// Proxmox's QEMU is the program `kvm`.
fn is_kvm(text: &str) -> bool {
    text.strip_prefix("kvm").is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_'))
}

/// The number in a text that begins with `cpu 3/kvm`.
pub(super) fn begins_with_vcpu(text: &str) -> Option<u32> {
    let (digits, rest) = text.strip_prefix("cpu ")?.split_once('/')?;
    let is_number = !digits.is_empty() && digits.len() <= 5 && digits.bytes().all(|b| b.is_ascii_digit());
    rest.starts_with("kv").then_some(digits).filter(|_| is_number)?.parse().ok()
}

/// The number at the beginning of a text.
pub(super) fn number(text: &str) -> Option<u64> {
    let digits = text.trim_start();
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    digits.get(..end.min(19))?.parse().ok()
}

/// The process id at the beginning of a text.
pub(super) fn pid(text: &str) -> Option<i32> {
    i32::try_from(number(text)?).ok().filter(|pid| *pid > 0)
}

/// The number at the beginning of a text, in hexadecimal with or without `0x`.
pub(super) fn hex(text: &str) -> Option<u64> {
    let text = text.trim_start();
    let text = text.strip_prefix("0x").unwrap_or(text);
    let end = text.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(text.len());
    u64::from_str_radix(text.get(..end)?, 16).ok()
}

/// The guest that a systemd scope of libvirt's belongs to: `machine-qemu\x2d3\x2dweb.scope` is guest `web`
/// (systemd.unit(5) on escapes).
pub(super) fn guest_of_scope(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("machine-qemu\\x2d")?;
    let (name, _) = rest.split_once(".scope")?;
    let (_, escaped) = name.split_once("\\x2d")?;
    let mut out = String::new();
    let mut rest = escaped;
    while let Some((before, after)) = rest.split_once("\\x") {
        out.push_str(before);
        let code = after.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok())?;
        out.push(char::from(code));
        rest = after.get(2..)?;
    }
    out.push_str(rest);
    Some(super::super::sanitize(&out, 128)).filter(|name| !name.is_empty())
}
