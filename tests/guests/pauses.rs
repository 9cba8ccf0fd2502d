//! A busy guest that is stopped for twelve seconds, by SIGSTOP and by its monitor, in a host that QEMU emulates: the
//! time in which it does not run is no time of an exit.

use crate::common;
use crate::common::nested::{self, Machine};
use crate::common::qemu;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

const TEST: &str = "pauses of a guest";
/// Exits that began before an interval count in it: with them, a vCPU has at most this many times the interval.
const MAX_BUSY: f64 = 2.0;
/// Two stops of twelve intervals; the first and the last may have exits.
const MIN_STOPPED: usize = 16;

pub fn a_pause_is_no_time_of_an_exit() {
    if let Some(why) = nested::missing(Machine::Amd, &[]) {
        return common::skipped(TEST, &why);
    }
    let disk = Path::new(env!("CARGO_TARGET_TMPDIR")).join("reader.img");
    let mut image = qemu::reader();
    // The guest reads the first 8 MiB.
    image.resize(9 << 20, 0);
    std::fs::write(&disk, image).expect("a disk");
    let settings = format!("KVMTOP={}\nDISK={}\n", env!("CARGO_BIN_EXE_kvmtop"), disk.display());
    let shared = match nested::run("pauses", Machine::Amd, &(settings + &nested::job("job-pause.sh")), 300) {
        Ok(shared) => shared,
        Err(why) => return common::skipped(TEST, &why),
    };
    for engine in ["bpf", "perf"] {
        let text = std::fs::read(shared.join(format!("{engine}.json"))).expect("intervals");
        let intervals = common::intervals(&text);
        assert!(intervals.iter().all(|i| i["engine"] == engine), "asked for {engine}");
        never_busier_than_a_cpu(engine, &intervals);
        common::ran(&format!("{TEST} ({engine})"));
    }
}

fn never_busier_than_a_cpu(engine: &str, intervals: &[Value]) {
    let mut stopped = 0;
    for interval in intervals {
        let us = interval["interval_s"].as_f64().expect("a length") * 1e6;
        for domain in interval["domains"].as_array().expect("domains") {
            let by_vcpu = exit_us_by_vcpu(domain);
            stopped += usize::from(by_vcpu.is_empty());
            for (vcpu, in_exits) in by_vcpu {
                assert!(
                    in_exits <= MAX_BUSY * us,
                    "{engine}: vCPU {vcpu} was in exits for {in_exits:.0} us of {us:.0} us: {}",
                    domain["exits"]
                );
            }
        }
    }
    assert!(stopped >= MIN_STOPPED, "{engine}: the guest stood still in {stopped} intervals only");
}

fn exit_us_by_vcpu(domain: &Value) -> BTreeMap<u64, f64> {
    let mut sums = BTreeMap::new();
    for exit in domain["exits"].as_array().expect("exits") {
        let (Some(vcpu), Some(mean)) = (exit["vcpu"].as_u64(), exit["mean_us"].as_f64()) else { continue };
        let count = exit["count"].as_f64().expect("a count");
        if count > 0.0 {
            *sums.entry(vcpu).or_default() += mean * count;
        }
    }
    sums
}
