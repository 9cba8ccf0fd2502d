//! Fixes to paste, made for one guest: only what it lacks, in the form that its manager takes.

use crate::lint::context::guest::{Context, GuestContext};
use crate::lint::engine::text::quoted;
use crate::lint::{Fix, FixKind};
use std::fmt::Write as _;

/// What a changed CPU or machine needs.
pub(crate) const POWER_CYCLE: &str =
    "the guest has to be shut down and started again; a reboot from inside is not enough";
/// What a kernel option needs.
pub(crate) const HOST_REBOOT: &str = "update the boot loader's configuration and reboot the host";
/// What a command inside the guest needs.
pub(crate) const IN_GUEST: &str = "runs inside the guest";

pub(crate) fn xml(text: impl Into<String>) -> Fix {
    Fix { kind: FixKind::LibvirtXml, text: text.into(), needs: Some(POWER_CYCLE.into()) }
}

pub(crate) fn command(text: impl Into<String>) -> Fix {
    Fix { kind: FixKind::Command, text: text.into(), needs: None }
}

pub(crate) fn qemu(text: impl Into<String>) -> Fix {
    Fix { kind: FixKind::QemuOption, text: text.into(), needs: Some("QEMU has to be started anew with it".into()) }
}

pub(crate) fn kernel(text: impl Into<String>) -> Fix {
    Fix { kind: FixKind::KernelOption, text: text.into(), needs: Some(HOST_REBOOT.into()) }
}

pub(crate) fn advice(text: impl Into<String>) -> Fix {
    Fix { kind: FixKind::Advice, text: text.into(), needs: None }
}

impl Fix {
    /// The same fix with another need.
    pub(crate) fn needing(self, needs: &str) -> Self {
        Self { needs: Some(needs.to_owned()), ..self }
    }
}

/// The same change for libvirt and for QEMU by hand; only the one that fits, where it is known which does.
pub(crate) fn either(guest: &GuestContext<'_>, libvirt: Fix, by_hand: Fix) -> Vec<Fix> {
    match guest.config.libvirt {
        Some(true) => vec![libvirt],
        Some(false) => vec![by_hand],
        None => vec![libvirt, by_hand],
    }
}

/// A `virsh` command about this guest.
pub(crate) fn virsh(guest: &GuestContext<'_>, verb: &str, rest: &str) -> String {
    format!("virsh {verb} {} {rest}", quoted(guest.name())).trim_end().to_owned()
}

/// How to see the guest's configuration without kvmtop.
pub(crate) fn check_setup(guest: &GuestContext<'_>) -> String {
    if guest.config.libvirt == Some(false) {
        let pid = guest.domain.facts.pid.map_or_else(|| "PID".to_owned(), |p| p.to_string());
        return format!("check: tr '\\0' '\\n' < /proc/{pid}/cmdline | grep -A1 -e '^-cpu' -e '^-machine' -e '^-rtc'");
    }
    format!("check: {}", virsh(guest, "dumpxml", "| grep -A12 -e '<hyperv' -e '<clock'"))
}

/// How to see where the guest's threads may run without kvmtop.
pub(crate) fn check_pins(guest: &GuestContext<'_>) -> String {
    match (guest.config.libvirt, guest.domain.facts.pid) {
        (Some(false), Some(pid)) => format!("check: taskset -apc {pid}"),
        _ => format!("check: {}; {}", virsh(guest, "vcpupin", ""), virsh(guest, "emulatorpin", "")),
    }
}

/// One `<timer>` of the guest's `<clock>`.
pub(crate) fn timer(guest: &GuestContext<'_>, timer: &str) -> String {
    let offset = guest.config.timers.offset.as_deref().filter(|o| o.bytes().all(|b| b.is_ascii_alphanumeric()));
    let open = match offset {
        Some("absolute" | "timezone" | "variable") => "<clock>".to_owned(),
        Some(o) => format!("<clock offset='{o}'>"),
        None if guest.kind.linux() => "<clock offset='utc'>".to_owned(),
        None => "<clock offset='localtime'>".to_owned(),
    };
    format!("{open}\n  {timer}\n</clock>")
}

/// A feature of the guest's CPU. libvirt takes features only with a model, so a guest that names none gets the host's.
pub(crate) fn cpu_feature(guest: &GuestContext<'_>, name: &str) -> Fix {
    let open = if guest.config.cpu_mode.is_some() { "<cpu>" } else { "<cpu mode='host-passthrough'>" };
    xml(format!("{open}\n  <feature policy='require' name='{name}'/>\n</cpu>"))
}

/// QEMU's name of an enlightenment.
fn flag(name: &str) -> String {
    match name {
        "hypervclock" => "hv-time=on".into(),
        "spinlocks" => "hv-spinlocks=0x1fff".into(),
        "tlbflush_extended" => "hv-tlbflush-ext=on".into(),
        other => format!("hv-{}=on", other.replace('_', "-")),
    }
}

/// The enlightenments of a list that the guest lacks.
pub(crate) fn missing<'n>(guest: &GuestContext<'_>, wanted: &[&'n str]) -> Vec<&'n str> {
    wanted.iter().copied().filter(|name| !guest.config.hyperv.has(name)).collect()
}

/// Switches enlightenments on; asks only for what is missing.
pub(crate) fn enlighten(guest: &GuestContext<'_>, wanted: &[&str]) -> Vec<Fix> {
    let names = missing(guest, wanted);
    if names.is_empty() {
        return Vec::new();
    }
    let mut features = String::new();
    for name in names.iter().filter(|n| **n != "hypervclock" && **n != "stimer_direct") {
        let line = match *name {
            "spinlocks" => "<spinlocks state='on' retries='8191'/>".to_owned(),
            other => format!("<{other} state='on'/>"),
        };
        let _ = write!(features, "\n    {line}");
    }
    let mut text = String::new();
    if !features.is_empty() {
        text = format!("<features>\n  <hyperv>{features}\n  </hyperv>\n</features>");
    }
    if names.contains(&"hypervclock") {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&timer(guest, "<timer name='hypervclock' present='yes'/>"));
    }
    let flags: Vec<String> = names.iter().map(|n| flag(n)).collect();
    either(
        guest,
        xml(text),
        qemu(format!("-cpu host,{}", flags.join(",")))
            .needing("added to the features that -cpu has already; QEMU has to be started anew"),
    )
}

/// The kvm-intel or kvm-amd parameter that switches APIC virtualisation on, and whether it is on.
pub(crate) fn apic_virtualisation(world: &Context<'_>) -> Option<bool> {
    world.param_on("kvm_intel.enable_apicv").or_else(|| world.param_on("kvm_amd.avic"))
}
