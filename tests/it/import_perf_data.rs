//! perf.data files recorded on a real KVM (kernel 6.1, AMD) against what perf itself prints of
//! them.

use import::{ImportOptions, Imported, load};
use judge::model::{AccessRow, Base, DomainModel, ExitRow, Model};
use sample::{MissingExtreme, Timing};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const FIXTURES: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/fixtures/import/perf_data"
);

/// A fixture, unpacked into a folder where need be.
fn fixture(name: &str, folder: &Path) -> PathBuf {
    let plain = Path::new(FIXTURES).join(name);
    if plain.exists() {
        return plain;
    }
    let packed = std::fs::File::open(Path::new(FIXTURES).join(format!("{name}.zst"))).unwrap();
    let out = folder.join(name);
    zstd::stream::copy_decode(packed, std::fs::File::create(&out).unwrap()).unwrap();
    out
}

fn read(name: &str) -> (Imported, Model) {
    let folder = tempfile::tempdir().unwrap();
    let imported = load(&[fixture(name, folder.path())], &ImportOptions::default());
    assert_eq!(imported.errors, [], "{name}");
    assert_eq!(imported.source, "perf.data");
    let model = Model::new(&imported.sample, Base::Whole(imported.interval_s));
    (imported, model)
}

fn printed(name: &str) -> Model {
    let imported = load(&[Path::new(FIXTURES).join(name)], &ImportOptions::default());
    assert_eq!(imported.errors, [], "{name}");
    Model::new(&imported.sample, Base::Whole(None))
}

/// The figures of a row as perf prints them: count, minimum, maximum, mean, relative error.
fn figures(span: &Timing) -> String {
    let us = |ns: Option<u64>| ns.map_or("-".into(), |ns| format!("{:.2}", ns as f64 / 1e3));
    let two = |f: Option<f64>| f.map_or("-".into(), |f| format!("{f:.2}"));
    format!(
        "{} {} {} {} {}",
        span.count,
        us(span.min_ns),
        us(span.max_ns),
        two(span.mean_us()),
        two(span.stderr_percent())
    )
}

fn table<'a, R: 'a, K: Ord>(
    rows: impl Iterator<Item = &'a R>,
    key: fn(&R) -> K,
    span: fn(&R) -> &Timing,
) -> BTreeMap<K, Timing> {
    let mut sums: BTreeMap<K, Timing> = BTreeMap::new();
    for r in rows {
        sums.entry(key(r))
            .or_default()
            .merge(span(r), MissingExtreme::Unknown);
    }
    sums
}

fn exits(model: &Model) -> BTreeMap<String, Timing> {
    let rows = model
        .domains
        .iter()
        .flat_map(|d: &DomainModel| &d.exits.rows);
    table(rows, |r: &ExitRow| r.reason.clone(), |r| &r.span)
}

fn accesses(model: &Model) -> BTreeMap<String, Timing> {
    let key = |r: &AccessRow| {
        format!(
            "{} {} {}",
            r.space.as_str(),
            r.address_text(),
            r.direction.as_str()
        )
    };
    table(model.domains.iter().flat_map(|d| &d.accesses), key, |r| {
        &r.span
    })
}

fn all(spans: &BTreeMap<String, Timing>) -> BTreeMap<String, String> {
    spans.iter().map(|(k, s)| (k.clone(), figures(s))).collect()
}

fn counts(spans: &BTreeMap<String, Timing>) -> BTreeMap<String, u64> {
    spans.iter().map(|(k, s)| (k.clone(), s.count)).collect()
}

/// Every table of perf's report, to the last digit.
fn agrees(data: &str, text: &str) {
    let report = printed(text);
    let (_, own) = read(data);
    assert!(
        !exits(&report).is_empty() && !accesses(&report).is_empty(),
        "{text} holds tables"
    );
    assert_eq!(all(&exits(&own)), all(&exits(&report)), "exits of {data}");
    assert_eq!(
        counts(&accesses(&own)),
        counts(&accesses(&report)),
        "accesses of {data}"
    );
}

