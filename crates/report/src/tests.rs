//! Order of the JSON's keys, and snapshots of the text output.

use super::document::JsonDocument;
use super::table::{COLUMNS, wrapped};
use super::{View, diff, diff_text, json, text};
use judge::analysis::{DomainFilter, JudgedInterval, Pattern};
use judge::figures;
use judge::lint::{
    CannotTell, Confidence, Finding, Fix, FixKind, Lasting, Report, RuleId, Severity, StillWatched,
    Target,
};
use judge::model::{Base, Model, TaskGroup, UserspaceExits};
use judge::testing::FixtureModel as _;
use sample::{Direction, EngineKind, SourceId, SourceStatus};
use serde_json::Value;
use testkit::{Fixture, Guest, Host};

pub(super) fn assert_same(what: &str, got: &str) {
    insta::with_settings!({
        snapshot_path => concat!(env!("CARGO_MANIFEST_DIR"), "/../../snapshots"),
        prepend_module_to_snapshot => false,
    }, { insta::assert_snapshot!(format!("report__{what}"), got) });
}

fn finding(severity: Severity, domain: Option<&str>) -> Finding {
    Finding {
        rule: RuleId::AcpiPmTimer,
        severity,
        confidence: Confidence::High,
        domain: domain.map(Into::into),
        target: if domain.is_some() {
            Target::Domain
        } else {
            Target::Host
        },
        title: "The guest keeps time by reading the ACPI PM timer".into(),
        evidence: vec![
            "15 879 reads/s of port 0x608 (acpi-tmr), 45 % of exits".into(),
            "look at: perf kvm stat live".into(),
        ],
        why: "Each read leaves the guest and is served by QEMU.".into(),
        fix: vec![
            Fix {
                kind: FixKind::LibvirtXml,
                text: "<clock>\n  <timer name='hypervclock' present='yes'/>\n</clock>".into(),
                needs: Some("power-off and start of the domain".into()),
                domain: Some("win10-2".into()),
                ..Fix::default()
            },
            Fix {
                kind: FixKind::Command,
                text: "virsh shutdown win10-2".into(),
                ..Fix::default()
            },
            Fix {
                kind: FixKind::Advice,
                text: "Long advice is broken into lines. "
                    .repeat(5)
                    .trim_end()
                    .into(),
                ..Fix::default()
            },
        ],
        see: vec!["https://libvirt.org/formatdomain.html".into()],
        cost: Some(33.2),
        since_ms: Some(1_795_269_700_000),
        lasting: Some(Lasting {
            is_longer: false,
            shown_s: 22.0,
            of_s: 25.0,
            ago_s: 2.0,
        }),
        folded: vec![RuleId::RtcTick],
        ..Finding::default()
    }
}

fn report_of(findings: Vec<Finding>) -> Report {
    let because = "the duration is not known (--duration)".to_string();
    let watching = vec![StillWatched {
        domain: Some("db-prod".into()),
        because: "watched for 1 s; rules look at up to 3 s".into(),
        seen_s: 1.0,
        needed_s: 3.0,
    }];
    let cannot = |rule| CannotTell {
        rule,
        domain: Some("db-prod".into()),
        because: because.clone(),
    };
    Report {
        findings,
        cannot_tell: vec![cannot(RuleId::RtcTick), cannot(RuleId::HpetClock)],
        watching,
        notes: vec!["notes.md: the XML breaks off".into()],
    }
}

