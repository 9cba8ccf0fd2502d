//! A busy guest that is stopped for twelve seconds, by SIGSTOP and by its monitor, in a host that
//! QEMU emulates: the time in which it does not run is no time of an exit.

use crate::common;
use crate::common::nested::{self, Host};
use crate::common::qemu;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

const TEST: &str = "pauses of a guest";
/// An exit can begin in the interval before the one in which it counts.
const MAX_BUSY: f64 = 1.1;
/// Two stops of twelve intervals; the first and the last may have exits.
const MIN_STOPPED: usize = 16;

pub fn a_pause_is_no_time_of_an_exit(host: Host) {
    if let Some(why) = nested::missing(host, &[]) {
        return common::skipped(&format!("{TEST}, {}", host.suite), &why);
    }
    let disk = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("pauses-{}.img", host.suite));
    let mut image = qemu::reader();
    // The guest reads the first 8 MiB.
    image.resize(9 << 20, 0);
    std::fs::write(&disk, image).expect("a disk");
    let settings = format!(
        "KVMTOP={}\nDISK={}\n",
        env!("CARGO_BIN_EXE_kvmtop"),
        disk.display()
    );
    let shared = match nested::run(
        "pauses",
        host,
        &(settings + &nested::job("job-pause.sh")),
        300,
    ) {
        Ok(shared) => shared,
        Err(why) => return common::skipped(&format!("{TEST}, {}", host.suite), &why),
    };
    for engine in ["bpf", "perf"] {
        let text = std::fs::read(shared.join(format!("{engine}.json"))).expect("intervals");
        let intervals = common::intervals(&text);
        assert!(
            intervals.iter().all(|i| i["engine"] == engine),
            "asked for {engine}"
        );
        never_busier_than_a_cpu(engine, &intervals);
        common::ran(&format!("{TEST} ({engine}, {})", host.kernel()));
    }
}

/// The intervals in which a vCPU has exits are as long as its exits, or longer.
fn never_busier_than_a_cpu(engine: &str, intervals: &[Value]) {
    let mut stopped = 0;
    let mut by_vcpu: BTreeMap<u64, (f64, f64)> = BTreeMap::new();
    for interval in intervals {
        let us = interval["interval_s"].as_f64().expect("a length") * 1e6;
        for domain in interval["domains"].as_array().expect("domains") {
            let of_interval = exit_us_by_vcpu(domain);
            stopped += usize::from(of_interval.is_empty());
            for (vcpu, in_exits) in of_interval {
                let sums = by_vcpu.entry(vcpu).or_default();
                sums.0 += in_exits;
                sums.1 += us;
            }
        }
    }
    for (vcpu, (in_exits, running)) in by_vcpu {
        assert!(
            in_exits <= MAX_BUSY * running,
            "{engine}: vCPU {vcpu} was in exits for {in_exits:.0} us in {running:.0} us"
        );
    }
    assert!(
        stopped >= MIN_STOPPED,
        "{engine}: the guest stood still in {stopped} intervals only"
    );
}

fn exit_us_by_vcpu(domain: &Value) -> BTreeMap<u64, f64> {
    let mut sums = BTreeMap::new();
    for exit in domain["exits"].as_array().expect("exits") {
        let (Some(vcpu), Some(mean)) = (exit["vcpu"].as_u64(), exit["mean_us"].as_f64()) else {
            continue;
        };
        let count = exit["count"].as_f64().expect("a count");
        if count > 0.0 {
            *sums.entry(vcpu).or_default() += mean * count;
        }
    }
    sums
}
