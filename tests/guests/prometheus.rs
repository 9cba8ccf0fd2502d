//! The real Prometheus reads what `kvmtop export` serves, and what `assets` has for it. Debian's
//! package is enough; where it is not installed, these say so.

use crate::common;
use crate::common::exporter::{Exporter, answer};
use crate::common::guest::{Guest, Work};
use judge::analysis::Pipeline;
use metrics::{HostMetrics, openmetrics};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use testkit::{Fixture, Host};

const PATIENCE: Duration = Duration::from_secs(90);

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Runs promtool with this input; `None` where it is not installed.
fn promtool(test: &str, args: &[&str], input: &str) -> Option<Output> {
    let child = Command::new("promtool")
        .args(args)
        .current_dir(root().join("assets/prometheus"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(e) => {
            common::skipped(test, &format!("promtool: {e}"));
            return None;
        }
    };
    child
        .stdin
        .take()
        .expect("stdin")
        .write_all(input.as_bytes())
        .expect("it reads");
    Some(child.wait_with_output().expect("it ends"))
}

fn said(out: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr)
    )
}

#[test]
fn alerts_and_recording_rules_do_what_their_tests_say() {
    const TEST: &str = "alerts_and_recording_rules_do_what_their_tests_say";
    let _beside = common::beside_others();
    for args in [
        &[
            "check",
            "rules",
            "kvmtop-recording.yml",
            "kvmtop-alerts.yml",
        ][..],
        &["test", "rules", "kvmtop-alerts.test.yml"],
    ] {
        let Some(out) = promtool(TEST, args, "") else {
            return;
        };
        assert!(out.status.success(), "{}", said(&out));
    }
    common::ran(TEST);
}

/// What `export` serves each half minute of an hour, by series. From minute 10 to 40 a guest
/// storms, a tenth more in every second stretch of 40 s: then one of its joined findings is
/// critical, else none.
fn an_hour_with_a_storm() -> BTreeMap<String, Vec<String>> {
    let host = Fixture::new(Host::numa(2, 9, 2)).guest(Fixture::windows_on_pm_timer());
    let (mut metrics, mut pipeline, mut before) =
        (HostMetrics::new(false), Pipeline::default(), None);
    let (mut hour, mut stormed) = (BTreeMap::<String, Vec<String>>::new(), 0.0);
    for second in 0..=3600_u32 {
        let intensity = if (second / 40).is_multiple_of(2) {
            1.1
        } else {
            1.0
        };
        stormed += if (600..2400).contains(&second) {
            intensity
        } else {
            0.0
        };
        let (mut sample, storm) = (host.sample(second.into()), host.sample(stormed));
        for (thread, stormy) in sample.domains[0]
            .threads
            .iter_mut()
            .zip(&storm.domains[0].threads)
        {
            thread.events = stormy.events.clone();
        }
        let sample = Arc::new(sample);
        let interval = pipeline.next_or_first(sample.clone());
        metrics.add(&sample, before.as_deref(), &interval);
        before = Some(sample);
        if second.is_multiple_of(30) {
            let text = openmetrics(&Arc::new(metrics.clone())).expect("a text");
            let scrapes = second as usize / 30;
            for (series, value) in text
                .lines()
                .filter(|l| !l.starts_with('#'))
                .filter_map(|l| l.rsplit_once(' '))
            {
                let values = hour.entry(series.to_owned()).or_default();
                // Prometheus marks a series that a scrape lacks as stale.
                values.resize(scrapes, "stale".to_owned());
                values.push(value.to_owned());
            }
        }
    }
    hour.values_mut()
        .for_each(|values| values.resize(121, "stale".to_owned()));
    hour
}

