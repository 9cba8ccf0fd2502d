//! Recordings that were killed, cut, damaged, taken, foreign or too new.
use proptest::prelude::*;
use sample::Sample;
use session::{Cursor, Limits, Recorder, Session};
use std::path::{Path, PathBuf};
use std::time::Duration;
use testkit::random::{RandomHost, idle};

fn samples(n: usize) -> Vec<Sample> {
    let mut host = RandomHost::new(3, 1, 1, |_, r| idle(r));
    (0..n).map(|_| host.tick()).collect()
}

fn record(path: &Path, samples: &[Sample]) {
    let mut r = Recorder::create(path, Limits::default()).unwrap();
    samples.iter().for_each(|s| r.append(s).unwrap());
    r.close().unwrap();
}

fn recorded(n: usize) -> (tempfile::TempDir, PathBuf, Vec<Sample>, Vec<u8>) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.kvmtop");
    let samples = samples(n);
    record(&path, &samples);
    let bytes = std::fs::read(&path).unwrap();
    (dir, path, samples, bytes)
}

fn said(path: &Path) -> String {
    format!("{:#}", Session::open(path).unwrap_err())
}

#[test]
fn a_file_cut_at_any_byte_opens_up_to_there() {
    let (_dir, path, samples, bytes) = recorded(8);
    let mut seen = 0;
    for cut in 0..=bytes.len() {
        std::fs::write(&path, &bytes[..cut]).unwrap();
        let Ok(session) = Session::open(&path) else {
            assert!(cut < 16, "cut at {cut}: {}", said(&path));
            continue;
        };
        let n = session.len();
        assert!(n >= seen, "cut at {cut}");
        let damage = session.damage();
        if n > seen || cut == bytes.len() {
            let mut c = session.cursor();
            assert!(
                n == 0 || *c.at(n - 1).unwrap() == samples[n - 1],
                "cut at {cut}"
            );
        } else if let Some(damage) = damage {
            assert!(damage.contains("is cut off at byte"), "{damage}");
        }
        seen = n;
    }
    assert_eq!(seen, samples.len());
}

#[test]
fn a_flipped_bit_is_noticed_and_what_stands_before_it_is_there() {
    let (_dir, path, samples, bytes) = recorded(8);
    for at in (0..bytes.len()).step_by(7) {
        let mut bad = bytes.clone();
        bad[at] ^= 1 << (at % 8);
        std::fs::write(&path, &bad).unwrap();
        let Ok(session) = Session::open(&path) else {
            assert!(at < 16, "byte {at}: {}", said(&path));
            continue;
        };
        assert!(
            session.damage().is_some(),
            "byte {at} was flipped and nobody noticed"
        );
        let n = session.len();
        let mut c = session.cursor();
        for (i, s) in samples.iter().enumerate().take(n) {
            assert!(*c.at(i).unwrap() == *s, "byte {at}, sample {i}");
        }
    }
}

#[test]
fn what_is_no_session_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x");
    let say = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        said(&path)
    };
    assert!(say(b"").contains("the file is empty"));
    assert!(say(b"PERFILE2 and more of it").contains("not a kvmtop session"));
    assert!(say(b"\x89KVM").contains("cut off before its first frame"));
    let with_schema = |word: [u8; 4]| {
        let mut b = b"\x89KVMTOP\n".to_vec();
        b.extend(word);
        let crc = crc32fast::hash(&b);
        b.extend(crc.to_le_bytes());
        b
    };
    let newer = say(&with_schema(7u32.to_le_bytes()));
    assert!(
        newer.contains("schema version 7") && newer.contains("use another kvmtop"),
        "{newer}"
    );
    assert!(say(&with_schema(1u32.to_le_bytes())).contains("schema version 1,"));
    assert!(say(&with_schema(2u32.to_be_bytes())).contains("schema version 33554432"));
    assert!(said(dir.path()).contains("not a regular file"));
    assert!(said(&dir.path().join("none")).contains("cannot open"));
    let error = format!(
        "{:#}",
        Recorder::create(&path, Limits::default()).err().unwrap()
    );
    assert!(error.contains("use another kvmtop"), "{error}");
}

