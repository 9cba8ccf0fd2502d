//! The synthetic hosts and guests of all tests. Say what each thread does per second and get the
//! cumulative samples of any instant; [`random`] gives every event its own duration instead.
//!
//! ```ignore
//! let f = Fixture::new(Host::numa(2, 9, 2).isolated("4-17"))
//!     .guest(Guest::new("db-prod", 7001).vcpus(2, |v, t| {
//!         t.cpu(90.0, 0.5, 4.0, 18.0).pinned(12).exits("HLT", 100.0, 900.0).pio(0x608, Direction::Read, 15_879.0, 4.4)
//!     }));
//! let model = f.model();
//! ```

#![allow(
    missing_docs,
    clippy::expect_used,
    clippy::missing_errors_doc,
    clippy::should_implement_trait,
    clippy::unwrap_used,
    clippy::wildcard_imports,
    reason = "it serves tests alone"
)]

pub mod hosts;
pub mod inputs;
mod profile;
pub mod random;

use kvm::cpu_set::CpuSet;
use kvm::exit_reason;
use kvm::isa::Isa;
use kvm::thread_name::Role;
use kvm::topology::{CpuTopo, HostTopology};
use kvm::{Space, device_map};
pub use profile::profile;
use sample::*;
use std::collections::BTreeMap;
use std::sync::Arc;

/// 2026-11-21T14:03:22Z, the instant at second 0 of every fixture.
pub const START_MS: i64 = 1_795_269_802_000;
/// Time since boot at second 0: two days.
const BOOT_NS: u64 = 2 * 86_400 * 1_000_000_000;

/// A host with its guests, each doing the same every second.
#[derive(Debug, Clone, Default)]
pub struct Fixture {
    /// The host.
    pub host: Host,
    /// The guests.
    pub guests: Vec<Guest>,
    /// The engine as every sample has it; `lost` and `overflow` are per second.
    pub engine: EngineStatus,
    /// The sources as every sample has them.
    pub sources: Vec<SourceStatus>,
}

impl Fixture {
    /// A host without guests, watched by a whole engine.
    pub fn new(host: Host) -> Self {
        let engine = EngineStatus {
            kind: EngineKind::Bpf,
            fires_kvm_exit: Some(true),
            ..EngineStatus::default()
        };
        let sources = [
            SourceId::Tracepoints,
            SourceId::Libvirt,
            SourceId::Monitor,
            SourceId::KvmStats,
        ]
        .map(SourceStatus::ok)
        .to_vec();
        Self {
            host,
            guests: Vec::new(),
            engine,
            sources,
        }
    }

    /// Adds a guest.
    #[must_use]
    pub fn guest(mut self, guest: Guest) -> Self {
        self.guests.push(guest);
        self
    }

    /// Replaces the source of that name, or adds it.
    #[must_use]
    pub fn source(mut self, status: SourceStatus) -> Self {
        self.sources.retain(|s| s.id != status.id);
        self.sources.push(status);
        self
    }

    /// Returns the cumulative counters after `seconds`.
    pub fn sample(&self, seconds: f64) -> Sample {
        let ns = (seconds * 1e9) as u64;
        Sample {
            time_ms: START_MS + (seconds * 1e3) as i64,
            mono_ns: BOOT_NS + ns,
            boot_ns: BOOT_NS + ns,
            host: self.host.sample(seconds, &self.guests),
            domains: self.guests.iter().map(|g| g.sample(seconds)).collect(),
            engine: EngineStatus {
                lost: per(self.engine.lost as f64, seconds),
                overflow: per(self.engine.overflow as f64, seconds),
                events: per(100_000.0, seconds),
                ..self.engine.clone()
            },
            sources: self.sources.clone(),
            own: OwnCost {
                cpu_ns: per(3e6, seconds),
                rss_bytes: 14_680_064,
                late_ns: 0,
            },
        }
    }
}

