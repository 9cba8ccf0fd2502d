#!/bin/sh
# Starts kvmtop; on a machine where nothing holds a KVM guest, its demo.
# usage: run.sh KVMTOP
set -eu
guests=$(find /proc/[0-9]*/fd -lname 'anon_inode:kvm-vm' 2>/dev/null | head -n 1 || true)
if [ -n "$guests" ] || [ ! -t 1 ]; then exec "$1"; fi
echo "No KVM guest runs here (or it is not visible without root): starting the demo, a recording of real guests."
exec "$1" demo