/// Checks that each rule holds without a gap while a storm lasts, whichever of the joined ones
/// leads and however severe they are, and that each alert about it fires once.
#[test]
fn a_storm_that_comes_and_goes_fires_each_alert_once() {
    const TEST: &str = "a_storm_that_comes_and_goes_fires_each_alert_once";
    let _beside = common::beside_others();
    let hour = an_hour_with_a_storm();
    let found = |rule: &str, severity: &str| -> Vec<bool> {
        let of_rule = |series: &&str| {
            series.starts_with(&format!(
                "kvmtop_finding{{rule=\"{rule}\",severity=\"{severity}"
            ))
        };
        let all = hour.iter().filter(|(series, _)| of_rule(&series.as_str()));
        (0..121)
            .map(|at| all.clone().any(|(_, values)| values[at] == "1"))
            .collect()
    };
    let runs = |shown: Vec<bool>| shown.chunk_by(|a, b| a == b).filter(|run| run[0]).count();
    let rules = ["acpi-pm-timer", "rtc-tick"];
    for rule in rules {
        assert_eq!(runs(found(rule, "")), 1, "{rule} holds without a gap");
        assert!(
            runs(found(rule, "critical")) > 5,
            "its severity comes and goes"
        );
    }
    let series = hour.iter().map(|(series, values)| {
        let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
        json!({"series": format!("{name}{{job=\"kvmtop\",instance=\"h1\",{labels}"), "values": values.join(" ")})
    });
    let samples = |value: u32| {
        let of_rule =
            rules.map(|rule| format!("{{alertname=\"KvmtopFindingCritical\",rule=\"{rule}\"}}"));
        let all = of_rule
            .into_iter()
            .chain(["{alertname=\"KvmtopPmTimerStorm\"}".to_owned()]);
        all.map(|labels| json!({"labels": labels, "value": value}))
            .collect::<Vec<_>>()
    };
    let at_the_end = |expr: &str, value| json!({"expr": expr, "eval_time": "60m", "exp_samples": samples(value)});
    let fired = "count by (alertname, rule) (count_over_time(ALERTS{alertstate=\"firing\"}[1h]))";
    // Its value is when the alert began.
    let again = "max by (alertname, rule) (changes(ALERTS_FOR_STATE[1h]))";
    let rule_files = ["kvmtop-recording.yml", "kvmtop-alerts.yml"]
        .map(|f| root().join("assets/prometheus").join(f));
    let file = json!({
        "rule_files": rule_files,
        "evaluation_interval": "30s",
        "tests": [{
            "interval": "30s",
            "input_series": series.collect::<Vec<_>>(),
            "promql_expr_test": [at_the_end(fired, 1), at_the_end(again, 0)],
        }],
    });
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("storm.test.yml");
    std::fs::write(&path, file.to_string()).expect("written");
    let Some(out) = promtool(TEST, &["test", "rules", path.to_str().expect("a path")], "") else {
        return;
    };
    assert!(out.status.success(), "{}", said(&out));
    common::ran(TEST);
}

/// Names of metrics of kvmtop in a query.
fn names_in(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || "_:".contains(c)));
    words
        .filter(|word| word.starts_with("kvmtop_") || word.contains(":kvmtop_"))
        .collect()
}

/// Checks that rules and dashboard query only metrics that exist.
#[test]
fn rules_and_dashboard_name_metrics_that_exist() {
    let _beside = common::beside_others();
    let (page, recording) = (
        read("docs/metrics.md"),
        read("assets/prometheus/kvmtop-recording.yml"),
    );
    let mut known = names_in(&page)
        .into_iter()
        .map(ToOwned::to_owned)
        .collect::<BTreeSet<_>>();
    known.extend(
        recording
            .lines()
            .filter_map(|l| l.trim().strip_prefix("- record: "))
            .map(ToOwned::to_owned),
    );
    known.insert("kvmtop_vcpu_wakeup_latency_seconds_bucket".into());
    for file in [
        recording,
        read("assets/prometheus/kvmtop-alerts.yml"),
        read("assets/grafana/kvmtop.json"),
    ] {
        let without_comments: Vec<_> = file
            .lines()
            .filter(|l| !l.trim_start().starts_with('#'))
            .collect();
        let text = without_comments.join("\n");
        let unknown: Vec<_> = names_in(&text)
            .into_iter()
            .filter(|name| !known.contains(*name))
            .collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }
}

/// Every query of the dashboard, with what stands for its variables.
fn queries_of_the_dashboard() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&read("assets/grafana/kvmtop.json")).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels
        .iter()
        .flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let queries: Vec<String> = targets
        .map(|t| t["expr"].as_str().expect("a query").to_owned())
        .collect();
    let variable = |query: String, name: &str, value: &str| query.replace(name, value);
    let queries = queries
        .into_iter()
        .map(|q| variable(q, "$__rate_interval", "1m"));
    queries
        .map(|q| {
            ["$job", "$instance", "$domain"]
                .iter()
                .fold(q, |q, name| variable(q, name, ".*"))
        })
        .collect()
}

