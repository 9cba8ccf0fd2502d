//! The property of all fixes about placement: on any host with any guests, what is pasted from the findings into the
//! configuration makes the findings go, brings no new one, and moves nobody that stood well.

use super::*;
use crate::kvm::CpuSet;
use crate::kvm::domain_xml::{DomainXml, GuestTopology};
use crate::kvm::topology::{CpuTopo, EFFICIENCY_CPUS, HostTopology};
use crate::lint::fixes::placement::MORE_IN_PLAN;
use std::collections::BTreeMap;

/// splitmix64, so that a failure can be repeated by its number.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % u64::from(sides.max(1))) as u32
    }

    fn one_in(&mut self, n: u32) -> bool {
        self.roll(n) == 0
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.roll(of.len() as u32) as usize]
    }
}

/// A host: with or without hardware threads, one to eight nodes, numbered either way, hybrid or not, some CPUs offline
/// or isolated.
fn any_host(d: &mut Dice) -> (HostTopology, CpuSet) {
    let nodes = d.pick(&[1, 1, 1, 2, 2, 4, 8]);
    let cores = 1 + d.roll(if nodes > 2 { 6 } else { 12 });
    let threads = d.pick(&[1, 2, 2]);
    let efficiency = if nodes == 1 && threads == 2 && d.one_in(4) { 1 + d.roll(8) } else { 0 };
    let neighbours = d.one_in(2);
    let all = nodes * cores;
    let llc = 1 + d.roll(cores);
    let mut cpus = Vec::new();
    for core in 0..all {
        let node = core / cores;
        let siblings: CpuSet =
            (0..threads).map(|t| if neighbours { core * threads + t } else { core + t * all }).collect();
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
    let offline = cpus.iter().map(|c| c.cpu).filter(|c| *c > 0 && some_off && d.one_in(5)).fold(offline, |mut a, c| {
        a.insert(c);
        a
    });
    let isolates = d.one_in(3);
    let last = cpus.len() as u32;
    let from = 1 + d.roll(last);
    let isolated: CpuSet = if isolates { (from..last).collect() } else { CpuSet::new() };
    let mut host = HostTopology { cpus, isolated: Some(isolated), nohz_full: Some(CpuSet::new()) };
    host.cpus.retain(|c| !offline.contains(c.cpu));
    host.normalise();
    (host, offline)
}

fn any_set(d: &mut Dice, cpus: &[u32]) -> CpuSet {
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
fn any_guest(d: &mut Dice, host: &HostTopology, cpus: &[u32], nodes: u32) -> DomainXml {
    let vcpus: u32 = d.pick(&[1, 1, 2, 2, 2, 3, 4, 4, 6, 8, 16]);
    let threads = if vcpus.is_multiple_of(2) && d.one_in(2) { 2 } else { 1 };
    let mut xml = DomainXml {
        vcpus: Some(vcpus),
        arch: Some("x86_64".into()),
        memory: d.one_in(5).then_some(0).or(Some(4 << 30)).filter(|m| *m > 0),
        topology: Some(GuestTopology { sockets: 1, dies: 1, cores: vcpus / threads, threads }),
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
                xml.vcpu_pins.insert(v, CpuSet::from_iter([cpus[(from + v as usize) % cpus.len()]]));
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
                    cpu = cpus.iter().copied().find(|c| *c > cpu && !core.contains(*c)).unwrap_or(cpus[0]);
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
        xml.numatune = Some(crate::kvm::domain_xml::NumaTune {
            mode: Some("strict".into()),
            nodeset: Some(CpuSet::from_iter([node])),
            placement: None,
        });
    }
    if nodes > 1 && vcpus.is_multiple_of(2) && d.one_in(4) {
        let half = vcpus / 2;
        let cell = |id: u32, d: &mut Dice| crate::kvm::domain_xml::GuestNumaCell {
            id,
            cpus: (id * half..(id + 1) * half).collect(),
            memory: Some(2 << 30),
            host_nodes: (!d.one_in(4)).then(|| CpuSet::from_iter([d.roll(nodes)])),
        };
        xml.numa_cells = vec![cell(0, d), cell(1, d)];
    }
    xml
}

/// A host and its guests, as files describe them.
#[derive(Clone)]
struct World {
    host: HostTopology,
    guests: BTreeMap<String, DomainXml>,
}

impl World {
    fn any(number: u64) -> (Self, CpuSet) {
        let mut d = Dice(number);
        let (host, offline) = any_host(&mut d);
        let present: Vec<u32> = host.cpus.iter().map(|c| c.cpu).collect();
        let mut named: Vec<u32> = present.clone();
        if d.one_in(3) {
            named.extend(offline.iter());
            if d.one_in(4) {
                named.push(500);
            }
        }
        named.sort_unstable();
        let nodes = host.nodes().len() as u32;
        let count = if d.one_in(8) { d.roll(31) } else { d.roll(7) };
        let guests = (0..count).map(|g| (format!("g{g}"), any_guest(&mut d, &host, &named, nodes))).collect();
        (Self { host, guests }, offline)
    }

    fn judge(&self) -> Report {
        from_file(&self.fixture(), None)
    }

    /// The findings, and where they refer to the whole plan, its fixes.
    fn fixes(&self, report: &Report) -> Vec<Fix> {
        let of_rules = report.findings.iter().filter(|f| PLACEMENT.contains(&f.rule)).flat_map(|f| f.fix.clone());
        let mut all: Vec<Fix> = of_rules.collect();
        if all.iter().any(|f| f.text == MORE_IN_PLAN) {
            let mut sample = self.fixture().sample(10.0);
            sample.host.cpus.clear();
            let model = Model::new(&sample, Base::Whole(None));
            let whole = plan(&model, &Options { input: InputKind::File, ..Options::default() });
            all.extend(whole.guests.into_iter().filter(|g| !g.plan.optional).flat_map(|g| g.fix));
        }
        all
    }

    fn fixture(&self) -> Fixture {
        let mut fixture = Fixture::new(Host::default());
        fixture.host.facts.topology = self.host.clone();
        // The generator's cores with this cache are the efficient ones of a hybrid host.
        let slower: CpuSet = self.host.cpus.iter().filter(|c| c.llc == Some(900)).map(|c| c.cpu).collect();
        fixture.host.facts.params.insert(EFFICIENCY_CPUS.into(), slower.to_string());
        for (i, (name, xml)) in self.guests.iter().enumerate() {
            let mut guest = Guest::new(name, 10 + i as i32).facts(|f| {
                f.pid = None;
                f.vcpus = xml.vcpus.map(|n| Known::new(n, Origin::File));
                f.xml = Some(Known::new(Arc::new(xml.clone()), Origin::File));
            });
            guest.threads.clear();
            fixture = fixture.guest(guest);
        }
        fixture
    }

    /// Does what the fixes of all findings say, by their printed text. Returns the threads that got other CPUs.
    fn paste(&mut self, report: &Report) -> BTreeMap<String, String> {
        let mut pasted = BTreeMap::new();
        let mut put = |key: String, value: String| {
            if let Some(before) = pasted.insert(key.clone(), value.clone()) {
                assert_eq!(before, value, "two fixes contradict each other about {key}");
            }
        };
        for fix in self.fixes(report) {
            match fix.kind {
                FixKind::Command => {
                    for line in fix.text.lines() {
                        let words: Vec<&str> = line.split_whitespace().collect();
                        let [_, verb, name, rest @ ..] = words.as_slice() else { panic!("{line}") };
                        let guest = self.guests.get_mut(*name).unwrap_or_else(|| panic!("{line}"));
                        let set = |text: &str| CpuSet::parse(text).unwrap();
                        match (*verb, rest) {
                            ("vcpupin", [v, cpus, ..]) => {
                                guest.vcpu_pins.insert(v.parse().unwrap(), set(cpus));
                                put(format!("{name} vcpu {v}"), (*cpus).into());
                            }
                            ("emulatorpin", [cpus, ..]) => {
                                guest.emulator_pin = Some(set(cpus));
                                put(format!("{name} emulator"), (*cpus).into());
                            }
                            ("iothreadpin", [id, cpus, ..]) => {
                                guest.iothread_pins.insert(id.parse().unwrap(), set(cpus));
                                put(format!("{name} iothread {id}"), (*cpus).into());
                            }
                            _ => panic!("{line}"),
                        }
                    }
                }
                FixKind::LibvirtXml => {
                    let needs = fix.needs.as_deref().unwrap();
                    let name = needs.strip_prefix("goes into the XML of ").unwrap().split(';').next().unwrap();
                    let new = domain_xml::parse(&format!("<domain>{}</domain>", fix.text)).unwrap();
                    let guest = self.guests.get_mut(name).unwrap();
                    guest.vcpu_pins.extend(new.vcpu_pins);
                    guest.iothread_pins.extend(new.iothread_pins);
                    guest.emulator_pin = new.emulator_pin.or(guest.emulator_pin.take());
                    guest.topology = new.topology.or(guest.topology);
                    guest.numatune = new.numatune.or(guest.numatune.take());
                    // As text, because the cells are elsewhere in the domain.
                    for line in fix.text.lines().filter_map(|l| l.trim().strip_prefix("<memnode cellid='")) {
                        let words: Vec<&str> = line.split('\'').collect();
                        if let Some(cell) = guest.numa_cells.iter_mut().find(|c| c.id.to_string() == words[0]) {
                            cell.host_nodes = Some(CpuSet::parse(words[4]).unwrap());
                        }
                    }
                    if !new.numa_cells.is_empty() {
                        put(format!("{name} cells"), fix.text.clone());
                        guest.numa_cells = new.numa_cells;
                    }
                }
                FixKind::Advice => {}
                _ => panic!("{fix:?}"),
            }
        }
        pasted
    }
}

/// The rules about placement; what a file alone says of the rest is not at issue.
const PLACEMENT: &[&str] = &[
    "pin-overlap",
    "emulator-on-vcpu",
    "isolated-pile-up",
    "smt-mismatch",
    "numa-split",
    "overcommit",
    "host-cpus-starved",
    "affinity-drift",
];

fn placement_findings(report: &Report) -> Vec<&Finding> {
    report.findings.iter().filter(|f| PLACEMENT.contains(&f.rule)).collect()
}

fn check(number: u64) -> Result<(), (String, String)> {
    let (before, _) = World::any(number);
    let report = before.judge();
    let mut after = before.clone();
    let pasted = after.paste(&report);
    let again = after.judge();
    let story = || {
        let pins = |w: &World| {
            let line = |(n, x): (&String, &DomainXml)| {
                let pins: Vec<String> = x.vcpu_pins.iter().map(|(v, c)| format!("{v}={c}")).collect();
                format!(
                    "  {n}: {:?} vCPUs, threads {:?}, pins {} rest {:?} emulator {:?} io {:?} numa {:?} cells {:?}",
                    x.vcpus,
                    x.topology.map(|t| t.threads),
                    pins.join(" "),
                    x.vcpu_cpuset.as_ref().map(ToString::to_string),
                    x.emulator_pin.as_ref().map(ToString::to_string),
                    x.iothread_pins.iter().map(|(i, c)| format!("{i}={c}")).collect::<Vec<_>>(),
                    x.numatune.as_ref().and_then(|n| n.nodeset.clone()).map(|n| n.to_string()),
                    x.numa_cells.iter().map(|c| format!("{} on {:?}", c.cpus, c.host_nodes)).collect::<Vec<_>>(),
                )
            };
            w.guests.iter().map(line).collect::<Vec<_>>().join("\n")
        };
        let cpus: Vec<String> =
            before.host.cpus.iter().map(|c| format!("{}:{}@{:?}", c.cpu, c.siblings, c.node.unwrap_or(9))).collect();
        format!(
            "world {number}\nhost {} isolated {:?}\nbefore\n{}\nafter\n{}\nfindings before {:#?}",
            cpus.join(" "),
            before.host.isolated.as_ref().map(ToString::to_string),
            pins(&before),
            pins(&after),
            placement_findings(&report).iter().map(|f| (f.rule, &f.domain, &f.evidence, &f.fix)).collect::<Vec<_>>(),
        )
    };
    let left = placement_findings(&again);
    if let Some(f) = left.first() {
        let left: Vec<_> = left.iter().map(|f| (f.rule, &f.domain, &f.also, &f.evidence, &f.fix)).collect();
        return Err((format!("{} stays", f.rule), format!("{}\nleft: {left:#?}", story())));
    }
    // Nobody was moved who stood well.
    let concerned = |name: &str| placement_findings(&report).iter().any(|f| f.concerns(name));
    // Who is not named stands in the plan, which the finding refers to.
    let in_plan = report.findings.iter().flat_map(|f| &f.fix).any(|f| f.text == MORE_IN_PLAN);
    let all = before.host.all();
    for (thread, cpus) in &pasted {
        let name = thread.split(' ').next().unwrap();
        let host_full = placement_findings(&report).iter().any(|f| f.rule == "host-cpus-starved");
        if !concerned(name) && !host_full && !in_plan {
            return Err(("moved who stood well".into(), format!("{thread}\n{}", story())));
        }
        let set = if thread.contains("cells") { all.clone() } else { CpuSet::parse(cpus).unwrap() };
        if set.is_empty() || !set.is_subset(&all) {
            return Err(("pinned to a CPU that is not there".into(), format!("{thread} to {cpus}\n{}", story())));
        }
    }
    Ok(())
}

/// Checks many worlds, and shows the first that fails and how many fail in the same way.
fn check_all(numbers: std::ops::Range<u64>) {
    let mut failures: BTreeMap<String, (u64, u64, String)> = BTreeMap::new();
    for number in numbers {
        if let Err((kind, story)) = check(number) {
            failures.entry(kind).or_insert((0, number, story)).0 += 1;
        }
    }
    let counts: Vec<_> = failures.iter().map(|(kind, (n, first, _))| format!("{n} {kind}, first {first}")).collect();
    let stories: Vec<&str> = failures.values().map(|f| f.2.as_str()).collect();
    assert!(failures.is_empty(), "{counts:#?}\n{}", stories.join("\n"));
}

#[test]
fn pasted_fixes_cure_any_host() {
    check_all(0..1000);
}

/// Numbers with which a longer run once failed.
#[test]
fn pasted_fixes_cure_hosts_that_were_hard() {
    for number in [5095, 6210, 7240, 7466, 13_609] {
        check_all(number..number + 1);
    }
}

/// The same for many more hosts: `KVMTOP_HOSTS=1000..400000 cargo test --release --lib -- --ignored any_host_at_all`.
#[test]
#[ignore = "minutes long"]
fn pasted_fixes_cure_any_host_at_all() {
    let range = std::env::var("KVMTOP_HOSTS").unwrap_or_else(|_| "1000..400000".into());
    let (from, to) = range.split_once("..").unwrap();
    check_all(from.parse().unwrap()..to.parse().unwrap());
}
