//! Guesses the operating system of a guest, with confidence and reasons.

use super::DomainModel;
use super::config::GuestConfig;
use kvm::Space;
use kvm::domain_xml::DomainXml;
use kvm::pattern::Pattern;
use sample::{DomainFacts, Origin};
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

/// Words in names of Linux systems and of guests and drives with one.
const LINUX: &str = "linux ubuntu debian fedora centos rhel suse alma rocky alpine slackware";
/// Further words in names of Linux systems.
const OTHER_LINUX: &str = "redhat.com oracle.com/ol gentoo openeuler nixos l26 l24 mageia coreos cirros";
/// Words in names of other known systems.
const OTHER: &str = "bsd.org freebsd openbsd netbsd solaris illumos apple.com macos haiku minix";
/// The name of a guest or a drive with macOS or a hypervisor that has no drivers of virtio.
static WITHOUT_VIRTIO: Pattern =
    Pattern::new("(?:^|[^A-Za-z])(?i-u:macos|opencore|mac_hdd|basesystem|hackintosh|esxi)");
/// The name of a guest or a drive with Windows, lower case.
static WINDOWS_GUEST: Pattern = Pattern::new(concat!(
    "windows|(?:^|[^a-z])(?:win(?:[78_-]|1[01]|2[0k]|xp|vista|server)|w2k|w1[01](?:[^0-9]|$)",
    "|server(?:20[0-9][0-9]|_eval)|tiny1[01])",
));

fn has_word(name: &str, words: &str) -> bool {
    words.split(' ').any(|word| name.contains(word))
}

/// The kind of system from a libosinfo id, a Proxmox `ostype` (qm.conf(5): `w2k8`, `wvista`, `wxp`) or another name.
pub fn kind_of_name(name: &str) -> Option<GuestKind> {
    let name = name.to_ascii_lowercase();
    let is_windows = name.starts_with("win") || name.starts_with("w2k") || name == "wvista" || name == "wxp";
    if is_windows || has_word(&name, "microsoft.com windows") {
        Some(GuestKind::Windows)
    } else if has_word(&name, OTHER) {
        Some(GuestKind::Other)
    } else {
        (has_word(&name, LINUX) || has_word(&name, OTHER_LINUX)).then_some(GuestKind::Linux)
    }
}

/// The kind of system from the name of a guest or of a drive's file, a weak hint: only well-known words count.
fn kind_of_guest_name(name: &str) -> Option<GuestKind> {
    let name = name.to_ascii_lowercase();
    if WINDOWS_GUEST.is_match(&name) && !name.contains("virtio-win") {
        return Some(GuestKind::Windows);
    }
    has_word(&name, LINUX).then_some(GuestKind::Linux)
}

