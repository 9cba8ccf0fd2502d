//! Hostile files, damage, and clocks that are set.

use super::scan::MAX_TRIES;
use super::{PartReader, Session, part::Hole};
use crate::format::{FrameKind, SegmentWriter, Stamp, prologue};
use crate::{Header, Limits, Recorder};
use sample::Sample;
use std::fs::File;
use std::path::Path;
use std::time::Duration;

/// Three runs of five samples in one file.
fn three_runs(path: &Path) {
    for run in 0..3 {
        let mut recorder = Recorder::create(path, Limits::default()).unwrap();
        for n in 0..5 {
            let mut sample = Sample {
                time_ms: (run * 100 + n) * 1000,
                ..Sample::default()
            };
            sample.own.cpu_ns = (run * 5 + n) as u64;
            recorder.append(&sample).unwrap();
        }
        recorder.close().unwrap();
    }
}

#[test]
fn damage_after_the_file_was_opened_is_skipped_when_it_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    three_runs(&path);
    let mut cursor = Session::open(&path).unwrap().cursor();
    let second = cursor.session().parts[0].reader.segments[1];
    let mut bytes = std::fs::read(&path).unwrap();
    // The second frame of the second run.
    let at = second.offset as usize;
    let length = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) >> 8;
    let damaged = at + 8 + length as usize;
    bytes[damaged + 15] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    assert_eq!((cursor.len(), cursor.session().damage()), (15, None));
    let mut read = Vec::new();
    let mut next = 0;
    while let Some((index, sample)) = cursor.readable_from(next) {
        assert_eq!(sample.own.cpu_ns, index as u64);
        read.push(index);
        next = index + 1;
    }
    assert_eq!(read, [0, 1, 2, 3, 4, 5, 10, 11, 12, 13, 14]);
    assert!(cursor.begins_run(10));
    let hole = Hole {
        offset: damaged as u64,
        samples: 4,
    };
    assert_eq!(cursor.session().parts[0].reader.holes, [hole]);
    let damage = cursor.session().damage().unwrap();
    assert!(damage.ends_with("samples missing: 4"), "{damage}");
    assert!(cursor.at(7).is_err());
}

#[test]
fn a_file_with_holes_without_end_is_given_up() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    let mut bytes = prologue().to_vec();
    bytes.extend(Header::default().pack().unwrap());
    for number in 0..2 * MAX_TRIES as u32 {
        let stamp = Stamp {
            number,
            time_ms: 0,
            begins_run: false,
        };
        bytes.extend(
            SegmentWriter::new()
                .unwrap()
                .pack(FrameKind::First, stamp, &Sample::default())
                .unwrap(),
        );
        bytes.push(0);
    }
    std::fs::write(&path, &bytes).unwrap();
    let part = PartReader::open(File::open(&path).unwrap()).unwrap();
    assert_eq!(
        (part.holes.len(), part.times.len()),
        (MAX_TRIES, MAX_TRIES + 1)
    );
}

#[test]
fn a_run_that_begins_with_a_new_part_is_a_run() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    // A part is a second long.
    let limits = Limits {
        age: Some(Duration::from_secs(8)),
        ..Limits::default()
    };
    for times in [[0, 500], [1500, 3000]] {
        let mut recorder = Recorder::create(&path, limits).unwrap();
        for time_ms in times {
            recorder
                .append(&Sample {
                    time_ms,
                    ..Sample::default()
                })
                .unwrap();
        }
        recorder.close().unwrap();
    }
    let cursor = Session::open(&path).unwrap().cursor();
    assert_eq!(cursor.session().parts.len(), 3);
    assert_eq!(
        (0..cursor.len())
            .map(|i| cursor.begins_run(i))
            .collect::<Vec<_>>(),
        [true, false, true, false]
    );
}

#[test]
fn a_clock_that_is_set_leaves_every_sample_within_reach() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    let mut recorder = Recorder::create(&path, Limits::default()).unwrap();
    // A second each: from 1000 s on, an hour forward, two hours back.
    let times: Vec<i64> = (1000..1010)
        .chain(4610..4620)
        .chain(-2580 + 4000..-2580 + 4010)
        .collect();
    for s in &times {
        recorder
            .append(&Sample {
                time_ms: s * 1000,
                ..Sample::default()
            })
            .unwrap();
    }
    recorder.close().unwrap();
    let cursor = Session::open(&path).unwrap().cursor();
    assert_eq!(cursor.session().range_ms(), Some((1_000_000, 4_619_000)));
    for (i, s) in times.iter().enumerate() {
        assert_eq!(
            (cursor.time_ms(i), cursor.index_at(s * 1000)),
            (Some(s * 1000), i)
        );
    }
    let beside = |index, s: i64| cursor.index_beside(index, s * 1000);
    assert_eq!(
        [
            beside(0, 3),
            beside(9, 3600),
            beside(9, 3601),
            beside(12, -3600),
            beside(5, 60)
        ],
        [3, 9, 10, 9, 9]
    );
    assert_eq!(
        [beside(15, 3), beside(15, 10), beside(25, 3), beside(25, 10)],
        [18, 20, 28, 29]
    );
    assert_eq!(
        [beside(25, -3), beside(25, -10), beside(5, -10)],
        [22, 19, 0]
    );
}
