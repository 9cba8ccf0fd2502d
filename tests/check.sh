#!/bin/sh
# The fast loop: format, lints, and every test that needs no guest. `tests/all.sh` is the whole.
set -eu
cd "$(dirname "$0")/.."
export KVMTOP_TEST_GUESTS=0 INSTA_UPDATE=no INSTA_FORCE_PASS=0
step() { printf '\n== %s\n' "$*"; }

step "format"
cargo fmt --all --check
step "lints"
cargo clippy --workspace --locked --all-targets --quiet -- -D warnings
cargo clippy --locked --no-default-features --quiet -- -D warnings
if cargo deny --version >/dev/null 2>&1; then
    step "dependencies"
    cargo deny --locked --offline check licenses bans sources
fi
step "tests without guests"
cargo test --workspace --locked --quiet --no-fail-fast --lib --test it --test guests
