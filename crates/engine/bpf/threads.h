/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* From a task to its slot. */
#pragma once
#include "maps.h"

static always_inline struct bucket *bucket_of(u64 task)
{
	u32 b = ((task >> 6) * 0x9e3779b97f4a7c15ull) >> (64 - TASK_BITS);

	return bpf_map_lookup_elem(&tasks, &b);
}

static always_inline struct slot *slot_at(u32 index)
{
	u32 number = index / PART, at = index % PART;
	void *part = bpf_map_lookup_elem(&slots, &number);

	return part ? bpf_map_lookup_elem(part, &at) : 0;
}

static always_inline struct slot *slot_of(u64 task)
{
	struct bucket *bucket = bucket_of(task);
	u64 tag = task << 7;
	u32 index;

	if (!bucket || !bucket->used)
		return 0;
#pragma unroll
	for (int i = 0; i < WAYS; i++) {
		u64 d = bucket->entry[i] ^ tag;

		if (d < 1 << SLOT_BITS) {
			index = d;
			goto found;
		}
	}
	return 0;
found:
	return slot_at(index);
}

static always_inline u32 share_of(u32 id)
{
	return id * seed >> (32 - SHARE_BITS);
}

/*
 * The fewer slots are free, the fewer a user may have, so that a user who comes later finds some. A process may have as
 * many as its user has left.
 *
 * No compare-and-swap before kernel 5.12: if two new threads write one entry, the later one stays, and the other
 * takes a second slot at its next event.
 */
static noinline struct slot *new_slot(u64 task)
{
	struct bucket *bucket = bucket_of(task);
	u64 id = bpf_get_current_pid_tgid();
	u32 index = 0, zero = 0, process = id >> 32, uid = bpf_get_current_uid_gid();
	u32 at = share_of(process), user_at = share_of(uid);
	struct quota *all = bpf_map_lookup_elem(&quota, &zero);
	struct share *share = bpf_map_lookup_elem(&shares, &at), *user = bpf_map_lookup_elem(&users, &user_at);
	struct slot *s;
	u32 *owner;

	if (!bucket || !all || !share)
		return 0;
	opaque(user);
	if (!user)
		return 0;
	if (share->slots >= all->slots) {
		__sync_fetch_and_add(&all->refused, 1);
		goto full;
	}
	if ((u64)share->slots + user->slots >= USER_PART * all->free) {
		user->refused = process;
		__sync_fetch_and_add(&all->user_refused, 1);
		goto full;
	}
	if (bpf_map_pop_elem(&free_slots, &index))
		goto full;
	__sync_fetch_and_add(&all->free, -1);
	s = slot_at(index);
	owner = bpf_map_lookup_elem(&owners, &index);
	if (!s || !owner)
		return 0;
	s->task = task;
	s->born = bpf_ktime_get_ns();
	s->tid = id;
	s->tgid = process;
	s->uid = uid;
	bpf_get_current_comm(s->comm, sizeof(s->comm));
	s->cpu = bpf_get_smp_processor_id() + 1;
#pragma unroll
	for (int i = 0; i < WAYS; i++) {
		if (!bucket->entry[i]) {
			bucket->entry[i] = task << 7 | index;
			bucket->used = 1;
			*owner = id;
			__sync_fetch_and_add(&share->slots, 1);
			__sync_fetch_and_add(&user->slots, 1);
			return s;
		}
	}
	bpf_map_push_elem(&free_slots, &index, 0);
	__sync_fetch_and_add(&all->free, 1);
full:
	share->refused = process;
	lost();
	return 0;
}

/*
 * Lets no store before it become visible after a later one. x86 keeps stores in order. arm64 does not: there an
 * atomic that returns a value is a full barrier (bpf/standardization/instruction-set.rst; from kernel 5.12 on).
 */
static always_inline void order_stores(struct slot *s)
{
#ifdef ARM64
	u64 before = __sync_fetch_and_add(&s->fence, 1);

	opaque(before); /* else the compiler takes an atomic that returns nothing, which orders nothing */
#else
	barrier();
#endif
}

/* Begins a change of figures that belong together; returns the epoch that they belong to. */
static always_inline u32 begin_change(struct slot *s)
{
	s->changes++;
	order_stores(s);
	return s->epoch;
}

static always_inline void end_change(struct slot *s)
{
	order_stores(s);
	s->changes++;
}

/* An epoch's number: the reading that ends it, and in the low byte the epoch within that reading. */
static always_inline u64 is_recent(const struct timing *t, u32 epoch)
{
	u32 now = epoch >> 8;

	return now - (t->epoch[0] >> 8) < 2 || now - (t->epoch[1] >> 8) < 2;
}

static always_inline struct slot *my_slot(void)
{
	u64 task = bpf_get_current_task();
	struct slot *s = slot_of(task);

	return s ? s : new_slot(task);
}