/// Returns the count after `seconds` at a steady `rate`.
fn per(rate: f64, seconds: f64) -> u64 {
    (rate * seconds).round() as u64
}

/// Durations at a steady rate: most near the mean, one in a hundred 20 times as long.
fn timing(rate: f64, mean_us: Option<f64>, seconds: f64) -> Timing {
    let count = per(rate, seconds);
    let Some(mean_us) = mean_us else {
        return Timing {
            count,
            ..Timing::default()
        };
    };
    let ns = mean_us * 1e3;
    let (usual, long) = (ns * 0.81, ns * 20.0);
    let slow = count / 100;
    let fast = count - slow;
    let mut histogram = Histogram(vec![0; Histogram::bucket(long as u64) + 1]);
    histogram.0[Histogram::bucket(usual as u64)] += fast;
    histogram.0[Histogram::bucket(long as u64)] += slow;
    Timing {
        count,
        total_ns: Some((count as f64 * ns) as u64),
        sum_sq: Some((fast as f64 * usual * usual + slow as f64 * long * long) as u128),
        min_ns: Some((ns * 0.5) as u64),
        max_ns: Some(if slow > 0 { long as u64 } else { ns as u64 }),
        histogram: Some(histogram),
    }
}

/// A made-up host.
#[derive(Debug, Clone, Default)]
pub struct Host {
    /// What does not change.
    pub facts: HostFacts,
    /// Percent of a CPU outside of guests: number, usr, sys, irq, steal.
    pub busy: BTreeMap<u32, [f64; 4]>,
    /// Tasks: name, kernel thread, CPU, percent.
    pub tasks: Vec<(String, bool, u32, f64)>,
    /// Memory.
    pub memory: Option<HostMemory>,
    /// Load of the last minute, hundredths.
    pub load: Option<u64>,
    /// How long tasks waited.
    pub pressure: Option<Pressure>,
    /// What its disks do each second.
    pub disks: Option<Vec<WholeDisk>>,
    /// What its links do each second.
    pub links: Option<Vec<HostLink>>,
    /// Memory of its nodes.
    pub nodes: Option<Vec<HostNode>>,
}

impl Host {
    /// CPU numbers run over the first threads of all cores, then over the second threads, as Linux
    /// numbers them on x86.
    pub fn numa(nodes: u32, cores_per_node: u32, threads: u32) -> Self {
        let cores = nodes * cores_per_node;
        let cpus = (0..cores * threads).map(|cpu| {
            let core = cpu % cores;
            let node = core / cores_per_node;
            CpuTopo {
                cpu,
                core: Some(core % cores_per_node),
                socket: Some(node),
                die: Some(0),
                node: Some(node),
                llc: Some(node),
                siblings: (0..threads).map(|t| core + t * cores).collect(),
            }
        });
        let topology = HostTopology {
            cpus: cpus.collect(),
            isolated: Some(CpuSet::new()),
            nohz_full: Some(CpuSet::new()),
        };
        let facts = HostFacts {
            hostname: "kvm07".into(),
            kernel: "6.8.0-48-generic".into(),
            kvm_flavour: Some("kvm_intel".into()),
            arch: "x86_64".into(),
            topology,
            virtualised: Some(false),
            tick_hz: Some(250),
            ..HostFacts::default()
        };
        Self {
            facts,
            ..Self::default()
        }
    }

    /// Takes CPUs out of load balancing, as `isolcpus=`.
    ///
    /// # Panics
    /// If `list` is not a list of CPUs.
    #[must_use]
    pub fn isolated(mut self, list: &str) -> Self {
        self.facts.topology.isolated = Some(CpuSet::parse(list).unwrap());
        self
    }

    /// Adds load outside of guests to a CPU, percent.
    #[must_use]
    pub fn load(mut self, cpu: u32, usr: f64, sys: f64, irq: f64) -> Self {
        self.busy.insert(cpu, [usr, sys, irq, 0.0]);
        self
    }

