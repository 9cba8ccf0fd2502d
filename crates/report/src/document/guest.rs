//! A guest with its threads, its memory and its jobs.
//! `objects!` ([`super`]) makes a struct, and a `new` that fills each field by its expression.

use super::disk::JsonHostDisk;
use super::events::{
    JsonAccess, JsonExit, JsonInterrupt, JsonKvmEvent, JsonUserspaceExit, accesses, exits,
};
use crate::json::guest_os_of;
use judge::model::{
    ByteRates, CpuShare, DiskRates, DomainModel, Model, NicRates, PressureModel, ThreadModel, jobs,
};
use kvm::thread_name::Role;
use sample::{Job, MemoryInGuest, StopDisk, StoredDisk};
use std::collections::BTreeMap;

objects! {
    /// A guest.
    pub struct JsonDomain(d: &DomainModel, m: &Model) {
        /// Name: from libvirt, the command line or the process.
        name: String = d.name().to_owned(),
        /// UUID. `null`: unknown.
        uuid: Option<String> = d.facts.uuid.as_ref().map(|u| u.value.clone()),
        /// Process id of the VMM. `null`: a file that does not say.
        pid: Option<i32> = d.facts.pid,
        /// libvirt's title, or the name that nova's users gave it. `null`: none.
        title: Option<String> = d.facts.labels.title.clone(),
        /// nova's project, Kubernetes' namespace or Proxmox's pool. `null`: none.
        owner: Option<String> = d.facts.labels.owner.clone(),
        /// Proxmox's tags.
        tags: Vec<String> = d.facts.labels.tags.clone(),
        /// Its number in Proxmox. `null`: Proxmox does not run it.
        vmid: Option<u32> = d.vmid(),
        /// Number of vCPUs. `null`: unknown.
        #[schemars(range(min = 1))]
        vcpus: Option<u32> = Some(d.vcpu_count()).filter(|n| *n > 0),
        /// Machine type, such as `pc-q35-7.2`. `null`: unknown.
        machine: Option<String> = d.facts.machine.as_ref().map(|m| m.value.clone()),
        /// Whether libvirt keeps the guest's definition when it ends; `false`: a transient domain
        /// (`virsh create`). `null`: libvirt did not say.
        persistent: Option<bool> = d.facts.persistent,
        /// The guest's system: `windows`, `linux`, `bsd`, `macos`, or the configured name itself;
        /// where none is configured, the one that several hints agree on. `null`: not known.
        guest_os: Option<String> = guest_os_of(d),
        /// `qemu`, or the VMM's command name.
        vmm: String = d.facts.vmm.as_str().to_owned(),
        /// `ended`: the guest ended within the interval; this is its last object, with all that it
        /// did.
        #[schemars(extend("enum" = ["running", "paused", "ended"]))]
        state: &'static str = d.state.as_str(),
        /// Why it is paused, such as `io-error`, `internal-error`, `guest-panicked`, `watchdog`,
        /// `user`, `migration`; `unknown`: nobody says. `null`: it is not paused, or an older
        /// recording.
        state_reason: Option<&'static str> = d.stop.as_ref().map(|stop| stop.reason.as_str()),
        /// The disks whose failed requests stopped it. Absent: none is known.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        #[schemars(length(min = 1))]
        stopped_disks: Vec<JsonStopDisk> =
            d.stop.iter().flat_map(|stop| &stop.disks).map(JsonStopDisk::new).collect(),
        /// vCPUs whose exits and accesses are missing below: the engine's tables had no place left
        /// for their threads. Absent: none.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(range(min = 1))]
        uncounted_vcpus: Option<u32> = Some(d.uncounted_vcpus).filter(|n| *n > 0),
        /// All its threads together.
        cpu: JsonCpuTime = JsonCpuTime::new(d.cpu),
        /// Its threads, kernel helpers such as vhost included.
        threads: Vec<JsonThread> = d.threads.iter().map(JsonThread::new).collect(),
        /// Exits by reason. Only reasons that occurred. Empty where no `kvm_exit` is traced: see
        /// `userspace_exits`.
        exits: Vec<JsonExit> = exits(d),
        /// Accesses by address. Only those that occurred.
        accesses: Vec<JsonAccess> = accesses(d),
        /// Exits that the VMM served, by reason.
        userspace_exits: Vec<JsonUserspaceExit> =
            d.userspace.iter().map(|row| JsonUserspaceExit::new(row, m)).collect(),
        /// Every other `kvm:*` tracepoint, with `--kvm-events`.
        kvm_events: Vec<JsonKvmEvent> =
            d.kvm_events.iter().map(|(event, count)| JsonKvmEvent::new(event, *count, m)).collect(),
        /// KVM's own statistics of the VM and its vCPUs, by KVM's names, per second.
        counters: BTreeMap<String, f64> = d.counters.clone(),
        /// Block devices, from the VMM's statistics.
        disks: Vec<DiskRates> = d.disks.clone(),
        /// The part of the mean time of its reads and writes that is spent outside the host's block
        /// devices: in the VMM, its queues and limits. `null`: they are not timed, or a cache
        /// answers most requests.
        disk_outside_us: Option<f64> = d.outside_devices_us(),
        /// What its VMM had storage read and write, where no source reports its disks. Absent: a
        /// source does, or it is not known.
        #[serde(skip_serializing_if = "Option::is_none")]
        process_io: Option<JsonProcessIo> = d.process_io.map(JsonProcessIo::new),
        /// What the host's block devices did for the guest. Absent: they are not timed
        /// (`--engine-detail disks`, the list of disks).
        #[serde(skip_serializing_if = "Option::is_none")]
        host_disks: Option<Vec<JsonHostDisk>> =
            d.host_disks.as_ref().map(|all| all.iter().map(JsonHostDisk::new).collect()),
        /// What interrupted the vCPUs, the most frequent first. Absent: it is not traced
        /// (`--engine-detail interrupts`, a guest's page).
        #[serde(skip_serializing_if = "Option::is_none")]
        interrupts: Option<Vec<JsonInterrupt>> =
            d.interrupts.as_ref().map(|all| all.iter().map(JsonInterrupt::new).collect()),
        /// Migrations, block jobs, dumps and the like that run. Absent: none, or neither libvirt
        /// nor a monitor that reports them.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        #[schemars(length(min = 1))]
        jobs: Vec<JsonJob> = d.jobs.iter().map(JsonJob::new).collect(),
        /// Network interfaces, seen from the host's side.
        nics: Vec<NicRates> = d.nics.clone(),
        /// Where its disks are kept on the host. Empty: not seen yet, or a file.
        storage: Vec<JsonStoredDisk> = d.storage.iter().map(JsonStoredDisk::new).collect(),
        /// What it uses of its tightest CPU limit, percent. `null`: no limit of its own.
        cpu_limit_percent: Option<f64> = d.limit_percent(),
        /// How long tasks of its cgroup waited for CPUs, disks and memory. Absent: no PSI, no
        /// cgroup of its own, or a file.
        #[serde(skip_serializing_if = "Option::is_none")]
        pressure: Option<PressureModel> = d.pressure,
        /// Its memory on the host.
        memory: JsonMemory = JsonMemory::new(d),
    }

    /// A file or block device that the VMM has open for reading and writing.
    pub struct JsonStoredDisk(disk: &StoredDisk) {
        /// Its path.
        file: String = disk.file.clone(),
        /// Mount point of its file system, or the lowest device below it.
        storage: String = disk.storage.clone(),
        /// Size of the file system. `null`: a block device.
        size_bytes: Option<u64> = disk.size_bytes,
        /// Free room on it. `null`: a block device.
        free_bytes: Option<u64> = disk.free_bytes,
        /// How much of that is used up in an hour. `null`: not watched for ten minutes.
        filled_per_hour_bytes: Option<u64> = disk.filled_per_hour,
        /// Whether it can take up more room: it has holes, or a format that grows.
        may_grow: bool = disk.may_grow,
    }

    /// What a VMM had storage read and write (`/proc/PID/io`).
    pub struct JsonProcessIo(io: ByteRates) {
        /// Bytes read per second.
        read_bytes: f64 = io.inward,
        /// Bytes written per second.
        write_bytes: f64 = io.outward,
    }

    /// A guest's memory on the host, as last read.
    #[allow(clippy::struct_field_names)]
    pub struct JsonMemory(d: &DomainModel) {
        /// Resident memory of the VMM, explicit huge pages not included. `null`: not read.
        resident_bytes: Option<u64> = d.memory.resident,
        /// Explicit huge pages of the VMM. `null`: not read.
        hugetlb_bytes: Option<u64> = d.memory.hugetlb,
        /// Memory of the VMM in swap. `null`: not read.
        swap_bytes: Option<u64> = d.swap.map(|swap| swap.bytes),
        /// What the balloon leaves to the guest. `null`: no balloon, or neither libvirt nor a
        /// monitor that reports it.
        balloon_bytes: Option<u64> = d.memory.balloon,
        /// Bytes per second that came back from the host's swap. `null`: no cgroup v2 of its own,
        /// no earlier reading, or a kernel before 5.9.
        swap_in: Option<f64> = d.swap_in_rate,
        /// The most memory that its cgroup may have. `null`: no limit, or no cgroup of its own.
        limit_bytes: Option<u64> = d.memory.limit,
        /// What its cgroup has and cannot drop. `null`: no cgroup v2 of its own.
        charged_bytes: Option<u64> = d.memory.charged,
        /// What the guest says itself. `null`: no balloon whose driver is asked for it.
        in_guest: Option<JsonMemoryInGuest> = d.memory.in_guest.map(JsonMemoryInGuest::new),
    }

    /// A guest's memory as its balloon driver last described it.
    pub struct JsonMemoryInGuest(m: MemoryInGuest) {
        /// Memory that its kernel has.
        total_bytes: u64 = m.total,
        /// What its programs can still have without swapping. `null`: its driver does not say.
        usable_bytes: Option<u64> = m.usable,
        /// Its caches of files. `null`: its driver does not say.
        cache_bytes: Option<u64> = m.caches,
        /// Memory that is not usable, percent of the total. `null`: its driver does not say.
        used_percent: Option<f64> = m.used_percent(),
        /// Major page faults per second. `null`: fewer than two answers.
        major_faults: Option<f64> = m.grown.map(|grown| grown.fault_rate()),
        /// Bytes per second from and to its own swap. `null`: fewer than two answers.
        swapped: Option<f64> = m.grown.map(|grown| grown.swap_rate()),
        /// When its driver said so, seconds since the epoch.
        updated_s: u64 = m.updated_s,
    }

    /// CPU time of a guest's threads together.
    pub struct JsonCpuTime(c: Option<CpuShare>) {
        /// User time outside the guest. `null`: no earlier reading.
        usr: Option<f64> = c.and_then(|c| c.kind(|c| c.usr)),
        /// Kernel time. `null`: no earlier reading.
        sys: Option<f64> = c.and_then(|c| c.kind(|c| c.sys)),
        /// Time in the guest. `null`: no earlier reading.
        guest: Option<f64> = c.and_then(|c| c.kind(|c| c.guest)),
        /// Runnable but not running. `null`: no earlier reading, or a kernel without `schedstat`.
        wait: Option<f64> = c.and_then(|c| c.wait),
    }

    /// A thread of a guest.
    pub struct JsonThread(t: &ThreadModel) {
        /// Thread id.
        tid: i32 = t.tid,
        /// The thread's name; control characters replaced.
        comm: String = t.comm.clone(),
        /// `emulator`: the VMM's main thread. `worker`: a helper thread of the VMM.
        #[schemars(extend("enum" = ["vcpu", "emulator", "iothread", "vhost", "worker", "other"]))]
        role: &'static str = t.role.as_str(),
        /// vCPU number. `null`: not a vCPU thread, or its number is unknown.
        vcpu: Option<u32> = t.index.filter(|_| t.role == Role::Vcpu),
        /// Its `usr`, `sys`, `guest` and `wait`.
        #[serde(flatten)]
        time: JsonCpuTime = JsonCpuTime::new(t.cpu),
        /// The CPU it ran on last. `null`: unknown.
        cpu: Option<u32> = t.place.cpu,
        /// CPUs it may run on, as a list: `0-3,8`. `null`: unknown.
        affinity: Option<String> = t.place.affinity.as_ref().map(ToString::to_string),
        /// Moves between CPUs within the interval. `null`: not traced.
        migrations: Option<u64> = t.migrations.total,
        /// Those to another NUMA node. `null`: not traced.
        migrations_cross_node: Option<u64> = t.migrations.total.map(|_| t.migrations.cross_node),
        /// Context switches within the interval because it went to sleep. `null`: unknown.
        voluntary_switches: Option<u64> = t.growth.and_then(|growth| growth.voluntary),
        /// Context switches within the interval because another task took the CPU. `null`: unknown.
        involuntary_switches: Option<u64> = t.growth.and_then(|growth| growth.involuntary),
        /// Time from woken to running, median. `null`: not traced, or never woken.
        wakeup_p50_us: Option<f64> = t.wakeups.as_ref().and_then(|times| times.quantile_us(0.5)),
        /// The same, 99th percentile. `null`: not traced, or never woken.
        wakeup_p99_us: Option<f64> = t.wakeups.as_ref().and_then(|times| times.quantile_us(0.99)),
    }

    /// A disk whose failed requests stopped the guest.
    pub struct JsonStopDisk(disk: &StopDisk) {
        /// Its name for libvirt or QEMU. `null`: unknown.
        name: Option<String> = Some(disk.name.clone()).filter(|name| !name.is_empty()),
        /// Its file or device on the host. `null`: unknown.
        file: Option<String> = disk.file.clone(),
        /// Whether a write found no space.
        full: bool = disk.is_full,
        /// Bytes that are free on the file's file system. `null`: unknown.
        free_bytes: Option<u64> = disk.free_bytes,
        /// Other guests with a disk on that file system.
        also: Vec<String> = disk.also.clone(),
    }

    /// A job of the VMM, as last read.
    pub struct JsonJob(job: &Job) {
        /// What it does. `save` writes the guest's memory to a file.
        #[schemars(extend("enum" = [
            "migration", "save", "dump", "backup", "mirror", "commit", "stream", "other"
        ]))]
        kind: &'static str = job.kind.as_str(),
        /// The disk or the job's id; empty if it is about the whole guest.
        name: String = job.name.clone(),
        /// QEMU's word for its state, such as `active`, `postcopy-active`, `running`, `ready`.
        status: String = job.status.clone(),
        /// Why it failed or stands still. `null`: no error.
        error: Option<String> = job.error.clone(),
        /// Time since its start; where it is not reported, since it was first seen.
        elapsed_s: f64 = jobs::elapsed_s(job),
        /// The part of its bytes that is done. `null`: not reported.
        #[schemars(range(max = 100))]
        progress_percent: Option<f64> = jobs::progress(job),
        /// Bytes in all. `null`: not reported.
        total_bytes: Option<u64> = job.total,
        /// Bytes left; of a migration they grow again at the end of each pass. `null`: not
        /// reported.
        remaining_bytes: Option<u64> = job.remaining,
        /// Bytes moved per second. `null`: not known yet.
        bytes_rate: Option<u64> = job.rate,
        /// Passes over the guest's memory, with the first. `null`: another job.
        rounds: Option<u64> = job.rounds,
        /// Bytes of memory that the guest writes per second; each page counts once a pass. `null`:
        /// not known before the second pass.
        dirtied_rate: Option<u64> = job.dirtied,
        /// Whether a migration ends at this rate. `null`: another job, its first pass, or not
        /// known.
        converges: Option<bool> = jobs::converges(job, jobs::ENDLESS_PERCENT),
        /// How long the guest may stand still at the end. `null`: not reported.
        downtime_limit_ms: Option<f64> = job.downtime_limit_ns.map(|ns| ns as f64 / 1e6),
    }
}
