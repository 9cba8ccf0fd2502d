//! Fixes to paste, made for one guest: only what it lacks, in the form that its manager takes; and
//! what of a finding is foreign to its guest.

pub(super) mod hyperv;
pub(super) mod placement;

use crate::lint::facts::shell::{domain_argument, quoted};
use crate::lint::facts::{Audience, Context, Finding, Fix, FixKind, GuestContext, is_command};
use crate::model::CpuPlace;
use kvm::domain_xml;
use sample::{INVTSC_OFFERED, Origin, Vmm};

/// QEMU's CPU model without `-cpu` (hw/i386/pc.c and target/i386/cpu.h, `TARGET_DEFAULT_CPU_TYPE`).
const DEFAULT_MODEL: &str = "qemu64";

/// What a changed CPU or machine needs.
pub(crate) const POWER_CYCLE: &str = "shut the guest down and start it again; a reboot from inside \
    is not enough";
/// What a kernel option needs.
const HOST_REBOOT: &str = "update the boot loader's configuration and reboot the host";
/// What a device of virtio in place of an emulated one needs.
const DRIVER_FIRST: &str = "the guest first needs the virtio driver, which Linux has (Windows: \
    from virtio-win; for its system disk start it once with a small virtio disk beside); then shut \
    it down, change it and start it again";
/// What a QEMU option needs.
const QEMU_RESTART: &str = "restart QEMU with this option";
/// What a command inside the guest needs.
const IN_GUEST: &str = "run it inside the guest";
/// What a `virsh … --live --config` command needs.
pub(crate) const LIVE_AND_KEPT: &str = "takes effect at once and is kept";
/// The same for a guest without a configuration (libvirt.org, "Domain management": transient
/// domains).
pub(crate) const LIVE_ALONE: &str = "takes effect at once; the guest is transient, so whoever \
    creates it has to keep this in the XML that it is created from";
/// Where a piece of XML goes that a transient guest is to have. [`Fix::is_for_creator`] knows it by
/// the last words.
const TRANSIENT_XML: &str = "the guest is transient: this goes into the XML that it is created \
    from";
/// What a change of the configuration alone needs.
pub(crate) const AT_NEXT_START: &str = "takes effect at its next start";
/// What a `taskset` command needs.
pub(crate) const UNTIL_GUEST_ENDS: &str = "lasts until the guest ends";

/// Says of fixes which elements of the XML they stand in place of: libvirt refuses some of them
/// twice. Most fixes are for the guest of their finding, `own`.
pub(crate) fn in_place(guests: &[GuestContext<'_>], own: Option<usize>, fixes: &mut [Fix]) {
    for fix in fixes.iter_mut().filter(|f| f.kind == FixKind::LibvirtXml) {
        let mut candidates = own.map(|at| &guests[at]).into_iter().chain(guests);
        let guest = candidates.find(|guest| Some(guest.name()) == fix.domain.as_deref());
        if let Some(xml) = guest.and_then(|guest| guest.domain.facts.xml.as_ref()) {
            let repeated = domain_xml::repeated(&xml.value, &fix.text);
            if !repeated.is_empty() {
                fix.need_first(&format!("in place of the guest's {}", repeated.join(", ")));
            }
        }
    }
}

/// XML for a guest.
pub(crate) fn xml(guest: &GuestContext<'_>, text: impl Into<String>) -> Fix {
    Fix {
        kind: FixKind::LibvirtXml,
        text: text.into(),
        needs: Some(POWER_CYCLE.into()),
        domain: Some(guest.name().to_owned()),
        ..Fix::default()
    }
}

pub(crate) fn command(text: impl Into<String>) -> Fix {
    Fix {
        kind: FixKind::Command,
        text: text.into(),
        ..Fix::default()
    }
}

/// Options of a guest's QEMU.
pub(crate) fn qemu(guest: &GuestContext<'_>, text: impl Into<String>) -> Fix {
    Fix {
        kind: FixKind::QemuOption,
        needs: Some(QEMU_RESTART.into()),
        ..xml(guest, text)
    }
}

/// A command to run inside a guest.
pub(crate) fn inside(guest: &GuestContext<'_>, text: &str) -> Fix {
    Fix {
        domain: Some(guest.name().to_owned()),
        ..command(text).needing(IN_GUEST)
    }
}

pub(crate) fn kernel(text: impl Into<String>) -> Fix {
    Fix {
        kind: FixKind::KernelOption,
        ..command(text).needing(HOST_REBOOT)
    }
}

pub(crate) fn advice(text: impl Into<String>) -> Fix {
    Fix {
        text: text.into(),
        ..Fix::default()
    }
}

/// Advice for guests of libvirt alone.
pub(crate) fn libvirt_advice(text: impl Into<String>) -> Fix {
    advice(text).only(Audience::Libvirt)
}

/// What a device of virtio needs: no driver where the guest uses such a device already.
pub(crate) fn virtio_needs(uses_one: bool) -> &'static str {
    if uses_one { POWER_CYCLE } else { DRIVER_FIRST }
}

