//! Public documents that findings point to.

pub(crate) const CLOCK: &str = "https://libvirt.org/formatdomain.html#time-keeping";
pub(crate) const CPU_MODEL: &str = "https://libvirt.org/formatdomain.html#cpu-model-and-topology";
pub(crate) const CPU_TUNING: &str = "https://libvirt.org/formatdomain.html#cpu-tuning";
pub(crate) const DEVICES: &str = "https://libvirt.org/formatdomain.html#devices";
pub(crate) const DISKS: &str =
    "https://libvirt.org/formatdomain.html#hard-drives-floppy-disks-cdroms";
pub(crate) const HYPERVISOR_FEATURES: &str =
    "https://libvirt.org/formatdomain.html#hypervisor-features";
pub(crate) const INTERFACES: &str = "https://libvirt.org/formatdomain.html#network-interfaces";
pub(crate) const IOTHREADS: &str = "https://libvirt.org/formatdomain.html#iothreads-allocation";
pub(crate) const MEMORY_BACKING: &str = "https://libvirt.org/formatdomain.html#memory-backing";
pub(crate) const NUMA_TUNING: &str = "https://libvirt.org/formatdomain.html#numa-node-tuning";
pub(crate) const KVM_REALTIME: &str = "https://libvirt.org/kbase/kvm-realtime.html";

pub(crate) const HYPERV: &str = "https://www.qemu.org/docs/master/system/i386/hyperv.html";

pub(crate) const BUS_LOCK: &str = "https://docs.kernel.org/arch/x86/buslock.html";
pub(crate) const CPU_FREQUENCY: &str = "https://docs.kernel.org/admin-guide/pm/cpufreq.html";
pub(crate) const CPU_ISOLATION: &str = "https://docs.kernel.org/admin-guide/cpu-isolation.html";
pub(crate) const HALT_POLLING: &str = "https://docs.kernel.org/virt/kvm/halt-polling.html";
pub(crate) const IRQ_AFFINITY: &str = "https://docs.kernel.org/core-api/irq/irq-affinity.html";
pub(crate) const KERNEL_PARAMETERS: &str =
    "https://docs.kernel.org/admin-guide/kernel-parameters.html";
pub(crate) const KVM_API: &str = "https://docs.kernel.org/virt/kvm/api.html";
pub(crate) const KVM_TIMEKEEPING: &str = "https://docs.kernel.org/virt/kvm/x86/timekeeping.html";
pub(crate) const LOCKUP_WATCHDOG: &str =
    "https://docs.kernel.org/admin-guide/lockup-watchdogs.html";
pub(crate) const MACHINE_CHECK: &str = "https://docs.kernel.org/arch/x86/x86_64/machinecheck.html";
pub(crate) const MEMORY_FAILURE: &str = "https://docs.kernel.org/mm/hwpoison.html";
pub(crate) const PRESSURE: &str = "https://docs.kernel.org/accounting/psi.html";
pub(crate) const OOM: &str = "https://docs.kernel.org/admin-guide/mm/concepts.html#oom-killer";
pub(crate) const RCU_STALL: &str = "https://docs.kernel.org/RCU/stallwarn.html";
pub(crate) const SCHED_STATS: &str = "https://docs.kernel.org/scheduler/sched-stats.html";
