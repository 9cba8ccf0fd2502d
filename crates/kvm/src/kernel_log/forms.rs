//! The table of the kernel's messages about guests.
//!
//! Sources: in the kernel, `vcpu_unimpl` and related macros in `include/linux/kvm_host.h`,
//! `arch/x86/kvm/x86.{c,h}`, `dump_vmcs` in `arch/x86/kvm/vmx/vmx.c`, `dump_vmcb` in
//! `arch/x86/kvm/svm/svm.c`, `arch/x86/kvm/hyperv.c`, `arch/x86/kernel/cpu/bus_lock.c`,
//! `mm/oom_kill.c`, `mm/memory-failure.c`, `arch/x86/mm/fault.c`, `kernel/watchdog.c`,
//! `kernel/hung_task.c`, `kernel/rcu/tree_stall.h`; in QEMU, `accel/kvm/kvm-all.c` and
//! `target/i386/kvm/kvm.c`.

use super::LogKind::{
    self, EmulationFailure, EntryFailed, HostDisk, HungTask, IgnoredMsr, InternalError, Killed,
    KilledForMemory, Lockup, MachineCheck, MemoryFailure, NoKvm, Overheated, RunFailed, SplitLock,
    UnhandledMsr,
};
use super::no_kvm::{BUSY, NO_EXTENSION, OFF_IN_FIRMWARE};
use super::{CGROUP_LIMIT, LogLine, NODE_LIMIT};
use crate::pattern::{Pattern, group, hex, number, pid};
use About::{Host, Later, Vmm};
use regex::RegexSet;
use std::ops::RangeInclusive;
use std::sync::LazyLock;

/// What a message is about.
#[derive(Debug, PartialEq)]
enum About {
    /// A guest or the whole host, always.
    Host,
    /// The `task`, which has to be a VMM or a thread of one.
    Vmm,
    /// The same, and where it is none, the stack below the message may name one.
    Later,
}

/// A form of message. Patterns match messages in lower case. Their groups are fields of the
/// [`LogLine`]: `pid`, `n` (decimal) and `hex` for `data`, `msr`, `register` (the name of an MSR),
/// `write`, `task` (a thread's name).
#[derive(Debug)]
struct Form {
    kind: LogKind,
    about: About,
    pattern: Pattern,
    /// What `data` is, whatever the line says.
    code: Option<u64>,
}

const fn form(kind: LogKind, about: About, pattern: &'static str) -> Form {
    Form {
        kind,
        about,
        pattern: Pattern::new(pattern),
        code: None,
    }
}

const fn coded(kind: LogKind, code: u64, about: About, pattern: &'static str) -> Form {
    Form {
        kind,
        about,
        pattern: Pattern::new(pattern),
        code: Some(code),
    }
}

/// The pattern of an access to a numbered MSR after the given words: `unhandled rdmsr: 0x611 [data
/// 0x…]`, or since Linux 6.2 `Unhandled WRMSR(0x…) = 0x…`.
macro_rules! msr_access {
    ($words:literal) => {
        concat!(
            "kvm.*?",
            $words,
            r"(?:rd|(?P<write>w)r)msr[: ]*(?P<parenthesis>\()?",
            r"(?:0x)?(?P<msr>[0-9a-f]{1,8})(?-u:\b)",
            "(?:.*?(?:data |= )(?:0x)?(?P<hex>[0-9a-f]+))?"
        )
    };
}

