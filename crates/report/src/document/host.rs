//! The host.

use judge::model::{CpuModel, HostModel, PressureModel, TaskGroup};
use kvm::topology::HostTopology;

objects! {
    /// The host.
    pub struct JsonHost(host: &HostModel) {
        /// Its tasks outside guests, kvmtop included, grouped by name; at most 16, largest first,
        /// read about every two seconds. `null`: not measured.
        tasks: Option<Vec<JsonHostTasks>> =
            host.task_groups.as_ref().map(|all| all.iter().map(JsonHostTasks::new).collect()),
        /// Its CPUs, by number. Empty: a file that holds no topology.
        cpus: Vec<JsonCpu> = host.cpus.iter().map(|c| JsonCpu::new(c, &host.facts.topology)).collect(),
        /// How long its tasks waited for CPUs, disks and memory. Absent: no PSI, or a file.
        #[serde(skip_serializing_if = "Option::is_none")]
        pressure: Option<PressureModel> = host.pressure,
    }

    /// The tasks outside guests that have one name.
    pub struct JsonHostTasks(group: &TaskGroup) {
        /// Name of the process; of kernel threads the part before a slash, such as `kworker`.
        comm: String = group.comm.clone(),
        /// CPU time of all of them, percent of one host CPU.
        cpu: f64 = group.cpu_percent,
        /// How many of them used CPU time.
        #[schemars(range(min = 1))]
        count: u64 = group.count,
    }

    /// A CPU of the host. The kinds of time are percent of its time and add up to 100.
    pub struct JsonCpu(c: &CpuModel, topology: &HostTopology) {
        /// Its number.
        cpu: u32 = c.cpu,
        /// In user space, without guests. `null`: no earlier reading.
        usr: Option<f64> = c.time.map(|t| t.usr),
        /// In the kernel. `null`: no earlier reading.
        sys: Option<f64> = c.time.map(|t| t.sys),
        /// In guests. `null`: no earlier reading.
        guest: Option<f64> = c.time.map(|t| t.guest),
        /// In hard interrupts. `null`: no earlier reading.
        irq: Option<f64> = c.time.map(|t| t.irq),
        /// In soft interrupts. `null`: no earlier reading.
        softirq: Option<f64> = c.time.map(|t| t.softirq),
        /// Given to others by the hypervisor below this host. `null`: no earlier reading.
        steal: Option<f64> = c.time.map(|t| t.steal),
        /// Idle while a task waited for a disk. `null`: no earlier reading.
        iowait: Option<f64> = c.time.map(|t| t.iowait),
        /// Idle. `null`: no earlier reading.
        idle: Option<f64> = c.time.map(|t| t.idle),
        /// Busy between two timer ticks: its kind is unknown. `null`: no earlier reading.
        unsampled: Option<f64> = c.time.map(|t| t.unsampled),
        /// NUMA node. `null`: unknown.
        node: Option<u32> = topology.cpu(c.cpu).and_then(|p| p.node),
        /// Core within its socket. `null`: unknown.
        core: Option<u32> = topology.cpu(c.cpu).and_then(|p| p.core),
        /// CPUs of the same core, itself included. Empty: unknown.
        siblings: Vec<u32> = topology.cpu(c.cpu).map(|p| p.siblings.iter().collect()).unwrap_or_default(),
        /// Whether the CPU is kept out of the scheduler's load balancing (`isolcpus`). `null`:
        /// unknown.
        isolated: Option<bool> = topology.isolated.as_ref().map(|set| set.contains(c.cpu)),
    }
}
