//! Reports of several lines: a dump of registers, a stack, the table of the OOM killer, the end of a QEMU.

use super::names::{begins_with_vcpu, begins_with_vmm, guest_of_scope, hex, pid};
use super::{LogKind, LogLine};

/// What a report consists of.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum LogBlockKind {
    /// KVM's dump of a VMCS or VMCB.
    Dump,
    /// QEMU's dump of a vCPU, or KVM's dump behind an unexpected exit.
    Registers,
    /// A stack, with the task that it belongs to.
    Stack,
    /// The OOM killer's list of tasks, up to its victim.
    OutOfMemory,
    /// Why a QEMU ended, before libvirt's "shutting down".
    EndOfQemu,
}

impl LogBlockKind {
    /// The most lines that it has.
    fn length(self) -> u32 {
        match self {
            Self::Dump => 120,
            Self::Registers => 150,
            Self::Stack => 200,
            Self::OutOfMemory => 5000,
            Self::EndOfQemu => 12,
        }
    }
}

/// A report that is being read.
#[derive(Debug)]
pub(super) struct LogBlock {
    /// What it will be reported as.
    pub line: LogLine,
    /// Its kind.
    pub kind: LogBlockKind,
    /// Whether it concerns KVM or a VMM. A stack or an OOM kill may turn out to be of another program.
    pub of_guest: bool,
    left: u32,
}

/// Words of a stack's lines.
const STACK: [&str; 18] = [
    "+0x",
    "comm:",
    "call trace",
    "modules linked in",
    "rip:",
    "rip [",
    "hardware name",
    "code:",
    "rsp:",
    "rbp:",
    "task:",
    " running task",
    "workqueue:",
    "tainted",
    "rcu",
    "nmi backtrace",
    "sending nmi",
    "stack",
];

impl LogBlock {
    pub fn new(kind: LogBlockKind, line: LogLine, of_guest: bool) -> Self {
        Self { line, kind, of_guest, left: kind.length() }
    }

    /// Counts a line; false when the report is over.
    pub fn goes_on(&mut self) -> bool {
        self.left = self.left.saturating_sub(1);
        self.left > 0
    }

    /// Whether a line belongs to the report and says nothing of its own. Takes from it what it tells.
    pub fn takes(&mut self, text: &str) -> bool {
        match self.kind {
            LogBlockKind::Dump | LogBlockKind::Registers => self.takes_dump(text),
            LogBlockKind::Stack => self.takes_stack(text),
            LogBlockKind::OutOfMemory => self.takes_oom(text),
            LogBlockKind::EndOfQemu => false,
        }
    }

    fn takes_dump(&mut self, text: &str) -> bool {
        if let Some((_, reason)) = text.split_once("reason=")
            && self.line.kind == LogKind::EntryFailed
        {
            self.line.data = self.line.data.or(hex(reason));
        }
        let of_dump = ["kvm_intel: ", "kvm_amd: ", "svm: ", "kvm: cr", "extra data[", "vmcb", "vmcs"];
        of_dump.iter().any(|word| text.starts_with(word))
            || text.contains("*** ")
            || text.contains("emulation fail")
            || text.contains("last attempted vm")
            || text.contains("dump_invalid_vmc")
    }

    fn takes_stack(&mut self, text: &str) -> bool {
        if let Some((_, comm)) = text.split_once("comm: ").or_else(|| text.split_once("task:")) {
            self.names(comm, text);
        } else if text.contains(" running task") {
            self.names(text, text);
        }
        // A frame in KVM's modules.
        let in_kvm = text.contains("+0x") && text.contains("[kvm");
        self.of_guest |= in_kvm;
        STACK.iter().any(|word| text.contains(word))
    }

    /// The task that the stack belongs to.
    fn names(&mut self, comm: &str, text: &str) {
        if !begins_with_vmm(comm) {
            return;
        }
        self.of_guest = true;
        self.line.vcpu = self.line.vcpu.or_else(|| begins_with_vcpu(comm));
        let id = text.split_once("pid: ").or_else(|| text.split_once("pid:"));
        self.line.pid = self.line.pid.or_else(|| pid(id?.1));
        let end =
            [" not tainted", " tainted", " kdump", " state:", "  "].iter().filter_map(|word| comm.find(word)).min();
        let name = comm.get(..end.unwrap_or(comm.len())).unwrap_or(comm).trim();
        if !self.line.text.to_ascii_lowercase().contains(name) {
            self.line.text.push_str(" … Comm: ");
            self.line.text.push_str(&super::super::sanitize(name, 16).replace("/kvm", "/KVM").replace("cpu ", "CPU "));
        }
    }

    fn takes_oom(&mut self, text: &str) -> bool {
        if let Some((_, victim)) = text.split_once("task=")
            && text.contains("oom-kill:")
        {
            self.line.guest = guest_of_scope(text).or(self.line.guest.take());
            if begins_with_vmm(victim) {
                self.of_guest = true;
                self.line.kind = LogKind::KilledForMemory;
                self.line.pid = victim.split_once("pid=").and_then(|(_, id)| pid(id));
            }
        }
        !text.starts_with("kvm")
    }
}