/// The last sample of a recording at the largest time there is: reading ends, and no event is lost.
#[test]
fn a_sample_at_the_end_of_time_is_read() {
    const SAMPLE: u32 = 9;
    // After the record's header: identifier, instruction, process and thread.
    const TIME: usize = 8 + 3 * 8;
    let folder = tempfile::tempdir().unwrap();
    let path = fixture("plain.data", folder.path());
    let count = |path: &Path| {
        let imported = load(&[path.to_owned()], &ImportOptions::default());
        assert_eq!(imported.errors, []);
        let threads = imported.sample.domains.iter().flat_map(|d| &d.threads);
        threads
            .flat_map(|t| &t.events.exits)
            .map(|exit| exit.time.count)
            .sum::<u64>()
    };
    let before = count(&path);
    let mut bytes = std::fs::read(&path).unwrap();
    let number = |bytes: &[u8], at: usize| {
        u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize
    };
    let (mut at, size) = (number(&bytes, 40), number(&bytes, 48));
    let (end, mut last) = (at + size, 0);
    while at < end {
        let kind = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        last = if kind == SAMPLE { at + TIME } else { last };
        at += usize::from(u16::from_le_bytes([bytes[at + 6], bytes[at + 7]]));
    }
    let time = number(&bytes, last);
    assert!((1..1 << 50).contains(&time), "{time} is no time");
    bytes[last..last + 8].fill(0xff);
    std::fs::write(&path, bytes).unwrap();
    let (send, done) = std::sync::mpsc::channel();
    std::thread::spawn(move || send.send(count(&path)));
    let after = done
        .recv_timeout(std::time::Duration::from_secs(60))
        .expect("reading ends");
    assert!(before - after <= 1, "{before} exits, then {after}");
}

#[test]
fn a_plain_file_is_as_perf_prints_it() {
    agrees("plain.data", "plain.txt");
}

#[test]
fn a_compressed_file_is_as_perf_prints_it() {
    agrees("compressed.data", "compressed.txt");
}

#[test]
fn two_guests_are_apart_and_together_as_perf_prints_them() {
    agrees("two-guests.data", "two-guests.txt");
    let (_, model) = read("two-guests.data");
    let names: Vec<_> = model
        .domains
        .iter()
        .map(|d| (d.name(), d.facts.pid, d.vcpus().count()))
        .collect();
    assert_eq!(
        names,
        [("guest-169", Some(169), 1), ("guest-170", Some(170), 2)]
    );
    // perf kvm stat report --vcpu=1, -p 170
    let second = &model.domains[1];
    assert_eq!(second.exits.count, 7603);
    let vcpu1 = &second.vcpu_exits.iter().find(|(v, _)| *v == 1).unwrap().1;
    let faults = vcpu1.rows.iter().find(|row| row.reason == "npf").unwrap();
    assert_eq!((vcpu1.count, faults.span.count), (3428, 2562));
}

/// perf times a port access from its own event on, when most of the exit is over.
#[test]
fn an_access_is_charged_its_whole_exit() {
    let (own, perfs) = (
        accesses(&read("plain.data").1),
        accesses(&printed("plain.txt")),
    );
    for (key, span) in &own {
        assert!(
            span.total_ns >= perfs[key].total_ns,
            "{key}: {span:?} against {:?}",
            perfs[key]
        );
    }
    let port = "pio 0x608 read";
    assert!(
        own[port].total_ns > perfs[port].total_ns.map(|t| 2 * t),
        "{:?}",
        own[port]
    );
}

