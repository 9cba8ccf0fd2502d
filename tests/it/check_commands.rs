//! What `report --help` lists is read: the commands that exist here, with what they print here.

use crate::common;
use std::process::{Command, Stdio};

/// Commands of the list of inputs that need no running guest.
const COMMANDS: &[&[&str]] = &[
    &["lscpu"],
    &["lscpu", "-e"],
    &["lscpu", "-p"],
    &["numactl", "-H"],
    &["virsh", "-c", "test:///default", "dumpxml", "test"],
    &["virsh", "-c", "test:///default", "capabilities"],
];

#[test]
fn report_reads_what_the_named_commands_print_here() {
    let (mut ran, mut missing, mut failed) = (0, Vec::new(), Vec::new());
    for command in COMMANDS {
        let (program, args) = command.split_first().unwrap();
        let run = Command::new(program)
            .args(args)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output();
        let Some(out) = run
            .ok()
            .filter(|out| out.status.success() && !out.stdout.is_empty())
        else {
            missing.push(command.join(" "));
            continue;
        };
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("output.txt"), &out.stdout).unwrap();
        let report = common::kvmtop()
            .arg("report")
            .arg(folder.path())
            .output()
            .unwrap();
        ran += 1;
        let said = String::from_utf8_lossy(&report.stderr);
        if !report.status.success() || said.contains("not read") {
            failed.push(format!("{}: {said}", command.join(" ")));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    let name = "report_reads_what_the_named_commands_print_here";
    if ran == 0 {
        common::skipped(
            name,
            &format!("none of these runs here: {}", missing.join("; ")),
        );
    } else {
        common::ran(name);
        missing
            .iter()
            .for_each(|command| println!("SKIPPED {command}: it does not run here"));
    }
}