/// The structure that Grafana documents (dashboards, "JSON model"): a Grafana to load it into is in
/// no Debian package.
#[test]
fn the_dashboard_has_grafanas_structure() {
    let _beside = common::beside_others();
    let dashboard: Value = serde_json::from_str(&read("assets/grafana/kvmtop.json")).expect("JSON");
    for (key, is_right) in [
        ("title", Value::is_string as fn(&Value) -> bool),
        ("uid", Value::is_string),
        ("schemaVersion", Value::is_u64),
        ("panels", Value::is_array),
        ("templating", Value::is_object),
        ("time", Value::is_object),
        ("annotations", Value::is_object),
    ] {
        assert!(is_right(&dashboard[key]), "{key}");
    }
    let variables = dashboard["templating"]["list"]
        .as_array()
        .expect("variables");
    let names: Vec<_> = variables
        .iter()
        .map(|v| v["name"].as_str().expect("a name"))
        .collect();
    assert_eq!(names, ["datasource", "job", "instance", "domain"]);
    let mut taken = BTreeSet::new();
    let mut ids = BTreeSet::new();
    for panel in dashboard["panels"].as_array().expect("panels") {
        let title = panel["title"].as_str().expect("a title");
        assert!(
            ids.insert(panel["id"].as_u64().expect("an id")),
            "{title}: its id is another's"
        );
        let place = |key: &str| {
            panel["gridPos"][key]
                .as_u64()
                .unwrap_or_else(|| panic!("{title}: {key}"))
        };
        assert!(
            place("x") + place("w") <= 24,
            "{title} is wider than the page"
        );
        for x in place("x")..place("x") + place("w") {
            for y in place("y")..place("y") + place("h") {
                assert!(taken.insert((x, y)), "{title} covers another panel");
            }
        }
        if panel["type"] != "row" {
            assert_eq!(panel["datasource"]["uid"], "${datasource}", "{title}");
            assert!(
                panel["targets"]
                    .as_array()
                    .is_some_and(|targets| !targets.is_empty()),
                "{title}"
            );
        }
    }
    assert!(queries_of_the_dashboard().len() > 25);
}

/// A running Prometheus with its own folder.
struct Prometheus {
    child: Child,
    address: String,
    _folder: tempfile::TempDir,
}

