/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Counts what KVM's threads do, in the kernel, with nothing copied per event.
 *
 * A thread that fires a kvm event gets a slot of fixed size; `tasks` leads from its task_struct's address to the slot, by one
 * load for the threads that have none. Addresses, not thread ids, because the scheduler's raw tracepoints carry pointers: so
 * none of the programs needs to know how this kernel lays out a task_struct.
 * Where a table is full, what was not touched in this tick and the one before makes room; else the `other` cell counts.
 */
#include "exits.h"
#include "accesses.h"
#include "scheduler.h"

char _license[] SEC("license") = "Dual MIT/GPL";