    /// A task that belongs to no guest.
    #[must_use]
    pub fn task(mut self, comm: &str, kernel: bool, cpu: u32, percent: f64) -> Self {
        self.tasks.push((comm.into(), kernel, cpu, percent));
        self
    }

    fn sample(&self, seconds: f64, guests: &[Guest]) -> HostSample {
        let ns = |percent: f64| per(percent * 1e7, seconds);
        let cpus = self.facts.topology.cpus.iter().map(|c| {
            let [usr, sys, irq, steal] = self.busy.get(&c.cpu).copied().unwrap_or_default();
            let tasks: f64 = self
                .tasks
                .iter()
                .filter(|(_, _, cpu, _)| *cpu == c.cpu)
                .map(|task| task.3)
                .sum();
            let usr = usr.max(tasks - sys);
            let mut t = [usr, sys, 0.0];
            for thread in guests
                .iter()
                .flat_map(|g| &g.threads)
                .filter(|t| t.cpu == Some(c.cpu))
            {
                let [guest, usr, sys, _] = thread.burns;
                t = [t[0] + usr, t[1] + sys, t[2] + guest];
            }
            let all: f64 = t.iter().sum::<f64>() + irq + steal;
            // Two busy threads on one CPU share it.
            let scale = if all > 100.0 { 100.0 / all } else { 1.0 };
            let [usr, sys, guest] = t.map(|p| p * scale);
            CpuTimes {
                cpu: c.cpu,
                user_ns: ns(usr) + ns(guest),
                system_ns: ns(sys),
                idle_ns: ns((100.0 - all).max(0.0)),
                irq_ns: ns(irq * scale),
                steal_ns: ns(steal * scale),
                guest_ns: ns(guest),
                device_irqs: Some(per(40.0, seconds)),
                timer_irqs: Some(per(250.0, seconds)),
                ..CpuTimes::default()
            }
        });
        let tasks = self
            .tasks
            .iter()
            .enumerate()
            .map(|(i, (comm, kernel, cpu, percent))| HostTask {
                tid: 100 + i as i32,
                pid: 100 + i as i32,
                comm: comm.clone(),
                process: String::new(),
                kernel: *kernel,
                used_ns: (percent * 1e7) as u64,
                over_ns: 1_000_000_000,
                last_cpu: *cpu,
                started_ns: None,
            });
        let tasks: Vec<_> = tasks.collect();
        let groups = tasks
            .chunk_by(|a, b| a.comm == b.comm)
            .map(|same| HostTaskGroup {
                comm: same[0].comm.clone(),
                used_ns: same.iter().map(|t| t.used_ns).sum(),
                over_ns: same[0].over_ns,
                count: same.len() as u64,
            });
        HostSample {
            facts: Arc::new(self.facts.clone()),
            cpus: cpus.collect(),
            task_groups: Some(groups.collect()),
            tasks,
            memory: self.memory,
            pressure: self.pressure,
            load: self.load,
            disks: self.disks.as_ref().map(|all| {
                all.iter()
                    .map(|disk| WholeDisk {
                        reads: per(disk.reads as f64, seconds),
                        writes: per(disk.writes as f64, seconds),
                        read_bytes: per(disk.read_bytes as f64, seconds),
                        write_bytes: per(disk.write_bytes as f64, seconds),
                        time_ns: per(disk.time_ns as f64, seconds),
                        busy_ns: per(disk.busy_ns as f64, seconds),
                        ..disk.clone()
                    })
                    .collect()
            }),
            links: self.links.as_ref().map(|all| {
                all.iter()
                    .map(|link| HostLink {
                        rx_bytes: per(link.rx_bytes as f64, seconds),
                        tx_bytes: per(link.tx_bytes as f64, seconds),
                        drops: per(link.drops as f64, seconds),
                        ..link.clone()
                    })
                    .collect()
            }),
            nodes: self.nodes.clone(),
            kernel_log: Vec::new(),
        }
    }
}

