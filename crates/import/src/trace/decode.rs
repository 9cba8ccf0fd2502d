//! Decodes the text of an event, as all kernels print it.

use super::line::TraceLine;
use engine::pairing::{EventKind, LeftFor, Task, TracedEvent};
use kvm::Space;
use kvm::exit_reason::{self, arm64_code, guess_isa};
use kvm::isa::Isa;
use kvm::thread_name::vcpu_index;
use sample::ExitCell;
use std::collections::HashMap;
use std::str::FromStr;

/// Limit of different exit reasons in one file. Kernels know about 130.
const MAX_REASONS: usize = 1024;

/// Decodes lines and remembers the exit reasons found.
#[derive(Debug, Default)]
pub(super) struct TraceDecoder {
    reasons: HashMap<String, (Isa, u32)>,
    /// Names that no table knows. The position is used as the code.
    unknown: Vec<String>,
    isa: Isa,
    /// Exits with a reason beyond [`MAX_REASONS`].
    pub beyond: u64,
    /// Whether exits name the ports, as in a trace without `kvm_pio`.
    pub ports_of_exits: bool,
    /// Whether `sched_wakeup` tells who woke a thread, as in a trace without `sched_waking`.
    pub wakeups: bool,
}

impl TraceDecoder {
    /// Gives exits the names of reasons that no built-in table knows.
    pub fn name(&self, exits: &mut [ExitCell]) {
        for cell in exits.iter_mut().filter(|cell| cell.isa == Isa::Other(0)) {
            cell.name = self.unknown.get(cell.code as usize).cloned().or(cell.name.take());
        }
    }

    /// Decodes the events of one line: none if it is of no interest, two for a `sched_switch` and for an exit that
    /// names a port. False if the event is known and its text is not.
    pub fn decode(&mut self, line: &TraceLine, mut put: impl FnMut(TracedEvent)) -> bool {
        let mut emit = |tid: i32, pid: i32, kind: EventKind| {
            put(TracedEvent { tid, pid, time: line.time.unwrap_or(0), cpu: line.cpu, kind });
        };
        let text = line.text;
        let kind = match line.event {
            "kvm_exit" => {
                let exit = self.exit(text);
                if exit.is_none() && reason(text).is_some() {
                    self.beyond += 1;
                    return true;
                }
                exit
            }
            "kvm_entry" => Some(EventKind::Entry { vcpu: number(text, "vcpu ") }),
            // `pio_read at 0x608 size 4 count 1 val 0x4`
            "kvm_pio" => access(Space::Pio, text, "pio_", " at "),
            // The line of the read that completes it follows.
            "kvm_mmio" if text.starts_with("mmio unsatisfied-read ") => return true,
            // `mmio write len 4 gpa 0xfee000b0 val 0x0`
            "kvm_mmio" => access(Space::Mmio, text, "mmio ", "gpa "),
            // `msr_read 1b = 0xfee00900 (#GP)`
            "kvm_msr" => access(Space::Msr, text, "msr_", " "),
            "kvm_userspace_exit" => userspace(text),
            // `wait time 555617 ns, polling valid`
            "kvm_vcpu_wakeup" => number(text, " time ").map(|ns| EventKind::Halted { ns }),
            "sched_migrate_task" => {
                let pair = number(text, "orig_cpu=").zip(number(text, "dest_cpu="));
                pair.map(|(from, to)| EventKind::Migrated { from, to })
            }
            name @ ("sched_waking" | "sched_wakeup") if (name == "sched_waking") != self.wakeups => {
                let by = Task { tid: if line.in_interrupt { 0 } else { line.tid }, comm: comm(line.comm) };
                Some(EventKind::Waking { by })
            }
            "sched_switch" => {
                if let Some((prev, to, next)) = switch(text) {
                    emit(prev, 0, EventKind::SwitchOut { to, next });
                    emit(next.tid, 0, EventKind::SwitchIn);
                }
                return true;
            }
            _ => return true,
        };
        let read = kind.is_some();
        let tid = if line.event.starts_with("sched_") { task_id(text).unwrap_or(0) } else { line.tid };
        if let Some(kind) = kind.filter(|_| tid > 0) {
            let own = line.pid.filter(|_| tid == line.tid).unwrap_or(0);
            emit(tid, own, kind);
            if let EventKind::Exit { isa, code, .. } = kind
                && self.ports_of_exits
                && let Some(access) = port(isa, code, text)
            {
                emit(tid, own, access);
            }
        }
        read
    }

    fn exit(&mut self, text: &str) -> Option<EventKind> {
        let vcpu = text.starts_with("vcpu ").then(|| number(text, "vcpu ")).flatten();
        let (isa, code) = match arm64(text) {
            Some(code) => (Isa::Arm64, code),
            None => self.reason(reason(text)?)?,
        };
        Some(EventKind::Exit { isa, code, vcpu })
    }

    /// Instruction set and code of a reason; `None` if there are too many different ones.
    fn reason(&mut self, name: &str) -> Option<(Isa, u32)> {
        if let Some(known) = self.reasons.get(name) {
            return Some(*known);
        }
        if self.reasons.len() >= MAX_REASONS {
            return None;
        }
        let guess = match guess_isa([name.split_whitespace().next().unwrap_or(name)]) {
            Isa::Other(_) => self.isa,
            isa => isa,
        };
        self.isa = guess;
        // libtraceevent's plugin writes "UNKNOWN (131072)", some kernels write the bare number.
        let number = name.split_once('(').and_then(|(_, n)| n.strip_suffix(')')).unwrap_or(name).trim();
        let code = exit_reason::code(guess, name).or_else(|| number.parse().ok());
        let found = code.map_or((Isa::Other(0), self.unknown.len() as u32), |code| (guess, code));
        if code.is_none() {
            self.unknown.push(kvm::sanitize(name, 64));
        }
        self.reasons.insert(name.to_owned(), found);
        Some(found)
    }
}

