//! The prose of the pinning rules.

use crate::figures::figure;
use crate::kvm::CpuSet;
use crate::kvm::thread_name::Role;
use crate::lint::engine::prose::Prose;

pub(super) const OVERLAP_WHY: &str = "A vCPU that may use only one CPU cannot move away: when both vCPUs are busy each \
    gets half of the CPU, whatever is free elsewhere";
pub(super) const PARTLY_PINNED: Prose = Prose {
    title: "Some vCPUs are pinned and the others may run on their CPUs",
    why: "A pinned vCPU cannot leave when the scheduler puts an unpinned one on its CPU. The pins then do more harm \
        than good",
};
pub(super) const HELPER_WHY: &str = "While this thread runs, the vCPU does not, and the vCPU cannot move away. \
    The guest's own device work (timers, disks, network) then stops the guest";
pub(super) const OTHER_EMULATOR: Prose = Prose {
    title: "Another guest's emulator is pinned to this guest's vCPU CPUs",
    why: "While that emulator runs there, the vCPU does not, and the vCPU cannot move away",
};
pub(super) const CONFIGURED_HELPERS: Prose = Prose {
    title: "Emulator or IOThreads may run on CPUs of pinned vCPUs",
    why: "While one of them runs there, the vCPU does not, and the vCPU cannot move away",
};
pub(super) const PILE_UP: Prose = Prose {
    title: "vCPUs pile up on an isolated CPU: nothing balances load there",
    why: "The scheduler does not balance load on isolated CPUs. A task that may use several of them stays where it \
        started, usually on the first one, while the others are idle",
};
pub(super) const OFFLINE: Prose = Prose {
    title: "vCPUs are pinned to CPUs that the host does not have online",
    why: "No vCPU can run on a CPU that is not there: the guest does not start, or it runs where the kernel puts it",
};
pub(super) const DRIFT: Prose = Prose {
    title: "A thread's CPU affinity is not the one in the configuration",
    why: "Something else set it: taskset, a cpuset of the service manager, another tool, or a CPU that went offline \
        and came back",
};

// Titles.
pub(super) fn overlap_title(guest: &str, other: Option<&str>) -> String {
    match other {
        Some(other) => format!("vCPUs of {guest} and {other} are pinned to the same CPU"),
        None => "Two vCPUs of the guest are pinned to the same CPU".into(),
    }
}

pub(super) fn helper_title(role: Role) -> String {
    format!("The guest's {} may run on the CPU of a pinned vCPU", role_name(role))
}

fn role_name(role: Role) -> &'static str {
    match role {
        Role::Iothread => "IOThread",
        Role::Vhost => "vhost thread",
        _ => "emulator thread",
    }
}

// Fixes.
pub(super) const SEPARATE_SETS: &str = "Give the guests CPU sets that do not overlap. \
    With too few CPUs for that, let them share one common set instead of single CPUs";
pub(super) const ALL_OR_NONE: &str = "Pin all vCPUs or none";
pub(super) const NO_ROOM_FOR_HELPERS: &str = "No CPU of this host is free of pinned vCPUs: \
    remove one vCPU, so that the emulator and IOThreads get a CPU";
pub(super) const XML_NEXT_START: &str = "goes into the domain's XML; takes effect at the guest's next start";
pub(super) const PIN_TO_ISOLATED: &str = "Pin each vCPU to one isolated CPU, \
    or use a cpuset partition instead of isolcpus, where the kernel balances load";
pub(super) const ONLINE_CPU_NEED: &str = "choose a CPU that is online";
pub(super) const AT_ONCE: &str = "takes effect at once";

pub(super) fn helpers_outside(pinned: &CpuSet) -> String {
    format!(
        "Pin the emulator and IOThreads to CPUs outside of {pinned} (<emulatorpin>, <iothreadpin>); \
         the CPUs of this host are unknown"
    )
}

// Evidence.
pub(super) const CHECK_ISOLATED: &str = "check: cat /sys/devices/system/cpu/isolated";

/// `other` is the other vCPU's guest; `None`: the same guest.
pub(super) fn conflict(
    vcpus: (u32, u32),
    other: Option<&str>,
    cpu: u32,
    wanted: Option<(f64, f64)>,
    window: &str,
) -> String {
    let wanted = wanted
        .map_or_else(String::new, |(a, b)| format!(": they want {} % and {} % of it {window}", figure(a), figure(b)));
    format!(
        "vCPU {} and vCPU {} of {} may both use CPU {cpu}{wanted}",
        vcpus.0,
        vcpus.1,
        other.unwrap_or("the same guest")
    )
}

pub(super) fn conflict_cpus(cpus: &CpuSet) -> String {
    format!("the same on CPUs {cpus}")
}

pub(super) fn partly_pinned(pinned: usize, all: f64, cpus: &CpuSet, free: &[String]) -> String {
    format!(
        "{pinned} of {} vCPUs have their own CPU ({cpus}); vCPU {} may run anywhere, also on those CPUs",
        figure(all),
        free.join(", ")
    )
}

pub(super) fn helper(
    (role, tid): (Role, i32),
    affinity: Option<&CpuSet>,
    shared: &CpuSet,
    busy: f64,
    window: &str,
) -> String {
    format!(
        "{} {tid} may use CPUs {}, and a vCPU is pinned to CPU {shared}; the thread uses {} % of a CPU {window}",
        role_name(role),
        affinity.map_or_else(String::new, ToString::to_string),
        figure(busy)
    )
}

pub(super) fn check_thread(tid: i32) -> String {
    format!("check: taskset -pc {tid}")
}

pub(super) fn other_emulator(other: &str, cpus: &CpuSet) -> String {
    format!("the emulator of {other} is pinned to CPUs {cpus} of this guest's vCPUs")
}

/// `name` is the emulator or an `IOThread`; `cpus` where it may run.
pub(super) fn configured_helper(name: &str, cpus: Option<&CpuSet>, vcpus: &CpuSet) -> String {
    match cpus {
        Some(cpus) => format!("{name} may use CPUs {cpus}; vCPUs are pinned to {vcpus}"),
        None => format!("{name} has no pin and may run on all CPUs, also on {vcpus} of the vCPUs"),
    }
}

pub(super) fn pile(vcpus: &[String], cpu: u32, window: &str) -> String {
    format!("vCPUs {} are all on CPU {cpu} and want it {window}", vcpus.join(", "))
}

pub(super) fn vcpu_of(vcpu: u32, guest: &str) -> String {
    format!("{vcpu} of {guest}")
}

pub(super) fn several_isolated(vcpus: usize, cpus: &CpuSet) -> String {
    format!("{vcpus} vCPUs may each use several of the isolated CPUs {cpus}")
}

pub(super) fn offline_pin(vcpu: u32, cpus: &CpuSet) -> String {
    format!("vCPU {vcpu} is pinned to CPU {cpus}, which is offline or missing")
}

pub(super) fn drifted(thread: &str, configured: &CpuSet, allowed: &CpuSet) -> String {
    format!("{thread} is configured for CPU {configured} and may use {allowed}")
}

pub(super) fn check_drift(vcpupin: &str) -> String {
    format!("check: {vcpupin}; taskset -pc TID")
}

// What cannot be judged.
pub(super) const AFFINITY_UNKNOWN: &str = "where the guest's threads may run is unknown, so pinning cannot be verified";