const FAULT: &str = concat!(
    r"^(?:traps: )?(?P<task>[^\[]*)\[(?P<pid>[0-9]+)\]",
    "(?:: segfault at |(?: general protection| trap).* ip:)",
);
const FAILED_DISK: &str = concat!(
    "^ata[0-9.]+: (?:failed command|.*host bus error)|",
    "(?:i/o|critical (?:medium|target|nexus)) error, dev (?:sd|nvme|vd|dm-|md)|",
    "^buffer i/o error on dev(?:ice)? (?:sd|nvme|vd|dm-|md)|rejecting i/o to (?:offline|dead) \
        device|",
    r"^sd [0-9:]+ \[[a-z]+\] .*(?:failed result|sense key : (?:medium|hardware) error)|",
    "^nvme nvme[0-9]+: (?:i/o .*timeout|controller is down|device not ready|removing after probe)|",
    "^(?:ext[234]-fs error|xfs .*(?:corruption|i/o error)|btrfs (?:error|critical))|",
    "^md/raid.*disk failure|detected conn error|nfs: server .* not responding"
);

/// All forms; of those that match, the first one counts.
static FORMS: [Form; 31] = [
    // MSRs. Where a word names the register, the number after `wrmsr:` is the value.
    form(
        UnhandledMsr,
        Host,
        "kvm.*(?P<register>hwcr|mmio_conf_base) wrmsr[: ]*(?:0x)?(?P<hex>[0-9a-f]+)",
    ),
    form(
        IgnoredMsr,
        Host,
        "kvm.*ia32_(?P<register>debugctl|mc0_status|mcg_status|mcg_ctl)(?:_?msr)? \
            0x(?P<hex>[0-9a-f]+).*, nop",
    ),
    form(UnhandledMsr, Host, msr_access!("hyper-v.*?")),
    // svm.c says "unimplemented wrmsr" of MSR_VM_IGNNE, whose writes it drops.
    form(
        IgnoredMsr,
        Host,
        msr_access!("(?:perfctr.*?|ignored.*?|unimplemented )"),
    ),
    form(
        UnhandledMsr,
        Host,
        msr_access!("(?:unhandled|unimplemented|unsupported).*?"),
    ),
    // `#AC: CPU 0/KVM/1234 took a split_lock trap at address: 0x…`
    form(
        SplitLock,
        Vmm,
        "(?:^|: )(?P<task>[^:]*)/(?P<pid>[0-9]+) took a (?:split|bus)_lock",
    ),
    // vCPUs that cannot run.
    form(
        EntryFailed,
        Host,
        "^kvm: entry failed, hardware error (?:0x)?(?P<hex>[0-9a-f]*)",
    ),
    form(
        EntryFailed,
        Host,
        concat!(
            r"^(?:[a-z_]+: )?(?:\*\*\* guest state \*\*\*|vmcb control area:)|",
            "dump_invalid_vmc[bs]=1 to dump",
        ),
    ),
    form(
        InternalError,
        Host,
        "kvm internal error(?:.*suberror: *(?P<n>[0-9]+))?",
    ),
    form(
        InternalError,
        Host,
        "kvm.*(?:unexpected exit reason 0x|unexpected, (?:valid )?vectoring info|internal_error in \
            )",
    ),
    form(InternalError, Host, "^(?:kvm: )?ept: misconfiguration"),
    form(RunFailed, Host, "kvm run failed|kvm_run returned -"),
    form(
        EmulationFailure,
        Host,
        "kvm.*(?:instruction decoding not implemented|emulation fail)",
    ),
    // The OOM killer, whose last two lines about a kill are these.
    form(
        KilledForMemory,
        Vmm,
        "^oom-kill:.*?task=(?P<task>[^,]*)(?:,pid=(?P<pid>[0-9]+))?",
    ),
    coded(
        KilledForMemory,
        CGROUP_LIMIT,
        Vmm,
        r"memory cgroup out of memory: kill(?:ed)? process (?P<pid>[0-9]+)[^(]*\((?P<task>.*)",
    ),
    form(
        KilledForMemory,
        Vmm,
        r"out of memory: kill(?:ed)? process (?P<pid>[0-9]+)[^(]*\((?P<task>.*)",
    ),
    // `Memory failure: 0x1: Killing qemu-kvm:1234 due to hardware memory corruption`
    form(
        MemoryFailure,
        Vmm,
        "killing (?P<task>.*?)(?::(?P<pid>[0-9]+))?(?: early)? due to hardware memory corruption",
    ),
    form(
        MachineCheck,
        Vmm,
        "sending sigbus to (?P<task>.*?)(?::(?P<pid>[0-9]+))?(?: early)? due to hardware memory \
            corruption",
    ),
    // Crashes of a VMM: the kernel, systemd-coredump, audit.
    form(Killed, Vmm, FAULT),
    form(
        Killed,
        Vmm,
        r"process (?P<pid>[0-9]+) \((?P<task>.*)\) .*dumped core",
    ),
    form(
        Killed,
        Vmm,
        "type=(?:1701|1326) .*pid=(?P<pid>[0-9]+).*comm=\"(?P<task>[^\"]*)\".* sig=(?P<n>[0-9]+)",
    ),
    // `watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [CPU 2/KVM:1234]`
    form(
        Lockup,
        Later,
        r"soft lockup.*stuck for (?P<n>[0-9]+)s.*\[(?P<task>[^\[\]]*?)(?::(?P<pid>[0-9]+))?\]",
    ),
    // A CPU that waits for a lock that it has waits for ever: `BUG: spinlock recursion on CPU#7,
    // CPU 3/KVM/57616`.
    form(
        Lockup,
        Vmm,
        "bug: spinlock (?:recursion|lockup suspected) on cpu#[0-9]+, (?P<task>.*)/(?P<pid>[0-9]+)",
    ),
    form(
        Lockup,
        Later,
        "detected hard lockup|rcu.*detected (?:expedited )?stall",
    ),
    // `INFO: task CPU 0/KVM:1234 blocked for more than 120 seconds.`
    form(
        HungTask,
        Later,
        "task (?P<task>.*?):(?P<pid>[0-9]+) blocked .*for more than (?P<n>[0-9]+)",
    ),
    // No KVM.
    coded(
        NoKvm,
        OFF_IN_FIRMWARE,
        Host,
        r"^(?:kvm|kvm_intel|kvm_amd): .*(?:disabled|not enabled) \(?(?:by|in) (?:the )?bios",
    ),
    coded(
        NoKvm,
        NO_EXTENSION,
        Host,
        "^(?:kvm|kvm_intel|kvm_amd): .*(?:no hardware support|(?:vmx|svm) not supported)",
    ),
    coded(
        NoKvm,
        BUSY,
        Host,
        "^kvm: enabling virtualization on cpu.* failed",
    ),
    // What the host lacks for its guests: cool CPUs, and disks that work.
    form(
        Overheated,
        Host,
        "temperature above threshold, cpu clock(?: is)? throttled",
    ),
    // A full pool of LVM (drivers/md/dm-thin.c): ENOSPC.
    coded(
        HostDisk,
        28,
        Host,
        "^device-mapper: thin: .*(?:out-of-data-space|no free (?:meta)?data )",
    ),
    coded(HostDisk, 5, Host, FAILED_DISK),
];

