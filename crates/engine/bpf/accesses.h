/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Ports, device memory and MSRs that a guest touched. */
#pragma once
#include "threads.h"
#include "durations.h"

enum { PIO = 1, MMIO = 2, MSR = 3 };

static always_inline u64 probe(u64 key)
{
	return (key * 0x9e3779b97f4a7c15ull) >> 58;
}

/* Finds the cell of a key that is not at its first place; takes a free cell for a new key. */
static noinline u64 find_access(struct slot *s, u64 key, u32 epoch)
{
	u64 first = probe(key), found = ACCESSES;
	struct access_cell *c;

	for (u64 i = 0; i < PROBES; i++) {
		u64 at = (first + i) & (ACCESSES - 1);

		c = &s->accesses[at];
		if (c->key == key)
			return at;
		if (found == ACCESSES && (!c->key || !is_recent(&c->time, epoch)))
			found = at;
	}
	if (found >= ACCESSES) {
		s->overflow++;
		return ACCESSES + (key & (REST_KINDS - 1));
	}
	found &= ACCESSES - 1;
	c = &s->accesses[found];
	__builtin_memset(c, 0, sizeof(*c));
	__builtin_memset(s->access_histogram[found], 0, sizeof(s->access_histogram[found]));
	c->key = key;
	c->time.epoch[epoch & 1] = epoch;
	s->accesses_used |= 1ull << found;
	return found;
}

/* Notes that the exit under way holds this access. */
static always_inline void touch(struct slot *s, u64 cell)
{
	u64 n = s->touched, last = n - 1;

	if (last < TOUCHES && s->touches[last] == cell) {
		if (s->shares[last] < 0xffff)
			s->shares[last]++;
	} else if (n < TOUCHES) {
		s->touches[n] = cell;
		s->shares[n] = 1;
		s->touched = n + 1;
	}
}

/*
 * Bursts are runs with gaps below 1 ms. Without a kvm_exit that provides the time, the clock is read here, which
 * costs as much as everything else: eight dense accesses in a row share one reading, as no gap among them can be that
 * long.
 */
static always_inline void burst(struct access_cell *c, u64 now)
{
	u64 exit_at = now, gap;

	if (!now)
		now = bpf_ktime_get_ns();
	gap = now - c->last;
	if (!c->run || gap >= 1000000) {
		c->run = 0;
		c->run_start = now;
	} else if (!exit_at && gap < 125000) {
		c->skip = 7;
	}
	c->run++;
	c->last = now;
}

/* As `extremes_of`, and the bursts of this epoch begin. */
static always_inline struct extremes *access_extremes(struct access_cell *c, u32 epoch)
{
	u64 i = epoch & 1;

	if (c->time.epoch[i] != epoch) {
		c->longest[i] = 0;
		c->longest_ns[i] = 0;
		c->run = 0;
		c->skip = 0;
	}
	return extremes_of(&c->time, epoch);
}

static always_inline void count_access(struct slot *s, u32 epoch, u64 key, u64 fault)
{
	u64 i = probe(key) & (ACCESSES - 1), odd = epoch & 1;
	struct access_cell *c;

	if (s->accesses[i].key != key)
		i = find_access(s, key, epoch);
	if (i >= ACCESSES) {
		s->rests[i & (REST_KINDS - 1)].count++;
		if (s->exit_at)
			touch(s, i);
		return;
	}
	c = &s->accesses[i];
	c->time.count++;
	c->faults += fault;
	access_extremes(c, epoch);
	if (c->skip) {
		c->skip--;
		c->run++;
	} else {
		burst(c, s->exit_at);
	}
	if (c->run > c->longest[odd]) {
		c->longest[odd] = c->run;
		c->longest_ns[odd] = c->last - c->run_start;
	}
	if (s->exit_at)
		touch(s, i);
}

static always_inline void access(u64 address, u64 space, u64 write, u64 fault)
{
	struct slot *s = my_slot();

	if (!s)
		return;
	count_access(s, begin_change(s), address << 3 | space << 1 | write, fault);
	end_change(s);
}

SEC("raw_tracepoint/kvm_pio")
int kvm_pio(struct raw_args *ctx)
{
	access(ctx->arg[1] & 0xffff, PIO, ctx->arg[0] & 1, 0);
	return 0;
}

/* A read that user space serves fires twice, first as type 0 without its value: that one does not count. */
SEC("raw_tracepoint/kvm_mmio")
int kvm_mmio(struct raw_args *ctx)
{
	u32 type = ctx->arg[0];

	if (type)
		access(ctx->arg[2] & ~3ull, MMIO, type == 2, 0);
	return 0;
}

/* A write that an ioeventfd handles before any emulation. */
SEC("raw_tracepoint/kvm_fast_mmio")
int kvm_fast_mmio(struct raw_args *ctx)
{
	access(ctx->arg[0] & ~3ull, MMIO, 1, 0);
	return 0;
}

SEC("raw_tracepoint/kvm_msr")
int kvm_msr(struct raw_args *ctx)
{
	access(ctx->arg[1] & 0xffffffff, MSR, ctx->arg[0] & 1, ctx->arg[3] & 1);
	return 0;
}
