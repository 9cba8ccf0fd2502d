//! What the metrics must not get wrong, and the pages made from them.

use super::*;
use judge::analysis::{Pattern, Pipeline};
use judge::lint::{Finding, RuleId};
use kvm::Space;
use sample::{Direction, DomainState, Sample};
use std::collections::BTreeMap;
use std::sync::Arc;
use testkit::{Fixture, Guest, Host};

/// The metrics after these samples.
fn metrics(per_vcpu: bool, samples: impl IntoIterator<Item = Sample>) -> Arc<HostMetrics> {
    let mut pipeline = Pipeline::default();
    let (mut metrics, mut before) = (HostMetrics::new(per_vcpu), None::<Arc<Sample>>);
    for sample in samples {
        let sample = Arc::new(sample);
        let interval = pipeline.next_or_first(sample.clone());
        metrics.add(&sample, before.as_deref(), &interval);
        before = Some(sample);
    }
    Arc::new(metrics)
}

/// The samples of a text by name and labels.
fn values(text: &str) -> BTreeMap<String, f64> {
    let rows = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.rsplit_once(' '));
    rows.map(|(name, value)| (name.to_owned(), value.parse().unwrap()))
        .collect()
}

fn seconds(fixture: &Fixture, count: u32) -> impl Iterator<Item = Sample> {
    (0..=count).map(|second| fixture.sample(f64::from(second)))
}

/// One guest with something of everything.
fn small_host() -> Fixture {
    let mut guest = Fixture::windows_on_pm_timer();
    guest.rest.swap_bytes = Some(0);
    guest.rest.memory.resident = Some(1 << 30);
    Fixture::new(Host::numa(1, 2, 1)).guest(guest)
}

