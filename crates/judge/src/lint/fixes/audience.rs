//! Cuts each finding to its guest: no setting of a VMM or manager that the guest does not have.
//!
//! Rules write for QEMU under libvirt on any host, by far the most common. Here each finding is cut
//! to its guest.

use super::{POWER_CYCLE, advice, is_transient};
use crate::lint::facts::{Audience, Context, Finding, Fix, FixKind, GuestContext, is_command};
use sample::Vmm;
use std::collections::BTreeSet;

/// The host and the VMM that a finding is about.
pub(crate) struct Surroundings {
    /// libvirt runs the guest, or may.
    libvirt: bool,
    /// The VMM, if it is not QEMU.
    other_vmm: Option<String>,
    /// The guest's number in Proxmox.
    proxmox: Option<String>,
    /// libvirt forgets it when it ends.
    transient: bool,
}

impl Surroundings {
    /// Of the guests that a finding names, or of all guests together where it is about the host.
    pub fn of(ctx: &Context<'_>, guest: Option<usize>, finding: &Finding) -> Self {
        let one = guest.and_then(|only| ctx.guests.get(only));
        let also: BTreeSet<&str> = finding.also.iter().map(String::as_str).collect();
        let is_named = |guest: &&GuestContext<'_>| {
            also.contains(guest.name()) || one.is_some_and(|one| one.index == guest.index)
        };
        // What is about several guests has to fit each of them.
        let guests: Vec<&GuestContext<'_>> = match one {
            Some(one) if also.is_empty() => vec![one],
            None if also.is_empty() => ctx.guests.iter().collect(),
            _ => ctx.guests.iter().filter(is_named).collect(),
        };
        let is_qemu = |g: &&GuestContext<'_>| g.domain.facts.vmm == Vmm::Qemu;
        Self {
            proxmox: one.and_then(GuestContext::proxmox_id).map(str::to_owned),
            transient: one.is_some_and(is_transient),
            libvirt: guests.is_empty() || guests.iter().any(|g| g.config.libvirt != Some(false)),
            other_vmm: (!guests.is_empty() && !guests.iter().any(is_qemu)).then(|| {
                one.map_or("the VMM", |guest| guest.domain.facts.vmm.as_str())
                    .to_owned()
            }),
        }
    }

    /// The finding without what is foreign to its guest.
    pub fn fit(&self, mut finding: Finding) -> Finding {
        finding.title = self.named(finding.title);
        finding.why = self.named(finding.why);
        finding.evidence = finding
            .evidence
            .into_iter()
            .filter_map(|line| self.fit_line(line))
            .collect();
        let had = !finding.fix.is_empty();
        finding.fix.retain(|fix| !self.is_foreign(fix));
        for fix in finding
            .fix
            .iter_mut()
            .filter(|fix| fix.kind == FixKind::Advice)
        {
            fix.text = self.named(std::mem::take(&mut fix.text));
        }
        if let Some(id) = &self.proxmox {
            let options = finding
                .fix
                .iter_mut()
                .filter(|fix| fix.kind == FixKind::QemuOption);
            options.for_each(|fix| {
                fix.needs = Some(format!(
                    "add it to args: of /etc/pve/qemu-server/{id}.conf; {POWER_CYCLE}"
                ));
            });
        }
        if self.transient {
            let is_own = |fix: &Fix| fix.domain == finding.domain;
            let fit = |fix: Fix| {
                if is_own(&fix) {
                    fix.for_transient()
                } else {
                    fix
                }
            };
            finding.fix = finding.fix.into_iter().map(fit).collect();
        }
        if had && finding.fix.is_empty() {
            let whose = self.other_vmm.as_deref().unwrap_or("this host");
            finding.fix.push(advice(format!(
                "kvmtop knows no setting of {whose} that changes this"
            )));
        }
        finding
    }

    /// A line of evidence, unless it names commands or files of libvirt that the guest does not
    /// have.
    fn fit_line(&self, line: String) -> Option<String> {
        if !is_command(&line) {
            return Some(self.named(line));
        }
        let is_foreign = !self.libvirt && (line.contains("virsh ") || line.contains("/libvirt/"));
        (!is_foreign).then_some(line)
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
    fn named(&self, text: String) -> String {
        match &self.other_vmm {
            Some(vmm) if text.contains("QEMU") => text.replace("QEMU", vmm),
            _ => text,
        }
    }
}
