//! Finds the lines of the host's kernel log that concern a guest, in the spelling of every kernel since 2.6.
//!
//! Sources: `vcpu_unimpl` and related macros in `include/linux/kvm_host.h`, `arch/x86/kvm/x86.{c,h}`, `hyperv.c`,
//! and `arch/x86/kernel/cpu/bus_lock.c`.

use super::{sanitize, untrusted_text};
use serde::{Deserialize, Serialize};

const MAX_LINES: usize = 200_000;
const MAX_FOUND: usize = 20_000;

/// What a line reports.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum LogKind {
    /// A register that KVM does not emulate; the guest got a fault.
    UnhandledMsr,
    /// The same with `ignore_msrs=1`: the guest read 0.
    IgnoredMsr,
    /// A Hyper-V register that KVM does not emulate.
    HypervMsr,
    /// A performance counter register while the guest has no virtual PMU for it.
    PerfCounter,
    /// A split lock: one instruction locked two cache lines.
    SplitLock,
    /// A bus lock.
    BusLock,
    /// KVM could not emulate an instruction.
    EmulationFailure,
    /// Another message of KVM about a vCPU, such as an APIC or timer state that KVM warns about.
    Other,
}

/// One recognised line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LogLine {
    /// Process (VMM) or, for lock traps, thread id.
    pub pid: Option<i32>,
    /// vCPU number.
    pub vcpu: Option<u32>,
    /// The register.
    pub msr: Option<u32>,
    /// Whether it was written.
    pub write: bool,
    /// The value that was written or that a read returned.
    pub data: Option<u64>,
    /// What happened.
    pub kind: LogKind,
    /// Seconds since boot, if the line has a `[  12.345678]` stamp.
    pub time_s: Option<f64>,
    /// The line, cleaned.
    pub text: String,
}

/// All recognised lines, in file order.
pub fn parse(text: &str) -> Vec<LogLine> {
    text.lines().take(MAX_LINES).filter_map(parse_line).take(MAX_FOUND).collect()
}

/// Whether a text is a kernel log: it has a recognised line, or most of its first lines have a kernel's time stamp.
pub fn looks_like(text: &str) -> bool {
    let head: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).take(40).collect();
    let stamped = head.iter().filter(|line| stamp(line).is_some() || line.contains(" kernel: ")).count();
    (stamped > 0 && stamped * 2 >= head.len()) || text.lines().take(5000).any(|line| parse_line(line).is_some())
}

/// `[592420.654337]`, anywhere in the first half of the line.
fn stamp(line: &str) -> Option<f64> {
    let (before, rest) = line.split_once('[')?;
    let (inner, _) = rest.split_once(']')?;
    let inner = inner.trim();
    let (seconds, fraction) = inner.split_once('.')?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let plain =
        before.trim().is_empty() || before.contains("kernel:") || (before.starts_with('<') && before.ends_with('>'));
    if plain && digits(seconds) && digits(fraction) { inner.parse().ok() } else { None }
}

fn parse_line(raw: &str) -> Option<LogLine> {
    // A cheap check first: most lines of a log are about something else.
    let lower: String = raw.chars().take(1024).map(|c| c.to_ascii_lowercase()).collect();
    let is_lock = lower.contains("split lock") || lower.contains("split_lock") || lower.contains("bus_lock");
    if !is_lock && !lower.contains("kvm") {
        return None;
    }
    let clean = sanitize(raw.trim(), 400);
    let mut line = LogLine {
        pid: None,
        vcpu: None,
        msr: None,
        write: false,
        data: None,
        kind: LogKind::Other,
        time_s: stamp(raw),
        text: clean,
    };
    if is_lock {
        return lock_trap(&lower, line);
    }
    header(&lower, &mut line);
    let recognised = msr(&lower, &mut line);
    if !recognised {
        if lower.contains("emulation fail") {
            line.kind = LogKind::EmulationFailure;
        } else if line.pid.is_none() || line.vcpu.is_none() {
            return None;
        }
    }
    Some(line)
}

