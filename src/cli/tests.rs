//! Command lines and the settings or the exact error that they give.

use super::args::{Cli, Command, EngineChoice};
use super::config::Config;
use super::settings::Settings;
use crate::ui::ThemeChoice;
use ::live::MonitorUse;
use clap::{CommandFactory, Parser};
use judge::analysis::Pattern;
use judge::lint::RuleId;
use std::fmt::Write as _;
use std::time::Duration;

fn parse(line: &str) -> Result<Cli, String> {
    Cli::try_parse_from(std::iter::once("kvmtop").chain(line.split_whitespace())).map_err(|e| {
        assert_eq!(e.exit_code(), 2, "{line}: wrong usage is status 2");
        e.to_string()
    })
}

fn settings(line: &str, config: &str) -> Settings {
    let config = Config::parse(config, std::path::Path::new("c")).unwrap();
    let cli = parse(line).unwrap();
    Settings::new(&config, Some(&cli.sampling), &cli.choice, Some(&cli.screen))
}

fn assert_same(what: &str, got: &str) {
    insta::with_settings!({
        snapshot_path => concat!(env!("CARGO_MANIFEST_DIR"), "/snapshots"),
        prepend_module_to_snapshot => false,
    }, { insta::assert_snapshot!(format!("cli__{what}"), got) });
}

#[test]
fn definitions_are_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn a_monitor_is_asked_through_libvirt_on_request_alone() {
    let (on, off) = (
        "[sampling]\nmonitor = true\n",
        "[sampling]\nmonitor = false\n",
    );
    for (line, file, expected) in [
        ("", "", MonitorUse::OwnSocket),
        ("--monitor", "", MonitorUse::ThroughLibvirt),
        ("--no-monitor", "", MonitorUse::Never),
        ("", on, MonitorUse::ThroughLibvirt),
        ("", off, MonitorUse::Never),
        ("--monitor", off, MonitorUse::ThroughLibvirt),
        ("--no-monitor", on, MonitorUse::Never),
        ("--monitor --no-monitor", "", MonitorUse::Never),
    ] {
        assert_eq!(settings(line, file).monitor, expected, "{line}, {file}");
    }
}

#[test]
fn options_win_over_the_file_and_the_file_over_defaults() {
    let default = settings("", "");
    assert_eq!(default.interval, Duration::from_secs(1));
    assert_eq!(
        (default.engine, default.kvm_events),
        (EngineChoice::Auto, false)
    );
    assert_eq!(default.findings, judge::lint::Options::default());

    let file = "[sampling]\ninterval = 5\nengine = 'none'\nmonitor = false\ndomains = \
                ['a*']\nlibvirt_uri = 'test:///default'\n[findings]\nallow = \
                ['all']\nstartup_guard = 0\n[thresholds]\ntimers.pit = 7.0\n";
    let from_file = settings("", file);
    assert_eq!(from_file.interval, Duration::from_secs(5));
    assert_eq!(from_file.engine, EngineChoice::None);
    assert_eq!(from_file.domains.patterns, [Pattern::new("a*").unwrap()]);
    assert_eq!(from_file.libvirt_uri.as_deref(), Some("test:///default"));
    assert!(from_file.findings.allow.contains(&RuleId::Every));
    assert_eq!(from_file.findings.thresholds.timers.pit.to_string(), "7");
    assert_eq!(from_file.findings.startup_guard_s.to_string(), "0");

    let line = "-d 0.25 --engine perf --domain b --domain c --allow rtc-tick,pit-timer --warn \
                vcpu-wait --libvirt-uri qemu:///session";
    let given = settings(line, file);
    assert_eq!(given.interval, Duration::from_millis(250));
    assert_eq!(given.engine, EngineChoice::Perf);
    assert_eq!(
        given.domains.patterns,
        ["b", "c"].map(|p| Pattern::new(p).unwrap())
    );
    assert_eq!(
        given.findings.allow.into_iter().collect::<Vec<_>>(),
        [RuleId::PitTimer, RuleId::RtcTick]
    );
    assert_eq!(
        given.findings.warn.into_iter().collect::<Vec<_>>(),
        [RuleId::VcpuWait]
    );
    assert_eq!(given.libvirt_uri.as_deref(), Some("qemu:///session"));

    assert_eq!(
        settings("--theme 16", "").screen.theme,
        ThemeChoice::Sixteen
    );
    assert!(
        parse("--theme blue")
            .unwrap_err()
            .contains("[possible values: auto, dark, light, 16, mono]")
    );
}

