//! Which exits, returns of `KVM_RUN` and lines of the log stand for which event.

use super::texts::{self, Incident};
use crate::lint::prelude::*;
use RuleId::{
    AbnormalExit, DiskErrors, GuestKilled, HostErrors, HostFrequency, HostLockup, HostMemoryPressure, HpetClock,
};
use Severity::{Critical, Info, Warning};
use kvm::kernel_log::{CGROUP_LIMIT, INCOMING_MIGRATION, LogKind, LogLine, NODE_LIMIT};
use kvm::userspace_exit as returns;
use std::cell::LazyCell;

/// An event and how bad it is.
pub(super) type Event = (Severity, &'static Incident);

/// Exits that occur only in such events.
pub(super) const EXITS: [(ExitKind, Severity, &Incident); 4] = [
    (ExitKind::InvalidState, Critical, &texts::ENTRY_FAILED),
    (ExitKind::TripleFault, Warning, &texts::TRIPLE_FAULT),
    (ExitKind::Notify, Warning, &texts::NOTIFY),
    (ExitKind::BusLock, Warning, &texts::BUS_LOCKS),
];

/// What `KVM_RUN` returned: a `KVM_EXIT_*` number, or an errno below 0.
pub(super) fn of_return(reason: i32) -> Option<Event> {
    Some(match reason {
        returns::FAIL_ENTRY => (Critical, &texts::ENTRY_FAILED),
        returns::SHUTDOWN => (Warning, &texts::TRIPLE_FAULT),
        returns::NOTIFY => (Warning, &texts::NOTIFY),
        returns::BUS_LOCK => (Warning, &texts::BUS_LOCKS),
        returns::UNKNOWN | returns::EXCEPTION | returns::INTERNAL_ERROR => (Critical, &texts::INTERNAL_ERROR),
        returns::ARM_SEA => (Critical, &texts::MACHINE_CHECK),
        errno if errno == returns::MEMORY_FAULT || errno < 0 => (Critical, &texts::RUN_FAILED),
        _ => return None,
    })
}

/// What a line of the log stands for.
pub(super) struct Sign {
    pub kind: LogKind,
    /// The codes of the line that it takes: suberrors of [`LogKind::InternalError`] (`KVM_INTERNAL_ERROR_…` in
    /// include/uapi/linux/kvm.h), errnos of [`LogKind::DiskError`]. Empty: any.
    codes: &'static [u64],
    /// Words of which the line has to contain one; `*` matches any words between. Empty: any line.
    names: &'static [&'static str],
    pub rule: RuleId,
    pub event: Event,
}

const fn sign(kind: LogKind, codes: &'static [u64], rule: RuleId, event: Event) -> Sign {
    Sign { kind, codes, names: &[], rule, event }
}

/// The same for lines that name one of these.
const fn naming(names: &'static [&'static str], kind: LogKind, rule: RuleId, event: Event) -> Sign {
    Sign { kind, codes: &[], names, rule, event }
}

/// The same for lines about a start that failed.
const fn start(names: &'static [&'static str], incident: &'static Incident) -> Sign {
    naming(names, LogKind::StartFailed, HostErrors, (Warning, incident))
}

const PIECES: Event = (Warning, &texts::START_PIECES);
const NO_MEMORY: Event = (Warning, &texts::START_MEMORY);
/// What KVM and VFIO say of a piece of memory that they refuse.
const NOT_MAPPED: &[&str] = &["kvm_set_user_memory_region failed", "kvm_set_phys_mem", "dma mapping failed, unable"];

/// What QEMU says of a guest's MSR that KVM does not take.
const MSRS: &[&str] = &["failed to set msr", "failed to get msr", "_msrs: assertion"];
/// What QEMU says of an image that the storage does not give it.
const UNREADABLE: &[&str] = &["could not read l1", "could not read l2", "could not read qcow2", "could not read image"];
/// What the kernel says of an IOMMU that waits for a device.
const NO_ANSWER: &[&str] = &["completion-wait", "inv_timeout", "invalidation time"];

