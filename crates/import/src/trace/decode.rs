//! Decodes the text of an event, as all kernels print it.

use super::line::TraceLine;
use crate::guest::UNKNOWN_PID;
use engine::pairing::{EventKind, LeftFor, Task, TracedEvent};
use kvm::Space;
use kvm::exit_reason::{self, arm64_code, guess_isa};
use kvm::isa::Isa;
use kvm::pattern::{Pattern, number};
use sample::ExitCell;
use std::collections::HashMap;
use std::str::FromStr;

/// Limit of different exit reasons in one file. Kernels know about 130.
const MAX_REASONS: usize = 1024;

/// `prev_comm=CPU 0/KVM prev_pid=131 prev_prio=120 prev_state=S ==> next_comm=a next_pid=7
/// next_prio=120`, or `CPU 0/KVM:131 [120] S ==> a:7 [120]` of libtraceevent's plugin.
static SWITCH: Pattern = Pattern::new(concat!(
    r"^(?:prev_comm=)?(?P<prev>.*)(?: prev_pid=|:)(?P<prev_tid>[0-9]+) ",
    r"(?:prev_prio=[0-9-]+ prev_state=|\[[0-9-]+\] )",
    r"(?P<state>[^ ]+) ==> (?:next_comm=)?(?P<next>.*)(?: next_pid=|:)(?P<next_tid>[0-9]+) ",
));
/// The thread that another event of the scheduler is about.
static TASK: Pattern =
    Pattern::new(r"^(?:comm=)?(?P<comm>.*?)(?: pid=|:)(?P<tid>[0-9]+) (?:prio=|\[)");

/// Decodes lines and remembers the exit reasons found.
#[derive(Debug, Default)]
pub(super) struct TraceDecoder {
    /// Instruction set and code of each reason, by its printed name.
    reasons: HashMap<String, (Isa, u32)>,
    /// The instruction set, once a reason shows it.
    isa: Isa,
    /// Exits with a reason beyond [`MAX_REASONS`].
    pub beyond: u64,
}

impl TraceDecoder {
    /// Gives exits the names of reasons that no built-in table knows.
    pub fn name(&self, exits: &mut [ExitCell]) {
        for cell in exits.iter_mut().filter(|cell| cell.isa == Isa::UNKNOWN) {
            let known = self
                .reasons
                .iter()
                .find(|(_, reason)| **reason == (cell.isa, cell.code));
            cell.name = known.map(|(name, _)| kvm::sanitize(name, 64));
        }
    }

    /// Decodes an event of KVM; `None` if it is of no interest.
    pub fn kvm_event(&mut self, line: &TraceLine<'_>) -> Option<TracedEvent> {
        let text = line.text;
        let kind = match line.event {
            "kvm_exit" => self.exit(text)?,
            "kvm_entry" => EventKind::Entry {
                vcpu: number_after(text, "vcpu "),
            },
            // `pio_read at 0x608 size 4 count 1 val 0x4`
            "kvm_pio" => access(Space::Pio, text, "pio_", " at ")?,
            // `mmio write len 4 gpa 0xfee000b0 val 0x0`; an unsatisfied read is no access yet:
            // the next event completes it.
            "kvm_mmio" => access(Space::Mmio, text, "mmio ", "gpa ")?,
            // `msr_read 1b = 0xfee00900 (#GP)`
            "kvm_msr" => access(Space::Msr, text, "msr_", " ")?,
            // `reason KVM_EXIT_IO (2)`, `reason restart (4)`, `reason error (14)`
            // (include/trace/events/kvm.h)
            "kvm_userspace_exit" => {
                let number: i32 = number_after(text, "(")?;
                let failed = text.starts_with("reason restart") || text.starts_with("reason error");
                EventKind::Userspace {
                    reason: if failed {
                        number.checked_neg()?
                    } else {
                        number
                    },
                }
            }
            // `wait time 555617 ns, polling valid`
            "kvm_vcpu_wakeup" => EventKind::Halted {
                ns: number_after(text, " time ")?,
            },
            _ => return None,
        };
        let pid = line.pid.unwrap_or(UNKNOWN_PID);
        Some(traced(line, line.tid, pid, kind))
    }

    fn exit(&mut self, text: &str) -> Option<EventKind> {
        let (isa, code) = match arm64(text) {
            Some(code) => (Isa::Arm64, code),
            None => self.reason(reason_name(text)?)?,
        };
        Some(EventKind::Exit {
            isa,
            code,
            vcpu: None,
        })
    }

    /// Instruction set and code of a reason; `None` if there are too many different ones.
    fn reason(&mut self, name: &str) -> Option<(Isa, u32)> {
        if let Some(known) = self.reasons.get(name) {
            return Some(*known);
        }
        if self.reasons.len() >= MAX_REASONS {
            self.beyond += 1;
            return None;
        }
        if let isa @ (Isa::Vmx | Isa::Svm) =
            guess_isa([name.split_whitespace().next().unwrap_or(name)])
        {
            self.isa = isa;
        }
        // libtraceevent's plugin writes "UNKNOWN (131072)", some kernels write the bare number.
        let number = name
            .split_once('(')
            .and_then(|(_, n)| n.strip_suffix(')'))
            .unwrap_or(name);
        let code = exit_reason::code(self.isa, name).or_else(|| number.parse().ok());
        let reason = match code {
            Some(code) => (self.isa, code),
            // No built-in table knows the reason: its number in the file stands for a code.
            None => (Isa::UNKNOWN, self.reasons.len() as u32),
        };
        self.reasons.insert(name.to_owned(), reason);
        Some(reason)
    }
}

