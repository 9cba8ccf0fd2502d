//! What a hostile recording costs whoever opens it: some hundred kilobytes hold more threads, addresses or guests than
//! any host has, other ones in each sample. Time ends with the limit of `common/child.rs`.
#![allow(missing_docs, clippy::expect_used, clippy::unwrap_used)]

#[path = "common/child.rs"]
mod child;

use child::ChildCost;
use kvmtop::kvm::{Space, thread_name::Role};
use kvmtop::sample::{
    AccessCell, DomainFacts, DomainSample, EngineKind, Known, Origin, Sample, ThreadEvents, ThreadSample, Timing,
};
use kvmtop::session::{Limits, Recorder};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

/// The most resident memory of any command over one of these recordings.
const MOST_RSS: u64 = 512 << 20;

fn record(path: &Path, samples: impl IntoIterator<Item = Sample>) {
    let mut recorder = Recorder::create(path, Limits::default()).unwrap();
    samples.into_iter().for_each(|sample| recorder.append(&sample).unwrap());
    recorder.close().unwrap();
}

fn sample(second: u64, domains: Vec<DomainSample>) -> Sample {
    let mut sample =
        Sample { time_ms: second as i64 * 1000, mono_ns: second * 1_000_000_000, domains, ..Sample::default() };
    sample.engine.kind = EngineKind::Bpf;
    sample
}

fn guest(pid: i32, threads: Vec<ThreadSample>) -> DomainSample {
    let name = Known::new(format!("guest-{pid}"), Origin::Process);
    let facts = DomainFacts { name, pid: Some(pid), ..DomainFacts::default() };
    DomainSample { facts: Arc::new(facts), threads, ..DomainSample::default() }
}

fn thread(tid: i32, events: ThreadEvents) -> ThreadSample {
    ThreadSample { tid, role: Role::Vcpu, index: Some(tid as u32 % 4096), events, ..ThreadSample::default() }
}

/// Threads without number, in another order and with other ids each time.
fn threads(second: u64) -> Sample {
    let ids = (0..60_000).map(|n| 1 + n + 30_000 * second as i32);
    let ids: Vec<i32> = if second.is_multiple_of(2) { ids.collect() } else { ids.rev().collect() };
    sample(second, vec![guest(7, ids.into_iter().map(|tid| thread(tid, ThreadEvents::default())).collect())])
}

/// Addresses without number, new ones each time.
fn addresses(second: u64) -> Sample {
    let cell = |address: u64| AccessCell {
        space: Space::Mmio,
        address: Some(address),
        time: Timing { count: 1, ..Timing::default() },
        ..AccessCell::default()
    };
    let events = |guest: u64| ThreadEvents {
        accesses: (0..4000).map(|n| cell((second << 40) + (guest << 20) + n)).collect(),
        ..ThreadEvents::default()
    };
    let guests = (0..20).map(|n| guest(7 + n, vec![thread(7 + n, events(n as u64))]));
    sample(second, guests.collect())
}

/// Guests without number, new ones each time.
fn guests(second: u64) -> Sample {
    let pids = (0..1500).map(|n| 1 + n + 1500 * second as i32);
    sample(second, pids.map(|pid| guest(pid, vec![thread(pid, ThreadEvents::default())])).collect())
}

fn cost(arguments: &[&str], files: &[&Path]) -> ChildCost {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvmtop"));
    command.args(arguments).args(files);
    let cost = child::measure(&mut command).unwrap();
    eprintln!("{arguments:?}: {} MiB, {:.1?}", cost.rss >> 20, cost.cpu);
    cost
}

fn is_bounded(kind: &str, make: fn(u64) -> Sample, seconds: u64) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hostile.kvmtop");
    record(&path, (0..seconds).map(make));
    eprintln!("{kind}: {} KiB", std::fs::metadata(&path).unwrap().len() >> 10);
    let one: &[&Path] = &[&path];
    for (arguments, files) in [
        (&["report", "--json"] as &[&str], one),
        (&["diff"], &[&path, &path]),
        (&["replay", "--batch", "-n", "4"], one),
    ] {
        let cost = cost(arguments, files);
        assert!(matches!(cost.status, Some(0 | 1)), "{kind} {arguments:?}: {:?} {}", cost.status, cost.said);
        assert!(cost.rss < MOST_RSS, "{kind} {arguments:?} takes {} MiB", cost.rss >> 20);
    }
}

#[test]
fn threads_without_number() {
    is_bounded("threads", threads, 3);
}

#[test]
fn addresses_without_number() {
    is_bounded("addresses", addresses, 3);
}

#[test]
fn guests_without_number() {
    is_bounded("guests", guests, 3);
}
