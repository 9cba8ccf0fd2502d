//! What a watcher that was stopped for a while cannot know is counted as lost and shown, never made
//! up.

use crate::common;
use crate::common::guest::{Guest, Work};
use crate::common::watch::Watch;
use rustix::process::{Pid, Signal, kill_process};
use std::time::{Duration, Instant};

/// Two events each, some 90 bytes an event: far more than the perf engine's rings hold.
const READS: u32 = 150_007;
/// How long the watcher is stopped.
const STOP: Duration = Duration::from_secs(5);

/// Stops a watcher for 5 s, in which a guest does all of its work. Returns how many reads the
/// watcher counted, how many events it says it lost, and the length of its longest interval.
fn stopped(engine: &str) -> (u64, u64, f64) {
    let mut guest = Guest::start(&[Work::PortReads(0x608, READS)], true);
    let of = guest.pid();
    let mut watch = Watch::start(&["-d", "0.5", "--engine", engine]);
    watch.next();
    let pid = Pid::from_raw(watch.pid().cast_signed()).expect("a PID");
    kill_process(pid, Signal::STOP).expect("it lives");
    let begun = Instant::now();
    guest.go();
    guest.wait_done();
    std::thread::sleep(STOP.saturating_sub(begun.elapsed()));
    kill_process(pid, Signal::CONT).expect("it lives");
    // What was printed before the stop may still be in the pipe.
    for _ in 0..4 {
        watch.next();
    }
    guest.end();
    watch.next();
    let seen = watch.stop();
    let lost = seen
        .iter()
        .map(|i| i["lost_events"].as_u64().expect("lost_events"))
        .sum();
    let of_guest = common::of_pid(&seen, of).into_iter();
    let counted = of_guest
        .flat_map(|d| d["accesses"].as_array().expect("accesses"))
        .filter(|a| a["address"] == "0x608" && a["vcpu"].is_null());
    let counted = counted.map(|a| a["count"].as_u64().expect("count")).sum();
    let longest = seen
        .iter()
        .filter_map(|i| i["interval_s"].as_f64())
        .fold(0.0, f64::max);
    (counted, lost, longest)
}

#[test]
fn a_watcher_that_stood_still_says_what_it_lost() {
    const TEST: &str = "a_watcher_that_stood_still_says_what_it_lost";
    let _alone = common::alone();
    if let Some(why) = common::cannot_trace() {
        return common::skipped(TEST, &why);
    }
    let (counted, lost, longest) = stopped("perf");
    assert!(
        counted > 0 && counted < u64::from(READS),
        "{counted} counted"
    );
    // Each read that was not counted is among the lost; so is its exit to the VMM, and what others
    // did.
    assert!(
        lost >= u64::from(READS) - counted,
        "{lost} lost, {counted} counted of {READS}"
    );
    assert!(
        longest >= STOP.as_secs_f64(),
        "an interval that holds the stop is as long: {longest}"
    );
    common::ran(&format!("{TEST} (perf)"));

    // The BPF engine counts in the kernel, whether kvmtop runs or not.
    let (counted, lost, longest) = stopped("bpf");
    assert_eq!((counted, lost), (u64::from(READS), 0));
    assert!(longest >= STOP.as_secs_f64(), "{longest}");
    common::ran(&format!("{TEST} (bpf)"));
}
