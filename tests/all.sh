#!/bin/sh
# All that must hold on this machine; hosts.sh has other kernels and processors. Real-guest tests write a line each into
# $KVMTOP_TEST_LOG: "RAN name" or "SKIPPED name: reason".
set -eu
cd "$(dirname "$0")/.."
KVMTOP_TEST_LOG=$PWD/target/real-guests.log
export KVMTOP_TEST_LOG INSTA_UPDATE=no INSTA_FORCE_PASS=0
mkdir -p target
: > "$KVMTOP_TEST_LOG"
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
step "documentation"
RUSTDOCFLAGS="-D warnings" cargo doc --workspace --locked --no-deps --quiet
# Where no device manager runs, /dev/kvm may be root's alone; libvirt's QEMU runs as a user of group kvm.
if [ -c /dev/kvm ] && [ "$(id -u)" = 0 ] && getent group kvm >/dev/null && [ "$(stat -c %G /dev/kvm)" != kvm ]; then
    echo "giving /dev/kvm to group kvm (0660), as Debian's own rule does"
    chgrp kvm /dev/kvm && chmod 0660 /dev/kvm
fi
if [ "$(id -u)" = 0 ] && [ ! -d /sys/kernel/tracing/events ] && [ ! -d /sys/kernel/debug/tracing/events ]; then
    echo "mounting tracefs on /sys/kernel/tracing, as systemd does"
    mount -t tracefs nodev /sys/kernel/tracing || echo "tracefs cannot be mounted: tests that trace will be skipped"
fi
step "tests"
# Two CPUs have room for a third test where two wait.
RUST_TEST_THREADS=$(($(nproc) + 1))
export RUST_TEST_THREADS
failed=0
cargo test --workspace --locked --no-fail-fast --lib --test it || failed=1
step "tests with guests"
# Most of them wait for their turn (tests/common/mod.rs).
RUST_TEST_THREADS=16 cargo test --workspace --locked --no-fail-fast --test guests || failed=1
step "no link to libvirt"
if readelf -d target/debug/kvmtop | grep -i 'NEEDED.*libvir'; then
    echo "the binary is linked to libvirt: it would not start on a host without it" >&2
    exit 1
fi
echo "readelf -d names no libvirt"

step "real-guest tests"
sh tests/ran.sh "$KVMTOP_TEST_LOG"
exit "$failed"
