//! A guest that does exactly N accesses, and kvmtop, which must count exactly N: on the right port,
//! direction, thread and device.

use crate::common;
use crate::common::guest::{Guest, Work};
use crate::common::watch::Watch;
use serde_json::Value;
use std::time::{Duration, Instant};

/// Everything up to now: until an interval that began after this call is in.
fn finish(mut watch: Watch) -> Vec<Value> {
    let began = Instant::now();
    loop {
        let length = watch.next()["interval_s"].as_f64().expect("a length");
        if Instant::now() > began + Duration::from_secs_f64(length) {
            return watch.stop();
        }
    }
}

/// The summed count of the access rows that fit, over all intervals; `vcpu` null rows are the
/// domain's sums.
fn count(domains: &[&Value], space: &str, address: &str, access: &str, vcpu: &Value) -> u64 {
    domains
        .iter()
        .flat_map(|d| d["accesses"].as_array().expect("accesses"))
        .filter(|a| {
            a["space"] == space
                && a["address"] == address
                && a["access"] == access
                && a["vcpu"] == *vcpu
        })
        .map(|a| a["count"].as_u64().expect("count"))
        .sum()
}

/// Runs a guest under a watcher until nothing was lost. The BPF engine adds up inside the kernel
/// and may lose nothing at all; rings that a busy machine does not let kvmtop drain in time may,
/// and then say so: such a run proves nothing.
fn watched(engine: &str, run: impl Fn() -> (Vec<Value>, u32)) -> (Vec<Value>, u32) {
    let tries = if engine == "bpf" { 1 } else { 5 };
    for _ in 0..tries {
        let (seen, pid) = run();
        let lost: u64 = seen
            .iter()
            .map(|i| i["lost_events"].as_u64().expect("lost_events"))
            .sum();
        if lost == 0 {
            return (seen, pid);
        }
        eprintln!("{engine}: {lost} events lost, once more");
    }
    panic!("{engine}: events lost in each of {tries} runs");
}

fn engines(test: &str) -> Vec<&'static str> {
    if let Some(why) = common::cannot_trace() {
        common::skipped(test, &why);
        return Vec::new();
    }
    vec!["bpf", "perf"]
}

#[test]
fn port_reads_and_writes_are_counted_exactly() {
    const N: u32 = 30_011;
    const M: u32 = 20_003;
    let _alone = common::alone();
    for engine in engines("port_reads_and_writes_are_counted_exactly") {
        let (seen, pid) = watched(engine, || {
            let mut guest = Guest::start(
                &[Work::PortReads(0x608, N), Work::PortWrites(0x70, M)],
                true,
            );
            let watch = Watch::with_engine(engine);
            guest.go();
            guest.wait_done();
            (finish(watch), guest.pid())
        });
        let mine = common::of_pid(&seen, pid);
        assert_eq!(seen[0]["engine"], engine);
        for vcpu in [Value::Null, 0.into()] {
            assert_eq!(
                count(&mine, "pio", "0x608", "read", &vcpu),
                u64::from(N),
                "{engine} reads, vcpu {vcpu}"
            );
        }
        for vcpu in [Value::Null, 1.into()] {
            assert_eq!(
                count(&mine, "pio", "0x70", "write", &vcpu),
                u64::from(M),
                "{engine} writes, vcpu {vcpu}"
            );
        }
        assert_eq!(
            count(&mine, "pio", "0x608", "read", &1.into()),
            0,
            "{engine}: the other vCPU read nothing"
        );
        assert_eq!(
            count(&mine, "pio", "0x608", "write", &Value::Null),
            0,
            "{engine}: nobody wrote it"
        );
        let names: Vec<_> = mine
            .iter()
            .flat_map(|d| d["accesses"].as_array().expect("accesses"))
            .filter(|a| a["address"] == "0x608")
            .map(|a| a["device"].clone())
            .collect();
        assert!(names.iter().all(|n| n == "acpi-tmr"), "{names:?}");
        let userspace: u64 = mine
            .iter()
            .flat_map(|d| d["userspace_exits"].as_array().expect("userspace_exits"))
            .filter(|u| u["reason"] == "KVM_EXIT_IO" && u["vcpu"].is_null())
            .map(|u| u["count"].as_u64().expect("count"))
            .sum();
        assert_eq!(
            userspace,
            u64::from(N + M),
            "{engine}: each access went to the VMM"
        );
        common::ran(&format!(
            "port_reads_and_writes_are_counted_exactly ({engine})"
        ));
    }
}

