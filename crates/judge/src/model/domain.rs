//! A guest within an interval: its threads, exits, accesses and devices.

use super::devices::{self, DiskRates, NicRates};
use super::disk_config::DiskConfig;
use super::earlier::{GuestPair, by_key};
use super::{
    AccessRow, ByteRates, CpuShare, DoorbellModel, ExitTable, HostDiskModel, InjectionModel,
    PressureModel, SampleInterval, ThreadModel, accesses, exits, share, total,
};
use kvm::limits;
use kvm::thread_name::Role;
use kvm::topology::HostTopology;
use sample::{
    DomainFacts, DomainSample, DomainState, EngineKind, EngineLevel, EngineStatus, ExitPlace,
    GuestId, Job, MemoryUse, Sample, Stop, StopReason, StoredDisk, Throttling, growth,
};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// All vCPUs of a guest that is paused use less of a CPU together, percent.
const MIN_RUN: f64 = 0.1;

/// Exits to the VMM for one reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UserspaceExits {
    /// Number of the vCPU; `None`: all together.
    pub vcpu: Option<u32>,
    /// `KVM_EXIT_*`, or the negative error that `KVM_RUN` returned.
    pub reason: i32,
    /// How many there were.
    pub count: u64,
}

/// A guest's part in the host's swap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SwapUse {
    /// Bytes.
    pub bytes: u64,
    /// Growth within the interval, bytes.
    pub grown: i64,
}

/// How often a guest exits.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ExitRate {
    /// Exits per second; `None`: not known.
    pub per_second: Option<f64>,
    /// Which figure that is.
    pub source: ExitRateSource,
}

/// The source of a domain's exit rate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ExitRateSource {
    /// Counted `kvm_exit` events.
    Traced,
    /// KVM's own statistics.
    Counters,
    /// Exits to the VMM only, because the kernel fires no `kvm_exit`.
    Userspace,
    /// No source.
    #[default]
    Nothing,
}

/// Counters by name, per second.
pub type Rates = BTreeMap<String, f64>;

/// One guest within an interval.
#[derive(Debug, Clone, Default)]
pub struct DomainModel {
    /// What it is.
    pub facts: Arc<DomainFacts>,
    /// Whether it runs.
    pub state: DomainState,
    /// vCPUs whose events are missing, because the engine's tables had no place for their threads.
    pub uncounted_vcpus: u32,
    /// Why it does not run; `None` while it runs.
    pub stop: Option<Stop>,
    /// All threads together; `None` before a second reading.
    pub cpu: Option<CpuShare>,
    /// Its threads: vCPUs in order, then emulator, IOThreads, vhost, others.
    pub threads: Vec<ThreadModel>,
    /// Exits of the whole domain.
    pub exits: ExitTable,
    /// Exits per vCPU.
    pub vcpu_exits: Vec<(u32, ExitTable)>,
    /// Accesses of the whole domain.
    pub accesses: Vec<AccessRow>,
    /// Accesses per vCPU.
    pub vcpu_accesses: Vec<AccessRow>,
    /// Exits to the VMM.
    pub userspace: Vec<UserspaceExits>,
    /// Its exits.
    pub exit_rate: ExitRate,
    /// Further kvm tracepoints within the interval, counts.
    pub kvm_events: BTreeMap<String, u64>,
    /// KVM's own statistics of VM and vCPUs together, per second.
    pub counters: Rates,
    /// Block devices.
    pub disks: Vec<DiskRates>,
    /// Seconds that the figures of `disks` cover; `None` without figures.
    pub disks_s: Option<f64>,
    /// Seconds that the figures of `nics` cover; `None` without figures.
    pub nics_s: Option<f64>,
    /// What its VMM had storage read and write, where no source reports its disks; `None`: not
    /// measured.
    pub process_io: Option<ByteRates>,
    /// The host's block devices that worked for it; `None` where they are not timed.
    pub host_disks: Option<Vec<HostDiskModel>>,
    /// What interrupted its vCPUs, the most frequent first; `None` where it is not traced.
    pub interrupts: Option<Vec<InjectionModel>>,
    /// Its doorbells, the most frequent first; `None` where they are not traced.
    pub doorbells: Option<Vec<DoorbellModel>>,
    /// What the VMM does with it: migrations, block jobs, dumps.
    pub jobs: Vec<Job>,
    /// Network interfaces.
    pub nics: Vec<NicRates>,
    /// Bandwidth control, growth within the interval.
    pub throttling: Vec<Throttling>,
    /// How long tasks of its cgroup waited for CPUs, disks and memory.
    pub pressure: Option<PressureModel>,
    /// Memory per NUMA node, bytes.
    pub node_memory: BTreeMap<u32, u64>,
    /// Where its disks are kept.
    pub storage: Vec<StoredDisk>,
    /// Its part in the host's swap.
    pub swap: Option<SwapUse>,
    /// Memory resident on the host and left by the balloon.
    pub memory: MemoryUse,
    /// Bytes per second that came back from the host's swap.
    pub swap_in_rate: Option<f64>,
    /// Where its vCPUs faulted or could not continue, the most frequent first; empty without a
    /// trace in a file.
    pub places: Vec<ExitPlace>,
}

