//! Parses one line of a trace: task, CPU, time, event and its text.

/// A line that holds an event.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct TraceLine<'a> {
    /// The task's name; it can contain spaces (`CPU 0/KVM`).
    pub comm: &'a str,
    /// Its thread id.
    pub tid: i32,
    /// Its process id, where the line has it.
    pub pid: Option<i32>,
    /// The CPU.
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

/// Parses a line of ftrace, `trace-cmd report` or `perf script`.
///
/// ```text
/// CPU 1/KVM-131     [001] d..1.    58.246573: kvm_exit: vcpu 1 reason npf …       ftrace, trace-cmd
/// CPU 1/KVM-131   (    120) [001] d..1.    58.246573: kvm_exit: …                 with the record-tgid option
/// CPU 1/KVM   131 [000]    12.108283:           kvm:kvm_exit: vcpu 1 reason npf … perf script
/// CPU 1/KVM   120/131 [000]    12.108283:       kvm:kvm_exit: …                   perf script -F pid,tid
/// [000]    12.108283:          kvm:kvm_exit: …                                    perf script -F cpu,time,event,trace
/// CPU 1/KVM    12.108283:          kvm:kvm_exit: …                                perf script -F comm,time,event,trace
/// CPU 1/KVM-131     [001] kvm_exit: vcpu 1 reason npf …                            cut down for a document or an issue
/// ```
pub(super) fn parse(line: &str) -> Option<TraceLine<'_>> {
    let (before, rest, time) = match timestamp(line) {
        Some((before, rest, time)) => (before, rest, Some(time)),
        None => {
            let (before, rest) = line.split_at(line.find("kvm_")?);
            let before = before.trim_end().trim_end_matches("kvm:").trim_end();
            // A time in ticks of a clock (`trace_clock` x86-tsc, counter) is a whole number, without a unit.
            let (task, last) = before.rsplit_once(' ').unwrap_or(("", before));
            let is_ticks =
                last.strip_suffix(':').is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
            (if is_ticks { task.trim_end() } else { before }, rest, None)
        }
    };
    let rest = rest.trim_start();
    let (event, text) = rest.split_once(": ").or_else(|| Some((rest.trim_end().strip_suffix(':')?, "")))?;
    let event = event.trim_end_matches(':').rsplit(':').next()?;
    let (task, cpu, flags) = task_cpu_flags(before);
    let (task, text) = (task.trim(), text.trim());
    let is_name = event.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') && (1..=64).contains(&event.len());
    if !is_name || time.is_none() && !(is_kernels(event, text, task) && matches!(flags.len(), 0 | 4..=6)) {
        return None;
    }
    let (of_cpu, is_of_perf) = (i32::try_from(cpu).ok().map(|cpu| cpu + 1), time.is_some() && rest.starts_with("kvm:"));
    let (comm, tid, pid) = match task {
        // `perf script -F cpu,time,event,trace` omits the task: each CPU then stands for a thread.
        "" if flags.is_empty() || time.is_none() => ("", of_cpu?, None),
        // A task with a name alone has no id: its CPU stands for it, too.
        task => task_ids(task).or(of_cpu.filter(|_| is_of_perf).map(|tid| (task, tid, None)))?,
    };
    // The third flag is the kind of interrupt (Documentation/trace/ftrace.rst, "irqs-off … hardirq/softirq").
    let in_interrupt = flags.as_bytes().get(2).is_some_and(|c| b"hHsSzZ".contains(c));
    Some(TraceLine { comm, tid, pid, cpu, in_interrupt, time, event, text })
}

/// Whether the kernel prints this text of an event. Without it, an event without a time is prose.
fn is_kernels(event: &str, text: &str, task: &str) -> bool {
    match event {
        "kvm_exit" | "kvm_nested_vmexit" => {
            text.contains("reason ") && text.contains(" rip ") || text.contains("SR_EC: 0x")
        }
        "kvm_entry" => text.starts_with("vcpu "),
        "kvm_pio" => text.starts_with("pio_"),
        "kvm_mmio" => text.starts_with("mmio "),
        "kvm_msr" => text.starts_with("msr_"),
        "kvm_userspace_exit" | "kvm_nested_vmexit_inject" => text.starts_with("reason "),
        "kvm_nested_vmrun" | "kvm_nested_vmenter" => text.starts_with("rip: 0x"),
        "kvm_page_fault" => text.contains("address ") && text.contains(" error_code "),
        "kvm_inj_exception" => text.starts_with('#'),
        "kvm_halt_poll_ns" => text.contains("halt_poll_ns "),
        // The address of the instruction, and its bytes.
        "kvm_emulate_insn" => text.split_once(':').is_some_and(|(base, _)| u64::from_str_radix(base, 16).is_ok()),
        _ => event.starts_with("kvm_") && !task.is_empty() && !text.is_empty(),
    }
}

/// Finds `58.246573:`. Returns the text before it, that after it, and nanoseconds.
fn timestamp(line: &str) -> Option<(&str, &str, u64)> {
    // A task's name can look like a time. A few candidates are tried.
    line.match_indices(": ").take(8).find_map(|(colon, _)| {
        let (before, after) = line.split_at(colon);
        let start = before.rfind([' ', '\t']).map_or(0, |i| i + 1);
        Some((before.get(..start)?, after.get(1..)?, seconds(before.get(start..)?)?))
    })
}

/// `58.246573` in nanoseconds.
fn seconds(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.')?;
    let digits = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    if !digits || whole.len() > 10 || !(3..=9).contains(&fraction.len()) {
        return None;
    }
    let scale = 10u64.pow(9 - fraction.len() as u32);
    whole.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(fraction.parse::<u64>().ok()? * scale)
}

/// Brackets that are tried before the time of a line.
const MAX_BRACKETS: usize = 16;

/// Splits the start of a line, up to the time, into task, CPU and flags.
fn task_cpu_flags(before: &str) -> (&str, u32, &str) {
    // A task's name has a bracket or two, a hostile line millions.
    let found = before.rmatch_indices('[').take(MAX_BRACKETS).find_map(|(open, _)| {
        let (digits, flags) = before.get(open + 1..)?.split_once(']')?;
        let cpu = number(digits).filter(|_| digits.len() <= 5)?;
        Some((before.get(..open)?, cpu.cast_unsigned(), flags.trim()))
    });
    // `perf script -F comm,tid,time,event,trace` omits the CPU.
    found.unwrap_or((before, 0, ""))
}

/// Name, thread id and process id of `CPU 1/KVM-131`, `CPU 1/KVM-131 (120)`, `CPU 1/KVM 131`, `CPU 1/KVM 120/131`.
fn task_ids(task: &str) -> Option<(&str, i32, Option<i32>)> {
    let mut task = task.trim();
    let mut pid = None;
    if let Some((rest, inside)) = task.strip_suffix(')').and_then(|t| t.rsplit_once('(')) {
        pid = number(inside.trim());
        // ftrace prints "(-------)" for an unknown process.
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

/// The number in `CPU:1 [LOST 123 EVENTS]` of ftrace and trace-cmd.
pub(super) fn lost(line: &str) -> Option<u64> {
    let (before, rest) = line.split_once("[LOST ")?;
    let count = rest.split_once(" EVENTS]")?.0;
    if !before.trim_start().to_ascii_uppercase().starts_with("CPU") {
        return None;
    }
    // ftrace prints "[LOST EVENTS]" if it does not know the number.
    count.trim().parse().ok()
}
