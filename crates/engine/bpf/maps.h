/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* What the programs share with each other and with kvmtop. */
#pragma once
#include "tables.h"

/* What a part of `slots` is like. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, PART);
	__type(key, u32);
	__type(value, struct slot);
} part SEC(".maps");

/* kvmtop adds parts when more threads come: the programs count on. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, (1 << SLOT_BITS) / PART);
	__type(key, u32);
	__type(value, u32);
} slots SEC(".maps");

/* Thread id by slot; 0: free. The reader looks at taken slots only. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1 << SLOT_BITS);
	__type(key, u32);
	__type(value, u32);
} owners SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_STACK);
	__uint(max_entries, 1 << SLOT_BITS);
	__type(value, u32);
} free_slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct quota);
} quota SEC(".maps");

/* By a hash of the process id. Processes of one cell share a quota: `seed` keeps anyone from choosing whose. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1 << SHARE_BITS);
	__type(key, u32);
	__type(value, struct share);
} shares SEC(".maps");

/* The same by user. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1 << SHARE_BITS);
	__type(key, u32);
	__type(value, struct share);
} users SEC(".maps");

const volatile u32 seed = 1;

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