/// Fixes, or advice where there are none.
pub(crate) fn or_advice(fix: Vec<Fix>, advice: Fix) -> Vec<Fix> {
    if fix.is_empty() { vec![advice] } else { fix }
}

impl Fix {
    /// The same fix with another need.
    pub(crate) fn needing(self, needs: &str) -> Self {
        Self {
            needs: Some(needs.to_owned()),
            ..self
        }
    }

    /// The same fix, with the commands that undo it.
    pub(crate) fn undone_by(self, undo: String) -> Self {
        Self {
            undo: Some(undo),
            ..self
        }
    }

    /// The same fix, for some hosts and guests alone.
    pub(crate) fn only(self, audience: Audience) -> Self {
        Self { audience, ..self }
    }

    /// Whether it is XML for whoever creates a transient guest, which `virsh edit` would make a
    /// persistent one.
    pub fn is_for_creator(&self) -> bool {
        self.kind == FixKind::LibvirtXml
            && self
                .needs
                .as_ref()
                .is_some_and(|needs| needs.contains("the XML that it is created from"))
    }

    /// Makes it a fix for a transient guest, which libvirt keeps no configuration of.
    fn for_transient(&mut self) {
        if !self.is_for_creator() {
            self.need_first(TRANSIENT_XML);
        }
    }

    /// Puts a need before those that it has.
    fn need_first(&mut self, need: &str) {
        self.needs = Some(match &self.needs {
            Some(needs) => format!("{need}; {needs}"),
            None => need.to_owned(),
        });
    }
}

/// The same change for libvirt and for QEMU by hand: the one that fits, both where the manager is
/// unknown.
pub(crate) fn either(guest: &GuestContext<'_>, libvirt: Fix, by_hand: Fix) -> Vec<Fix> {
    match guest.config.libvirt {
        Some(true) => vec![libvirt],
        Some(false) => vec![by_hand],
        None => vec![libvirt, by_hand],
    }
}

/// The same as an element of the XML and as an option of QEMU.
pub(crate) fn setting(
    guest: &GuestContext<'_>,
    element: impl Into<String>,
    option: impl Into<String>,
) -> Vec<Fix> {
    either(guest, xml(guest, element), qemu(guest, option))
}

/// A `virsh` command about this guest.
pub(crate) fn virsh(guest: &GuestContext<'_>, verb: &str, rest: &str) -> String {
    let uuid = guest.domain.facts.uuid.as_ref().map(|u| u.value.as_str());
    let is_made = guest.domain.facts.name.from == Origin::BuiltIn;
    let argument = match uuid {
        Some(uuid) if guest.is_namesake || is_made => domain_argument(uuid, Some(uuid)),
        None if is_made => "GUEST".to_owned(),
        _ => domain_argument(guest.name(), uuid),
    };
    format!("virsh {verb} {argument} {rest}")
        .trim_end()
        .to_owned()
}

