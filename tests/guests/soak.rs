//! The collector, the model and the rules over very many ticks, while guests and threads come and
//! go: memory and open files stay where they were.

use crate::common;
use crate::common::guest::{Guest, Work};
use engine::bpf::BpfEngine;
use judge::analysis::Pipeline;
use live::{Collector, CollectorOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// What the ticks after the first fifth may add to the memory, bytes.
const MAX_GROWTH: u64 = 8 << 20;
/// vCPUs of every second guest.
const THREADS: usize = 60;

fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("statm");
    let pages: u64 = statm
        .split(' ')
        .nth(1)
        .and_then(|word| word.parse().ok())
        .expect("a number");
    pages * rustix::param::page_size() as u64
}

fn files() -> usize {
    std::fs::read_dir("/proc/self/fd")
        .expect("own files")
        .count()
}

/// Guests of two kinds, one after the other, until it is over: one touches many ports, one has many
/// threads.
fn churn(over: &AtomicBool) -> usize {
    let mut guests = 0;
    while !over.load(Ordering::Relaxed) {
        for work in [
            &[Work::PortSweep(3000), Work::PortReads(0x608, 100)] as &[Work],
            &[Work::PortReads(0x71, 9); THREADS],
        ] {
            let mut guest = Guest::start(work, true);
            guest.go();
            guest.wait_done();
            guests += 1;
        }
    }
    guests
}

fn soak(test: &str, ticks: usize) {
    if let Some(why) = common::cannot_trace() {
        return common::skipped(test, &why);
    }
    let engine = match BpfEngine::new(kvm::topology::HostTopology::default(), 4) {
        Ok(engine) => engine,
        Err(why) => return common::skipped(test, &why.cause),
    };
    let mut collector = Collector::new(CollectorOptions {
        engine: Some(Box::new(engine)),
        ..CollectorOptions::default()
    });
    let mut pipeline = Pipeline::default();
    let over = AtomicBool::new(false);
    let begin = Instant::now();
    let mut readings = Vec::new();
    let mut seen = 0;
    let guests = std::thread::scope(|scope| {
        let churn = scope.spawn(|| churn(&over));
        for n in 0..ticks {
            let judged = pipeline.next_or_first(Arc::new(collector.tick()));
            seen += judged.model.domains.len();
            if (n + 1).is_multiple_of(ticks / 10) {
                readings.push((resident(), files()));
                eprintln!(
                    "{} ticks in {:.0?}: {} KiB, {} files",
                    n + 1,
                    begin.elapsed(),
                    resident() >> 10,
                    files()
                );
            }
        }
        over.store(true, Ordering::Relaxed);
        churn.join().expect("guests")
    });
    eprintln!("{ticks} ticks, {guests} guests in {:.0?}", begin.elapsed());
    assert!(seen >= guests, "{seen} samples of guests");
    let early = readings[1];
    let most = readings[2..]
        .iter()
        .map(|(rss, _)| *rss)
        .max()
        .expect("readings");
    assert!(most <= early.0 + MAX_GROWTH, "resident bytes: {readings:?}");
    // A reading while the guest with many threads lives has its files, and two files for each
    // thread.
    let fewest = |of: &[(u64, usize)]| of.iter().map(|(_, files)| *files).min().expect("readings");
    assert!(
        fewest(&readings[7..]) <= fewest(&readings[..3]) + THREADS / 2,
        "open files: {readings:?}"
    );
    common::ran(&format!("{test} ({guests} guests)"));
}

#[test]
fn many_ticks_keep_memory_and_files() {
    let _alone = common::alone();
    soak("many_ticks_keep_memory_and_files", 1500);
}

/// Some ten minutes: `cargo test --test guests soak -- --ignored --nocapture`
#[test]
#[ignore = "some ten minutes"]
fn a_hundred_thousand_ticks_keep_memory_and_files() {
    let _alone = common::alone();
    soak("a_hundred_thousand_ticks_keep_memory_and_files", 100_000);
}
