//! `kvmtop record` and `replay` on this host, guests included where it can run them.

use crate::common;
use crate::common::guest::{Guest, Work};
use engine::bpf::BpfEngine;
use engine::events::Engine;
use judge::analysis::DomainFilter;
use judge::lint;
use judge::model::{Base, Model};
use live::{Collector, CollectorOptions, SystemPaths, topology};
use report::{View, json};
use sample::Feed;
use sample::Sample;
use session::{Limits, Recorder, Session};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

fn line(now: &Sample, before: &Sample) -> String {
    let model = Model::new(now, Base::Previous(before));
    let findings = lint::run(
        &model,
        &mut lint::RuleMemory::default(),
        &lint::Options::default(),
    );
    json::line(&View {
        model: &model,
        findings: &findings,
        source: "live",
        filter: &DomainFilter::default(),
    })
    .unwrap()
}

#[test]
fn live_json_equals_replayed_json() {
    let _beside = common::beside_others();
    let test = "live_json_equals_replayed_json";
    if let Some(why) = common::cannot_trace() {
        return common::skipped(test, &why);
    }
    let mut guest = Guest::start(&[Work::PortLoop(0x608)], true);
    let paths = SystemPaths::default();
    let engine = BpfEngine::new(topology(&paths.sys), 16)
        .ok()
        .map(|e| Box::new(e) as Box<dyn Engine>);
    let options = CollectorOptions {
        interval: Duration::from_millis(300),
        engine,
        paths,
        ..CollectorOptions::default()
    };
    let mut live = Collector::new(options);
    let mut samples = vec![live.next().unwrap().unwrap()];
    guest.go();
    while samples.len() < 6 {
        samples.push(live.next().unwrap().unwrap());
    }
    guest.end();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("real");
    let mut r = Recorder::create(&path, Limits::default()).unwrap();
    samples.iter().for_each(|s| r.append(s).unwrap());
    r.close().unwrap();
    let mut c = Session::open(&path).unwrap().cursor();
    let mut busy = false;
    for (i, pair) in samples.windows(2).enumerate() {
        let replayed = (c.at(i + 1).unwrap(), c.at(i).unwrap());
        assert!(*replayed.0 == pair[1], "sample {i}");
        let live = line(&pair[1], &pair[0]);
        busy |= live.contains("\"0x608\"");
        assert_eq!(line(&replayed.0, &replayed.1), live);
    }
    assert!(busy, "the guest was not seen at work");
    common::ran(test);
}

fn record(path: &Path) -> Command {
    let mut c = common::kvmtop();
    c.args([
        "record",
        path.to_str().unwrap(),
        "-d",
        "0.1",
        "--engine",
        "none",
        "--no-monitor",
    ]);
    c.stderr(Stdio::piped());
    c
}

fn samples_in(path: &Path) -> usize {
    Session::open(path).map_or(0, |s| s.len())
}

#[test]
fn killed_or_stopped_a_recording_keeps_what_was_written() {
    let _beside = common::beside_others();
    let dir = tempfile::tempdir().unwrap();
    for signal in [libc::SIGKILL, libc::SIGTERM, libc::SIGHUP] {
        let path = dir.path().join(format!("by-{signal}"));
        let mut child = record(&path).spawn().unwrap();
        let mut tries = 0;
        while samples_in(&path) < 5 {
            std::thread::sleep(Duration::from_millis(50));
            tries += 1;
            assert!(tries < 600, "nothing is recorded");
        }
        let written = samples_in(&path);
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(
            pid,
            rustix::process::Signal::from_named_raw(signal).unwrap(),
        )
        .unwrap();
        let status = child.wait().unwrap();
        assert_eq!(status.success(), signal != libc::SIGKILL, "{status}");
        let session = Session::open(&path).unwrap();
        assert!(session.len() >= written);
        assert!(
            session.damage().is_none() || signal == libc::SIGKILL,
            "{:?}",
            session.damage()
        );
        let out = common::kvmtop()
            .args(["replay", path.to_str().unwrap(), "-b", "--json"])
            .output()
            .unwrap();
        let intervals = common::intervals(&out.stdout);
        assert_eq!(
            intervals.len(),
            session.len() - 1,
            "{}",
            String::from_utf8_lossy(&out.stderr)
        );
        assert_eq!(intervals[0]["source"], "session");
    }
}

#[test]
fn a_full_disk_is_said_and_what_was_written_is_whole() {
    let _beside = common::beside_others();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("full");
    // A limit of file sizes stands for the disk's end.
    let script = format!(
        "ulimit -f 8; exec {} record {} -d 0.1 --engine none --no-monitor",
        env!("CARGO_BIN_EXE_kvmtop"),
        path.display()
    );
    let out = Command::new("bash")
        .args(["-c", &script])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert!(
        said.contains("cannot write to") && said.contains("samples recorded before are safe"),
        "{said}"
    );
    let session = Session::open(&path).unwrap();
    assert_eq!(session.damage(), None);
    assert!(session.len() > 3);
}

#[test]
fn at_chooses_where_a_replay_begins() {
    let _beside = common::beside_others();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    let out = record(&path).args(["--duration", "1.2s"]).output().unwrap();
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    let replay = |args: &[&str]| {
        let out = common::kvmtop()
            .args(["replay", path.to_str().unwrap(), "-b", "--json"])
            .args(args)
            .output()
            .unwrap();
        (
            common::intervals(&out.stdout).len(),
            String::from_utf8_lossy(&out.stderr).into_owned(),
        )
    };
    let all = replay(&[]).0;
    let end = replay(&["--at=-100ms"]).0;
    assert!(
        all > 5 && (1..=3).contains(&end),
        "{all} and {end} intervals"
    );
    assert_eq!(replay(&["-n", "2"]).0, 2);
    let (none, said) = replay(&["--at", "+1h"]);
    assert!(
        none == 0 && said.contains("is outside of the recording, which lasts from"),
        "{said}"
    );
}
