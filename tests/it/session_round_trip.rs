//! What goes into a recording comes out of it.
#![allow(clippy::type_complexity)]

use sample::Sample;
use session::{Limits, Recorder, Session};
use testkit::random::{Load, Random, RandomHost, idle, storming, working};

fn mixed(g: usize, r: &mut Random) -> Load {
    match g {
        0 => storming(r),
        1..4 => working(r),
        _ => idle(r),
    }
}

#[test]
fn every_sample_comes_back_as_it_was() {
    let mut host = RandomHost::new(1, 3, 2, mixed);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.kvmtop");
    let samples: Vec<Sample> = (0..150).map(|_| host.tick()).collect();
    let mut r = Recorder::create(&path, Limits::default()).unwrap();
    samples.iter().for_each(|s| r.append(s).unwrap());
    r.close().unwrap();
    let mut c = Session::open(&path).unwrap().cursor();
    assert_eq!(c.session().damage(), None);
    assert_eq!(c.len(), samples.len());
    for (i, s) in samples.iter().enumerate() {
        assert!(*c.at(i).unwrap() == *s, "sample {i} forwards");
    }
    for i in (0..samples.len()).rev().step_by(7) {
        assert!(*c.at(i).unwrap() == samples[i], "sample {i} backwards");
    }
}

/// A recording of schema 2 as it was first written: later versions must read the same values from
/// it. `KVMTOP_WRITE_GOLDEN=1` rewrites it while the schema is being made.
#[test]
fn schema_2_stays_readable() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/session/schema-2.kvmtop");
    if std::env::var_os("KVMTOP_WRITE_GOLDEN").is_some() {
        let mut host = RandomHost::new(11, 1, 1, mixed);
        // A recorder would continue it.
        let _ = std::fs::remove_file(&path);
        let mut r = Recorder::create(&path, Limits::default()).unwrap();
        (0..5).for_each(|_| r.append(&host.tick()).unwrap());
        r.close().unwrap();
    }
    let mut c = Session::open(&path).unwrap().cursor();
    assert_eq!((c.len(), c.session().damage()), (5, None));
    assert_eq!(c.at(0).unwrap().host.facts.hostname, "host1");
    let summary = |s: &Sample| {
        let access = &s.domains[0].threads[2].events.accesses[0];
        format!(
            "{} {} {} {:?} {:?} {:x?} {:?} {:?}",
            s.time_ms,
            s.domains[0].facts.name.value,
            s.domains[0].threads.len(),
            s.domains[0].threads[2].cpu,
            s.host.cpus[3],
            access.address,
            access.time,
            s.domains[0].threads[2].counters,
        )
    };
    let mut lines: Vec<String> = [0, 1, 4]
        .iter()
        .map(|i| summary(&c.at(*i).unwrap()))
        .collect();
    // Every figure of every sample.
    let mut all = crc32fast::Hasher::new();
    (0..5).for_each(|i| all.update(&serde_json::to_vec(&*c.at(i).unwrap()).unwrap()));
    lines.push(format!("{:08x}", all.finalize()));
    insta::with_settings!({
        snapshot_path => concat!(env!("CARGO_MANIFEST_DIR"), "/snapshots"),
        prepend_module_to_snapshot => false,
    }, {
        insta::assert_snapshot!("session_schema_2", lines.join("\n"));
    });
}

/// What PERFORMANCE.md quotes: `cargo test --release --test it session_round_trip -- --ignored
/// --nocapture`.
#[test]
#[ignore = "a measurement"]
fn size_and_cost_of_recordings() {
    let kinds: [(&str, fn(usize, &mut Random) -> Load); 4] = [
        ("idle", |_, r| idle(r)),
        ("mixed", mixed),
        ("working", |_, r| working(r)),
        ("storming", |_, r| storming(r)),
    ];
    let n: usize = std::env::var("N")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(300);
    let cpu_ms = || {
        let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        t.tv_sec as f64 * 1e3 + t.tv_nsec as f64 / 1e6
    };
    for (name, habit) in kinds {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        let mut host = RandomHost::new(1, 10, 8, habit);
        let mut r = Recorder::create(&path, Limits::default()).unwrap();
        let mut wrote = 0.0;
        for _ in 0..n {
            let s = host.tick();
            let begin = cpu_ms();
            r.append(&s).unwrap();
            wrote += cpu_ms() - begin;
        }
        let (_, all) = r.size();
        r.close().unwrap();
        let mut c = Session::open(&path).unwrap().cursor();
        let begin = cpu_ms();
        (0..n).for_each(|i| drop(c.at(i).unwrap()));
        let read = cpu_ms() - begin;
        // Backwards each sample is reached from where its chunk begins.
        let mut worst: f64 = 0.0;
        for i in (0..n).rev() {
            let begin = cpu_ms();
            c.at(i).unwrap();
            worst = worst.max(cpu_ms() - begin);
        }
        println!(
            "10 x 8 vCPUs, {name}: {:.0} B a sample, {:.2} MB an hour; CPU {:.2} ms to write, \
             {:.2} ms to read one, {worst:.1} ms to seek",
            all as f64 / n as f64,
            all as f64 / n as f64 * 3600.0 / 1e6,
            wrote / n as f64,
            read / n as f64,
        );
    }
}

/// What PERFORMANCE.md quotes, too.
#[test]
#[ignore = "a measurement"]
fn a_day_long_recording() {
    let n: usize = std::env::var("DAY")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(86_400);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("day");
    let mut host = RandomHost::new(1, 4, 4, mixed);
    let mut r = Recorder::create(&path, Limits::default()).unwrap();
    for _ in 0..n {
        r.append(&host.tick()).unwrap();
    }
    r.close().unwrap();
    let ms = |t: std::time::Instant| t.elapsed().as_secs_f64() * 1e3;
    let size = std::fs::metadata(&path).unwrap().len() as f64 / 1e6;
    let begin = std::time::Instant::now();
    let mut c = Session::open(&path).unwrap().cursor();
    let opened = ms(begin);
    let mut random = Random::new(5);
    let mut seeks: Vec<f64> = (0..100)
        .map(|_| {
            let begin = std::time::Instant::now();
            let i = c.index_at(1_795_269_802_000 + (random.next() % n as u64) as i64 * 1000);
            c.at(i).unwrap();
            ms(begin)
        })
        .collect();
    seeks.sort_by(f64::total_cmp);
    let cut = dir.path().join("cut");
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&cut, &bytes[..bytes.len() - 200]).unwrap();
    let begin = std::time::Instant::now();
    let session = Session::open(&cut).unwrap();
    println!(
        "{n} samples of 4 x 4 vCPUs, {size:.0} MB: open {opened:.1} ms, seek median {:.1} ms, \
         worst of 100 {:.1} ms; cut off at the end: open {:.1} ms, {} samples",
        seeks[50],
        seeks[99],
        ms(begin),
        session.len(),
    );
    let begin = std::time::Instant::now();
    let report = std::process::Command::new(env!("CARGO_BIN_EXE_kvmtop"))
        .arg("report")
        .arg(&path)
        .output()
        .unwrap();
    assert!(
        report.status.success(),
        "{}",
        String::from_utf8_lossy(&report.stderr)
    );
    println!("kvmtop report: {:.1} s", ms(begin) / 1e3);
}
