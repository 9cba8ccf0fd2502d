use super::*;
use std::fmt::Write as _;

fn text(report: &Report) -> String {
    let mut out = String::new();
    for f in &report.findings {
        let _ = writeln!(
            out,
            "{} {} ({}) {} [{}]",
            f.severity,
            f.rule,
            f.confidence,
            f.domain.as_deref().unwrap_or("host"),
            f.target
        );
        let _ = writeln!(out, "{}", f.title);
        for e in &f.evidence {
            let _ = writeln!(out, "  - {e}");
        }
        let _ = writeln!(out, "why: {}", f.why);
        for x in &f.fix {
            let _ = writeln!(
                out,
                "fix ({}{}):",
                x.kind.as_str(),
                x.needs
                    .as_ref()
                    .map_or_else(String::new, |n| format!("; {n}"))
            );
            for line in x.text.lines() {
                let _ = writeln!(out, "    {line}");
            }
        }
        for s in &f.see {
            let _ = writeln!(out, "see {s}");
        }
        if !f.folded.is_empty() {
            let _ = writeln!(
                out,
                "with {}",
                f.folded
                    .iter()
                    .map(|rule| rule.as_str())
                    .collect::<Vec<_>>()
                    .join(", ")
            );
        }
        let _ = writeln!(out, "cost {:.1?}\n", f.cost);
    }
    for c in &report.cannot_tell {
        let _ = writeln!(
            out,
            "cannot tell {} of {}: {}",
            c.rule,
            c.domain.as_deref().unwrap_or("host"),
            c.because
        );
    }
    out
}

fn snapshot(name: &str, report: &Report) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(concat!(env!("CARGO_MANIFEST_DIR"), "/../../snapshots"));
    settings.set_prepend_module_to_snapshot(false);
    settings.bind(|| insta::assert_snapshot!(format!("lint__{name}"), text(report)));
}

/// Two guests on one CPU, one that moves between nodes next to a host task, a Windows guest of
/// which only the system is known.
#[test]
fn a_busy_host() {
    let pinned = |cpus: &'static [u32]| {
        move |v: u32, t: Thread| t.cpu(48.0, 0.3, 3.1, 46.0).pinned(cpus[v as usize])
    };
    let host = Host::numa(2, 9, 2)
        .isolated("4-8,22-26")
        .task("backup", false, 2, 25.0)
        .task("ksmd", true, 1, 9.0);
    let fixture = Fixture::new(host)
        .guest(
            Guest::new("db", 7001)
                .linux("<iothreads>1</iothreads>")
                .vcpus(2, pinned(&[10, 11])),
        )
        .guest(
            Guest::new("web", 8001)
                .linux("")
                .vcpus(2, pinned(&[11, 12])),
        )
        .guest(Guest::new("build", 9001).vcpus(2, |v, t| {
            t.cpu(88.0, 0.1, 1.0, 8.0)
                .may_run("0-35")
                .on(v + 1)
                .moves(12.0, 6.0, 20)
        }))
        .guest(
            Guest::new("tight", 9501)
                .linux("")
                .vcpus(1, |_, t| t.cpu(70.0, 0.1, 1.0, 12.0).pinned(2)),
        )
        .guest(Fixture::windows_on_pm_timer());
    snapshot("busy_host", &judge(&fixture.model()));
}

#[test]
fn windows_timers() {
    let xml = "<clock offset='localtime'><timer name='hpet' present='no'/></clock>";
    snapshot(
        "windows_timers",
        &judge(&on(Fixture::windows_on_pm_timer().windows(xml)).model()),
    );
}
