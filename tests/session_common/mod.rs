//! Made-up hosts whose counters move as real ones do: every event has a duration of its own.
#![allow(dead_code)]

use kvmtop::kvm::kernel_log::{LogKind, LogLine};
use kvmtop::kvm::thread_name::Role;
use kvmtop::kvm::topology::{CpuTopo, HostTopology};
use kvmtop::kvm::{CpuSet, Isa, Space};
use kvmtop::sample::*;
use std::sync::Arc;

/// A small generator (xorshift64*), the same on every machine.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
    /// In 0..1.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
    /// Mean 0, deviation 1.
    pub fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }
    /// Poisson.
    pub fn count(&mut self, mean: f64) -> u64 {
        if mean > 50.0 {
            return (mean + mean.sqrt() * self.normal()).round().max(0.0) as u64;
        }
        let (limit, mut p, mut n) = ((-mean).exp(), self.unit(), 0);
        while p > limit {
            p *= self.unit();
            n += 1;
        }
        n
    }
    /// A duration around a median, with the long tail that real ones have.
    pub fn duration(&mut self, median_ns: f64, spread: f64) -> u64 {
        let tail = if self.unit() < 0.002 { 8.0 } else { 1.0 };
        (median_ns * tail * (spread * self.normal()).exp()) as u64
    }
}

/// What a vCPU does a second.
#[derive(Clone)]
pub struct Habit {
    /// Exit code, name, per second, median ns, spread.
    pub exits: Vec<(u32, f64, f64, f64)>,
    /// Space, address, direction, per second, median ns, exit code it belongs to.
    pub accesses: Vec<(Space, u64, Direction, f64, f64, u32)>,
    pub busy: f64,
}

/// An idle Linux guest: a few wake-ups a second.
pub fn idle(r: &mut Random) -> Habit {
    let n = 1.0 + 8.0 * r.unit();
    Habit {
        exits: vec![(12, n, 9e7 / n, 0.8), (1, 0.4 * n, 1800.0, 0.3)],
        accesses: vec![(Space::Msr, 0x6e0, Direction::Write, 1.3 * n, 1400.0, 32)],
        busy: 0.002,
    }
}

/// A guest at work: network, disk, timers.
pub fn working(r: &mut Random) -> Habit {
    let n = 50.0 + 350.0 * r.unit();
    Habit {
        exits: vec![
            (12, n, 5e8 / n, 0.9),
            (1, 0.5 * n, 2100.0, 0.35),
            (40, 0.1 * n, 1500.0, 0.3),
            (48, 0.3, 4000.0, 0.5),
        ],
        accesses: vec![
            (Space::Msr, 0x6e0, Direction::Write, 1.5 * n, 1400.0, 32),
            (Space::Msr, 0x830, Direction::Write, 0.4 * n, 1700.0, 32),
            (Space::Mmio, 0xfebd_5000, Direction::Write, 0.2 * n, 5200.0, 49),
            (Space::Mmio, 0xfebd_5004, Direction::Write, 0.1 * n, 5400.0, 49),
        ],
        busy: 0.4,
    }
}

/// A Windows guest that polls its PM timer, and all else besides.
pub fn storming(r: &mut Random) -> Habit {
    let mut h = working(r);
    h.accesses.push((Space::Pio, 0x608, Direction::Read, 1500.0 + 1000.0 * r.unit(), 4400.0, 30));
    h.accesses.push((Space::Pio, 0x70, Direction::Write, 64.0, 5000.0, 30));
    h.accesses.push((Space::Pio, 0x71, Direction::Read, 64.0, 5100.0, 30));
    h.exits.push((7, 200.0, 900.0, 0.2));
    h.busy = 0.9;
    h
}

pub struct World {
    pub random: Random,
    pub sample: Sample,
    habits: Vec<Vec<Habit>>,
    carry: f64,
}

fn add(t: &mut Timing, durations: &[u64]) {
    (t.min_ns, t.max_ns) = (None, None);
    t.total_ns.get_or_insert(0);
    t.sum_sq.get_or_insert(0);
    t.histogram.get_or_insert_default();
    durations.iter().for_each(|&ns| t.add(ns));
}

