//! The prose of the pinning rules.

use crate::figures::figure;
use crate::lint::engine::prose::Prose;
use kvm::CpuSet;
use kvm::thread_name::Role;

/// The most guests or vCPUs that a sentence names.
pub(super) const MAX_NAMES: usize = 64;

pub(super) const OVERLAP_WHY: &str = "A vCPU that may use only one CPU cannot move away: when several are busy they \
    divide the CPU among them, whatever is free elsewhere";
pub(super) const PARTLY_PINNED: Prose = Prose {
    title: "Some vCPUs are pinned and the others may run on their CPUs",
    why: "A pinned vCPU cannot leave when the scheduler puts an unpinned one on its CPU. The pins then do more harm \
        than good",
};
pub(super) const HELPER_WHY: &str = "While this thread runs, the vCPU does not, and the vCPU cannot move away. \
    The guest's own device work (timers, disks, network) then stops the guest";
pub(super) const OTHER_HELPERS: Prose = Prose {
    title: "Another guest's emulator or IOThread is pinned to this guest's vCPU CPUs",
    why: "While that thread runs there, the vCPU does not, and the vCPU cannot move away",
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
    title: "Threads are pinned to CPUs that the host does not have online",
    why: "Nothing can run on a CPU that is not there: the guest does not start, or it runs on the other CPUs of its \
        pin or where the kernel puts it",
};
pub(super) const DRIFT: Prose = Prose {
    title: "A thread's CPU affinity is not the one in the configuration",
    why: "Something else set it: taskset, a cpuset of the service manager, another tool, or a CPU that went offline \
        and came back",
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
pub(super) const PIN_TO_ISOLATED: &str = "Pin each vCPU to one isolated CPU, \
    or use a cpuset partition instead of isolcpus, where the kernel balances load";
pub(super) const ONLINE_CPUS: &str = "Pin these threads to CPUs that are online (virsh vcpupin, emulatorpin)";

pub(super) fn helpers_outside(pinned: &CpuSet) -> String {
    format!(
        "Pin the emulator and IOThreads to CPUs outside of {pinned} (<emulatorpin>, <iothreadpin>); \
         the CPUs of this host are unknown"
    )
}

// Evidence.
pub(super) const CHECK_ISOLATED: &str = "look at: cat /sys/devices/system/cpu/isolated";

/// A vCPU on a shared CPU; `cpus` is its set where it may use others too.
pub(super) fn user(vcpu: u32, guest: Option<&str>, cpus: Option<&CpuSet>) -> String {
    let guest = guest.map_or_else(String::new, |name| format!(" of {name}"));
    let cpus = cpus.map_or_else(String::new, |set| format!(" (CPUs {set})"));
    format!("vCPU {vcpu}{guest}{cpus}")
}

/// A shared CPU. `count` is the number of all vCPUs, of which `users` names at least the first.
pub(super) fn shared_cpu(cpu: u32, users: &[String], count: usize, wanted: Option<&[f64]>, window: &str) -> String {
    let more = if count > users.len() { format!(" and {} more", count - users.len()) } else { String::new() };
    let part = figure(100.0 / count.max(1) as f64);
    let users = users.join(", ");
    match wanted {
        Some(wanted) => {
            let each = wanted.iter().map(|w| format!("{} %", figure(*w))).collect::<Vec<_>>().join(", ");
            format!("CPU {cpu}: {users}{more} want {each} of it {window}; busy at once, each gets {part} %")
        }
        None => format!("CPU {cpu}: {users}{more}; busy at once, each gets {part} % of it"),
    }
}

pub(super) fn conflict_cpus(cpus: &CpuSet) -> String {
    format!("the same on CPUs {cpus}")
}

pub(super) fn partly_pinned(pinned: usize, all: usize, cpus: &CpuSet, free: &CpuSet) -> String {
    format!("{pinned} of {all} vCPUs have their own CPU ({cpus}); vCPU {free} may run anywhere, also on those CPUs")
}

pub(super) fn helper(
    (role, tid): (Role, i32),
    affinity: Option<&CpuSet>,
    shared: &CpuSet,
    busy: Option<f64>,
    window: &str,
) -> String {
    let id = if tid > 0 { format!(" {tid}") } else { String::new() };
    let busy = busy.map_or_else(String::new, |busy| format!("; the thread uses {} % of a CPU {window}", figure(busy)));
    format!(
        "{}{id} may use CPUs {}, and a vCPU is pinned to CPU {shared}{busy}",
        role_name(role),
        affinity.map_or_else(String::new, ToString::to_string),
    )
}

pub(super) fn check_thread(tid: i32) -> String {
    let id = if tid > 0 { tid.to_string() } else { "TID".to_owned() };
    format!("look at: taskset -pc {id}")
}

pub(super) fn other_helper(other: &str, iothread: Option<u32>, cpus: &CpuSet) -> String {
    format!("{} of {other} is pinned to CPUs {cpus} of this guest's vCPUs", helper_name(iothread))
}

/// `name` is the emulator or an `IOThread`; `cpus` where it may run.
pub(super) fn configured_helper(name: &str, cpus: Option<&CpuSet>, vcpus: &CpuSet) -> String {
    match cpus {
        Some(cpus) => format!("{name} may use CPUs {cpus}; vCPUs are pinned to {vcpus}"),
        None => format!("{name} has no pin and may run on all CPUs, also on {vcpus} of the vCPUs"),
    }
}

/// `count` is the number of all vCPUs, of which `vcpus` may name the first only.
pub(super) fn pile(vcpus: &[String], count: usize, cpu: u32, window: &str) -> String {
    let more = if count > vcpus.len() { format!(" and {} more", count - vcpus.len()) } else { String::new() };
    format!("vCPUs {}{more} are all on CPU {cpu} and want it {window}", vcpus.join(", "))
}

pub(super) fn more(count: usize) -> String {
    format!("and {count} more like these")
}

pub(super) fn vcpu_of(vcpu: u32, guest: &str) -> String {
    format!("{vcpu} of {guest}")
}

pub(super) fn several_isolated(vcpus: usize, cpus: &CpuSet) -> String {
    format!("{vcpus} vCPUs may each use several of the isolated CPUs {cpus}")
}

pub(super) fn absent_pin(thread: &str, pin: &CpuSet, absent: &CpuSet) -> String {
    if pin == absent {
        format!("{thread} is pinned to CPU {pin}, which is offline or missing")
    } else {
        format!("{thread} is pinned to CPUs {pin}, of which {absent} are offline or missing")
    }
}

/// A group of processes that leaves fewer CPUs than a pin names.
pub(super) fn bounded(group: &str, cpus: &CpuSet) -> String {
    format!("its group of processes {group} leaves it only CPUs {cpus} (cpuset.cpus, AllowedCPUs=)")
}

pub(super) fn drifted(thread: &str, configured: &CpuSet, allowed: &CpuSet) -> String {
    format!("{thread} is configured for CPU {configured} and may use {allowed}")
}

pub(super) fn check_drift(vcpupin: &str) -> String {
    format!("check: {vcpupin}; look at: taskset -pc TID")
}

// What cannot be judged.
pub(super) const AFFINITY_UNKNOWN: &str = "where the guest's threads may run is unknown, so pinning cannot be verified";
