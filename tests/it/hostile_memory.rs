//! What a hostile recording costs whoever opens it: some hundred kilobytes hold more threads,
//! addresses or guests than any host has, other ones in each sample. Time ends with the limit of
//! `common/child.rs`.

use crate::common::child;
use crate::common::child::ChildCost;
use kvm::{Space, thread_name::Role};
use portable_pty::{CommandBuilder, PtySize, native_pty_system};
use sample::{
    AccessCell, DomainFacts, DomainSample, EngineKind, Known, Origin, Sample, ThreadEvents,
    ThreadSample, Timing,
};
use session::{Limits, Recorder};
use std::ffi::OsStr;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The most resident memory of any command over one of these recordings.
const MAX_RSS: u64 = 512 << 20;

fn record(path: &Path, samples: impl IntoIterator<Item = Sample>) {
    let mut recorder = Recorder::create(path, Limits::default()).unwrap();
    samples
        .into_iter()
        .for_each(|sample| recorder.append(&sample).unwrap());
    recorder.close().unwrap();
}

fn sample(second: u64, domains: Vec<DomainSample>) -> Sample {
    let mut sample = Sample {
        time_ms: second as i64 * 1000,
        mono_ns: second * 1_000_000_000,
        domains,
        ..Sample::default()
    };
    sample.engine.kind = EngineKind::Bpf;
    sample
}

fn guest(pid: i32, threads: Vec<ThreadSample>) -> DomainSample {
    let name = Known::new(format!("guest-{pid}"), Origin::Process);
    let facts = DomainFacts {
        name,
        pid: Some(pid),
        ..DomainFacts::default()
    };
    DomainSample {
        facts: Arc::new(facts),
        threads,
        ..DomainSample::default()
    }
}

fn thread(tid: i32, events: ThreadEvents) -> ThreadSample {
    ThreadSample {
        tid,
        role: Role::Vcpu,
        index: Some(tid as u32 % 4096),
        events,
        ..ThreadSample::default()
    }
}

/// Threads without number, in another order and with other ids each time.
fn threads(second: u64) -> Sample {
    let ids = (0..60_000).map(|n| 1 + n + 30_000 * second as i32);
    let ids: Vec<i32> = if second.is_multiple_of(2) {
        ids.collect()
    } else {
        ids.rev().collect()
    };
    sample(
        second,
        vec![guest(
            7,
            ids.into_iter()
                .map(|tid| thread(tid, ThreadEvents::default()))
                .collect(),
        )],
    )
}

/// Addresses without number, new ones each time.
fn addresses(second: u64) -> Sample {
    let cell = |address: u64| AccessCell {
        space: Space::Mmio,
        address: Some(address),
        time: Timing {
            count: 1,
            ..Timing::default()
        },
        ..AccessCell::default()
    };
    let events = |guest: u64| ThreadEvents {
        accesses: (0..4000)
            .map(|n| cell((second << 40) + (guest << 20) + n))
            .collect(),
        ..ThreadEvents::default()
    };
    let guests = (0..20).map(|n| guest(7 + n, vec![thread(7 + n, events(n as u64))]));
    sample(second, guests.collect())
}

/// Guests without number, new ones each time.
fn guests(second: u64) -> Sample {
    let pids = (0..1500).map(|n| 1 + n + 1500 * second as i32);
    sample(
        second,
        pids.map(|pid| guest(pid, vec![thread(pid, ThreadEvents::default())]))
            .collect(),
    )
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
    eprintln!(
        "{kind}: {} KiB",
        std::fs::metadata(&path).unwrap().len() >> 10
    );
    let one: &[&Path] = &[&path];
    for (arguments, files) in [
        (&["report", "--json"] as &[&str], one),
        (&["diff"], &[&path, &path]),
        (&["replay", "--batch", "-n", "4"], one),
        (&["replay", "--batch", "-n", "1", "--at", "+2s"], one),
        (&["report", "--at", "+1s", "--json"], one),
    ] {
        let cost = cost(arguments, files);
        assert!(
            matches!(cost.status, Some(0 | 1)),
            "{kind} {arguments:?}: {:?} {}",
            cost.status,
            cost.said
        );
        assert!(
            cost.rss < MAX_RSS,
            "{kind} {arguments:?} takes {} MiB",
            cost.rss >> 20
        );
    }
    let rss = on_the_screen(&path);
    eprintln!("{kind} on the screen: {} MiB", rss >> 20);
    assert!(
        rss < MAX_RSS,
        "{kind} on the screen takes {} MiB",
        rss >> 20
    );
}

