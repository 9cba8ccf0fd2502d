//! The prose of the scheduling rules.

use crate::figures::figure;
use crate::lint::engine::prose::Prose;
use crate::model::InjectionModel;
use kvm::Isa;
use sample::Migrations;

pub(super) const PAUSES: Prose = Prose {
    title: "vCPUs spin on locks",
    why: "The CPU notices a vCPU that spins (4096 cycles of PAUSE) and exits, so that another vCPU may run. When vCPUs \
        wait for a CPU, the lock's holder is probably one of them",
};
pub(super) const PAUSES_AND_WAIT_TITLE: &str = "vCPUs spin on locks whose holder has no CPU";
pub(super) const HOST_INTERRUPTS: Prose = Prose {
    title: "Interrupts of the host stop the guest far more often than the host's tick",
    why: "Each interrupt that a host CPU receives while it runs a guest is an exit: device interrupts routed to that \
        CPU, rescheduling and function calls from other CPUs, timers of other tasks, or interrupts for the guest that \
        are not posted",
};
pub(super) const HALT_POLL: Prose = Prose {
    title: "Halt polling turns the guest's idle time into host CPU time",
    why: "Before KVM lets a halted vCPU sleep, it polls a little for its next interrupt. That saves a wake-up when the \
        interrupt comes soon; when it comes later, the polling only costs host CPU (shown as system time)",
};
pub(super) const MIGRATING: Prose = Prose {
    title: "Busy vCPUs are moved from CPU to CPU",
    why: "A move to another core leaves the caches behind; a move to another node leaves the memory behind too. The \
        scheduler moves unpinned threads whenever something else wants their CPU",
};
pub(super) const WAIT: Prose = Prose {
    title: "vCPUs are ready to run and wait for a CPU",
    why: "The guest sees this time as steal: all its work is late, and it cannot know why. More tasks want these CPUs \
        than there are CPUs, or a quota stops the guest",
};
pub(super) const WAKEUPS: Prose = Prose {
    title: "Woken vCPUs start late though their CPU is free",
    why: "On an idle CPU of its own a vCPU should run about 50 us after its interrupt. A longer delay usually means a \
        deep sleep state that the CPU has to leave, or kernel work with interrupts disabled",
};

// Fixes.
pub(super) const FEWER_VCPUS: &str =
    "Give the guest no more vCPUs than can run at the same time, or move load off its CPUs";
pub(super) const SPINS_INSIDE: &str = "The vCPUs run and yet spin: this is contention inside the guest. \
    Profile the guest (perf top) for spin locks; fewer vCPUs may be faster";
pub(super) const SPINS_WAIT_UNKNOWN: &str = "First check whether the vCPUs wait for CPUs \
    (/proc/PID/task/TID/schedstat, twice: the second figure is the wait in ns). \
    If they do, give the guest no more vCPUs than can run at the same time. If not, this is contention inside the \
    guest: profile it (perf top) for spin locks; fewer vCPUs may be faster";
pub(super) const SHOW_INTERRUPTS: &str = "grep . /proc/irq/*/effective_affinity_list; cat /proc/interrupts";
pub(super) const SHOW_INTERRUPTS_NEED: &str = "shows which interrupts arrive on the guest's CPUs";
pub(super) const ROUTE_INTERRUPTS: &str = "Route device interrupts away from the guest's CPUs \
    (irqaffinity= on the kernel command line, /proc/irq/N/smp_affinity_list), \
    unless they belong to the guest's own passed-through devices";
pub(super) const LESS_POLLING: &str = "echo 50000 > /sys/module/kvm/parameters/halt_poll_ns";
pub(super) const LESS_POLLING_NEED: &str =
    "on older kernels only guests that start afterwards use it; raises wake-up latency a little";
pub(super) const KEEP_POLLING: &str =
    "Keep it where the guest has its CPUs to itself and latency matters more than power";
pub(super) const PIN_NO_ROOM: &str = "Pin each busy vCPU to its own CPU. \
    The other guests' pins leave no room for that on this host, so move a guest to another host first";
pub(super) const LESS_LOAD: &str =
    "Take load off the CPUs that this guest may use: other guests, host tasks, or vCPUs that it does not need";
pub(super) const SHALLOW_SLEEP: &str = "tuned-adm profile virtual-host-latency 2>/dev/null || cpupower idle-set -D 10";
pub(super) const SHALLOW_SLEEP_NEED: &str = "keeps CPUs out of deep sleep; costs power";
pub(super) const GUEST_IDLES_CPU: &str = "For a guest with CPUs of its own: -overcommit cpu-pm=on lets the guest put \
    the CPU to sleep itself; a larger kvm.halt_poll_ns hides short sleeps";

