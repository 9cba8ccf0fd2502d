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

Six things hold for all rules:

- In the first STARTUP s after a guest's start (`startup_guard`), findings about its behaviour have low confidence and
  count one severity less, and an info is left out: it may still boot.
- A guest's behaviour is not judged for RESUME s after a resume or an incoming migration (`resume_guard`), and while it
  is paused.
- Where a figure is missing, a rule reports that it cannot tell, and why.
- Findings that have one cause become one: the timers of a Windows guest with its missing enlightenments, memory faults
  with an inhibited APICv, and the wait of vCPUs with its cause.
- A pattern that lasted is reported until it has been absent for a while: 15 s where its entry names no other time, and
  at most a minute after it last lasted. Severity rises and falls the same way. The evidence is of the newest interval
  in which the pattern showed. A recording is looked back on for a minute: of an older finding it says that it is older.
- A guest that was watched for less time than a rule needs, and a pattern that shows and has not lasted, are listed as
  still watched. `kvmtop check` exits with 3 if a guest was watched for too short a time, unless it found something
  worse.

A share of time in exits leaves out the exits in which the guest sleeps. A cost is the time in exits of one cause,
percent of one host CPU. Most rules about exits report a higher severity when the cost reaches `cost.of_one_cpu` or
`cost.of_vcpus`.
";

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
            let _ = writeln!(out, "- Reported {}.", rule.reported().replace(", until it has not shown for 15 s", ""));
            if !rule.doc.thresholds.is_empty() {
                let names: Vec<String> = rule.doc.thresholds.iter().map(|name| format!("`{name}`")).collect();
                let _ = writeln!(out, "- Thresholds: {}", names.join(", "));
            }
            let _ = writeln!(out, "- Cannot tell: {}.", escaped(rule.doc.limits));
            let _ = writeln!(out, "- Fix changes: {}.", escaped(rule.doc.fix));
        }
    }
    out += "\n## Thresholds\n\nThe config file sets them by name, such as `timers.rtc = { warning = 2000 }` in \
        `[thresholds]`. \"Chosen\" means that no\nmeasurement or document stands behind the value.\n\n\
        | threshold | limits | default | source |\n|---|---|---|---|\n";
    for t in Thresholds::default().list() {
        let _ = writeln!(out, "| `{}` | {} | {} | {} |", t.name, t.about.trim_end_matches('.'), t.value, t.source);
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
    assert!(current == page, "docs/rules.md is not what crates/judge/src/lint makes of it: run `make accept`");
}

#[test]
fn every_threshold_decides_a_rule() {
    for t in Thresholds::default().list() {
        assert!(super::super::rules().any(|r| r.doc.thresholds.contains(&t.name)), "{} decides nothing", t.name);
    }
}
