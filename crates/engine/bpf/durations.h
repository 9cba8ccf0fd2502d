/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Sums, extremes and histograms of durations. */
#pragma once
#include "buckets.h"
#include "maps.h"

/* The extremes of this epoch, empty if it has only begun. */
static always_inline struct extremes *extremes_of(struct timing *t, u32 epoch)
{
	u64 i = epoch & 1;

	if (t->epoch[i] != epoch) {
		t->epoch[i] = epoch;
		t->extremes[i].min = 0;
		t->extremes[i].max = 0;
	}
	return &t->extremes[i];
}

/* All but the count: `times` durations of `ns`. */
static always_inline void add_time(struct timing *t, struct extremes *x, u64 ns, u64 times)
{
	u64 clipped = ns < 1 << 30 ? ns : 1 << 30; /* kvmtop's sample::SPREAD_CLIP_NS */
	u64 square = clipped * clipped * times;
	u64 low = t->square_low + square;

	t->total += ns * times;
	t->square_low = low;
	if (low < square)
		t->square_high++;
	if (!x->min || ns < x->min)
		x->min = ns;
	if (ns > x->max)
		x->max = ns;
}