/// `kvm [PID]: vcpu1, guest rIP: 0x…`, `kvm: PID: cpu0`.
fn header(lower: &str, line: &mut LogLine) {
    for (at, _) in lower.match_indices("kvm") {
        let rest = lower.get(at + 3..).unwrap_or_default().trim_start_matches([' ', ':', '[']);
        let digits: String = rest.chars().take_while(char::is_ascii_digit).take(10).collect();
        let after = rest.get(digits.len()..).unwrap_or_default();
        if !digits.is_empty() && after.starts_with([']', ':']) {
            line.pid = digits.parse().ok();
            let after = after.trim_start_matches([']', ':', ' ']);
            let cpu = after.strip_prefix("vcpu").or_else(|| after.strip_prefix("cpu"));
            line.vcpu = cpu
                .and_then(|cpu| cpu.chars().take_while(char::is_ascii_digit).take(6).collect::<String>().parse().ok());
            return;
        }
    }
}

/// `unhandled rdmsr: 0x611 [data 0x…]`, `Unhandled WRMSR(0x…) = 0x…`.
fn msr(lower: &str, line: &mut LogLine) -> bool {
    let Some(at) = lower.find("rdmsr").or_else(|| lower.find("wrmsr")) else { return false };
    line.write = lower.get(at..).is_some_and(|rest| rest.starts_with("wrmsr"));
    let before = lower.get(..at).unwrap_or_default();
    let rest = lower.get(at + 5..).unwrap_or_default().trim_start_matches([':', ' ', '(']);
    line.msr = leading_number(rest).and_then(|value| u32::try_from(value).ok());
    let data = rest.split_once("data ").or_else(|| rest.split_once("= ")).map(|(_, data)| data);
    line.data = data.and_then(leading_number);
    line.kind = if before.contains("hyper-v") {
        LogKind::HypervMsr
    } else if before.contains("perfctr") {
        LogKind::PerfCounter
    } else if before.contains("ignored") {
        LogKind::IgnoredMsr
    } else if before.contains("unhandled") || before.contains("unimplemented") {
        LogKind::UnhandledMsr
    } else {
        return false;
    };
    line.msr.is_some()
}

fn leading_number(text: &str) -> Option<u64> {
    let word: String = text.trim_start().chars().take_while(char::is_ascii_alphanumeric).take(20).collect();
    if word.starts_with("0x") { untrusted_text::number(&word) } else { u64::from_str_radix(&word, 16).ok() }
}