/// All signs; the first that fits a line counts, so the exact ones of a kind come first.
static SIGNS: &[Sign] = &[
    naming(&["validity intercept"], LogKind::EntryFailed, AbnormalExit, (Critical, &texts::VALIDITY)),
    sign(LogKind::EntryFailed, &[], AbnormalExit, (Critical, &texts::ENTRY_FAILED)),
    sign(LogKind::TripleFault, &[], AbnormalExit, (Warning, &texts::TRIPLE_FAULT)),
    sign(LogKind::SplitLock, &[], AbnormalExit, (Warning, &texts::BUS_LOCKS)),
    sign(LogKind::BusLock, &[], AbnormalExit, (Warning, &texts::BUS_LOCKS)),
    sign(LogKind::InternalError, &[1], AbnormalExit, (Critical, &texts::EMULATION)),
    sign(LogKind::InternalError, &[3], AbnormalExit, (Critical, &texts::DELIVERY)),
    naming(&["init_signal"], LogKind::InternalError, AbnormalExit, (Critical, &texts::HOST_INIT)),
    sign(LogKind::InternalError, &[], AbnormalExit, (Critical, &texts::INTERNAL_ERROR)),
    sign(LogKind::EptMisconfig, &[], AbnormalExit, (Critical, &texts::EPT_MISCONFIG)),
    sign(LogKind::RunFailed, &[], AbnormalExit, (Critical, &texts::RUN_FAILED)),
    sign(LogKind::MachineCheck, &[], AbnormalExit, (Critical, &texts::MACHINE_CHECK)),
    naming(UNREADABLE, LogKind::StartFailed, DiskErrors, (Warning, &texts::DISK_DEVICE)),
    sign(LogKind::StartFailed, &[INCOMING_MIGRATION], HostErrors, (Warning, &texts::NOT_TAKEN_OVER)),
    start(&["hyperv", "hyper-v", "evmcs", "requested feature", "cpu model", "host doesn't support"], &texts::START_CPU),
    start(
        &["rlimit_memlock", "locked memory", "vfio_map_dma failed: cannot allocate", "vfio_map_dma: -12"],
        &texts::START_MEMLOCK,
    ),
    start(&["vfio", "iommu group", "is not viable", "failed to get group"], &texts::START_VFIO),
    start(&["\" lock", "another process using", "address already in use", "resource busy"], &texts::START_IN_USE),
    start(&["cpu affinity", "cpuset"], &texts::START_AFFINITY),
    start(&["failed to connect", "vhost-user", "vhost_user"], &texts::START_SOCKET),
    start(&["permission denied", "operation not permitted"], &texts::START_DENIED),
    start(&["backing store for guest ram", "hugepage", "huge page", "hugetlb"], &texts::START_HUGE_PAGES),
    start(&["kvm_init_vcpu failed: cannot allocate"], &texts::START_LOW_MEMORY),
    // Of kernels alone, which need it at once.
    naming(&["kvm_create_vm", "initialize kvm: cannot allocate"], LogKind::StartFailed, HostMemoryPressure, PIECES),
    naming(&["cannot allocate memory", "out of memory"], LogKind::StartFailed, HostMemoryPressure, NO_MEMORY),
    start(
        &["o_direct", "-drive*could not open*invalid argument", "-blockdev*could not open*invalid argument"],
        &texts::START_DIRECT_IO,
    ),
    start(
        &["no such file", "no such device", "could not open", "network not", "not active", "bridge helper"],
        &texts::START_MISSING,
    ),
    start(&["start failed: qemu failed: got timeout"], &texts::START_SLOW),
    start(&["start failed: qemu "], &texts::START_UNSAID),
    sign(LogKind::StartFailed, &[], HostErrors, (Warning, &texts::START_FAILED)),
    naming(&["warning:"], LogKind::KernelBug, HostErrors, (Info, &texts::KERNEL_WARNING)),
    sign(LogKind::KernelBug, &[], AbnormalExit, (Warning, &texts::KERNEL_BUG)),
    sign(LogKind::EmulationFailure, &[], AbnormalExit, (Warning, &texts::EMULATION)),
    sign(LogKind::KilledForMemory, &[CGROUP_LIMIT], GuestKilled, (Critical, &texts::KILLED_AT_LIMIT)),
    sign(LogKind::KilledForMemory, &[NODE_LIMIT], GuestKilled, (Critical, &texts::KILLED_ON_NODES)),
    sign(LogKind::KilledForMemory, &[], GuestKilled, (Critical, &texts::KILLED_FOR_MEMORY)),
    sign(LogKind::OtherKilled, &[], HostMemoryPressure, (Warning, &texts::OTHER_KILLED)),
    sign(LogKind::OutOfMemory, &[], GuestKilled, (Warning, &texts::OUT_OF_MEMORY)),
    naming(NOT_MAPPED, LogKind::Killed, GuestKilled, (Critical, &texts::KILLED_IN_MAP)),
    naming(MSRS, LogKind::Killed, GuestKilled, (Critical, &texts::KILLED_BY_MSR)),
    sign(LogKind::Killed, &[], GuestKilled, (Critical, &texts::KILLED)),
    sign(LogKind::MemoryFailure, &[], GuestKilled, (Critical, &texts::MEMORY_FAILURE)),
    naming(&["not resettable"], LogKind::Terminated, GuestKilled, (Info, &texts::NOT_RESETTABLE)),
    sign(LogKind::Terminated, &[], GuestKilled, (Info, &texts::TERMINATED)),
    sign(LogKind::DeviceHeld, &[], HostErrors, (Warning, &texts::DEVICE_HELD)),
    naming(&["giving up", "inaccessible"], LogKind::DeviceReset, HostErrors, (Critical, &texts::DEVICE_RESET)),
    naming(&["no available reset", "depends on group"], LogKind::DeviceReset, HostErrors, (Info, &texts::NO_RESET)),
    sign(LogKind::DeviceReset, &[], HostErrors, (Warning, &texts::DEVICE_RESET)),
    naming(OTHER_CPUS, LogKind::Lockup, HostLockup, (Critical, &texts::WAIT_FOR_CPU)),
    sign(LogKind::Lockup, &[], HostLockup, (Critical, &texts::LOCKUP)),
    naming(OWN_MEMSLOTS, LogKind::HungTask, HostLockup, (Warning, &texts::HUNG_IN_KVM)),
    naming(MEMSLOTS, LogKind::HungTask, HostLockup, (Warning, &texts::HUNG_MEMSLOTS)),
    naming(MEMORY, LogKind::HungTask, HostLockup, (Warning, &texts::HUNG_MEMORY)),
    naming(STORAGE, LogKind::HungTask, HostLockup, (Warning, &texts::HUNG_STORAGE)),
    sign(LogKind::HungTask, &[], HostLockup, (Warning, &texts::HUNG_TASK)),
    sign(LogKind::OtherLockup, &[], HostLockup, (Warning, &texts::OTHER_LOCKUP)),
    sign(LogKind::GuestLockup, &[], HostLockup, (Warning, &texts::GUEST_LOCKUP)),
    sign(LogKind::GuestHungTask, &[], HostLockup, (Warning, &texts::GUEST_HUNG_TASK)),
    sign(LogKind::GuestClock, &[], HostErrors, (Info, &texts::GUEST_CLOCK)),
    naming(&["warning:"], LogKind::GuestBug, AbnormalExit, (Info, &texts::GUEST_BUG)),
    naming(&["hyper-v"], LogKind::GuestBug, AbnormalExit, (Warning, &texts::WINDOWS_CRASH)),
    sign(LogKind::GuestBug, &[], AbnormalExit, (Warning, &texts::GUEST_BUG)),
    sign(LogKind::SlowInterrupt, &[], HostErrors, (Info, &texts::SLOW_INTERRUPT)),
    sign(LogKind::RealtimeThrottled, &[], HostLockup, (Warning, &texts::REALTIME_THROTTLED)),
    sign(LogKind::Overheated, &[], HostFrequency, (Warning, &texts::OVERHEATED)),
    naming(&["frequency mismatch"], LogKind::HostClock, HostErrors, (Warning, &texts::OTHER_TSC)),
    sign(LogKind::HostClock, &[], HostErrors, (Warning, &texts::HOST_CLOCK)),
    naming(NO_ANSWER, LogKind::IommuFault, HostErrors, (Warning, &texts::IOMMU_NO_ANSWER)),
    naming(&["vfio"], LogKind::IommuFault, HostErrors, (Warning, &texts::IOMMU_FAULT)),
    sign(LogKind::IommuFault, &[], HostErrors, (Info, &texts::IOMMU_FAULT)),
    sign(LogKind::HardwareError, &[], HostErrors, (Warning, &texts::HARDWARE_ERROR)),
    sign(LogKind::TimerIrq, &[], HpetClock, (Info, &texts::TIMER_IRQ)),
    sign(LogKind::PacketsDropped, &[], HostErrors, (Warning, &texts::PACKETS_DROPPED)),
    sign(LogKind::DiskError, &[28, 122], DiskErrors, (Warning, &texts::DISK_FULL)),
    sign(LogKind::DiskError, &[5], DiskErrors, (Warning, &texts::DISK_DEVICE)),
    sign(LogKind::DiskError, &[108], DiskErrors, (Warning, &texts::DISK_BLOCKED)),
    sign(LogKind::DiskError, &[116], DiskErrors, (Warning, &texts::DISK_STALE)),
    sign(LogKind::DiskError, &[], DiskErrors, (Warning, &texts::DISK_ERROR)),
    sign(LogKind::HostDisk, &[28], DiskErrors, (Warning, &texts::DISK_FULL)),
    sign(LogKind::HostDisk, &[], DiskErrors, (Warning, &texts::HOST_DISK)),
    naming(&["qmp command 'guest-"], LogKind::Unexplained, HostErrors, (Info, &texts::NO_ANSWER_OF_AGENT)),
    naming(&["acquire state change lock"], LogKind::Unexplained, HostErrors, (Info, &texts::NO_ANSWER_OF_QEMU)),
    naming(NO_ANSWER_OF_QEMU, LogKind::Unexplained, HostErrors, (Warning, &texts::NO_ANSWER_OF_QEMU)),
    naming(VHOST_USER, LogKind::Unexplained, HostErrors, (Warning, &texts::VHOST_USER_GONE)),
    sign(LogKind::Unexplained, &[], HostErrors, (Info, &texts::UNEXPLAINED)),
    sign(LogKind::NoKvm, &[], RuleId::NoKvm, (Warning, &texts::KVM_ABSENT)),
];

