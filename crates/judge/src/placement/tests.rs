//! The branches of the plan, each on the smallest host that has it.

use super::*;
use kvm::topology::{CpuTopo, HostTopology};

fn set(text: &str) -> CpuSet {
    CpuSet::parse(text).unwrap()
}

/// A host with these CPUs on each node. Each CPU is a separate core; `efficient` CPUs are slower.
fn host(nodes: &[&str], isolated: &str, efficient: &str) -> CpuMap {
    let mut topology = HostTopology {
        isolated: Some(set(isolated)),
        ..HostTopology::default()
    };
    for (node, cpus) in (0..).zip(nodes) {
        topology.cpus.extend(set(cpus).iter().map(|cpu| CpuTopo {
            cpu,
            node: Some(node),
            ..CpuTopo::default()
        }));
    }
    topology.normalise();
    CpuMap::new(&topology, &topology.all(), &set(efficient))
}

/// A running guest whose configuration is known: the CPUs of each vCPU, "" for all.
fn guest(map: &CpuMap, vcpus: &[&str]) -> GuestLayout {
    GuestLayout {
        running: true,
        shape: Shape::Fixed,
        cells: Some(0),
        threads: 1,
        vcpus: vcpus
            .iter()
            .map(|cpus| {
                if cpus.is_empty() {
                    map.all.clone()
                } else {
                    set(cpus)
                }
            })
            .collect(),
        helpers: [(
            None,
            HelperLayout {
                is_idle: true,
                ..HelperLayout::default()
            },
        )]
        .into(),
        ..GuestLayout::default()
    }
}

/// Where the vCPUs of each guest are after the plan.
fn after(map: &CpuMap, guests: &[GuestLayout]) -> Vec<Vec<String>> {
    let sets = |g: &GuestLayout| g.vcpus.iter().map(ToString::to_string).collect();
    plan(map, guests).after.iter().map(sets).collect()
}

#[test]
fn on_one_cpu_no_set_is_a_restriction() {
    let map = host(&["0"], "", "");
    let two = [guest(&map, &["0", "0"]), guest(&map, &["0"])];
    assert!(faults::overlaps(&map, &two).is_empty() && !faults::starved(&map, &two));
    assert_eq!(plan(&map, &two).changed().count(), 0);
    let isolated = host(&["0"], "0", "");
    assert!(
        isolated.isolated.is_empty(),
        "a host whose only CPU is isolated has no isolated CPUs"
    );
}

#[test]
fn a_full_host_keeps_its_first_cpu_and_an_idle_helper_stays() {
    let map = host(&["0-3"], "", "");
    let idle = GuestLayout {
        helpers: [(
            None,
            HelperLayout {
                cpus: Some(set("0-3")),
                is_idle: true,
                ..HelperLayout::default()
            },
        )]
        .into(),
        ..guest(&map, &["1", "2"])
    };
    assert_eq!(plan(&map, std::slice::from_ref(&idle)).changed().count(), 0);
    let mut busy = idle.clone();
    busy.helpers.entry(None).or_default().is_idle = false;
    assert_eq!(
        plan(&map, &[busy]).guests[0].helpers,
        [(None, set("0,3"))].into()
    );
    let full = [guest(&map, &["0", "1"]), guest(&map, &["2", "3"])];
    assert!(faults::starved(&map, &full));
    let planned = plan(&map, &full);
    assert!(!faults::starved(&map, &planned.after), "{planned:#?}");
}

#[test]
fn nobody_moves_to_a_cpu_that_the_host_keeps_busy_while_others_are_free() {
    let map = host(&["0-7"], "", "");
    let guests = [guest(&map, &["4"]), guest(&map, &["4"])];
    assert_eq!(after(&map, &guests)[1], ["1"]);
    assert_eq!(
        after(&map.clone().with_busy(&set("1-2,5")), &guests)[1],
        ["3"]
    );
    // Where no other is free, a busy one is still better than one that a vCPU has.
    assert_eq!(
        after(&map.clone().with_busy(&set("0-3,5-7")), &guests)[1],
        ["1"]
    );
    let free = guest(&map, &["", ""]);
    assert!(plan(&map, std::slice::from_ref(&free)).guests[0].optional);
    assert_eq!(
        plan(&map.with_busy(&set("0-7")), &[free]).changed().count(),
        0
    );
}