/// The keys of each object, in their order.
const KEYS: &[(&str, &str)] = &[
    (
        "",
        "schema tool time interval_s source engine lost_events self sources host domains findings \
         cannot_tell watching notes",
    ),
    ("/self", "cpu_percent rss_bytes late_s"),
    ("/sources/1", "name state cause fix"),
    ("/host", "tasks cpus load memory disks links nodes"),
    (
        "/host/disks/0",
        "name alias stacked read_ops write_ops read_bytes write_bytes mean_us in_flight \
         busy_percent",
    ),
    ("/host/links/0", "name rx_bytes tx_bytes drops speed_mbit"),
    (
        "/host/memory",
        "total_bytes available_bytes guests_bytes other_bytes cache_bytes arc_bytes free_bytes \
         huge_total_bytes huge_free_bytes swap_used_bytes ksm_saved_bytes",
    ),
    ("/host/tasks/0", "comm cpu count"),
    (
        "/host/cpus/0",
        "cpu usr sys guest irq softirq steal iowait idle unsampled node core siblings isolated",
    ),
    (
        "/domains/0",
        "name uuid pid title owner tags vmid vcpus machine persistent guest_os vmm state state_reason cpu threads exits \
         accesses userspace_exits kvm_events counters disks disk_outside_us nics storage \
         cpu_limit_percent memory",
    ),
    ("/domains/0/cpu", "usr sys guest wait"),
    (
        "/domains/0/threads/0",
        "tid comm role vcpu usr sys guest wait cpu affinity migrations migrations_cross_node \
         voluntary_switches involuntary_switches wakeup_p50_us wakeup_p99_us",
    ),
    (
        "/domains/0/exits/0",
        "reason isa code vcpu count rate count_percent time_percent work_percent cpu_percent \
         min_us max_us mean_us p99_us stderr_percent idle",
    ),
    (
        "/domains/0/accesses/0",
        "space address access device device_source vcpu count rate time_percent cpu_percent \
            mean_us",
    ),
    ("/domains/0/userspace_exits/0", "reason vcpu count rate"),
    ("/domains/0/kvm_events/0", "event count rate"),
    (
        "/domains/0/disks/0",
        "name read_ops write_ops read_bytes write_bytes read_mean_us write_mean_us flush_ops \
         flush_mean_us failed_ops queue_depth p99_us max_us limit_percent",
    ),
    (
        "/domains/0/nics/0",
        "name rx_bytes tx_bytes rx_packets tx_packets drops rx_drops queues bridge limit_percent",
    ),
    (
        "/domains/0/memory",
        "resident_bytes hugetlb_bytes swap_bytes balloon_bytes swap_in limit_bytes charged_bytes in_guest",
    ),
    (
        "/findings/0",
        "rule severity confidence domain target title evidence why fix see cost_percent since \
            lasting folded",
    ),
    ("/findings/0/fix/0", "kind text needs domain"),
    ("/cannot_tell/0", "rule domain because"),
    ("/watching/0", "domain because seen_s needed_s"),
    ("/findings/0/lasting", "is_longer shown_s of_s ago_s"),
];

/// A model in which every part of the document has something.
fn full() -> Model {
    let fixture = Fixture::busy_host().source(SourceStatus::missing(
        SourceId::Libvirt,
        "libvirtd does not run",
        "systemctl start libvirtd",
    ));
    let mut model = fixture.model();
    let d = &mut model.domains[0];
    d.kvm_events = [("kvm_set_irq".to_string(), 100)].into();
    d.counters = [
        ("exits".to_string(), 351_826.0),
        ("halt_poll_success_ns".to_string(), 0.0),
    ]
    .into();
    d.userspace = [(None, 2, 256_738), (Some(0), 2, 256_738), (None, -4, 3)]
        .map(|(vcpu, reason, count)| UserspaceExits {
            vcpu,
            reason,
            count,
        })
        .into();
    d.disks = vec![judge::model::DiskRates {
        name: "vda".into(),
        read_ops: 100.0,
        read_mean_us: Some(130.0),
        ..Default::default()
    }];
    d.nics = vec![judge::model::NicRates {
        name: "vnet0".into(),
        ..Default::default()
    }];
    model.host.load = Some(0.5);
    model.host.disks = Some(vec![judge::model::Traced {
        of: sample::WholeDisk {
            name: "nvme0n1".into(),
            reads: 100,
            time_ns: 30_000_000,
            ..Default::default()
        },
        seconds: Some(1.0),
        device: None,
    }]);
    model.host.links = Some(vec![judge::model::Traced {
        of: sample::HostLink {
            name: "eno1".into(),
            ..Default::default()
        },
        seconds: Some(1.0),
        device: None,
    }]);
    model.host.memory = Some(sample::HostMemory {
        total: 64 << 30,
        free: Some(9 << 30),
        cache: Some(12 << 30),
        ..Default::default()
    });
    model.sources.sort_by_key(|s| s.id != SourceId::Tracepoints);
    model
        .sources
        .retain(|s| s.id == SourceId::Tracepoints || s.id == SourceId::Libvirt);
    model
}

