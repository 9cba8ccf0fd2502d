//! The page holds the report as it is, its series add up to it, and nothing in it is markup but
//! kvmtop's own.

use super::*;
use crate::{View, json};
use judge::analysis::{DomainFilter, JudgedInterval, Pipeline, SessionSummary};
use judge::lint::Options;
use judge::testing::FixtureModel as _;
use kvm::Space;
use sample::Direction;
use serde_json::Value;
use std::sync::Arc;
use testkit::random::{RandomHost, working};
use testkit::{Fixture, Guest, Host};

/// A recording of these samples: its report, and its time line.
fn recorded(
    samples: impl IntoIterator<Item = sample::Sample>,
) -> (JudgedInterval, TimelineBuilder) {
    let mut summary = SessionSummary::new(Pipeline::new(Options::default()));
    let mut timeline = TimelineBuilder::new(DomainFilter::default());
    for (i, sample) in samples.into_iter().enumerate() {
        summary.add_watched(Arc::new(sample), i == 0, |interval| timeline.add(interval));
    }
    (summary.finish(), timeline)
}

fn view<'a>(interval: &'a JudgedInterval, all: &'a DomainFilter) -> View<'a> {
    View {
        model: &interval.model,
        findings: &interval.report,
        source: "session",
        filter: all,
    }
}

fn page_of(samples: impl IntoIterator<Item = sample::Sample>) -> (JudgedInterval, HtmlPage) {
    let (interval, timeline) = recorded(samples);
    let page = page(
        &view(&interval, &DomainFilter::default()),
        timeline,
        "night.kvmtop",
    )
    .unwrap();
    (interval, page)
}

/// The text of an element of the page.
fn element<'a>(page: &'a str, begin: &str, end: &str) -> &'a str {
    page.split_once(begin).unwrap().1.split_once(end).unwrap().0
}

fn data(page: &HtmlPage, id: &str) -> Value {
    let json = element(
        &page.html,
        &format!("<script type=\"application/json\" id=\"{id}\">"),
        "</script>",
    );
    serde_json::from_str(json).unwrap()
}

/// The chart of a guest, of the whole host, or of a vCPU.
fn chart<'a>(charts: &'a Value, id: &str) -> &'a Value {
    charts
        .as_array()
        .unwrap()
        .iter()
        .find(|c| c["id"] == id)
        .unwrap_or_else(|| panic!("no chart {id}"))
}

/// Values of a series times the seconds of their slots.
fn sum(line: &Value, axis: &Value) -> f64 {
    let (values, seconds) = (
        line["mean"].as_array().unwrap(),
        axis["seconds"].as_array().unwrap(),
    );
    values
        .iter()
        .zip(seconds)
        .map(|(v, s)| v.as_f64().unwrap_or(0.0) * s.as_f64().unwrap())
        .sum()
}

fn assert_near(a: f64, b: f64, what: &str) {
    assert!(
        (a - b).abs() <= 2e-4 * b.abs().max(0.01),
        "{what}: {a} and {b}"
    );
}

#[test]
fn the_page_holds_the_report_and_series_that_add_up_to_it() {
    let mut host = RandomHost::new(5, 3, 2, |_, r| working(r));
    let (interval, page) = page_of((0..90).map(|_| host.tick()));
    let all = DomainFilter::default();
    let document = json::line(&view(&interval, &all)).unwrap();
    let (report, data) = (data(&page, "report"), data(&page, "data"));
    assert_eq!(report, serde_json::from_str::<Value>(&document).unwrap());
    assert!(page.notes.is_empty(), "{:?}", page.notes);
    let seconds = report["interval_s"].as_f64().unwrap();
    for guest in data["guests"].as_array().unwrap() {
        let domain = &report["domains"][guest["domain"].as_u64().unwrap() as usize];
        assert_eq!(domain["name"], guest["name"]);
        let axis = &data["axis"];
        for line in chart(&guest["charts"], "cpu")["lines"].as_array().unwrap() {
            let name = line["name"].as_str().unwrap();
            assert_near(
                sum(line, axis) / seconds,
                domain["cpu"][name].as_f64().unwrap(),
                name,
            );
        }
        let exits = domain["exits"].as_array().unwrap();
        let count = |rows: &mut dyn Iterator<Item = &Value>| {
            rows.map(|r| r["count"].as_f64().unwrap()).sum::<f64>()
        };
        let drawn: f64 = chart(&guest["charts"], "exits")["lines"]
            .as_array()
            .unwrap()
            .iter()
            .map(|l| sum(l, axis))
            .sum();
        assert_near(
            drawn,
            count(&mut exits.iter().filter(|e| e["vcpu"].is_null())),
            "exits",
        );
    }
}

