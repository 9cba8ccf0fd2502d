//! The same findings, with the same beginnings, however a sample of a recording is reached: played,
//! stepped or jumped to on the screen, printed by `replay --batch`, or asked for with `report
//! --at`.

use super::*;
use crate::cli::args::ChoiceArgs;
use crate::cli::args::InputArgs;
use crate::cli::config::Config;
use crate::command::report_session;
use import::DescriptionFiles;
use judge::analysis::{DomainFilter, RecordingTime};
use judge::lint;
use kvm::kernel_log;
use sample::{Direction, Sample};
use session::{Limits, Recorder, Session};
use std::path::Path;
use std::sync::mpsc;
use testkit::random::{self, Random, RandomHost};
use testkit::{Fixture, Guest, Host};

/// What is shown of the rules' answers.
type Answers = (
    Vec<lint::Finding>,
    Vec<lint::CannotTell>,
    Vec<lint::StillWatched>,
);

fn settings() -> Settings {
    let mut settings = Settings::new(&Config::default(), None, &ChoiceArgs::default(), None);
    settings.findings.startup_guard_s = 20.0;
    settings
}

/// The answers at each sample of a recording that these commands show, the first sample first.
fn on_screen(path: &Path, commands: &[Replay]) -> Vec<(usize, Answers)> {
    let (tx, rx) = mpsc::sync_channel(10_000);
    let (ctx, crx) = mpsc::channel();
    commands.iter().for_each(|c| ctx.send(*c).unwrap());
    drop(ctx);
    let session = Session::open(path).unwrap();
    let start = session.range_ms().unwrap().0;
    let samples = session.cursor();
    let intervals = RecordedIntervals::new(samples, settings().findings, DomainFilter::default());
    Player::new(intervals, &tx).play(Some(start), &crx);
    drop(tx);
    let answer = |e| match e {
        ScreenEvent::Tick(t) => Some((
            t.playback?.index,
            (t.report.findings, t.report.cannot_tell, t.report.watching),
        )),
        _ => None,
    };
    rx.into_iter().filter_map(answer).collect()
}

fn answers(interval: JudgedInterval) -> Answers {
    (
        interval.report.findings,
        interval.report.cannot_tell,
        interval.report.watching,
    )
}

fn printed(path: &Path, from: usize) -> Vec<(usize, Answers)> {
    let samples = Session::open(path).unwrap().cursor();
    let mut intervals =
        RecordedIntervals::new(samples, settings().findings, DomainFilter::default());
    let mut next = from;
    let interval = || {
        let (index, interval) = intervals.first_from(next)?;
        next = index + 1;
        Some((index, answers(interval)))
    };
    std::iter::from_fn(interval).collect()
}

fn reported(path: &Path, time_ms: i64) -> Answers {
    let at = RecordingTime::Instant(jiff::Timestamp::from_millisecond(time_ms).unwrap());
    let reading = InputArgs {
        at: Some(at),
        ..InputArgs::default()
    };
    answers(
        report_session::read(
            path,
            &reading,
            &DescriptionFiles::default(),
            &settings(),
            None,
        )
        .unwrap(),
    )
}

/// Compares all ways to each sample of a recording.
fn same_however_reached(path: &Path) {
    let cursor = Session::open(path).unwrap().cursor();
    let n = cursor.len();
    let played = on_screen(path, &vec![Replay::Step(1); n - 1]);
    assert_eq!(played.len(), n);
    assert!(
        played
            .iter()
            .any(|(_, (findings, ..))| findings.iter().any(|f| f.lasting.is_some()))
    );
    // Each step back is a jump.
    let back: Vec<Replay> = std::iter::once(Replay::Last)
        .chain(vec![Replay::Step(-1); n - 1])
        .collect();
    let stride = |by: i32| vec![Replay::Step(by.into()); n / by.unsigned_abs() as usize];
    let mut ways = vec![
        ("back", on_screen(path, &back)),
        ("batch", printed(path, 0)),
    ];
    ways.extend([7, 60, 61].map(|by| ("fast", on_screen(path, &stride(by)))));
    ways.extend([1, n - 2].map(|from| ("batch --at", printed(path, from))));
    for (how, shown) in ways {
        assert!(shown.len() > 1, "{how}");
        for (index, answer) in shown {
            assert_eq!(answer, played[index].1, "{how}: sample {index}");
        }
    }
    // The first sample ends no interval: the report shows the second in its place.
    for index in (1..n).step_by(5) {
        let time_ms = cursor.time_ms(index).unwrap();
        assert_eq!(
            reported(path, time_ms),
            played[index].1,
            "report --at: sample {index}"
        );
    }
}

fn record(path: &Path, runs: Vec<Vec<Sample>>) {
    for run in runs {
        let mut recorder = Recorder::create(path, Limits::default()).unwrap();
        run.iter()
            .for_each(|sample| recorder.append(sample).unwrap());
        recorder.close().unwrap();
    }
}

/// A guest that reads its clock from ports and waits for a CPU that it shares.
fn small_host() -> Fixture {
    let guest = Guest::new("a", 7002).vcpus(2, |v, t| {
        t.cpu(50.0, 1.0, 20.0, 15.0)
            .pinned(v + 1)
            .exits("IO_INSTRUCTION", 9000.0, 11.0)
            .pio(0x608, Direction::Read, 9000.0, 11.0)
    });
    let other = Guest::new("b", 7102).vcpus(1, |_, t| {
        t.cpu(40.0, 0.0, 2.0, 12.0)
            .pinned(2)
            .exits("HLT", 90.0, 900.0)
    });
    Fixture::new(Host::numa(1, 4, 1)).guest(guest).guest(other)
}

