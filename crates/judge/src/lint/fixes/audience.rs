//! Cuts each finding to its guest: no setting of a VMM or manager that the guest does not have.
//!
//! Rules write for QEMU under libvirt on any host, by far the most common. Here each finding is cut
//! to its guest.

use super::{POWER_CYCLE, advice, is_transient};
use crate::lint::facts::{Audience, Context, Finding, Fix, FixKind, GuestContext, is_command};
use sample::Vmm;

/// Takes from a finding what is foreign to its guest, or to all guests together where it is about
/// the host or several guests.
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
