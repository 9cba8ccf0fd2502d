#!/bin/sh
# Builds kvmtop for 64-bit Arm, links it, and runs it under QEMU's user emulation: what it reads out of files has to be
# what it reads here. What the kernel of such a host gives is tested in an emulated host (tests/guests/nested_arm64.rs).
# usage: aarch64.sh [PROFILE [--only-build]]
# --only-build: says where the program is, and runs nothing
set -eu
cd "$(dirname "$0")/../.."
target=aarch64-unknown-linux-gnu
profile=${1:-dev}
CARGO=${CARGO:-cargo}
skipped() {
    echo "SKIPPED aarch64: $1"
    exit 0
}
command -v aarch64-linux-gnu-gcc > /dev/null || skipped "aarch64-linux-gnu-gcc is not installed"
if ! [ -d "$(rustc --print sysroot)/lib/rustlib/$target" ]; then
    echo "Installing the target $target with rustup" >&2
    rustup target add $target || skipped "rustup cannot install the target $target"
fi
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc
# libvirt's binding asks for libvirt's version alone; nothing of this machine's libvirt is linked.
export PKG_CONFIG_ALLOW_CROSS=1
$CARGO build --locked --quiet --profile "$profile" --bin kvmtop --target $target
built=${CARGO_TARGET_DIR:-target}
[ "$profile" = dev ] && folder=debug || folder=$profile
if [ "${2:-}" = --only-build ]; then
    echo "$built/$target/$folder/kvmtop"
    exit 0
fi
command -v qemu-aarch64-static > /dev/null || skipped "qemu-aarch64-static is not installed"
$CARGO build --locked --quiet --profile "$profile" --bin kvmtop
here=$built/$folder/kvmtop
# Nothing unknown in its environment, or it starts itself once more, without the emulator.
there="env -i PATH=$PATH qemu-aarch64-static -L /usr/aarch64-linux-gnu"
there="$there $built/$target/$folder/kvmtop"
files=$(mktemp -d)
trap 'rm -rf "$files"' EXIT
# The table of an arm64 host, out of its case.
sed -n "/^\"vmexit.txt\" = '''$/,/^'''$/p" tests/fixtures/cases/arm64-dabt.toml | sed '1d;$d' > "$files/arm64.txt"
same() {
    $here "$@" > "$files/here" && $there "$@" > "$files/there" && cmp "$files/here" "$files/there" && return
    echo "aarch64: kvmtop $* differs there" >&2
    exit 1
}
same --version
same report "$files/arm64.txt" --json
same report assets/demo.kvmtop
same replay assets/demo.kvmtop --batch --json -n 20
for file in tests/fixtures/readme/*; do same report "$file"; done
grep -q DABT_LOW "$files/arm64.txt"
echo "RAN aarch64: built, linked, and read files as it does here"
