//! Counters of a guest.

use super::ranked::{Ranked, Tally};
use super::vcpu::{CpuMetrics, VcpuMetrics};
use judge::model::{DiskRates, DomainModel, ExitRow, ExitTable, born_since};
use kvm::thread_name::Role;
use kvm::userspace_exit;
use sample::{
    DomainFacts, DomainSample, DomainState, Sample, StopReason, ThreadSample, ThreadTimes,
};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

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
    /// Its vCPUs: one entry for all, under `None`, or one for each, with what belongs to no known
    /// vCPU under `None`.
    pub vcpus: BTreeMap<Option<u32>, VcpuMetrics>,
    /// Its other threads by their role.
    pub vmm: BTreeMap<Role, CpuMetrics>,
    /// Accesses by address space and device.
    pub accesses: Ranked<[String; 2]>,
    /// Exits to the VMM by reason.
    pub userspace: Ranked<[String; 1]>,
    /// Memory of the VMM.
    pub resident_bytes: Option<u64>,
    /// Memory in swap.
    pub swap_bytes: Option<u64>,
    /// What its disks read and write, bytes per second.
    pub disk_rate: Option<u64>,
    /// Mean time of a request of its slowest disk, nanoseconds.
    pub disk_latency_ns: Option<u64>,
    /// What its disk nearest to a limit uses of it, percent.
    pub disk_limit_percent: Option<u64>,
    /// What its network interfaces receive and send, bytes per second.
    pub net_rate: Option<u64>,
    /// Packets per second that it should have received and that were dropped.
    pub rx_drop_rate: Option<u64>,
    /// Free room on the fullest of the file systems with its disks.
    pub storage_free_bytes: Option<u64>,
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
        (self.resident_bytes, self.swap_bytes) = (now.memory.resident, now.swap_bytes);
        self.disk_rate = model.disk_rates().map(|rates| rates.all() as u64);
        let slowest = model.slowest_disk().and_then(DiskRates::slowest_us);
        self.disk_latency_ns = slowest.map(|us| (us * 1e3) as u64);
        let limits = model.disks.iter().filter_map(|disk| disk.limit_percent);
        self.disk_limit_percent = limits.reduce(f64::max).map(|percent| percent as u64);
        self.net_rate = model.nic_rates().map(|rates| rates.all() as u64);
        self.rx_drop_rate = model.rx_drops().map(|rate| rate as u64);
        let free = model.storage.iter().filter_map(|disk| disk.free_bytes);
        self.storage_free_bytes = free.min();
        // Without an earlier sample nothing has a known beginning.
        let Some((base, before)) = before else { return };
        self.add_cpu(
            &now.threads,
            before.map_or(&[], |b| &b.threads),
            base.boot_ns,
            per_vcpu,
        );
        for thread in model.vcpus() {
            self.vcpu(thread.index, per_vcpu).add(thread);
        }
        self.add_exits(model, now_ns, per_vcpu);
        self.accesses.add(
            now_ns,
            model.accesses.iter().map(|row| {
                let device = row.device_name().unwrap_or(UNKNOWN_DEVICE).to_owned();
                (
                    [row.space.as_str().to_owned(), device],
                    Tally {
                        count: row.span.count,
                        ns: row.span.total_ns,
                    },
                )
            }),
        );
        let to_vmm = model.userspace.iter().filter(|row| row.vcpu.is_none());
        self.userspace.add(
            now_ns,
            to_vmm.map(|row| {
                let tally = Tally {
                    count: row.count,
                    ns: None,
                };
                ([userspace_exit::display(row.reason)], tally)
            }),
        );
    }

    fn vcpu(&mut self, index: Option<u32>, per_vcpu: bool) -> &mut VcpuMetrics {
        let index = if per_vcpu { index } else { None };
        self.vcpus.entry(index).or_default()
    }

    fn add_cpu(
        &mut self,
        now: &[ThreadSample],
        before: &[ThreadSample],
        boot_ns: u64,
        per_vcpu: bool,
    ) {
        let before: HashMap<_, _> = before
            .iter()
            .map(|t| ((t.tid, t.start_ticks), t.cpu))
            .collect();
        for thread in now {
            let older = match before.get(&(thread.tid, thread.start_ticks)) {
                Some(cpu) => *cpu,
                None if born_since(thread.start_ticks, boot_ns) => Some(ThreadTimes::AT_BIRTH),
                None => None,
            };
            let Some((now, older)) = thread.cpu.zip(older) else {
                continue;
            };
            match thread.role {
                Role::Vcpu => self.vcpu(thread.index, per_vcpu).cpu.add(&now, &older),
                role => self.vmm.entry(role).or_default().add(&now, &older),
            }
        }
    }

    fn add_exits(&mut self, model: &DomainModel, now_ns: u64, per_vcpu: bool) {
        if !per_vcpu {
            return self
                .vcpu(None, per_vcpu)
                .exits
                .add(now_ns, model.exits.rows.iter().map(tally_by_reason));
        }
        for (vcpu, table) in &model.vcpu_exits {
            self.vcpu(Some(*vcpu), per_vcpu)
                .exits
                .add(now_ns, table.rows.iter().map(tally_by_reason));
        }
        // Of threads that no sample showed, and of those that are not known to be a vCPU.
        let others = model
            .exits
            .rows
            .iter()
            .map(|row| ([row.reason.clone()], without(row, &model.vcpu_exits)));
        let others: Vec<_> = others.filter(|(_, tally)| tally.count > 0).collect();
        if !others.is_empty() {
            self.vcpu(None, per_vcpu).exits.add(now_ns, others);
        }
    }
}

fn tally_by_reason(row: &ExitRow) -> ([String; 1], Tally) {
    let tally = Tally {
        count: row.span.count,
        ns: row.span.total_ns,
    };
    ([row.reason.clone()], tally)
}

/// The part of a guest's row that its vCPUs' rows do not contain.
fn without(row: &ExitRow, vcpus: &[(u32, ExitTable)]) -> Tally {
    let same = vcpus
        .iter()
        .flat_map(|(_, table)| &table.rows)
        .filter(|r| r.reason == row.reason);
    same.fold(
        Tally {
            count: row.span.count,
            ns: row.span.total_ns,
        },
        |left, r| Tally {
            count: left.count.saturating_sub(r.span.count),
            ns: left
                .ns
                .map(|ns| ns.saturating_sub(r.span.total_ns.unwrap_or(0))),
        },
    )
}