/// Adds up the hints for each kind of system.
fn weigh(domain: &DomainModel, config: &GuestConfig) -> GuestGuess {
    use GuestKind::{Linux, Other, Windows};
    let (facts, hyperv) = (&domain.facts, &config.hyperv);
    let xml = |holds: fn(&DomainXml) -> bool| facts.xml.as_ref().is_some_and(|xml| holds(&xml.value));
    let wrote = |words: &str| facts.xml_text.as_ref().is_some_and(|text| text.contains(words));
    let offset = config.timers.offset.as_deref();
    // libvirt's tools ask for `catchup` whatever the system is, Proxmox and most scripts for Windows alone.
    let by_hand = config.libvirt == Some(false) && offset != Some("utc");
    let catchup = config.timers.rtc_policy.as_deref() == Some("catchup");
    // Of a command line that is not libvirt's to explain.
    let command = facts.command.as_deref();
    let replaced = !hyperv.any()
        && command
            .and_then(|c| c.cpu_options.split_last())
            .is_some_and(|(_, earlier)| earlier.iter().any(|cpu| cpu.contains("hv_") || cpu.contains("hv-")));
    let has_vendor = command.is_some_and(|c| c.hyperv.contains_key("vendor_id"));
    let hidden = config.kvm_hidden || config.hypervisor_hidden || has_vendor;
    let files = drive_files(facts);
    let drivers = files.iter().any(|file| file.to_ascii_lowercase().contains("virtio-win"));
    let drive_of = |kind| files.iter().any(|file| kind_of_guest_name(file) == Some(kind));
    let (windows_drive, linux_drive) = (drive_of(Windows), drive_of(Linux));
    let name = kind_of_guest_name(domain.name());
    let is_windows = name == Some(Windows) || windows_drive;
    let without_virtio = files.iter().chain([&domain.name()]).any(|name| WITHOUT_VIRTIO.is_match(name));
    let kernel_options = command.and_then(|c| c.append.as_deref()).unwrap_or_default();
    let boots_linux = has_word(kernel_options, "root= console=tty console=hvc initrd=");
    let hyperv_msrs = touches(domain, |msr| (0x4000_0000..=0x4000_0118).contains(&msr)) || hyperv_events(domain);
    let kvm_msrs = touches(domain, |msr| (0x4b56_4d00..=0x4b56_4d08).contains(&msr));
    let deadline_timer = config.is_enlightened() == Some(false) && touches(domain, |msr| msr == 0x6e0);
    let all_off = config.is_enlightened() == Some(false) && xml(|xml| xml.hyperv.is_some());
    let hints = [
        (hyperv.any(), Windows, 2, "Hyper-V enlightenments are configured"),
        (hyperv.has("hypervclock") && !hyperv.passthrough, Windows, 1, "the Hyper-V clock is configured"),
        (replaced, Windows, 2, "Hyper-V enlightenments are in an earlier -cpu option, which the last one replaces"),
        (all_off, Windows, 1, "its XML has Hyper-V enlightenments, all switched off"),
        (wrote("<vmtemplate ") && wrote(" os=\"windows"), Windows, 2, "unraid's template says so"),
        (offset == Some("localtime"), Windows, 1, "its clock keeps local time"),
        (by_hand && catchup, Windows, 1, "its RTC repeats lost ticks (driftfix=slew)"),
        (hidden, Windows, 1, "KVM is hidden from it, as drivers for Windows want"),
        (drivers, Windows, 2, "the drivers of virtio-win are in a drive"),
        (is_windows, Windows, 2, "its name or a drive's name"),
        (hyperv_msrs, Windows, 3, "it uses Hyper-V's registers"),
        (linux_drive && !windows_drive && !drivers, Linux, 2, "a drive's name"),
        (boots_linux, Linux, 4, "QEMU loads a Linux kernel for it"),
        (kvm_msrs, Linux, 4, "it uses KVM's paravirtual registers"),
        (deadline_timer, Linux, 2, "it arms the TSC deadline timer and has no Hyper-V clock"),
        (name == Some(Linux), Linux, 1, "its name"),
        (without_virtio, Other, 2, "its name or a drive's name"),
        (has_device(facts, "isa-applesmc"), Other, 4, "Apple's system management controller"),
    ];
    let holding = |kind| hints.iter().filter(move |(holds, of, ..)| *holds && *of == kind);
    let weight = |kind| holding(kind).map(|(.., weight, _)| weight).sum::<i32>();
    let (score, other) = (weight(Windows) - weight(Linux), weight(Other));
    let kind = match score {
        _ if other > 0 && other >= score.abs() => Other,
        // One weak hint does not count: guests of any system keep local time.
        2.. => Windows,
        0 | 1 => return GuestGuess::default(),
        _ => Linux,
    };
    let reasons = holding(kind).map(|(.., text)| (*text).to_owned()).collect();
    let sure = if score.abs().max(other) >= 3 { Confidence::Medium } else { Confidence::Low };
    GuestGuess { kind, sure, reasons }
}

/// The names of the files of a guest's drives.
pub fn drive_files(facts: &DomainFacts) -> Vec<&str> {
    let of_xml = facts.xml.iter().flat_map(|xml| &xml.value.disks).filter_map(|disk| disk.file.as_deref());
    let of_command = facts.command.iter().flat_map(|command| &command.drive_files).map(String::as_str);
    of_command.chain(of_xml).collect()
}

/// Whether a guest has a device of this kind: `virtio-net`, `virtio-scsi`, `isa-applesmc`.
pub fn has_device(facts: &DomainFacts, kind: &str) -> bool {
    let xml = facts.xml.iter().map(|xml| &xml.value);
    let added = xml.clone().filter_map(|xml| xml.qemu_command.as_ref()).chain(facts.command.as_deref());
    let mut all = xml.flat_map(|xml| &xml.device_properties).chain(added.flat_map(|c| &c.device_properties));
    all.any(|property| property.is_device(kind))
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
    fn drives_are_files_and_not_networks() {
        let xml = "<domain type='kvm'><devices><disk type='file'><source file='/iso/virtio-win.iso'/></disk>\
            <disk type='network'><source protocol='rbd' name='pool/win10'/></disk>\
            <interface type='network'><source network='win-lan'/></interface></devices></domain>";
        let xml = sample::Known::new(std::sync::Arc::new(kvm::domain_xml::parse(xml).unwrap()), Origin::File);
        let facts = DomainFacts { xml: Some(xml), ..DomainFacts::default() };
        assert_eq!(drive_files(&facts), ["virtio-win.iso", "win10"]);
    }

    #[test]
    fn names_of_guests_are_words() {
        for name in ["win10", "100-Win11-pro", "WIN_7", "mywindows10", "srv w2k19", "fs.w10", "server2019"] {
            assert_eq!(kind_of_guest_name(name), Some(GuestKind::Windows), "{name}");
        }
        for name in ["fw11", "gw10", "goodwin-db", "baldwin_web", "darwin10", "virtio-win-0.1.iso", "w100", "server20"]
        {
            assert_eq!(kind_of_guest_name(name), None, "{name}");
        }
    }

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
