//! Kernel options and slices that give CPUs to guests: never all of the host, never its first CPU,
//! and one answer for all.

use super::placement_worlds::{Dice, any_host};
use super::*;
use kvm::CpuSet;
use kvm::topology::HostTopology;

fn pinned(name: &str, pid: i32, cpus: &[u32]) -> Guest {
    Guest::new(name, pid).vcpus(cpus.len() as u32, |v, t| {
        t.cpu(60.0, 1.0, 1.0, 0.0).pinned(cpus[v as usize])
    })
}

fn roaming(name: &str, pid: i32, vcpus: u32, all: &str) -> Guest {
    Guest::new(name, pid)
        .linux("")
        .vcpus(vcpus, |_, t| t.cpu(5.0, 0.0, 0.0, 0.0).may_run(all).on(0))
}

/// The texts of a rule's fixes on a host whose own tasks disturb CPU `busy`.
fn fixes(host: Host, busy: u32, guests: Vec<Guest>) -> Vec<String> {
    let fixture = guests.into_iter().fold(
        Fixture::new(host.task("backup", false, busy, 30.0)),
        Fixture::guest,
    );
    let report = judge(&fixture.model());
    let found = report
        .findings
        .iter()
        .filter(|f| f.rule == RuleId::PinnedNotIsolated);
    found.flat_map(|f| &f.fix).map(|f| f.text.clone()).collect()
}

#[test]
fn the_host_keeps_its_first_cpu() {
    let two = |cpu: u32| fixes(Host::numa(1, 2, 1), cpu, vec![pinned("a", 10, &[cpu])]);
    assert!(two(1).contains(&"isolcpus=1".to_owned()), "{:#?}", two(1));
    let first = two(0);
    assert!(
        first
            .iter()
            .all(|f| !f.starts_with("isolcpus=") && !f.contains("nohz_full=")),
        "{first:#?}"
    );
    // Both CPUs have a vCPU: first the host gets one, and what is left for the guests is shared.
    let both = fixes(Host::numa(1, 2, 1), 1, vec![pinned("a", 10, &[0, 1])]);
    assert!(both[0].starts_with("Take load off this host"), "{both:#?}");
    assert!(
        both.iter()
            .all(|f| !f.contains("AllowedCPUs") && !f.starts_with("isolcpus=")),
        "{both:#?}"
    );
}

#[test]
fn all_guests_get_the_same_options() {
    let guests = || vec![pinned("a", 10, &[3]), pinned("b", 20, &[4, 5])];
    let host = || Host::numa(1, 8, 1).task("backup", false, 4, 30.0);
    let all = fixes(host(), 3, guests());
    assert_eq!(
        all.iter().filter(|f| *f == "isolcpus=3-5").count(),
        2,
        "{all:#?}"
    );
    assert_eq!(
        all.iter()
            .filter(|f| f.contains("system.slice AllowedCPUs=0-2,6-7"))
            .count(),
        2,
        "{all:#?}"
    );
    // What is isolated already stays isolated.
    let more = fixes(host().isolated("6-7"), 3, guests());
    assert!(more.contains(&"isolcpus=3-7".to_owned()), "{more:#?}");
}

#[test]
fn guests_without_pins_keep_cpus_enough() {
    let pins: Vec<u32> = (1..7).collect();
    let with = |vcpus: u32| {
        fixes(
            Host::numa(1, 8, 1),
            1,
            vec![pinned("a", 10, &pins), roaming("web", 20, vcpus, "0-7")],
        )
    };
    assert!(
        with(2).contains(&"isolcpus=1-6".to_owned()),
        "{:#?}",
        with(2)
    );
    let squeezed = with(4);
    assert!(
        squeezed.iter().all(|f| !f.starts_with("isolcpus=1")),
        "{squeezed:#?}"
    );
    assert!(
        squeezed
            .iter()
            .any(|f| f.contains("isolcpus= is not proposed")),
        "{squeezed:#?}"
    );
}

