//! Hosts and guests by number, for the properties of all fixes about placement.

use kvm::CpuSet;
use kvm::domain_xml::{DomainXml, GuestTopology, NumaTune};
use kvm::topology::{CpuTopo, HostTopology};

/// splitmix64, so that a failure can be repeated by its number.
pub(super) struct Dice(pub u64);

impl Dice {
    pub(super) fn roll(&mut self, sides: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % u64::from(sides.max(1))) as u32
    }

    pub(super) fn one_in(&mut self, n: u32) -> bool {
        self.roll(n) == 0
    }

    pub(super) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.roll(of.len() as u32) as usize]
    }
}

/// A host: with or without hardware threads, one to eight nodes, numbered either way, hybrid or
/// not, some CPUs offline or isolated.
pub(super) fn any_host(d: &mut Dice) -> (HostTopology, CpuSet) {
    let nodes = d.pick(&[1, 1, 1, 2, 2, 4, 8]);
    let cores = 1 + d.roll(if nodes > 2 { 6 } else { 12 });
    let threads = d.pick(&[1, 2, 2]);
    let efficiency = if nodes == 1 && threads == 2 && d.one_in(4) {
        1 + d.roll(8)
    } else {
        0
    };
    let neighbours = d.one_in(2);
    let all = nodes * cores;
    let llc = 1 + d.roll(cores);
    let mut cpus = Vec::new();
    for core in 0..all {
        let node = core / cores;
        let siblings: CpuSet = (0..threads)
            .map(|t| {
                if neighbours {
                    core * threads + t
                } else {
                    core + t * all
                }
            })
            .collect();
        for cpu in siblings.iter() {
            cpus.push(CpuTopo {
                cpu,
                core: Some(core % cores),
                socket: Some(node),
                die: Some(0),
                node: Some(node),
                llc: Some(core / llc),
                siblings: siblings.clone(),
            });
        }
    }
    for e in 0..efficiency {
        let cpu = all * threads + e;
        cpus.push(CpuTopo {
            cpu,
            core: Some(cores + e),
            socket: Some(0),
            node: Some(0),
            llc: Some(900),
            ..CpuTopo::default()
        });
    }
    let offline: CpuSet = cpus.iter().map(|c| c.cpu).filter(|_| false).collect();
    let some_off = d.one_in(4);
    let offline = cpus
        .iter()
        .map(|c| c.cpu)
        .filter(|c| *c > 0 && some_off && d.one_in(5))
        .fold(offline, |mut a, c| {
            a.insert(c);
            a
        });
    let isolates = d.one_in(3);
    let last = cpus.len() as u32;
    let from = 1 + d.roll(last);
    let isolated: CpuSet = if isolates {
        (from..last).collect()
    } else {
        CpuSet::new()
    };
    let mut host = HostTopology {
        cpus,
        isolated: Some(isolated),
        nohz_full: Some(CpuSet::new()),
    };
    host.cpus.retain(|c| !offline.contains(c.cpu));
    host.normalise();
    (host, offline)
}

pub(super) fn any_set(d: &mut Dice, cpus: &[u32]) -> CpuSet {
    match d.roll(4) {
        0 => CpuSet::from_iter([d.pick(cpus)]),
        1 => {
            let (a, b) = (d.pick(cpus), d.pick(cpus));
            CpuSet::range(a.min(b), a.max(b))
        }
        2 => (0..=d.roll(6)).map(|_| d.pick(cpus)).collect(),
        _ => cpus.iter().copied().collect(),
    }
}

/// A guest that is pinned well, badly, partly or not at all.
pub(super) fn any_guest(d: &mut Dice, host: &HostTopology, cpus: &[u32], nodes: u32) -> DomainXml {
    let vcpus: u32 = d.pick(&[1, 1, 2, 2, 2, 3, 4, 4, 6, 8, 16]);
    let threads = if vcpus.is_multiple_of(2) && d.one_in(2) {
        2
    } else {
        1
    };
    let mut xml = DomainXml {
        vcpus: Some(vcpus),
        arch: Some("x86_64".into()),
        memory: d
            .one_in(5)
            .then_some(0)
            .or(Some(4 << 30))
            .filter(|m| *m > 0),
        topology: Some(GuestTopology {
            sockets: 1,
            dies: 1,
            cores: vcpus / threads,
            threads,
        }),
        iothreads: d.roll(3),
        ..DomainXml::default()
    };
    match d.roll(8) {
        // Not pinned.
        0 => {}
        // One CPU each, in order.
        1 | 2 => {
            let from = d.roll(cpus.len() as u32) as usize;
            for v in 0..vcpus {
                xml.vcpu_pins.insert(
                    v,
                    CpuSet::from_iter([cpus[(from + v as usize) % cpus.len()]]),
                );
            }
        }
        // Whole cores.
        3 => {
            let mut cpu = d.pick(cpus);
            for v in 0..vcpus {
                let core = host.siblings(cpu);
                let own = core.iter().nth((v % threads) as usize).unwrap_or(cpu);
                xml.vcpu_pins.insert(v, CpuSet::from_iter([own]));
                if v % threads == threads - 1 {
                    cpu = cpus
                        .iter()
                        .copied()
                        .find(|c| *c > cpu && !core.contains(*c))
                        .unwrap_or(cpus[0]);
                }
            }
        }
        // Some of them.
        4 => {
            for v in (0..vcpus).filter(|_| d.one_in(2)).collect::<Vec<_>>() {
                xml.vcpu_pins.insert(v, CpuSet::from_iter([d.pick(cpus)]));
            }
        }
        // A common set.
        5 => {
            let set = any_set(d, cpus);
            (0..vcpus).for_each(|v| drop(xml.vcpu_pins.insert(v, set.clone())));
        }
        6 => xml.vcpu_cpuset = Some(any_set(d, cpus)),
        // Anything.
        _ => (0..vcpus).for_each(|v| drop(xml.vcpu_pins.insert(v, any_set(d, cpus)))),
    }
    if d.one_in(2) {
        xml.emulator_pin = Some(any_set(d, cpus));
    }
    for id in 1..=xml.iothreads {
        if d.one_in(2) {
            xml.iothread_pins.insert(id, any_set(d, cpus));
        }
    }
    if d.one_in(3) {
        let node = d.roll(nodes);
        xml.numatune = Some(NumaTune {
            mode: Some("strict".into()),
            nodeset: Some(CpuSet::from_iter([node])),
        });
    }
    xml
}
