//! Whom a finding speaks to: nobody is asked for a parameter of another vendor's KVM, or for a setting of a VMM or
//! manager that the guest does not have.
//!
//! Rules write for QEMU under libvirt on any host, by far the most common. Here each finding is cut to its guest.

use super::advice;
use crate::kvm::Isa;
use crate::lint::context::Context;
use crate::lint::engine::finding::{Finding, Fix, FixKind};
use crate::sample::Vmm;

/// What QEMU's options begin with in advice.
const QEMU_OPTIONS: [&str; 6] = ["-accel ", "-device ", "-global ", "-machine ", "-overcommit ", "-no-reboot"];

/// The host and the VMM that a finding is about.
pub(crate) struct Audience {
    /// libvirt runs the guest, or may.
    libvirt: bool,
    /// The VMM, if it is not QEMU.
    other_vmm: Option<String>,
    isa: Option<Isa>,
}

impl Audience {
    /// Of a guest, or of all guests together where a finding is about the host.
    pub fn of(ctx: &Context<'_>, guest: Option<usize>) -> Self {
        let guests = || ctx.guests.iter().enumerate().filter(move |(i, _)| guest.is_none_or(|only| only == *i));
        let vmm = |vmm: &Vmm| match vmm {
            Vmm::Qemu => None,
            Vmm::Other(name) => Some(name.clone()),
        };
        // What is about several guests has to fit each of them.
        let is_any = guests().next().is_none();
        Self {
            libvirt: is_any || guests().any(|(_, g)| g.config.libvirt != Some(false)),
            other_vmm: guests()
                .map(|(_, g)| vmm(&g.domain.facts.vmm))
                .reduce(|a, b| a.filter(|_| b.is_some()))
                .flatten(),
            isa: guests().find_map(|(_, g)| ctx.isa(g)).or_else(|| ctx.host_isa()),
        }
    }

    /// The finding without what is foreign to its guest.
    pub fn fit(&self, mut finding: Finding) -> Finding {
        finding.title = self.named(finding.title);
        finding.why = self.named(finding.why);
        finding.evidence = finding.evidence.into_iter().filter_map(|line| self.fit_line(line)).collect();
        let had = !finding.fix.is_empty();
        finding.fix.retain(|fix| !self.is_foreign_fix(fix));
        for fix in finding.fix.iter_mut().filter(|fix| fix.kind == FixKind::Advice) {
            fix.text = self.named(std::mem::take(&mut fix.text));
        }
        if had && finding.fix.is_empty() {
            let whose = self.other_vmm.as_deref().unwrap_or("this host");
            finding.fix.push(advice(format!("kvmtop knows no setting of {whose} that changes this")));
        }
        finding
    }

    /// A line of evidence; of commands to run only those that exist here.
    fn fit_line(&self, line: String) -> Option<String> {
        if !(line.starts_with("check: ") || line.starts_with("look at: ")) {
            return Some(self.named(line));
        }
        let mut parts: Vec<&str> = line.split("; ").collect();
        let all = parts.len();
        parts.retain(|part| !self.is_foreign(part));
        if parts.len() == all {
            return Some(line);
        }
        let kept = parts.join("; ");
        let verb = if kept.starts_with("check: ") || kept.starts_with("look at: ") { "" } else { "check: " };
        (!kept.is_empty()).then(|| format!("{verb}{kept}"))
    }

    fn is_foreign_fix(&self, fix: &Fix) -> bool {
        match fix.kind {
            FixKind::LibvirtXml => !self.libvirt || self.other_vmm.is_some(),
            FixKind::QemuOption => self.other_vmm.is_some(),
            FixKind::Command | FixKind::KernelOption | FixKind::Advice => self.is_foreign(&fix.text),
        }
    }

    fn is_foreign(&self, text: &str) -> bool {
        let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
        let element = || text.split('<').skip(1).any(|rest| rest.starts_with(|c: char| c.is_ascii_lowercase()));
        let manager = !self.libvirt && (has(&["virsh ", "libvirt"]) || element());
        let vmm = self.other_vmm.is_some() && has(&QEMU_OPTIONS);
        let vendor = match self.isa {
            Some(Isa::Vmx) => has(&["kvm_amd"]),
            Some(Isa::Svm) => has(&["kvm_intel", "enable_apicv"]),
            Some(Isa::Arm64) => has(&["kvm_amd", "kvm_intel", "enable_apicv"]),
            Some(Isa::Other(_)) | None => false,
        };
        manager || vmm || vendor
    }

    /// Prose about QEMU in the name of the VMM that the guest has.
    fn named(&self, text: String) -> String {
        match &self.other_vmm {
            Some(vmm) if text.contains("QEMU") => text.replace("QEMU", vmm),
            _ => text,
        }
    }
}
