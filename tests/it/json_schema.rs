//! What the program prints with `--json` against `docs/kvmtop.schema.json`.
//!
//! The schema refuses fields that it does not name, so that a new field of the program fails here
//! until it is described.

use crate::common;
use crate::common::guest::{Guest, Work};
use jsonschema::Validator;
use sample::{
    DomainState, GuestInterrupts, HostDisk, HostLink, HostTaskGroup, Injection, Job, Pressure,
    ProcessIo, Stop, StopDisk, ThreadEvents, WholeDisk,
};
use serde_json::{Value, json};
use session::{Limits, Recorder, Session};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Part of the schema that describes one command's output.
#[derive(Clone, Copy)]
enum Output {
    Report,
    Diff,
    Doctor,
    Plan,
    Profile,
}

impl Output {
    fn definition(self) -> &'static str {
        match self {
            Self::Report => "report",
            Self::Diff => "diff",
            Self::Doctor => "doctor",
            Self::Plan => "plan",
            Self::Profile => "profile",
        }
    }

    fn validator(self) -> Validator {
        let mut schema = schema();
        let root = schema.as_object_mut().expect("an object");
        root.remove("anyOf");
        root.insert(
            "$ref".into(),
            format!("#/$defs/{}", self.definition()).into(),
        );
        jsonschema::options()
            .should_validate_formats(true)
            .build(&schema)
            .expect("a schema")
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn schema() -> Value {
    let text = std::fs::read_to_string(root().join("docs/kvmtop.schema.json")).expect("the schema");
    serde_json::from_str(&text).expect("JSON")
}

/// Runs kvmtop, validates every line that it prints, and returns the objects.
fn validated(output: Output, validator: &Validator, args: &[&str]) -> Vec<Value> {
    let out = common::kvmtop()
        .args(args)
        .env("XDG_CONFIG_HOME", "/nonexistent")
        .output()
        .expect("kvmtop runs");
    let stderr = String::from_utf8_lossy(&out.stderr);
    let objects = common::intervals(&out.stdout);
    assert!(!objects.is_empty(), "{args:?} printed no JSON: {stderr}");
    for object in &objects {
        let wrong: Vec<String> = validator
            .iter_errors(object)
            .map(|e| format!("{}: {e}", e.instance_path()))
            .take(10)
            .collect();
        assert!(
            wrong.is_empty(),
            "{args:?} is not a {}:\n{}",
            output.definition(),
            wrong.join("\n")
        );
    }
    objects
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// The cases of `tests/fixtures/cases`, unpacked: options and folder of each.
fn cases(into: &Path) -> Vec<(Vec<String>, PathBuf)> {
    let folder = root().join("tests/fixtures/cases");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("cases") {
        let path = entry.expect("an entry").path();
        let case: toml::Table = std::fs::read_to_string(&path)
            .expect("a case")
            .parse()
            .expect("TOML");
        let dir = into.join(path.file_stem().expect("a name"));
        std::fs::create_dir(&dir).expect("a folder");
        for (name, content) in case["files"].as_table().expect("files") {
            std::fs::write(dir.join(name), content.as_str().expect("text")).expect("written");
        }
        let args = case
            .get("args")
            .and_then(toml::Value::as_array)
            .into_iter()
            .flatten();
        found.push((
            args.map(|a| a.as_str().expect("text").to_owned()).collect(),
            dir,
        ));
    }
    found.sort();
    assert!(found.len() > 50);
    found
}

/// Names of all fields, as `finding.since`.
fn fields(value: &Value, schema: &Value, definition: &str, seen: &mut BTreeSet<String>) {
    let Some(object) = value.as_object() else {
        return;
    };
    for (name, inner) in object {
        seen.insert(format!("{definition}.{name}"));
        let property = &schema["$defs"][definition]["properties"][name];
        let of = |p: &Value| {
            p["$ref"]
                .as_str()
                .map(|r| r.trim_start_matches("#/$defs/").to_owned())
        };
        if let Some(definition) = of(property) {
            fields(inner, schema, &definition, seen);
        }
        if let (Some(definition), Some(items)) = (of(&property["items"]), inner.as_array()) {
            items
                .iter()
                .for_each(|item| fields(item, schema, &definition, seen));
        }
    }
}

#[test]
fn the_schema_describes_every_field() {
    let schema = schema();
    assert!(jsonschema::meta::is_valid(&schema));
    for (name, definition) in schema["$defs"].as_object().expect("definitions") {
        assert!(definition["description"].is_string(), "{name}");
        let Some(properties) = definition["properties"].as_object() else {
            continue;
        };
        assert_eq!(
            definition["additionalProperties"],
            json!(false),
            "{name} must refuse unknown fields"
        );
        let required: Vec<&str> = definition["required"]
            .as_array()
            .expect("required")
            .iter()
            .filter_map(Value::as_str)
            .collect();
        for (field, property) in properties {
            let description = property["description"].as_str().unwrap_or_default();
            let any = property["anyOf"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|p| &p["type"]);
            let types = property["type"].as_array().into_iter().flatten();
            let nullable = types.chain(any).any(|t| t == "null");
            assert!(!description.is_empty(), "{name}.{field} has no description");
            assert_eq!(
                nullable,
                description.contains("`null`: "),
                "{name}.{field}: {description}"
            );
            let optional = !required.contains(&field.as_str());
            assert_eq!(
                optional,
                description.contains("Absent: "),
                "{name}.{field}: {description}"
            );
        }
    }
}

#[test]
fn reports_and_comparisons_of_files_are_as_the_schema_says() {
    let (report, diff) = (Output::Report.validator(), Output::Diff.validator());
    let dir = tempfile::tempdir().expect("a folder");
    let (schema, mut seen) = (schema(), BTreeSet::new());
    let mut of_report = |args: &[&str]| {
        let objects = validated(Output::Report, &report, args);
        objects
            .iter()
            .for_each(|o| fields(o, &schema, "report", &mut seen));
    };
    let cases = cases(dir.path());
    for (args, folder) in &cases {
        let mut all = vec!["report", "--json", text(folder)];
        all.extend(args.iter().map(String::as_str));
        of_report(&all);
    }
    let demo = root().join("assets/demo.kvmtop");
    of_report(&["report", "--json", text(&demo)]);
    of_report(&[
        "report",
        "--json",
        text(&with_what_is_asked_for(dir.path())),
    ]);
    // A pattern that matches no guest is a missing source, with a cause and a fix.
    of_report(&["report", "--json", "--domain", "nobody", text(&demo)]);
    of_report(&["replay", "--batch", "--json", text(&demo)]);
    of_report(&[
        "report",
        "--json",
        text(&root().join("tests/fixtures/import/perf_data/compressed.data")),
    ]);
    for pair in cases.chunks_exact(2).take(10) {
        let objects = validated(
            Output::Diff,
            &diff,
            &["diff", "--json", text(&pair[0].1), text(&pair[1].1)],
        );
        objects
            .iter()
            .for_each(|o| fields(o, &schema, "diff", &mut seen));
    }
    // What is only sometimes there must be there once, or the schema describes something that the
    // program never prints.
    for (name, definition) in schema["$defs"].as_object().expect("definitions") {
        let required = definition["required"]
            .as_array()
            .into_iter()
            .flatten()
            .collect::<Vec<_>>();
        for field in definition["properties"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(field, _)| field)
        {
            let optional = !required.contains(&&json!(field));
            assert!(
                !optional || seen.contains(&format!("{name}.{field}")),
                "no output has {name}.{field}"
            );
        }
    }
}

/// Two samples of the demo, with tasks of the host; a guest's block devices were timed, its
/// interrupts traced and its cycles counted; another guest is stopped by a disk.
fn with_what_is_asked_for(folder: &Path) -> PathBuf {
    let mut demo = Session::open(&root().join("assets/demo.kvmtop"))
        .expect("the demo")
        .cursor();
    let path = folder.join("asked.kvmtop");
    let mut recorder = Recorder::create(&path, Limits::default()).expect("a file");
    for at in 0..2 {
        let mut sample = (*demo.at(at).expect("a sample")).clone();
        let rustc = HostTaskGroup {
            comm: "rustc".into(),
            used_ns: 1_750_000_000,
            over_ns: 1_000_000_000,
            count: 4,
        };
        sample.host.task_groups = Some(vec![rustc]);
        sample.host.load = Some(4107);
        sample.domains[0].process_io = Some(ProcessIo::default());
        sample.host.disks = Some(vec![WholeDisk::default()]);
        sample.host.links = Some(vec![HostLink::default()]);
        sample.domains[0].host_disks = Some(vec![HostDisk::default()]);
        let moved = Some(1 << 20);
        let job = Job {
            total: moved,
            remaining: moved,
            rate: moved,
            ..Job::default()
        };
        sample.domains[0].jobs = vec![job];
        sample.host.pressure = Some(Pressure::default());
        sample.domains[0].pressure = sample.host.pressure;
        let injection = Injection {
            count: at as u64 + 1,
            ..Injection::default()
        };
        sample.domains[0].interrupts = Some(GuestInterrupts {
            injections: vec![injection],
            ..GuestInterrupts::default()
        });
        let stopped = sample.domains.last_mut().expect("a guest");
        stopped.threads.clear();
        stopped.unattributed = ThreadEvents::default();
        stopped.state = DomainState::Paused;
        stopped.uncounted_vcpus = 1;
        stopped.stop = Some(Stop {
            disks: vec![StopDisk::default()],
            ..Stop::default()
        });
        recorder.append(&sample).expect("written");
    }
    recorder.close().expect("closed");
    path
}

#[test]
fn live_output_is_as_the_schema_says() {
    const TEST: &str = "live_output_is_as_the_schema_says";
    let (report, doctor) = (Output::Report.validator(), Output::Doctor.validator());
    let mut guest = common::cannot_run_guests()
        .is_none()
        .then(|| Guest::start(&[Work::PacedReads(0x71, 2000), Work::Idle], true));
    guest.iter_mut().for_each(Guest::go);
    let live = ["-d", "0.3", "--no-monitor"];
    let batch = [&["--batch", "--json", "-n", "3", "--kvm-events"], &live[..]].concat();
    let intervals = validated(Output::Report, &report, &batch);
    validated(
        Output::Report,
        &report,
        &[&["check", "--json", "--duration", "1s"], &live[..]].concat(),
    );
    validated(Output::Doctor, &doctor, &["doctor", "--json"]);
    let plan = Output::Plan.validator();
    validated(
        Output::Plan,
        &plan,
        &["plan", "--json", "--engine", "none", "-d", "0.2"],
    );
    match guest {
        Some(guest) => {
            let pid = guest.pid().to_string();
            validated(
                Output::Profile,
                &Output::Profile.validator(),
                &["profile", &pid, "--json", "--duration", "1s"],
            );
            let own = common::of_pid(&intervals, guest.pid());
            assert!(!own.is_empty(), "the guest is in the output");
            common::ran(TEST);
        }
        None => common::skipped(TEST, "no guest runs here: validated without one"),
    }
}