impl DomainModel {
    /// The name.
    pub fn name(&self) -> &str {
        &self.facts.name.value
    }

    /// The word for its state: why it does not run, where that says more than that it is paused.
    pub fn state_word(&self) -> &'static str {
        match &self.stop {
            Some(stop) if !matches!(stop.reason, StopReason::User | StopReason::Unknown) => {
                stop.reason.as_str()
            }
            _ => self.state.as_str(),
        }
    }

    /// Its number in Proxmox.
    pub fn vmid(&self) -> Option<u32> {
        self.facts.command.as_ref()?.proxmox_id()?.parse().ok()
    }

    /// Identifies the guest from one sample to the next.
    pub fn key(&self) -> GuestId {
        self.facts.id()
    }

    /// Number of vCPUs: as configured, or else the number of vCPU threads; 0 if unknown. The table
    /// of a single vCPU in a file does not count as a thread, because the guest can have others.
    pub fn vcpu_count(&self) -> u32 {
        let seen = self.vcpus().filter(|t| t.tid > 0).count() as u32;
        self.facts
            .vcpus
            .as_ref()
            .map_or(seen, |k| k.value.min(limits::VCPUS))
    }

    /// The vCPU threads.
    pub fn vcpus(&self) -> impl Iterator<Item = &ThreadModel> {
        self.threads.iter().filter(|t| t.role == Role::Vcpu)
    }

    /// The thread of a vCPU.
    pub fn vcpu(&self, index: u32) -> Option<&ThreadModel> {
        self.vcpus().find(|t| t.index == Some(index))
    }

    /// The emulator's (the VMM's main) thread.
    pub fn emulator(&self) -> Option<&ThreadModel> {
        self.threads.iter().find(|t| t.role == Role::Emulator)
    }

    /// The thread of the emulator, or of the IOThread with this number.
    pub fn helper(&self, iothread: Option<u32>) -> Option<&ThreadModel> {
        let Some(id) = iothread else {
            return self.emulator();
        };
        self.threads
            .iter()
            .find(|t| t.role == Role::Iothread && t.index == Some(id))
    }

    /// Migrations of vCPUs between pCPUs within the interval; `None` if no source counts them.
    pub fn vcpu_migrations(&self) -> Option<u64> {
        self.vcpus()
            .filter_map(|t| t.migrations.total)
            .reduce(u64::saturating_add)
    }

    /// Packets per second that it should have received and that were dropped.
    pub fn rx_drops(&self) -> Option<f64> {
        let drops = self.nics.iter().filter_map(|nic| nic.rx_drops);
        drops.reduce(|a, b| a + b)
    }

    /// Where a disk of this name in the VMM's statistics is kept.
    pub fn stored(&self, disk: &str) -> Option<&StoredDisk> {
        // Another disk may be on the network, where the VMM has no file open.
        if let [only] = self.storage.as_slice()
            && self.disks.len() <= 1
        {
            return Some(only);
        }
        let file = DiskConfig::find(&self.facts, disk)?.file?;
        self.storage.iter().find(|stored| stored.is_called(file))
    }

    /// What it uses of its tightest CPU limit, percent; `None` without a limit of its own.
    pub fn limit_percent(&self) -> Option<f64> {
        let groups = self.throttling.iter();
        let used = groups.filter_map(|group| {
            let millis = group.limit_millis.filter(|millis| *millis > 0)?;
            Some(1000.0 * self.busy_in(&group.group)? / millis as f64)
        });
        used.reduce(f64::max)
    }

    /// CPU time in a cgroup of its own, percent of one CPU: `domain`, `emulator`, `vcpu0`,
    /// `iothread1`.
    fn busy_in(&self, group: &str) -> Option<f64> {
        let number = group.trim_start_matches(char::is_alphabetic).parse().ok();
        let is_in = |thread: &&ThreadModel| match group.trim_end_matches(char::is_numeric) {
            "domain" => true,
            "vcpu" => thread.role == Role::Vcpu && thread.index == number,
            "iothread" => thread.role == Role::Iothread && thread.index == number,
            "emulator" => !matches!(thread.role, Role::Vcpu | Role::Iothread),
            _ => false,
        };
        let busy = self.threads.iter().filter(is_in);
        busy.filter_map(|thread| Some(thread.cpu?.busy()))
            .reduce(|a, b| a + b)
    }

    /// The wait of the vCPU that waited longest, percent of the interval.
    pub fn longest_wait(&self) -> Option<f64> {
        self.worst_wait()?.0.cpu?.wait
    }

    /// The vCPU that waited longest, and its wait as percent of the time that it ran or wanted to
    /// run.
    pub fn worst_wait(&self) -> Option<(&ThreadModel, f64)> {
        let mut worst: Option<(&ThreadModel, f64)> = None;
        for vcpu in self.vcpus() {
            // Of equal ones the first.
            if let Some(wait) = vcpu.cpu.and_then(|cpu| cpu.wait)
                && worst.is_none_or(|(_, most)| wait > most)
            {
                worst = Some((vcpu, wait));
            }
        }
        let (vcpu, _) = worst?;
        Some((vcpu, vcpu.wait_percent()?))
    }

    /// The part of its memory on the NUMA nodes where its vCPUs ran last, percent of the memory
    /// whose node is known; `None` where the nodes of memory or vCPUs are not known.
    pub fn local_memory_percent(&self, topology: &HostTopology) -> Option<f64> {
        let nodes: BTreeSet<u32> = self
            .vcpus()
            .filter_map(|t| topology.node_of(t.place.cpu?))
            .collect();
        let here = self
            .node_memory
            .iter()
            .filter(|(node, _)| nodes.contains(node))
            .map(|(_, bytes)| *bytes);
        if nodes.is_empty() {
            return None;
        }
        share(total(here), total(self.node_memory.values().copied()))
    }

    /// Wait of all vCPUs as percent of the time that they ran or were runnable.
    pub fn vcpu_wait_percent(&self) -> Option<f64> {
        CpuShare::wait_of(self.vcpus())
    }

    /// Bytes per second that its disks read and write; where no source reports them, those of its
    /// VMM.
    pub fn disk_rates(&self) -> Option<ByteRates> {
        let rates = self.disks.iter().map(|disk| ByteRates {
            inward: disk.read_bytes,
            outward: disk.write_bytes,
        });
        rates.reduce(ByteRates::plus).or(self.process_io)
    }

    /// Bytes per second that its network interfaces receive and send; `None` where none is known.
    pub fn nic_rates(&self) -> Option<ByteRates> {
        let rates = self.nics.iter().map(|nic| ByteRates {
            inward: nic.rx_bytes,
            outward: nic.tx_bytes,
        });
        rates.reduce(ByteRates::plus)
    }

    pub(crate) fn new(
        now: &DomainSample,
        before: Option<&DomainSample>,
        interval: &SampleInterval,
        sample: &Sample,
    ) -> Self {
        let pair = GuestPair::new(now, before, interval);
        let (exits, vcpu_exits) = exits::tables(&pair);
        let (accesses, vcpu_accesses) = accesses::rows(&pair, &exits);
        let userspace = userspace(&pair);
        let mut counters =
            super::counter_rates(&now.counters, before.map(|b| &b.counters), interval);
        let mut threads = Vec::new();
        for (thread, before) in &pair.threads {
            let model = ThreadModel::new(thread, *before, interval);
            for (name, rate) in &model.counters {
                *counters.entry(name.clone()).or_default() += rate;
            }
            threads.push(model);
        }
        set_exit_rates(
            &mut threads,
            &vcpu_exits,
            now.uncounted_vcpus == 0,
            interval,
        );
        threads.sort_by_key(|t| (t.role, t.index.is_none(), t.index, t.tid));
        let mut exit_rate = exit_rate(exits.count, &counters, &userspace, &sample.engine, interval);
        if now.uncounted_vcpus > 0 && exits.count == 0 && exit_rate.source == ExitRateSource::Traced
        {
            exit_rate = ExitRate::default();
        }
        let paused = now.state == DomainState::Paused && !has_run(&threads, exits.count);
        Self {
            facts: now.facts.clone(),
            state: if paused || now.state == DomainState::Ended {
                now.state
            } else {
                DomainState::Running
            },
            stop: if paused { now.stop.clone() } else { None },
            uncounted_vcpus: now.uncounted_vcpus,
            cpu: threads.iter().filter_map(|t| t.cpu).reduce(CpuShare::plus),
            threads,
            exits,
            vcpu_exits,
            accesses,
            vcpu_accesses,
            userspace,
            exit_rate,
            kvm_events: kvm_events(&pair),
            counters,
            disks: devices::disks(now),
            disks_s: devices::seconds(now.devices_ns),
            nics_s: devices::seconds(now.nics_ns),
            process_io: process_io(&pair),
            host_disks: HostDiskModel::all(&pair, |d| d.host_disks.as_ref()),
            interrupts: InjectionModel::of_guest(&pair),
            doorbells: DoorbellModel::of_guest(&pair),
            jobs: now.jobs.clone(),
            nics: devices::nics(now),
            throttling: before
                .map(|b| throttling(&now.throttling, &b.throttling))
                .unwrap_or_default(),
            pressure: now.pressure.as_ref().map(PressureModel::new),
            node_memory: now.node_memory.clone(),
            storage: now.storage.clone(),
            swap: swap(now, before),
            memory: now.memory,
            swap_in_rate: swap_in_rate(&pair),
            places: now.places.clone(),
        }
    }
}

