//! `docs/rules.md` is made from the table of rules and the thresholds. `make accept` writes it.

use super::*;
use std::fmt::Write as _;

const HEAD: &str = "\
# The rules

Every finding of kvmtop is reported by one of the rules below. This page is made from the table of rules and their
thresholds (`crates/judge/src/lint`); `kvmtop check --list-rules` prints the list.

Each entry says what the rule sees, how long the pattern has to show on a running host (in a file the whole file is the
window), which thresholds decide, what the rule cannot tell or takes for something else, and what the suggested fix
touches. kvmtop never applies a fix. Findings have links to documents. [Thresholds](#thresholds) lists the defaults and
where they come from.

Five things hold for all rules:

- A guest's behaviour is not judged in the first STARTUP s after its start (`startup_guard`), because it may still boot,
  for RESUME s after a resume or an incoming migration (`resume_guard`), and while it is paused.
- Where a figure is missing, a rule reports that it cannot tell, and why.
- Findings that have one cause become one: the timers of a Windows guest with its missing enlightenments, memory faults
  with an inhibited APICv, and the wait of vCPUs with its cause.
- A pattern that lasted is reported until it has been absent for a while: 15 s where its entry names no other time, and
  at most a minute after it last lasted. Severity rises and falls the same way. The evidence is of the newest interval
  in which the pattern showed. A recording is looked back on for a minute: of an older finding it says that it is older.
- A guest that was watched for less time than a rule needs is listed as still watched. `kvmtop check` then exits with 3,
  unless it found something worse.

A share of time in exits leaves out the exits in which the guest sleeps. A cost is the time in exits of one cause,
percent of one host CPU. Most rules about exits report a higher severity when the cost reaches `cost.of_one_cpu` or
`cost.of_vcpus`.
";

/// The name, the doc comment and the default of each threshold, from the source.
fn thresholds() -> Vec<(String, String, String)> {
    let (_, source) = include_str!("../facts/thresholds.rs")
        .split_once("groups! {")
        .unwrap();
    let (mut group, mut about, mut all) = (String::new(), String::new(), Vec::new());
    let (source, _) = source.split_once("\n}\n").unwrap();
    for line in source.lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("/// ") {
            about = format!("{about} {text}");
        } else if let Some((name, value)) = line.split_once(" = ") {
            let name = name.split(':').next().unwrap();
            all.push((
                format!("{group}.{name}"),
                std::mem::take(&mut about),
                value.trim_end_matches(';').to_owned(),
            ));
        } else if let Some((name, _)) = line.split_once(": ") {
            (group, about) = (name.to_owned(), String::new());
        }
    }
    all
}

/// A default as people read it: `Steps::new(NEVER, 10.0, 50.0)` is `warning 10, critical 50`.
fn default_text(value: &str) -> String {
    let numbers = value
        .trim_start_matches("Steps::new")
        .trim_matches(['(', ')'])
        .replace('_', "");
    let numbers: Vec<&str> = numbers
        .split(", ")
        .map(|n| n.trim_end_matches(".0"))
        .collect();
    if !value.starts_with("Steps") {
        return numbers.join(" and ").replace("ENDLESSPERCENT", "90");
    }
    let steps = ["info", "warning", "critical"]
        .into_iter()
        .zip(numbers)
        .filter(|(_, n)| *n != "NEVER");
    steps
        .map(|(step, n)| format!("{step} {n}").replace("ENDLESSPERCENT", "90"))
        .collect::<Vec<_>>()
        .join(", ")
}

/// Text of a rule, with the angle brackets of XML elements as Markdown shows them.
fn escaped(text: &str) -> String {
    text.replace('<', "\\<")
}

fn page() -> String {
    let options = Options::default();
    let mut out = HEAD
        .replace("STARTUP", &options.startup_guard_s.to_string())
        .replace("RESUME", &options.resume_guard_s.to_string());
    for family in FAMILIES {
        let _ = writeln!(out, "\n## {}", family.name);
        for rule in family.rules {
            let _ = writeln!(out, "\n### {}\n", rule.id);
            let _ = writeln!(out, "Sees that {}.\n", escaped(rule.doc.sees));
            let _ = writeln!(
                out,
                "- Reported {}.",
                rule.reported()
                    .replace(", until it has not shown for 15 s", "")
            );
            if !rule.doc.thresholds.is_empty() {
                let names: Vec<String> = rule
                    .doc
                    .thresholds
                    .iter()
                    .map(|name| format!("`{name}`"))
                    .collect();
                let _ = writeln!(out, "- Thresholds: {}", names.join(", "));
            }
            let _ = writeln!(out, "- Cannot tell: {}.", escaped(rule.doc.limits));
            let _ = writeln!(out, "- Fix changes: {}.", escaped(rule.doc.fix));
        }
    }
    out += "\n## Thresholds\n\nThe config file sets them by name, such as `timers.rtc = { warning \
        = 2000 }` in `[thresholds]`. \"Chosen\", or nothing, means\nthat no measurement or \
        document stands behind the value.\n\n| threshold | limits, and where the default comes \
        from | default |\n|---|---|---|\n";
    for (name, about, value) in thresholds() {
        let _ = writeln!(
            out,
            "| `{name}` |{} | {} |",
            about.trim_end_matches('.'),
            default_text(&value)
        );
    }
    out
}

#[test]
fn the_page_of_rules_is_current() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/rules.md");
    let page = page();
    if std::env::var_os("KVMTOP_ACCEPT").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let current = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        current == page,
        "docs/rules.md is not what crates/judge/src/lint makes of it: run `make accept`"
    );
}

#[test]
fn every_threshold_decides_a_rule() {
    let all = thresholds();
    assert!(all.len() > 60, "{}", all.len());
    for (name, ..) in all {
        assert!(
            super::super::rules().any(|r| r.doc.thresholds.contains(&name.as_str())),
            "{name} decides nothing"
        );
    }
}
