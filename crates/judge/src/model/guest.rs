//! Guesses the operating system of a guest, with confidence and reasons.

use super::DomainModel;
use super::config::GuestConfig;
use kvm::Space;
use kvm::cmdline::{QemuCommand, is_switched_on};
use sample::Origin;
use schemars::JsonSchema;
use serde::Serialize;
use strum::{Display, IntoStaticStr};

/// The kind of operating system, as far as it matters for timers and enlightenments.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum GuestKind {
    /// Windows.
    Windows,
    /// Linux.
    Linux,
    /// Something else that is known (a BSD, …).
    Other,
    /// Unknown.
    #[default]
    Unknown,
}

/// How certain the cause is, from least to most.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, JsonSchema, Display, IntoStaticStr,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Confidence {
    /// The figures only suggest the cause; the text says what to look at next.
    Low,
    /// The figures fit this cause far better than any other.
    #[default]
    Medium,
    /// The figures show the cause itself.
    High,
}

impl Confidence {
    /// The word on screen and in JSON.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// A guess.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GuestGuess {
    /// The kind.
    pub kind: GuestKind,
    /// The confidence.
    pub sure: Confidence,
    /// Its reasons, a few words each.
    pub reasons: Vec<String>,
}

impl GuestGuess {
    /// Whether it is Windows, with at least this confidence.
    pub fn windows(&self, at_least: Confidence) -> bool {
        self.kind == GuestKind::Windows && self.sure >= at_least
    }

    /// Whether it is Linux, with any confidence.
    pub fn linux(&self) -> bool {
        self.kind == GuestKind::Linux
    }

    /// Guesses from metadata, or else from the configuration and the guest's behaviour.
    pub fn of(domain: &DomainModel, config: &GuestConfig) -> Self {
        named(domain).unwrap_or_else(|| weigh(domain, config))
    }
}

/// The system that an administrator or a management tool stated.
fn named(domain: &DomainModel) -> Option<GuestGuess> {
    let os = domain.facts.guest_os.as_ref()?;
    // libosinfo identifies a system by its vendor's address. An address without a match is another system, not an
    // unknown one.
    let other = os.value.starts_with("http") && !os.value.contains("libosinfo.org");
    let kind = kind_of_name(&os.value).or(other.then_some(GuestKind::Other))?;
    let source = match os.from {
        Origin::File | Origin::Libvirt if os.value.contains("://") => "libosinfo metadata",
        Origin::File => "its configuration",
        from => from.as_str(),
    };
    Some(GuestGuess { kind, sure: Confidence::High, reasons: vec![format!("{source} says {}", os.value)] })
}

/// The kind of system from a libosinfo id, a Proxmox `ostype` or another name.
pub fn kind_of_name(name: &str) -> Option<GuestKind> {
    let name = name.to_ascii_lowercase();
    let any = |words: &[&str]| words.iter().any(|w| name.contains(w));
    if any(&["microsoft.com", "windows"]) || name.starts_with("win")
        // Proxmox's `ostype` (qm.conf(5)): `w2k`, `w2k3`, `w2k8`, `wvista`, `wxp`.
        || name.starts_with("w2k")
        || name == "wvista"
        || name == "wxp"
    {
        Some(GuestKind::Windows)
    } else if any(&[
        "bsd.org",
        "freebsd",
        "openbsd",
        "netbsd",
        "solaris",
        "illumos",
        "apple.com",
        "macos",
        "haiku",
        "minix",
    ]) {
        Some(GuestKind::Other)
    } else if any(&[
        "linux",
        "ubuntu",
        "debian",
        "fedora",
        "centos",
        "redhat.com",
        "rhel",
        "suse",
        "archlinux",
        "rocky",
        "alma",
        "oracle.com/ol",
        "gentoo",
        "alpine",
        "openeuler",
        "nixos",
        "l26",
        "l24",
        "mageia",
        "coreos",
        "cirros",
    ]) {
        Some(GuestKind::Linux)
    } else {
        None
    }
}