/// What Proxmox says of a QEMU whose main thread is busy or stuck.
const NO_ANSWER_OF_QEMU: &[&str] = &["qmp socket", "qmp command '*' failed - got timeout"];
/// What QEMU says of the socket of a process that serves a device, where the other end has closed it.
const VHOST_USER: &[&str] = &["failed to read msg header", "failed to read from slave", "failed to set msg fds"];
/// Parts of the names of functions that wait for other CPUs and their locks.
const OTHER_CPUS: &[&str] = &["smp_call_function", "flush_tlb", "csd_lock", "multi_cpu_stop", "spin_lock", "queued_"];
/// The same for a change of a guest's memory map.
const MEMSLOTS: &[&str] = &["synchronize_srcu", "kvm_swap_active_memslots"];
/// The same for a change that KVM itself makes while a vCPU runs.
const OWN_MEMSLOTS: &[&str] = &["avic_", "apicv", "x86_set_memory_region"];
/// The same for free memory; the first are the words of XFS.
const MEMORY: &[&str] = &["allocation deadlock", "shrink_", "reclaim", "compact_zone", "alloc_pages_slow", "swap"];
/// The same for a file system or a device.
const STORAGE: &[&str] = &[
    "io_sched", "blk_", "bio", "wait_on_", "folio", "iomap", "nfs", "rpc_", "ceph_", "rbd_", "xfs_", "ext4_", "jbd2_",
    "btrfs_", "gfs2", "ocfs2", "fuse_", "zfs", "zio_", "dm_", "scsi_", "nvme_", "fsync",
];