#[test]
fn json_keys_keep_their_order() {
    let (model, findings) = (
        full(),
        report_of(vec![finding(Severity::Critical, Some("win10-2"))]),
    );
    let view = View {
        model: &model,
        findings: &findings,
        source: "live",
        filter: &DomainFilter::default(),
    };
    let line = json::line(&view).unwrap();
    assert!(!line.contains('\n'));
    // serde_json sorts the keys of a Value: the order is read from the text.
    let value: Value = serde_json::from_str(&line).unwrap();
    for (path, want) in KEYS {
        let part = value
            .pointer(path)
            .unwrap_or_else(|| panic!("no {path} in {line}"));
        let mut got: Vec<_> = part
            .as_object()
            .unwrap_or_else(|| panic!("{path}"))
            .keys()
            .map(String::as_str)
            .collect();
        let mut want: Vec<_> = want.split_whitespace().collect();
        let first = format!("{{\"{}\":", want[0]);
        let at = line
            .find(&first)
            .unwrap_or_else(|| panic!("{path}: no {first}"));
        let mut after = &line[at..];
        for key in &want {
            let key = format!("\"{key}\":");
            after = after
                .find(&key)
                .map_or_else(|| panic!("{path}: {key} is out of order"), |i| &after[i..]);
        }
        got.sort_unstable();
        want.sort_unstable();
        assert_eq!(got, want, "{path}");
    }
    assert_eq!(value["schema"], 1);
    assert_eq!(value["time"], "2026-11-21T14:04:22.000Z");
    assert_eq!(
        value["sources"][0],
        serde_json::json!({"name": "tracepoints", "state": "ok"})
    );
    assert_eq!(
        value["domains"][0]["userspace_exits"][2]["reason"],
        "restart"
    );
    let mut small = model.clone();
    small.host.cpus.truncate(1);
    small.domains.truncate(1);
    small.domains[0].threads.truncate(1);
    small.domains[0].vcpu_exits.truncate(1);
    let view = View {
        model: &small,
        ..view
    };
    assert_same(
        "json",
        &serde_json::to_string_pretty(&JsonDocument::new(&view)).unwrap(),
    );
}

#[test]
fn the_vcpus_rows_follow_the_guests_row() {
    let model = full();
    let (findings, all) = (Report::default(), DomainFilter::default());
    let document = JsonDocument::new(&View {
        model: &model,
        findings: &findings,
        source: "live",
        filter: &all,
    });
    for d in &document.domains {
        for table in d.exits.chunk_by(|_, next| next.vcpu.is_some()) {
            assert_eq!(table[0].vcpu, None);
            assert!(table.iter().all(|r| r.reason == table[0].reason));
            assert_eq!(
                table[1..].iter().map(|r| r.count).sum::<u64>(),
                table[0].count
            );
            let share: f64 = table[1..].iter().filter_map(|r| r.count_percent).sum();
            assert!(
                (share - table[0].count_percent.unwrap()).abs() < 0.01,
                "a vCPU's share is of the domain's exits"
            );
        }
        for table in d.accesses.chunk_by(|_, next| next.vcpu.is_some()) {
            assert_eq!(table[0].vcpu, None);
            assert_eq!(
                table[1..].iter().map(|r| r.count).sum::<u64>(),
                table[0].count
            );
        }
    }
}

