/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Bounded tables of records that are too large for a program's stack. */
#pragma once
#include "layout.h"

/* Events that found no place in a table. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} homeless SEC(".maps");

static always_inline int lost(void)
{
	u32 zero = 0;
	u64 *n = bpf_map_lookup_elem(&homeless, &zero);

	if (n)
		__sync_fetch_and_add(n, 1);
	return 0;
}

/* The record of a key, a new one if need be: a copy of the only one in the map `empty`. 0 if the table is full. */
static always_inline void *find_or_add(void *table, const void *key, void *empty)
{
	void *found = bpf_map_lookup_elem(table, key), *none;
	u32 zero = 0;

	if (found)
		return found;
	none = bpf_map_lookup_elem(empty, &zero);
	/* Refused where another CPU was first. */
	if (none)
		bpf_map_update_elem(table, key, none, BPF_NOEXIST);
	return bpf_map_lookup_elem(table, key);
}
