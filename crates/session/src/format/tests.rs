//! What a hostile frame may cost.

use super::bounds;
use super::codec::{FrameFacts, append};
use super::{FrameKind, SegmentReader, SegmentWriter, Stamp};
use sample::*;
use serde_json::json;
use std::io::{Read as _, Write as _};

#[test]
fn a_frame_that_decompresses_to_gigabytes_is_refused() {
    let stamp = Stamp {
        number: 0,
        time_ms: 0,
        begins_run: true,
    };
    let bomb = zstd::encode_all(std::io::repeat(0).take(1 << 30), 1).unwrap();
    assert!(bomb.len() < 1 << 20);
    let mut reader = SegmentReader::new().unwrap();
    assert!(
        reader
            .advance(&bomb)
            .unwrap_err()
            .to_string()
            .contains("does not decompress")
    );
    // The same reader's code reads what a recorder writes.
    let mut writer = SegmentWriter::new().unwrap();
    let frame = writer
        .pack(FrameKind::First, stamp, &Sample::default())
        .unwrap();
    let (read, packed) = Stamp::split(FrameKind::First, &frame[super::HEAD_BYTES..]).unwrap();
    let mut reader = SegmentReader::new().unwrap();
    reader.advance(packed).unwrap();
    assert_eq!((read, reader.sample().unwrap()), (stamp, Sample::default()));
}

/// A frame's uncompressed bytes: these facts, and a sample with a guest for each number.
fn packed(new_guests: Vec<DomainFacts>, guests: Vec<u32>, sample: &Sample) -> Vec<u8> {
    let facts = FrameFacts {
        host: None::<HostFacts>,
        new_guests,
        guests,
    };
    append(sample, append(&facts, Vec::new()).unwrap()).unwrap()
}

/// Reads a segment of one sample.
fn read(bytes: &[u8]) -> anyhow::Result<Sample> {
    let mut stream = zstd::stream::write::Encoder::new(Vec::new(), 1)?;
    stream.write_all(bytes)?;
    stream.flush()?;
    let mut reader = SegmentReader::new()?;
    reader.advance(stream.get_ref())?;
    reader.sample()
}

#[test]
fn unknown_fields_are_skipped_and_missing_ones_default() {
    let newer = json!({
        "time_ms": 5,
        "later": {"a": [1, {"b": null}]},
        "domains": [{"threads": [{"tid": 7, "cpu": {"user_ns": 9, "later_ns": 1}, "later": "x"}], "later": []}],
    });
    let facts = json!({"new_guests": [{"pid": 3, "later": 1}], "guests": [0], "later": true});
    let bytes = append(&newer, append(&facts, Vec::new()).unwrap()).unwrap();
    let cpu = Some(ThreadTimes {
        user_ns: 9,
        ..ThreadTimes::default()
    });
    let thread = ThreadSample {
        tid: 7,
        cpu,
        ..ThreadSample::default()
    };
    let facts = DomainFacts {
        pid: Some(3),
        ..DomainFacts::default()
    };
    let domain = DomainSample {
        facts: facts.into(),
        threads: vec![thread],
        ..DomainSample::default()
    };
    assert_eq!(
        read(&bytes).unwrap(),
        Sample {
            time_ms: 5,
            domains: vec![domain],
            ..Sample::default()
        }
    );
}

#[test]
fn sources_that_are_gone_are_skipped() {
    let older = json!({
        "sources": [
            {"id": "pmu", "state": "Missing", "cause": "no PMU", "fix": null},
            {"id": "procfs", "state": "Ok", "cause": null, "fix": null},
        ],
        "domains": [{"cache": {"occupied": 9}, "threads": [{"tid": 7, "pmu": {"guest": {"cycles": 3}}}]}],
    });
    let facts = json!({"new_guests": [{"pid": 3}], "guests": [0]});
    let bytes = append(&older, append(&facts, Vec::new()).unwrap()).unwrap();
    let sample = read(&bytes).unwrap();
    assert_eq!(sample.sources, [SourceStatus::ok(SourceId::Procfs)]);
    assert_eq!(sample.domains[0].threads[0].tid, 7);
}

#[test]
fn a_segment_of_ever_new_guests_is_refused() {
    let mut reader = SegmentReader::new().unwrap();
    let mut stream = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
    let mut advance = |reader: &mut SegmentReader| {
        stream
            .write_all(&packed(
                vec![DomainFacts::default(); 40_000],
                Vec::new(),
                &Sample::default(),
            ))
            .unwrap();
        stream.flush().unwrap();
        reader.advance(&std::mem::take(stream.get_mut()))
    };
    advance(&mut reader).unwrap();
    let error = advance(&mut reader).unwrap_err();
    assert!(
        error.to_string().contains("facts of more guests"),
        "{error}"
    );
}

#[test]
fn values_that_take_more_memory_than_any_host_needs_are_refused() {
    let threads = |n| {
        let domain = DomainSample {
            threads: vec![ThreadSample::default(); n],
            ..DomainSample::default()
        };
        let sample = Sample {
            domains: vec![domain],
            ..Sample::default()
        };
        read(&packed(vec![DomainFacts::default()], vec![0], &sample))
    };
    assert_eq!(threads(100_000).unwrap().domains[0].threads.len(), 100_000);
    let error = format!("{:#}", threads(500_000).unwrap_err());
    assert!(
        error.contains("larger than any recorder") || error.contains("decompress"),
        "{error}"
    );
    // Each is one byte: an empty map or list stands for a struct of default values.
    for empty in [json!({}), json!([])] {
        let guests = vec![empty; 1_000_000];
        let bytes = append(
            &json!({"domains": guests}),
            packed(Vec::new(), Vec::new(), &Sample::default()),
        )
        .unwrap();
        assert!(
            bounds::check(&bytes)
                .and_then(bounds::check)
                .and_then(bounds::check)
                .is_err()
        );
    }
    // A set of all CPUs: seven bytes.
    let sets = append(&vec!["0-8191"; 200_000], Vec::new()).unwrap();
    assert!(bounds::check(&sets).is_err());
}

#[test]
fn a_segment_longer_than_a_recorder_writes_is_refused() {
    let mut reader = SegmentReader::new().unwrap();
    let mut stream = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
    let name = Known::new("x".repeat(12 << 20), Origin::File);
    let sample = packed(
        vec![DomainFacts {
            name,
            ..DomainFacts::default()
        }],
        Vec::new(),
        &Sample::default(),
    );
    let frames = (0..9).take_while(|_| {
        stream.write_all(&sample).unwrap();
        stream.flush().unwrap();
        reader.advance(&std::mem::take(stream.get_mut())).is_ok()
    });
    assert_eq!(frames.count(), 3, "12 MiB each, of 32");
}
