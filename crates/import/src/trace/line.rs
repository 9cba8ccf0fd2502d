//! Parses one line of a trace: task, CPU, time, event and its text.

use kvm::pattern::{Captures, Pattern, group, number};

/// An event as one line of a trace has it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct TraceLine<'a> {
    /// The task's name; it can contain spaces (`CPU 0/KVM`).
    pub comm: &'a str,
    /// Its thread id; 1 in a line without one.
    pub tid: i32,
    /// Its process id, where the line has it.
    pub pid: Option<i32>,
    pub cpu: u32,
    /// Whether the event came from an interrupt, by ftrace's flags; false without flags.
    pub in_interrupt: bool,
    /// Nanoseconds, where the line has a time.
    pub time: Option<u64>,
    /// The event without its group: `kvm_exit`.
    pub event: &'a str,
    /// The event's fields as printed.
    pub text: &'a str,
}

/// ```text
/// CPU 1/KVM-131   [001] d..1.    58.246573: kvm_exit: vcpu 1 reason npf …           ftrace, trace-cmd
/// CPU 1/KVM-131   (    120) [001] d..1.    58.246573: kvm_exit: …                   with the record-tgid option
/// CPU 1/KVM   131 [000]    12.108283:           kvm:kvm_exit: vcpu 1 reason npf …   perf script
/// ```
static TIMED: Pattern = Pattern::new(concat!(
    r"^[ \t]*(?P<comm>.*?)(?:-| +)(?P<tid>[0-9]+) +(?:\( *(?:(?P<pid>[0-9]+)|-+)\) +)?",
    r"\[(?P<cpu>[0-9]+)\]",
    r"(?: (?P<flags>[^ ]{4,6}))? +(?P<s>[0-9]{1,10})\.(?P<fraction>[0-9]{3,9}):",
    r" +(?:[a-z]+:)?(?P<event>[a-z0-9_]{1,64}):[ \t]*(?P<text>.*?)[ \t]*$",
));
/// A kvm event alone, as `trace-cmd report` cut down to it.
static UNTIMED: Pattern = Pattern::new(r"^(?P<event>kvm_[a-z0-9_]{1,60}): +(?P<text>.*?)[ \t]*$");
static LOST: Pattern = Pattern::new(r"^[ \t]*CPU:[0-9]+ \[LOST (?P<lost>[0-9]+) EVENTS\]");

/// Parses a line of ftrace, `trace-cmd report` or `perf script`.
pub(super) fn parse(line: &str) -> Option<TraceLine<'_>> {
    let Some(found) = TIMED.captures(line) else {
        let found = UNTIMED.captures(line)?;
        return Some(TraceLine {
            tid: 1,
            event: text_of(&found, "event"),
            text: text_of(&found, "text"),
            ..TraceLine::default()
        });
    };
    let fraction = group(&found, "fraction")?;
    let ns = fraction.parse::<u64>().ok()? * 10_u64.pow(9 - fraction.len() as u32);
    // The third flag is the kind of interrupt (Documentation/trace/ftrace.rst, "irqs-off …
    // hardirq/softirq").
    let flag = text_of(&found, "flags").as_bytes().get(2);
    Some(TraceLine {
        comm: text_of(&found, "comm"),
        tid: number(&found, "tid")?,
        pid: number(&found, "pid"),
        cpu: number(&found, "cpu")?,
        in_interrupt: flag.is_some_and(|flag| b"hHsSzZ".contains(flag)),
        time: Some(
            number::<u64>(&found, "s")?
                .checked_mul(1_000_000_000)?
                .checked_add(ns)?,
        ),
        event: text_of(&found, "event"),
        text: text_of(&found, "text"),
    })
}

/// The text that a group matched; empty if it matched none.
fn text_of<'a>(found: &Captures<'a>, name: &str) -> &'a str {
    group(found, name).unwrap_or_default()
}

/// The number in `CPU:1 [LOST 123 EVENTS]` of ftrace and trace-cmd.
pub(super) fn lost(line: &str) -> Option<u64> {
    number(&LOST.captures(line)?, "lost")
}
