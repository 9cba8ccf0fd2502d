//! Guesses the operating system of a guest, with confidence and reasons.

use super::DomainModel;
use super::config::GuestConfig;
use kvm::Space;
use kvm::pattern::Pattern;
use sample::DomainFacts;
use schemars::JsonSchema;
use serde::Serialize;
use std::ops::RangeInclusive;
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
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    JsonSchema,
    Display,
    IntoStaticStr,
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
    pub fn new(domain: &DomainModel, config: &GuestConfig) -> Self {
        named(domain).unwrap_or_else(|| weigh(domain, config))
    }
}

/// The system that an administrator or a management tool stated.
fn named(domain: &DomainModel) -> Option<GuestGuess> {
    let os = domain.facts.guest_os.as_ref()?;
    let kind = kind_of_name(&os.value)?;
    let reason = format!("its metadata says {}", os.value);
    Some(GuestGuess {
        kind,
        sure: Confidence::High,
        reasons: vec![reason],
    })
}

/// Words in names of Linux systems, and of guests and drives with one.
const LINUX: &str = "linux ubuntu debian fedora centos rhel redhat.com suse alma rocky alpine \
    slackware oracle.com/ol gentoo openeuler nixos mageia coreos cirros";
/// The same of other known systems.
const OTHER: &str = "bsd.org freebsd openbsd netbsd solaris illumos apple.com macos haiku minix";
/// The same of Windows, lower case.
static WINDOWS: Pattern = Pattern::new(concat!(
    "windows|microsoft\\.com|^w(?:vista|xp)$",
    "|(?:^|[^a-z])(?:win(?:[78_-]|1[01]|2[0k]|xp|vista|server)|w2k",
    "|w1[01](?:[^0-9]|$)|server(?:20[0-9][0-9]|_eval)|tiny1[01])",
));

fn has_word(name: &str, words: &str) -> bool {
    words.split(' ').any(|word| name.contains(word))
}

/// The kind of system from a libosinfo id, a Proxmox `ostype` (qm.conf(5): `w2k8`, `wvista`,
/// `wxp`), another name, or from the name of a guest or of a drive's file.
pub fn kind_of_name(name: &str) -> Option<GuestKind> {
    let name = name.to_ascii_lowercase();
    if WINDOWS.is_match(&name) && !name.contains("virtio-win") {
        Some(GuestKind::Windows)
    } else if has_word(&name, OTHER) {
        Some(GuestKind::Other)
    } else {
        (has_word(&name, LINUX) || matches!(name.as_str(), "l24" | "l26"))
            .then_some(GuestKind::Linux)
    }
}

/// What speaks for a kind of system.
struct Hint {
    /// Positive for Windows, negative for Linux.
    weight: i32,
    reason: &'static str,
}

/// The hints that hold.
fn hints(domain: &DomainModel, config: &GuestConfig) -> Vec<Hint> {
    let files = drive_files(&domain.facts);
    let has_drivers = files
        .iter()
        .any(|file| file.to_ascii_lowercase().contains("virtio-win"));
    let mut named: Vec<GuestKind> = files.iter().filter_map(|f| kind_of_name(f)).collect();
    named.extend(kind_of_name(domain.name()));
    let is_windows = named.contains(&GuestKind::Windows);
    let is_linux = named.contains(&GuestKind::Linux) && !is_windows && !has_drivers;
    let keeps_local_time = config.timers.offset.as_deref() == Some("localtime");
    let uses_hyperv = touches(domain, 0x4000_0000..=0x4000_0118);
    let uses_kvm_msrs = touches(domain, 0x4b56_4d00..=0x4b56_4d08);
    let enlightened = "Hyper-V enlightenments are configured";
    let drivers = "the drivers of virtio-win are in a drive";
    let name = "its name or a drive's name";
    let mut hints = Vec::new();
    for (holds, weight, reason) in [
        (config.hyperv.any(), 2, enlightened),
        (keeps_local_time, 1, "its clock keeps local time"),
        (has_drivers, 2, drivers),
        (is_windows, 2, name),
        (uses_hyperv, 3, "it uses Hyper-V's registers"),
        (is_linux, -2, name),
        (uses_kvm_msrs, -4, "it uses KVM's paravirtual registers"),
    ] {
        if holds {
            hints.push(Hint { weight, reason });
        }
    }
    hints
}

/// Adds up the hints for each kind of system.
fn weigh(domain: &DomainModel, config: &GuestConfig) -> GuestGuess {
    let mut hints = hints(domain, config);
    let score: i32 = hints.iter().map(|hint| hint.weight).sum();
    // One weak hint does not count: guests of any system keep local time.
    if score.abs() < 2 {
        return GuestGuess::default();
    }
    let kind = if score > 0 {
        GuestKind::Windows
    } else {
        GuestKind::Linux
    };
    hints.retain(|hint| hint.weight.signum() == score.signum());
    let reasons = hints.iter().map(|hint| hint.reason.to_owned()).collect();
    GuestGuess {
        kind,
        sure: if score.abs() >= 3 {
            Confidence::Medium
        } else {
            Confidence::Low
        },
        reasons,
    }
}

/// The names of the files of a guest's drives.
pub fn drive_files(facts: &DomainFacts) -> Vec<&str> {
    let of_xml = facts
        .xml
        .iter()
        .flat_map(|xml| &xml.value.disks)
        .filter_map(|disk| disk.file.as_deref());
    let of_command = facts
        .command
        .iter()
        .flat_map(|command| &command.drive_files)
        .map(String::as_str);
    of_command.chain(of_xml).collect()
}

/// Whether a guest has a device of this kind: `virtio-net`, `virtio-scsi`, `isa-applesmc`.
pub fn has_device(facts: &DomainFacts, kind: &str) -> bool {
    let xml = facts.xml.iter().map(|xml| &xml.value);
    let added = xml
        .clone()
        .filter_map(|xml| xml.qemu_command.as_ref())
        .chain(facts.command.as_deref());
    let mut all = xml
        .flat_map(|xml| &xml.device_properties)
        .chain(added.flat_map(|c| &c.device_properties));
    all.any(|property| property.is_device(kind))
}

fn touches(domain: &DomainModel, msrs: RangeInclusive<u64>) -> bool {
    domain.accesses.iter().any(|a| {
        a.space == Space::Msr && a.faults == 0 && a.address.is_some_and(|m| msrs.contains(&m))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drives_are_files_and_not_networks() {
        let xml = "<domain type='kvm'><devices><disk type='file'><source \
            file='/iso/virtio-win.iso'/></disk><disk type='network'><source protocol='rbd' \
            name='pool/win10'/></disk><interface type='network'><source \
            network='win-lan'/></interface></devices></domain>";
        let xml = sample::Known::new(
            std::sync::Arc::new(kvm::domain_xml::parse(xml).unwrap()),
            sample::Origin::File,
        );
        let facts = DomainFacts {
            xml: Some(xml),
            ..DomainFacts::default()
        };
        assert_eq!(drive_files(&facts), ["virtio-win.iso", "win10"]);
    }

    #[test]
    fn names_of_guests_are_words() {
        for name in [
            "win10",
            "100-Win11-pro",
            "WIN_7",
            "mywindows10",
            "srv w2k19",
            "fs.w10",
            "server2019",
        ] {
            assert_eq!(kind_of_name(name), Some(GuestKind::Windows), "{name}");
        }
        for name in [
            "fw11",
            "gw10",
            "goodwin-db",
            "baldwin_web",
            "darwin10",
            "virtio-win-0.1.iso",
            "w100",
            "server20",
        ] {
            assert_eq!(kind_of_name(name), None, "{name}");
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
