//! Hyper-V enlightenments: which of them a guest lacks, and how to switch them on.

use super::{advice, command, either_cpu, libvirt_advice, timer, xml};
use crate::lint::facts::{Context, Fix, GuestContext};
use crate::model::drive_files;
use kvm::hyperv::{self, Enlightenment};
use kvm::pattern::Pattern;
use sample::ENLIGHTENMENTS_OFFERED;

/// The enlightenments with which Windows keeps time without QEMU (QEMU, `hyperv.rst`).
const CLOCK_AND_TIMERS: &[&str] = &["hypervclock", "vpindex", "synic", "stimer"];
/// QEMU of this version has `hv-avic`.
const AVIC_SINCE: (u32, u32) = (6, 2);

pub(crate) const ADD_AVIC: &str = "synic disables APIC virtualisation unless avic is on too: add \
    the avic enlightenment (hv-avic=on; libvirt 8.10, QEMU 6.2) where KVM uses APICv or AVIC \
    (enable_apicv, avic)";

pub(crate) const HYPERVISOR_OFF: &str = "the CPU feature hypervisor is switched off in the \
    configuration";
pub(crate) const SHOW_HYPERVISOR: &str = "<cpu>\n  <feature policy='require' \
    name='hypervisor'/>\n</cpu>";
/// `windows_version`, `get_hyperv_enlightenments` and `get_vm_machine` of Proxmox's PVE/QemuServer.
const OSTYPE: &str = "if it is Windows; win11 for Windows 11, Server 2022 and later; shut the \
    guest down and start it again";

