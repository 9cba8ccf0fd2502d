//! What the perf engine cannot keep up with is counted as lost and shown, never made up.
#![allow(missing_docs, clippy::expect_used, clippy::unwrap_used)]

mod common;

use common::guest::{Guest, Work};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

guest_process!();

#[test]
fn a_watcher_that_stood_still_says_what_it_lost() {
    const TEST: &str = "a_watcher_that_stood_still_says_what_it_lost";
    // Two events each, some 90 bytes an event: far more than the rings hold.
    const N: u32 = 150_007;
    if let Some(why) = common::cannot_trace() {
        return common::skipped(TEST, &why);
    }
    let mut guest = Guest::start(&[Work::PortReads(0x608, N)], true);
    let mut kvmtop = common::kvmtop()
        .args(["--batch", "--json", "-d", "0.5", "-n", "600", "--engine", "perf"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("kvmtop starts");
    let mut lines = BufReader::new(kvmtop.stdout.take().expect("stdout")).lines();
    let mut next = || -> Value { serde_json::from_str(&lines.next().expect("a line").expect("text")).expect("JSON") };
    let pid = Pid::from_child(&kvmtop);

    let mut seen = vec![next()];
    kill_process(pid, Signal::STOP).expect("it lives");
    guest.go();
    guest.wait_done();
    kill_process(pid, Signal::CONT).expect("it lives");
    // What was printed before the stop may still be in the pipe.
    seen.extend((0..4).map(|_| next()));
    kill_process(pid, Signal::KILL).expect("it lives");
    let _ = kvmtop.wait();

    let lost: u64 = seen.iter().map(|i| i["lost_events"].as_u64().expect("lost_events")).sum();
    let counted: u64 = common::of_pid(&seen, guest.pid())
        .iter()
        .flat_map(|d| d["accesses"].as_array().expect("accesses"))
        .filter(|a| a["address"] == "0x608" && a["vcpu"].is_null())
        .map(|a| a["count"].as_u64().expect("count"))
        .sum();
    assert!(counted > 0 && counted < u64::from(N), "{counted} counted");
    // Each read that was not counted is among the lost; so is its exit to the VMM, and what others did.
    assert!(lost >= u64::from(N) - counted, "{lost} lost, {counted} counted of {N}");
    common::ran(TEST);
}
