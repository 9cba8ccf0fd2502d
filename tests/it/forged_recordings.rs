//! Recordings with figures that no host has, all the way through: file, report, comparison, JSON
//! and screen.
//!
//! Bytes at random hardly ever make a sample: here whole samples are forged, field by field.
//! Overflow is checked as in every test.

use crate::whole;
use kvm::{cmdline, domain_xml};
use sample::{DomainFacts, HostFacts, Known, Origin, Sample};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use session::{Limits, Recorder, Session};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use testkit::random::{Random, RandomHost, storming};
use testkit::{Fixture, Host};

/// What one forged recording may take, in a debug build on a busy machine: it takes some
/// milliseconds.
const LONGEST: Duration = Duration::from_secs(60);
const SIZES: [(u16, u16); 4] = [(80, 24), (200, 60), (40, 10), (1, 1)];

/// A sample as values that can be changed.
#[derive(Clone)]
struct Parts {
    sample: Value,
    host: Value,
    domains: Vec<Value>,
}

impl Parts {
    fn of(mut sample: Sample) -> Self {
        // JSON's numbers have 64 bits.
        squares(&mut sample, None);
        let domains = sample
            .domains
            .iter()
            .map(|d| serde_json::to_value(&*d.facts).unwrap())
            .collect();
        let host = serde_json::to_value(&*sample.host.facts).unwrap();
        Self {
            sample: serde_json::to_value(&sample).unwrap(),
            host,
            domains,
        }
    }

    /// Changes a value, or nothing where no sample could hold the new one.
    fn forge(&mut self, r: &mut Random) {
        match r.next() % 8 {
            0 | 1 => forge_as::<HostFacts>(&mut self.host, r),
            2 => forge_as::<DomainFacts>(&mut self.domains[(r.next() % 3) as usize], r),
            _ => forge_as::<Sample>(&mut self.sample, r),
        }
    }

    fn sample(&self, sum_sq: u128) -> Sample {
        let mut sample = Sample::deserialize(&self.sample).unwrap();
        squares(&mut sample, Some(sum_sq));
        sample.host.facts = Arc::new(HostFacts::deserialize(&self.host).unwrap());
        let facts: Vec<_> = self
            .domains
            .iter()
            .map(|d| Arc::new(DomainFacts::deserialize(d).unwrap()))
            .collect();
        for (n, domain) in sample.domains.iter_mut().enumerate() {
            domain.facts = facts[n % facts.len()].clone();
        }
        sample
    }
}

fn forge_as<T: DeserializeOwned>(value: &mut Value, r: &mut Random) {
    let before = value.clone();
    forge(value, r);
    if T::deserialize(&*value).is_err() {
        *value = before;
    }
}

fn squares(sample: &mut Sample, to: Option<u128>) {
    for t in sample.domains.iter_mut().flat_map(|d| &mut d.threads) {
        let timings = t.events.exits.iter_mut().map(|c| &mut c.time);
        let timings = timings
            .chain(t.events.accesses.iter_mut().map(|c| &mut c.time))
            .chain(t.events.wakeups.as_deref_mut());
        timings.for_each(|timing| timing.sum_sq = to);
    }
}

/// Changes one value somewhere in it: a figure to an extreme, a list's length or order, a text.
fn forge(value: &mut Value, r: &mut Random) {
    match value {
        Value::Array(list) if !list.is_empty() => {
            let at = (r.next() % list.len() as u64) as usize;
            match r.next() % 24 {
                0 => list.reverse(),
                1 => drop(list.remove(at)),
                2 => list.push(list[at].clone()),
                3 => list.extend(std::iter::repeat_n(list[at].clone(), 40)),
                _ => forge(&mut list[at], r),
            }
        }
        Value::Object(fields) if !fields.is_empty() => {
            let at = (r.next() % fields.len() as u64) as usize;
            let name = fields.keys().nth(at).unwrap().clone();
            if r.next().is_multiple_of(40) {
                let value = fields[&name].clone();
                fields.insert(
                    ["4294967295", "9999", "\u{1b}[2J\u{202e}", ""][at % 4].into(),
                    value,
                );
            }
            forge(fields.get_mut(&name).unwrap(), r);
        }
        Value::String(text) => {
            let texts = [
                "",
                "0-8191",
                "0",
                "8191",
                "^0",
                "\u{1b}]0;x\u{7}\u{9b}\u{202e}",
                "a\nb\tc",
                "-18446744073709551616",
            ];
            *text = match r.next() % 10 {
                n @ 0..8 => texts[n as usize].into(),
                8 => "x".repeat(70_000),
                _ => text.repeat(2),
            };
        }
        other => *other = figure(r),
    }
}

