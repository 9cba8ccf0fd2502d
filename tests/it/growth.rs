//! The cost of a report grows with its input, not with its square: CPU time and memory.

use crate::common::child;
use crate::common::child::ChildCost;
use crate::inputs;
use crate::inputs::MadeInput;
use std::process::Command;
use std::time::Duration;

/// Allowed growth of CPU time for a fourfold input: more than `n log n`, less than a square.
const MOST: f64 = 8.0;
/// Less CPU time says nothing.
const NOISE: Duration = Duration::from_millis(60);
/// Allowed growth of memory for a fourfold input: memory must not grow faster than linearly.
const MAX_MEMORY: f64 = 5.0;
/// Less memory says nothing, bytes: kvmtop itself takes a part of it.
const MEMORY_NOISE: u64 = 24 << 20;
/// A measurement that another load disturbed is repeated.
const TRIES: usize = 4;

/// What one run over an input of size `n` costs.
fn cost(input: &MadeInput, arguments: &[&str], n: usize) -> ChildCost {
    let folder = tempfile::tempdir().unwrap();
    input.write(n, folder.path()).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvmtop"));
    command.args(arguments);
    let sides = if arguments.first() == Some(&"diff") { 2 } else { 1 };
    command.args(vec![folder.path(); sides]);
    let cost = child::measure(&mut command).unwrap();
    // An input can be refused.
    assert!(matches!(cost.status, Some(0 | 1)), "{} of {n} {}: {}", input.name, input.of, cost.said);
    cost
}

fn grows_slowly(kinds: &[&str], arguments: &[&str]) {
    for name in kinds {
        let input = inputs::ALL.iter().find(|i| i.name == *name).expect("a kind of input");
        let mut ratios = Vec::new();
        let fits = (0..TRIES).any(|_| {
            let few = cost(input, arguments, input.small);
            let many = cost(input, arguments, 4 * input.small);
            let memory = many.rss as f64 / few.rss.max(MEMORY_NOISE) as f64;
            assert!(
                memory <= MAX_MEMORY,
                "{name}: four times {} {} took {memory:.1} times the memory",
                input.small,
                input.of
            );
            let ratio = many.cpu.as_secs_f64() / few.cpu.max(NOISE).as_secs_f64();
            ratios.push(ratio);
            ratio <= MOST
        });
        assert!(fits, "{name}: four times {} {} cost {ratios:.1?} times the CPU time", input.small, input.of);
    }
}

const REPORT: &[&str] = &["report", "--json", "--duration", "10s"];

#[test]
fn guests() {
    grows_slowly(&["one CPU", "pinned apart", "Windows", "measured", "command lines"], REPORT);
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
        &["brackets", "attributes", "namespaces", "nested", "wrapped", "listings", "titles", "lscpu columns"],
        REPORT,
    );
}

#[test]
fn logs_and_traces() {
    grows_slowly(&["kernel log", "kernel log, guests", "trace", "trace, threads", "trace, ports"], REPORT);
}

#[test]
fn the_report_as_text() {
    grows_slowly(&["Windows", "vCPU tables", "exits", "trace, threads"], &["report"]);
}

#[test]
fn the_report_of_selected_guests() {
    grows_slowly(&["Windows"], &["report", "--json", "--domain", "guest-*"]);
}

#[test]
fn comparisons() {
    grows_slowly(&["Windows", "measured", "exits", "ports"], &["diff", "--json"]);
}