/// How often each event of KVM fired for it.
fn kvm_events(pair: &GuestPair<'_>) -> BTreeMap<String, u64> {
    if !pair.interval.started {
        return BTreeMap::new();
    }
    let old = match pair.before {
        Some(before) if pair.interval.engine_continues => Some(&before.kvm_events),
        _ => None,
    };
    let mut grown = BTreeMap::new();
    for (event, n) in &pair.now.kvm_events {
        let old = old.and_then(|old| old.get(event)).copied();
        grown.insert(event.clone(), growth(*n, old));
    }
    grown
}

fn swap(now: &DomainSample, before: Option<&DomainSample>) -> Option<SwapUse> {
    let bytes = now.swap_bytes?;
    let old = before.and_then(|b| b.swap_bytes).unwrap_or(bytes);
    let grown = bytes.cast_signed().saturating_sub(old.cast_signed());
    Some(SwapUse { bytes, grown })
}

fn swap_in_rate(pair: &GuestPair<'_>) -> Option<f64> {
    let old = pair.before?.memory.swapped_in;
    let grown = growth(pair.now.memory.swapped_in?, old);
    pair.interval.rate(grown)
}

fn process_io(pair: &GuestPair<'_>) -> Option<ByteRates> {
    let grown = pair.now.process_io?.since(&pair.before?.process_io?);
    Some(ByteRates {
        inward: pair.interval.rate(grown.read_bytes)?,
        outward: pair.interval.rate(grown.write_bytes)?,
    })
}

