//! What the BPF engine reads of threads in one pass is what /proc says of them.
#![allow(missing_docs, clippy::expect_used, clippy::unwrap_used)]

mod common;

use common::guest::{Guest, Work};
use kvmtop::sample::{Sample, ThreadSample};
use kvmtop::source::engine::bpf::BpfEngine;
use kvmtop::source::live::{Collector, CollectorOptions};
use rustix::process::{Pid, Signal, kill_process};
use std::time::{Duration, Instant};

guest_process!();

/// Whether this process holds an iterator (`bpf_link_show_fdinfo` in kernel/bpf/syscall.c).
fn iterates() -> bool {
    let files = std::fs::read_dir("/proc/self/fdinfo").unwrap();
    files
        .filter_map(|file| std::fs::read_to_string(file.ok()?.path()).ok())
        .any(|text| text.contains("link_type:\titer"))
}

fn states(pid: u32) -> Vec<u8> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let stats = threads.filter_map(|t| std::fs::read(t.ok()?.path().join("stat")).ok());
    stats.map(|line| line[line.iter().rposition(|b| *b == b')').unwrap() + 2]).collect()
}

fn stop(guest: &Guest, stopped: bool) {
    let pid = Pid::from_raw(guest.pid() as i32).unwrap();
    kill_process(pid, if stopped { Signal::STOP } else { Signal::CONT }).unwrap();
    let began = Instant::now();
    while stopped && states(guest.pid()).iter().any(|state| *state != b'T') {
        assert!(began.elapsed() < Duration::from_secs(30), "it does not stop");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The threads of a guest, without what comes of the engine's events.
fn threads(sample: &Sample, pid: u32) -> Vec<ThreadSample> {
    let domain = sample.domains.iter().find(|domain| domain.facts.pid == Some(pid as i32)).expect("the guest");
    let bare = |t: &ThreadSample| ThreadSample {
        events: kvmtop::sample::ThreadEvents::default(),
        counters: std::collections::BTreeMap::new(),
        ..t.clone()
    };
    domain.threads.iter().map(bare).collect()
}

#[test]
fn threads_read_in_one_pass_are_those_of_proc() {
    const NAME: &str = "threads_read_in_one_pass_are_those_of_proc";
    if let Some(why) = common::cannot_trace() {
        return common::skipped(NAME, &why);
    }
    let busy = [Work::PortLoop(0x71), Work::CpuidAndCr4(u32::MAX)];
    let many = |n| [busy.as_slice(), &vec![Work::PacedReads(0x71, 20); n]].concat();
    let mut guests = [Guest::start(&many(98), true), Guest::start(&many(38), true)];
    guests.iter_mut().for_each(Guest::go);
    let engine = BpfEngine::new(kvmtop::kvm::topology::HostTopology::default(), 256).expect("the engine");
    let mut one_pass =
        Collector::new(CollectorOptions { engine: Some(Box::new(engine)), ..CollectorOptions::default() });
    let mut by_files = Collector::new(CollectorOptions::default());
    one_pass.tick();
    by_files.tick();
    let mut different = std::collections::BTreeSet::new();
    for round in 0..8 {
        std::thread::sleep(Duration::from_millis(150 + 50 * round));
        guests.iter().for_each(|guest| stop(guest, true));
        // The one that /proc shows first leaves its mark in the kernel; so both go first in turn.
        let (ours, theirs) = if round % 2 == 0 {
            (one_pass.tick(), by_files.tick())
        } else {
            let theirs = by_files.tick();
            (one_pass.tick(), theirs)
        };
        if !iterates() {
            return common::skipped(NAME, "this kernel has no iterator with the same figures");
        }
        for guest in &guests {
            let (ours, theirs) = (threads(&ours, guest.pid()), threads(&theirs, guest.pid()));
            assert!(ours.len() >= 41, "{} threads", ours.len());
            for (our, their) in ours.iter().zip(&theirs) {
                assert_eq!(our, their, "round {round}");
            }
            assert_eq!(ours.len(), theirs.len());
            different.extend(ours.iter().map(|t| t.cpu.map(|times| (times.user_ns, times.system_ns, times.wait_ns))));
        }
        guests.iter().for_each(|guest| stop(guest, false));
    }
    assert!(different.len() > 200, "only {} readings differ from each other", different.len());
    common::ran(NAME);
}