/// MSRs that messages name instead of numbering them.
const NAMED_MSRS: [(&str, u32); 6] = [
    ("hwcr", 0xc001_0015),
    ("mmio_conf_base", 0xc001_0058),
    ("debugctl", 0x1d9),
    ("mc0_status", 0x401),
    ("mcg_status", 0x17a),
    ("mcg_ctl", 0x17b),
];
/// Registers whose writes KVM drops without a fault. Since Linux 6.2 they too are logged as
/// "Unhandled WRMSR(0x…)" (`kvm_pr_unimpl_wrmsr`): `DEBUGCTL`, `BBL_CR_CTL3`, `VM_IGNNE`,
/// performance counters of the P6 and the K7.
const DROPPED: [RangeInclusive<u32>; 6] = [
    0x1d9..=0x1d9,
    0x11e..=0x11e,
    0xc001_0115..=0xc001_0115,
    0xc1..=0xc2,
    0x186..=0x187,
    0xc001_0000..=0xc001_0007,
];

/// Names (`comm`, 15 bytes) that only VMMs, their threads and KVM's kernel threads have; `kvm` is
/// Proxmox's QEMU.
static VMM: Pattern = Pattern::new(concat!(
    r"^(?:qemu|cloud-hyperviso|firecracker|fc_vcpu|crosvm|lkvm|kvmtool|kvm-|vhost-|virt-launcher|",
    r"io (?:mon_)?iothread|spice worker|vnc_worker|cpu [0-9]{1,5}/kv|kvm(?:[^a-z0-9_]|$))",
));
static VCPU: Pattern = Pattern::new("^cpu (?P<vcpu>[0-9]{1,5})/kv");
static HEADER: Pattern =
    Pattern::new(r"kvm[ :\[]*(?P<pid>[0-9]{1,10})[\]:][\]: ]*(?:v?cpu(?P<vcpu>[0-9]{1,6}))?");
