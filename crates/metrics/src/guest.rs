//! Counters of a guest.

use super::devices::{DISKS, HOST_DISKS, NICS, OPERATIONS};
use super::ranked::{Ranked, Tally};
use super::vcpu::{CpuMetrics, VcpuMetrics};
use super::write::Sums;
use judge::model::{DomainModel, ExitRow, ExitTable, InjectionModel, born_since};
use kvm::thread_name::Role;
use kvm::userspace_exit;
use sample::{
    DomainFacts, DomainSample, DomainState, Job, MemoryUse, Sample, StopReason, ThreadSample, ThreadTimes, Timing,
};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Devices of one kind that a guest has series for.
const MAX_DEVICES: usize = 32;
/// The device of an address whose owner is unknown.
const UNKNOWN_DEVICE: &str = "unknown";

/// A guest: its facts, and counters that start when kvmtop first sees it.
#[derive(Debug, Clone, Default)]
pub struct GuestMetrics {
    /// Its facts.
    pub facts: Arc<DomainFacts>,
    /// Whether it runs.
    pub state: DomainState,
    /// Why it does not run.
    pub stop_reason: Option<StopReason>,
    /// Its vCPUs: one entry for all, under `None`, or one for each, with what belongs to no known vCPU under `None`.
    pub vcpus: BTreeMap<Option<u32>, VcpuMetrics>,
    /// Its other threads by their role.
    pub vmm: BTreeMap<Role, CpuMetrics>,
    /// Accesses by address space and device.
    pub accesses: Ranked<[String; 2]>,
    /// Exits to the VMM by reason.
    pub userspace: Ranked<[String; 1]>,
    /// Block devices by name.
    pub disks: BTreeMap<String, Sums>,
    /// The host's block devices that worked for it, by name, with the sums of each of [`OPERATIONS`].
    pub host_disks: BTreeMap<String, [Sums; OPERATIONS.len()]>,
    /// Interrupts of its vCPUs by source, number and injector, without a time.
    pub injected: Ranked<[String; 3]>,
    /// Those that woke a vCPU: until its thread had a CPU.
    pub woke: Ranked<[String; 3]>,
    /// Those that were seen to arrive: until the vCPU ran the guest.
    pub arrived: Ranked<[String; 3]>,
    /// Doorbells by device and by what they woke: until that had a CPU.
    pub doorbells: Ranked<[String; 2]>,
    /// Its jobs, as last read.
    pub jobs: Vec<Job>,
    /// Network interfaces by name.
    pub nics: BTreeMap<String, Sums>,
    /// Time in which a group of its threads was throttled by its quota, nanoseconds.
    pub throttled_ns: BTreeMap<String, u64>,
    /// Memory on the host.
    pub memory: MemoryUse,
    /// Memory in swap.
    pub swap_bytes: Option<u64>,
    /// Memory by NUMA node.
    pub node_memory: BTreeMap<u32, u64>,
}

impl GuestMetrics {
    /// Adds an interval: its samples (without an older one for a new guest) and the guest's model.
    pub fn add(
        &mut self,
        now: &DomainSample,
        before: Option<(&Sample, Option<&DomainSample>)>,
        model: &DomainModel,
        at: (u64, bool),
    ) {
        let (now_ns, per_vcpu) = at;
        self.facts = now.facts.clone();
        self.state = model.state;
        self.stop_reason = model.stop.as_ref().map(|stop| stop.reason);
        (self.memory, self.swap_bytes, self.node_memory) = (now.memory, now.swap_bytes, now.node_memory.clone());
        self.jobs = now.jobs.iter().take(MAX_DEVICES).cloned().collect();
        // Without an earlier sample nothing has a known beginning.
        let Some((base, before)) = before else { return };
        self.add_cpu(&now.threads, before.map_or(&[], |b| &b.threads), base.boot_ns, per_vcpu);
        for thread in model.vcpus() {
            self.vcpu(thread.index, per_vcpu).add(thread);
        }
        self.add_exits(model, now_ns, per_vcpu);
        self.accesses.add(
            now_ns,
            model.accesses.iter().map(|row| {
                let device = row.device_name().unwrap_or(UNKNOWN_DEVICE).to_owned();
                ([row.space.as_str().to_owned(), device], Tally { count: row.span.count, ns: row.span.total_ns })
            }),
        );
        let to_vmm = model.userspace.iter().filter(|(vcpu, ..)| vcpu.is_none());
        self.userspace
            .add(now_ns, to_vmm.map(|(_, reason, count)| ([userspace_exit::display(*reason)], untimed(*count))));
        self.add_interrupts(model, now_ns);
        self.add_devices(now, before);
        for disk in model.host_disks.iter().flatten() {
            let requests = [&disk.reads, &disk.writes, &disk.flushes, &disk.others];
            add(&mut self.host_disks, &disk.name, |kinds: &mut [Sums; 4]| {
                kinds.iter_mut().zip(requests).for_each(|(sums, grown)| sums.add(HOST_DISKS, grown, None));
            });
        }
        for group in &model.throttling {
            let name = if per_vcpu { group.group.as_str() } else { group_of_all(&group.group) };
            add(&mut self.throttled_ns, name, |ns: &mut u64| *ns = ns.saturating_add(group.throttled_ns));
        }
    }

