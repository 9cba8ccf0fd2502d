//! The host.
//! `objects!` ([`super`]) makes a struct, and a `new` that fills each field by its expression.

use judge::model::{
    CpuModel, HostLinkModel, HostModel, HostNodeModel, PressureModel, TaskGroup, WholeDiskModel,
};
use kvm::topology::HostTopology;
use sample::HostMemory;

objects! {
    /// The host.
    pub struct JsonHost(host: &HostModel) {
        /// Its tasks outside guests, kvmtop included, grouped by name; at most 16, largest first,
        /// read about every two seconds. `null`: not measured.
        tasks: Option<Vec<TaskGroup>> = host.task_groups.clone(),
        /// Its CPUs, by number. Empty: a file that holds no topology.
        cpus: Vec<JsonCpu> =
            host.cpus.iter().map(|c| JsonCpu::new(c, &host.facts.topology)).collect(),
        /// How long its tasks waited for CPUs, disks and memory. Absent: no PSI, or a file.
        #[serde(skip_serializing_if = "Option::is_none")]
        pressure: Option<PressureModel> = host.pressure,
        /// Tasks that ran or waited for a CPU or a disk, the kernel's mean of about a minute.
        /// Absent: a file, or an older recording.
        #[serde(skip_serializing_if = "Option::is_none")]
        load: Option<f64> = host.load,
        /// Its memory. Absent: a file.
        #[serde(skip_serializing_if = "Option::is_none")]
        memory: Option<JsonHostMemory> =
            host.memory.as_ref().map(|memory| JsonHostMemory::new(memory, host)),
        /// Its disks. Absent: a file, an older recording, or no earlier reading.
        #[serde(skip_serializing_if = "Option::is_none")]
        disks: Option<Vec<JsonWholeDisk>> =
            host.disks.as_ref().map(|all| all.iter().map(JsonWholeDisk::new).collect()),
        /// Its network links. Absent: as for disks.
        #[serde(skip_serializing_if = "Option::is_none")]
        links: Option<Vec<JsonHostLink>> =
            host.links.as_ref().map(|all| all.iter().map(JsonHostLink::new).collect()),
        /// Memory of its NUMA nodes. Empty: it has only one, or a file.
        nodes: Vec<JsonHostNode> = host.nodes.iter().flatten().map(JsonHostNode::new).collect(),
    }

    /// The memory of a NUMA node.
    pub struct JsonHostNode(node: &HostNodeModel) {
        /// Its number.
        node: u32 = node.node,
        /// Its memory.
        total_bytes: u64 = node.total,
        /// What of it nothing uses.
        free_bytes: u64 = node.free,
        /// Explicit huge pages of it that are free.
        huge_free_bytes: u64 = node.huge_free,
        /// Pages per second that it gave to tasks that wanted those of another node. `null`: no
        /// `interval_s`.
        missed: Option<f64> = node.rate_of(node.missed),
    }

    /// A block device of the host that is no partition, and what all who use it did.
    pub struct JsonWholeDisk(disk: &WholeDiskModel) {
        /// Its name in the host's kernel, such as `nvme0n1` or `dm-0`.
        name: String = disk.name.clone(),
        /// Name of a device-mapper device, or the file of a loop device. `null`: another kind of
        /// device.
        alias: Option<String> = disk.alias.clone(),
        /// Whether it stands on other disks or in memory: its bytes count again there, or nowhere.
        stacked: bool = disk.is_stacked,
        /// Reads per second. `null`: the interval is too short.
        read_ops: Option<f64> = disk.rate_of(disk.reads),
        /// Writes per second. `null`: as for reads.
        write_ops: Option<f64> = disk.rate_of(disk.writes),
        /// Bytes read per second. `null`: as for reads.
        read_bytes: Option<f64> = disk.rate_of(disk.read_bytes),
        /// Bytes written per second. `null`: as for reads.
        write_bytes: Option<f64> = disk.rate_of(disk.write_bytes),
        /// Mean time of a read or write. `null`: none.
        mean_us: Option<f64> = disk.mean_us(),
        /// Requests under way, as last read.
        in_flight: u64 = disk.in_flight,
        /// Part of the time in which a request was under way. `null`: as for reads.
        #[schemars(range(max = 100))]
        busy_percent: Option<f64> = disk.busy_percent(),
    }

    /// A network interface of the host that has a device: no bridge, bond or tap.
    pub struct JsonHostLink(link: &HostLinkModel) {
        /// Its name.
        name: String = link.name.clone(),
        /// Bytes received per second. `null`: the interval is too short.
        rx_bytes: Option<f64> = link.rate_of(link.rx_bytes),
        /// Bytes sent per second. `null`: as for those received.
        tx_bytes: Option<f64> = link.rate_of(link.tx_bytes),
        /// Packets dropped per second, both ways. `null`: as for bytes.
        drops: Option<f64> = link.rate_of(link.drops),
        /// Its speed, Mbit/s. `null`: its driver does not say.
        speed_mbit: Option<u64> = link.speed_mbit,
    }

    /// The host's memory.
    #[allow(clippy::struct_field_names)]
    pub struct JsonHostMemory(memory: &HostMemory, host: &HostModel) {
        /// All of it.
        total_bytes: u64 = memory.total,
        /// What the kernel expects to have for new processes: free memory and part of the caches.
        available_bytes: u64 = memory.available,
        /// What the guests have, explicit huge pages included.
        guests_bytes: u64 = host.guests_memory,
        /// What neither guests nor caches have and is not free. `null`: unknown.
        other_bytes: Option<u64> = host.other_memory(),
        /// Caches that can be had back, without that of ZFS. `null`: an older recording.
        cache_bytes: Option<u64> = memory.cache,
        /// The cache of ZFS (ARC) above its minimum. `null`: no ZFS, or an older recording.
        arc_bytes: Option<u64> = memory.arc,
        /// What nothing uses. `null`: an older recording.
        free_bytes: Option<u64> = memory.free,
        /// Explicit huge pages of all sizes. `null`: none in this kernel, or an older recording.
        huge_total_bytes: Option<u64> = memory.huge_total,
        /// Those of them that are free. `null`: as for all.
        huge_free_bytes: Option<u64> = memory.huge_free,
        /// Swap in use.
        swap_used_bytes: u64 = memory.swap_used,
        /// What KSM saves. `null`: no KSM, or an older recording.
        ksm_saved_bytes: Option<u64> = memory.ksm_saved,
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
        siblings: Vec<u32> =
            topology.cpu(c.cpu).map(|p| p.siblings.iter().collect()).unwrap_or_default(),
        /// Whether the CPU is kept out of the scheduler's load balancing (`isolcpus`). `null`:
        /// unknown.
        isolated: Option<bool> = topology.isolated.as_ref().map(|set| set.contains(c.cpu)),
    }
}