/// Those of [`CLOCK_AND_TIMERS`] that this guest's Windows supports: 7 and 2008 R2 only the clock,
/// older ones none.
pub(crate) fn clock_and_timers(guest: &GuestContext<'_>) -> &'static [&'static str] {
    if too_old(guest) {
        &[]
    } else if os_contains(guest, &SEVEN) {
        &["hypervclock"]
    } else {
        CLOCK_AND_TIMERS
    }
}

/// Whether the guest's Windows is older than 7 and 2008 R2, which are the first with a Hyper-V
/// clock.
pub(crate) fn too_old(guest: &GuestContext<'_>) -> bool {
    os_contains(guest, &BEFORE_7) && !os_contains(guest, &SINCE_7)
}

/// Parts of the names of Windows before 7 and 2008 R2, and of those since.
static BEFORE_7: Pattern = Pattern::new(
    "/2k|w2k|win2k|win/me|win(?:dows)?(?:2000|nt|9|me)|/xp|wxp|winxp|windowsxp|vista|2k3|2k8",
);
static SINCE_7: Pattern = Pattern::new("2k8r2|2k1[269]|2k2[25]");
/// Parts of the names of 7 and 2008 R2.
static SEVEN: Pattern = Pattern::new("/win/7|win(?:dows)?7|2k8r2|2008r2");

/// Whether the name of the guest's system, as metadata has it, contains one of these names; without
/// metadata the name of the guest or of a drive.
fn os_contains(guest: &GuestContext<'_>, names: &Pattern) -> bool {
    let facts = &guest.domain.facts;
    if let Some(os) = &facts.guest_os {
        return name_contains(&os.value, names);
    }
    let drives = drive_files(facts).into_iter();
    let drives = drives.filter(|file| !file.contains("virtio-win"));
    drives
        .chain([guest.name()])
        .any(|name| name_contains(name, names))
}

/// Whether a name contains one of these names.
fn name_contains(name: &str, names: &Pattern) -> bool {
    names.is_match(&name.to_ascii_lowercase().replace([' ', '_', '-'], ""))
}

/// Gives a Windows guest the Hyper-V clock and timers.
pub(crate) fn windows_timers(ctx: &Context<'_>, guest: &GuestContext<'_>) -> Vec<Fix> {
    let supported = clock_and_timers(guest);
    if supported.is_empty() {
        return vec![advice(
            "This Windows has no Hyper-V clock: remove /usepmtimer from its \
            boot.ini, or upgrade it",
        )];
    }
    // The cause is the hidden hypervisor alone.
    if guest.config.hypervisor_hidden && missing(guest, supported).is_empty() {
        return switch_on(guest, &[]);
    }
    let synic = supported.contains(&"synic");
    let may_avic = host_offers(guest, "avic");
    let has_avic = may_avic && guest.config.machine.version.is_none_or(|v| v >= AVIC_SINCE);
    let avic = ctx.apic_virtualisation() == Some(true) && has_avic;
    let mut wanted = supported.to_vec();
    if avic && synic {
        wanted.push("avic");
    }
    let mut fixes = enable(guest, &wanted);
    if fixes.is_empty() {
        // It has everything that it needs, so something inside forces another clock.
        return vec![
            command(
                "bcdedit /enum {current}\nbcdedit /deletevalue \
            useplatformclock\nbcdedit /deletevalue useplatformtick",
            )
            .needing("run it inside the guest as administrator, then restart"),
        ];
    }
    let possible = ctx.apic_virtualisation() != Some(false) && may_avic;
    if !avic && possible && synic && !guest.config.hyperv.has("avic") {
        fixes.push(libvirt_advice(ADD_AVIC));
    }
    fixes
}

/// The enlightenments of a list that the guest lacks.
pub(crate) fn missing<'n>(guest: &GuestContext<'_>, wanted: &[&'n str]) -> Vec<&'n str> {
    wanted
        .iter()
        .copied()
        .filter(|name| !guest.config.hyperv.has(name))
        .collect()
}

/// Switches on those enlightenments of a list that the guest lacks, with what they need, as far as
/// the host offers them.
pub(crate) fn enable(guest: &GuestContext<'_>, wanted: &[&str]) -> Vec<Fix> {
    if !guest.config.is_x86() {
        return Vec::new();
    }
    let mut all = Vec::new();
    for Enlightenment { name, .. } in hyperv::ALL {
        let is_needed = wanted
            .iter()
            .any(|wanted| hyperv::needs(wanted).contains(name));
        if is_needed || wanted.contains(name) {
            all.push(*name);
        }
    }
    let (names, refused): (Vec<_>, Vec<_>) = missing(guest, &all)
        .into_iter()
        .partition(|name| host_offers(guest, name));
    let mut fixes = Vec::new();
    if !names.is_empty() || guest.config.hypervisor_hidden {
        fixes = switch_on(guest, &names);
    }
    if !refused.is_empty() {
        let names = refused.join(", ");
        fixes.push(libvirt_advice(format!(
            "{names}: this host does not offer it (virsh domcapabilities)"
        )));
    }
    fixes
}

/// Whether the host offers an enlightenment and all that it needs. A host that says nothing is
/// taken to offer it.
fn host_offers(guest: &GuestContext<'_>, name: &str) -> bool {
    let Some(offered) = guest.host_params.get(ENLIGHTENMENTS_OFFERED) else {
        return true;
    };
    let mut all = hyperv::needs(name).iter().chain([&name]);
    all.all(|name| offered.split_whitespace().any(|word| word == *name))
}

/// Libvirt's elements, or QEMU's flags.
fn switch_on(guest: &GuestContext<'_>, names: &[&str]) -> Vec<Fix> {
    let facts = &guest.domain.facts;
    let os = facts.guest_os.as_ref();
    let has_clock = names.contains(&hyperv::CLOCK);
    let is_hidden = guest.config.hypervisor_hidden;
    if let Some(id) = guest.proxmox_id()
        && has_clock
        && !is_hidden
        && os.is_none_or(|os| !os.value.starts_with('w'))
    {
        return vec![command(format!("qm set {id} --ostype win10")).needing(OSTYPE)];
    }
    let mut flags: Vec<String> = Vec::new();
    let mut elements: Vec<String> = Vec::new();
    if is_hidden {
        flags.push("hypervisor=on".into());
        elements.push(SHOW_HYPERVISOR.into());
    }
    let mut lines = String::new();
    for name in names {
        let flag = hyperv::find(name).map_or(*name, |known| known.flag);
        flags.push(format!("hv-{flag}=on"));
        if *name != hyperv::CLOCK {
            lines += &format!("\n    <{name} state='on'/>");
        }
    }
    if !lines.is_empty() {
        elements.push(format!(
            "<features>\n  <hyperv>{lines}\n  </hyperv>\n</features>"
        ));
    }
    if has_clock {
        elements.push(timer(guest, "<timer name='hypervclock' present='yes'/>"));
    }
    either_cpu(guest, xml(guest, elements.join("\n")), &flags.join(","))
}