/// `#AC: CPU 0/KVM/1234 took a split_lock trap at address: 0x…`: thread name and id.
fn lock_trap(lower: &str, mut line: LogLine) -> Option<LogLine> {
    let (who, what) = lower.split_once(" took a ")?;
    line.kind = if what.starts_with("split") { LogKind::SplitLock } else { LogKind::BusLock };
    let (name, id) = who.rsplit_once('/')?;
    line.pid = id.trim().parse().ok();
    if let Some((_, cpu)) = name.rsplit_once("cpu ") {
        line.vcpu = cpu.split('/').next().and_then(|number| number.parse().ok());
    }
    Some(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn one(text: &str) -> LogLine {
        let lines = parse(text);
        assert_eq!(lines.len(), 1, "{text}");
        lines.into_iter().next().unwrap()
    }

    #[test]
    fn registers_are_read_in_the_spelling_of_every_age() {
        for (text, pid, vcpu, msr, write, data, kind) in [
            ("kvm: 1234: cpu0 unhandled rdmsr: 0x1a0", 1234, 0, 0x1a0, false, None, LogKind::UnhandledMsr),
            (
                "[592420.654337] kvm [21715]: vcpu1 unhandled rdmsr: 0x611",
                21715,
                1,
                0x611,
                false,
                None,
                LogKind::UnhandledMsr,
            ),
            ("kvm [77]: vcpu2 unhandled wrmsr: 0x1d9 data 0x1", 77, 2, 0x1d9, true, Some(1), LogKind::UnhandledMsr),
            ("kvm [77]: vcpu2 ignored rdmsr: 0x606", 77, 2, 0x606, false, None, LogKind::IgnoredMsr),
            (
                "kvm [77]: vcpu0, guest rIP: 0xfffff8016a5c1234 ignored rdmsr: 0x122 data 0x0",
                77,
                0,
                0x122,
                false,
                Some(0),
                LogKind::IgnoredMsr,
            ),
            (
                "kvm [77]: vcpu12, guest rIP: 0xffff8 Hyper-V unhandled wrmsr: 0x40000118 data 0x1",
                77,
                12,
                0x4000_0118,
                true,
                Some(1),
                LogKind::HypervMsr,
            ),
            (
                "kvm: kvm [77]: vcpu0, guest rIP: 0x1 Unhandled WRMSR(0x1a4) = 0xf",
                77,
                0,
                0x1a4,
                true,
                Some(15),
                LogKind::UnhandledMsr,
            ),
            (
                "Nov 20 10:00:00 h1 kernel: kvm_intel: kvm [77]: vcpu0, guest rIP: 0x1 Unhandled RDMSR(0x64d)",
                77,
                0,
                0x64d,
                false,
                None,
                LogKind::UnhandledMsr,
            ),
            (
                "6,1,2,-;kvm [77]: vcpu3 disabled perfctr wrmsr: 0xc2 data 0xffff",
                77,
                3,
                0xc2,
                true,
                Some(0xffff),
                LogKind::PerfCounter,
            ),
        ] {
            let line = one(text);
            assert_eq!((line.pid, line.vcpu, line.msr), (Some(pid), Some(vcpu), Some(msr)), "{text}");
            assert_eq!((line.write, line.data, line.kind), (write, data, kind), "{text}");
        }
        assert_eq!(one("[592420.654337] kvm [21715]: vcpu1 unhandled rdmsr: 0x611").time_s, Some(592_420.654_337));
    }

    #[test]
    fn locks_and_emulation_failures_are_recognised() {
        let line = one("[1.5] x86/split lock detection: #AC: CPU 3/KVM/4711 took a split_lock trap at address: 0x7ff6");
        assert_eq!((line.kind, line.pid, line.vcpu), (LogKind::SplitLock, Some(4711), Some(3)));
        let line = one("x86/split lock detection: #DB: game.exe/99 took a bus_lock trap at address: 0x1");
        assert_eq!((line.kind, line.pid, line.vcpu), (LogKind::BusLock, Some(99), None));
        assert_eq!(one("kvm: emulation failed (unhandled) rip 7c90").kind, LogKind::EmulationFailure);
        assert_eq!(one("kvm [5]: vcpu0 something new").kind, LogKind::Other);
    }

    #[test]
    fn a_log_is_known_by_its_stamps_too() {
        assert!(looks_like("[    0.000000] Linux version 6.1\n[    0.000001] Command line: x\n"));
        assert!(looks_like("Nov 20 10:00:00 h1 kernel: hello\n"));
        assert!(looks_like("kvm [21715]: vcpu1 unhandled rdmsr: 0x611"));
        assert!(!looks_like("CPU 0/KVM-99 [000] d..1. 55.901799: kvm_exit: vcpu 0 reason HLT rip 0x1\n"));
        assert!(!looks_like("qemu-system-x86_64 -enable-kvm -name x"));
        assert!(!looks_like(""));
        assert!(parse("[ 1.0] usb 1-1: new device\nkvm: Nested Virtualization enabled").is_empty());
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in any::<String>()) {
            let _ = looks_like(&text);
            let _ = parse(&format!("kvm [1]: vcpu0 unhandled rdmsr: {text}"));
            let _ = parse(&format!("kvm {text} took a split_lock"));
        }
    }
}