#[test]
fn vcpus_are_not_mixed_over_fast_and_slow_cores_without_need() {
    let map = host(&["0-7"], "", "4-7");
    let on = |cpus: &[&str]| {
        let guests = [guest(&map, &["2"]), guest(&map, cpus)];
        after(&map, &guests)[1].clone()
    };
    assert_eq!(
        on(&["2", "3"]),
        ["1", "3"],
        "fast ones for a guest that is on fast ones"
    );
    assert_eq!(on(&["2", "6"])[0], "4", "it has a slow one already");
    let four = [guest(&map, &["2", "3"]), guest(&map, &["2", "3", "2", "3"])];
    assert!(
        after(&map, &four)[1]
            .iter()
            .all(|cpu| set(cpu).is_subset(&set("4-7"))),
        "room only among slow ones"
    );
}

/// Two nodes with four cores of two threads each: CPUs 0-3 and 4-7, their siblings 8-11 and 12-15.
fn two_nodes_with_threads() -> CpuMap {
    let mut topology = HostTopology {
        isolated: Some(CpuSet::new()),
        ..HostTopology::default()
    };
    let siblings = |cpu: u32| CpuSet::from_iter([cpu % 8, cpu % 8 + 8]);
    let cpu = |cpu| CpuTopo {
        cpu,
        node: Some(cpu % 8 / 4),
        siblings: siblings(cpu),
        ..CpuTopo::default()
    };
    topology.cpus.extend((0..16).map(cpu));
    topology.normalise();
    CpuMap::new(&topology, &topology.all(), &CpuSet::new())
}

#[test]
fn a_guest_larger_than_a_node_keeps_its_pins() {
    let map = two_nodes_with_threads();
    let pins: Vec<String> = (0..12).map(|cpu| cpu.to_string()).collect();
    let pins: Vec<&str> = pins.iter().map(String::as_str).collect();
    let large = GuestLayout {
        shape: Shape::Unknown,
        ..guest(&map, &pins)
    };
    assert!(large.is_split(&map));
    assert_eq!(plan(&map, &[large]).changed().count(), 0);
}

#[test]
fn a_guest_with_numa_cells_stays_and_others_make_way() {
    let map = two_nodes_with_threads();
    let cells = GuestLayout {
        cells: Some(2),
        ..guest(&map, &["1", "5"])
    };
    let other = guest(&map, &["2", "5"]);
    for guests in [[cells.clone(), other.clone()], [other, cells]] {
        let plan = plan(&map, &guests);
        let moved: Vec<_> = plan.changed().map(|(g, _)| guests[g].cells).collect();
        assert_eq!(moved, [Some(0)], "{plan:#?}");
    }
}

#[test]
fn cpus_of_a_paused_guest_are_its_own_only_while_others_have_enough() {
    let map = host(&["0-3"], "", "");
    let paused = |cpus: &[&str]| GuestLayout {
        running: false,
        ..guest(&map, cpus)
    };
    let pinned = |cpus: &str| HelperLayout {
        cpus: Some(set(cpus)),
        pinned: true,
        ..HelperLayout::default()
    };
    let on_its_vcpu = GuestLayout {
        helpers: [(None, pinned("2"))].into(),
        ..guest(&map, &["2"])
    };
    let emulator = |cpus: &[&str]| {
        plan(&map, &[on_its_vcpu.clone(), paused(cpus)]).guests[0]
            .helpers
            .get(&None)
            .cloned()
    };
    assert_eq!(emulator(&["0", "1"]), Some(set("3")));
    assert_eq!(
        emulator(&["0", "1", "3"]),
        Some(set("0")),
        "better than its own vCPU's"
    );
}

#[test]
fn the_plan_takes_no_last_cpu_from_the_host() {
    let map = host(&["0-3"], "", "");
    let guests = [guest(&map, &["3"]), guest(&map, &["0", "1", "1"])];
    assert!(!faults::starved(&map, &guests));
    let planned = plan(&map, &guests);
    assert!(!faults::starved(&map, &planned.after), "{planned:#?}");
    assert!(
        faults::overlaps(&map, &planned.after).is_empty() && planned.guests[0].is_empty(),
        "{planned:#?}"
    );
}

#[test]
fn a_helper_stays_as_wide_as_it_was() {
    let map = host(&["0-19", "20-39"], "", "");
    let emulator = |cpus: Option<&str>, vcpus: &[&str]| {
        let helper = HelperLayout {
            cpus: cpus.map(set),
            pinned: cpus.is_some(),
            ..HelperLayout::default()
        };
        let guest = GuestLayout {
            helpers: [(None, helper)].into(),
            ..guest(&map, vcpus)
        };
        plan(&map, &[guest]).guests[0]
            .helpers
            .get(&None)
            .map(ToString::to_string)
    };
    assert_eq!(
        emulator(Some("0-7"), &["0", "1"]),
        Some("2-7".into()),
        "what is left of it is enough"
    );
    assert_eq!(
        emulator(Some("20-23"), &["20", "21", "22"]),
        Some("23-26".into()),
        "as many on the same node"
    );
    assert_eq!(
        emulator(None, &["20", "21"]),
        Some("22-29".into()),
        "it had all"
    );
}