static ANY_FORM: LazyLock<RegexSet> = LazyLock::new(|| {
    RegexSet::new(FORMS.iter().map(|form| form.pattern.source)).unwrap_or_default()
});

/// Whether a text in lower case begins with the name of a VMM or of one of its threads.
pub(super) fn begins_with_vmm(text: &str) -> bool {
    VMM.is_match(text)
}

/// The vCPU of a text that begins with the name of its thread, `cpu 3/kvm`.
pub(super) fn begins_with_vcpu(text: &str) -> Option<u32> {
    number(&VCPU.captures(text)?, "vcpu")
}

/// Reads a message in lower case into `line`. Returns whether it is about a guest or its host; if
/// false, it may still be, where the stack below it names a VMM's thread. `None`: it is of no known
/// form, or about another program.
pub(super) fn recognise(text: &str, line: &mut LogLine) -> Option<bool> {
    let form = FORMS.get(ANY_FORM.matches(text).iter().next()?)?;
    let found = form.pattern.captures(text)?;
    let task = group(&found, "task").unwrap_or_default();
    let is_about_guest = form.about == Host || begins_with_vmm(task);
    if !is_about_guest && form.about != Later {
        return None;
    }
    line.kind = form.kind;
    if let Some(header) = HEADER.captures(text) {
        line.pid = pid(&header, "pid");
        line.vcpu = number(&header, "vcpu");
    }
    line.pid = pid(&found, "pid").or(line.pid);
    line.vcpu = begins_with_vcpu(task).or(line.vcpu);
    line.data = form
        .code
        .or_else(|| number(&found, "n"))
        .or_else(|| hex(&found, "hex"));
    line.msr = group(&found, "msr").and_then(|digits| u32::from_str_radix(digits, 16).ok());
    line.write = found.name("write").is_some();
    if let Some(register) = group(&found, "register") {
        line.msr = NAMED_MSRS
            .iter()
            .find(|(name, _)| *name == register)
            .map(|(_, msr)| *msr);
        line.write = true;
    }
    let is_dropped = line
        .msr
        .is_some_and(|msr| DROPPED.iter().any(|range| range.contains(&msr)));
    if is_dropped && line.write && found.name("parenthesis").is_some() {
        line.kind = IgnoredMsr;
    }
    if form.kind == KilledForMemory {
        line.data = line.data.or_else(|| oom_scope(text));
    }
    Some(is_about_guest)
}

/// What was out of memory, where the OOM killer says that it was a part of the host.
fn oom_scope(text: &str) -> Option<u64> {
    if text.contains("constraint_memcg") {
        return Some(CGROUP_LIMIT);
    }
    let is_bound = text.contains("constraint_memory_policy") || text.contains("constraint_cpuset");
    if is_bound { Some(NODE_LIMIT) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_compiles() {
        assert_eq!(ANY_FORM.len(), FORMS.len());
        for form in &FORMS {
            assert!(form.pattern.regex().is_some(), "{form:?}");
        }
    }
}
