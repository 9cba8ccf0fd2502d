#!/bin/sh
# Runs kvmtop in hosts that QEMU emulates, each with a kernel of Debian: on AMD from 5.10 on, and on arm64. Prints what
# was counted on each, and which host cannot be had or died three times, with the reason.
set -eu
cd "$(dirname "$0")/.."
KVMTOP_TEST_LOG=$PWD/target/emulated-hosts.log
export KVMTOP_TEST_LOG
mkdir -p target
: > "$KVMTOP_TEST_LOG"
step() { printf '\n== %s\n' "$*"; }

step "build for arm64"
sh assets/packaging/aarch64.sh dev --only-build
step "emulated hosts"
# Each takes up to two CPUs of this machine, and waits half of its time.
failed=0
cargo test --workspace --locked --test guests -- --ignored --test-threads=2 emulated_hosts:: || failed=1

step "what ran in emulated hosts"
sh tests/ran.sh "$KVMTOP_TEST_LOG"
exit $failed