#[test]
fn counters_are_what_the_guest_did() {
    let all = metrics(false, seconds(&small_host(), 10));
    let text = openmetrics(&all).unwrap();
    let values = values(&text);
    let value = |name: &str| values.get(name).copied();
    assert_eq!(value("kvmtop_samples_total"), Some(11.0));
    // Two vCPUs, ten seconds, 7,939.5 reads a second each.
    let timer = r#"kvmtop_accesses_total{domain="win10-2",space="pio",device="acpi-tmr"}"#;
    assert_eq!(value(timer), Some(2.0 * 79_395.0));
    assert_eq!(
        value(r#"kvmtop_exits_total{domain="win10-2",reason="IO_INSTRUCTION"}"#),
        Some(256_738.0)
    );
    assert_eq!(
        value(r#"kvmtop_vcpu_wakeup_latency_seconds_count{domain="win10-2"}"#),
        Some(1040.0)
    );
    let waited = value(r#"kvmtop_vcpu_wait_seconds_total{domain="win10-2"}"#).unwrap();
    assert!((waited - 0.14).abs() < 1e-6, "{waited}");
    let guest = value(r#"kvmtop_vcpu_cpu_seconds_total{domain="win10-2",mode="guest"}"#).unwrap();
    assert!((guest - 23.6).abs() < 1e-6, "{guest}");
    insta::with_settings!({
        snapshot_path => concat!(env!("CARGO_MANIFEST_DIR"), "/../../snapshots"),
        prepend_module_to_snapshot => false,
    }, {
        insta::assert_snapshot!("metrics__one_guest", text);
    });
}

#[test]
fn series_of_each_vcpu_add_up_to_those_of_the_guest() {
    let host = Fixture::busy_host();
    let [together, each] =
        [false, true].map(|per_vcpu| openmetrics(&metrics(per_vcpu, seconds(&host, 5))).unwrap());
    let sum = |text: &str, name: &str| {
        let rows = values(text)
            .into_iter()
            .filter(|(row, _)| row.starts_with(name) && row.contains(r#""win10-2""#));
        rows.map(|(_, value)| value).sum::<f64>()
    };
    for name in [
        "kvmtop_exits_total",
        "kvmtop_exit_seconds_total",
        "kvmtop_vcpu_wait_seconds_total",
    ] {
        let (guest, vcpus) = (sum(&together, name), sum(&each, name));
        assert!(
            guest > 0.0 && (guest - vcpus).abs() <= 1e-9 * guest,
            "{name}: {guest} and {vcpus}"
        );
    }
    assert!(each.contains(r#"kvmtop_exits_total{domain="win10-2",vcpu="7",reason="HLT"}"#));
}

/// The engine's counters begin again when its tables grow, and threads come and go; the guest's
/// counters only grow.
#[test]
fn nothing_falls_while_a_guest_lives() {
    let host = Fixture::busy_host();
    let mut pipeline = Pipeline::default();
    let (mut metrics, mut before, mut last) =
        (HostMetrics::new(true), None::<Arc<Sample>>, BTreeMap::new());
    for second in 0..30_u32 {
        let mut sample = host.sample(f64::from(if second < 15 { second } else { second - 14 }));
        sample.mono_ns += if second < 15 { 0 } else { 14_000_000_000 };
        sample.boot_ns = sample.mono_ns;
        // kvmtop itself runs on.
        sample.own.cpu_ns = u64::from(second);
        if second >= 15 {
            sample.engine.generation = 1;
        }
        for guest in &mut sample.domains {
            guest
                .threads
                .retain(|thread| second % 5 != 3 || thread.tid % 2 == 0);
        }
        let sample = Arc::new(sample);
        let interval = pipeline.next_or_first(sample.clone());
        metrics.add(&sample, before.as_deref(), &interval);
        before = Some(sample);
        let now = values(&openmetrics(&Arc::new(metrics.clone())).unwrap());
        let is_counter = |name: &str| {
            ["_total", "_count", "_bucket", "_sum"]
                .iter()
                .any(|end| name.ends_with(end))
        };
        for (row, value) in now
            .iter()
            .filter(|(row, _)| is_counter(row.split('{').next().unwrap()))
        {
            assert!(
                last.get(row).is_none_or(|old| old <= value),
                "second {second}: {row} fell to {value}"
            );
        }
        last = now;
    }
    assert!(
        last[r#"kvmtop_exits_total{domain="win10-2",vcpu="0",reason="IO_INSTRUCTION"}"#]
            > 100_000.0
    );
}

#[test]
fn a_guest_that_ended_leaves_and_equal_names_differ() {
    let mut host = Fixture::busy_host();
    let twin = Guest::new("web-1", 9001).vcpus(1, |_, t| t.on(0).cpu(1.0, 0.0, 0.0, 0.0));
    host.guests.truncate(1);
    host = host.guest(Guest::new("web-1", 9000)).guest(twin);
    let first = host.sample(1.0);
    host.guests[0].state = DomainState::Ended;
    let all = metrics(false, [first, host.sample(2.0)]);
    assert_eq!(
        all.guests.keys().collect::<Vec<_>>(),
        ["web-1", "web-1#9001"]
    );
    assert!(!openmetrics(&all).unwrap().contains("win10-2"));
    // Another user's guest, though it came first.
    let samples = [3.0, 4.0].map(|second| {
        let mut sample = host.sample(second);
        let theirs = sample
            .domains
            .iter_mut()
            .find(|d| d.facts.pid == Some(9000))
            .unwrap();
        Arc::make_mut(&mut theirs.facts).foreign = true;
        sample
    });
    let all = metrics(false, samples);
    assert_eq!(all.guests["web-1"].facts.pid, Some(9001));
}

#[test]
fn only_selected_guests_are_served() {
    let host = Fixture::busy_host();
    let mut pipeline = Pipeline::default();
    let sample = Arc::new(host.sample(1.0));
    let mut interval = pipeline.next_or_first(sample.clone());
    interval.keep_only(&judge::analysis::DomainFilter {
        patterns: vec![Pattern::new("win*").unwrap()],
    });
    let mut metrics = HostMetrics::new(false);
    metrics.add(&sample, None, &interval);
    assert_eq!(metrics.guests.len(), 1);
}

#[test]
fn findings_have_their_rule_their_guest_and_since_when() {
    let text = openmetrics(&metrics(false, seconds(&Fixture::busy_host(), 90))).unwrap();
    let found = r#"{rule="acpi-pm-timer",severity="warning",domain="win10-2"}"#;
    assert!(text.contains(&format!("kvmtop_finding{found} 1")), "{text}");
    assert!(text.contains(&format!(
        "kvmtop_finding_since_timestamp_seconds{found} 1795"
    )));
}

/// Which of joined rules names the finding changes from sample to sample, and an alert would begin
/// again each time.
#[test]
fn every_rule_that_holds_has_its_own_series() {
    let sample = Arc::new(Fixture::busy_host().sample(1.0));
    let mut interval = Pipeline::default().next_or_first(sample.clone());
    let folded = Finding {
        rule: RuleId::RtcTick,
        folded: vec![RuleId::AcpiPmTimer],
        ..Finding::default()
    };
    interval.report.findings = vec![folded];
    let mut metrics = HostMetrics::new(false);
    metrics.add(&sample, None, &interval);
    let rules: Vec<&str> = metrics.findings.keys().map(|(rule, ..)| *rule).collect();
    assert_eq!(rules, ["acpi-pm-timer", "rtc-tick"]);
}

#[test]
fn names_cannot_break_the_text() {
    let mut guest = Fixture::windows_on_pm_timer();
    guest.facts.name.value = "a\"} 1\n\\kvmtop_fake{x=\"".into();
    let host = Fixture::new(Host::numa(1, 2, 1)).guest(guest);
    let text = openmetrics(&metrics(false, seconds(&host, 2))).unwrap();
    assert!(
        text.lines()
            .all(|line| !line.starts_with("kvmtop_fake") && !line.starts_with('\\')),
        "{text}"
    );
    assert!(text.contains(r#"a\"} 1"#));
}

/// 200 guests of 8 vCPUs, each with as many devices, reasons, disks and interfaces as have series.
fn large_host() -> Fixture {
    let mut host = Fixture::new(Host::numa(2, 32, 2));
    for number in 0..200 {
        let mut guest = Guest::new(&format!("customer-{number:04}-web"), 10_000 + 100 * number)
            .mtree()
            .vcpus(8, |v, t| {
                let mut t = t
                    .on(v)
                    .cpu(30.0, 1.0, 2.0, 0.5)
                    .wakes(50.0, 40.0)
                    .moves(1.0, 0.0, 0)
                    .userspace(2, 100.0);
                for reason in [
                    "HLT",
                    "IO_INSTRUCTION",
                    "MSR_WRITE",
                    "EPT_MISCONFIG",
                    "EXTERNAL_INTERRUPT",
                    "CPUID",
                ] {
                    t = t.exits(reason, 100.0, 5.0);
                }
                for port in [
                    0x20, 0x40, 0x60, 0x61, 0x64, 0x70, 0x71, 0x80, 0x3f8, 0x510, 0x608,
                ] {
                    t = t.pio(port, Direction::Read, 10.0, 5.0);
                }
                for msr in [
                    0x10,
                    0x1b,
                    0x6e0,
                    0x830,
                    0x4000_0020,
                    0x4000_0000,
                    0x4b56_4d01,
                    0x175,
                    0x176,
                ] {
                    t = t.access(Space::Msr, msr, Direction::Write, 10.0, Some(2.0));
                }
                t
            });
        guest.rest = small_host().guests[0].rest.clone();
        host = host.guest(guest);
    }
    host
}

#[test]
fn a_large_host_fits() {
    let host = large_host();
    let all = metrics(false, [host.sample(1.0), host.sample(2.0)]);
    let text = openmetrics(&all).unwrap();
    assert!(text.len() < 2 << 20, "{} bytes", text.len());
    let series = |text: &str, guest: &str| text.lines().filter(|line| line.contains(guest)).count();
    assert!(
        series(&text, "customer-0007-web") <= 120,
        "{}",
        series(&text, "customer-0007-web")
    );
    let each = openmetrics(&metrics(true, [host.sample(1.0), host.sample(2.0)])).unwrap();
    assert!(
        series(&each, "customer-0007-web") <= 350,
        "{}",
        series(&each, "customer-0007-web")
    );
}

/// What the page on performance quotes: `cargo test --lib metrics -- --ignored --nocapture`.
#[test]
#[ignore = "measures"]
fn time_of_a_large_host() {
    let host = large_host();
    let all = metrics(false, [host.sample(1.0), host.sample(2.0)]);
    let best = |what: &dyn Fn() -> usize| {
        let run = |_| {
            let began = std::time::Instant::now();
            let bytes = what();
            (began.elapsed(), bytes)
        };
        (0..50).map(run).min().unwrap()
    };
    let (time, bytes) = best(&|| openmetrics(&all).unwrap().len());
    eprintln!("OpenMetrics: {bytes} bytes in {time:?}");
    let (time, guests) = best(&|| HostMetrics::clone(&all).guests.len());
    eprintln!("publishing {guests} guests: {time:?}");
}

const HEAD: &str = "\
# Metrics

What `kvmtop export` serves on `/metrics`. A counter begins at 0 when kvmtop first sees the guest,
never falls while the guest lives, and ends with it. What a source cannot give has no series; it is never 0.

| family | type | labels | what it is |
|---|---|---|---|
";

const TAIL: &str = "
## Labels

- `domain` is the guest's name; where two guests of a host have the same, the PID of one follows: `web#6455`. A guest of
  libvirt or root keeps its name, and among those the one that started first.
  `kvmtop_guest_info` has UUID, PID, machine, system, VMM, title and owner.
- With `--per-vcpu`, families that begin with `kvmtop_vcpu_` and `kvmtop_exit` have the label `vcpu` as well, and
  one series for each vCPU in place of one for all; `vcpu=\"other\"` is what belongs to no known vCPU. `sum without
  (vcpu)` gives the same figures with and without it.
- `device` of an access is the region's name in the guest's `info mtree` (`rtc-index` is part of `rtc`), or the MSR's
  name; `unknown` has no owner.
- `role` is `emulator`, `iothread`, `vhost`, `worker` or `other`. `reason` is the exit reason as the kernel names
  it, and `KVM_EXIT_*` for exits to the VMM.
- `kvmtop_finding` has the number of findings of that rule; a finding about the host has an empty `domain`.

## How many series

A host has about 50 series, a busy guest about 60; a finding has 2. With `--per-vcpu`, each vCPU has 30 to 60.
A guest's disks and interfaces share the gauges above; each by itself is served by libvirt's exporter and
node_exporter.

A guest has at most 20 devices, exit reasons and reasons of exits to the VMM with their own series, and `other` for
the rest; a busy device gets the series of one that was idle for a minute, and at most 128 devices get one in a guest's
life. Guests beyond 1,024 are only counted, in `kvmtop_guests_left_out`.

## Histograms

`kvmtop_vcpu_wakeup_latency_seconds` has classic buckets, each four times as wide as the last. kvmtop measures
in powers of two of 64 ns, which are no boundaries of Prometheus' exponential native histograms: converting would
invent figures. Prometheus 3 stores these buckets as a native histogram with custom buckets when its scrape job says
`convert_classic_histograms_to_nhcb: true`.

## Format

`OpenMetrics` 1.0, which Prometheus 2.5 and later read, over plain HTTP. For TLS and passwords, put a reverse proxy
before it ([fleet.md](fleet.md)).
";

/// Families with their types and help, and the labels that they have.
fn page() -> String {
    let mut samples: Vec<Sample> = seconds(&Fixture::busy_host(), 90).collect();
    let mut small = small_host().guests.remove(0);
    (small.facts.name.value, small.facts.pid) = ("small".into(), Some(4242));
    (small.rest.devices_ns, small.rest.nics_ns) = (1_000_000_000, 1_000_000_000);
    small.rest.disks = vec![sample::DiskSample {
        name: "vda".into(),
        read_ops: 10,
        read_ns: Some(20_000_000),
        ..sample::DiskSample::default()
    }];
    let command = "qemu-system-x86_64 -drive id=vda,iops=40";
    let command = kvm::cmdline::parse_text(command).unwrap();
    small.facts.command = Some(std::sync::Arc::new(command));
    small.rest.nics = vec![sample::NicSample {
        rx_drops: Some(0),
        ..sample::NicSample::default()
    }];
    small.rest.storage = vec![sample::StoredDisk {
        free_bytes: Some(1 << 30),
        ..sample::StoredDisk::default()
    }];
    for (second, sample) in samples.iter_mut().enumerate() {
        let with = Fixture::new(Host::numa(1, 2, 1))
            .guest(small.clone())
            .sample(second as f64);
        sample.domains.extend(with.domains);
    }
    let text = openmetrics(&metrics(false, samples)).unwrap();
    let mut out = HEAD.to_owned();
    let lines: Vec<&str> = text.lines().collect();
    for line in &lines {
        let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|l| l.split_once(' '))
        else {
            continue;
        };
        let kind = lines
            .iter()
            .find_map(|l| l.strip_prefix(&format!("# TYPE {name} ")))
            .unwrap();
        let suffix = match kind {
            "counter" => "_total",
            "info" => "_info",
            "histogram" => "_count",
            _ => "",
        };
        let row = lines.iter().find(|l| {
            l.strip_prefix(&format!("{name}{suffix}"))
                .is_some_and(|rest| rest.starts_with([' ', '{']))
        });
        let labels = row
            .unwrap()
            .split_once('{')
            .map_or("", |(_, labels)| labels.rsplit_once('}').unwrap().0);
        let labels: Vec<_> = labels
            .split("\",")
            .filter_map(|l| l.split_once('='))
            .map(|l| format!("`{}`", l.0))
            .collect();
        let shown = match kind {
            "histogram" => name.to_owned(),
            _ => format!("{name}{suffix}"),
        };
        out.push_str(&format!(
            "| `{shown}` | {kind} | {} | {help} |\n",
            labels.join(", ")
        ));
    }
    out + TAIL
}

#[test]
fn the_page_of_metrics_is_current() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    let page = page();
    if std::env::var_os("KVMTOP_ACCEPT").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let current = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        current == page,
        "docs/metrics.md is not what src/metrics makes of it: run `make accept`"
    );
}