fn figure(r: &mut Random) -> Value {
    const FIGURES: [u64; 14] = [
        0,
        1,
        2,
        127,
        4096,
        8191,
        8192,
        u32::MAX as u64 - 1,
        u32::MAX as u64,
        1 << 32,
        1 << 53,
        i64::MAX as u64,
        1 << 63,
        u64::MAX,
    ];
    match r.next() % 8 {
        0 => Value::Null,
        1 => [i64::MIN, i64::from(i32::MIN), -1][(r.next() % 3) as usize].into(),
        2 => (r.next() >> (r.next() % 64)).into(),
        3 => f64::MAX.into(),
        _ => FIGURES[(r.next() % 14) as usize].into(),
    }
}

/// A host with all that a sample can hold.
fn samples() -> Vec<Sample> {
    const XML: &str = include_str!("../fixtures/forged/guest.xml");
    let mut random = RandomHost::new(5, 1, 1, |_, r| storming(r));
    // Few CPUs and guests: forging takes most of the time.
    let fixture = Fixture {
        host: Host::numa(2, 2, 2).isolated("2-3"),
        ..Fixture::busy_host()
    };
    let samples = (0..3).map(|second| {
        let mut sample = fixture.sample(f64::from(second));
        let other = random.tick();
        (
            sample.host.kernel_log,
            sample.host.tasks,
            sample.host.memory,
        ) = (other.host.kernel_log, other.host.tasks, other.host.memory);
        sample.domains.truncate(2);
        sample.domains.extend(other.domains);
        let facts = Arc::make_mut(&mut sample.domains[0].facts);
        facts.xml = Some(Known::new(
            Arc::new(domain_xml::parse(XML).unwrap()),
            Origin::Libvirt,
        ));
        let command = "qemu-system-x86_64 -name guest=g -smp 4,sockets=1,cores=2,threads=2 -m 4096";
        facts.command = Some(Arc::new(cmdline::parse_text(command).unwrap()));
        sample
    });
    samples.collect()
}

/// A recording of these samples, through everything that reads one.
fn read_whole(path: &Path, samples: &[Sample], size: (u16, u16), r: &mut Random) {
    let _ = std::fs::remove_file(path);
    let mut recorder = Recorder::create(path, Limits::default()).unwrap();
    samples
        .iter()
        .for_each(|sample| recorder.append(sample).unwrap());
    recorder.close().unwrap();
    let mut cursor = Session::open(path).unwrap().cursor();
    for time in [i64::MIN, 0, i64::MAX] {
        let _ = (
            cursor.index_at(time),
            cursor.index_from(time),
            cursor.begins_run(0),
            cursor.session().damage(),
        );
    }
    whole::show(&mut cursor, size, &[r.next() as u8, r.next() as u8]);
}