#[test]
fn isolated_cpus_are_for_guests_that_have_some() {
    let map = host(&["0-7"], "4-7", "");
    let guests = |cpus: &[&str]| [guest(&map, &["2"]), guest(&map, cpus)];
    assert_eq!(after(&map, &guests(&["2", "3"]))[1], ["1", "3"]);
    assert_eq!(after(&map, &guests(&["2", "5"]))[1], ["4", "5"]);
}

#[test]
fn a_set_across_nodes_becomes_one_of_a_node_and_not_smaller() {
    let map = host(&["0-7", "8-15"], "", "");
    let across = guest(&map, &["4-11"; 8]);
    assert_eq!(after(&map, std::slice::from_ref(&across))[0], ["0-7"; 8]);
    let pinned = guest(&map, &["1"]);
    assert_eq!(
        after(&map, &[across.clone(), pinned])[0],
        ["8-15"; 8],
        "the other node has room"
    );
    let one_set = GuestLayout {
        pinning: Pinning::OneSet,
        ..across
    };
    let plan = plan(&map, &[one_set]);
    assert_eq!(plan.after[0].vcpus, vec![set("0-7"); 8]);
}

#[test]
fn a_manager_with_one_set_gets_one_set() {
    let map = host(&["0-7"], "", "");
    let pinned = HelperLayout {
        cpus: Some(set("3")),
        pinned: true,
        ..HelperLayout::default()
    };
    let crowded = GuestLayout {
        pinning: Pinning::OneSet,
        helpers: [(None, pinned)].into(),
        ..guest(&map, &["3", "3"])
    };
    let plan = plan(&map, &[crowded]);
    let sets: Vec<&CpuSet> = plan.after[0].vcpus.iter().collect();
    assert!(
        sets[0] == sets[1] && sets[0].len() > 1 && sets[0].contains(3),
        "{plan:#?}"
    );
}

#[test]
fn a_guest_as_large_as_the_host_is_not_pinned() {
    let map = host(&["0-3"], "", "");
    let plan = plan(&map, &[guest(&map, &["0", "1", "2", "3"])]);
    assert_eq!(plan.after[0].vcpus, vec![map.all.clone(); 4], "{plan:#?}");
}

/// A host with `pairs` cores of two threads and `single` ones of one, which are slower.
fn hybrid(pairs: u32, single: u32) -> CpuMap {
    let all = 2 * pairs + single;
    let siblings = |cpu: u32| {
        CpuSet::from_iter(if cpu < 2 * pairs {
            [cpu & !1, cpu | 1]
        } else {
            [cpu, cpu]
        })
    };
    let cpu = |cpu| CpuTopo {
        cpu,
        siblings: siblings(cpu),
        ..CpuTopo::default()
    };
    let mut topology = HostTopology {
        isolated: Some(CpuSet::new()),
        ..HostTopology::default()
    };
    topology.cpus.extend((0..all).map(cpu));
    topology.normalise();
    CpuMap::new(&topology, &topology.all(), &(2 * pairs..all).collect())
}

#[test]
fn a_shared_set_leaves_out_the_cpus_of_helpers() {
    // Four vCPUs that see one thread per core, and two cores beside the host's and the helper's.
    let map = hybrid(4, 0);
    let pinned = HelperLayout {
        cpus: Some(set("6-7")),
        pinned: true,
        ..HelperLayout::default()
    };
    let short = GuestLayout {
        helpers: [(None, pinned)].into(),
        ..guest(&map, &["2", "3", "4", "5"])
    };
    assert_eq!(after(&map, &[short])[0], ["2", "3,5", "4", "3,5"]);
}

#[test]
fn vcpus_without_room_share_what_is_left_and_the_others_keep_their_cpus() {
    let map = host(&["0-7"], "", "");
    let some = guest(&map, &["2", "3", "4", "5", "", "", "", ""]);
    let moved = after(&map, std::slice::from_ref(&some));
    assert_eq!(
        moved[0],
        [
            "2", "3", "4", "5", "0-1,6-7", "0-1,6-7", "0-1,6-7", "0-1,6-7"
        ]
    );
}