#[test]
fn a_recorder_takes_no_file_that_is_not_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notes.txt");
    std::fs::write(&path, "what I must not lose").unwrap();
    let error = format!(
        "{:#}",
        Recorder::create(&path, Limits::default()).err().unwrap()
    );
    assert!(
        error.contains("not a kvmtop session") && error.contains("another name"),
        "{error}"
    );
    assert_eq!(std::fs::read(&path).unwrap(), b"what I must not lose");

    let path = dir.path().join("a.kvmtop");
    let _first = Recorder::create(&path, Limits::default()).unwrap();
    let error = format!(
        "{:#}",
        Recorder::create(&path, Limits::default()).err().unwrap()
    );
    assert!(
        error.contains("another kvmtop is recording into"),
        "{error}"
    );

    let error = format!(
        "{:#}",
        Recorder::create(&dir.path().join("no/such/folder"), Limits::default())
            .err()
            .unwrap()
    );
    assert!(error.contains("does the folder"), "{error}");
    let error = format!(
        "{:#}",
        Recorder::create(dir.path(), Limits::default())
            .err()
            .unwrap()
    );
    assert!(error.contains("not a regular file"), "{error}");
}

#[test]
fn a_recording_is_gone_on_with_also_after_a_kill() {
    let (_dir, path, mut samples, bytes) = recorded(20);
    // Killed in the middle of a write.
    let mut end = bytes.len();
    while Session::open(&path).unwrap().len() == 20 {
        end -= 1;
        std::fs::write(&path, &bytes[..end]).unwrap();
    }
    samples.pop();
    let more = self::samples(5);
    let mut r = Recorder::create(&path, Limits::default()).unwrap();
    assert!(
        r.note()
            .unwrap()
            .contains("recording continues after its 19 samples")
    );
    more.iter().for_each(|s| r.append(s).unwrap());
    // A reader next to the recorder sees whole samples and no damage.
    let mut reading = Session::open(&path).unwrap();
    assert_eq!((reading.len(), reading.damage()), (24, None));
    r.append(&more[0]).unwrap();
    assert!(reading.refresh());
    assert_eq!(reading.len(), 25);
    r.close().unwrap();
    samples.extend(more.iter().cloned());
    samples.push(more[0].clone());
    let session = Session::open(&path).unwrap();
    assert_eq!(session.damage(), None);
    let mut c = session.cursor();
    for (i, s) in samples.iter().enumerate() {
        assert!(*c.at(i).unwrap() == *s, "sample {i}");
        assert_eq!(c.begins_run(i), i == 0 || i == 19, "sample {i}");
    }
}

#[test]
fn who_holds_a_recording_for_an_instant_stops_no_recorder() {
    let (_dir, path, ..) = recorded(2);
    let (held, holding) = std::sync::mpsc::channel();
    let reader = {
        let file = std::fs::File::open(&path).unwrap();
        std::thread::spawn(move || {
            file.lock_shared().unwrap();
            held.send(()).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(30));
        })
    };
    holding.recv().unwrap();
    Recorder::create(&path, Limits::default()).unwrap();
    reader.join().unwrap();
}

#[test]
fn a_damaged_recording_is_moved_aside() {
    let (dir, path, samples, mut bytes) = recorded(20);
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x55;
    std::fs::write(&path, &bytes).unwrap();
    let mut r = Recorder::create(&path, Limits::default()).unwrap();
    assert!(
        r.note().unwrap().contains("damaged and was moved to"),
        "{:?}",
        r.note()
    );
    r.append(&samples[0]).unwrap();
    r.close().unwrap();
    assert_eq!(std::fs::read(dir.path().join("a.kvmtop.1")).unwrap(), bytes);
    let session = Session::open(&path).unwrap();
    // Both are one recording.
    assert!(
        session.len() > 1
            && session
                .damage()
                .unwrap()
                .contains("a.kvmtop.1 is damaged at byte")
    );
}

