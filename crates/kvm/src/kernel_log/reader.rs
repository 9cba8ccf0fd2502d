//! Reads a log line by line.

use super::forms::{begins_with_vcpu, begins_with_vmm, recognise};
use super::message::message;
use super::{LogKind, LogLine};
use crate::guest_name::of_log_line;
use crate::pattern::{Pattern, group, hex, pid};
use crate::sanitize;
use std::fmt::Write as _;

/// Length up to which a line is read, and of what is kept of it, characters.
const MAX_LINE: usize = 2048;
const MAX_KEPT: usize = 400;
/// Lines that a report may have after its first.
const MAX_REPORT_LINES: u32 = 200;
/// Functions of a stack that are kept: the innermost ones.
const MAX_FUNCTIONS: usize = 8;

/// Lines of a stack.
static STACK: Pattern = Pattern::new(concat!(
    r"\+0x|comm:|call trace|modules linked in|rip:|rip \[|hardware name|code:|rsp:|rbp:|task:|",
    r" running task|workqueue:|tainted|rcu|nmi backtrace|sending nmi|stack",
));
/// A frame, and where the CPU was; `?` marks what may not be a caller.
static FRAME: Pattern =
    Pattern::new(r"(?:^|[ :\]])(?P<function>[a-z_][a-z0-9_.]*)\+0x[0-9a-f]+/0x");
/// Functions of every stack of a thread that waits or that a system call brought into the kernel.
static ANY_STACK: Pattern = Pattern::new(concat!(
    "^(?:_*schedule.*|io_schedule_timeout|wait_for_(?:common|completion).*|_*wait_for_common|",
    "ret_from_fork.*|entry_syscall.*|system_call.*|do_syscall.*|kthread|_*x64_sys_.*|",
    "_*se_sys_.*|sys_.*|asm_.*|watchdog.*)$",
));
/// The name of the thread that a stack belongs to.
static COMM: Pattern =
    Pattern::new("(?:comm: |task:)(?P<name>.*?)(?: not tainted| tainted| kdump| state:|  |$)");
static PID: Pattern = Pattern::new("pid: ?(?P<pid>[0-9]+)");
/// The reason in the dump of a VMCS.
static REASON: Pattern = Pattern::new("reason= *(?:0x)?(?P<hex>[0-9a-f]+)");

/// A report of several lines that is being read.
#[derive(Debug)]
struct LogReport {
    /// The line that it will be reported as.
    line: LogLine,
    /// Whether it is known to be about a guest; the stack may show that later.
    of_guest: bool,
    lines_left: u32,
    /// The functions of a stack, the innermost first.
    functions: Vec<String>,
    /// Whether the stacks of other CPUs have begun.
    is_past: bool,
}

impl LogReport {
    /// Whether lines of a kind have further lines below them.
    fn begins_with(kind: LogKind) -> bool {
        matches!(
            kind,
            LogKind::Lockup
                | LogKind::HungTask
                | LogKind::EntryFailed
                | LogKind::InternalError
                | LogKind::KilledForMemory
        )
    }

    /// Whether a message belongs to the report. Adds its figures and names to the report.
    fn takes(&mut self, text: &str) -> bool {
        self.lines_left = self.lines_left.saturating_sub(1);
        match self.line.kind {
            LogKind::Lockup | LogKind::HungTask => {
                self.take_thread(text);
                self.take_function(text);
                self.lines_left > 0 && STACK.is_match(text)
            }
            LogKind::EntryFailed if self.line.data.is_none() => {
                self.line.data = REASON.captures(text).and_then(|found| hex(&found, "hex"));
                self.lines_left > 0 && self.line.data.is_none()
            }
            _ => self.lines_left > 0,
        }
    }

    /// Whether an event is a part of the report: the dump after a failure, or the second line about
    /// a kill.
    fn takes_event(&mut self, line: &LogLine, lower: &str) -> bool {
        match (self.line.kind, line.kind) {
            (LogKind::EntryFailed | LogKind::InternalError, LogKind::EntryFailed) => {
                line.pid.is_none()
            }
            (LogKind::KilledForMemory, LogKind::KilledForMemory) if line.pid == self.line.pid => {
                self.line.data = self.line.data.or(line.data);
                if let Some((_, size)) = lower.split_once("anon-rss:") {
                    let size = sanitize(size.split(',').next().unwrap_or_default(), 20);
                    let _ = write!(self.line.text, " … it had {size} of memory");
                }
                true
            }
            _ => false,
        }
    }

