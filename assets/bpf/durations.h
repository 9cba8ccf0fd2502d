/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Sums, extremes and histograms of durations. */
#pragma once
#include "maps.h"

static always_inline u64 log2_bucket(u64 ns)
{
	u64 v = ns >> 6, r = 0;

	if (v >> 32)
		return BUCKETS - 1;
	if (v >> 16) { v >>= 16; r = 16; }
	if (v >> 8) { v >>= 8; r += 8; }
	if (v >> 4) { v >>= 4; r += 4; }
	if (v >> 2) { v >>= 2; r += 2; }
	if (v >> 1) r += 1;
	return r & (BUCKETS - 1);
}

/* All but the count: as often as `times` a duration of `ns`. */
static always_inline void add_time(struct timing *t, u64 ns, u64 times)
{
	u64 clipped = ns < 1 << 30 ? ns : 1 << 30;
	u64 square = clipped * clipped * times;
	u64 low = t->square_low + square;

	t->total += ns * times;
	t->square_low = low;
	if (low < square)
		t->square_high++;
	if (!t->min || ns < t->min)
		t->min = ns;
	if (ns > t->max)
		t->max = ns;
}

static always_inline void fresh(struct timing *t, u32 *cell_epoch)
{
	if (*cell_epoch != epoch) {
		*cell_epoch = epoch;
		t->min = 0;
		t->max = 0;
	}
}
