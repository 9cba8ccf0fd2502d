/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Times what the host's block devices do for guests, in the kernel, without copying events.
 *
 * Completion and issue run in other contexts (an interrupt, a kernel worker), so a request is known by its bio: who
 * submits it is the current task at block_bio_queue. block_rq_issue says when the driver got it, and block_rq_complete
 * when it was done, both for all bios that were merged into the request. A device without requests of its own
 * (device-mapper, md) issues none, and block_bio_complete ends the bio; the kernel traces one or the other
 * (BIO_TRACE_COMPLETION, blk_update_request in block/blk-mq.c).
 *
 * Counters of a cell are added to atomically, as completions run on several CPUs at once.
 */
#include "buckets.h"
#include "watched.h"

char _license[] SEC("license") = "Dual MIT/GPL";

#define SUBMITTERS 8
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

/* Who submits, by the names that QEMU and the kernel give to threads. */
enum submitter { MAIN, IOTHREAD, POOL, IO_URING, VHOST, VCPU, UNNAMED };

/* A bio on its way. */
struct flight {
	u64 queued, issued; /* ns; issued 0: not yet */
	u32 owner, dev, kind, submitter;
	u64 bytes;
};

struct key {
	u32 owner, dev, kind, pad;
};

struct cell {
	u64 count, bytes, total_ns; /* from queued to completed */
	u64 issued, device_ns;	    /* those with an issue, from there to completed */
	u64 submitted[SUBMITTERS];
	u64 total[BUCKETS], device[BUCKETS];
};

_Static_assert(sizeof(struct cell) == 77 * 8, "crates/engine/src/bpf/disks.rs reads a cell as words");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, u64);
	__type(value, struct flight);
} flights SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct key);
	__type(value, struct cell);
} cells SEC(".maps");

/* What a new cell holds: it is larger than a program's stack. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct cell);
} empty SEC(".maps");

/* Requests that found no place in `flights` or `cells`. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} untimed SEC(".maps");

static always_inline u64 pointer_at(u64 at)
{
	u64 value = 0;

	bpf_probe_read_kernel(&value, sizeof(value), (void *)at);
	return value;
}

static always_inline int lost(void)
{
	u32 zero = 0;
	u64 *n = bpf_map_lookup_elem(&untimed, &zero);

	if (n)
		__sync_fetch_and_add(n, 1);
	return 0;
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

#define NAMED(a, b, c, d) (a | b << 8 | c << 16 | d << 24)

/* QEMU names threads with `-name debug-threads=on`, as libvirt starts it: "IO iothread1", "worker", "CPU 0/KVM". */
static always_inline u32 submitter_of(u64 id)
{
	union {
		char comm[16];
		u32 begin;
	} name = {};

	bpf_get_current_comm(name.comm, sizeof(name.comm));
	switch (name.begin) {
	case NAMED('i', 'o', 'u', '-'):
		return IO_URING;
	case NAMED('v', 'h', 'o', 's'):
		return VHOST;
	case NAMED('w', 'o', 'r', 'k'):
		return POOL;
	case NAMED('C', 'P', 'U', ' '):
		return VCPU;
	}
	if ((name.begin & 0xffffff) == NAMED('I', 'O', ' ', 0))
		return IOTHREAD;
	return (u32)id == id >> 32 ? MAIN : UNNAMED;
}

static always_inline int queued(u64 bio)
{
	u64 id = bpf_get_current_pid_tgid();
	u32 process = id >> 32, opf, bytes;
	u32 *owner = bpf_map_lookup_elem(&watched, &process);
	struct flight flight = {};

	if (!owner)
		return 0;
	opf = number_at(bio + bio_opf);
	bytes = number_at(bio + bio_size);
	flight.owner = *owner;
	flight.dev = device_of(bio);
	flight.kind = kind_of(opf, bytes);
	flight.submitter = submitter_of(id);
	flight.bytes = bytes;
	flight.queued = bpf_ktime_get_ns();
	return bpf_map_update_elem(&flights, &bio, &flight, BPF_ANY) ? lost() : 0;
}

/* 5.11 and later: bio. Before: queue, bio. A program that reads a second argument is refused where there is none. */
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
	struct flight *flight;

	for (int i = 0; i < MERGED; i++) {
		if (!bio)
			break;
		flight = bpf_map_lookup_elem(&flights, &bio);
		if (!flight)
			break;
		if (!now)
			now = bpf_ktime_get_ns();
		flight->issued = now;
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

static always_inline void add(struct cell *cell, const struct flight *flight)
{
	u64 now = bpf_ktime_get_ns(), ns = now - flight->queued;

	__sync_fetch_and_add(&cell->count, 1);
	__sync_fetch_and_add(&cell->bytes, flight->bytes);
	__sync_fetch_and_add(&cell->total_ns, ns);
	__sync_fetch_and_add(&cell->total[log2_bucket(ns)], 1);
	__sync_fetch_and_add(&cell->submitted[flight->submitter & (SUBMITTERS - 1)], 1);
	if (!flight->issued)
		return;
	ns = now - flight->issued;
	__sync_fetch_and_add(&cell->issued, 1);
	__sync_fetch_and_add(&cell->device_ns, ns);
	__sync_fetch_and_add(&cell->device[log2_bucket(ns)], 1);
}

/* Counts a bio that is done; 0 if it is none that is timed. */
static noinline int completed(u64 bio)
{
	struct flight *flight = bpf_map_lookup_elem(&flights, &bio);
	struct cell *cell;
	u32 zero = 0;

	if (!flight)
		return 0;
	struct key key = { .owner = flight->owner, .dev = flight->dev, .kind = flight->kind };

	cell = bpf_map_lookup_elem(&cells, &key);
	if (!cell) {
		struct cell *none = bpf_map_lookup_elem(&empty, &zero);

		if (none)
			bpf_map_update_elem(&cells, &key, none, BPF_NOEXIST);
		cell = bpf_map_lookup_elem(&cells, &key);
	}
	if (cell)
		add(cell, flight);
	else
		lost();
	bpf_map_delete_elem(&flights, &bio);
	return 1;
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
		if (bytes > left || !completed(bio))
			return 0;
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