/// The sign that a line is.
pub(super) fn of_line(line: &LogLine) -> Option<&'static Sign> {
    // Most kinds have no names.
    let text = LazyCell::new(|| {
        // Of a report with a stack the functions count. What comes before them names threads and programs.
        let is_stack = matches!(line.kind, LogKind::Lockup | LogKind::HungTask);
        let text = if is_stack { line.text.split_once(" … ").map_or("", |(_, stack)| stack) } else { &line.text };
        // Names of files are not causes; those of devices are.
        let words = text.split_whitespace().filter(|word| !word.contains('/') || word.contains("/dev/"));
        words.collect::<Vec<_>>().join(" ").to_ascii_lowercase()
    });
    SIGNS.iter().filter(|sign| sign.kind == line.kind).find(|sign| {
        let is_coded = sign.codes.is_empty() || line.data.is_some_and(|code| sign.codes.contains(&code));
        let is_named = |name: &&str| name.split('*').all(|part| text.contains(part));
        is_coded && (sign.names.is_empty() || sign.names.iter().any(is_named))
    })
}

/// Whether an exact sign of the same kind is there, which says more than this general one.
pub(super) fn is_said(general: &Incident, all: &[&'static Incident]) -> bool {
    if *general == texts::UNEXPLAINED {
        return all.iter().any(|incident| *incident != general);
    }
    let is_general = |sign: &&Sign| sign.event.1 == general && sign.codes.is_empty() && sign.names.is_empty();
    let is_exact = |sign: &Sign| sign.event.1 != general && all.contains(&sign.event.1);
    SIGNS.iter().filter(is_general).any(|of| SIGNS.iter().any(|sign| sign.kind == of.kind && is_exact(sign)))
}
