/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Where a duration belongs in a histogram. */
#pragma once
#include "layout.h"

/*
 * 1 if `a` < `b`, both below 2^63. Without a branch: the verifier would follow each way to the program's end. `opaque`
 * keeps the compiler from adding one.
 */
static always_inline u64 is_less(u64 a, u64 b)
{
	u64 sign = a - b;

	opaque(sign);
	sign >>= 63;
	opaque(sign);
	return sign;
}

static always_inline u64 log2_bucket(u64 ns)
{
	u64 v = ns >> 6, r = 0, step;

#pragma unroll
	for (int i = 4; i >= 0; i--) {
		step = is_less((1ull << (1 << i)) - 1, v) << i;
		v >>= step;
		r += step;
	}
	return r & (BUCKETS - 1);
}

static always_inline void add(struct span *t, u64 ns)
{
	__sync_fetch_and_add(&t->count, 1);
	__sync_fetch_and_add(&t->ns, ns);
	__sync_fetch_and_add(&t->histogram[log2_bucket(ns)], 1);
}
