//! The prose of the machine rules.

use kvm::kernel_log::LogKind;

pub(super) const SENSOR_MSRS: &str = "These MSRs are sensors: power meters (RAPL), temperatures, frequencies. A \
    monitoring tool in the guest polls them: not the cause of any load";
pub(super) const UNHANDLED_MSRS: &str = "A guest asks for registers of the CPU that KVM does not emulate. It matters \
    only if the guest misbehaves at that moment";
pub(super) const SWAPPED: &str = "When a vCPU uses a page that was swapped out, it stops until the disk answers. The \
    guest cannot see why";
pub(super) const KSM: &str = "KSM compares pages of all guests. It saves memory and costs CPU time, and a fault when a \
    guest writes to a shared page";

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
pub(super) const SHOW_MAPPING: &str =
    "cat /sys/kernel/mm/ksm/run /proc/sys/kernel/numa_balancing /sys/kernel/mm/transparent_hugepage/enabled";
pub(super) const LESS_GUEST_MEMORY: &str = "Give the guests less memory in total than the host has, or run fewer of \
    them, and leave some for the host itself";
pub(super) const LOCK_MEMORY_NEED: &str = "takes effect at the guest's next start; \
    only where the host has the memory, and with a memory limit, if any, well above the guest's size";
pub(super) const KEEP_KSM: &str = "Keep it running where memory is short: swapping would be worse. \
    pages_to_scan and sleep_millisecs slow it down";
pub(super) const USE_IOTHREAD: &str = "Give disks an IOThread, so that their work leaves the main thread; use vhost \
    for the network";
pub(super) const CLOSE_SCREENS: &str = "Close remote screens (VNC, SPICE), and look for backup jobs and emulated \
    devices; this one thread serves them all";
pub(super) const WINDOWS_HYPERVISOR: &str = "In Windows the cause is VBS (memory integrity, Credential Guard), WSL2 or \
    Docker Desktop: disable what is not needed";
pub(super) const INNER_GUESTS_HERE: &str = "Run the inner guests on this host if possible; \
    otherwise give them virtio devices and keep their exits few";

// Evidence.
pub(super) const CHECK_FAULTS: &str =
    "look at: trace-cmd record -e kvm:kvm_page_fault; grep -E 'thp|compact|numa|ksm' /proc/vmstat, twice";
pub(super) const CHECK_NESTED: &str =
    "check: kvm_stat -1, the nested rows; look at: /sys/module/kvm_*/parameters/nested";

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