/// Adds up hints: positive weights for Windows, negative for Linux.
fn weigh(domain: &DomainModel, config: &GuestConfig) -> GuestGuess {
    let (mut score, mut windows, mut linux) = (0i32, Vec::new(), Vec::new());
    let mut hint = |weight: i32, text: &str| {
        score += weight;
        if weight > 0 { windows.push(text.to_owned()) } else { linux.push(text.to_owned()) }
    };
    if config.hyperv.any() {
        hint(2, "Hyper-V enlightenments are configured");
    }
    if config.hyperv.has("hypervclock") && !config.hyperv.passthrough {
        hint(1, "the Hyper-V clock is configured");
    }
    if !config.hyperv.any() && domain.facts.xml.as_ref().is_some_and(|x| x.value.hyperv.is_some()) {
        hint(1, "its XML has Hyper-V enlightenments, all switched off");
    }
    let wrote = |words: &str| domain.facts.xml_text.as_ref().is_some_and(|text| text.contains(words));
    if wrote("<vmtemplate ") && wrote(" os=\"windows") {
        hint(2, "unraid's template says so");
    }
    if wrote("virtio-win") && !domain.facts.command.as_ref().is_some_and(|c| has_drivers(c)) {
        hint(2, VIRTIO_WIN);
    }
    if config.timers.offset.as_deref() == Some("localtime") {
        hint(1, "its clock keeps local time");
    }
    // libvirt's tools ask for `catchup` whatever the system is, Proxmox and most scripts for Windows alone.
    let by_hand = config.libvirt == Some(false) && config.timers.offset.as_deref() != Some("utc");
    if by_hand && config.timers.rtc_policy.as_deref() == Some("catchup") {
        hint(1, "its RTC repeats lost ticks (driftfix=slew)");
    }
    if kind_of_guest_name(domain.name()) == Some(GuestKind::Windows) {
        hint(1, "its name");
    }
    if let Some(xml) = &domain.facts.xml
        && xml.value.kvm_features.get("hidden").is_some_and(|state| state == "on")
    {
        hint(1, KVM_HIDDEN);
    }
    if let Some(command) = &domain.facts.command {
        command_hints(command, &mut hint);
    }
    if touches(domain, |msr| (0x4000_0000..=0x4000_0118).contains(&msr)) || hyperv_events(domain) {
        hint(3, "it uses Hyper-V's registers");
    }
    if touches(domain, |msr| (0x4b56_4d00..=0x4b56_4d08).contains(&msr)) {
        hint(-4, "it uses KVM's paravirtual registers");
    }
    if config.known && !config.hyperv.any() && touches(domain, |msr| msr == 0x6e0) {
        hint(-2, "it arms the TSC deadline timer and has no Hyper-V clock");
    }
    if kind_of_guest_name(domain.name()) == Some(GuestKind::Linux) {
        hint(-1, "its name");
    }
    let (kind, reasons) = match score {
        // One weak hint does not count: guests of any system keep local time.
        2.. => (GuestKind::Windows, windows),
        0 | 1 => return GuestGuess::default(),
        _ => (GuestKind::Linux, linux),
    };
    let sure = if score.abs() >= 3 { Confidence::Medium } else { Confidence::Low };
    GuestGuess { kind, sure, reasons }
}

const VIRTIO_WIN: &str = "the drivers of virtio-win are in a drive";
const KVM_HIDDEN: &str = "KVM is hidden from it, as drivers for Windows want";

/// Whether a drive holds the drivers of virtio-win.
fn has_drivers(command: &QemuCommand) -> bool {
    command.drive_files.iter().any(|file| file.to_ascii_lowercase().contains("virtio-win"))
}

/// Hints of a command line that is not libvirt's to explain.
fn command_hints(command: &QemuCommand, hint: &mut impl FnMut(i32, &str)) {
    let off = |name: &str| command.cpu_features.get(name).is_some_and(|value| !is_switched_on(value));
    if off("kvm") || off("hypervisor") || command.hyperv.contains_key("vendor_id") {
        hint(1, KVM_HIDDEN);
    }
    let drivers = has_drivers(command);
    let (mut windows, mut linux) = (false, false);
    for file in &command.drive_files {
        match kind_of_guest_name(file) {
            Some(GuestKind::Windows) => windows = true,
            Some(GuestKind::Linux) => linux = true,
            _ => {}
        }
    }
    if drivers {
        hint(2, VIRTIO_WIN);
    }
    if windows {
        hint(1, "a drive's name");
    }
    if linux && !windows && !drivers {
        hint(-2, "a drive's name");
    }
    let linux_words = ["root=", "console=tty", "console=hvc", "initrd="];
    if command.append.as_ref().is_some_and(|append| linux_words.iter().any(|word| append.contains(word))) {
        hint(-4, "QEMU loads a Linux kernel for it");
    }
}

/// The kind of system from the name of a guest or of a drive's file, a weak hint: only well-known words count.
fn kind_of_guest_name(name: &str) -> Option<GuestKind> {
    let name = name.to_ascii_lowercase().replace("darwin", "");
    let any = |words: &[&str]| words.iter().any(|w| name.contains(w));
    if any(&[
        "windows",
        "win10",
        "win11",
        "win7",
        "win8",
        "win2k",
        "win20",
        "winxp",
        "winvista",
        "winserver",
        "win-",
        "win_",
        "w2k",
        "w10",
        "w11",
        "server_eval",
        "tiny10",
        "tiny11",
    ]) && !name.contains("virtio-win")
    {
        Some(GuestKind::Windows)
    } else if any(&["linux", "ubuntu", "debian", "fedora", "centos", "rhel", "suse", "alma", "rocky", "alpine"]) {
        Some(GuestKind::Linux)
    } else {
        None
    }
}

fn touches(domain: &DomainModel, which: impl Fn(u64) -> bool) -> bool {
    domain.accesses.iter().any(|a| a.space == Space::Msr && a.faults == 0 && a.address.is_some_and(&which))
}

fn hyperv_events(domain: &DomainModel) -> bool {
    let synthetic = |name: &str| name.starts_with("kvm_hv_stimer") || name.starts_with("kvm_hv_synic");
    domain.kvm_events.iter().any(|(name, count)| *count > 0 && synthetic(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_systems() {
        for (name, kind) in [
            ("http://microsoft.com/win/10", Some(GuestKind::Windows)),
            ("win11", Some(GuestKind::Windows)),
            ("http://ubuntu.com/ubuntu/22.04", Some(GuestKind::Linux)),
            ("l26", Some(GuestKind::Linux)),
            ("w2k8", Some(GuestKind::Windows)),
            ("wvista", Some(GuestKind::Windows)),
            ("solaris", Some(GuestKind::Other)),
            ("http://redhat.com/rhel/9.4", Some(GuestKind::Linux)),
            ("http://freebsd.org/freebsd/14.0", Some(GuestKind::Other)),
            ("darwin", None),
            ("other", None),
        ] {
            assert_eq!(kind_of_name(name), kind, "{name}");
        }
    }
}