#[test]
fn unknown_values_are_null() {
    let fixture = Fixture::busy_host();
    let model = fixture.first();
    let (findings, all) = (Report::default(), DomainFilter::default());
    let line = json::line(&View {
        model: &model,
        findings: &findings,
        source: "live",
        filter: &all,
    })
    .unwrap();
    let value: Value = serde_json::from_str(&line).unwrap();
    for path in [
        "/interval_s",
        "/self/cpu_percent",
        "/host/cpus/0/idle",
        "/domains/0/cpu/usr",
        "/domains/0/threads/0/guest",
    ] {
        assert_eq!(value.pointer(path), Some(&Value::Null), "{path}");
    }
    for (measured, want) in [
        (None, Value::Null),
        (Some(Vec::new()), serde_json::json!([])),
    ] {
        let mut model = fixture.model();
        model.host.task_groups = measured;
        let view = View {
            model: &model,
            findings: &findings,
            source: "live",
            filter: &all,
        };
        assert_eq!(
            serde_json::from_str::<Value>(&json::line(&view).unwrap()).unwrap()["host"]["tasks"],
            want
        );
        assert!(
            !text::interval(&view, &[], COLUMNS).contains("outside guests"),
            "neither unmeasured nor idle tasks have a line"
        );
    }
    assert_eq!(figures::utc(0), None);
    assert_eq!(figures::utc(i64::MAX), None);
}

#[test]
fn only_selected_guests_are_shown() {
    let model = Fixture::busy_host().model();
    let shared = Finding {
        also: vec!["win10-2".into()],
        ..finding(Severity::Warning, Some("db-prod"))
    };
    let findings = report_of(vec![
        finding(Severity::Critical, Some("win10-2")),
        shared,
        finding(Severity::Info, Some("db-prod")),
        finding(Severity::Info, None),
    ]);
    let domains = DomainFilter {
        patterns: vec![Pattern::new("win*").unwrap(), Pattern::new("nope").unwrap()],
    };
    let view = View {
        model: &model,
        findings: &findings,
        source: "live",
        filter: &domains,
    };
    let document = JsonDocument::new(&view);
    assert_eq!(
        document
            .domains
            .iter()
            .map(|d| d.name.as_str())
            .collect::<Vec<_>>(),
        ["win10-2"]
    );
    let of: Vec<_> = document
        .findings
        .iter()
        .map(|f| f.domain.as_deref())
        .collect();
    let selected = [Some("win10-2"), Some("db-prod"), None];
    assert_eq!(
        of, selected,
        "findings on the host and on the selected guest, also together with another"
    );
    assert_eq!(document.cannot_tell, []);
    let said = document.sources.last().unwrap();
    assert_eq!((said.name, said.state), ("domain", "missing"));

    // The screen gets the same, and the host's CPUs refer to the remaining guests by their new
    // indices.
    let placed = |m: &Model| -> Vec<(String, i32)> {
        let guest_threads = m.host.cpus.iter().flat_map(|c| &c.guest_threads);
        guest_threads
            .map(|t| {
                (
                    m.domains[t.domain].name().to_owned(),
                    m.domains[t.domain].threads[t.thread].tid,
                )
            })
            .collect()
    };
    let mut wanted = placed(&model);
    assert!(wanted.iter().any(|(name, _)| name != "win10-2"));
    wanted.retain(|(name, _)| name == "win10-2");
    let mut interval = JudgedInterval {
        model: model.clone(),
        report: findings.clone(),
    };
    interval.keep_only(&domains);
    let JudgedInterval {
        model: narrowed,
        report: left,
    } = interval;
    assert_eq!(
        left.findings,
        view.selected_findings().cloned().collect::<Vec<_>>()
    );
    assert_eq!((narrowed.domains.len(), placed(&narrowed)), (1, wanted));
    assert_eq!(narrowed.sources, view.sources());
}

