//! Threads that come by the thousand and go again leave kvmtop's memory where it was.

use crate::common;
use crate::common::watch::Watch;
use std::sync::{Arc, Barrier};

const THREADS: usize = 1500;
const BURSTS: usize = 24;
/// Number of bursts that fills the memory kept for threads that ended a moment ago.
const FILLING: usize = 10;
/// What the later bursts may add to the memory, bytes: the allocator's own.
const MAX_GROWTH: u64 = 2 << 20;

/// Waits for an interval in which this process's number of threads satisfies `is_so`. Returns
/// kvmtop's resident memory in that interval.
fn memory_when(watch: &mut Watch, is_so: impl Fn(usize) -> bool) -> u64 {
    for _ in 0..300 {
        let interval = watch.next();
        let own = common::of_pid(std::slice::from_ref(interval), std::process::id());
        let threads = own
            .first()
            .map_or(0, |d| d["threads"].as_array().expect("threads").len());
        if is_so(threads) {
            return interval["self"]["rss_bytes"].as_u64().expect("its memory");
        }
    }
    panic!("the threads are not seen");
}

#[test]
fn bursts_of_threads_leave_no_memory_behind() {
    const TEST: &str = "bursts_of_threads_leave_no_memory_behind";
    let _alone = common::alone();
    if let Some(why) = common::cannot_run_guests() {
        return common::skipped(TEST, &why);
    }
    // This process is the guest.
    let vm = kvm_ioctls::Kvm::new()
        .and_then(|kvm| kvm.create_vm())
        .expect("a VM");
    let mut watch = Watch::start(&["-d", "0.2", "--engine", "none", "--no-monitor"]);
    let before = memory_when(&mut watch, |_| true);
    let mut after = Vec::new();
    for _ in 0..BURSTS {
        let end = Arc::new(Barrier::new(THREADS + 1));
        let burst: Vec<_> = (0..THREADS)
            .map(|_| {
                let end = end.clone();
                let thread = std::thread::Builder::new().stack_size(64 << 10);
                let wait = move || {
                    end.wait();
                };
                thread.spawn(wait).expect("a thread")
            })
            .collect();
        memory_when(&mut watch, |threads| threads >= THREADS);
        end.wait();
        burst
            .into_iter()
            .for_each(|thread| thread.join().expect("it ends"));
        after.push(memory_when(&mut watch, |threads| {
            (1..THREADS / 2).contains(&threads)
        }));
    }
    // A minute's ticks later most of what the bursts took is given back.
    let mut resident = || {
        watch.next()["self"]["rss_bytes"]
            .as_u64()
            .expect("its memory")
    };
    let last = after[BURSTS - 1];
    // It may fall below what it was at first.
    let given_back =
        (0..150).any(|_| resident().saturating_sub(before) <= last.saturating_sub(before) / 2);
    assert!(
        given_back,
        "{before} before, {last} after the bursts, and then {}",
        resident()
    );
    watch.stop();
    drop(vm);
    let most = after[FILLING..].iter().max().expect("more bursts");
    assert!(
        *most <= after[FILLING - 1] + MAX_GROWTH,
        "resident bytes after each burst: {after:?}"
    );
    common::ran(TEST);
}