    /// Takes the thread that the stack belongs to, if it is a VMM's. A frame in KVM's modules shows
    /// a guest, too.
    fn take_thread(&mut self, text: &str) {
        self.of_guest |= text.contains("+0x") && text.contains("[kvm");
        let Some(found) = COMM.captures(text) else {
            return;
        };
        let name = group(&found, "name").unwrap_or_default();
        if self.is_past || !begins_with_vmm(name) {
            return;
        }
        self.of_guest = true;
        self.line.vcpu = self.line.vcpu.or_else(|| begins_with_vcpu(name));
        self.line.pid = self.line.pid.or_else(|| pid(&PID.captures(text)?, "pid"));
        if !self.line.text.to_ascii_lowercase().contains(name.trim()) {
            let name = sanitize(name.trim(), 16)
                .replace("/kvm", "/KVM")
                .replace("cpu ", "CPU ");
            let _ = write!(self.line.text, " … Comm: {name}");
        }
    }

    /// Takes the function of a frame, while the stack belongs to the task: stacks of other CPUs
    /// follow.
    fn take_function(&mut self, text: &str) {
        self.is_past |= !self.functions.is_empty()
            && (text.contains("nmi backtrace") || text.contains("sending nmi"));
        if self.is_past || self.functions.len() >= MAX_FUNCTIONS || text.contains("? ") {
            return;
        }
        let Some(found) = FRAME.captures(text) else {
            return;
        };
        let function = sanitize(group(&found, "function").unwrap_or_default(), 64);
        if !ANY_STACK.is_match(&function) && self.functions.last() != Some(&function) {
            self.functions.push(function);
        }
    }

    /// The complete report; `None` if it is not about a guest.
    fn into_line(mut self) -> Option<LogLine> {
        if !self.functions.is_empty() {
            let _ = write!(self.line.text, " … in {}", self.functions.join(" < "));
        }
        if self.of_guest { Some(self.line) } else { None }
    }
}

/// Reads a log line by line: a report of several lines becomes one [`LogLine`].
#[derive(Debug, Default)]
pub struct LogReader {
    report: Option<LogReport>,
}

impl LogReader {
    /// Reads a line and adds the reports that it completes.
    pub fn line(&mut self, raw: &str, found: &mut Vec<LogLine>) {
        let clean = sanitize(raw.trim(), MAX_LINE);
        let message = message(&clean);
        let lower = message.text.to_ascii_lowercase();
        let text = sanitize(&clean, MAX_KEPT);
        let mut line = LogLine {
            pid: message.writer,
            time_s: message.time_s,
            text,
            ..LogLine::default()
        };
        let Some(of_guest) = recognise(&lower, &mut line) else {
            if self
                .report
                .as_mut()
                .is_some_and(|report| !report.takes(&lower))
            {
                self.finish(found);
            }
            return;
        };
        if self
            .report
            .as_mut()
            .is_some_and(|report| report.takes_event(&line, &lower))
        {
            return;
        }
        self.finish(found);
        line.guest = of_log_line(&clean);
        if LogReport::begins_with(line.kind) {
            self.report = Some(LogReport {
                line,
                of_guest,
                lines_left: MAX_REPORT_LINES,
                functions: Vec::new(),
                is_past: false,
            });
        } else {
            found.push(line);
        }
    }

    /// Adds an unfinished report of several lines, at the end of a log or when it pauses.
    pub fn finish(&mut self, found: &mut Vec<LogLine>) {
        found.extend(self.report.take().and_then(LogReport::into_line));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_compiles() {
        for pattern in [&STACK, &FRAME, &ANY_STACK, &COMM, &PID, &REASON] {
            assert!(pattern.regex().is_some(), "{}", pattern.source);
        }
    }
}