#[test]
fn text_of_an_interval() {
    let model = full();
    let findings = report_of(vec![
        finding(Severity::Critical, Some("win10-2")),
        finding(Severity::Warning, None),
    ]);
    let all = DomainFilter::default();
    assert_same(
        "interval",
        &without_clock(&text::interval(
            &View {
                model: &model,
                findings: &findings,
                source: "live",
                filter: &all,
            },
            &[],
            COLUMNS,
        )),
    );
    let one = DomainFilter {
        patterns: vec![Pattern::new("win10-2").unwrap()],
    };
    assert_same(
        "interval_of_one",
        &without_clock(&text::interval(
            &View {
                model: &model,
                findings: &findings,
                source: "live",
                filter: &one,
            },
            &[],
            COLUMNS,
        )),
    );
    let view = View {
        model: &model,
        findings: &findings,
        source: "live",
        filter: &one,
    };
    let quiet = SourceStatus::missing(SourceId::KvmStats, "gone", "look");
    let model = Model {
        sources: vec![quiet.clone()],
        ..model.clone()
    };
    let view = View {
        model: &model,
        ..view
    };
    assert!(text::interval(&view, &[], COLUMNS).contains("kvm-stats missing: gone; look"));
    assert!(
        !text::interval(&view, &[quiet], COLUMNS).contains("kvm-stats missing"),
        "said once"
    );
    let empty = Fixture::empty_host().model();
    let none = Report::default();
    let said = text::interval(
        &View {
            model: &empty,
            findings: &none,
            source: "live",
            filter: &all,
        },
        &[],
        COLUMNS,
    );
    assert!(said.ends_with("no guest is running\n"), "{said}");
    let blind = SourceStatus::degraded(SourceId::Procfs, "hidden", "look");
    let empty = Model {
        sources: vec![blind],
        ..empty
    };
    let said = text::interval(
        &View {
            model: &empty,
            findings: &none,
            source: "live",
            filter: &all,
        },
        &[],
        COLUMNS,
    );
    assert!(
        said.contains("procfs degraded: hidden; look\n") && !said.contains("is running"),
        "{said}"
    );
}

#[test]
fn text_of_a_report() {
    let model = full();
    let findings = report_of(vec![finding(Severity::Critical, Some("win10-2"))]);
    let all = DomainFilter::default();
    assert_same(
        "report",
        &without_clock(&text::report(
            &View {
                model: &model,
                findings: &findings,
                source: "session",
                filter: &all,
            },
            COLUMNS,
        )),
    );
}

#[test]
fn hostile_names_stay_harmless() {
    let mut model = Fixture::hostile_names().model();
    let comm = "x\u{1b}[2J\u{202e}y".into();
    model.host.task_groups = Some(vec![TaskGroup {
        comm,
        cpu_percent: 5.0,
        count: 1,
    }]);
    let mut bad = finding(Severity::Critical, None);
    bad.title = "a\u{1b}[2J\u{202e}b".into();
    let findings = Report {
        findings: vec![bad],
        ..Report::default()
    };
    let all = DomainFilter::default();
    let view = View {
        model: &model,
        findings: &findings,
        source: "live",
        filter: &all,
    };
    for text in [
        text::interval(&view, &[], COLUMNS),
        text::report(&view, COLUMNS),
    ] {
        assert!(
            !text.chars().any(|c| c.is_control() && c != '\n'),
            "{text:?}"
        );
        assert!(!text.contains('\u{202e}'));
        assert!(
            text.contains("\noutside guests, % of a CPU: xy 5.0\n"),
            "{text:?}"
        );
    }
}

/// The text without local times, which differ between machines.
fn without_clock(text: &str) -> String {
    text.split_once("  ")
        .map(|(_, rest)| format!("CLOCK  {rest}"))
        .unwrap_or_default()
}

fn guest(io: f64, apic: f64, mean_us: f64) -> Fixture {
    Fixture::new(Host::numa(1, 4, 1)).guest(Guest::new("win10", 100).vcpus(2, |_, t| {
        t.exits("IO_INSTRUCTION", io, mean_us)
            .exits("APIC_WRITE", apic, 3.0)
            .exits("HLT", 50.0, 900.0)
    }))
}

fn over(fixture: &Fixture, seconds: f64) -> Model {
    Model::new(
        &fixture.sample(seconds),
        Base::Previous(&fixture.sample(0.0)),
    )
}

fn compare(before: &Model, after: &Model, old: &Report, new: &Report) -> diff::Diff {
    let all = DomainFilter::default();
    let view = |model, findings| View {
        model,
        findings,
        source: "session",
        filter: &all,
    };
    diff::compare(&view(before, old), &view(after, new))
}