#[test]
fn commands_take_their_arguments() {
    let Some(Command::Report(r)) = parse("report a b --json --duration 10m --vcpus 8 --at +10m")
        .unwrap()
        .command
    else {
        panic!("report")
    };
    assert_eq!(r.inputs.len(), 2);
    assert_eq!(r.reading.duration, Some(Duration::from_secs(600)));
    assert!(r.reading.json && r.reading.vcpus == Some(8) && r.reading.at.is_some());
    let Some(Command::Check(c)) = parse("check --duration 30s --json -d 2 --domain web-*")
        .unwrap()
        .command
    else {
        panic!("check")
    };
    assert_eq!(
        (c.duration, c.sampling.interval),
        (Some(Duration::from_secs(30)), Some(Duration::from_secs(2)))
    );
    let Some(Command::Record(r)) =
        parse("record f --duration 10m --max-size 500M --max-age 7d --domain a")
            .unwrap()
            .command
    else {
        panic!("record")
    };
    assert_eq!(
        (r.limits.max_size, r.limits.max_age),
        (Some(500 << 20), Some(Duration::from_secs(604_800)))
    );
    assert!(matches!(
        parse("replay f --at 14:03 -b --json -n 3").unwrap().command,
        Some(Command::Replay(_))
    ));
    assert!(matches!(
        parse("replay f --at -5m").unwrap().command,
        Some(Command::Replay(_))
    ));
    assert!(matches!(
        parse("diff a b --duration 10s").unwrap().command,
        Some(Command::Diff(_))
    ));
    assert!(matches!(
        parse("doctor --json").unwrap().command,
        Some(Command::Doctor(_))
    ));
    let batch = parse("-b --json -n 5").unwrap().batch;
    assert!(batch.batch && batch.json && batch.count == Some(5));
}

#[test]
fn errors_of_wrong_usage() {
    let lines = [
        "-d 0",
        "-d 61",
        "-d garbage",
        "-d -1",
        "-d",
        "--interval=0.05",
        "--domain vm[",
        "--engine fast",
        "--warn rtc-tik",
        "--allow nonsense,rtc-tick",
        "--json",
        "-n 3",
        "-b -n 0",
        "-b -n x",
        "--frobnicate",
        "frobnicate",
        "report",
        "report x --vcpus 0",
        "report x --duration ten",
        "report x --at yesterday",
        "diff a",
        "diff a b c",
        "record",
        "check --duration 0s",
        "record f --max-size huge",
        "-b report x",
        "export --listen 9753",
        "export --per-vcpu x",
    ];
    let mut all = String::new();
    for line in lines {
        let error = parse(line).expect_err(line);
        let _ = write!(all, "$ kvmtop {line}\n{}\n\n", error.trim_end());
    }
    assert_same("wrong_usage", &all);
}

/// Every line of help fits into 100 columns.
#[test]
fn help_texts() {
    let mut all = String::new();
    for line in [
        "-h",
        "--help",
        "report -h",
        "report --help",
        "diff -h",
        "check -h",
        "record -h",
        "replay -h",
        "doctor -h",
        "--version",
    ] {
        // Not the width of the terminal that the test happens to run in.
        let command = Cli::command().term_width(100);
        let help = command
            .try_get_matches_from(["kvmtop"].into_iter().chain(line.split(' ')))
            .expect_err("no command");
        assert_eq!(help.exit_code(), 0);
        let text = help.to_string();
        for l in text.lines() {
            assert!(l.chars().count() <= 100, "{line}: {l}");
        }
        let _ = writeln!(all, "$ kvmtop {line}\n{text}");
    }
    assert_same("help", &all);
}

/// The examples of `--help` are command lines that kvmtop takes.
#[test]
fn examples_of_the_help_are_valid() {
    let help = Cli::command().render_long_help().to_string();
    let examples: Vec<_> = help
        .lines()
        .skip_while(|l| *l != "Examples:")
        .skip(1)
        .take_while(|l| !l.is_empty())
        .filter_map(|l| {
            l.strip_prefix("  kvmtop")
                .filter(|rest| rest.starts_with(' '))
        })
        .collect();
    assert!(examples.len() >= 9, "{help}");
    for example in examples {
        // Two or more spaces separate the explanation.
        let command = example.trim_start();
        let command = if example.starts_with("   ") {
            ""
        } else {
            command.split("  ").next().unwrap_or_default()
        };
        let words = command.split_whitespace().map(|w| w.trim_matches('\''));
        if let Err(e) = Cli::try_parse_from(std::iter::once("kvmtop").chain(words)) {
            panic!("kvmtop {command}: {e}");
        }
    }
}
