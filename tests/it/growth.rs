//! The memory of a report grows with its input, not with its square. Its time is the benchmark
//! `growth`'s.

use crate::common::child;
use crate::common::child::ChildCost;
use crate::inputs;
use crate::inputs::MadeInput;
use std::process::Command;

/// Allowed growth of memory for a fourfold input: memory must not grow faster than linearly.
const MAX_MEMORY: f64 = 5.0;
/// Less memory says nothing, bytes: kvmtop itself takes a part of it.
const MEMORY_NOISE: u64 = 24 << 20;
/// What one run over an input of size `n` costs.
fn cost(input: &MadeInput, arguments: &[&str], n: usize) -> ChildCost {
    let folder = tempfile::tempdir().unwrap();
    input.write(n, folder.path()).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvmtop"));
    command.args(arguments);
    let sides = if arguments.first() == Some(&"diff") {
        2
    } else {
        1
    };
    command.args(vec![folder.path(); sides]);
    let cost = child::measure(&mut command).unwrap();
    // An input can be refused.
    assert!(
        matches!(cost.status, Some(0 | 1)),
        "{} of {n} {}: {}",
        input.name,
        input.of,
        cost.said
    );
    cost
}

fn grows_slowly(kinds: &[&str], arguments: &[&str]) {
    for name in kinds {
        let input = inputs::ALL
            .iter()
            .find(|i| i.name == *name)
            .expect("a kind of input");
        let few = cost(input, arguments, input.small);
        let many = cost(input, arguments, 4 * input.small);
        let memory = many.rss as f64 / few.rss.max(MEMORY_NOISE) as f64;
        let (small, of) = (input.small, input.of);
        assert!(
            memory <= MAX_MEMORY,
            "{name}: four times {small} {of} took {memory:.1} times the memory"
        );
    }
}

const REPORT: &[&str] = &["report", "--json", "--duration", "10s"];

#[test]
fn guests() {
    grows_slowly(
        &[
            "one CPU",
            "pinned apart",
            "Windows",
            "measured",
            "command lines",
        ],
        REPORT,
    );
}

#[test]
fn a_large_guest() {
    grows_slowly(&["vCPU tables", "topology"], REPORT);
}

#[test]
fn tables() {
    grows_slowly(&["exits", "ports", "frames", "repeated tables"], REPORT);
}

#[test]
fn device_maps() {
    grows_slowly(&["mtree -f", "mtree", "mtree aliases"], REPORT);
}

#[test]
fn hostile_shapes() {
    grows_slowly(
        &[
            "brackets",
            "attributes",
            "namespaces",
            "nested",
            "wrapped",
            "listings",
            "titles",
            "lscpu columns",
        ],
        REPORT,
    );
}

#[test]
fn logs_and_traces() {
    grows_slowly(
        &[
            "kernel log",
            "kernel log, guests",
            "trace",
            "trace, threads",
            "trace, ports",
        ],
        REPORT,
    );
}

#[test]
fn the_report_as_text() {
    grows_slowly(
        &["Windows", "vCPU tables", "exits", "trace, threads"],
        &["report"],
    );
}

#[test]
fn the_report_of_selected_guests() {
    grows_slowly(&["Windows"], &["report", "--json", "--domain", "guest-*"]);
}

#[test]
fn comparisons() {
    grows_slowly(
        &["Windows", "measured", "exits", "ports"],
        &["diff", "--json"],
    );
}