#[test]
fn changes_and_noise_are_distinguished() {
    let none = Report::default();
    let (before, after) = (
        over(&guest(12_000.0, 500.0, 11.0), 10.0),
        over(&guest(0.0, 505.0, 11.0), 10.0),
    );
    let d = compare(
        &before,
        &after,
        &report_of(vec![finding(Severity::Critical, Some("win10"))]),
        &none,
    );
    assert_eq!(d.cause, "changed");
    assert_eq!(d.findings.gone.len(), 1);
    assert_same("diff", &diff_text::text(&d, COLUMNS));
    assert_same("diff_json", &serde_json::to_string_pretty(&d).unwrap());

    let same = compare(
        &before,
        &over(&guest(12_050.0, 498.0, 11.0), 10.0),
        &none,
        &none,
    );
    assert_eq!(
        (same.cause, same.summary.as_str()),
        ("nothing", "Nothing changed by more than noise.")
    );
}

#[test]
fn a_different_duration_is_no_change() {
    let none = Report::default();
    let fixture = guest(12_000.0, 500.0, 11.0);
    assert_eq!(
        compare(&over(&fixture, 10.0), &over(&fixture, 100.0), &none, &none).cause,
        "nothing"
    );
    let untimed = |seconds: f64| Model::new(&fixture.sample(seconds), Base::Whole(None));
    assert_eq!(
        compare(&untimed(10.0), &untimed(100.0), &none, &none).cause,
        "nothing"
    );
}

#[test]
fn slower_exits_are_a_change() {
    let none = Report::default();
    let d = compare(
        &over(&guest(12_000.0, 500.0, 11.0), 10.0),
        &over(&guest(12_000.0, 500.0, 22.0), 10.0),
        &none,
        &none,
    );
    assert_eq!(d.summary, "win10: rows that changed: 1.");
    let row = &d.domains[0].exits[0];
    assert_eq!(
        (row.reason.as_str(), row.change.mean_us.verdict),
        ("IO_INSTRUCTION", diff::Verdict::More)
    );
}

#[test]
fn inputs_that_cannot_be_compared_are_reported() {
    let none = Report::default();
    let (guest, empty) = (
        over(&guest(1.0, 1.0, 1.0), 10.0),
        Fixture::empty_host().model(),
    );
    assert_eq!(
        compare(&guest, &empty, &none, &none).summary,
        "No guest with exits is in both inputs, so there is nothing to compare."
    );
    let ports = Guest::new("g", 1).vcpus(1, |_, t| t.on(0).pio(0x608, Direction::Read, 100.0, 5.0));
    let ports = Fixture::new(Host::numa(1, 1, 1)).guest(ports).model();
    assert_eq!(
        compare(&ports, &ports, &none, &none).domains[0].work.before,
        None,
        "exits that were not measured"
    );

    // The same cause, reported by another of its rules.
    let led = |rule, folded| {
        report_of(vec![Finding {
            rule,
            folded: vec![folded],
            ..finding(Severity::Warning, Some("g"))
        }])
    };
    let d = compare(
        &ports,
        &ports,
        &led(RuleId::RtcTick, RuleId::AcpiPmTimer),
        &led(RuleId::AcpiPmTimer, RuleId::RtcTick),
    )
    .findings;
    assert_eq!((d.same.len(), d.gone.len(), d.new.len()), (1, 0, 0));
    // Part of a cause stays.
    let alone = report_of(vec![Finding {
        rule: RuleId::VcpuWait,
        ..finding(Severity::Warning, Some("g"))
    }]);
    let d = compare(
        &ports,
        &ports,
        &led(RuleId::PinOverlap, RuleId::VcpuWait),
        &alone,
    )
    .findings;
    assert_eq!((d.same.len(), d.gone.len(), d.new.len()), (1, 0, 0));
    let d = compare(&guest, &empty, &none, &none);
    assert_eq!(d.cause, "not-comparable");
    assert_eq!(d.domains[0].after, None);
}

