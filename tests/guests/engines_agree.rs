//! Both tracing engines over the life of one guest: the same rows, the same counts.

use crate::common;
use crate::common::guest::{Guest, Work};
use crate::common::watch::Watch;
use serde_json::Value;
use std::collections::BTreeMap;

/// All that is seen until the guest has been reported as ended.
fn until_ended(mut watch: Watch, pid: u32) -> Vec<Value> {
    while !common::of_pid(&watch.seen, pid)
        .iter()
        .any(|d| d["state"] == "ended")
    {
        assert!(
            watch.seen.len() < 500,
            "the end of the guest was never seen"
        );
        watch.next();
    }
    watch.stop()
}

/// Counts by the words of these keys, each vCPU and their sum apart.
fn rows(seen: &[Value], pid: u32, rows: &str, keys: &[&str]) -> BTreeMap<String, u64> {
    let mut table = BTreeMap::new();
    for row in common::of_pid(seen, pid)
        .iter()
        .flat_map(|d| d[rows].as_array().expect("rows"))
    {
        let name: Vec<String> = keys.iter().map(|key| row[*key].to_string()).collect();
        *table
            .entry(format!("{} vcpu {}", name.join(" "), row["vcpu"]))
            .or_default() += row["count"].as_u64().expect("count");
    }
    table.retain(|_, count| *count > 0);
    table
}

#[test]
fn both_engines_count_the_same() {
    const TEST: &str = "both_engines_count_the_same";
    let _alone = common::alone();
    if let Some(why) = common::cannot_trace() {
        return common::skipped(TEST, &why);
    }
    let work = [
        Work::PortReads(0x608, 20_011),
        Work::PortWrites(0x3f8, 9_001),
        Work::MmioReads(0xfed0_00f0, 7_003),
        Work::MsrReads(0x1b, 8_009),
        Work::Idle,
    ];
    let mut guest = Guest::start(&work, true);
    let watches = ["perf", "bpf"].map(Watch::with_engine);
    let pid = guest.pid();
    guest.go();
    guest.wait_done();
    guest.end();
    let [perf, bpf] = watches.map(|watch| until_ended(watch, pid));

    for seen in [&perf, &bpf] {
        assert_eq!(
            seen.iter()
                .map(|i| i["lost_events"].as_u64().expect("lost"))
                .sum::<u64>(),
            0
        );
    }
    let accesses = |seen| rows(seen, pid, "accesses", &["space", "address", "access"]);
    assert_eq!(accesses(&perf), accesses(&bpf));
    assert_eq!(accesses(&perf)[r#""pio" "0x608" "read" vcpu null"#], 20_011);
    let userspace = |seen| rows(seen, pid, "userspace_exits", &["reason"]);
    assert_eq!(userspace(&perf), userspace(&bpf));
    // Where the kernel fires kvm_exit, both see each.
    let exits = |seen| rows(seen, pid, "exits", &["reason"]);
    assert_eq!(exits(&perf), exits(&bpf));
    common::ran(TEST);
}
