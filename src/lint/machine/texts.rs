//! The prose of the machine rules.

use crate::figures::{bytes, figure};
use crate::lint::engine::prose::Prose;
use crate::sample::HostMemory;

pub(super) const SENSOR_MSRS: Prose = Prose {
    title: "A sensor tool in the guest reads power meters or thermometers that KVM does not have",
    why: "These MSRs are sensors: power meters (RAPL), temperatures, frequencies. A monitoring tool in the guest polls \
        them and handles the fault that it gets: harmless, and not the cause of any load",
};
pub(super) const UNHANDLED_MSRS: Prose = Prose {
    title: "The guest accesses MSRs that KVM does not have",
    why: "KVM answers such an access with a fault, which most systems expect and handle. It matters only if the guest \
        misbehaves at that moment",
};
pub(super) const FAULTS: Prose = Prose {
    title: "The host serves many memory faults of the guest",
    why: "The host maps guest memory at its first use, and again whenever something removed the mapping: ballooning, \
        KSM, huge page collapse, NUMA balancing, swapping, dirty logging. A growing guest causes faults for a while; \
        if they go on for minutes, one of these is active",
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
pub(super) const STEAL: Prose = Prose {
    title: "This host is itself a guest and does not get its CPUs",
    why: "The outer hypervisor is running other guests on these CPUs. Everything here, guests included, stops \
        meanwhile, and no setting on this host changes that",
};
pub(super) const ABNORMAL: Prose = Prose {
    title: "Abnormal exits",
    why: "These exits are rare in a healthy guest. Each indicates a crash, a defect, or a load that hurts its \
        neighbours",
};
pub(super) const MAIN_LOOP: Prose = Prose {
    title: "QEMU's main thread uses close to a whole CPU",
    why: "One thread serves timers, the monitor, screens and all devices without their own thread. When it is full, \
        all of them slow down, and vCPUs wait for the lock that it holds",
};
pub(super) const NESTED: Prose = Prose {
    title: "The guest runs guests of its own",
    why: "The guest is a hypervisor. Each exit of its guests passes through this host first and causes several exits \
        here, so everything inside costs several times more",
};

// Fixes.
pub(super) const NO_ACTION_SENSORS: &str = "No action needed; stop the sensor tool in the guest to avoid the messages";
pub(super) const NO_ACTION_MSRS: &str = "No action needed unless the guest misbehaves";
pub(super) const SILENCE_MSRS: &str = "echo 0 > /sys/module/kvm/parameters/report_ignored_msrs";
pub(super) const SILENCE_MSRS_NEED: &str =
    "only silences the log; do not set ignore_msrs without need, it hides real faults";
pub(super) const SHOW_MAPPING: &str =
    "cat /sys/kernel/mm/ksm/run /proc/sys/kernel/numa_balancing /sys/kernel/mm/transparent_hugepage/enabled";
pub(super) const SHOW_MAPPING_NEED: &str = "shows what may remove mappings";
pub(super) const USE_HUGE_PAGES: &str = "Back the guest with huge pages \
    (<memoryBacking><hugepages/></memoryBacking>) if its memory is meant for it alone";
pub(super) const LESS_GUEST_MEMORY: &str = "Give the guests less memory in total than the host has \
    (virsh setmem, fewer guests), and leave some for the host itself";
pub(super) const LOCK_MEMORY: &str = "<memoryBacking>\n  <locked/>\n</memoryBacking>";
pub(super) const LOCK_MEMORY_NEED: &str = "takes effect at the guest's next start; \
    only where the host has the memory, and with <memtune><hard_limit> well above the guest's size";
pub(super) const STOP_KSM_NEED: &str = "stops the scanning; shared pages stay shared until written";
pub(super) const KEEP_KSM: &str = "Keep it running where memory is short: swapping would be worse. \
    pages_to_scan and sleep_millisecs slow it down";
pub(super) const OTHER_INSTANCE: &str =
    "Move to a larger or dedicated instance, or ask the outer hypervisor's operator";
pub(super) const USE_IOTHREAD: &str = "Give disks an IOThread (<iothreads>1</iothreads>, <driver iothread='1'/>), \
    so that their work leaves the main thread; use vhost for the network";
pub(super) const CLOSE_SCREENS: &str = "Close remote screens (VNC, SPICE), and look for backup jobs and emulated \
    devices; this one thread serves them all";
pub(super) const WINDOWS_HYPERVISOR: &str = "In Windows the cause is VBS (memory integrity, Credential Guard), WSL2 or \
    Docker Desktop: disable what is not needed";
pub(super) const INNER_GUESTS_HERE: &str = "Run the inner guests on this host if possible; \
    otherwise give them virtio devices and keep their exits few";

/// What an abnormal event is, and what to do about it.
#[derive(Clone, Copy)]
pub(super) struct Abnormality {
    pub what: &'static str,
    pub fix: &'static str,
}
pub(super) const BUS_LOCKS: Abnormality = Abnormality {
    what: "bus locks: an unaligned atomic instruction stopped the memory of the whole host",
    fix: "Find the program in the guest (split lock warnings in its log). \
        QEMU can slow it down: -machine …,bus-lock-ratelimit=N",
};
pub(super) const EMULATION: Abnormality = Abnormality {
    what: "instructions that KVM could not emulate",
    fix: "The guest is stopped or about to be: its QEMU log has the registers. \
        Update QEMU, the firmware and the host's kernel",
};
pub(super) const NOTIFY: Abnormality = Abnormality {
    what: "exits because the guest blocked events for too long",
    fix: "The guest is stuck or hostile: look at its console",
};
pub(super) const INVALID_STATE: Abnormality = Abnormality {
    what: "entries with an invalid guest state",
    fix: "Usually a firmware or nested-virtualisation bug: update QEMU, the firmware and the host's kernel",
};
pub(super) const TRIPLE_FAULT: Abnormality = Abnormality {
    what: "triple faults: the guest crashed or reset itself",
    fix: "Look at the guest's console and crash dumps",
};
pub(super) const WINDOWS_CRASH: Abnormality = Abnormality {
    what: "Windows reported a crash (write to MSR 0x40000105)",
    fix: "Read the guest's memory dump (bugcheck)",
};

// Evidence.
pub(super) const FROM_KERNEL_LOG: &str = "from the host's kernel log";
pub(super) const CHECK_MSRS: &str =
    "check: journalctl -k | grep -iE 'kvm.*(rd|wr)msr'; trace-cmd record -e kvm:kvm_msr";
pub(super) const CHECK_FAULTS: &str =
    "check: trace-cmd record -e kvm:kvm_page_fault; grep -E 'thp|compact|numa|ksm' /proc/vmstat, twice";
pub(super) const CHECK_KSM: &str = "check: grep . /sys/kernel/mm/ksm/*";
pub(super) const CHECK_STEAL: &str = "check: mpstat -P ALL 1, column %steal";
pub(super) const CHECK_ABNORMAL: &str = "check: journalctl -k; the guest's log under /var/log/libvirt/qemu";
pub(super) const CHECK_NESTED: &str = "check: kvm_stat -1 | grep nested; ls /sys/module/kvm_*/parameters/nested";

pub(super) fn msr_accesses(number: u32, name: Option<&str>, write: bool, times: u64) -> String {
    let name = name.map_or_else(String::new, |n| format!(" ({n})"));
    format!("{times} {} of MSR {number:#x}{name}", if write { "writes" } else { "reads" })
}

pub(super) fn in_swap(swap: u64, grown: u64, window: &str) -> String {
    format!("{} of the guest are in swap, {} more than before {window}", bytes(swap), bytes(grown))
}

pub(super) fn host_memory(m: HostMemory) -> String {
    let (available, total, swap) = (bytes(m.available), bytes(m.total), bytes(m.swap_used));
    format!("the host has {available} of {total} available and {swap} in swap")
}

pub(super) fn check_swap(pid: i32) -> String {
    format!("check: grep VmSwap /proc/{pid}/status; vmstat 1")
}

pub(super) fn ksmd(percent: f64) -> String {
    format!("ksmd uses {} % of a CPU", figure(percent))
}

pub(super) fn stolen(share: f64, cpu: u32, total: f64) -> String {
    format!("{} % of CPU {cpu} is stolen; {} % of one CPU over the whole host", figure(share), figure(total))
}

pub(super) fn abnormal(count: u64, what: &str, window: &str) -> String {
    format!("{} {what} {window}", figure(count as f64))
}

pub(super) fn internal_errors(count: u64, window: &str) -> String {
    format!("{count} KVM_EXIT_INTERNAL_ERROR {window}: {}", EMULATION.what)
}

pub(super) fn logged(lines: u64, what: &str, line: &str) -> String {
    format!("{lines} lines of the host's log report {what}: {line}")
}

pub(super) fn main_thread(busy: f64, usr: f64, sys: f64, window: &str) -> String {
    let (busy, usr, sys) = (figure(busy), figure(usr), figure(sys));
    format!("QEMU's main thread uses {busy} % of a CPU ({usr} % user, {sys} % kernel) {window}")
}

pub(super) fn emulated_timers(rate: &str) -> String {
    format!("the guest makes {rate} accesses/s to timers that this thread serves")
}

pub(super) fn check_thread(tid: i32) -> String {
    format!("check: perf top -t {tid}")
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