/// The most resident memory of the screen over a recording, from its first sample to its last.
fn on_the_screen(path: &Path) -> u64 {
    let pair = native_pty_system()
        .openpty(PtySize {
            rows: 40,
            cols: 120,
            ..PtySize::default()
        })
        .unwrap();
    let mut kvmtop = CommandBuilder::new(env!("CARGO_BIN_EXE_kvmtop"));
    kvmtop.args([OsStr::new("replay"), path.as_os_str()]);
    kvmtop.env("TERM", "xterm-256color");
    let mut child = pair.slave.spawn_command(kvmtop).unwrap();
    drop(pair.slave);
    let (mut reader, mut writer) = (
        pair.master.try_clone_reader().unwrap(),
        pair.master.take_writer().unwrap(),
    );
    let (send, drawn) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut piece = [0; 4096];
        while reader.read(&mut piece).is_ok_and(|n| n > 0) {
            // The test may have enough.
            let _ = send.send(());
        }
    });
    let process = PathBuf::from(format!("/proc/{}/status", child.process_id().unwrap()));
    let mut most = 0;
    // `}`: to the last sample.
    for key in [b"", b"}".as_slice(), b"{", b"}", b"q"] {
        writer.write_all(key).unwrap();
        // It ends, or it has drawn all that the key changes once nothing is drawn for a while: the
        // recording is short.
        let until = Instant::now() + Duration::from_secs(6);
        while Instant::now() < until && drawn.recv_timeout(Duration::from_secs(2)).is_ok() {}
        let status = std::fs::read_to_string(&process).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib: Option<u64> = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        most = most.max(kib.unwrap_or(0) * 1024);
    }
    let begin = Instant::now();
    while child.try_wait().unwrap().is_none() {
        assert!(
            begin.elapsed() < Duration::from_secs(60),
            "q does not end the screen"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(most > 0, "it was not seen to run");
    most
}

/// Builds lines of ftrace: `events` says what each of the `threads` threads does.
fn trace(threads: u32, mut events: impl FnMut(u32, &mut dyn FnMut(&str))) -> String {
    let (mut text, mut time) = (String::new(), 100_000_000_u64);
    for tid in 1..=threads {
        events(tid, &mut |event| {
            time += 1;
            let (seconds, micros) = (time / 1_000_000, time % 1_000_000);
            text += &format!("CPU 0/KVM-{tid} [000] d..1. {seconds}.{micros:06}: {event}\n");
        });
    }
    text
}

/// A trace costs at most this many times its size, plus [`TRACE_BASE`]: 60,000 threads in 8 MB take
/// 239 to 252 MiB.
const TRACE_MULTIPLE: u64 = 20;
const TRACE_BASE: u64 = 128 << 20;

#[test]
fn traces_cost_a_multiple_of_their_size() {
    const ENTRY: &str = "kvm_entry: vcpu 0";
    let of_threads = trace(60_000, |_, put| {
        ["kvm_exit: vcpu 0 reason HLT rip 0x1", ENTRY]
            .into_iter()
            .for_each(put);
    });
    let of_reasons = trace(100, |_, put| {
        for n in 0..500 {
            put(&format!("kvm_exit: vcpu 0 reason R{n} rip 0x1"));
            put(ENTRY);
        }
    });
    let of_ports = trace(15_000, |tid, put| {
        put("kvm_exit: vcpu 0 reason IO_INSTRUCTION rip 0x1");
        for n in 0..4 {
            put(&format!(
                "kvm_pio: pio_read at 0x{:x} size 4 count 1 val 0x4",
                (tid * 4 + n) % 65_536
            ));
        }
        put(ENTRY);
    });
    for (kind, text) in [
        ("threads", of_threads),
        ("reasons", of_reasons),
        ("ports", of_ports),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.txt");
        std::fs::write(&path, &text).unwrap();
        for arguments in [&["report"] as &[&str], &["report", "--json"]] {
            let cost = cost(arguments, &[&path]);
            assert!(
                matches!(cost.status, Some(0 | 1)),
                "{kind} {arguments:?}: {:?} {}",
                cost.status,
                cost.said
            );
            let most = TRACE_BASE + TRACE_MULTIPLE * text.len() as u64;
            assert!(
                cost.rss < most,
                "{kind}: {} MiB of {} MiB",
                cost.rss >> 20,
                text.len() >> 20
            );
        }
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