    fn vcpu(&mut self, index: Option<u32>, per_vcpu: bool) -> &mut VcpuMetrics {
        self.vcpus.entry(index.filter(|_| per_vcpu)).or_default()
    }

    fn add_cpu(&mut self, now: &[ThreadSample], before: &[ThreadSample], boot_ns: u64, per_vcpu: bool) {
        let before: HashMap<_, _> = before.iter().map(|t| ((t.tid, t.start_ticks), t.cpu)).collect();
        for thread in now {
            let is_new = || born_since(thread.start_ticks, boot_ns);
            let older = match before.get(&(thread.tid, thread.start_ticks)) {
                Some(cpu) => *cpu,
                None => thread.cpu_before.or_else(|| is_new().then_some(ThreadTimes::AT_BIRTH)),
            };
            let Some((now, older)) = thread.cpu.zip(older) else { continue };
            match thread.role {
                Role::Vcpu => self.vcpu(thread.index, per_vcpu).cpu.add(&now, &older),
                role => self.vmm.entry(role).or_default().add(&now, &older),
            }
        }
    }

    fn add_exits(&mut self, model: &DomainModel, now_ns: u64, per_vcpu: bool) {
        let tally = |row: &ExitRow| ([row.reason.clone()], Tally { count: row.span.count, ns: row.span.total_ns });
        if !per_vcpu {
            return self.vcpu(None, per_vcpu).exits.add(now_ns, model.exits.rows.iter().map(tally));
        }
        for (vcpu, table) in &model.vcpu_exits {
            self.vcpu(Some(*vcpu), per_vcpu).exits.add(now_ns, table.rows.iter().map(tally));
        }
        // Of threads that no sample showed, and of those that are not known to be a vCPU.
        let others = model.exits.rows.iter().map(|row| ([row.reason.clone()], without(row, &model.vcpu_exits)));
        let others: Vec<_> = others.filter(|(_, tally)| tally.count > 0).collect();
        if !others.is_empty() {
            self.vcpu(None, per_vcpu).exits.add(now_ns, others);
        }
    }

    fn add_interrupts(&mut self, model: &DomainModel, now_ns: u64) {
        let both = |a: &Timing, b: &Timing| {
            let mut both = Tally::from(a);
            both.add(b.into());
            both
        };
        let grown = |tally: &dyn Fn(&InjectionModel) -> Tally| {
            let kind = |i: &InjectionModel| {
                [i.source.as_str().to_owned(), i.source.number().to_string(), i.by.as_str().to_owned()]
            };
            model.interrupts.iter().flatten().map(|i| (kind(i), tally(i))).collect::<Vec<_>>()
        };
        self.injected.add(now_ns, grown(&|i| untimed(i.count)));
        self.woke.add(now_ns, grown(&|i| Tally { count: i.wake.count, ..both(&i.wake, &i.delay) }));
        self.arrived.add(now_ns, grown(&|i| both(&i.slept, &i.kick)));
        let rung = model.doorbells.iter().flatten().map(|bell| {
            let device = bell.device.as_deref().unwrap_or(UNKNOWN_DEVICE);
            ([device.to_owned(), bell.to.as_str().to_owned()], Tally::from(&bell.time))
        });
        self.doorbells.add(now_ns, rung);
    }

    fn add_devices(&mut self, now: &DomainSample, before: Option<&DomainSample>) {
        // A sample repeats the last reading until the next one. Two readings never cover the same time to a nanosecond.
        let same_disks = before.is_some_and(|b| (b.devices_ns, &b.disks) == (now.devices_ns, &now.disks));
        for disk in now.disks.iter().filter(|_| !same_disks) {
            add(&mut self.disks, &disk.name, |sums: &mut Sums| sums.add(DISKS, disk, None));
        }
        let same_nics = before.is_some_and(|b| (b.nics_ns, &b.nics) == (now.nics_ns, &now.nics));
        for nic in now.nics.iter().filter(|_| !same_nics) {
            add(&mut self.nics, &nic.name, |sums: &mut Sums| sums.add(NICS, nic, None));
        }
    }
}

/// Adds to the entry of a name, if there is one or room for one.
fn add<T: Default>(all: &mut BTreeMap<String, T>, name: &str, add: impl FnOnce(&mut T)) {
    if let Some(known) = all.get_mut(name) {
        add(known);
    } else if all.len() < MAX_DEVICES {
        add(all.entry(name.to_owned()).or_default());
    }
}

/// `vcpu` for the group of each vCPU, so that a guest with many makes no more series than others.
fn group_of_all(group: &str) -> &str {
    let number = group.strip_prefix("vcpu").or_else(|| group.strip_prefix("iothread"));
    match number {
        Some(number) if number.bytes().all(|b| b.is_ascii_digit()) => &group[..group.len() - number.len()],
        _ => group,
    }
}

/// The part of a guest's row that its vCPUs' rows do not contain.
fn without(row: &ExitRow, vcpus: &[(u32, ExitTable)]) -> Tally {
    let same = vcpus.iter().flat_map(|(_, table)| &table.rows).filter(|r| r.reason == row.reason);
    same.fold(Tally { count: row.span.count, ns: row.span.total_ns }, |left, r| Tally {
        count: left.count.saturating_sub(r.span.count),
        ns: left.ns.map(|ns| ns.saturating_sub(r.span.total_ns.unwrap_or(0))),
    })
}

fn untimed(count: u64) -> Tally {
    Tally { count, ns: None }
}