#[test]
fn another_way_of_measuring_is_said_first() {
    let (none, fixture) = (Report::default(), guest(12_000.0, 500.0, 11.0));
    let (before, mut after) = (over(&fixture, 10.0), over(&fixture, 10.0));
    assert_eq!(compare(&before, &after, &none, &none).conditions, []);
    (after.engine.kind, after.lost) = (EngineKind::Perf, 7);
    let d = compare(&before, &after, &none, &none);
    let what: Vec<_> = d.conditions.iter().map(|c| c.what).collect();
    assert_eq!(what, ["engine", "lost-events"]);
    let text = diff_text::text(&d, COLUMNS);
    assert!(
        text.starts_with("measured differently: engine: bpf before, perf after\n"),
        "{text}"
    );
}

#[test]
fn a_comparison_says_the_kinds_of_input() {
    let (none, fixture) = (Report::default(), guest(12_000.0, 500.0, 11.0));
    let recorded = over(&fixture, 10.0);
    let mut table = recorded.clone();
    table.engine.kind = EngineKind::File;
    let domains = DomainFilter::default();
    let view = |model, source| View {
        model,
        findings: &none,
        source,
        filter: &domains,
    };
    let d = diff::compare(&view(&recorded, "session"), &view(&table, "text"));
    assert_eq!(
        d.conditions.iter().map(|c| c.what).collect::<Vec<_>>(),
        ["source"]
    );
}

#[test]
fn guests_are_matched_by_what_is_theirs() {
    let host = |guests: &[(&str, i32)]| {
        let start = Fixture::new(Host::numa(1, 4, 1));
        let add = |f: Fixture, (name, pid): &(&str, i32)| {
            f.guest(Guest::new(name, *pid).vcpus(1, |_, t| t.exits("HLT", 5.0, 9.0)))
        };
        let mut model = over(&guests.iter().fold(start, add), 10.0);
        for d in &mut model.domains {
            // Another boot: no process is the same.
            std::sync::Arc::make_mut(&mut d.facts).start_ticks = 0;
            std::sync::Arc::make_mut(&mut d.facts).uuid = None;
        }
        model
    };
    let none = Report::default();
    let pairs = |before: &[(&str, i32)], after: &[(&str, i32)]| {
        let d = compare(&host(before), &host(after), &none, &none);
        let pairs = d
            .domains
            .iter()
            .map(|d| format!("{:?} {:?}", d.before, d.after))
            .collect::<Vec<_>>()
            .join(", ");
        (
            pairs.replace("Some(", "").replace(['"', ')'], ""),
            d.unsure.join("; "),
        )
    };
    let (found, unsure) = pairs(
        &[("web", 100), ("alpine-200", 200)],
        &[("alpine-201", 201), ("web", 300)],
    );
    assert_eq!(found, "alpine-200 alpine-201, web web");
    assert_eq!(unsure, "");
    let (found, unsure) = pairs(
        &[("vm-100", 100), ("vm-200", 200)],
        &[("vm-300", 300), ("vm-400", 400)],
    );
    assert_eq!(found, "vm-100 None, vm-200 None, None vm-300, None vm-400");
    assert_eq!(unsure, "'vm' is not compared: several guests could be it");
    // A process id may have been given to another guest since.
    let (found, unsure) = pairs(
        &[("a-100", 100), ("b-200", 200)],
        &[("b-100", 100), ("a-200", 200)],
    );
    assert_eq!(
        (found.as_str(), unsure.as_str()),
        ("a-100 a-200, b-200 b-100", "")
    );
}

#[test]
fn untimed_rows_have_shares() {
    let (none, untimed) = (Report::default(), |io: f64| {
        Model::new(&guest(io, 500.0, 11.0).sample(10.0), Base::Whole(None))
    });
    let text = diff_text::text(
        &compare(&untimed(500.0), &untimed(1500.0), &none, &none),
        COLUMNS,
    );
    assert!(
        text.contains("share %") && !text.contains("per s"),
        "{text}"
    );
}