/// A made-up guest.
#[derive(Debug, Clone, Default)]
pub struct Guest {
    /// What it is.
    pub facts: DomainFacts,
    /// Whether it runs.
    pub state: DomainState,
    /// Its threads.
    pub threads: Vec<Thread>,
    /// KVM's counters of the VM, per second.
    pub counters: BTreeMap<String, f64>,
    /// `kvm:*` tracepoints, per second.
    pub kvm_events: BTreeMap<String, f64>,
    /// Everything else of the sample, as it is at second 1 (cumulative counters are not scaled).
    pub rest: DomainSample,
}

impl Guest {
    /// A QEMU guest under libvirt with its emulator thread, an hour old.
    pub fn new(name: &str, pid: i32) -> Self {
        let start_ticks = BOOT_NS / 10_000_000 - 360_000;
        let facts = DomainFacts {
            name: Known::new(kvm::sanitize(name, 255), Origin::Libvirt),
            uuid: Some(Known::new(
                format!("5f0e1c2a-0000-4000-8000-{pid:012}"),
                Origin::Libvirt,
            )),
            pid: Some(pid),
            start_ticks,
            started_ms: Some(START_MS - 3_600_000),
            machine: Some(Known::new("pc-q35-6.2".into(), Origin::Libvirt)),
            ..DomainFacts::default()
        };
        let emulator = Thread::new(pid, Role::Emulator, "qemu-system-x86").cpu(0.0, 0.2, 0.2, 0.0);
        Self {
            facts,
            threads: vec![emulator],
            ..Self::default()
        }
    }

    /// Sets a fact.
    #[must_use]
    pub fn facts(mut self, set: impl FnOnce(&mut DomainFacts)) -> Self {
        set(&mut self.facts);
        self
    }

    /// The guest's system, by its libosinfo id.
    #[must_use]
    pub fn os(self, id: &str) -> Self {
        self.facts(|f| f.guest_os = Some(Known::new(id.into(), Origin::Libvirt)))
    }

    /// Names devices from the built-in table, as if the monitor had said so.
    #[must_use]
    pub fn mtree(self) -> Self {
        self.facts(|f| {
            let map = device_map::builtin("qemu", Some("pc-q35-6.2"), None);
            f.devices = Some(Known::new(Arc::new(map), Origin::Monitor));
        })
    }

    /// Adds vCPU threads, each made by `make` from its number and a thread that idles.
    #[must_use]
    pub fn vcpus(mut self, count: u32, make: impl Fn(u32, Thread) -> Thread) -> Self {
        self.facts.vcpus = Some(Known::new(count, self.facts.name.from));
        let pid = self.facts.pid.unwrap_or(1);
        for v in 0..count {
            let mut t = Thread::new(pid + 2 + v as i32, Role::Vcpu, &format!("CPU {v}/KVM"));
            t.index = Some(v);
            self.threads.push(make(v, t));
        }
        self
    }

    /// Adds a thread.
    #[must_use]
    pub fn thread(mut self, thread: Thread) -> Self {
        self.threads.push(thread);
        self
    }

    /// Adds an IOThread.
    #[must_use]
    pub fn iothread(self, number: u32, make: impl Fn(Thread) -> Thread) -> Self {
        let tid = self.facts.pid.unwrap_or(1) + 2000 + number as i32;
        let t = Thread {
            index: Some(number),
            ..Thread::new(tid, Role::Iothread, &format!("IO iothread{number}"))
        };
        self.thread(make(t))
    }

    /// Changes the emulator's thread.
    #[must_use]
    pub fn emulator(mut self, make: impl Fn(Thread) -> Thread) -> Self {
        self.threads = self
            .threads
            .into_iter()
            .map(|t| if t.role == Role::Emulator { make(t) } else { t })
            .collect();
        self
    }

