//! Reads messages about guests from the kernel's log of their host, as dmesg, the journal and
//! syslog show it.

mod forms;
mod message;
mod reader;

pub use reader::LogReader;

use super::pattern::Pattern;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Lines of one kind that are kept of a text.
pub const MAX_OF_A_KIND: usize = 20_000;
/// [`LogLine::data`] of an OOM kill at the memory limit of a cgroup.
pub const CGROUP_LIMIT: u64 = 1;
/// [`LogLine::data`] of an OOM kill in the memory of the NUMA nodes that a process is bound to.
pub const NODE_LIMIT: u64 = 2;

/// [`LogLine::data`] of [`LogKind::NoKvm`]: why KVM cannot be used, from the least to the most
/// exact reason.
pub mod no_kvm {
    /// Another hypervisor uses the CPU's virtualisation.
    pub const BUSY: u64 = 2;
    /// The CPU offers no virtualisation to this kernel, or the module is for CPUs of another
    /// vendor.
    pub const NO_EXTENSION: u64 = 3;
    /// The firmware has switched it off.
    pub const OFF_IN_FIRMWARE: u64 = 4;
}

/// The kind of message.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum LogKind {
    /// A register that KVM does not emulate; the guest got a fault.
    UnhandledMsr,
    /// A register that KVM does not emulate, without a fault: the guest read 0, or its write was
    /// dropped.
    IgnoredMsr,
    /// A split lock (one instruction locked two cache lines) or another bus lock.
    SplitLock,
    /// KVM could not emulate an instruction.
    EmulationFailure,
    /// The CPU refused to enter the guest: QEMU's message, or KVM's dump of the VMCS (Intel) or
    /// VMCB (AMD).
    EntryFailed,
    /// KVM could not continue, and stopped the vCPU.
    InternalError,
    /// `KVM_RUN` returned an error to the VMM.
    RunFailed,
    /// The VMM was killed because memory ran out.
    KilledForMemory,
    /// The VMM crashed, or a process killed it.
    Killed,
    /// The VMM was killed because its memory is broken.
    MemoryFailure,
    /// A memory error of the host was reported to the guest.
    MachineCheck,
    /// A soft or hard lockup or an RCU stall on a thread of a VMM or in KVM.
    Lockup,
    /// A thread of a VMM did not run for minutes because it waited in the kernel.
    HungTask,
    /// KVM cannot be used on this host.
    NoKvm,
    /// The hardware throttles CPUs that are too hot.
    Overheated,
    /// A disk of the host, its link or its file system failed.
    HostDisk,
    /// Another line about KVM, of a trace. No rule uses it.
    #[default]
    #[serde(other)]
    Other,
}

/// One recognised line.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LogLine {
    /// Process (VMM) or, where the line names a thread, thread id.
    pub pid: Option<i32>,
    /// vCPU number.
    pub vcpu: Option<u32>,
    /// The register.
    pub msr: Option<u32>,
    /// Whether it was written.
    pub write: bool,
    /// Of a register, the value that was written or that a read returned; of
    /// [`LogKind::InternalError`] the suberror, of [`LogKind::EntryFailed`] the hardware's reason,
    /// of a lockup the seconds; of [`LogKind::KilledForMemory`] [`CGROUP_LIMIT`] or [`NODE_LIMIT`];
    /// of [`LogKind::HostDisk`] the errno; of [`LogKind::NoKvm`] the reason, from [`no_kvm`].
    pub data: Option<u64>,
    /// What happened.
    pub kind: LogKind,
    /// Seconds since boot, if the line has a `[  12.345678]` stamp.
    pub time_s: Option<f64>,
    /// The line, cleaned.
    pub text: String,
    /// The guest's name, which the name of its scope contains.
    pub guest: Option<String>,
}

/// What only the log of a guest's own kernel has, and only that of a host.
static IN_GUEST: Pattern = Pattern::new(concat!(
    "(?i-u)hypervisor detected: kvm|kvm-(?:clock|guest): |clocksource kvm-clock|",
    "(?:hardware name|dmi): (?:qemu|red hat kvm)",
));
static ON_HOST: Pattern =
    Pattern::new(r"(?i-u)/kvm[\[:]|kvm \[|qemu-system|qemu-kvm|\[kvm_(?:intel|amd)\]");
static KVM_WORKS: Pattern =
    Pattern::new("(?i-u)kvm: nested |nested (?:virtualization|paging) enabled");

/// All recognised lines, in file order. Of one kind no more than [`MAX_OF_A_KIND`] are kept. The
/// log of a guest's own kernel says nothing of its host.
pub fn parse(text: &str) -> Vec<LogLine> {
    if IN_GUEST.is_match(text) && !ON_HOST.is_match(text) {
        return Vec::new();
    }
    let mut reader = LogReader::default();
    let mut found = Vec::new();
    let mut counts = BTreeMap::new();
    let mut all = Vec::new();
    for line in text.lines() {
        reader.line(line, &mut found);
        // After each line, so that a long log does not fill the memory.
        keep(&mut found, &mut counts, &mut all);
    }
    reader.finish(&mut found);
    keep(&mut found, &mut counts, &mut all);
    // A host may load the module of another vendor's CPUs beside its own, which then finds no
    // hardware.
    if KVM_WORKS.is_match(text) {
        all.retain(|line| line.kind != LogKind::NoKvm);
    }
    all
}

/// Moves the found lines to `all`, and drops those of which it has enough of their kind.
fn keep(found: &mut Vec<LogLine>, counts: &mut BTreeMap<LogKind, usize>, all: &mut Vec<LogLine>) {
    for line in found.drain(..) {
        let count = counts.entry(line.kind).or_default();
        *count += 1;
        if *count <= MAX_OF_A_KIND {
            all.push(line);
        }
    }
}

#[cfg(test)]
mod tests;