/// Whether a guest's vCPUs did something in the interval, whatever state is reported of it: the
/// reports are up to some seconds old. A question of a monitor may wake the threads of vCPUs that
/// KVM does not run.
fn has_run(threads: &[ThreadModel], exits: u64) -> bool {
    let vcpus = threads.iter().filter(|t| t.role == Role::Vcpu);
    exits > 0
        || vcpus
            .filter_map(|t| t.cpu)
            .map(|cpu| cpu.busy())
            .sum::<f64>()
            >= MIN_RUN
}

/// Sets the exits per second of each vCPU.
fn set_exit_rates(
    threads: &mut [ThreadModel],
    vcpu_exits: &[(u32, ExitTable)],
    all_counted: bool,
    interval: &SampleInterval,
) {
    for t in threads.iter_mut().filter(|t| t.role == Role::Vcpu) {
        let own = vcpu_exits
            .iter()
            .find(|(vcpu, _)| Some(*vcpu) == t.index)
            .map(|(_, table)| table.count);
        // A table of all vCPUs together has no rates of vCPUs.
        let none = if all_counted && !vcpu_exits.is_empty() {
            Some(0)
        } else {
            None
        };
        t.exit_rate = own
            .or(none)
            .and_then(|count| interval.rate(count))
            .or(t.counters.get("exits").copied());
    }
}