impl World {
    /// `guests` guests of `vcpus` vCPUs; `habit` tells what each does.
    pub fn new(seed: u64, guests: usize, vcpus: u32, habit: impl Fn(usize, &mut Random) -> Habit) -> Self {
        let mut random = Random::new(seed);
        let cpus = 72;
        let topology = HostTopology {
            cpus: (0..cpus)
                .map(|cpu| CpuTopo {
                    cpu,
                    core: Some(cpu % 36),
                    socket: Some(cpu % 36 / 18),
                    node: Some(cpu % 36 / 18),
                    llc: Some(cpu % 36 / 18),
                    siblings: CpuSet::from_iter([cpu % 36, cpu % 36 + 36]),
                    ..CpuTopo::default()
                })
                .collect(),
            ..HostTopology::default()
        };
        let facts = HostFacts {
            hostname: "host1".into(),
            kernel: "6.1.0-28-amd64".into(),
            kvm_flavour: Some("kvm_intel".into()),
            arch: "x86_64".into(),
            topology,
            params: [("kvm.halt_poll_ns".to_string(), "200000".to_string())].into(),
            virtualised: Some(false),
            tick_hz: Some(250),
        };
        let mut sample = Sample {
            time_ms: 1_795_269_802_000,
            mono_ns: 172_800_000_000_000,
            boot_ns: 172_800_000_000_400,
            sources: [SourceId::Tracepoints, SourceId::Libvirt, SourceId::Monitor, SourceId::KvmStats]
                .map(SourceStatus::ok)
                .to_vec(),
            ..Sample::default()
        };
        sample.host.facts = Arc::new(facts);
        sample.host.cpus = (0..cpus)
            .map(|cpu| CpuTimes { cpu, device_irqs: Some(0), timer_irqs: Some(0), ..CpuTimes::default() })
            .collect();
        sample.host.memory = Some(HostMemory { total: 1 << 38, available: 1 << 36, ..HostMemory::default() });
        sample.engine = EngineStatus {
            kind: EngineKind::Bpf,
            fires_kvm_exit: Some(true),
            program_ns: Some(0),
            ..EngineStatus::default()
        };
        let mut habits = Vec::new();
        for g in 0..guests {
            let pid = 4000 + 100 * g as i32;
            let mut d = DomainSample {
                facts: Arc::new(DomainFacts {
                    name: Known::new(format!("guest-{g}"), Origin::Libvirt),
                    uuid: Some(Known::new(format!("11111111-2222-3333-4444-{g:012}"), Origin::Libvirt)),
                    pid: Some(pid),
                    start_ticks: 1000 + g as u64,
                    machine: Some(Known::new("pc-q35-7.2".into(), Origin::Libvirt)),
                    vcpus: Some(Known::new(vcpus, Origin::Libvirt)),
                    xml_text: Some("<domain type='kvm'>\n  <name>guest</name>\n</domain>\n".repeat(60).into()),
                    ..DomainFacts::default()
                }),
                ..DomainSample::default()
            };
            let mut of_guest = Vec::new();
            for v in 0..vcpus + 4 {
                let vcpu = v >= 2 && v < vcpus + 2;
                let mut t = ThreadSample {
                    tid: pid + v as i32,
                    start_ticks: 1000 + g as u64 + u64::from(v),
                    comm: if vcpu { format!("CPU {}/KVM", v - 2) } else { "qemu-system-x86".into() },
                    role: if vcpu {
                        Role::Vcpu
                    } else if v == 0 {
                        Role::Emulator
                    } else {
                        Role::Worker
                    },
                    index: vcpu.then(|| v - 2),
                    cpu: Some(ThreadTimes {
                        run_ns: Some(0),
                        wait_ns: Some(0),
                        voluntary: Some(0),
                        involuntary: Some(0),
                        ..ThreadTimes::default()
                    }),
                    place: Placement {
                        cpu: Some(v),
                        affinity: Some(Arc::new(CpuSet::range(0, 71))),
                        policy: Some(0),
                        rt_priority: Some(0),
                    },
                    ..ThreadSample::default()
                };
                let h = habit(g, &mut random);
                if vcpu {
                    let codes: std::collections::BTreeSet<u32> =
                        h.exits.iter().map(|e| e.0).chain(h.accesses.iter().map(|a| a.5)).collect();
                    t.events.exits = codes
                        .into_iter()
                        .map(|code| ExitCell {
                            isa: Isa::Vmx,
                            code,
                            name: None,
                            time: Timing::default(),
                            userspace_ns: Some(0),
                            halted_ns: Some(0),
                            preempted_ns: Some(0),
                        })
                        .collect();
                    t.events.accesses = h
                        .accesses
                        .iter()
                        .map(|a| AccessCell { space: a.0, address: Some(a.1), direction: a.2, ..AccessCell::default() })
                        .collect();
                    t.events.userspace =
                        vec![UserspaceCell { reason: 2, count: 0 }, UserspaceCell { reason: 6, count: 0 }];
                    t.events.migrations.total = Some(0);
                    t.events.wakeups = Some(Timing::default());
                    t.events.woken_by =
                        (0..4).map(|i| OtherTask { tid: i * 7, comm: format!("task{i}"), count: 0, ns: 0 }).collect();
                    t.events.preempted_by = (0..3)
                        .map(|i| OtherTask { tid: i * 9, comm: format!("kworker/{i}:1"), count: 0, ns: 0 })
                        .collect();
                    t.counters = COUNTERS.iter().map(|c| ((*c).to_string(), 0)).collect();
                }
                d.threads.push(t);
                of_guest.push(h);
            }
            d.disks =
                vec![DiskSample { name: "vda".into(), read_ns: Some(0), write_ns: Some(0), ..DiskSample::default() }];
            d.nics = vec![NicSample { name: format!("vnet{g}"), ..NicSample::default() }];
            d.counters = [("remote_tlb_flush".to_string(), 0), ("mmu_cache_miss".to_string(), 0)].into();
            sample.domains.push(d);
            habits.push(of_guest);
        }
        Self { random, sample, habits, carry: 0.0 }
    }

