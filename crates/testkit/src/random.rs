//! Synthetic hosts whose counters move as real ones do: every event has its own duration.

use super::{BOOT_NS, Fixture, Guest, Host, START_MS, Thread};
use kvm::kernel_log::{LogKind, LogLine};
use kvm::thread_name::Role;
use kvm::{Isa, Space, exit_reason};
use sample::*;
use std::collections::BTreeSet;

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
pub struct Load {
    /// Exit code, per second, median nanoseconds, spread.
    pub exits: Vec<(u32, f64, f64, f64)>,
    /// Space, address, direction, per second, median nanoseconds, code of the exits that serve
    /// them.
    pub accesses: Vec<(Space, u64, Direction, f64, f64, u32)>,
    /// Share of a CPU.
    pub busy: f64,
}

/// An idle Linux guest: a few wake-ups a second.
pub fn idle(r: &mut Random) -> Load {
    let n = 1.0 + 8.0 * r.unit();
    Load {
        exits: vec![(12, n, 9e7 / n, 0.8), (1, 0.4 * n, 1800.0, 0.3)],
        accesses: vec![(Space::Msr, 0x6e0, Direction::Write, 1.3 * n, 1400.0, 32)],
        busy: 0.002,
    }
}

/// A guest at work: network, disk, timers.
pub fn working(r: &mut Random) -> Load {
    let n = 50.0 + 350.0 * r.unit();
    Load {
        exits: vec![
            (12, n, 5e8 / n, 0.9),
            (1, 0.5 * n, 2100.0, 0.35),
            (40, 0.1 * n, 1500.0, 0.3),
            (48, 0.3, 4000.0, 0.5),
        ],
        accesses: vec![
            (Space::Msr, 0x6e0, Direction::Write, 1.5 * n, 1400.0, 32),
            (Space::Msr, 0x830, Direction::Write, 0.4 * n, 1700.0, 32),
            (
                Space::Mmio,
                0xfebd_5000,
                Direction::Write,
                0.2 * n,
                5200.0,
                49,
            ),
            (
                Space::Mmio,
                0xfebd_5004,
                Direction::Write,
                0.1 * n,
                5400.0,
                49,
            ),
        ],
        busy: 0.4,
    }
}

/// A Windows guest that polls its PM timer, and all else besides.
pub fn storming(r: &mut Random) -> Load {
    let mut h = working(r);
    h.accesses.push((
        Space::Pio,
        0x608,
        Direction::Read,
        1500.0 + 1000.0 * r.unit(),
        4400.0,
        30,
    ));
    h.accesses
        .push((Space::Pio, 0x70, Direction::Write, 64.0, 5000.0, 30));
    h.accesses
        .push((Space::Pio, 0x71, Direction::Read, 64.0, 5100.0, 30));
    h.exits.push((7, 200.0, 900.0, 0.2));
    h.busy = 0.9;
    h
}

/// A host that advances a second at a time; every event on it has its own duration.
pub struct RandomHost {
    pub random: Random,
    pub sample: Sample,
    /// Of each guest's threads.
    loads: Vec<Vec<Load>>,
    carry: f64,
}

fn add(t: &mut Timing, durations: &[u64]) {
    (t.min_ns, t.max_ns) = (None, None);
    t.total_ns.get_or_insert(0);
    t.sum_sq.get_or_insert(0);
    t.histogram.get_or_insert_default();
    durations.iter().for_each(|&ns| t.add(ns));
}

/// A vCPU thread on which this load can be counted.
fn vcpu_thread(v: u32, thread: Thread, load: &Load) -> Thread {
    let codes: BTreeSet<u32> = load
        .exits
        .iter()
        .map(|e| e.0)
        .chain(load.accesses.iter().map(|a| a.5))
        .collect();
    let names = codes
        .into_iter()
        .filter_map(|code| exit_reason::name(Isa::Vmx, code));
    let thread = names.fold(thread.may_run("0-71").on(v), |t, name| {
        t.exits(name, 0.0, 0.0)
    });
    load.accesses
        .iter()
        .fold(thread, |t, a| t.access(a.0, a.1, a.2, 0.0, None))
        .userspace(2, 0.0)
        .userspace(6, 0.0)
}