#[test]
fn mmio_and_msr_reads_are_counted_exactly() {
    const N: u32 = 10_007;
    let _alone = common::alone();
    for engine in engines("mmio_and_msr_reads_are_counted_exactly") {
        let (seen, pid) = watched(engine, || {
            let mut guest = Guest::start(
                &[Work::MmioReads(0xfed0_00f0, N), Work::MsrReads(0x1b, N)],
                true,
            );
            let watch = Watch::with_engine(engine);
            guest.go();
            guest.wait_done();
            (finish(watch), guest.pid())
        });
        let mine = common::of_pid(&seen, pid);
        assert_eq!(
            count(&mine, "mmio", "0xfed000f0", "read", &Value::Null),
            u64::from(N),
            "{engine}"
        );
        assert_eq!(
            count(&mine, "msr", "0x1b", "read", &Value::Null),
            u64::from(N),
            "{engine}"
        );
        common::ran(&format!(
            "mmio_and_msr_reads_are_counted_exactly ({engine})"
        ));
    }
}

/// A guest that is born, works and ends between two readings is shown once, as ended, with all that
/// it did.
#[test]
fn a_guest_that_ended_is_shown_with_all_it_did() {
    const N: u32 = 5_003;
    let _alone = common::alone();
    for engine in engines("a_guest_that_ended_is_shown_with_all_it_did") {
        let (seen, pid) = watched(engine, || {
            let watch = Watch::with_engine(engine);
            let mut guest = Guest::start(&[Work::PortReads(0x71, N)], true);
            let pid = guest.pid();
            guest.go();
            guest.wait_done();
            guest.end();
            (finish(watch), pid)
        });
        let mine = common::of_pid(&seen, pid);
        assert_eq!(
            count(&mine, "pio", "0x71", "read", &Value::Null),
            u64::from(N),
            "{engine}"
        );
        assert_eq!(mine.last().expect("seen")["state"], "ended", "{engine}");
        assert_eq!(
            mine.iter().filter(|d| d["state"] == "ended").count(),
            1,
            "{engine}: once"
        );
        common::ran(&format!(
            "a_guest_that_ended_is_shown_with_all_it_did ({engine})"
        ));
    }
}

/// Without thread names (`debug-threads=off`) the vCPUs are found by what they do.
#[test]
fn vcpus_are_found_without_thread_names() {
    const N: u32 = 4_001;
    let _alone = common::alone();
    for engine in engines("vcpus_are_found_without_thread_names") {
        let mut guest = Guest::start(&[Work::PortReads(0x608, N)], false);
        let watch = Watch::with_engine(engine);
        guest.go();
        guest.wait_done();
        let seen = finish(watch);
        let mine = common::of_pid(&seen, guest.pid());
        let last = mine.last().expect("the guest is shown");
        let threads = last["threads"].as_array().expect("threads");
        let vcpus: Vec<_> = threads.iter().filter(|t| t["role"] == "vcpu").collect();
        assert_eq!(vcpus.len(), 1, "{engine}: {vcpus:?}");
        assert_eq!(
            vcpus[0]["comm"], "worker",
            "{engine}: the thread that does the accesses"
        );
        common::ran(&format!("vcpus_are_found_without_thread_names ({engine})"));
    }
}