    /// Stops it: it is paused for this reason, and its threads do nothing.
    #[must_use]
    pub fn stopped(mut self, stop: Stop) -> Self {
        self.state = DomainState::Paused;
        self.rest.stop = Some(stop);
        for t in &mut self.threads {
            t.burns = [0.0; 4];
            (t.exits, t.accesses, t.userspace) = Default::default();
            (t.moves, t.wakeups) = (None, None);
            t.counters.clear();
        }
        self.counters.clear();
        self
    }

    fn sample(&self, seconds: f64) -> DomainSample {
        let scale = |m: &BTreeMap<String, f64>| {
            m.iter()
                .map(|(k, r)| (k.clone(), per(*r, seconds)))
                .collect()
        };
        DomainSample {
            facts: Arc::new(self.facts.clone()),
            state: self.state,
            threads: self
                .threads
                .iter()
                .map(|t| t.sample(seconds, self.facts.start_ticks))
                .collect(),
            counters: scale(&self.counters),
            kvm_events: scale(&self.kvm_events),
            ..self.rest.clone()
        }
    }
}

/// A made-up thread.
#[derive(Debug, Clone, Default)]
pub struct Thread {
    /// Thread id.
    pub tid: i32,
    /// What it does.
    pub role: Role,
    /// Name.
    pub comm: String,
    /// vCPU or IOThread number.
    pub index: Option<u32>,
    /// Percent of a CPU: guest, usr, sys, wait.
    pub burns: [f64; 4],
    /// The CPU it runs on.
    pub cpu: Option<u32>,
    /// Affinity.
    pub affinity: Option<Arc<Affinity>>,
    /// Exits: cell without time, rate, mean in microseconds (`None`: only counted).
    pub exits: Vec<(ExitCell, f64, Option<f64>)>,
    /// Accesses, in the same way.
    pub accesses: Vec<(AccessCell, f64, Option<f64>)>,
    /// Userspace exits: number and rate.
    pub userspace: Vec<(i32, f64)>,
    /// Moves per second: all, to another core, to another node; and the CPU before.
    pub moves: Option<([f64; 3], u32)>,
    /// Wake-ups: rate and mean latency in microseconds.
    pub wakeups: Option<(f64, f64)>,
    /// KVM's counters of the vCPU, per second.
    pub counters: BTreeMap<String, f64>,
}

impl Thread {
    /// A thread that idles.
    pub fn new(tid: i32, role: Role, comm: &str) -> Self {
        Self {
            tid,
            role,
            comm: kvm::sanitize(comm, 64),
            ..Self::default()
        }
    }

    /// CPU use, percent of one CPU.
    #[must_use]
    pub fn cpu(mut self, guest: f64, usr: f64, sys: f64, wait: f64) -> Self {
        self.burns = [guest, usr, sys, wait];
        self
    }

    /// Where it runs.
    #[must_use]
    pub fn on(mut self, cpu: u32) -> Self {
        self.cpu = Some(cpu);
        self
    }

    /// Where it may run.
    ///
    /// # Panics
    /// If `list` is not a list of CPUs.
    #[must_use]
    pub fn may_run(mut self, list: &str) -> Self {
        self.affinity = Some(Arc::new(CpuSet::parse(list).unwrap()));
        self
    }

    /// May run on one CPU only, and does.
    #[must_use]
    pub fn pinned(self, cpu: u32) -> Self {
        self.may_run(&cpu.to_string()).on(cpu)
    }

    /// Exits by VMX name, per second, with their mean in microseconds.
    #[must_use]
    pub fn exits(mut self, reason: &str, rate: f64, mean_us: f64) -> Self {
        let code = exit_reason::code(Isa::Vmx, reason).unwrap_or(200);
        let cell = ExitCell {
            isa: Isa::Vmx,
            code,
            name: Some(reason.into()),
            time: Timing::default(),
            userspace_ns: None,
            halted_ns: None,
            preempted_ns: None,
        };
        self.exits.push((cell, rate, Some(mean_us)));
        self
    }