/// `name=list` of every kernel option and slice in a report.
fn lists(report: &Report) -> Vec<(String, CpuSet)> {
    let fixes = report.findings.iter().flat_map(|f| &f.fix);
    let texts = fixes
        .filter(|f| matches!(f.kind, FixKind::KernelOption | FixKind::Command))
        .map(|f| f.text.as_str());
    let words = texts
        .flat_map(str::split_whitespace)
        .filter_map(|word| word.split_once('='));
    let named = [
        "isolcpus",
        "nohz_full",
        "rcu_nocbs",
        "irqaffinity",
        "AllowedCPUs",
    ];
    words
        .filter(|(name, _)| named.contains(name))
        .map(|(n, l)| (n.to_owned(), CpuSet::parse(l).unwrap()))
        .collect()
}

/// A host as the generator makes it, with tasks and interrupts on some CPUs and pinned guests, some
/// of them real-time.
fn any_model(number: u64) -> (HostTopology, Model) {
    let mut d = Dice(number);
    let (topology, _) = any_host(&mut d);
    let cpus: Vec<u32> = topology.cpus.iter().map(|c| c.cpu).collect();
    let mut host = Host::default();
    host.facts.topology = topology.clone();
    for _ in 0..=d.roll(4) {
        host = host.task("backup", d.one_in(2), d.pick(&cpus), 30.0);
    }
    let mut fixture = Fixture::new(host);
    for g in 0..=d.roll(3) {
        let on: Vec<u32> = (0..=d.roll(6)).map(|_| d.pick(&cpus)).collect();
        let all = topology.all().to_string();
        let guest = if d.one_in(4) {
            roaming("r", 0, 1 + d.roll(4), &all)
        } else {
            pinned("p", 0, &on)
        };
        fixture = fixture.guest(Guest::new(&format!("g{g}"), 10 * (g as i32 + 1)).vcpus(
            guest.threads.iter().filter(|t| t.index.is_some()).count() as u32,
            |v, t| {
                let like = guest.threads.iter().find(|t| t.index == Some(v)).unwrap();
                t.cpu(60.0, 1.0, 1.0, 0.0)
                    .may_run(&like.affinity.clone().unwrap().to_string())
                    .on(like.cpu.unwrap_or(0))
            },
        ));
    }
    let mut model = fixture.model();
    for cpu in &mut model.host.cpus {
        cpu.device_irq_rate = Some(5000.0);
    }
    let realtime = d.one_in(2);
    for t in model
        .domains
        .iter_mut()
        .flat_map(|d| &mut d.threads)
        .filter(|t| t.index.is_some() && realtime)
    {
        t.place.policy = Some(1);
    }
    (topology, model)
}

#[test]
fn no_option_takes_the_host_its_cpus() {
    let mut seen = std::collections::BTreeMap::new();
    for number in 0..200 {
        let (topology, model) = any_model(number);
        let all = lists(&judge(&model));
        let online = topology.all();
        let mut isolcpus: Option<CpuSet> = None;
        for (name, cpus) in &all {
            *seen.entry(name.clone()).or_insert(0) += 1;
            assert!(
                !cpus.is_empty() && cpus.is_subset(&online),
                "{number}: {name}={cpus} on {online}"
            );
            if name == "isolcpus" {
                assert!(
                    !cpus.contains(0) || topology.is_isolated(0),
                    "{number}: {all:?}"
                );
                assert!(
                    isolcpus.get_or_insert_with(|| cpus.clone()) == cpus,
                    "{number}: {all:?}"
                );
            }
            if ["isolcpus", "nohz_full", "rcu_nocbs"].contains(&name.as_str()) {
                assert!(
                    !online.is_subset(cpus),
                    "{number}: {name}={cpus} leaves nothing of {online}"
                );
            }
        }
    }
    assert_eq!(seen.len(), 5, "every kind of option is met: {seen:?}");
}
