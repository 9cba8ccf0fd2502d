//! The prose of the pinning rules.

use crate::lint::engine::prose::Prose;

pub(super) const PARTLY_PINNED: Prose = Prose {
    title: "Some vCPUs are pinned and the others may run on their CPUs",
    why: "A pinned vCPU cannot leave when the scheduler puts an unpinned one on its CPU. The pins then do more harm \
        than good",
};
pub(super) const OTHER_HELPERS: Prose = Prose {
    title: "Another guest's emulator or IOThread is pinned to this guest's vCPU CPUs",
    why: "While that thread runs there, the vCPU does not, and the vCPU cannot move away",
};
pub(super) const CONFIGURED_HELPERS: Prose = Prose {
    title: "Emulator or IOThreads may run on CPUs of pinned vCPUs",
    why: "While one of them runs there, the vCPU does not, and the vCPU cannot move away",
};
pub(super) const OFFLINE: Prose = Prose {
    title: "Threads are pinned to CPUs that the host does not have online",
    why: "Nothing can run on a CPU that is not there: the guest does not start, or it runs on the other CPUs of its \
        pin or where the kernel puts it",
};

// Titles.
pub(super) fn overlap_title(names: &[&str], guests: usize, vcpus: usize) -> String {
    match names {
        [_] if vcpus == 2 => "Two vCPUs of the guest are pinned to the same CPU".into(),
        [_] => format!("{vcpus} vCPUs of the guest are pinned to the same CPU"),
        [a, b] => format!("vCPUs of {a} and {b} are pinned to the same CPU"),
        [a, b, ..] if guests == 3 => format!("vCPUs of {a}, {b} and another guest are pinned to the same CPU"),
        [a, b, ..] => format!("vCPUs of {a}, {b} and {} more guests are pinned to the same CPU", guests - 2),
        [] => "vCPUs are pinned to the same CPU".into(),
    }
}

pub(in crate::lint) fn helper_name(iothread: Option<u32>) -> String {
    iothread.map_or_else(|| "the emulator".into(), |id| format!("IOThread {id}"))
}

// Fixes.
pub(super) const SEPARATE_SETS: &str = "Give the guests CPU sets that do not overlap. \
    With too few CPUs for that, let them share one common set instead of single CPUs";
pub(super) const NO_ROOM_FOR_HELPERS: &str = "No CPU of this host is free of pinned vCPUs: \
    remove one vCPU, so that the emulator and IOThreads get a CPU";
pub(super) const PIN_TO_ISOLATED: &str = "Pin each vCPU to one isolated CPU, \
    or use a cpuset partition instead of isolcpus, where the kernel balances load";
pub(super) const ONLINE_CPUS: &str = "Pin these threads to CPUs that are online (virsh vcpupin, emulatorpin)";