#[test]
fn limits_drop_the_oldest_parts() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.kvmtop");
    let size = 256 << 10;
    let mut host = RandomHost::new(3, 2, 2, |_, r| testkit::random::working(r));
    let mut r = Recorder::create(
        &path,
        Limits {
            size: Some(size),
            age: None,
        },
    )
    .unwrap();
    let mut all = Vec::new();
    for _ in 0..600 {
        all.push(host.tick());
        r.append(all.last().unwrap()).unwrap();
        let sum: u64 = std::fs::read_dir(dir.path())
            .unwrap()
            .map(|f| f.unwrap().metadata().unwrap().len())
            .sum();
        assert!(sum <= size + size / 8, "{sum} bytes on disk");
    }
    let (older, bytes) = r.size();
    assert!(
        older > 3 && bytes > size / 2,
        "{older} older parts, {bytes} bytes"
    );
    r.close().unwrap();
    let copy = dir.path().join("copy.kvmtop");
    std::fs::copy(&path, &copy).unwrap();
    // A part can be read alone.
    assert_eq!(Session::open(&copy).unwrap().damage(), None);
    std::fs::remove_file(&copy).unwrap();
    let session = Session::open(&path).unwrap();
    let n = session.len();
    assert!((50..600).contains(&n), "{n} samples kept");
    assert_eq!(session.damage(), None);
    let mut c = session.cursor();
    for (i, s) in all[600 - n..].iter().enumerate() {
        assert!(*c.at(i).unwrap() == *s, "sample {i}");
        assert_eq!(c.time_ms(i), Some(s.time_ms));
        assert!(!c.begins_run(i) || i == 0, "sample {i}");
    }

    // By age: a part lasts an eighth of it, and is dropped when its last write is older.
    let path = dir.path().join("b.kvmtop");
    let mut r = Recorder::create(
        &path,
        Limits {
            size: None,
            age: Some(Duration::from_secs(80)),
        },
    )
    .unwrap();
    all.iter().take(100).for_each(|s| r.append(s).unwrap());
    r.close().unwrap();
    assert!(dir.path().join("b.kvmtop.5").exists());
    assert_eq!(Session::open(&path).unwrap().len(), 100);
    let parts = |name: &str| {
        let names = std::fs::read_dir(dir.path())
            .unwrap()
            .map(|f| f.unwrap().file_name().into_string().unwrap());
        names.filter(|n| n.starts_with(name)).count()
    };

    // A stopped wall clock, or one that is set back, makes no part longer.
    let path = dir.path().join("c.kvmtop");
    let mut r = Recorder::create(
        &path,
        Limits {
            size: None,
            age: Some(Duration::from_secs(80)),
        },
    )
    .unwrap();
    for (n, sample) in all.iter_mut().take(100).enumerate() {
        sample.time_ms -= 2000 * n as i64;
        r.append(sample).unwrap();
    }
    r.close().unwrap();
    assert_eq!((parts("c."), parts("b.")), (10, 10));
}

#[test]
fn times_are_found_without_reading_samples() {
    let (_dir, path, samples, _) = recorded(100);
    let mut c = Session::open(&path).unwrap().cursor();
    for i in [0, 1, 29, 30, 31, 59, 61, 98, 99] {
        assert_eq!(c.time_ms(i), Some(samples[i].time_ms), "sample {i}");
        assert_eq!(c.index_at(samples[i].time_ms), i);
        assert_eq!(c.index_at(samples[i].time_ms + 500), i);
        assert_eq!(c.index_from(samples[i].time_ms), i);
        assert_eq!(
            c.index_from(samples[i].time_ms - 500),
            i,
            "the interval that a time is in"
        );
    }
    assert_eq!(c.index_at(0), 0);
    assert_eq!(
        (
            c.index_at(i64::MAX),
            c.index_from(i64::MAX),
            c.index_from(0)
        ),
        (99, 99, 0)
    );
    assert_eq!(c.time_ms(100), None);
    assert!(c.at(100).is_err());
}

/// Where the frames of a file begin, and of what kind they are.
fn frames(bytes: &[u8]) -> Vec<(usize, u8)> {
    let mut all = Vec::new();
    let mut at = 16;
    while at < bytes.len() {
        let word = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        all.push((at, word as u8));
        at += 8 + (word >> 8) as usize;
    }
    all
}

/// The samples that are the first of a run.
fn begins(cursor: &Cursor) -> Vec<usize> {
    (0..cursor.len())
        .filter(|i| cursor.begins_run(*i))
        .collect()
}

