/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Times what the host's block devices do for guests, in the kernel, without copying events.
 *
 * Completion and issue run in other contexts (an interrupt, a kernel worker), so a request is known by its bio: who
 * submits it is the current task at block_bio_queue. block_rq_issue says when the driver got it, and block_rq_complete
 * when it was done, both for all bios that were merged into the request. A device that makes no requests
 * (device-mapper, md) issues none, and block_bio_complete ends the bio; the kernel traces one or the other
 * (BIO_TRACE_COMPLETION, blk_update_request in block/blk-mq.c).
 *
 * Counters of a cell are added to atomically, as completions run on several CPUs at once.
 */
#include "buckets.h"
#include "watched.h"

char _license[] SEC("license") = "Dual MIT/GPL";

#define MERGED 256 /* bios of a request at most: BLK_MAX_SEGMENTS is 128, some drivers take up to 256 */

/* Where fields are, bytes, by the running kernel's BTF. Set before the programs load. */
const volatile u32 bio_bdev = 0; /* bi_bdev, or bi_disk before 5.12 */
const volatile u32 bio_opf = 0;
const volatile u32 bio_size = 0; /* bi_iter.bi_size */
const volatile u32 bio_next = 0;
const volatile u32 request_bio = 0;
const volatile u32 bdev_dev = 0; /* bd_dev of a block_device; of a gendisk `major`, with `first_minor` next to it */
const volatile u32 by_disk = 0;	 /* 1: bio_bdev leads to a gendisk */

enum kind { READ, WRITE, FLUSH, OTHER };

/* A bio on its way. */
struct bio_flight {
	u64 queued, issued; /* ns; issued 0: not yet */
	u32 owner, dev, kind, submitter;
	u64 bytes;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, u64);
	__type(value, struct bio_flight);
} flights SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct disk_key);
	__type(value, struct disk_cell);
} cells SEC(".maps");

/* What a new cell holds: it is larger than a program's stack. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct disk_cell);
} empty SEC(".maps");

static always_inline u64 pointer_at(u64 at)
{
	u64 value = 0;

	bpf_probe_read_kernel(&value, sizeof(value), (void *)at);
	return value;
}

/* A dev_t as the kernel has it: 12 bits major, 20 bits minor (include/linux/kdev_t.h). */
static always_inline u32 device_of(u64 bio)
{
	u64 bdev = pointer_at(bio + bio_bdev);

	if (!by_disk)
		return number_at(bdev + bdev_dev);
	return number_at(bdev + bdev_dev) << 20 | number_at(bdev + bdev_dev + 4);
}

/* The operation is the low byte (REQ_OP_MASK, include/linux/blk_types.h). A write of nothing is a flush. */
static always_inline u32 kind_of(u32 opf, u32 bytes)
{
	switch (opf & 0xff) {
	case 0:
		return READ;
	case 1:
		return bytes ? WRITE : FLUSH;
	case 2:
		return FLUSH;
	default:
		return OTHER;
	}
}

static always_inline int queued(u64 bio)
{
	u64 id = bpf_get_current_pid_tgid();
	u32 process = id >> 32, opf, bytes;
	u32 *owner = bpf_map_lookup_elem(&watched, &process);
	struct bio_flight flight = {};

	if (!owner)
		return 0;
	opf = number_at(bio + bio_opf);
	bytes = number_at(bio + bio_size);
	flight.owner = *owner;
	flight.dev = device_of(bio);
	flight.kind = kind_of(opf, bytes);
	flight.submitter = current_kind(id);
	flight.bytes = bytes;
	flight.queued = bpf_ktime_get_ns();
	return bpf_map_update_elem(&flights, &bio, &flight, BPF_ANY) ? lost() : 0;
}

/* Arguments since 5.11: bio. Before: queue, bio. The kernel refuses a program that reads too many arguments. */
SEC("raw_tracepoint/block_bio_queue")
int block_bio_queue(struct raw_args *ctx)
{
	return queued(ctx->arg[0]);
}

SEC("raw_tracepoint/block_bio_queue")
int block_bio_queue_old(struct raw_args *ctx)
{
	return queued(ctx->arg[1]);
}

/* A request that the driver sent back is issued again: the last time counts. */
static always_inline int issued(u64 request)
{
	u64 bio = pointer_at(request + request_bio), now = 0;
	struct bio_flight *flight;

	for (int i = 0; i < MERGED; i++) {
		if (!bio)
			break;
		flight = bpf_map_lookup_elem(&flights, &bio);
		if (flight) {
			if (!now)
				now = bpf_ktime_get_ns();
			flight->issued = now;
		}
		bio = pointer_at(bio + bio_next);
	}
	return 0;
}

SEC("raw_tracepoint/block_rq_issue")
int block_rq_issue(struct raw_args *ctx)
{
	return issued(ctx->arg[0]);
}

SEC("raw_tracepoint/block_rq_issue")
int block_rq_issue_old(struct raw_args *ctx)
{
	return issued(ctx->arg[1]);
}

static always_inline void add_bio(struct disk_cell *cell, const struct bio_flight *flight)
{
	u64 now = bpf_ktime_get_ns();

	__sync_fetch_and_add(&cell->bytes, flight->bytes);
	__sync_fetch_and_add(&cell->submitted[flight->submitter & (THREAD_KINDS - 1)], 1);
	add(&cell->total, now - flight->queued);
	if (flight->issued)
		add(&cell->device, now - flight->issued);
}

/* Counts a completed bio, if it is timed. */
static noinline int completed(u64 bio)
{
	struct bio_flight *flight = bpf_map_lookup_elem(&flights, &bio);
	struct disk_cell *cell;

	if (!flight)
		return 0;
	struct disk_key key = { .owner = flight->owner, .dev = flight->dev, .kind = flight->kind };

	cell = find_or_add(&cells, &key, &empty);
	if (cell)
		add_bio(cell, flight);
	else
		lost();
	bpf_map_delete_elem(&flights, &bio);
	return 0;
}

/* request, error, bytes. A request can be completed in parts: the bios within `bytes` are done, empty ones (flushes) as
 * well. */
SEC("raw_tracepoint/block_rq_complete")
int block_rq_complete(struct raw_args *ctx)
{
	u64 bio = pointer_at(ctx->arg[0] + request_bio);
	u32 left = ctx->arg[2], bytes;

	for (int i = 0; i < MERGED; i++) {
		if (!bio)
			return 0;
		bytes = number_at(bio + bio_size);
		if (bytes > left)
			return 0;
		completed(bio); /* one that is not timed may stand before one that is */
		left -= bytes;
		bio = pointer_at(bio + bio_next);
	}
	return bio ? lost() : 0;
}

/* queue, bio */
SEC("raw_tracepoint/block_bio_complete")
int block_bio_complete(struct raw_args *ctx)
{
	completed(ctx->arg[1]);
	return 0;
}
