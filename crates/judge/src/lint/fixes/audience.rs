//! Cuts each finding to its guest: no parameter of another vendor's KVM, no setting of a VMM or manager that the guest
//! does not have.
//!
//! Rules write for QEMU under libvirt on any host, by far the most common. Here each finding is cut to its guest.

use super::advice;
use super::shell::commands;
use crate::lint::context::Context;
use crate::lint::engine::finding::{Finding, Fix, FixKind};
use kvm::Isa;
use kvm::cmdline::QemuCommand;
use sample::Vmm;

/// What QEMU's options begin with in advice.
const QEMU_OPTIONS: [&str; 6] = ["-accel ", "-device ", "-global ", "-machine ", "-overcommit ", "-no-reboot"];

/// What only a PC has.
const X86_ONLY: [&str; 9] =
    ["kvm_amd", "kvm_intel", "enable_apicv", "intel_idle", "hyperv", "hv-", "hpet", "invtsc", "kvm-clock"];

/// The number of a guest in Proxmox, by its monitor (`/var/run/qemu-server/100.qmp`).
fn proxmox_id(command: &QemuCommand) -> Option<String> {
    let id = command.qmp_sockets.iter().find_map(|path| path.split_once("/qemu-server/")?.1.strip_suffix(".qmp"))?;
    id.bytes().all(|b| b.is_ascii_digit()).then(|| id.to_owned()).filter(|id| !id.is_empty())
}

/// The host and the VMM that a finding is about.
pub(crate) struct Audience {
    /// libvirt runs the guest, or may.
    libvirt: bool,
    /// The VMM, if it is not QEMU.
    other_vmm: Option<String>,
    isa: Option<Isa>,
    /// Whether it is a PC.
    x86: bool,
    /// The guest's number in Proxmox.
    proxmox: Option<String>,
    /// The VMM's process.
    pid: Option<i32>,
    /// libvirt forgets it when it ends.
    transient: bool,
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
        let one = guest.and_then(|only| ctx.guests.get(only));
        let host = &ctx.model.host.facts.arch;
        Self {
            x86: guests().all(|(_, g)| g.config.is_x86()) && (host.is_empty() || host == "x86_64" || host == "i686"),
            proxmox: one.and_then(|g| g.domain.facts.command.as_deref()).and_then(proxmox_id),
            pid: one.and_then(|g| g.domain.facts.pid),
            transient: one.is_some_and(super::is_transient),
            libvirt: is_any || guests().any(|(_, g)| g.config.libvirt != Some(false)),
            other_vmm: guests()
                .map(|(_, g)| vmm(&g.domain.facts.vmm))
                .reduce(|a, b| a.filter(|_| b.is_some()))
                .flatten()
                // Of the host, or of a guest that is gone: nobody knows whose the VMM is.
                .map(|name| if guest.is_some() { name } else { "the VMM".to_owned() }),
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
        if self.transient {
            finding.fix = finding.fix.into_iter().map(Fix::for_transient).collect();
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
        let mut kept: Vec<String> = Vec::new();
        for part in commands(&line) {
            let fitting = if self.is_foreign(part) { self.instead(part) } else { Some(part.to_owned()) };
            kept.extend(fitting.filter(|part| !kept.contains(part)));
        }
        let kept = kept.join("; ");
        if kept == line {
            return Some(line);
        }
        let verb = if kept.starts_with("check: ") || kept.starts_with("look at: ") { "" } else { "check: " };
        (!kept.is_empty()).then(|| format!("{verb}{kept}"))
    }

    /// What shows without libvirt what a `virsh` command shows; `report` reads the output of these, too.
    fn instead(&self, part: &str) -> Option<String> {
        let verb = part.split_once("virsh ")?.1.split_whitespace().next()?;
        let pid = self.pid.map(|pid| pid.to_string());
        match (verb, &self.proxmox) {
            ("dumpxml", Some(id)) => Some(format!("qm config {id}")),
            ("domstats" | "domstate", Some(id)) => Some(format!("qm status {id} --verbose")),
            ("dumpxml", None) => Some(super::command_line_of(self.pid)),
            ("vcpupin" | "vcpuinfo" | "emulatorpin" | "iothreadinfo", _) => Some(super::pins_of(&pid?)),
            ("numatune", _) => Some(format!("numastat -p {}", pid?)),
            _ => None,
        }
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
            Some(Isa::Arm64 | Isa::Other(_)) | None => false,
        };
        manager || vmm || vendor || !self.x86 && has(&X86_ONLY)
    }

    /// Prose about QEMU in the name of the VMM that the guest has.
    fn named(&self, text: String) -> String {
        match &self.other_vmm {
            Some(vmm) if text.contains("QEMU") => text.replace("QEMU", vmm),
            _ => text,
        }
    }
}