/// What a `virsh` command changes: the running guest and its configuration. `--live` is an error
/// for a guest that is shut off, `--config` for a transient guest.
pub(crate) fn scope(guest: &GuestContext<'_>) -> &'static str {
    match guest.domain.facts.persistent {
        _ if guest.is_shut_off() => "--config",
        Some(false) => "--live",
        Some(true) | None => "--live --config",
    }
}

/// Whether libvirt forgets the guest when it ends.
pub(crate) fn is_transient(guest: &GuestContext<'_>) -> bool {
    guest.domain.facts.persistent == Some(false)
}

/// Where a piece of XML goes, and what it needs.
pub(crate) fn into_xml(guest: &GuestContext<'_>, need: &str) -> String {
    let uuid = match &guest.domain.facts.uuid {
        Some(uuid) if guest.is_namesake => format!(" ({})", uuid.value),
        _ => String::new(),
    };
    let whose = if is_transient(guest) {
        "the XML that it is created from: transient guest"
    } else {
        "the XML of"
    };
    format!("goes into {whose} {}{uuid}; {need}", guest.name())
}

/// One `<timer>` of the guest's `<clock>`.
pub(crate) fn timer(guest: &GuestContext<'_>, timer: &str) -> String {
    let offset = guest
        .config
        .timers
        .offset
        .as_deref()
        .filter(|o| o.bytes().all(|b| b.is_ascii_alphanumeric()));
    let offset = match offset {
        Some("absolute" | "timezone" | "variable") => String::new(),
        Some(o) => format!(" offset='{o}'"),
        None if guest.kind.linux() => " offset='utc'".to_owned(),
        None => " offset='localtime'".to_owned(),
    };
    format!("<clock{offset}>\n  {timer}\n</clock>")
}

/// What the guest sees of sockets, cores and threads.
pub(crate) fn cpu_topology(
    guest: &GuestContext<'_>,
    sockets: u32,
    cores: u32,
    threads: u32,
) -> Vec<Fix> {
    let element = format!(
        "<cpu>\n  <topology sockets='{sockets}' dies='1' cores='{cores}' \
            threads='{threads}'/>\n</cpu>"
    );
    let count = sockets * cores * threads;
    let option = format!("-smp {count},sockets={sockets},cores={cores},threads={threads}");
    setting(guest, element, option)
}

/// Takes the HPET away.
pub(crate) fn hpet_off(guest: &GuestContext<'_>) -> Vec<Fix> {
    setting(
        guest,
        timer(guest, "<timer name='hpet' present='no'/>"),
        "-machine hpet=off",
    )
}

/// A feature of the guest's CPU. libvirt takes features only with a CPU mode, so a guest that names
/// none gets the host's.
pub(crate) fn cpu_feature(
    guest: &GuestContext<'_>,
    name: &str,
    needs: &str,
    by_hand: &str,
) -> Vec<Fix> {
    let is_offered = guest.host_params.get(INVTSC_OFFERED);
    if name == "invtsc" && is_offered.is_some_and(|value| value != "Y") {
        return vec![advice(
            "invtsc is not proposed: this host does not offer it, and the \
            guest would not start",
        )];
    }
    let open = if guest.config.cpu_mode.is_some() {
        "<cpu>"
    } else {
        "<cpu mode='host-passthrough'>"
    };
    let element = xml(
        guest,
        format!("{open}\n  <feature policy='require' name='{name}'/>\n</cpu>"),
    )
    .needing(needs);
    either_cpu(guest, element, by_hand)
}

/// Ways to continue a post-copy migration that lost its connection.
pub(crate) fn recover_postcopy(guest: &GuestContext<'_>) -> Vec<Fix> {
    either(
        guest,
        advice(
            "Repair the network and resume it: virsh migrate --postcopy-resume with the options \
            it was started with",
        ),
        advice(
            "Repair the network and resume it: migrate-recover on the target, then migrate with \
            resume on the source (QMP)",
        ),
    )
}

/// The guest's `-cpu` with these features (`name=value`) on top of all that it has now: always the
/// whole argument, because QEMU takes the last one alone. It takes the last value of a feature.
fn cpu_argument(guest: &GuestContext<'_>, features: &str) -> Fix {
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
    let fix = qemu(guest, format!("-cpu {},{features}", quoted(before)));
    // The command line of a guest whose manager is unknown may be anything.
    if guest.config.libvirt.is_none() && by_hand.is_none() {
        return fix.needing("append it to the existing -cpu argument and restart QEMU");
    }
    fix
}

/// An element of libvirt's, or the features by hand; these alone where the XML's `-cpu` decides.
pub(crate) fn either_cpu(guest: &GuestContext<'_>, element: Fix, features: &str) -> Vec<Fix> {
    let argument = cpu_argument(guest, features);
    if guest.config.libvirt == Some(true) && guest.config.cpu_place == CpuPlace::QemuCommandline {
        return vec![argument];
    }
    either(guest, element, argument)
}

/// Takes from a finding what is foreign to its guest, or to all guests together where it is about
/// the host or several guests: no setting of a VMM or manager that the guest does not have. Rules
/// write for QEMU under libvirt on any host, by far the most common.
pub(crate) fn fit(ctx: &Context<'_>, guest: Option<usize>, finding: &mut Finding) {
    let guest = guest.map(|at| &ctx.guests[at]);
    let guests: Vec<&GuestContext<'_>> = match guest {
        Some(one) if finding.also.is_empty() => vec![one],
        _ => ctx.guests.iter().collect(),
    };
    let has_qemu = guests.iter().any(|g| g.domain.facts.vmm == Vmm::Qemu);
    let other_vmm = if has_qemu {
        None
    } else {
        guests.first().map(|guest| guest.domain.facts.vmm.as_str())
    };
    // libvirt runs the guest, or may.
    let libvirt = guests.is_empty() || guests.iter().any(|g| g.config.libvirt != Some(false));
    // No commands of libvirt where the guest is not libvirt's.
    finding
        .evidence
        .retain(|line| libvirt || !is_command(line) || !line.contains("virsh "));
    let had = !finding.fix.is_empty();
    finding.fix.retain(|fix| match (fix.kind, fix.audience) {
        (FixKind::LibvirtXml, _) => libvirt && other_vmm.is_none(),
        (FixKind::QemuOption, _) | (_, Audience::Qemu) => other_vmm.is_none(),
        (_, Audience::Libvirt) => libvirt,
        (_, Audience::Everyone) => true,
    });
    if let Some(vmm) = other_vmm {
        name_vmm(finding, vmm);
    }
    if let Some(guest) = guest {
        for fix in &mut finding.fix {
            adapt(fix, guest, finding.domain.as_deref());
        }
    }
    if had && finding.fix.is_empty() {
        let whose = other_vmm.unwrap_or("this host");
        finding.fix.push(advice(format!(
            "kvmtop knows no setting of {whose} that changes this"
        )));
    }
}

/// Prose about QEMU in the name of the VMM that the guest has.
fn name_vmm(finding: &mut Finding, vmm: &str) {
    let advice = finding.fix.iter_mut().filter(|f| f.kind == FixKind::Advice);
    let texts = [&mut finding.title, &mut finding.why]
        .into_iter()
        .chain(&mut finding.evidence)
        .chain(advice.map(|fix| &mut fix.text));
    for text in texts {
        *text = text.replace("QEMU", vmm);
    }
}

/// What a fix needs under the guest's manager.
fn adapt(fix: &mut Fix, guest: &GuestContext<'_>, domain: Option<&str>) {
    if fix.kind == FixKind::QemuOption
        && let Some(id) = guest.proxmox_id()
    {
        fix.needs = Some(format!(
            "add it to args: of /etc/pve/qemu-server/{id}.conf; {POWER_CYCLE}"
        ));
    }
    let is_own_xml = fix.kind == FixKind::LibvirtXml && fix.domain.as_deref() == domain;
    if is_own_xml && is_transient(guest) {
        fix.for_transient();
    }
}