/// Reads what perf wrote to a pipe, which perf's own report does not read; the expected number of
/// exits comes from the lines of `perf script`.
#[test]
fn what_was_written_to_a_pipe_is_read_too() {
    let (imported, model) = read("pipe.data");
    assert_eq!(
        (
            imported.sample.engine.events,
            exits(&model).values().map(|s| s.count).sum::<u64>()
        ),
        (4058, 1412)
    );
    assert_eq!(accesses(&model)["pio 0x608 read"].count, 88);
    let (imported, model) = read("compressed-pipe.data");
    assert_eq!(
        (
            imported.sample.engine.events,
            exits(&model).values().map(|s| s.count).sum::<u64>()
        ),
        (3077, 1076)
    );
}

#[test]
fn exits_around_lost_events_are_left_out_and_said() {
    let (imported, model) = read("lost.data");
    assert_eq!(imported.sample.engine.lost, 549);
    assert!(
        imported
            .notes
            .iter()
            .any(|n| n.contains("549 events were lost")),
        "{:?}",
        imported.notes
    );
    let (report, own) = (exits(&printed("lost.txt")), exits(&model));
    let sum = |t: &BTreeMap<String, Timing>| t.values().map(|s| s.count).sum::<u64>();
    assert!(
        sum(&own) < sum(&report) && sum(&own) > sum(&report) * 9 / 10,
        "{} of {}",
        sum(&own),
        sum(&report)
    );
}

/// One damaged time stamp, at the beginning, in the middle and at the end of a file: years ahead or
/// back.
#[test]
fn a_time_stamp_years_away_is_a_gap() {
    let folder = tempfile::tempdir().unwrap();
    let path = fixture("two-guests.data", folder.path());
    let whole = std::fs::read(&path).unwrap();
    let is_time = |at: &usize| {
        let word = u64::from_le_bytes(whole[*at..at + 8].try_into().unwrap());
        // From the first event of the file to the last.
        (73_979_542_845..=75_387_470_594).contains(&word)
    };
    let stamps: Vec<usize> = (0..whole.len() - 8).step_by(8).filter(is_time).collect();
    assert!(stamps.len() > 1000);
    let seconds = load(std::slice::from_ref(&path), &ImportOptions::default())
        .interval_s
        .unwrap();
    let damaged = folder.path().join("damaged.data");
    for place in [0, 1, stamps.len() / 2, stamps.len() - 1] {
        for bit in [54, 62, 63] {
            let mut bytes = whole.clone();
            bytes[stamps[place] + bit / 8] ^= 1 << (bit % 8);
            std::fs::write(&damaged, &bytes).unwrap();
            let imported = load(std::slice::from_ref(&damaged), &ImportOptions::default());
            let base = imported.interval_s.unwrap();
            assert!(
                (base - seconds).abs() < 0.5,
                "stamp {place}, bit {bit}: {base} of {seconds} s"
            );
        }
    }
}

/// Checks a file that was cut off while it was written or copied. The formats are at the file's
/// end, so nothing can be read without them, and the note says this. A cut stream is read up to the
/// cut.
#[test]
fn a_cut_file_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let whole = std::fs::read(fixture("plain.data", folder.path())).unwrap();
    let cut = folder.path().join("cut.data");
    for (length, words) in [(50, "within its header"), (400_000, "cut off")] {
        std::fs::write(&cut, &whole[..length]).unwrap();
        let imported = load(std::slice::from_ref(&cut), &ImportOptions::default());
        let said: String = imported
            .errors
            .iter()
            .map(|e| &e.what)
            .chain(&imported.notes)
            .cloned()
            .collect();
        assert!(said.contains(words), "{length}: {said}");
    }
    let stream = std::fs::read(fixture("pipe.data", folder.path())).unwrap();
    std::fs::write(&cut, &stream[..stream.len() / 2]).unwrap();
    let imported = load(std::slice::from_ref(&cut), &ImportOptions::default());
    assert_eq!(imported.errors, []);
    assert!(
        imported.sample.engine.events > 1000 && imported.notes[0].contains("cut off"),
        "{:?}",
        imported.notes
    );
}
