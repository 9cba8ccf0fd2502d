#!/bin/sh
# Builds kvmtop for 64-bit Arm, links it, and runs it under QEMU's user emulation.
# What the kernel of such a host gives (tracepoints, BPF, KVM's counters) is not emulated and not tried.
# usage: aarch64.sh [release]
set -eu
cd "$(dirname "$0")/../.."
target=aarch64-unknown-linux-gnu
profile=${1:-dev}
if ! [ -d "$(rustc --print sysroot)/lib/rustlib/$target" ]; then
    echo "Installing the target $target with rustup" >&2
    rustup target add $target
fi
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc
${CARGO:-cargo} build --locked --quiet --target $target --profile "$profile" --bin kvmtop
[ "$profile" = dev ] && profile=debug
kvmtop="qemu-aarch64-static -L /usr/aarch64-linux-gnu target/$target/$profile/kvmtop"
$kvmtop --version
$kvmtop demo --batch -n 1 > /dev/null
