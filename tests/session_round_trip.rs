//! What goes into a recording comes out of it.

mod session_common;

use kvmtop::sample::Sample;
use kvmtop::session::{Limits, Recorder, Session};
use session_common::{Habit, Random, World, idle, storming, working};

fn mixed(g: usize, r: &mut Random) -> Habit {
    match g {
        0 => storming(r),
        1..4 => working(r),
        _ => idle(r),
    }
}

#[test]
fn every_sample_comes_back_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.kvmtop");
    let mut world = World::new(1, 3, 2, mixed);
    let samples: Vec<Sample> = (0..100).map(|_| world.tick()).collect();
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

#[test]
#[ignore = "a measurement"]
fn size_of_an_hour() {
    let dir = tempfile::tempdir().unwrap();
    let kinds: [(&str, fn(usize, &mut Random) -> Habit); 4] =
        [("idle", |_, r| idle(r)), ("mixed", mixed), ("working", |_, r| working(r)), ("storming", |_, r| storming(r))];
    let n: usize = std::env::var("N").ok().and_then(|n| n.parse().ok()).unwrap_or(300);
    for (name, habit) in kinds {
        let path = dir.path().join(name);
        let mut world = World::new(1, 10, 8, habit);
        let mut r = Recorder::create(&path, Limits::default()).unwrap();
        let mut spent = std::time::Duration::ZERO;
        let (mut first, mut mid) = (0, 0);
        for i in 0..n {
            let s = world.tick();
            let start = std::time::Instant::now();
            r.append(&s).unwrap();
            spent += start.elapsed();
            if i == 0 {
                first = r.bytes();
            }
            if i == n / 2 {
                mid = r.bytes();
            }
        }
        let all = r.bytes();
        r.close().unwrap();
        let mut c = Session::open(&path).unwrap().cursor();
        let start = std::time::Instant::now();
        (0..n).for_each(|i| drop(c.at(i).unwrap()));
        let read = start.elapsed();
        println!(
            "{name}: key {first} B, {:.0} B a sample, {:.2} MB an hour, second half {:.2}; write {:.2} ms, read {:.2} ms a sample",
            all as f64 / n as f64,
            all as f64 / n as f64 * 3600.0 / 1e6,
            (all - mid) as f64 / (n - n / 2 - 1) as f64 * 3600.0 / 1e6,
            spent.as_secs_f64() * 1e3 / n as f64,
            read.as_secs_f64() * 1e3 / n as f64,
        );
    }
}
