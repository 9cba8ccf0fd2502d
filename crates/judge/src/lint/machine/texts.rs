//! The prose of the machine rules.

use crate::figures::{bytes, figure};
use crate::lint::engine::prose::Prose;
use kvm::kernel_log::LogKind;
use kvm::userspace_exit;
use sample::HostMemory;

pub(super) const SENSOR_MSRS: Prose = Prose {
    title: "A sensor tool in the guest reads power meters or thermometers that KVM does not have",
    why: "These MSRs are sensors: power meters (RAPL), temperatures, frequencies. A monitoring tool in the guest polls \
        them: not the cause of any load",
};
pub(super) const UNHANDLED_MSRS: Prose = Prose {
    title: "The guest accesses MSRs that KVM does not have",
    why: "A guest asks for registers of the CPU that KVM does not emulate. It matters only if the guest misbehaves at \
        that moment",
};
pub(super) const SWAPPED: Prose = Prose {
    title: "The host swaps the guest's memory out",
    why: "When a vCPU uses a page that was swapped out, it stops until the disk answers. The guest cannot see why",
};
pub(super) const KSM: Prose = Prose {
    title: "KSM uses much CPU to share memory",
    why: "KSM compares pages of all guests. It saves memory and costs CPU time, and a fault when a guest writes to a \
        shared page",
};

// Fixes.
pub(super) const FAULTED: &str = "KVM answered with a fault (#GP), which most systems expect and handle";
pub(super) const IGNORED: &str = "KVM let the accesses pass without a fault: a read returned 0, a write was dropped";
pub(super) const NO_ACTION_SENSORS: &str = "No action needed; stop the sensor tool in the guest to avoid the messages";
pub(super) const NO_ACTION_MSRS: &str = "No action needed unless the guest misbehaves. If it stops at that moment \
    (Windows: KMODE_EXCEPTION_NOT_HANDLED), give it a CPU model that KVM knows, or let such accesses pass with \
    kvm.ignore_msrs=1 (reads return 0, writes are dropped)";
pub(super) const NO_ACTION_MIXED: &str = "No action needed unless the guest misbehaves. Some accesses raised a fault \
    and others read 0: kvm.ignore_msrs was on for a part of this time, and where it is on now the faults are over. If \
    the guest stopped at a fault (Windows: KMODE_EXCEPTION_NOT_HANDLED), give it a CPU model that KVM knows";
pub(super) const NO_ACTION_IGNORED: &str = "No action needed unless the guest misbehaves: it takes a 0 that it read \
    for the register's value, and does not learn that a write was dropped";
pub(super) const SEE_THE_CRASH: &str = "A guest ended or broke as well: compare the times. An access right before it \
    may be the cause, because a fault that a system does not expect ends it";
pub(super) const SILENCE_MSRS: &str = "echo 0 > /sys/module/kvm/parameters/report_ignored_msrs";
pub(super) const SILENCE_MSRS_NEED: &str = "only silences the log";
pub(super) const SHOW_MAPPING: &str =
    "cat /sys/kernel/mm/ksm/run /proc/sys/kernel/numa_balancing /sys/kernel/mm/transparent_hugepage/enabled";
pub(super) const SHOW_MAPPING_NEED: &str = "shows what may remove mappings";
pub(super) const USE_HUGE_PAGES: &str = "Back the guest with huge pages if its memory is meant for it alone";
pub(super) const LESS_GUEST_MEMORY: &str = "Give the guests less memory in total than the host has, or run fewer of \
    them, and leave some for the host itself";
pub(super) const LOCK_MEMORY: &str = "<memoryBacking>\n  <locked/>\n</memoryBacking>";
pub(super) const LOCK_MEMORY_OPTION: &str = "-overcommit mem-lock=on";
pub(super) const LOCK_MEMORY_NEED: &str = "takes effect at the guest's next start; \
    only where the host has the memory, and with a memory limit, if any, well above the guest's size";
pub(super) const STOP_KSM_NEED: &str = "stops the scanning; shared pages stay shared until written";
pub(super) const KEEP_KSM: &str = "Keep it running where memory is short: swapping would be worse. \
    pages_to_scan and sleep_millisecs slow it down";
pub(super) const OTHER_INSTANCE: &str =
    "Move to a larger or dedicated instance, or ask the outer hypervisor's operator";
pub(super) const USE_IOTHREAD: &str = "Give disks an IOThread, so that their work leaves the main thread; use vhost \
    for the network";
pub(super) const IOTHREAD_XML: &str = "In its XML that is <iothreads>1</iothreads> and <driver iothread='1'/>";
pub(super) const CLOSE_SCREENS: &str = "Close remote screens (VNC, SPICE), and look for backup jobs and emulated \
    devices; this one thread serves them all";
pub(super) const WINDOWS_HYPERVISOR: &str = "In Windows the cause is VBS (memory integrity, Credential Guard), WSL2 or \
    Docker Desktop: disable what is not needed";
pub(super) const INNER_GUESTS_HERE: &str = "Run the inner guests on this host if possible; \
    otherwise give them virtio devices and keep their exits few";

// Evidence.
pub(super) const FROM_KERNEL_LOG: &str = "from the host's kernel log";
pub(super) const CHECK_MSRS: &str = "check: journalctl -k; trace-cmd record -e kvm:kvm_msr, then trace-cmd report";
pub(super) const CHECK_FAULTS: &str =
    "look at: trace-cmd record -e kvm:kvm_page_fault; grep -E 'thp|compact|numa|ksm' /proc/vmstat, twice";
