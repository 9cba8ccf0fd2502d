//! Lines about registers that KVM does not emulate, and about split locks.
//!
//! Sources: `vcpu_unimpl` and related macros in `include/linux/kvm_host.h`; `arch/x86/kvm/x86.{c,h}`, `svm.c`, `vmx.c`,
//! `hyperv.c`; `arch/x86/kernel/cpu/bus_lock.c`.

use super::names::{hex, pid};
use super::{LogKind, LogLine};

/// Registers that a line names in words: then the number behind `wrmsr:` is the value.
const NAMED: [(&str, u32); 8] = [
    ("hwcr wrmsr", 0xc001_0015),
    ("mmio_conf_base wrmsr", 0xc001_0058),
    ("ia32_debugctlmsr 0x", 0x1d9),
    ("ia32_debugctl 0x", 0x1d9),
    ("ia32_mc0_status 0x", 0x401),
    ("ia32_mcg_status 0x", 0x17a),
    ("ia32_mcg_ctl 0x", 0x17b),
    ("ia32_debugctl_msr 0x", 0x1d9),
];

/// Registers whose writes KVM drops without a fault. Since Linux 6.2 they too are logged as "Unhandled WRMSR(0x…)"
/// (`kvm_pr_unimpl_wrmsr`): `DEBUGCTL`, `BBL_CR_CTL3`, `VM_IGNNE`.
const DROPPED: [u32; 3] = [0x1d9, 0x11e, 0xc001_0115];
/// The same of the performance counters and event selectors of the P6 and the K7.
const COUNTERS: [std::ops::RangeInclusive<u32>; 3] = [0xc1..=0xc2, 0x186..=0x187, 0xc001_0000..=0xc001_0007];

/// Fills in the process and the vCPU of `kvm [PID]: vcpu1, guest rIP: 0x…` or `kvm: PID: cpu0 …`.
pub(super) fn header(lower: &str, line: &mut LogLine) {
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

/// Fills in the access of `unhandled rdmsr: 0x611 [data 0x…]`, `Unhandled WRMSR(0x…) = 0x…`,
/// `unimplemented HWCR wrmsr: 0x…`; false for another line.
pub(super) fn register(lower: &str, line: &mut LogLine) -> bool {
    named(lower, line) || numbered(lower, line)
}

fn named(lower: &str, line: &mut LogLine) -> bool {
    let Some((at, words, msr)) = NAMED.iter().find_map(|(words, msr)| Some((lower.find(words)?, words, *msr))) else {
        return false;
    };
    let dropped = lower.contains(", nop");
    if !dropped && !words.ends_with("wrmsr") {
        return false;
    }
    let value = lower.get(at + words.trim_end_matches("0x").len()..).unwrap_or_default();
    (line.msr, line.write) = (Some(msr), true);
    line.data = hex(value.trim_start_matches([':', ' ']));
    line.kind = if dropped { LogKind::IgnoredMsr } else { LogKind::UnhandledMsr };
    true
}

fn numbered(lower: &str, line: &mut LogLine) -> bool {
    let Some(at) = lower.find("rdmsr").or_else(|| lower.find("wrmsr")) else { return false };
    let write = lower.get(at..).is_some_and(|rest| rest.starts_with("wrmsr"));
    let before = lower.get(..at).unwrap_or_default();
    let rest = lower.get(at + 5..).unwrap_or_default().trim_start_matches([':', ' ', '(']);
    let Some(msr) = hex(rest).and_then(|value| u32::try_from(value).ok()) else { return false };
    let of_6_2 = write && rest_is_parenthesised(lower, at);
    let kind = if before.contains("hyper-v") {
        LogKind::HypervMsr
    } else if before.contains("perfctr") || of_6_2 && COUNTERS.iter().any(|range| range.contains(&msr)) {
        LogKind::PerfCounter
    } else if before.contains("ignored") || before.ends_with("unimplemented ") || of_6_2 && DROPPED.contains(&msr) {
        // svm.c says "unimplemented wrmsr" of MSR_VM_IGNNE, whose writes it drops.
        LogKind::IgnoredMsr
    } else if ["unhandled", "unimplemented", "unsupported"].iter().any(|word| before.contains(word)) {
        LogKind::UnhandledMsr
    } else {
        return false;
    };
    let data = rest.split_once("data ").or_else(|| rest.split_once("= ")).map(|(_, data)| data);
    (line.msr, line.write, line.kind) = (Some(msr), write, kind);
    line.data = data.and_then(hex);
    true
}

/// Whether the register stands in parentheses, as Linux 6.2 and later have it.
fn rest_is_parenthesised(lower: &str, at: usize) -> bool {
    lower.get(at + 5..).is_some_and(|rest| rest.starts_with('('))
}

/// Whether a line of KVM ends in the middle: behind its header, or before a number.
pub(super) fn is_cut(lower: &str) -> bool {
    let text = lower.trim_end();
    if !text.contains("kvm") {
        return false;
    }
    let last = text.rsplit([' ', ':', ',']).find(|word| !word.is_empty()).unwrap_or_default();
    let after_header = text.rsplit_once("guest rip:").is_some_and(|(_, rest)| rest.split_whitespace().count() <= 1);
    after_header
        || matches!(last, "rdmsr" | "wrmsr" | "data" | "unhandled" | "ignored" | "unimplemented" | "suberror")
        || last.starts_with("vcpu") && text.contains("kvm [")
}

/// `#AC: CPU 0/KVM/1234 took a split_lock trap at address: 0x…`: thread name and id.
pub(super) fn lock_trap(lower: &str, line: &mut LogLine) -> bool {
    let Some((who, what)) = lower.split_once(" took a ") else { return false };
    line.kind = match what {
        _ if what.starts_with("split") => LogKind::SplitLock,
        _ if what.starts_with("bus") => LogKind::BusLock,
        _ => return false,
    };
    let Some((name, id)) = who.rsplit_once('/') else { return false };
    line.pid = pid(id);
    if let Some((_, cpu)) = name.rsplit_once("cpu ") {
        line.vcpu = cpu.split('/').next().and_then(|number| number.parse().ok());
    }
    true
}