    /// Accesses of any space.
    #[must_use]
    pub fn access(
        mut self,
        space: Space,
        address: u64,
        direction: Direction,
        rate: f64,
        mean_us: Option<f64>,
    ) -> Self {
        let cell = AccessCell {
            space,
            address: Some(address),
            direction,
            ..AccessCell::default()
        };
        self.accesses.push((cell, rate, mean_us));
        self
    }

    /// Port accesses per second, with the mean of the exits around them.
    #[must_use]
    pub fn pio(self, port: u16, direction: Direction, rate: f64, mean_us: f64) -> Self {
        self.access(Space::Pio, port.into(), direction, rate, Some(mean_us))
    }

    /// MMIO accesses.
    #[must_use]
    pub fn mmio(self, address: u64, direction: Direction, rate: f64, mean_us: f64) -> Self {
        self.access(Space::Mmio, address, direction, rate, Some(mean_us))
    }

    /// MSR accesses.
    #[must_use]
    pub fn msr(self, number: u32, direction: Direction, rate: f64, mean_us: f64) -> Self {
        self.access(Space::Msr, number.into(), direction, rate, Some(mean_us))
    }

    /// Exits to the VMM by `KVM_EXIT_*` number.
    #[must_use]
    pub fn userspace(mut self, reason: i32, rate: f64) -> Self {
        self.userspace.push((reason, rate));
        self
    }

    /// Moves per second, all and to another node, the last from this CPU.
    #[must_use]
    pub fn moves(mut self, all: f64, cross_node: f64, from: u32) -> Self {
        self.moves = Some(([all, all, cross_node], from));
        self
    }

    /// Wake-ups per second with their mean latency.
    #[must_use]
    pub fn wakes(mut self, rate: f64, mean_us: f64) -> Self {
        self.wakeups = Some((rate, mean_us));
        self
    }

    fn sample(&self, seconds: f64, start_ticks: u64) -> ThreadSample {
        let [guest, usr, sys, wait] = self.burns.map(|p| per(p * 1e7, seconds));
        let moves = self.moves.map_or([0.0; 3], |(m, _)| m);
        let [total, cross_core, cross_node] = moves.map(|m| per(m, seconds));
        let events = ThreadEvents {
            exits: self
                .exits
                .iter()
                .map(|(c, rate, mean)| ExitCell {
                    time: timing(*rate, *mean, seconds),
                    ..c.clone()
                })
                .collect(),
            accesses: self
                .accesses
                .iter()
                .map(|(c, rate, mean)| AccessCell {
                    time: timing(*rate, *mean, seconds),
                    ..c.clone()
                })
                .collect(),
            userspace: self
                .userspace
                .iter()
                .map(|&(reason, rate)| UserspaceCell {
                    reason,
                    count: per(rate, seconds),
                })
                .collect(),
            migrations: Migrations {
                total: Some(total),
                cross_core,
                cross_llc: cross_node,
                cross_node,
            },
            wakeups: self
                .wakeups
                .map(|(rate, mean)| Box::new(timing(rate, Some(mean), seconds))),
            run_delays: self
                .wakeups
                .map(|(rate, mean)| Box::new(timing(rate, Some(mean), seconds))),
            ..ThreadEvents::default()
        };
        ThreadSample {
            tid: self.tid,
            start_ticks,
            comm: self.comm.clone(),
            role: self.role,
            index: self.index,
            cpu: Some(ThreadTimes {
                user_ns: usr + guest,
                system_ns: sys,
                guest_ns: guest,
                run_ns: Some(usr + sys + guest),
                wait_ns: Some(wait),
                voluntary: Some(per(90.0, seconds)),
                involuntary: Some(per(3.0, seconds)),
            }),
            place: Placement {
                cpu: self.cpu,
                affinity: self.affinity.clone(),
                policy: Some(0),
            },
            events,
            counters: self
                .counters
                .iter()
                .map(|(k, r)| (k.clone(), per(*r, seconds)))
                .collect(),
        }
    }
}