// Evidence.
pub(super) const WAIT_UNKNOWN: &str = "whether its vCPUs wait for CPUs is unknown";
pub(super) const TICK_UNKNOWN: &str = "the host's tick (at most 1000/s on a busy vCPU) does not explain that";
pub(super) const CHECK_HALT_POLL: &str =
    "check: kvm_stat -1, the halt_poll rows; look at: /sys/module/kvm/parameters/halt_poll_ns";

/// Intel's `intr_info` holds the vector; AMD does not acknowledge the interrupt on its exit.
pub(super) fn check_vectors(isa: Option<Isa>) -> String {
    let vector = match isa {
        Some(Isa::Vmx) => "; intr_info holds the vector (0xec tick, 0xfd reschedule, 0xfb call function)",
        _ => "",
    };
    format!(
        "check: trace-cmd record -e kvm:kvm_exit, then trace-cmd report{vector}; look at: watch -d cat /proc/interrupts"
    )
}

pub(super) fn wait_share(percent: f64) -> String {
    format!("its vCPUs wait for a CPU {} % of the time they want one", figure(percent))
}

pub(super) fn tick_share(hz: u32) -> String {
    format!("the host's own tick causes at most {hz}/s on a busy vCPU")
}

pub(super) fn polling(vcpu: &str, percent: f64, failed: f64, window: &str, guest_percent: f64) -> String {
    let (percent, failed, guest) = (figure(percent), figure(failed), figure(guest_percent));
    format!("{vcpu} polls {percent} % of the time ({failed} % in vain) {window}, while its guest runs {guest} %")
}

pub(super) fn poll_parameter(ns: &str) -> String {
    format!("kvm.halt_poll_ns is {ns}")
}

pub(super) fn moves(vcpu: &str, rate: f64, window: &str, m: &Migrations, all: f64) -> String {
    let far = [(m.cross_core, "core"), (m.cross_llc, "last-level cache"), (m.cross_node, "node")];
    let far = far.into_iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} to another {what}"));
    let far = far.collect::<Vec<_>>().join(", ");
    let far = if far.is_empty() { far } else { format!(" ({far})") };
    format!("{} moves/s of {vcpu} {window}{far}; all busy vCPUs together {}/s", figure(rate), figure(all))
}

pub(super) fn demand(percent: f64, waits: Option<f64>) -> String {
    let waits = waits.map_or_else(String::new, |w| format!(" and waits {} % of that", figure(w)));
    format!("it wants a CPU {} % of the time{waits}", figure(percent))
}

/// A thread's folder; a file may not have its ids.
fn task(pid: i32, tid: i32) -> String {
    let id = |id: i32, unknown: &str| if id > 0 { id.to_string() } else { unknown.to_owned() };
    format!("/proc/{}/task/{}", id(pid, "PID"), id(tid, "TID"))
}

pub(super) fn check_moves(pid: i32, tid: i32) -> String {
    format!("look at: grep nr_migrations {}/sched, twice", task(pid, tid))
}

pub(super) fn waits(vcpu: &str, percent: f64, window: &str, lost: f64) -> String {
    format!(
        "{vcpu} waits {} % of the time it wants a CPU {window}; all vCPUs of the guest together lose {} % of one CPU",
        figure(percent),
        figure(lost)
    )
}

pub(super) fn ran_meanwhile(tasks: &[(String, u64)]) -> String {
    let tasks: Vec<String> = tasks.iter().map(|(who, ns)| format!("{who} ({} ms)", figure(*ns as f64 / 1e6))).collect();
    format!("meanwhile its CPU ran {}", tasks.join(", "))
}

pub(super) fn vcpu_of_guest(vcpu: &str, guest: &str) -> String {
    format!("{vcpu} of {guest}")
}

pub(super) fn check_wait(pid: i32, tid: i32) -> String {
    format!("look at: cat {}/schedstat, twice: the second figure is the wait in ns", task(pid, tid))
}

pub(super) fn wakeups(vcpu: &str, count: u64, median_us: f64, p99_us: f64, window: &str) -> String {
    let (median, p99) = (figure(median_us), figure(p99_us));
    format!("{vcpu}: of {count} wake-ups half took over {median} us and one in a hundred over {p99} us {window}")
}

/// The way of the interrupts that woke it, where they were traced.
pub(super) fn interrupts(traced: &InjectionModel) -> Option<String> {
    let (wake, delay) = (figure(traced.wake.mean_us()?), figure(traced.delay.mean_us()?));
    let guest = traced.slept.mean_us().map(|us| format!(", and ran the guest {} us after the injection", figure(us)));
    let (guest, count) = (guest.unwrap_or_default(), traced.wake.count);
    Some(format!(
        "{count} interrupts woke vCPUs of the guest: {wake} us after the injection; they had a CPU {delay} us \
         later{guest}"
    ))
}

pub(super) fn check_wakeups(cpu: u32) -> String {
    format!("look at: perf sched record -C {cpu} sleep 10; perf sched latency")
}