#[test]
fn findings_are_gone_new_or_changed() {
    let model = over(&guest(10.0, 10.0, 1.0), 10.0);
    let of = |severity| report_of(vec![finding(severity, Some("win10"))]);
    let d = compare(
        &model,
        &model,
        &of(Severity::Warning),
        &of(Severity::Critical),
    );
    assert_eq!(
        (
            d.findings.gone.len(),
            d.findings.new.len(),
            d.findings.changed.len()
        ),
        (0, 0, 1)
    );
    let d = compare(&model, &model, &Report::default(), &of(Severity::Info));
    assert_eq!(d.summary, "Nothing changed by more than noise.");
    let d = compare(&model, &model, &of(Severity::Info), &of(Severity::Info));
    assert_eq!(d.findings.same.len(), 1);
}

#[test]
fn words_of_a_finding_are_as_the_contract_has_them() {
    let json = serde_json::to_value(finding(Severity::Warning, Some("win10-2"))).unwrap();
    assert_eq!(
        (
            json["severity"].as_str(),
            json["confidence"].as_str(),
            json["target"].as_str()
        ),
        (Some("warning"), Some("high"), Some("domain"))
    );
    assert_eq!(json["fix"][0]["kind"], "libvirt-xml");
    assert!(
        json["evidence"][0].is_string()
            && json["see"][0].is_string()
            && json["fix"][0]["needs"].is_string()
    );
}

#[test]
fn a_fix_of_several_sources_is_said_once() {
    let missing = |id| SourceStatus::missing(id, format!("no {}", id.as_str()), "setcap");
    let said = text::complaints(
        &[missing(SourceId::Tracepoints), missing(SourceId::KernelLog)],
        80,
    );
    assert_eq!(
        said,
        "tracepoints missing: no tracepoints; setcap\nkernel-log missing: no kernel-log\n"
    );
}

/// Text keeps to the width of its terminal: only tables and what is to be pasted are wider. No word
/// is broken.
#[test]
fn prose_keeps_to_the_terminal_and_commands_stay_whole() {
    let model = Fixture::busy_host().model();
    let options = judge::lint::Options::default();
    let findings = judge::lint::run(&model, &mut judge::lint::RuleMemory::default(), &options);
    let all = DomainFilter::default();
    let view = View {
        model: &model,
        findings: &findings,
        source: "live",
        filter: &all,
    };
    let host = judge::lint::plan(&model, &options);
    let changed = compare(
        &over(&guest(12_000.0, 500.0, 11.0), 10.0),
        &model,
        &Report::default(),
        &findings,
    );
    let texts = |columns| {
        [
            text::report(&view, columns),
            text::interval(&view, &[], columns),
            super::plan::text(&host, &all, columns),
            diff_text::text(&changed, columns),
        ]
    };
    let words = |text: &str| {
        text.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    for (narrow, wide) in texts(60).iter().zip(texts(100)) {
        assert_eq!(words(narrow), words(&wide), "the same words");
        let long: Vec<&str> = narrow
            .lines()
            .filter(|line| line.chars().count() > 60)
            .collect();
        assert!(
            long.iter()
                .all(|line| wide.lines().any(|other| other == *line)),
            "{long:#?}"
        );
        let is_prose = |line: &&&str| {
            let labels = [
                "critical ",
                "warning ",
                "info ",
                "not judged",
                "CPU ",
                "        ",
                "  seen ",
                "  why ",
                "  fix ",
            ];
            labels.iter().any(|label| line.starts_with(label)) && !line.starts_with("         ")
        };
        assert_eq!(
            long.iter().filter(is_prose).collect::<Vec<_>>(),
            Vec::<&&str>::new()
        );
    }
    let cure = "run it as root, or once: `setcap cap_bpf,cap_perfmon=ep /usr/bin/kvmtop` and again";
    let lines = wrapped(cure, 2, 40);
    assert_eq!(
        lines,
        "run it as root, or once:\n  `setcap cap_bpf,cap_perfmon=ep /usr/bin/kvmtop`\n  and again\n"
    );
}