/// Makes hostile what is a text in a sample: each string, and each key of a map, that may be any.
fn taint<T: DeserializeOwned>(whole: &mut Value) {
    const HOSTILE: &str = "a\u{7f}\u{9b}31m\u{202e}\u{200f}\u{2067}\u{e0041}\u{fe0f}\u{1b}[2J\u{1b}]0;x\u{7}\r\n\tb\u{85}";
    const MAPS: [&str; 6] = [
        "counters",
        "kvm_events",
        "params",
        "features",
        "cpu_features",
        "hyperv",
    ];
    for place in strings(whole, "") {
        let Some(Value::String(text)) = whole.pointer_mut(&place) else {
            continue;
        };
        let before = std::mem::replace(text, format!("{text}{HOSTILE}"));
        if T::deserialize(&*whole).is_err() {
            whole
                .pointer_mut(&place)
                .unwrap()
                .clone_from(&Value::String(before));
        }
    }
    let mut values = vec![whole];
    while let Some(value) = values.pop() {
        match value {
            Value::Array(list) => values.extend(list),
            Value::Object(fields) => {
                for (_, map) in fields
                    .iter_mut()
                    .filter(|(name, _)| MAPS.contains(&name.as_str()))
                {
                    let Value::Object(map) = map else { continue };
                    *map = std::mem::take(map)
                        .into_iter()
                        .map(|(key, v)| (format!("{key}{HOSTILE}"), v))
                        .collect();
                }
                values.extend(fields.values_mut());
            }
            _ => {}
        }
    }
}

/// The places of all strings.
fn strings(value: &Value, at: &str) -> Vec<String> {
    match value {
        Value::String(_) => vec![at.to_owned()],
        Value::Array(list) => list
            .iter()
            .enumerate()
            .flat_map(|(n, v)| strings(v, &format!("{at}/{n}")))
            .collect(),
        Value::Object(fields) => {
            let below = |(name, v): (&String, &Value)| {
                strings(
                    v,
                    &format!("{at}/{}", name.replace('~', "~0").replace('/', "~1")),
                )
            };
            fields.iter().flat_map(below).collect()
        }
        _ => Vec::new(),
    }
}

#[test]
fn no_text_acts_on_a_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let tainted: Vec<Sample> = samples()
        .into_iter()
        .map(|sample| {
            let mut parts = Parts::of(sample);
            taint::<Sample>(&mut parts.sample);
            taint::<HostFacts>(&mut parts.host);
            parts.domains.iter_mut().for_each(taint::<DomainFacts>);
            parts.sample(0)
        })
        .collect();
    assert!(
        tainted[0].domains[0].facts.name.value.contains('\u{202e}'),
        "names are tainted"
    );
    for (n, size) in SIZES.into_iter().cycle().take(12).enumerate() {
        read_whole(
            &dir.path().join("tainted"),
            &tainted,
            size,
            &mut Random::new(n as u64),
        );
    }
}

fn forged(seed: u64, times: u64) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("forged");
    let whole: Vec<Parts> = samples().into_iter().map(Parts::of).collect();
    for n in 0..times {
        let r = &mut Random::new(seed + n);
        // The same change in all samples, or another one in each.
        let (seed, alike, changes, sum_sq) = (
            r.next(),
            r.next().is_multiple_of(2),
            1 + r.next() % 6,
            r.next() % 3,
        );
        let forged: Vec<Sample> = whole
            .iter()
            .enumerate()
            .map(|(place, parts)| {
                let mut parts = parts.clone();
                let r = &mut Random::new(if alike { seed } else { seed ^ place as u64 });
                (0..changes).for_each(|_| parts.forge(r));
                parts.sample([0, 1, u128::MAX][sum_sq as usize])
            })
            .collect();
        let begin = Instant::now();
        let done = std::panic::catch_unwind(|| {
            read_whole(&path, &forged, SIZES[(n % 4) as usize], &mut Random::new(n));
        });
        assert!(done.is_ok(), "recording {n} of seed {seed}");
        assert!(
            begin.elapsed() < LONGEST,
            "recording {n} took {:?}",
            begin.elapsed()
        );
    }
}

#[test]
fn no_figure_stops_a_report_or_a_screen() {
    forged(1, 100);
}

/// `cargo test --test it forged_recordings -- --ignored`: some minutes.
#[test]
#[ignore = "takes minutes"]
fn no_figure_stops_a_report_or_a_screen_at_length() {
    forged(1_000_000, 20_000);
}