impl Prometheus {
    /// Starts it with a job that scrapes an exporter each second.
    fn start(target: &str) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let rules: Vec<PathBuf> = ["kvmtop-recording.yml", "kvmtop-alerts.yml"]
            .map(|name| root().join("assets/prometheus").join(name))
            .into();
        let mut config = String::new();
        writeln!(
            config,
            "global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: \
             1s}}\nrule_files: {rules:?}\nscrape_configs:\n- job_name: kvmtop\n  static_configs: \
             [{{targets: [{target:?}]}}]"
        )
        .expect("a string takes it");
        let file = folder.path().join("prometheus.yml");
        std::fs::write(&file, config).expect("written");
        let free = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = free.local_addr().expect("an address").to_string();
        drop(free);
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                folder.path().join("data").display()
            ))
            .arg(format!("--web.listen-address={address}"))
            .arg("--log.level=error")
            .stdin(Stdio::null())
            .spawn();
        Some(Self {
            child: child.ok()?,
            address,
            _folder: folder,
        })
    }

    /// The answer of its API; `None` while it does not answer.
    fn ask(&self, path: &str) -> Option<Value> {
        let mut stream = TcpStream::connect(&self.address).ok()?;
        stream
            .write_all(format!("GET /api/v1/{path} HTTP/1.0\r\nHost: a\r\n\r\n").as_bytes())
            .ok()?;
        serde_json::from_str(&answer(&mut stream).body).ok()
    }

    fn query(&self, query: &str) -> Option<Value> {
        let mut path = "query?query=".to_owned();
        query
            .bytes()
            .for_each(|byte| write!(path, "%{byte:02X}").expect("a string takes it"));
        self.ask(&path)
    }

    /// The value of a query with one result.
    fn value(&self, query: &str) -> Option<f64> {
        let answer = self.query(query)?;
        answer["data"]["result"][0]["value"][1]
            .as_str()?
            .parse()
            .ok()
    }

    /// Waits until a query has this value.
    fn wait(&self, query: &str, wanted: f64) {
        let until = Instant::now() + PATIENCE;
        loop {
            let value = self.value(query);
            if value == Some(wanted) {
                return;
            }
            assert!(
                Instant::now() < until,
                "{query} is {value:?}, not {wanted}: {:?}",
                self.ask("targets")
            );
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A real guest reads a port so many times: Prometheus has that number. It evaluates the rules, and
/// understands every query of the dashboard.
#[test]
fn prometheus_scrapes_a_real_host() {
    const TEST: &str = "prometheus_scrapes_a_real_host";
    const READS: u32 = 20_011;
    let _beside = common::beside_others();
    if let Some(why) = common::cannot_trace() {
        return common::skipped(TEST, &why);
    }
    let mut guest = Guest::start(&[Work::PortReads(0x608, READS)], true);
    let pid = guest.pid().to_string();
    let exporter = Exporter::start(&["-d", "0.5", "--no-monitor", "--domain", &pid]);
    let Some(prometheus) = Prometheus::start(&exporter.address) else {
        return common::skipped(TEST, "prometheus is not installed");
    };
    prometheus.wait("up{job=\"kvmtop\"}", 1.0);
    prometheus.wait(&format!("kvmtop_guest_info{{pid=\"{pid}\"}}"), 1.0);
    guest.go();
    guest.wait_done();
    prometheus.wait(
        "sum(kvmtop_accesses_total{space=\"pio\",device=\"acpi-tmr\"})",
        f64::from(READS),
    );
    prometheus.wait(
        "sum(kvmtop_userspace_exits_total{reason=\"KVM_EXIT_IO\"})",
        f64::from(READS),
    );
    prometheus.wait("sum(kvmtop_lost_events_total)", 0.0);
    let metadata = prometheus
        .ask("metadata?metric=kvmtop_vcpu_wait_seconds_total")
        .expect("metadata");
    let about = &metadata["data"]["kvmtop_vcpu_wait_seconds_total"][0];
    let older = prometheus
        .ask("metadata?metric=kvmtop_vcpu_wait_seconds")
        .expect("metadata");
    let about = if about.is_null() {
        &older["data"]["kvmtop_vcpu_wait_seconds"][0]
    } else {
        about
    };
    assert_eq!(
        (&about["type"], &about["unit"]),
        (&"counter".into(), &"seconds".into()),
        "{metadata} {older}"
    );
    for query in queries_of_the_dashboard() {
        let answer = prometheus.query(&query).expect("an answer");
        assert_eq!(answer["status"], "success", "{query}: {answer}");
    }
    let rules = prometheus.ask("rules").expect("rules");
    let groups = rules["data"]["groups"].as_array().expect("groups");
    assert_eq!(groups.len(), 2, "{rules}");
    for rule in groups
        .iter()
        .flat_map(|group| group["rules"].as_array().expect("rules"))
    {
        assert_ne!(rule["health"], "err", "{rule}");
    }
    guest.end();
    prometheus.wait("count(kvmtop_guests) + sum(kvmtop_guests)", 2.0);
    common::ran(TEST);
}

/// The configurations that the page on fleets shows are ones that Prometheus takes.
#[test]
fn the_page_on_fleets_shows_valid_configurations() {
    const TEST: &str = "the_page_on_fleets_shows_valid_configurations";
    let _beside = common::beside_others();
    let page = read("docs/fleet.md");
    let blocks: Vec<&str> = page
        .split("```yaml\n")
        .skip(1)
        .filter_map(|b| b.split("```").next())
        .collect();
    let of_prometheus = blocks
        .iter()
        .filter(|b| b.starts_with("global:") || b.starts_with("remote_write:"));
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("prometheus.yml");
    assert_eq!(blocks.len(), 3);
    for block in of_prometheus {
        std::fs::write(&file, block).expect("written");
        let Some(out) = promtool(
            TEST,
            &[
                "check",
                "config",
                "--syntax-only",
                file.to_str().expect("a path"),
            ],
            "",
        ) else {
            return;
        };
        assert!(out.status.success(), "{block}: {}", said(&out));
    }
    common::ran(TEST);
}
