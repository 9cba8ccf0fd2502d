#!/bin/sh
# Boots an AMD host with two CPUs that QEMU emulates in software (TCG knows SVM with nested paging), so that KVM in it
# is the real kvm_amd and fires kvm_exit and kvm_entry, whatever this machine's own KVM does. Time in it is slow but
# consistent.
# usage: boot.sh DIR SHARED [SECONDS]
# DIR from prepare.sh; SHARED/job is run by sh in there, sees this machine's files and writes what is to be kept to
# /shared. With COUNT_INSTRUCTIONS=1 the host has one CPU, and its clock goes on 16 ns with each instruction.
set -eu
if [ "${COUNT_INSTRUCTIONS:-0}" = 1 ]; then
    cpu="-accel tcg,thread=single -icount shift=4,align=off,sleep=off -smp 1"
else
    cpu="-accel tcg,thread=multi -smp 2"
fi
# shellcheck disable=SC2086 # several words
exec timeout "${3:-240}" qemu-system-x86_64 \
    -name emulated-amd-host,debug-threads=on -machine q35 $cpu -cpu max,la57=off -m 2048 \
    -kernel "$1/kernel" -initrd "$1/initrd" -append "console=ttyS0 quiet loglevel=3 mitigations=off nokaslr panic=1" \
    -virtfs local,path=/,mount_tag=below,security_model=none,readonly=on,multidevs=remap \
    -virtfs local,path="$2",mount_tag=shared,security_model=none \
    -display none -nodefaults -no-reboot -serial stdio -monitor none < /dev/null
