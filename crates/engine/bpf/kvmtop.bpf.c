/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Counts what KVM's threads do, in the kernel, without copying events.
 *
 * A thread that fires a kvm event gets a slot of fixed size. `tasks` leads from its task_struct's address to the
 * slot, with one load for threads without a slot. It uses addresses instead of thread ids because the scheduler's raw
 * tracepoints carry pointers: so no program needs to know how this kernel lays out a task_struct. In a full table, a
 * cell unused in this tick and the previous tick makes room; otherwise the `other` cell counts.
 */
#include "exits.h"
#include "accesses.h"
#include "scheduler.h"

char _license[] SEC("license") = "Dual MIT/GPL";