    /// A second later.
    pub fn tick(&mut self) -> Sample {
        let (r, s) = (&mut self.random, &mut self.sample);
        let late = (200_000.0 * r.unit()) as u64;
        let passed = 1_000_000_000 + late - self.carry as u64;
        self.carry = late as f64;
        s.mono_ns += passed;
        s.boot_ns = s.mono_ns + 100 + r.next() % 300;
        s.time_ms = 1_795_269_802_000 + ((s.mono_ns - 172_800_000_000_000) / 1_000_000) as i64;
        s.own.cpu_ns += 3_000_000 + r.next() % 500_000;
        s.own.rss_bytes = 14_000_000;
        for (g, d) in s.domains.iter_mut().enumerate() {
            for (t, h) in d.threads.iter_mut().zip(&self.habits[g]) {
                thread(r, t, h);
            }
            if s.mono_ns / 1_000_000_000 % 5 == 0 {
                d.devices_ns = 5_000_000_000 + r.next() % 1_000_000;
                d.disks[0].write_ops = r.count(20.0);
                d.disks[0].write_bytes = d.disks[0].write_ops * 4096;
                d.disks[0].write_ns = Some(d.disks[0].write_ops * (100_000 + r.next() % 50_000));
                d.nics[0].rx_packets = r.count(300.0);
                d.nics[0].rx_bytes = d.nics[0].rx_packets * 200 + r.next() % 5000;
            }
        }
        for (i, c) in s.host.cpus.iter_mut().enumerate() {
            let busy = if i < 40 { r.count(15.0).min(100) } else { r.count(0.3).min(100) };
            let guest = busy * 2 / 3;
            c.user_ns += busy * 10_000_000;
            c.guest_ns += guest * 10_000_000;
            let sys = r.count(busy as f64 / 10.0).min(100 - busy);
            c.system_ns += sys * 10_000_000;
            c.idle_ns += (100 - busy - sys) * 10_000_000;
            c.timer_irqs = c.timer_irqs.map(|n| n + busy * 2 + 5);
            c.device_irqs = c.device_irqs.map(|n| n + r.count(busy as f64));
        }
        if s.mono_ns / 1_000_000_000 % 10 == 0 {
            s.host.tasks = (0..12)
                .map(|i| HostTask {
                    tid: 500 + i * 3 + (r.next() % 3) as i32,
                    pid: 500,
                    comm: format!("task{i}"),
                    kernel: i > 6,
                    used_ns: r.next() % 50_000_000,
                    over_ns: 10_000_000_000,
                    last_cpu: (r.next() % 72) as u32,
                })
                .collect();
            s.host.kernel_log.push(LogLine {
                pid: Some(4000),
                vcpu: Some(1),
                msr: Some(0x1a2),
                write: false,
                data: Some(0),
                kind: LogKind::UnhandledMsr,
                time_s: Some(s.mono_ns as f64 / 1e9),
                text: "kvm: vcpu1, guest rIP: 0xffff unhandled rdmsr: 0x1a2".into(),
            });
            if s.host.kernel_log.len() > 20 {
                s.host.kernel_log.remove(0);
            }
        }
        s.engine.events += 100_000 + r.next() % 1000;
        s.clone()
    }
}

const COUNTERS: [&str; 24] = [
    "exits",
    "halt_exits",
    "halt_wakeup",
    "halt_poll_success_ns",
    "halt_poll_fail_ns",
    "halt_successful_poll",
    "halt_attempted_poll",
    "halt_poll_invalid",
    "irq_exits",
    "irq_injections",
    "irq_window_exits",
    "io_exits",
    "mmio_exits",
    "signal_exits",
    "request_irq_exits",
    "fpu_reload",
    "host_state_reload",
    "insn_emulation",
    "nmi_injections",
    "nested_run",
    "pf_fixed",
    "pf_emulate",
    "pf_spurious",
    "tlb_flush",
];

