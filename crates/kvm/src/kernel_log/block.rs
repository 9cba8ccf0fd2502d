//! Reports of several lines: a dump of registers, a stack, the table of the OOM killer, the end of a QEMU.

use super::forms::{begins_with_vcpu, begins_with_vmm};
use super::{CGROUP_LIMIT, LogKind, LogLine, NODE_LIMIT};
use crate::guest_name::of_scope;
use crate::pattern::{Pattern, group, hex, pid};
use crate::{Isa, exit_reason, sanitize};
use std::fmt::Write as _;

/// `KVM_INTERNAL_ERROR_DELIVERY_EV`.
const DELIVERY: u64 = 3;
/// Functions of a stack that are kept: those next to where it stands.
const MAX_FUNCTIONS: usize = 8;
/// `VECTORING_INFO_VALID_MASK` (arch/x86/include/asm/vmx.h).
const VALID: u64 = 1 << 31;

/// The kind of a report.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum LogBlockKind {
    /// KVM's dump of a VMCS or VMCB.
    #[default]
    Dump,
    /// QEMU's dump of a vCPU, or KVM's dump after an unexpected exit.
    Registers,
    /// A stack, with the task that it belongs to.
    Stack,
    /// The OOM killer's list of tasks, up to its victim.
    OutOfMemory,
    /// Why a QEMU ended, before libvirt's "shutting down".
    EndOfQemu,
}

/// A report that is being read.
#[derive(Debug, Default)]
pub(super) struct LogBlock {
    /// The line that it will be reported as.
    pub line: LogLine,
    /// Its kind.
    pub kind: LogBlockKind,
    /// Whether it concerns KVM or a VMM. A stack or an OOM kill may turn out to be of another program.
    pub of_guest: bool,
    /// Lines that it may still have.
    left: u32,
    /// The event whose delivery an exit interrupted: the first of the extra data of suberror 3.
    delivered: Option<u64>,
    /// Whether the OOM killer's victim is named.
    pub victim: bool,
    /// How much of a cgroup's memory was in use, and its limit, as the OOM killer says.
    pub limit: Option<String>,
    /// The functions of a stack, the innermost first.
    functions: Vec<String>,
    /// Whether the stacks of other CPUs have begun.
    is_past: bool,
}

/// Lines of a stack.
static STACK: Pattern = Pattern::new(concat!(
    r"\+0x|comm:|call trace|modules linked in|rip:|rip \[|hardware name|code:|rsp:|rbp:|task:|",
    r" running task|workqueue:|tainted|rcu|nmi backtrace|sending nmi|stack|",
    // The task's line before Linux 5.9: `qemu-system-x86 D ffff88105065e800     0  6902      1 0x00000080`
    r"^[^ ].{0,15} +[rdstxzi] +(?:[0-9a-f]{8}){1,2} ",
));
static STALLED: Pattern = Pattern::new(r"^(?:rcu:)?[ \t]*(?P<cpu>[0-9]{1,6})-[.!o?a-z]+: ");
/// The machine, where it is a virtual one: the log's kernel runs in a guest, whatever it runs itself.
static VIRTUAL_MACHINE: Pattern =
    Pattern::new("hardware name: (?P<name>(?:qemu|red hat kvm|openstack|vmware|innotek|google google|xen hvm)[^,(/]*)");
const ON_VM: &str = " … the kernel of a virtual machine wrote this, on hardware named ";
/// A frame, and where the CPU was; `?` marks what may not be a caller.
static FRAME: Pattern = Pattern::new(r"(?:^|[ :\]])(?P<function>[a-z_][a-z0-9_.]*)\+0x[0-9a-f]+/0x");
/// Functions of every stack of a thread that waits or that a system call brought into the kernel.
static ANY_STACK: Pattern = Pattern::new(concat!(
    "^(?:_*schedule.*|io_schedule_timeout|wait_for_(?:common|completion).*|_*wait_for_common|ret_from_fork.*|",
    "entry_syscall.*|system_call.*|do_syscall.*|kthread|_*x64_sys_.*|_*se_sys_.*|sys_.*|asm_.*|watchdog.*)$",
));
/// The name of the thread that a stack belongs to.
static COMM: Pattern = Pattern::new("^(?P<name>.*?)(?: not tainted| tainted| kdump| state:|  |$)");
static PID: Pattern = Pattern::new("pid: ?(?P<pid>[0-9]+)");
/// Lines of a dump of registers, a VMCS or a VMCB.
static DUMP: Pattern = Pattern::new(concat!(
    r"^(?:kvm_intel: |kvm_amd: |svm: |kvm: cr|extra data\[|vmcb|vmcs|ept)|\*\*\* |emulation fail|",
    r"last attempted vm|dump_invalid_vmc",
));
static REASON: Pattern = Pattern::new("reason= *(?:0x)?(?P<hex>[0-9a-f]+)");
static EXTRA_DATA: Pattern = Pattern::new(r"^extra data\[(?P<index>[01])\]: *(?:0x)?(?P<hex>[0-9a-f]+)");
static VICTIM: Pattern = Pattern::new("oom-kill:.*?task=(?P<task>.*?)(?:pid=(?P<pid>[0-9]+)|$)");