/// The reason's name: `vcpu 1 reason npf rip 0x8141 …`, `reason IO_INSTRUCTION rip 0x7fa9ee5224e4 info 5658000b 0`.
fn reason(text: &str) -> Option<&str> {
    let rest = text.split_once("reason ")?.1;
    let end = [" rip", " info", " intr_info", " error_code"].iter().filter_map(|word| rest.find(word)).min();
    let end = end.unwrap_or(rest.len());
    rest.get(..end).map(str::trim).filter(|name| !name.is_empty() && name.len() <= 128)
}

/// `TRAP: HSR_EC: 0x0024 (DABT_LOW), PC: 0x…` (`arch/arm64/kvm/trace_arm.h`).
fn arm64(text: &str) -> Option<u32> {
    let class = hex(text, ": HSR_EC: ").or_else(|| hex(text, ": ESR_EC: "))?;
    let ret = match text.split_once(": ")?.0.trim() {
        "TRAP" => 2,
        "IRQ" => 0,
        "IL" => 3,
        other if other.contains("SERROR") => 1,
        "HYP_GONE" => 0x0bad_ca11,
        _ => return None,
    };
    Some(arm64_code(ret, u32::try_from(class).ok()?))
}

/// The port of an exit: `… info 5658000b 0` of older kernels, `… info1 0x000000005658000b info2 …`.
fn port(isa: Isa, code: u32, text: &str) -> Option<EventKind> {
    EventKind::port_of_exit(isa, code, hex(text, " info1 ").or_else(|| hex(text, " info "))?)
}

/// An access: its direction after `prefix`, its address after `mark`.
fn access(space: Space, text: &str, prefix: &str, mark: &str) -> Option<EventKind> {
    let write = match text.strip_prefix(prefix)?.split([' ', ':']).next()? {
        "read" => false,
        "write" => true,
        _ => return None,
    };
    Some(EventKind::access(space, hex(text, mark)?, write, text.contains("(#GP)")))
}

/// `reason KVM_EXIT_IO (2)`, `reason restart (4)`, `reason error (14)` (include/trace/events/kvm.h).
fn userspace(text: &str) -> Option<EventKind> {
    let (name, _) = text.strip_prefix("reason ")?.split_once('(')?;
    let number: i32 = number(text, "(")?;
    let failed = matches!(name.trim(), "restart" | "error");
    Some(EventKind::Userspace { reason: if failed { number.checked_neg()? } else { number } })
}

/// The hexadecimal number after a mark.
pub(super) fn hex(text: &str, mark: &str) -> Option<u64> {
    let text = text.split_once(mark)?.1.trim_start();
    let text = text.strip_prefix("0x").unwrap_or(text);
    u64::from_str_radix(text.split(|c: char| !c.is_ascii_hexdigit()).next()?, 16).ok()
}

/// The number after a mark.
fn number<T: FromStr>(text: &str, mark: &str) -> Option<T> {
    let rest = text.split_once(mark)?.1;
    rest.split(|c: char| !c.is_ascii_digit() && c != '-').next()?.parse().ok()
}

/// The thread of a scheduler event: ` pid=131 `, or `CPU 0/KVM:131 [120]` of older trace-cmd.
fn task_id(text: &str) -> Option<i32> {
    number(text, " pid=").or_else(|| named(text).map(|task| task.1))
}

/// `CPU 0/KVM:131 [120] …`: name, thread, the rest.
fn named(text: &str) -> Option<(&str, i32, &str)> {
    let (task, rest) = text.split_once(" [")?;
    let (name, tid) = task.rsplit_once(':')?;
    Some((name.trim(), tid.trim().parse().ok()?, rest))
}

/// The vCPU threads that a scheduler event names: `prev_comm=CPU 0/KVM prev_pid=131 …`, or `CPU 0/KVM:131 [120] …`.
pub(super) fn vcpu_threads(text: &str) -> impl Iterator<Item = (&str, i32)> {
    let keyed = text.split("comm=").skip(1).filter_map(|task| {
        let (name, _) = task.split_once("pid=")?.0.rsplit_once(' ')?;
        Some((name, number(task, "pid=")?))
    });
    let older = text.split("==>").filter_map(named).map(|(name, tid, _)| (name, tid));
    keyed.chain(older).filter(|(name, _)| vcpu_index(name).is_some())
}

/// The thread that left the CPU, for what, and the task that replaced it.
fn switch(text: &str) -> Option<(i32, LeftFor, Task)> {
    let (left, right) = text.split_once("==>")?;
    if let Some(prev) = number(left, "prev_pid=") {
        let state = left.split_once("prev_state=")?.1;
        let name = right.split_once("next_comm=").and_then(|(_, r)| r.split_once(" next_pid=")).map_or("", |(n, _)| n);
        let next = Task { tid: number(right, "next_pid=")?, comm: comm(name) };
        return Some((prev, LeftFor::from_letters(state), next));
    }
    let (_, prev, rest) = named(left)?;
    let state = rest.split_once(']')?.1.trim();
    let (name, next, _) = named(right)?;
    Some((prev, LeftFor::from_letters(state), Task { tid: next, comm: comm(name) }))
}

fn comm(name: &str) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes.iter_mut().zip(name.bytes().take(15)).for_each(|(to, from)| *to = from);
    bytes
}