fn exit_rate(
    all: u64,
    counters: &Rates,
    userspace: &[UserspaceExits],
    engine: &EngineStatus,
    interval: &SampleInterval,
) -> ExitRate {
    let is_traced = engine.level != EngineLevel::None && engine.kind != EngineKind::None;
    let to_vmm = userspace.iter().filter(|row| row.vcpu.is_none());
    let to_vmm = total(to_vmm.map(|row| row.count));
    let (per_second, source) = if all > 0 {
        (interval.rate(all), ExitRateSource::Traced)
    } else if let Some(rate) = counters.get("exits") {
        (Some(*rate), ExitRateSource::Counters)
    } else if is_traced && engine.fires_kvm_exit != Some(false) {
        (interval.rate(0), ExitRateSource::Traced)
    } else if to_vmm > 0 {
        (interval.rate(to_vmm), ExitRateSource::Userspace)
    } else {
        (None, ExitRateSource::Nothing)
    };
    ExitRate { per_second, source }
}

fn userspace(pair: &GuestPair<'_>) -> Vec<UserspaceExits> {
    let mut counts: BTreeMap<(Option<u32>, i32), u64> = BTreeMap::new();
    for (vcpu, cell, before) in pair.cells(|events| &events.userspace, |cell| cell.reason) {
        for scope in [None].into_iter().chain(vcpu.map(Some)) {
            let count = counts.entry((scope, cell.reason)).or_default();
            *count = count.saturating_add(growth(cell.count, before.map(|b| b.count)));
        }
    }
    let mut rows = Vec::new();
    for ((vcpu, reason), count) in counts {
        if count > 0 {
            rows.push(UserspaceExits {
                vcpu,
                reason,
                count,
            });
        }
    }
    order_userspace(&mut rows);
    rows
}

/// By vCPU, the most frequent first.
pub(super) fn order_userspace(rows: &mut [UserspaceExits]) {
    rows.sort_by_key(|row| (row.vcpu, Reverse(row.count), row.reason));
}

fn throttling(now: &[Throttling], before: &[Throttling]) -> Vec<Throttling> {
    let before = by_key(before, |b| b.group.as_str());
    now.iter()
        .filter_map(|n| Some(n.since(before.get(n.group.as_str())?)))
        .collect()
}