fn thread(r: &mut Random, t: &mut ThreadSample, h: &Habit) {
    let cpu = t.cpu.get_or_insert_default();
    if t.role != Role::Vcpu {
        let run = cpu.run_ns.get_or_insert(0);
        if r.unit() < 0.3 {
            *run += (2_000_000.0 * r.unit()) as u64;
            cpu.user_ns = *run / 10_000_000 * 7_000_000 / 10_000_000 * 10_000_000;
            cpu.system_ns = (*run / 10_000_000 * 10_000_000).saturating_sub(cpu.user_ns);
            cpu.voluntary = cpu.voluntary.map(|n| n + r.count(4.0));
        }
        return;
    }
    let run = (h.busy * 1e9 * (1.0 + 0.1 * r.normal()).clamp(0.3, 1.1)).max(2e5) as u64 + r.next() % 100_000;
    let all = cpu.run_ns.get_or_insert(0);
    *all += run;
    let ticks = *all / 10_000_000;
    cpu.guest_ns = ticks * 85 / 100 * 10_000_000;
    cpu.user_ns = cpu.guest_ns + ticks * 3 / 100 * 10_000_000;
    cpu.system_ns = ticks * 10_000_000 - cpu.user_ns;
    cpu.wait_ns = cpu.wait_ns.map(|n| n + r.duration(20_000.0 + 1e5 * h.busy, 0.8));
    let e = &mut t.events;
    let mut wakes = 0;
    let mut pools: std::collections::HashMap<u32, Vec<u64>> = std::collections::HashMap::new();
    for (cell, a) in e.accesses.iter_mut().zip(&h.accesses) {
        let n = r.count(a.3);
        let d: Vec<u64> = (0..n).map(|_| r.duration(a.4, 0.25)).collect();
        add(&mut cell.time, &d);
        // As the BPF engine has it: no distribution of accesses, and a run of none when there was none.
        cell.time.histogram = None;
        let run = |r: &mut Random| Burst { count: 1 + r.count(n as f64 / 20.0), ns: r.duration(5e4, 1.0) };
        cell.burst = Some(if n > 0 { run(r) } else { Burst::default() });
        pools.entry(a.5).or_default().extend(d);
    }
    for (code, rate, median, spread) in &h.exits {
        let n = r.count(*rate);
        let d: Vec<u64> = (0..n).map(|_| r.duration(*median, *spread)).collect();
        if *code == 12 {
            wakes = n;
        }
        pools.insert(*code, d);
    }
    let mut exits = 0;
    for cell in &mut e.exits {
        let d = pools.remove(&cell.code).unwrap_or_default();
        exits += d.len() as u64;
        let total: u64 = d.iter().sum();
        add(&mut cell.time, &d);
        match cell.code {
            12 => cell.halted_ns = cell.halted_ns.map(|n| n + total * 98 / 100),
            30 => cell.userspace_ns = cell.userspace_ns.map(|n| n + total * 70 / 100 + r.next() % 2000),
            _ if r.unit() < 0.02 => cell.preempted_ns = cell.preempted_ns.map(|n| n + r.duration(30_000.0, 1.0)),
            _ => {}
        }
    }
    cpu.voluntary = cpu.voluntary.map(|n| n + wakes);
    cpu.involuntary = cpu.involuntary.map(|n| n + r.count(h.busy * 3.0));
    let io: u64 = e.accesses.iter().filter(|a| a.space == Space::Pio).map(|a| a.time.count).sum();
    e.userspace[0].count = io;
    e.userspace[1].count = e.accesses.iter().filter(|a| a.space == Space::Mmio).map(|a| a.time.count).sum::<u64>() / 10;
    if r.unit() < 0.1 * h.busy {
        e.migrations.total = e.migrations.total.map(|n| n + 1);
        e.migrations.cross_core += 1;
        e.migrations.from = t.place.cpu;
        t.place.cpu = Some((r.next() % 72) as u32);
    }
    let d: Vec<u64> = (0..wakes).map(|_| r.duration(9000.0, 0.7)).collect();
    if let Some(w) = &mut e.wakeups {
        add(w, &d);
    }
    let parts = [0.7, 0.2, 0.08, 0.02];
    for (o, share) in e.woken_by.iter_mut().zip(parts) {
        o.count += r.count(wakes as f64 * share).min(wakes);
    }
    for o in &mut e.preempted_by {
        if r.unit() < h.busy * 0.2 {
            o.count += 1;
            o.ns += r.duration(50_000.0, 1.0);
        }
    }
    let mut c = |name: &str, n: u64| *t.counters.get_mut(name).unwrap() += n;
    c("exits", exits);
    c("halt_exits", wakes);
    c("halt_wakeup", wakes);
    c("halt_attempted_poll", wakes);
    c("halt_successful_poll", wakes / 5);
    c("halt_poll_success_ns", wakes / 5 * 20_000 + r.next() % 10_000);
    c("halt_poll_fail_ns", wakes * 40_000 + r.next() % 10_000);
    c("irq_exits", exits / 4);
    c("irq_injections", wakes + r.count(1.0));
    c("insn_emulation", io);
}
