//! Cuts each finding to its guest: no setting of a VMM or manager that the guest does not have.
//!
//! Rules write for QEMU under libvirt on any host, by far the most common. Here each finding is cut
//! to its guest.

use super::{POWER_CYCLE, advice, is_transient};
use crate::lint::facts::{Audience, Context, Finding, Fix, FixKind, GuestContext, is_command};
use sample::Vmm;

/// The guest that a finding is about, or all guests together.
pub(crate) struct Surroundings<'a> {
    /// libvirt runs the guest, or may.
    libvirt: bool,
    /// The VMM, if it is not QEMU.
    other_vmm: Option<&'a str>,
    guest: Option<&'a GuestContext<'a>>,
}

impl<'a> Surroundings<'a> {
    /// Of a guest, or of all guests together where a finding is about the host or several guests.
    pub fn new(ctx: &'a Context<'_>, guest: Option<usize>, finding: &Finding) -> Self {
        let guest = guest.and_then(|only| ctx.guests.get(only));
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
        let has_libvirt = guests.iter().any(|g| g.config.libvirt != Some(false));
        Self {
            libvirt: guests.is_empty() || has_libvirt,
            other_vmm,
            guest,
        }
    }

    /// The finding without what is foreign to its guest.
    pub fn fit(&self, mut finding: Finding) -> Finding {
        self.name(&mut finding.title);
        self.name(&mut finding.why);
        // No commands of libvirt where the guest is not libvirt's.
        finding
            .evidence
            .retain(|line| self.libvirt || !is_command(line) || !line.contains("virsh "));
        for line in &mut finding.evidence {
            self.name(line);
        }
        let had = !finding.fix.is_empty();
        finding.fix.retain(|fix| !self.is_foreign(fix));
        for fix in &mut finding.fix {
            self.adapt(fix, finding.domain.as_deref());
        }
        if had && finding.fix.is_empty() {
            let whose = self.other_vmm.unwrap_or("this host");
            finding.fix.push(advice(format!(
                "kvmtop knows no setting of {whose} that changes this"
            )));
        }
        finding
    }

    /// What a fix needs under the guest's manager.
    fn adapt(&self, fix: &mut Fix, domain: Option<&str>) {
        let proxmox = self.guest.and_then(GuestContext::proxmox_id);
        match fix.kind {
            FixKind::Advice => self.name(&mut fix.text),
            FixKind::QemuOption => {
                if let Some(id) = proxmox {
                    fix.needs = Some(format!(
                        "add it to args: of /etc/pve/qemu-server/{id}.conf; {POWER_CYCLE}"
                    ));
                }
            }
            FixKind::LibvirtXml
                if self.guest.is_some_and(is_transient) && fix.domain.as_deref() == domain =>
            {
                fix.for_transient();
            }
            _ => {}
        }
    }

    fn is_foreign(&self, fix: &Fix) -> bool {
        let other_vmm = self.other_vmm.is_some();
        match (fix.kind, fix.audience) {
            (FixKind::LibvirtXml, _) => !self.libvirt || other_vmm,
            (FixKind::QemuOption, _) | (_, Audience::Qemu) => other_vmm,
            (_, Audience::Libvirt) => !self.libvirt,
            (_, Audience::Everyone) => false,
        }
    }

    /// Prose about QEMU in the name of the VMM that the guest has.
    fn name(&self, text: &mut String) {
        if let Some(vmm) = self.other_vmm {
            *text = text.replace("QEMU", vmm);
        }
    }
}
