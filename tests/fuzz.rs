//! Every target of `fuzz/` with damaged inputs of a fixed series: no panic, no overflow, and no more memory and time
//! than an input may cost. `make fuzz` tries far more.
#![allow(missing_docs, clippy::expect_used, clippy::unwrap_used)]

#[path = "synthetic/inputs.rs"]
mod inputs;
mod synthetic;
#[path = "../fuzz/src/targets/mod.rs"]
mod targets;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;
use targets::mutate::Mutator;
use targets::worst::{self, LENGTH};
use targets::{ALL, Target, recordings};

/// An unoptimised build on a busy machine is so many times slower.
const SLOWNESS: u32 = 40;

/// An optimised build that checks overflows, on a busy machine.
const SLOWNESS_OPTIMISED: u32 = 8;

/// Memory is measured for the whole process: one input at a time.
static ONE: Mutex<()> = Mutex::new(());

/// Reads an input; an input that fails is kept. Returns the most bytes of memory that it took.
fn check(target: &Target, input: &[u8], slowness: u32, what: impl FnOnce() -> String) -> usize {
    catch_unwind(AssertUnwindSafe(|| target.check(input, slowness))).unwrap_or_else(|_| {
        let path = std::env::temp_dir().join(format!("kvmtop-fuzz-{}", target.name));
        std::fs::write(&path, input).unwrap();
        panic!("{}: {} fails; it is in {}", target.name, what(), path.display());
    })
}

/// `KVMTOP_FUZZ_FACTOR=8` makes the inputs so long that what each byte may cost outweighs what any input may.
#[test]
fn the_most_that_an_input_can_hold_costs_no_more_than_it_may() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let length = LENGTH * factor();
    for target in ALL {
        let peaks = worst::inputs(target, length).into_iter().enumerate().map(|(n, input)| {
            (
                check(target, &input, SLOWNESS, || format!("worst case {n}")),
                String::from_utf8_lossy(input.get(..20).unwrap_or(&input)).into_owned(),
            )
        });
        let (peak, begin) = peaks.max().unwrap();
        eprintln!("{}: {} bytes for each of {length}, that begin with {begin:?}", target.name, peak / length);
    }
}

fn factor() -> usize {
    std::env::var("KVMTOP_FUZZ_FACTOR").map_or(1, |n| n.parse().expect("a number"))
}

#[test]
fn no_input_breaks_a_reader() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let series = std::env::var("KVMTOP_FUZZ_SERIES").map_or(0, |n| n.parse().expect("a number"));
    let factor = factor();
    for target in ALL {
        let mut mutator = Mutator::new(target, series);
        for (n, seed) in mutator.seeds().to_vec().iter().enumerate() {
            check(target, seed, SLOWNESS, || format!("seed {n}"));
        }
        for (path, input) in target.regressions() {
            check(target, &input, SLOWNESS, || path.display().to_string());
        }
        for n in 0..target.tries * factor {
            let input = mutator.input();
            check(target, &input, SLOWNESS, || format!("input {n} of series {series}"));
        }
    }
}

/// Millions of inputs of a series for each of `KVMTOP_FUZZ_TARGETS`, in that order: `sh fuzz/long.sh` says how. The
/// state of each target is printed as it goes, so that a run which is ended early has its figures too.
#[test]
#[ignore = "takes hours"]
fn millions_of_inputs_break_no_reader() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let variable = |name: &str| std::env::var(name).ok();
    let names =
        variable("KVMTOP_FUZZ_TARGETS").unwrap_or_else(|| ALL.iter().map(|t| t.name).collect::<Vec<_>>().join(" "));
    let inputs: u64 = variable("KVMTOP_FUZZ_INPUTS").map_or(10_000_000, |n| n.parse().expect("a number"));
    let series: u64 = variable("KVMTOP_FUZZ_SERIES").map_or(1, |n| n.parse().expect("a number"));
    let mut failed = Vec::new();
    for name in names.split_whitespace() {
        let target = Target::named(name).expect("a target of this name");
        let begin = Instant::now();
        let mut mutator = Mutator::new(target, series).seldom_long();
        let mut peak = 0;
        for n in 1..=inputs {
            let input = mutator.input();
            let what = || format!("input {n} of series {series}");
            match catch_unwind(AssertUnwindSafe(|| check(target, &input, SLOWNESS_OPTIMISED, what))) {
                Ok(memory) => peak = peak.max(memory),
                Err(_) => {
                    failed.push(name);
                    break;
                }
            }
            if n % 100_000 == 0 || n == inputs {
                eprintln!("{name}: {n} inputs, {} s, at most {} KiB", begin.elapsed().as_secs(), peak >> 10);
            }
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}

#[test]
fn the_page_on_security_names_what_an_input_may_cost() {
    let page = include_str!("../docs/security.md");
    for target in ALL {
        let row = format!("| `{}` | {} |", target.name, target.cost.words());
        assert!(page.contains(&row), "docs/security.md lacks the row {row}");
    }
}

/// Undamaged samples are samples to the reader: what is made of them is tried, not what is made of nothing.
#[test]
fn seeds_are_read() {
    let named = |name: &str| ALL.iter().find(|t| t.name == name).unwrap().seeds();
    for seed in named("whole_report") {
        assert_eq!(recordings::count(&seed), 3);
    }
    for seed in named("whole_screen") {
        assert_eq!(recordings::count(&seed[4..]), 3);
    }
}

#[test]
fn cargo_fuzz_has_every_target() {
    let manifest: toml::Table = include_str!("../fuzz/Cargo.toml").parse().unwrap();
    let bins = manifest["bin"].as_array().unwrap().iter().map(|bin| bin["name"].as_str().unwrap());
    let named: BTreeSet<&str> = bins.collect();
    assert_eq!(named, ALL.iter().map(|t| t.name).collect());
    for name in named {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("fuzz/fuzz_targets/{name}.rs"));
        let text = std::fs::read_to_string(file).unwrap();
        assert!(text.contains(&format!("fuzz!(\"{name}\")")), "{name}");
    }
}