#[test]
fn findings_have_the_time_when_they_held() {
    let busy = Fixture::busy_host();
    let (_, page) = page_of((0..40).map(|s| busy.sample(f64::from(s))));
    let (report, data) = (data(&page, "report"), data(&page, "data"));
    let spans = data["spans"].as_array().unwrap();
    assert!(!spans.is_empty());
    for span in spans {
        let finding = &report["findings"][span["finding"].as_u64().expect("its finding") as usize];
        assert_eq!(finding["domain"], span["domain"]);
        assert!(span["begin_ms"].as_i64() <= span["end_ms"].as_i64());
        assert!(span["end_ms"].as_i64() <= data["end_ms"].as_i64());
    }
}

#[test]
fn names_are_data_and_never_markup() {
    let evil = "</script><script>alert(1)</script><img src=x \
        onerror=alert(2)>\u{2028}\u{202e}\"'{{script}}&lt;";
    let fixture =
        Fixture::new(Host::numa(1, 2, 1)).guest(Guest::new(evil, 3000).vcpus(1, |_, t| {
            t.cpu(50.0, 1.0, 1.0, 1.0).exits(evil, 10.0, 1.0).pio(
                0x608,
                Direction::Read,
                20_000.0,
                4.0,
            )
        }));
    let (interval, page) = page_of((0..20).map(|s| fixture.sample(f64::from(s))));
    assert!(
        interval.model.domains[0]
            .name()
            .starts_with("</script><script>alert(1)")
    );
    let html = page.html.to_lowercase();
    assert_eq!(
        (
            html.matches("<script").count(),
            html.matches("</script").count()
        ),
        (3, 3)
    );
    assert_eq!(
        (html.matches("<img").count(), html.matches("<!--").count()),
        (0, 0)
    );
    assert!(!html.contains('\u{202e}') && !html.contains('\u{2028}'));
    assert_eq!(html.matches("<style>").count(), 1);
    // What a person reads is the name without its controls.
    let name = data(&page, "report")["domains"][0]["name"]
        .as_str()
        .unwrap()
        .to_string();
    assert!(
        name.starts_with("</script><script>alert(1)") && name.contains("{{script}}"),
        "{name}"
    );
    let unsafe_words = [
        "http-equiv=\"refresh\"",
        "unsafe-inline",
        "unsafe-eval",
        "src=\"",
        "@import",
        "url(",
    ];
    let shell = html.split_once("id=\"report\"").unwrap().0;
    let shell = shell.split_once("<noscript>").unwrap().0;
    assert!(unsafe_words.iter().all(|w| !shell.contains(w)), "{shell}");
}

#[test]
fn the_policy_allows_the_pages_own_scripts_by_their_hash() {
    use base64::Engine as _;
    use sha2::{Digest as _, Sha256};
    let (_, page) = page_of((0..3).map(|s| Fixture::busy_host().sample(f64::from(s))));
    let policy = element(&page.html, "Content-Security-Policy\" content=\"", "\"");
    for (begin, end) in [("<script>", "</script>"), ("<style>", "</style>")] {
        let digest = Sha256::digest(element(&page.html, begin, end));
        let hash = base64::engine::general_purpose::STANDARD.encode(digest);
        assert!(
            policy.contains(&format!("'sha256-{hash}'")),
            "{begin}: {policy}"
        );
    }
    assert!(policy.starts_with("default-src 'none'; ") && policy.contains("base-uri 'none'"));
    let script = element(&page.html, "<script>", "</script>");
    for word in [
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "fetch(",
        "XMLHttpRequest",
    ] {
        assert!(!script.contains(word), "the page's scripts use {word}");
    }
}

