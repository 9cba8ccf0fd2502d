//! Twenty hosts as they are sold, each as the table that `lscpu -e` prints of it.

use import::topology::{self, PrintedTopology};
use std::fmt::Write as _;

/// A host by its last-level caches: node, the first thread of each core as `first-last/step`, and
/// the distances of the other threads. `e` stands for slow cores, of which four share a
/// second-level cache.
const HOSTS: [(&str, &str); 20] = [
    ("Celeron, 2 CPUs", "0:0-1/1"),
    ("Core i3, 2 cores", "0:0-1/1+2"),
    ("N100, 4 CPUs", "0:0-3/1"),
    ("Core i7-12700K", "0:0-14/2+1 0:16-19/1e"),
    ("Core i9-13900K", "0:0-14/2+1 0:16-31/1e"),
    ("Core i9-10980XE", "0:0-17/1+18"),
    ("Ryzen 7 3700X", "0:0-3/1+8 0:4-7/1+8"),
    ("Ryzen 9 9950X3D", "0:0-7/1+16 0:8-15/1+16"),
    (
        "Threadripper 2950X",
        "0:0-3/1+16 0:4-7/1+16 1:8-11/1+16 1:12-15/1+16",
    ),
    (
        "Threadripper 3960X",
        "0:0-2/1+24 0:3-5/1+24 0:6-8/1+24 0:9-11/1+24 0:12-14/1+24 0:15-17/1+24 0:18-23/1+24",
    ),
    (
        "EPYC 7302P, one node",
        "0:0-3/1+16 0:4-7/1+16 0:8-11/1+16 0:12-15/1+16",
    ),
    (
        "EPYC 7302P, four nodes",
        "0:0-3/1+16 1:4-7/1+16 2:8-11/1+16 3:12-15/1+16",
    ),
    (
        "two Xeon E5-2620 v2, alternating",
        "0:0-10/2+12 1:1-11/2+12",
    ),
    ("two Xeon Gold 6138, alternating", "0:0-38/2+40 1:1-39/2+40"),
    (
        "two Xeon Silver 4110, one thread a core",
        "0:0-14/2 1:1-15/2",
    ),
    ("two Xeon Gold 6240", "0:0-17/1+36 1:18-35/1+36"),
    (
        "four Xeon E5-4620",
        "0:0-7/1+32 1:8-15/1+32 2:16-23/1+32 3:24-31/1+32",
    ),
    (
        "Opteron 6376, four nodes",
        "0:0-3/1 0:4-7/1 1:8-15/1 2:16-23/1 3:24-31/1",
    ),
    ("Altra, 64 CPUs", "0:0-63/1"),
    ("POWER9, nodes 0 and 8", "0:0-28/4+1+2+3 8:32-60/4+1+2+3"),
];

/// The `lscpu -e` of a host.
fn table(caches: &str) -> String {
    let mut text = String::from("CPU NODE SOCKET CORE L1d:L1i:L2:L3 ONLINE MAXMHZ\n");
    let number = |text: &str| text.parse::<u32>().unwrap();
    for (l3, cache) in caches.split(' ').enumerate() {
        let slow = cache.ends_with('e');
        let (node, cpus) = cache.trim_end_matches('e').split_once(':').unwrap();
        let (range, step) = cpus.split_once('/').unwrap();
        let (first, last) = range.split_once('-').unwrap();
        let mut distances = step.split('+').map(number);
        let step = distances.next().unwrap();
        let distances: Vec<u32> = [0].into_iter().chain(distances).collect();
        let (l3, mhz) = if slow { (0, 3800) } else { (l3, 4900) };
        for core in (number(first)..=number(last)).step_by(step as usize) {
            let l2 = if slow { 1000 + core / 4 } else { core };
            for cpu in distances.iter().map(|distance| core + distance) {
                let _ = writeln!(
                    text,
                    "{cpu} {node} {node} {core} {core}:{core}:{l2}:{l3} yes {mhz}.0000"
                );
            }
        }
    }
    text
}

/// A host by number.
pub(super) fn host(number: usize) -> PrintedTopology {
    topology::parse(&table(HOSTS[number % HOSTS.len()].1)).unwrap()
}

#[test]
fn the_tables_are_read_as_the_hosts_are() {
    let cpus: Vec<usize> = (0..HOSTS.len())
        .map(|n| host(n).topology.cpus.len())
        .collect();
    assert_eq!(
        cpus,
        [
            2, 4, 4, 20, 32, 36, 16, 32, 32, 48, 32, 32, 24, 80, 16, 72, 64, 32, 64, 64
        ]
    );
    let nodes: Vec<usize> = (0..HOSTS.len())
        .map(|n| host(n).topology.nodes().len())
        .collect();
    assert_eq!(
        nodes,
        [1, 1, 1, 1, 1, 1, 1, 1, 2, 1, 1, 4, 2, 2, 2, 2, 4, 4, 1, 2]
    );
    let (hybrid, smt4) = (host(3), host(19).topology);
    assert_eq!(
        (hybrid.efficiency.to_string(), smt4.siblings(34).to_string()),
        ("16-19".into(), "32-35".into())
    );
}