/// What was out of memory, where a line of the OOM killer says that it was a part of the host.
pub(super) fn oom_scope(text: &str) -> Option<u64> {
    let is_bound = text.contains("constraint_memory_policy") || text.contains("constraint_cpuset");
    text.contains("constraint_memcg").then_some(CGROUP_LIMIT).or(is_bound.then_some(NODE_LIMIT))
}

impl LogBlock {
    pub fn new(kind: LogBlockKind, line: LogLine, of_guest: bool) -> Self {
        let left = match kind {
            LogBlockKind::Dump | LogBlockKind::Registers | LogBlockKind::Stack => 200,
            LogBlockKind::OutOfMemory => 5000,
            LogBlockKind::EndOfQemu => 12,
        };
        Self { line, kind, of_guest, left, ..Self::default() }
    }

    /// Counts a line; false once the report is over.
    pub fn continues(&mut self) -> bool {
        self.left = self.left.saturating_sub(1);
        self.left > 0
    }

    /// Whether a line is a part of the report. Adds its figures and names to the report.
    pub fn takes(&mut self, text: &str) -> bool {
        match self.kind {
            LogBlockKind::Dump | LogBlockKind::Registers => self.takes_dump(text),
            LogBlockKind::Stack => self.takes_stack(text),
            LogBlockKind::OutOfMemory => self.takes_oom(text),
            LogBlockKind::EndOfQemu => false,
        }
    }

    /// The complete report; `None` if it is not about a guest. What hung without a VMM's thread may still have stopped
    /// a guest.
    pub fn into_line(self) -> Option<LogLine> {
        let kind = match self.line.kind {
            LogKind::Lockup if !self.of_guest => LogKind::OtherLockup,
            LogKind::Other if self.kind == LogBlockKind::OutOfMemory && self.of_guest => {
                // A group's limit or a node is not all of the host's memory.
                match (self.victim, self.line.data) {
                    (false, _) => LogKind::OutOfMemory,
                    (true, None) => LogKind::OtherKilled,
                    (true, Some(_)) => LogKind::Other,
                }
            }
            kind if self.of_guest => kind,
            LogKind::HungTask => LogKind::Unexplained,
            // Warnings of drivers are common; a bug of any part of the kernel may damage the rest.
            LogKind::KernelBug if !self.line.text.contains("WARNING: ") => LogKind::KernelBug,
            _ => return None,
        };
        let mut line = LogLine { kind, ..self.line };
        let functions = self.functions.join(" < ");
        for (before, more) in [("", self.limit.as_deref().unwrap_or_default()), ("in ", &*functions)] {
            if !more.is_empty() {
                let _ = write!(line.text, " … {before}{more}");
            }
        }
        Some(line)
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
        if let Some(gpa) = text.strip_prefix("ept: gpa: ").filter(|_| self.line.kind == LogKind::EptMisconfig) {
            let _ = write!(self.line.text, " … at the guest's address {}", sanitize(gpa, 20));
        }
        if self.line.kind == LogKind::EntryFailed {
            self.line.data = self.line.data.or_else(|| hex(&REASON.captures(text)?, "hex"));
        }
        if self.line.kind == LogKind::InternalError && self.line.data == Some(DELIVERY) {
            self.take_delivery(text);
        }
        DUMP.is_match(text)
    }

