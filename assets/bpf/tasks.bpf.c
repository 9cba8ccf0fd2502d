/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Writes a record of each thread of watched processes, when kvmtop reads it: what /proc/PID/task/TID/{stat,schedstat,
 * sched} say in text.
 */
#include "watched.h"

char _license[] SEC("license") = "Dual MIT/GPL";

#define MASK_WORDS 16 /* of the affinity, so 1024 CPUs */

/* Where fields are in a task_struct, bytes, by the running kernel's BTF. Set before the program loads. */
const volatile u32 at_pid = 0, at_tgid = 0, at_comm = 0;
const volatile u32 at_state = 0, at_exit_state = 0, at_cpu = 0, at_policy = 0, at_rt_priority = 0;
const volatile u32 at_start = 0;
const volatile u32 at_utime = 0, at_stime = 0, at_gtime = 0, at_shown_utime = 0, at_shown_stime = 0;
const volatile u32 at_run = 0, at_wait = 0, at_migrations = 0, at_voluntary = 0, at_involuntary = 0;
const volatile u32 at_affinity = 0;
const volatile u32 mask_words = 1;

struct record {
	u32 pid, tgid;
	u32 state, exit_state, cpu, policy, rt_priority, pad;
	u64 start_ns;
	u64 utime, stime, gtime, shown_utime, shown_stime;
	u64 run, wait, migrations, voluntary, involuntary;
	u64 affinity;
	char comm[16];
};

_Static_assert(sizeof(struct record) == 144, "src/source/engine/bpf/tasks.rs reads a record as words");

struct bpf_iter_meta {
	void *seq;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	void *task;
};

static long (*const bpf_seq_write)(void *seq, const void *data, u32 len) = (void *)127;

#define WORD(at) (*(u64 *)(task + (at)))
#define HALF(at) (*(u32 *)(task + (at)))

SEC("iter/task")
int threads(struct bpf_iter__task *ctx)
{
	void *task = ctx->task;
	struct record r = {};

	if (!task)
		return 0;
	r.tgid = HALF(at_tgid);
	if (!bpf_map_lookup_elem(&watched, &r.tgid))
		return 0;
	r.pid = HALF(at_pid);
	r.state = HALF(at_state);
	r.exit_state = HALF(at_exit_state);
	r.cpu = HALF(at_cpu);
	r.policy = HALF(at_policy);
	r.rt_priority = HALF(at_rt_priority);
	r.start_ns = WORD(at_start);
	r.utime = WORD(at_utime);
	r.stime = WORD(at_stime);
	r.gtime = WORD(at_gtime);
	r.shown_utime = WORD(at_shown_utime);
	r.shown_stime = WORD(at_shown_stime);
	r.run = WORD(at_run);
	r.wait = WORD(at_wait);
	r.migrations = WORD(at_migrations);
	r.voluntary = WORD(at_voluntary);
	r.involuntary = WORD(at_involuntary);
	/* A fingerprint: kvmtop asks for the affinity itself when it differs. */
#pragma unroll
	for (int i = 0; i < MASK_WORDS; i++)
		if (i < mask_words)
			r.affinity = (r.affinity ^ WORD(at_affinity + 8 * i)) * 0x9e3779b97f4a7c15ull;
	*(u64 *)r.comm = WORD(at_comm);
	*(u64 *)(r.comm + 8) = WORD(at_comm + 8);
	bpf_seq_write(ctx->meta->seq, &r, sizeof(r));
	return 0;
}