pub(super) const CHECK_KSM: &str = "look at: grep . /sys/kernel/mm/ksm/*";
pub(super) const CHECK_STEAL: &str = "look at: mpstat -P ALL 1, column %steal";
pub(super) const CHECK_INCIDENT: &str = "check: journalctl -k; tail -n 50 /var/log/libvirt/qemu/*.log";
pub(super) const CHECK_NESTED: &str =
    "check: kvm_stat -1, the nested rows; look at: /sys/module/kvm_*/parameters/nested";

pub(super) fn msr_accesses(number: u32, name: Option<&str>, write: bool, times: u64) -> String {
    let name = name.map_or_else(String::new, |n| format!(" ({n})"));
    let what = if write { "write" } else { "read" };
    format!("{times} {what}{} of MSR {number:#x}{name}", if times == 1 { "" } else { "s" })
}

pub(super) fn in_swap(swap: u64, grown: u64, window: &str) -> String {
    format!("{} of the guest are in swap, {} more than before {window}", bytes(swap), bytes(grown))
}

pub(super) fn host_memory(m: HostMemory) -> String {
    let (available, total, swap) = (bytes(m.available), bytes(m.total), bytes(m.swap_used));
    format!("the host has {available} of {total} available and {swap} in swap")
}

pub(super) fn check_swap(pid: i32) -> String {
    format!("look at: grep VmSwap /proc/{pid}/status; vmstat 1")
}

pub(super) fn ksmd(percent: f64) -> String {
    format!("ksmd uses {} % of a CPU", figure(percent))
}

pub(super) fn stolen(share: f64, cpu: u32, total: f64) -> String {
    format!("{} % of CPU {cpu} is stolen; {} % of one CPU over the whole host", figure(share), figure(total))
}

pub(super) fn incident(means: &str, causes: &str) -> String {
    format!("{means}. Likely causes, the likeliest first: {causes}")
}

pub(super) fn abnormal(count: u64, what: &str, window: &str) -> String {
    format!("{} {what} {window}", figure(count as f64))
}

/// `reason`: a `KVM_EXIT_*` number or a negative errno.
pub(super) fn returned(count: u64, reason: i32, what: &str, window: &str) -> String {
    let name = userspace_exit::display(reason.max(0).unsigned_abs(), reason.min(0));
    let meaning = userspace_exit::errno_meaning(reason).map_or_else(String::new, |m| format!(" ({m})"));
    format!("{count} returns of KVM_RUN with {name}{meaning} {window}: {what}")
}

pub(super) fn logged(lines: usize, what: &str, first: &str, last: &str) -> String {
    match lines {
        1 => format!("the log reports {what}: {first}"),
        lines if first == last => format!("{lines} times the log reports {what}: {first}"),
        lines => format!("{lines} times the log reports {what}; the first: {first}; the last: {last}"),
    }
}

/// What KVM or the CPU gives as the cause: the suberrors of `uapi/linux/kvm.h`, the basic exit reasons of a failed
/// entry (Intel SDM volume 3, "VM-entry failures during or after loading guest state"), AMD's `VMEXIT_INVALID`.
pub(super) fn cause(kind: LogKind, code: u64) -> Option<&'static str> {
    Some(match (kind, code) {
        (LogKind::InternalError, 1) => "suberror 1: an instruction that could not be emulated",
        (LogKind::InternalError, 2) => "suberror 2: two exceptions at once",
        (LogKind::InternalError, 3) => "suberror 3: an exit while an interrupt or exception was delivered",
        (LogKind::InternalError, 4) => "suberror 4: an exit reason that KVM does not expect",
        (LogKind::EntryFailed, 0x8000_0021) => "reason 0x80000021: invalid guest state",
        (LogKind::EntryFailed, 0x8000_0022) => "reason 0x80000022: the guest's MSRs could not be loaded",
        (LogKind::EntryFailed, 0x8000_0029) => "reason 0x80000029: a machine check of the hardware",
        (LogKind::EntryFailed, 0xffff_ffff | u64::MAX) => "AMD's VMEXIT_INVALID: invalid guest state",
        _ => return None,
    })
}

pub(super) fn main_thread(busy: f64, usr: f64, sys: f64, window: &str) -> String {
    let (busy, usr, sys) = (figure(busy), figure(usr), figure(sys));
    format!("QEMU's main thread uses {busy} % of a CPU ({usr} % user, {sys} % kernel) {window}")
}

pub(super) fn emulated_timers(rate: &str) -> String {
    format!("the guest makes {rate} accesses/s to timers that this thread serves")
}

/// What the main thread ran, percent of its samples.
pub(super) fn main_functions(samples: u64, functions: &[(f64, String)]) -> String {
    let named: Vec<String> = functions.iter().map(|(share, name)| format!("{} % in {name}", figure(*share))).collect();
    format!("of {samples} samples of its stack: {}", named.join(", "))
}

pub(super) fn check_thread(tid: i32) -> String {
    format!("look at: kvmtop profile {tid}")
}

pub(super) fn nested_events(events: u64, exits: u64) -> String {
    format!("{events} nested exits (kvm_nested_vmexit and related events), {exits} exits in total")
}

pub(super) fn nested_entries(rate: f64) -> String {
    format!("{} entries/s into the guest's guests (nested_run)", figure(rate))
}

pub(super) fn hot_port(address: &str, device: Option<&str>) -> String {
    format!("its most frequent port is {address} ({})", device.unwrap_or("unknown device"))
}

// What cannot be judged.
pub(super) const FAULTS_OR_MMIO: &str = "this exit reason covers page faults and MMIO, and the addresses are missing";