#[test]
fn in_the_demo() {
    same_however_reached(&Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/demo.kvmtop"));
}

#[test]
fn in_a_recording_with_gaps_and_restarts_and_a_crash_before_it_begins() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.kvmtop");
    let fixture = small_host();
    let crash = kernel_log::parse(
        "[172000.000000] kvm [7002]: vcpu0, guest rIP: 0x0 unhandled rdmsr: 0x1\n[172750.500000] \
        Out of memory: Killed process 7002 (qemu-system-x86) total-vm:1kB, anon-rss:1kB\n",
    );
    let sample = |second: i32| {
        let mut sample = fixture.sample(f64::from(second));
        sample.host.kernel_log.clone_from(&crash);
        sample
    };
    // A few seconds are missing now and then.
    let run = |seconds: std::ops::Range<i32>| seconds.filter(|s| s % 37 > 3).map(sample).collect();
    record(&path, vec![run(0..40), run(60..135)]);
    same_however_reached(&path);
}

#[test]
fn where_load_comes_and_goes_and_the_clock_jumps() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.kvmtop");
    let (fixture, mut random) = (small_host(), Random::new(7));
    let (mut worked, mut samples) = (0.0, Vec::new());
    for second in 0..110 {
        // Between a tenth and all of the host's usual work in each second, in phases of some 20.
        let phase = if second / 20 % 2 == 0 { 0.1 } else { 0.7 };
        worked += phase + 0.3 * random.unit();
        let clock = fixture.sample(f64::from(second));
        let back_ns = if second > 95 { 100_000_000_000 } else { 0 };
        samples.push(Sample {
            time_ms: clock.time_ms,
            mono_ns: clock.mono_ns - back_ns,
            boot_ns: clock.boot_ns - back_ns,
            ..fixture.sample(worked)
        });
    }
    record(&path, vec![samples]);
    same_however_reached(&path);
}

/// What holds since long before a jump's look back says so in the same words.
#[test]
fn after_jumps_within_hours() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.kvmtop");
    let (fixture, mut random) = (small_host(), Random::new(5));
    let hours = 3;
    let (mut worked, mut recorder) = (0.0, Recorder::create(&path, Limits::default()).unwrap());
    for second in 0..hours * 3600 {
        // Quiet for some minutes of each half hour.
        worked += if second % 1800 < 300 {
            0.02
        } else {
            0.7 + 0.3 * random.unit()
        };
        let clock = fixture.sample(f64::from(second));
        let sample = Sample {
            time_ms: clock.time_ms,
            mono_ns: clock.mono_ns,
            boot_ns: clock.boot_ns,
            ..fixture.sample(worked)
        };
        recorder.append(&sample).unwrap();
    }
    recorder.close().unwrap();
    let played = printed(&path, 0);
    let n = played.len();
    assert!(
        played[n - 1]
            .1
            .0
            .iter()
            .any(|f| f.lasting.as_ref().is_some_and(|l| l.is_longer))
    );
    let cursor = Session::open(&path).unwrap().cursor();
    let mut indexes: Vec<usize> = (0..40)
        .map(|_| 1 + (random.unit() * (n - 1) as f64) as usize)
        .collect();
    // Where quiet begins and ends, and the last of all.
    indexes.extend([1799, 1801, 1820, 2099, 2101, 2110, 2165, n]);
    let seeks: Vec<Replay> = indexes
        .iter()
        .map(|i| Replay::Seek(cursor.time_ms(*i).unwrap()))
        .collect();
    for (index, answer) in on_screen(&path, &seeks).into_iter().skip(1) {
        assert_eq!(
            (index, &answer),
            (played[index - 1].0, &played[index - 1].1),
            "after a seek to sample {index}"
        );
    }
}

/// What a jump costs in a long recording of ten guests with eight vCPUs each, to any of its
/// samples: `cargo test --release --lib -- --ignored --nocapture cost_of_a_jump`.
#[test]
#[ignore = "a measurement, of a release build"]
fn cost_of_a_jump() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s.kvmtop");
    let seconds = std::env::var("KVMTOP_SECONDS").map_or(86_400, |text| text.parse().unwrap());
    let mut host = RandomHost::new(3, 10, 8, |_, r| random::working(r));
    let mut recorder = Recorder::create(&path, Limits::default()).unwrap();
    (0..seconds).for_each(|_| recorder.append(&host.tick()).unwrap());
    recorder.close().unwrap();
    let (events, shown) = mpsc::sync_channel(4);
    let samples = Session::open(&path).unwrap().cursor();
    let intervals = RecordedIntervals::new(samples, settings().findings, DomainFilter::default());
    let mut player = Player::new(intervals, &events);
    let mut r = Random::new(9);
    let mut times_ms: Vec<f64> = (0..200)
        .map(|_| {
            let begun = std::time::Instant::now();
            player.go((r.unit() * f64::from(seconds)) as usize);
            let ms = begun.elapsed().as_secs_f64() * 1e3;
            shown.try_iter().count();
            ms
        })
        .collect();
    times_ms.sort_by(f64::total_cmp);
    println!(
        "{seconds} samples, 200 jumps: median {:.1} ms, p99 {:.1} ms",
        times_ms[100], times_ms[198]
    );
}
