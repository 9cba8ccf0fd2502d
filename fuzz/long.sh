#!/bin/sh
# Millions of damaged inputs without a fuzzer, on stable Rust: `sh fuzz/long.sh INPUTS [TARGET...]`, all targets without
# a name. Optimised, with overflow checks and debug assertions. KVMTOP_FUZZ_SERIES=7 gives others than the first series.
set -eu
cd "$(dirname "$0")/.."
KVMTOP_FUZZ_INPUTS=${1:?usage: long.sh INPUTS [TARGET...]}
shift
export KVMTOP_FUZZ_INPUTS
[ $# -eq 0 ] || export KVMTOP_FUZZ_TARGETS="$*"
export CARGO_PROFILE_TEST_OPT_LEVEL=2 CARGO_PROFILE_DEV_OPT_LEVEL=2
exec cargo test --locked --target-dir "${CARGO_TARGET_DIR:-target}/fuzz-long" --test fuzz \
    millions_of_inputs_break_no_reader -- --ignored --nocapture
