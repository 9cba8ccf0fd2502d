//! One line of a trace, taken apart: who, where, when, which event, and its text.

/// A line that holds an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Line<'a> {
    /// The task's name; it may hold blanks (`CPU 0/KVM`).
    pub comm: &'a str,
    /// Its thread.
    pub tid: i32,
    /// Its process, where the line has it.
    pub pid: Option<i32>,
    /// The CPU.
    pub cpu: u32,
    /// Whether an interrupt had the CPU, where the line has the flags of ftrace.
    pub in_interrupt: bool,
    /// Nanoseconds.
    pub time: u64,
    /// The event without its group: `kvm_exit`.
    pub event: &'a str,
    /// What follows.
    pub text: &'a str,
}

/// Reads a line of ftrace, `trace-cmd report` or `perf script`.
///
/// ```text
/// CPU 1/KVM-131     [001] d..1.    58.246573: kvm_exit: vcpu 1 reason npf …       ftrace, trace-cmd
/// CPU 1/KVM-131   (    120) [001] d..1.    58.246573: kvm_exit: …                 with the record-tgid option
/// CPU 1/KVM   131 [000]    12.108283:           kvm:kvm_exit: vcpu 1 reason npf … perf script
/// CPU 1/KVM   120/131 [000]    12.108283:       kvm:kvm_exit: …                   perf script -F pid,tid
/// [000]    12.108283:          kvm:kvm_exit: …                                    perf script -F cpu,time,event,trace
/// ```
pub(super) fn parse(line: &str) -> Option<Line<'_>> {
    let (time_at, after_time, time) = timestamp(line)?;
    let (event, text) =
        after_time.trim_start().split_once(": ").or_else(|| Some((after_time.trim().strip_suffix(':')?, "")))?;
    let event = event.trim_end_matches(':').rsplit(':').next()?;
    if event.is_empty() || event.len() > 64 || !event.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        return None;
    }
    let (task, cpu, flags) = place(line.get(..time_at)?)?;
    let (comm, tid, pid) = match task.trim() {
        // `perf script -F cpu,time,event,trace` leaves the task out: a CPU then stands for the thread that it ran.
        "" if flags.is_empty() => ("", i32::try_from(cpu).ok()? + 1, None),
        task => who(task)?,
    };
    // The third flag is the kind of interrupt (Documentation/trace/ftrace.rst, "irqs-off … hardirq/softirq").
    let in_interrupt = flags.as_bytes().get(2).is_some_and(|c| b"hHsSzZ".contains(c));
    Some(Line { comm, tid, pid, cpu, in_interrupt, time, event, text: text.trim() })
}

/// Whether mail has cut an event's line here, so that the next goes on: behind the time, behind the event's name, or between a
/// field and its value.
pub(super) fn is_cut(line: &str) -> bool {
    let last = line.trim_end().rsplit([' ', '\t']).next().unwrap_or("");
    let of_kvm =
        |empty: bool| parse(line).is_some_and(|l| l.event.starts_with("kvm_") && (!empty || l.text.is_empty()));
    if CUT_BEHIND.contains(&last) {
        return of_kvm(false);
    }
    last.strip_suffix(':').is_some_and(|word| seconds(word).is_some() || of_kvm(true))
}

/// Words that no kvm event's text ends with.
const CUT_BEHIND: &[&str] = &[
    "reason",
    "vcpu",
    "rip",
    "info",
    "info1",
    "info2",
    "intr_info",
    "error_code",
    "at",
    "size",
    "count",
    "val",
    "len",
    "gpa",
    "PC:",
    "=",
];

/// Finds `58.246573:`; its place, what follows, and nanoseconds.
fn timestamp(line: &str) -> Option<(usize, &str, u64)> {
    let mut from = 0;
    // A name could look like a time; the first that is followed by an event is taken, and few are tried.
    for _ in 0..8 {
        let colon = from + line.get(from..)?.find(": ")?;
        let before = line.get(..colon)?;
        let start = before.rfind([' ', '\t']).map_or(0, |i| i + 1);
        if let Some(time) = before.get(start..).and_then(seconds) {
            return Some((start, line.get(colon + 1..)?, time));
        }
        from = colon + 1;
    }
    None
}

/// `58.246573` in nanoseconds.
fn seconds(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.')?;
    let digits = |t: &str| !t.is_empty() && t.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || whole.len() > 10 || !(3..=9).contains(&fraction.len()) {
        return None;
    }
    let scale = 10u64.pow(9 - fraction.len() as u32);
    whole.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(fraction.parse::<u64>().ok()? * scale)
}

/// The task's part, the CPU, the flags.
fn place(before: &str) -> Option<(&str, u32, &str)> {
    let mut end = before.len();
    while let Some(open) = before.get(..end)?.rfind('[') {
        let inner = before.get(open + 1..)?;
        if let Some((digits, flags)) = inner.split_once(']')
            && !digits.is_empty()
            && digits.len() <= 5
            && digits.bytes().all(|b| b.is_ascii_digit())
        {
            return Some((before.get(..open)?, digits.parse().ok()?, flags.trim()));
        }
        end = open;
    }
    // `perf script -F comm,tid,time,event,trace` leaves the CPU out.
    Some((before, 0, ""))
}

/// Name, thread and process of `CPU 1/KVM-131`, `CPU 1/KVM-131 (120)`, `CPU 1/KVM 131`, `CPU 1/KVM 120/131`.
fn who(task: &str) -> Option<(&str, i32, Option<i32>)> {
    let mut task = task.trim();
    let mut pid = None;
    if let Some((rest, inside)) = task.strip_suffix(')').and_then(|t| t.rsplit_once('(')) {
        pid = number(inside.trim());
        // ftrace prints "(-------)" for a process that it does not know.
        if pid.is_some() || inside.trim().chars().all(|c| c == '-') {
            task = rest.trim_end();
        }
    }
    let digits = task.len() - task.bytes().rev().take_while(u8::is_ascii_digit).count();
    let tid = number(task.get(digits..)?)?;
    let rest = task.get(..digits)?;
    if let Some(comm) = rest.strip_suffix('-').or_else(|| rest.ends_with([' ', '\t']).then_some(rest)) {
        return Some((comm.trim(), tid, pid));
    }
    let (comm, process) = rest.strip_suffix('/')?.rsplit_once([' ', '\t'])?;
    Some((comm.trim(), tid, number(process)))
}

fn number(digits: &str) -> Option<i32> {
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) { None } else { digits.parse().ok() }
}

/// `CPU:1 [LOST 123 EVENTS]` of ftrace and trace-cmd: how many.
pub(super) fn lost(line: &str) -> Option<u64> {
    let (before, rest) = line.split_once("[LOST ")?;
    let count = rest.split_once(" EVENTS]")?.0;
    if !before.trim_start().to_ascii_uppercase().starts_with("CPU") {
        return None;
    }
    // ftrace says "[LOST EVENTS]" where it does not know how many.
    count.trim().parse().ok()
}
