#!/bin/sh
# Boots a host with two CPUs that QEMU emulates in software, so that KVM in it is the real one and fires kvm_exit and
# kvm_entry, whatever this machine's own KVM does: an AMD host (TCG knows SVM with nested paging), or an arm64 host
# whose kernel starts at EL2. Time in it is slow but consistent.
# usage: MACHINE=amd64|amd64-instructions|arm64 boot.sh DIR SHARED [SECONDS]
# DIR from prepare.sh; SHARED/job is run by sh in there, sees this machine's files and writes what is to be kept to
# /shared. `amd64-instructions` has one CPU, and its clock goes on 16 ns with each instruction.
set -eu
# With QEMU 7.2, threads of TCG fail on code that kernels from 6.12 on patch while it runs ("Oops: int3"), and 7.x does
# not boot on two CPUs.
case $(cat "$1/version") in
    [45].* | 6.1.*) cpu="-accel tcg,thread=multi -smp 2" ;;
    6.*) cpu="-accel tcg,thread=single -smp 2" ;;
    *) cpu="-accel tcg,thread=single -smp 1" ;;
esac
machine="qemu-system-x86_64 -machine q35 -cpu max,la57=off" console=ttyS0
case ${MACHINE:=amd64} in
    *-instructions) cpu="-accel tcg,thread=single -icount shift=4,align=off,sleep=off -smp 1" ;;
    arm64) machine="qemu-system-aarch64 -machine virt,virtualization=on,gic-version=3 -cpu max" console=ttyAMA0 ;;
esac
# shellcheck disable=SC2086 # several words
exec timeout "${3:-240}" $machine \
    -name "emulated-$MACHINE-host,debug-threads=on" $cpu -m 2048 \
    -kernel "$1/kernel" -initrd "$1/initrd" \
    -append "console=$console quiet loglevel=3 mitigations=off nokaslr panic=1" \
    -virtfs local,path=/,mount_tag=below,security_model=none,readonly=on,multidevs=remap \
    -virtfs local,path="$2",mount_tag=shared,security_model=none \
    -display none -nodefaults -no-reboot -serial stdio -monitor none < /dev/null
