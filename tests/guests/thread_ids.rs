//! The kernel gives the ids of an ended guest to another one. Both do exactly N accesses, and
//! kvmtop must count exactly N for each of them.

use crate::common;
use crate::common::guest::{Guest, Work};
use crate::common::watch::Watch;
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

const FIRST: u32 = 4_708;
const SECOND: u32 = 7_842;
/// Where the kernel keeps the id that it gave last; root may set it
/// (Documentation/admin-guide/sysctl/kernel.rst).
const LAST_PID: &str = "/proc/sys/kernel/ns_last_pid";

fn tids(guest: &Guest) -> BTreeSet<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", guest.pid())).expect("the guest lives");
    tasks
        .flatten()
        .filter_map(|task| task.file_name().to_str()?.parse().ok())
        .collect()
}

/// Starts a second guest after the end of the first, so that it gets an id of its threads. `shift`:
/// 0 gives it the process id too, 1 one id of a thread. `None`: something else took the ids.
fn successor(first: Guest, shift: u32) -> Option<Guest> {
    let (pid, old) = (first.pid(), tids(&first));
    first.end();
    std::fs::write(LAST_PID, (pid - 1 - shift).to_string()).ok()?;
    let second = Guest::start(
        &[Work::PortReads(0x71, SECOND), Work::PortReads(0x71, SECOND)],
        true,
    );
    let vcpus = tids(&second)
        .into_iter()
        .filter(|tid| *tid != second.pid())
        .collect::<BTreeSet<_>>();
    let again = vcpus.intersection(&old).next().is_some();
    (again && (second.pid() == pid) == (shift == 0)).then_some(second)
}

/// Reads of a port in one object of a domain.
fn reads(domain: &Value, address: &str) -> u64 {
    let rows = domain["accesses"].as_array().expect("accesses").iter();
    let sums = rows.filter(|a| a["address"] == address && a["vcpu"].is_null());
    sums.map(|a| a["count"].as_u64().expect("count")).sum()
}

/// Until an interval that began after this call is in.
fn catch_up(watch: &mut Watch) {
    let began = Instant::now();
    while Instant::now()
        <= began + Duration::from_secs_f64(watch.next()["interval_s"].as_f64().expect("a length"))
    {
    }
}

/// Watches a guest and its successor; false if the machine gave the ids to others.
fn split(engine: &str, shift: u32, seen_before: bool) -> bool {
    let mut watch = Watch::start(&["-d", "0.5", "--engine", engine]);
    let found = (0..20).find_map(|_| {
        let mut first = Guest::start(&[Work::PortReads(0x608, FIRST)], true);
        let pid = first.pid();
        first.go();
        first.wait_done();
        if seen_before {
            catch_up(&mut watch);
        }
        Some((pid, successor(first, shift)?))
    });
    let Some((pid, mut second)) = found else {
        return false;
    };
    second.go();
    second.wait_done();
    let successor = second.pid();
    catch_up(&mut watch);
    second.end();
    catch_up(&mut watch);
    let seen = watch.stop();
    let lost: u64 = seen
        .iter()
        .map(|i| i["lost_events"].as_u64().expect("lost_events"))
        .sum();
    if lost > 0 {
        eprintln!("{engine}: {lost} events lost, once more");
        return false;
    }
    let domains = seen
        .iter()
        .flat_map(|i| i["domains"].as_array().expect("domains"));
    let (mut one, mut two) = (0, 0);
    for domain in domains.filter(|d| d["pid"] == pid || d["pid"] == successor) {
        let (of_first, of_second) = (reads(domain, "0x608"), reads(domain, "0x71"));
        assert!(
            of_first == 0 || of_second == 0,
            "{engine}: one guest has what two did: {of_first}, {of_second}"
        );
        assert!(
            of_first == 0 || domain["pid"] == pid,
            "{engine}: the other guest's"
        );
        one += of_first;
        two += of_second;
    }
    let what = format!("{engine}, shift {shift}, seen before: {seen_before}");
    assert_eq!(
        (one, two),
        (u64::from(FIRST), u64::from(2 * SECOND)),
        "{what}"
    );
    true
}

#[test]
fn a_thread_id_that_is_given_again_loses_no_count() {
    const NAME: &str = "a_thread_id_that_is_given_again_loses_no_count";
    let _alone = common::alone();
    let why = common::cannot_trace().or_else(|| {
        (!std::path::Path::new(LAST_PID).exists()).then(|| format!("this kernel has no {LAST_PID}"))
    });
    if let Some(why) = why {
        return common::skipped(NAME, &why);
    }
    for engine in ["bpf", "perf"] {
        for (shift, seen_before) in [(0, false), (0, true), (1, false), (1, true)] {
            let what = format!(
                "{NAME} ({engine}, process id too: {}, seen before: {seen_before})",
                shift == 0
            );
            if (0..3).any(|_| split(engine, shift, seen_before)) {
                common::ran(&what);
            } else {
                common::skipped(
                    &what,
                    "this machine gives the ids to others, or rings overflow",
                );
            }
        }
    }
}