impl RandomHost {
    /// `guests` guests of `vcpus` vCPUs on a host of 72 CPUs; `load` says what each vCPU does.
    pub fn new(
        seed: u64,
        guests: usize,
        vcpus: u32,
        load: impl Fn(usize, &mut Random) -> Load,
    ) -> Self {
        let mut random = Random::new(seed);
        let mut host = Host::numa(2, 18, 2);
        host.facts.hostname = "host1".into();
        host.facts.params = [("kvm.halt_poll_ns".to_string(), "200000".to_string())].into();
        host.memory = Some(HostMemory {
            total: 1 << 38,
            available: 1 << 36,
            ..HostMemory::default()
        });
        let mut fixture = Fixture::new(host);
        let mut loads = Vec::new();
        for g in 0..guests {
            let pid = 4000 + 100 * g as i32;
            let of_guest: Vec<Load> = (0..vcpus).map(|_| load(g, &mut random)).collect();
            let helper = |tid: i32| {
                Thread::new(tid, Role::Worker, "qemu-system-x86")
                    .may_run("0-71")
                    .on(0)
            };
            let guest = Guest::new(&format!("guest-{g}"), pid)
                .thread(helper(pid + 1))
                .vcpus(vcpus, |v, t| vcpu_thread(v, t, &of_guest[v as usize]))
                .thread(helper(pid + 90))
                .thread(helper(pid + 91));
            fixture = fixture.guest(guest);
            loads.push(of_guest);
        }
        let mut sample = fixture.sample(0.0);
        for (g, d) in sample.domains.iter_mut().enumerate() {
            d.threads
                .iter_mut()
                .filter(|t| t.role == Role::Vcpu)
                .for_each(prepare_vcpu);
            d.disks = vec![DiskSample {
                name: "vda".into(),
                read_ns: Some(0),
                write_ns: Some(0),
                ..DiskSample::default()
            }];
            d.nics = vec![NicSample {
                name: format!("vnet{g}"),
                ..NicSample::default()
            }];
            d.counters = [
                ("remote_tlb_flush".to_string(), 0),
                ("mmu_cache_miss".to_string(), 0),
            ]
            .into();
        }
        Self {
            random,
            sample,
            loads,
            carry: 0.0,
        }
    }

