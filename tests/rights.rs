//! What kvmtop says where a right or a place is missing: the line, the cure and the exit status.
#![allow(missing_docs, clippy::expect_used, clippy::unwrap_used)]

mod common;

use serde_json::Value;
use std::process::{Command, Output};

/// Runs a program that runs kvmtop; `None` if it is not here or may not.
fn under(program: &str, arguments: &[&str]) -> Option<Output> {
    Command::new(program).args(arguments).output().ok().filter(|_| rustix::process::geteuid().is_root())
}

fn said(out: &Output) -> String {
    String::from_utf8_lossy(&out.stderr).into_owned()
}

/// Root without it sees no open files of processes with more rights: guests among them have no name.
#[test]
fn root_without_ptrace_could_not_look() {
    const TEST: &str = "root_without_ptrace_could_not_look";
    let kvmtop = env!("CARGO_BIN_EXE_kvmtop");
    let without = ["--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace"];
    let check = [kvmtop, "check", "--json", "--duration", "1s", "--engine", "none", "--no-monitor", "--allow", "all"];
    let Some(out) = under("setpriv", &[&without[..], &check].concat()) else {
        return common::skipped(TEST, "not root, or no setpriv");
    };
    let Ok(check) = serde_json::from_slice::<Value>(&out.stdout) else {
        return common::skipped(TEST, &format!("setpriv: {}", said(&out)));
    };
    let sources = check["sources"].as_array().expect("sources");
    let procfs = sources.iter().find(|s| s["name"] == "procfs").expect("procfs");
    assert_eq!(procfs["state"], "degraded", "{procfs}");
    let [cause, fix] = ["cause", "fix"].map(|key| procfs[key].as_str().expect("a text"));
    assert!(cause.contains("processes are not readable"), "{cause}");
    assert!(fix.contains("cap_sys_ptrace"), "{fix}");
    assert_eq!(out.status.code(), Some(3), "it could not look: {}", said(&out));
    common::ran(TEST);
}

/// A file system that is read-only refuses the recording before anything is sampled.
#[test]
fn a_read_only_place_is_said() {
    const TEST: &str = "a_read_only_place_is_said";
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().join("place");
    std::fs::create_dir(&place).expect("a folder");
    let script = "mount -t tmpfs -o ro tmpfs \"$1\" || exit 77; exec \"$2\" record --duration 1s \"$1/a.kvmtop\"";
    let place_text = place.to_string_lossy();
    let arguments = ["-m", "sh", "-c", script, "sh", &place_text, env!("CARGO_BIN_EXE_kvmtop")];
    let Some(out) = under("unshare", &arguments) else {
        return common::skipped(TEST, "not root, or no unshare");
    };
    if !matches!(out.status.code(), Some(0..=3)) {
        return common::skipped(TEST, &said(&out));
    }
    assert_eq!(out.status.code(), Some(1), "{}", said(&out));
    assert!(said(&out).contains("Read-only file system"), "{}", said(&out));
    assert!(said(&out).contains("a.kvmtop"), "{}", said(&out));
    common::ran(TEST);
}