/// Forty guests of eight vCPUs for an hour: at most 5 MB, peaks kept, and said.
#[test]
fn an_hour_of_forty_guests_fits_and_keeps_its_peaks() {
    let guest = |n: i32| {
        Guest::new(&format!("guest-{n}"), 3000 + 100 * n).vcpus(8, |v, t| {
            let t = t
                .cpu(31.257 + f64::from(n), 2.125, 5.333, 1.777)
                .on(v % 4)
                .wakes(97.0, 41.0)
                .moves(0.7, 0.1, 2);
            let t = [
                "EPT_MISCONFIG",
                "IO_INSTRUCTION",
                "HLT",
                "MSR_WRITE",
                "EXTERNAL_INTERRUPT",
                "CPUID",
            ]
            .iter()
            .fold(t, |t, r| t.exits(r, 1000.3 + f64::from(v), 3.7));
            (0..6_u16).fold(t, |t, i| {
                t.access(
                    Space::Pio,
                    0x600 + 0x40 * u64::from(i),
                    Direction::Read,
                    120.7 * f64::from(i + 1),
                    Some(4.4),
                )
            })
        })
    };
    let fixture = (0..40).fold(Fixture::new(Host::numa(2, 4, 2)), |f, n| f.guest(guest(n)));
    let model = judge::model::Model::new(
        &fixture.sample(10.0),
        judge::model::Base::Previous(&fixture.sample(9.0)),
    );
    let mut timeline = TimelineBuilder::new(DomainFilter::default());
    let mut interval = JudgedInterval {
        model,
        ..JudgedInterval::default()
    };
    interval.model.interval_s = Some(3.0);
    for number in 0..1200_i64 {
        interval.model.time_ms += 3000;
        let noise = (number * 7919 % 1000) as f64 / 100.0;
        for d in &mut interval.model.domains {
            let cpu = d.cpu.as_mut().unwrap();
            cpu.guest = if number == 601 { 777.0 } else { 200.0 + noise };
            for t in &mut d.threads {
                t.cpu.iter_mut().for_each(|c| {
                    (c.guest, c.sys) = (
                        if number == 601 { 99.5 } else { 20.0 + noise },
                        3.0 + noise / 7.0,
                    );
                });
            }
        }
        timeline.add(&interval);
    }
    let page = page(
        &view(&interval, &DomainFilter::default()),
        timeline,
        "hour.kvmtop",
    )
    .unwrap();
    assert!(page.html.len() <= 5_000_000, "{}", page.html.len());
    assert!(
        page.html.len() > 2_500_000,
        "more than needed is thinned: {}",
        page.html.len()
    );
    assert!(
        page.notes.iter().any(|n| n.contains("thinned")),
        "{:?}",
        page.notes
    );
    let data = data(&page, "data");
    assert_eq!(data["notes"][0], page.notes[0]);
    for guest in data["guests"].as_array().unwrap() {
        let line = |charts: &Value| chart(charts, "cpu")["lines"][0].clone();
        let top = |values: &Value| {
            values
                .as_array()
                .unwrap()
                .iter()
                .filter_map(Value::as_f64)
                .fold(0.0, f64::max)
        };
        let whole = line(&guest["charts"]);
        assert_near(
            top(whole
                .get("max")
                .filter(|max| max.is_array())
                .unwrap_or(&whole["mean"])),
            777.0,
            "the peak of a guest",
        );
    }
}

/// A day and longer takes no more memory than an hour.
#[test]
fn memory_does_not_grow_with_the_recording() {
    let fixture =
        Fixture::new(Host::numa(1, 2, 1)).guest(Guest::new("g", 3000).vcpus(2, |v, t| {
            t.cpu(50.0, 1.0, 1.0, 1.0).on(v).exits("HLT", 10.0, 1.0)
        }));
    let model = fixture.model();
    let mut interval = JudgedInterval {
        model,
        ..JudgedInterval::default()
    };
    let mut timeline = TimelineBuilder::new(DomainFilter::default());
    for _ in 0..9_000 {
        interval.model.time_ms += 1000;
        timeline.add(&interval);
        assert!(timeline.axis.slots.len() <= 4096);
    }
    let slots: u64 = timeline.axis.slots.iter().map(|s| s.intervals).sum();
    assert_eq!(slots, 9_000);
}

#[test]
fn files_without_time_have_no_charts() {
    let interval = JudgedInterval {
        model: Fixture::busy_host().first(),
        ..JudgedInterval::default()
    };
    let timeline = TimelineBuilder::new(DomainFilter::default());
    let page = page(
        &view(&interval, &DomainFilter::default()),
        timeline,
        "win10.xml",
    )
    .unwrap();
    let data = data(&page, "data");
    assert_eq!(
        (&data["begin_ms"], &data["guests"], &data["host"]),
        (
            &Value::Null,
            &Value::from([0_u8; 0].to_vec()),
            &Value::from([0_u8; 0].to_vec())
        )
    );
}
