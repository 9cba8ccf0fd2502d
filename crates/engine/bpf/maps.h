/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* What the programs share with each other and with kvmtop. */
#pragma once
#include "tables.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 256);
	__type(key, u32);
	__type(value, struct slot);
} slots SEC(".maps");

/* Thread id by slot; 0: free. The reader looks at taken slots only. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 256);
	__type(key, u32);
	__type(value, u32);
} owners SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_STACK);
	__uint(max_entries, 256);
	__type(value, u32);
} free_slots SEC(".maps");

struct bucket {
	u64 used;
	u64 entry[WAYS]; /* task << 7 | slot */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1 << TASK_BITS);
	__type(key, u32);
	__type(value, struct bucket);
} tasks SEC(".maps");

/* A CPU's core, cache and node, numbered from 1, 0 if unknown; and whether a kernel timer is expiring on it. */
struct cpu {
	u32 core, llc, node, in_timer;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct cpu);
} cpus SEC(".maps");