/// What happened to a thread that an event of the scheduler names.
pub(super) struct Scheduled<'a> {
    pub comm: &'a str,
    pub event: TracedEvent,
}

/// Decodes an event of the scheduler: two for a `sched_switch`, of the thread that left the CPU and
/// of the next one.
pub(super) fn scheduled<'a>(line: &TraceLine<'a>) -> Vec<Scheduled<'a>> {
    let text = line.text;
    if line.event == "sched_switch" {
        return switched(line).unwrap_or_default();
    }
    let kind = match line.event {
        "sched_migrate_task" => {
            let cpus = number_after(text, "orig_cpu=").zip(number_after(text, "dest_cpu="));
            cpus.map(|(from, to)| EventKind::Migrated { from, to })
        }
        "sched_waking" => {
            // An interrupt wakes for no task: the one on the line was only interrupted by it.
            let tid = if line.in_interrupt { 0 } else { line.tid };
            Some(EventKind::Waking {
                by: Task {
                    tid,
                    comm: comm(line.comm),
                },
            })
        }
        _ => None,
    };
    let task = kind.and_then(|kind| {
        let found = TASK.captures(text)?;
        Some(Scheduled {
            comm: found.name("comm")?.as_str(),
            event: traced(line, number(&found, "tid")?, UNKNOWN_PID, kind),
        })
    });
    task.into_iter().collect()
}

fn switched<'a>(line: &TraceLine<'a>) -> Option<Vec<Scheduled<'a>>> {
    let found = SWITCH.captures(line.text)?;
    let prev = number(&found, "prev_tid")?;
    let next = number(&found, "next_tid")?;
    let prev_name = found.name("prev")?.as_str();
    let next_name = found.name("next")?.as_str();
    let task = Task {
        tid: next,
        comm: comm(next_name),
    };
    let out = EventKind::SwitchOut {
        to: LeftFor::from_letters(&found["state"]),
        next: task,
    };
    Some(vec![
        Scheduled {
            comm: prev_name,
            event: traced(line, prev, UNKNOWN_PID, out),
        },
        Scheduled {
            comm: next_name,
            event: traced(line, next, UNKNOWN_PID, EventKind::SwitchIn),
        },
    ])
}

fn traced(line: &TraceLine<'_>, tid: i32, pid: i32, kind: EventKind) -> TracedEvent {
    TracedEvent {
        tid,
        pid,
        time: line.time.unwrap_or(0),
        cpu: line.cpu,
        kind,
    }
}

/// The reason's name: `vcpu 1 reason npf rip 0x8141 …`, `reason IO_INSTRUCTION rip 0x7fa9ee5224e4
/// info 5658000b 0`.
fn reason_name(text: &str) -> Option<&str> {
    let (_, text) = text.split_once("reason ")?;
    let name = text.split(" rip").next().unwrap_or(text).trim();
    if (1..=128).contains(&name.len()) {
        Some(name)
    } else {
        None
    }
}

/// `TRAP: HSR_EC: 0x0024 (DABT_LOW), PC: 0x…` (`arch/arm64/kvm/trace_arm.h`).
fn arm64(text: &str) -> Option<u32> {
    let class = hex_after(text, ": HSR_EC: ").or_else(|| hex_after(text, ": ESR_EC: "))?;
    let (cause, _) = text.split_once(": ")?;
    // KVM's numbers of what ended the guest's run (`ARM_EXCEPTION_*`).
    let ret = match cause {
        "TRAP" => 2,
        "IRQ" => 0,
        "IL" => 3,
        _ => return None,
    };
    Some(arm64_code(ret, u32::try_from(class).ok()?))
}

/// An access: its direction after `prefix`, its address after `mark`.
fn access(space: Space, text: &str, prefix: &str, mark: &str) -> Option<EventKind> {
    let write = match text.strip_prefix(prefix)?.split(' ').next()? {
        "read" => false,
        "write" => true,
        _ => return None,
    };
    Some(EventKind::access(
        space,
        hex_after(text, mark)?,
        write,
        text.contains("(#GP)"),
    ))
}

/// The hexadecimal number after a mark.
pub(super) fn hex_after(text: &str, mark: &str) -> Option<u64> {
    let (_, text) = text.split_once(mark)?;
    let text = text.strip_prefix("0x").unwrap_or(text);
    u64::from_str_radix(text.split(|c: char| !c.is_ascii_hexdigit()).next()?, 16).ok()
}

/// The number after a mark.
fn number_after<T: FromStr>(text: &str, mark: &str) -> Option<T> {
    let (_, text) = text.split_once(mark)?;
    let digits = text.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

/// A name as the kernel holds it: at most 15 bytes, then NUL.
fn comm(name: &str) -> [u8; 16] {
    let mut bytes = [0; 16];
    for (to, from) in bytes.iter_mut().zip(name.bytes().take(15)) {
        *to = from;
    }
    bytes
}
