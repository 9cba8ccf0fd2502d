//! Every reader of `fuzz/readers.rs` with damaged inputs: no panic, no overflow, no endless work.
//! The inputs are the same in each run; `PROPTEST_CASES=25600` makes a hundred times as many. `make
//! fuzz` looks where coverage leads.

use crate::readers::READERS;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use rustix::time::{ClockId, clock_gettime};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Length of an input, bytes.
const MAX_LENGTH: usize = 64 << 10;
/// CPU time of one input in an unoptimised build, seconds.
const MAX_SECONDS: i64 = 20;
/// Pieces that readers stumble over.
const PIECES: &[&str] = &[
    "\n",
    "\r\n",
    "\t",
    "\0",
    "'",
    "\"",
    "<",
    "<a>",
    "/>",
    "<!--",
    "]]>",
    "{",
    "}",
    "[",
    "(",
    ":",
    ",",
    "=",
    "%",
    "\\",
    "-a ",
    "a.",
    "\u{1b}[2J",
    "\u{202e}",
    "\u{fffd}",
    "0x",
    "0-8191",
    "^0",
    "&lt;",
    "```",
];
/// Numbers that overflow what a reader computes with them.
pub const NUMBERS: &[&str] = &[
    "0",
    "1",
    "4294967295",
    "9223372036854775807",
    "18446744073709551615",
    "18446744073709551616",
    "99999999999999999999999999999999",
    "ffffffffffffffff",
    "-1",
    "1e308",
    "0.0000001",
    "184467440737095516.15",
];

/// One change of an input.
#[derive(Debug, Clone)]
enum Edit {
    Cut(Index, usize),
    Repeat(Index, usize, usize),
    Insert(Index, &'static str, usize),
    Byte(Index, u8),
    /// Numbers, from the start or each n-th.
    Numbers(&'static str, usize),
}

fn edit() -> impl Strategy<Value = Edit> {
    let times = || prop_oneof![9 => 1..40_usize, 1 => Just(MAX_LENGTH)];
    prop_oneof![
        (any::<Index>(), prop_oneof![1..64_usize, Just(MAX_LENGTH)])
            .prop_map(|(at, n)| Edit::Cut(at, n)),
        (any::<Index>(), 1..200_usize, times())
            .prop_map(|(at, n, times)| Edit::Repeat(at, n, times)),
        (any::<Index>(), select(PIECES), times())
            .prop_map(|(at, piece, times)| Edit::Insert(at, piece, times)),
        (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Edit::Byte(at, byte)),
        (select(NUMBERS), 1..16_usize).prop_map(|(number, each)| Edit::Numbers(number, each)),
    ]
}

fn apply(mut input: Vec<u8>, edit: &Edit) -> Vec<u8> {
    let place = |at: &Index| at.index(input.len() + 1);
    match edit {
        Edit::Cut(at, n) => {
            let at = place(at);
            input.drain(at..at.saturating_add(*n).min(input.len()));
        }
        Edit::Repeat(at, n, times) => {
            let at = place(at);
            let piece = input[at..(at + n).min(input.len())].to_vec();
            let room = MAX_LENGTH.saturating_sub(input.len()) / piece.len().max(1);
            input.splice(at..at, piece.repeat((*times).min(room)));
        }
        Edit::Insert(at, piece, times) => {
            let (at, room) = (
                place(at),
                MAX_LENGTH.saturating_sub(input.len()) / piece.len(),
            );
            input.splice(at..at, piece.repeat((*times).min(room)).into_bytes());
        }
        Edit::Byte(at, byte) => {
            let at = place(at);
            if let Some(old) = input.get_mut(at) {
                *old = *byte;
            }
        }
        Edit::Numbers(number, each) => {
            return with_numbers(&input, |n| (n % each == 0).then_some(number));
        }
    }
    input
}

/// The input with its decimal numbers replaced where `number` of their place gives another.
pub fn with_numbers(
    input: &[u8],
    mut number: impl FnMut(usize) -> Option<&'static str>,
) -> Vec<u8> {
    let mut place = 0;
    let parts = input
        .chunk_by(|a, b| a.is_ascii_digit() == b.is_ascii_digit())
        .map(|part| {
            if !part[0].is_ascii_digit() {
                return part;
            }
            place += 1;
            number(place - 1).map_or(part, str::as_bytes)
        });
    parts.collect::<Vec<_>>().concat()
}

fn cpu_seconds() -> i64 {
    clock_gettime(ClockId::ThreadCPUTime).tv_sec
}

#[test]
fn no_input_breaks_a_reader() {
    let config = Config {
        cases: Config::default().cases / 4,
        failure_persistence: None,
        ..Config::default()
    };
    for reader in READERS {
        let read = |input: &[u8]| {
            let start = cpu_seconds();
            catch_unwind(AssertUnwindSafe(|| (reader.read)(input)))
                .map_err(|_| TestCaseError::fail(format!("{} panics", reader.name)))?;
            prop_assert!(
                cpu_seconds() - start <= MAX_SECONDS,
                "{} takes too long",
                reader.name
            );
            Ok(())
        };
        let seeds = reader.seeds();
        seeds
            .iter()
            .for_each(|seed| read(seed).expect("an undamaged input"));
        let inputs = (select(seeds), prop::collection::vec(edit(), 1..6))
            .prop_map(|(seed, edits)| edits.iter().fold(seed, apply));
        let mut runner = TestRunner::new_with_rng(
            config.clone(),
            TestRng::deterministic_rng(RngAlgorithm::ChaCha),
        );
        if let Err(error) = runner.run(&inputs, |input| read(&input)) {
            panic!("{}: {error}", reader.name);
        }
    }
}