    /// Decodes `extra data[0]: 0x80000b0e`, the event that was delivered, in the form of the VMCS, and
    /// `extra data[1]: 0x31`, the exit (`kvm_prepare_event_vectoring_exit` in arch/x86/kvm/x86.c).
    fn take_delivery(&mut self, text: &str) {
        let Some(found) = EXTRA_DATA.captures(text) else { return };
        let value = hex(&found, "hex");
        if &found["index"] == "0" {
            self.delivered = self.delivered.or(value);
            return;
        }
        let Some(info) = self.delivered.take().filter(|info| info & VALID != 0) else { return };
        let what = match info >> 8 & 7 {
            0 => "interrupt",
            2 => "NMI, vector",
            3 | 6 => "exception",
            _ => "event",
        };
        let exit = value.and_then(|exit| u32::try_from(exit).ok());
        if let Some(reason) = exit.and_then(|exit| exit_reason::name(Isa::Vmx, exit)) {
            let _ = write!(self.line.text, " … {what} {} interrupted by the exit {reason}", info & 0xff);
        }
    }

    fn takes_stack(&mut self, text: &str) -> bool {
        let named = text.split_once("comm: ").or_else(|| text.split_once("task:")).map(|(_, comm)| comm);
        if let Some(comm) = named.or_else(|| text.contains(" running task").then_some(text)) {
            self.take_thread(comm, text);
        }
        // A frame in KVM's modules.
        self.of_guest |= text.contains("+0x") && text.contains("[kvm");
        self.take_function(text);
        // RCU names the CPU in the next line: `rcu: \t18-....: (2099 ticks this GP)`.
        let is_open = self.line.text.ends_with(" on CPU") || self.line.text.ends_with("tasks:");
        if let Some(found) = STALLED.captures(text).filter(|_| is_open) {
            let _ = write!(self.line.text, " {}", &found["cpu"]);
        }
        if let Some(found) = VIRTUAL_MACHINE.captures(text).filter(|_| !self.line.text.contains(ON_VM)) {
            let _ = write!(self.line.text, "{ON_VM}{}", sanitize(found["name"].trim(), 60));
        }
        STACK.is_match(text)
    }

    /// Takes the function of a frame, while the stack belongs to the task: stacks of other CPUs follow.
    fn take_function(&mut self, text: &str) {
        self.is_past |= !self.functions.is_empty() && (text.contains("nmi backtrace") || text.contains("sending nmi"));
        let is_full = self.is_past || self.functions.len() >= MAX_FUNCTIONS;
        let found = FRAME.captures(text).filter(|_| !is_full && !text.contains("? "));
        let function = found.as_ref().and_then(|found| group(found, "function"));
        if let Some(function) = function.filter(|name| !ANY_STACK.is_match(name)) {
            let function = sanitize(function, 64);
            if self.functions.last() != Some(&function) {
                self.functions.push(function);
            }
        }
    }

    /// Takes the thread that the stack belongs to, if it is a VMM's.
    fn take_thread(&mut self, comm: &str, text: &str) {
        if !begins_with_vmm(comm) {
            return;
        }
        self.of_guest = true;
        self.line.vcpu = self.line.vcpu.or_else(|| begins_with_vcpu(comm));
        self.line.pid = self.line.pid.or_else(|| pid(&PID.captures(text)?, "pid"));
        let found = COMM.captures(comm);
        let name = found.as_ref().and_then(|found| group(found, "name")).unwrap_or_default().trim();
        if !self.line.text.to_ascii_lowercase().contains(name) {
            let name = sanitize(name, 16).replace("/kvm", "/KVM").replace("cpu ", "CPU ");
            let _ = write!(self.line.text, " … Comm: {name}");
        }
    }

    fn takes_oom(&mut self, text: &str) -> bool {
        if let Some((usage, _)) = text.split_once(", failcnt").filter(|(usage, _)| usage.starts_with("memory: usage")) {
            self.limit = Some(sanitize(usage, 80).replace("kb", " kB"));
        }
        if let Some(victim) = VICTIM.captures(text) {
            self.line.guest = of_scope(text).or(self.line.guest.take());
            self.line.data = oom_scope(text);
            if let Some(task) = group(&victim, "task").filter(|task| begins_with_vmm(task)) {
                self.of_guest = true;
                self.line.kind = LogKind::KilledForMemory;
                self.line.pid = pid(&victim, "pid");
                let pid = self.line.pid.map_or_else(String::new, |pid| format!(", PID {pid}"));
                let _ = write!(self.line.text, " … killed: {}{pid}", sanitize(task.trim_end_matches(','), 16));
            }
        }
        !text.starts_with("kvm")
    }
}