#[test]
fn reading_goes_on_behind_damage_at_the_next_segment() {
    let (_dir, path, first, _) = recorded(6);
    let mut all = first;
    for _ in 0..2 {
        let more = samples(6);
        record(&path, &more);
        all.extend(more);
    }
    let bytes = std::fs::read(&path).unwrap();
    let mut c = Session::open(&path).unwrap().cursor();
    assert_eq!((c.len(), begins(&c)), (18, vec![0, 6, 12]));
    assert!(c.readable_from(17).is_some() && c.readable_from(18).is_none());
    let frames = frames(&bytes);
    let sample_frames: Vec<usize> = frames
        .iter()
        .filter(|(_, kind)| matches!(kind, 2 | 3))
        .map(|(at, _)| *at)
        .collect();
    assert_eq!(sample_frames.len(), 18);
    // In a sample's bytes, in its length, in its kind.
    for (offset, bit) in [(20, 1), (2, 0x80), (0, 0x40)] {
        let mut bad = bytes.clone();
        bad[sample_frames[8] + offset] ^= bit;
        std::fs::write(&path, &bad).unwrap();
        let session = Session::open(&path).unwrap();
        let damage = session.damage().unwrap();
        assert!(
            damage.contains(&format!(
                "is damaged at byte {}: samples missing: 4",
                sample_frames[8]
            )),
            "{damage}"
        );
        let mut c = session.cursor();
        assert_eq!((c.len(), begins(&c)), (14, vec![0, 6, 8]), "byte {offset}");
        for (i, s) in all[..8].iter().chain(&all[12..]).enumerate() {
            assert!(*c.at(i).unwrap() == *s, "sample {i}");
            assert_eq!(c.begins_run(i), [0, 6, 8].contains(&i), "sample {i}");
        }
    }
    // A header that is damaged costs no sample.
    for (at, _) in frames
        .iter()
        .filter(|(at, kind)| *kind == 1 && *at < sample_frames[12])
    {
        let mut bad = bytes.clone();
        bad[at + 12] ^= 1;
        std::fs::write(&path, &bad).unwrap();
        let session = Session::open(&path).unwrap();
        assert_eq!(session.len(), 18, "{:?}", session.damage());
        assert!(
            session.damage().unwrap().contains("samples missing: 0"),
            "{:?}",
            session.damage()
        );
    }
}

/// A file of one frame with this payload, after the bytes that a frame of that kind begins with.
fn with_payload(bytes: &[u8], kind: u8, payload: &[u8]) -> Vec<u8> {
    let begin: &[u8] = match kind {
        2 => b"KVMTOPsg\0\0\0\0\0\0\0\0\0\0\0\0\0",
        3 => &[0; 12],
        4 => b"KVMTOPix",
        _ => b"",
    };
    let payload = [begin, payload].concat();
    let mut out = bytes[..16].to_vec();
    let head = ((payload.len() as u32) << 8 | u32::from(kind)).to_le_bytes();
    let mut h = crc32fast::Hasher::new();
    h.update(&head);
    h.update(&payload);
    out.extend(head);
    out.extend(h.finalize().to_le_bytes());
    out.extend(payload);
    out
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
    #[test]
    fn hostile_frames_never_panic(
        payload in prop::collection::vec(any::<u8>(), 0..400),
        kind in 1u8..6,
        packed in any::<bool>(),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("h");
        let payload = if packed { zstd::encode_all(payload.as_slice(), 1).unwrap() } else { payload };
        std::fs::write(&path, with_payload(&prologue(), kind, &payload)).unwrap();
        if let Ok(session) = Session::open(&path) {
            let _ = session.damage();
            let mut c = session.cursor();
            for i in 0..c.len().min(3) {
                let _ = (c.at(i), c.time_ms(i));
            }
        }
    }

    #[test]
    fn hostile_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("h");
        let all: Vec<u8> = [prologue().as_slice(), &bytes].concat();
        std::fs::write(&path, all).unwrap();
        prop_assert!(Session::open(&path).is_ok_and(|s| s.is_empty()));
    }
}

fn prologue() -> Vec<u8> {
    let mut b = b"\x89KVMTOP\n".to_vec();
    b.extend(2u32.to_le_bytes());
    let crc = crc32fast::hash(&b);
    b.extend(crc.to_le_bytes());
    b
}