    /// A second later.
    pub fn tick(&mut self) -> Sample {
        let (r, s) = (&mut self.random, &mut self.sample);
        let late = (200_000.0 * r.unit()) as u64;
        let passed = 1_000_000_000 + late - self.carry as u64;
        self.carry = late as f64;
        s.mono_ns += passed;
        s.boot_ns = s.mono_ns + 100 + r.next() % 300;
        s.time_ms = START_MS + ((s.mono_ns - BOOT_NS) / 1_000_000) as i64;
        s.own.cpu_ns += 3_000_000 + r.next() % 500_000;
        s.own.rss_bytes = 14_000_000;
        for (g, d) in s.domains.iter_mut().enumerate() {
            for t in &mut d.threads {
                match t.index {
                    Some(vcpu) => run_vcpu(r, t, &self.loads[g][vcpu as usize]),
                    None => run_helper(r, t),
                }
            }
            if s.mono_ns / 1_000_000_000 % 5 == 0 {
                d.devices_ns = 5_000_000_000 + r.next() % 1_000_000;
                d.nics_ns = d.devices_ns;
                d.disks[0].write_ops = r.count(20.0);
                d.disks[0].write_bytes = d.disks[0].write_ops * 4096;
                d.disks[0].write_ns = Some(d.disks[0].write_ops * (100_000 + r.next() % 50_000));
                d.nics[0].rx_packets = r.count(300.0);
                d.nics[0].rx_bytes = d.nics[0].rx_packets * 200 + r.next() % 5000;
            }
        }
        for (i, c) in s.host.cpus.iter_mut().enumerate() {
            let busy = if i < 40 {
                r.count(15.0).min(100)
            } else {
                r.count(0.3).min(100)
            };
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
                    process: String::new(),
                    kernel: i > 6,
                    used_ns: r.next() % 50_000_000,
                    over_ns: 10_000_000_000,
                    last_cpu: (r.next() % 72) as u32,
                    started_ns: Some(r.next() % 50_000_000),
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
                guest: None,
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

/// Exits and wake-ups of a vCPU that has not run yet, and who will be seen to wake and pre-empt it.
fn prepare_vcpu(t: &mut ThreadSample) {
    let others = |n: i32, name: fn(i32) -> String, step: i32| {
        (0..n)
            .map(|i| OtherTask {
                tid: i * step,
                comm: name(i),
                count: 0,
                ns: 0,
            })
            .collect()
    };
    let e = &mut t.events;
    for cell in &mut e.exits {
        *cell = ExitCell {
            name: None,
            time: Timing::default(),
            userspace_ns: Some(0),
            halted_ns: Some(0),
            preempted_ns: Some(0),
            ..*cell
        };
    }
    e.accesses
        .iter_mut()
        .for_each(|cell| cell.time = Timing::default());
    e.migrations.total = Some(0);
    (e.wakeups, e.run_delays) = (Some(Box::default()), Some(Box::default()));
    e.woken_by = others(4, |i| format!("task{i}"), 7);
    e.preempted_by = others(3, |i| format!("kworker/{i}:1"), 9);
    t.counters = COUNTERS.iter().map(|c| ((*c).to_string(), 0)).collect();
}

/// A second of a thread that is not a vCPU.
fn run_helper(r: &mut Random, t: &mut ThreadSample) {
    let cpu = t.cpu.get_or_insert_default();
    let run = cpu.run_ns.get_or_insert(0);
    if r.unit() < 0.3 {
        *run += (2_000_000.0 * r.unit()) as u64;
        cpu.user_ns = *run / 10_000_000 * 7_000_000 / 10_000_000 * 10_000_000;
        cpu.system_ns = (*run / 10_000_000 * 10_000_000).saturating_sub(cpu.user_ns);
        cpu.voluntary = cpu.voluntary.map(|n| n + r.count(4.0));
    }
}

/// A second of a vCPU.
fn run_vcpu(r: &mut Random, t: &mut ThreadSample, h: &Load) {
    let cpu = t.cpu.get_or_insert_default();
    let run = (h.busy * 1e9 * (1.0 + 0.1 * r.normal()).clamp(0.3, 1.1)).max(2e5) as u64
        + r.next() % 100_000;
    let all = cpu.run_ns.get_or_insert(0);
    *all += run;
    let ticks = *all / 10_000_000;
    cpu.guest_ns = ticks * 85 / 100 * 10_000_000;
    cpu.user_ns = cpu.guest_ns + ticks * 3 / 100 * 10_000_000;
    cpu.system_ns = ticks * 10_000_000 - cpu.user_ns;
    cpu.wait_ns = cpu
        .wait_ns
        .map(|n| n + r.duration(20_000.0 + 1e5 * h.busy, 0.8));
    let e = &mut t.events;
    let mut wakes = 0;
    let mut pools: std::collections::HashMap<u32, Vec<u64>> = std::collections::HashMap::new();
    for (cell, a) in e.accesses.iter_mut().zip(&h.accesses) {
        let n = r.count(a.3);
        let d: Vec<u64> = (0..n).map(|_| r.duration(a.4, 0.25)).collect();
        add(&mut cell.time, &d);
        // As in the BPF engine: accesses come without a distribution, and without accesses their
        // run is empty.
        cell.time.histogram = None;
        let run = |r: &mut Random| Burst {
            count: 1 + r.count(n as f64 / 20.0),
            ns: r.duration(5e4, 1.0),
        };
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
            30 => {
                cell.userspace_ns = cell
                    .userspace_ns
                    .map(|n| n + total * 70 / 100 + r.next() % 2000);
            }
            _ if r.unit() < 0.02 => {
                cell.preempted_ns = cell.preempted_ns.map(|n| n + r.duration(30_000.0, 1.0));
            }
            _ => {}
        }
    }
    cpu.voluntary = cpu.voluntary.map(|n| n + wakes);
    cpu.involuntary = cpu.involuntary.map(|n| n + r.count(h.busy * 3.0));
    let io: u64 = e
        .accesses
        .iter()
        .filter(|a| a.space == Space::Pio)
        .map(|a| a.time.count)
        .sum();
    e.userspace[0].count = io;
    e.userspace[1].count = e
        .accesses
        .iter()
        .filter(|a| a.space == Space::Mmio)
        .map(|a| a.time.count)
        .sum::<u64>()
        / 10;
    if r.unit() < 0.1 * h.busy {
        e.migrations.total = e.migrations.total.map(|n| n + 1);
        e.migrations.cross_core += 1;
        t.place.cpu = Some((r.next() % 72) as u32);
    }
    let d: Vec<u64> = (0..wakes).map(|_| r.duration(9000.0, 0.7)).collect();
    for all in [&mut e.wakeups, &mut e.run_delays].into_iter().flatten() {
        add(all, &d);
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
    c(
        "halt_poll_success_ns",
        wakes / 5 * 20_000 + r.next() % 10_000,
    );
    c("halt_poll_fail_ns", wakes * 40_000 + r.next() % 10_000);
    c("irq_exits", exits / 4);
    c("irq_injections", wakes + r.count(1.0));
    c("insn_emulation", io);
}
