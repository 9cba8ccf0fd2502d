//! The prose of the scheduling rules.

use crate::lint::prelude::*;

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
pub(super) const GUEST_IDLES_CPU: &str = "For a guest with CPUs of its own: -overcommit cpu-pm=on lets the guest put \
    the CPU to sleep itself; a larger kvm.halt_poll_ns hides short sleeps";

// Evidence.
pub(super) const VECTORS: &str = "; intr_info holds the vector (0xec tick, 0xfd reschedule, 0xfb call function)";

/// A thread's folder; a file may not have its ids.
pub(super) fn task(guest: &GuestContext<'_>, thread: &ThreadModel) -> String {
    let id = |id: i32, unknown: &str| if id > 0 { id.to_string() } else { unknown.to_owned() };
    let pid = guest.domain.facts.pid.unwrap_or_default();
    format!("/proc/{}/task/{}", id(pid, "PID"), id(thread.tid, "TID"))
}
