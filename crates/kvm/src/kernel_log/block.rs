//! Reports of several lines: a dump of registers, a stack, the table of the OOM killer, the end of a QEMU.

use super::names::{begins_with_vcpu, begins_with_vmm, guest_of_scope, hex, pid};
use super::{LogKind, LogLine};
use crate::{Isa, exit_reason};
use std::fmt::Write as _;

/// `KVM_INTERNAL_ERROR_DELIVERY_EV`.
const DELIVERY: u64 = 3;
/// `VECTORING_INFO_VALID_MASK` (arch/x86/include/asm/vmx.h).
const VALID: u64 = 1 << 31;

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
    /// What was being delivered when an exit interrupted it: the first of the extra data of suberror 3.
    delivered: Option<u64>,
    /// Whether the OOM killer's victim is named.
    pub victim: bool,
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
        Self { line, kind, of_guest, left: kind.length(), delivered: None, victim: false }
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

    /// What the report says once it is complete; `None` if it is not about a guest. A lockup without a VMM's thread
    /// may still have stopped one.
    pub fn into_line(self) -> Option<LogLine> {
        let kind = match self.line.kind {
            LogKind::Lockup if !self.of_guest => LogKind::OtherLockup,
            LogKind::Other if self.kind == LogBlockKind::OutOfMemory && self.of_guest && !self.victim => {
                LogKind::OutOfMemory
            }
            kind if self.of_guest => kind,
            _ => return None,
        };
        Some(LogLine { kind, ..self.line })
    }

    /// Takes QEMU's message about a start that failed, which says why libvirt lost its monitor.
    pub fn takes_failed_start(&mut self, line: &LogLine) -> bool {
        // A signal ended a QEMU that ran.
        let lost = matches!(self.line.kind, LogKind::Killed | LogKind::StartFailed) && self.line.data.is_none();
        if lost && self.line.kind == LogKind::Killed {
            self.line.kind = LogKind::StartFailed;
            self.line.text.push_str(" … ");
            self.line.text.push_str(&line.text);
        }
        lost
    }

    fn takes_dump(&mut self, text: &str) -> bool {
        if let Some((_, reason)) = text.split_once("reason=")
            && self.line.kind == LogKind::EntryFailed
        {
            self.line.data = self.line.data.or(hex(reason));
        }
        if self.line.kind == LogKind::InternalError && self.line.data == Some(DELIVERY) {
            self.takes_delivery(text);
        }
        let of_dump = ["kvm_intel: ", "kvm_amd: ", "svm: ", "kvm: cr", "extra data[", "vmcb", "vmcs"];
        of_dump.iter().any(|word| text.starts_with(word))
            || text.contains("*** ")
            || text.contains("emulation fail")
            || text.contains("last attempted vm")
            || text.contains("dump_invalid_vmc")
    }

    /// `extra data[0]: 0x80000b0e` is what was delivered, in the form of the VMCS; `extra data[1]: 0x31` the exit
    /// (`kvm_prepare_event_vectoring_exit` in arch/x86/kvm/x86.c).
    fn takes_delivery(&mut self, text: &str) {
        if let Some(info) = text.strip_prefix("extra data[0]: ").and_then(hex) {
            self.delivered = self.delivered.or(Some(info));
        }
        let Some(exit) = text.strip_prefix("extra data[1]: ").and_then(hex) else { return };
        let Some(info) = self.delivered.take().filter(|info| info & VALID != 0) else { return };
        let what = match info >> 8 & 7 {
            0 => "interrupt",
            2 => "NMI, vector",
            3 | 6 => "exception",
            _ => "event",
        };
        let reason = u32::try_from(exit).ok().and_then(|exit| exit_reason::name(Isa::Vmx, exit));
        if let Some(reason) = reason {
            let _ = write!(self.line.text, " … {what} {} interrupted by the exit {reason}", info & 0xff);
        }
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
