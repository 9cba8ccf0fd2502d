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
                x.needs.as_ref().map_or_else(String::new, |n| format!("; {n}"))
            );
            for line in x.text.lines() {
                let _ = writeln!(out, "    {line}");
            }
        }
        for s in &f.see {
            let _ = writeln!(out, "see {s}");
        }
        if !f.folded.is_empty() {
            let _ = writeln!(out, "with {}", f.folded.iter().map(|rule| rule.as_str()).collect::<Vec<_>>().join(", "));
        }
        let _ = writeln!(out, "cost {:.1?}\n", f.cost);
    }
    for c in &report.cannot_tell {
        let _ = writeln!(out, "cannot tell {} of {}: {}", c.rule, c.domain.as_deref().unwrap_or("host"), c.because);
    }
    out
}

fn snapshot(name: &str, report: &Report) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(concat!(env!("CARGO_MANIFEST_DIR"), "/../../snapshots"));
    settings.set_prepend_module_to_snapshot(false);
    settings.bind(|| insta::assert_snapshot!(format!("lint__{name}"), text(report)));
}

/// Two guests on one CPU, one that moves between nodes next to a host task, a Windows guest of which only the
/// system is known.
#[test]
fn a_busy_host() {
    let pinned = |cpus: &'static [u32]| move |v: u32, t: Thread| t.cpu(48.0, 0.3, 3.1, 46.0).pinned(cpus[v as usize]);
    let host = Host::numa(2, 9, 2).isolated("4-8,22-26").task("backup", false, 2, 25.0).task("ksmd", true, 1, 9.0);
    let fixture = Fixture::new(host)
        .guest(Guest::new("db", 7001).linux("<iothreads>1</iothreads>").vcpus(2, pinned(&[10, 11])))
        .guest(Guest::new("web", 8001).linux("").vcpus(2, pinned(&[11, 12])))
        .guest(
            Guest::new("build", 9001)
                .vcpus(2, |v, t| t.cpu(88.0, 0.1, 1.0, 8.0).may_run("0-35").on(v + 1).moves(12.0, 6.0, 20)),
        )
        .guest(Guest::new("tight", 9501).linux("").vcpus(1, |_, t| t.cpu(70.0, 0.1, 1.0, 12.0).pinned(2)))
        .guest(Fixture::windows_on_pm_timer());
    snapshot("busy_host", &judge(&fixture.model()));
}

#[test]
fn windows_timers() {
    let xml = "<clock offset='localtime'><timer name='hpet' present='no'/></clock>";
    snapshot("windows_timers", &judge(&on(Fixture::windows_on_pm_timer().windows(xml)).model()));
}

/// Commands whose output `kvmtop report` reads (README lists the inputs).
const READ_BY_REPORT: &[&str] = &[
    "journalctl -k",
    "kvm_stat -1",
    "lscpu -e",
    "numactl --hardware",
    "perf kvm stat record",
    "perf kvm stat report",
    "tail -n 50 /var/log/libvirt/qemu/",
    "tr '\\\\0' ' ' < /proc/{pid}/cmdline",
    "trace-cmd record",
    "trace-cmd report",
    "virsh vcpuinfo",
    "virsh vcpupin",
    "{vcpupin}",
    // Commands about one guest, made by `fixes::virsh`.
    "{}",
];

/// Whoever follows a "check:" line can give what it prints to `kvmtop report`.
#[test]
fn what_check_lines_name_is_what_report_reads() {
    let mut unread = Vec::new();
    let lint = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lint");
    let mut folders = vec![lint];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()) {
            if entry.is_dir() {
                folders.extend((!entry.ends_with("tests")).then_some(entry));
                continue;
            }
            let text = std::fs::read_to_string(&entry).unwrap();
            let text = text.split("mod tests").next().unwrap();
            for line in text.split("\"check: ").skip(1) {
                let line = line.split('"').next().unwrap().split("look at: ").next().unwrap();
                let commands = line.split([';', ',']).map(|c| c.trim().trim_start_matches("then "));
                // After a comma or semicolon the line may say what to look for in the output.
                let programs = ["cat ", "grep ", "perf ", "ps ", "taskset ", "trace-cmd ", "virsh ", "watch ", "{"];
                let commands = commands
                    .enumerate()
                    .filter(|(i, c)| (*i == 0 && !c.is_empty()) || programs.iter().any(|p| c.starts_with(p)));
                let unknown = |c: &&str| !READ_BY_REPORT.iter().any(|known| c.starts_with(known));
                unread.extend(commands.map(|(_, c)| c).filter(unknown).map(|c| format!("{}: {c}", entry.display())));
            }
        }
    }
    assert!(unread.is_empty(), "{}", unread.join("\n"));
}
