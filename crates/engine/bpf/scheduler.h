/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Where vCPU threads run, what they wait for, and who wakes them. */
#pragma once
#include "threads.h"
#include "durations.h"

/* Moves the counts of the rarest task to the rest, and gives its place away. */
static noinline u64 make_place(struct other_tasks *others)
{
	u64 rarest = ~0ull >> 1;
	struct other_task *o;

	for (u64 i = 0; i < OTHERS; i++) {
		u64 candidate = (u64)others->task[i].count << 4 | i;

		rarest ^= (rarest ^ candidate) & -is_less(candidate, rarest);
	}
	rarest &= OTHERS - 1;
	o = &others->task[rarest];
	others->rest.count += o->count;
	others->rest.total += o->ns;
	return rarest;
}

/* Places fill in order, and none gets empty again. */
static noinline int add_other(struct other_tasks *others, u64 tid, u64 ns, const char *comm)
{
	struct other_task *o;

	for (u64 i = 0; i < OTHERS; i++) {
		o = &others->task[i];
		if (!o->count)
			goto take;
		if (o->tid == tid) {
			o->count++;
			o->ns += ns;
			return 0;
		}
	}
	o = &others->task[make_place(others) & (OTHERS - 1)];
take:
	o->tid = tid;
	o->count = 1;
	o->ns = ns;
	if (comm)
		__builtin_memcpy(o->comm, comm, 16);
	else
		bpf_get_current_comm(o->comm, 16);
	return 0;
}

static noinline void moved(struct slot *s, u32 from, u32 to)
{
	u32 a = from - 1, b = to - 1;
	struct cpu *p = bpf_map_lookup_elem(&cpus, &a);
	struct cpu *q = bpf_map_lookup_elem(&cpus, &b);

	s->from = from;
	s->migrations++;
	if (!p || !q)
		return;
	if (p->core && q->core && p->core != q->core)
		s->cross_core++;
	if (p->llc && q->llc && p->llc != q->llc)
		s->cross_llc++;
	if (p->node && q->node && p->node != q->node)
		s->cross_node++;
}

enum { ASLEEP, RUNNABLE, UNKNOWN, STOPPED };

#define STOPPED_STATES 0xc /* __TASK_STOPPED, __TASK_TRACED: by SIGSTOP, by a debugger */

static noinline int switched_in(struct slot *s, u32 epoch)
{
	u64 now = bpf_ktime_get_ns();
	u32 cpu = bpf_get_smp_processor_id() + 1, slept;
	u64 out = s->out_at, woken, wait, tid;

	if (s->cpu != cpu) {
		if (s->cpu)
			moved(s, s->cpu, cpu);
		s->cpu = cpu;
	}
	if (!out)
		return 0;
	s->out_at = 0;
	woken = s->waking_at;
	s->waking_at = 0; /* if the next waking is missed, nothing is known of it */
	if (s->runnable == STOPPED && s->exit_at && !s->ended_at)
		s->stopped += now - out;
	slept = s->runnable == UNKNOWN ? woken > out : s->runnable != RUNNABLE;
	if (slept) {
		if (!woken)
			return 0;
		/* Woken between its decision to sleep and the switch: then it waited from the switch on. */
		wait = now - (woken > out ? woken : out);
		s->wakeup.count++;
		add_time(&s->wakeup, extremes_of(&s->wakeup, epoch), wait, 1);
		s->wakeup_histogram[log2_bucket(wait)]++;
		add_other(&s->woken_by, s->waker, 0, s->waker_comm);
	} else {
		wait = now - out;
		if (s->ended_at)
			; /* the exit's time is over */
		else if (s->user_at)
			s->in_user_wait += wait;
		else
			s->in_wait += wait;
		s->preempted.count++;
		add_time(&s->preempted, extremes_of(&s->preempted, epoch), wait, 1);
		s->preempted_histogram[log2_bucket(wait)]++;
	}
	/* Still `prev`: the task that gives the CPU up. Idle (0) held nothing. */
	tid = (u32)bpf_get_current_pid_tgid();
	if (tid)
		add_other(&s->held_by, tid, wait, 0);
	return 0;
}

static always_inline void switched(u64 prev, u64 next, u32 runnable)
{
	struct slot *p = slot_of(prev), *n = slot_of(next);

	if (p) {
		p->out_at = bpf_ktime_get_ns();
		p->runnable = runnable;
	}
	opaque(n); /* else the two checks become one of `p | n`, which the verifier refuses of pointers */
	if (n) {
		switched_in(n, begin_change(n));
		end_change(n);
	}
}

/* How a thread leaves its CPU. `state`: 0 runs on. */
static always_inline u32 state_of(u64 preempt, u32 state)
{
	if ((preempt & 1) || !state)
		return RUNNABLE;
	return state & STOPPED_STATES ? STOPPED : ASLEEP;
}

/* 5.18 and later: preempt, prev, next, prev_state. */
SEC("raw_tracepoint/sched_switch")
int sched_switch(struct raw_args *ctx)
{
	switched(ctx->arg[1], ctx->arg[2], state_of(ctx->arg[0], ctx->arg[3]));
	return 0;
}

/* Where a task_struct has its `state` (`__state` from 5.14 on), by the kernel's BTF; 0: not known. */
const volatile u32 at_state = 0;

/* Before: no prev_state. It is read from the task; where that is not possible, a thread slept if something woke it. */
SEC("raw_tracepoint/sched_switch")
int sched_switch_old(struct raw_args *ctx)
{
	u32 state = ctx->arg[0] & 1 ? RUNNABLE : UNKNOWN;

	if (at_state && slot_of(ctx->arg[1]))
		state = state_of(ctx->arg[0], number_at(ctx->arg[1] + at_state));
	switched(ctx->arg[1], ctx->arg[2], state);
	return 0;
}

/*
 * The waker is the running task, unless an interrupt interrupted it. Most wake-ups of vCPUs from interrupts come from
 * timers: their own, which KVM keeps in an hrtimer.
 */
static always_inline void timer(u32 expiring)
{
	u32 here = bpf_get_smp_processor_id();
	struct cpu *cpu = bpf_map_lookup_elem(&cpus, &here);

	if (cpu)
		cpu->in_timer = expiring;
}

SEC("raw_tracepoint/hrtimer_expire_entry")
int hrtimer_expire_entry(struct raw_args *ctx)
{
	timer(1);
	return 0;
}

SEC("raw_tracepoint/hrtimer_expire_exit")
int hrtimer_expire_exit(struct raw_args *ctx)
{
	timer(0);
	return 0;
}

SEC("raw_tracepoint/sched_waking")
int sched_waking(struct raw_args *ctx)
{
	struct slot *s = slot_of(ctx->arg[0]);
	u32 here = bpf_get_smp_processor_id();
	struct cpu *cpu;

	if (!s)
		return 0;
	s->waking_at = bpf_ktime_get_ns();
	cpu = bpf_map_lookup_elem(&cpus, &here);
	if (cpu && cpu->in_timer) {
		s->waker = 0;
		__builtin_memcpy(s->waker_comm, "timer", 6);
		return 0;
	}
	s->waker = bpf_get_current_pid_tgid();
	bpf_get_current_comm(s->waker_comm, sizeof(s->waker_comm));
	return 0;
}

/* The kernel will reuse the task_struct for another thread. */
SEC("raw_tracepoint/sched_process_exit")
int sched_process_exit(struct raw_args *ctx)
{
	u64 task = ctx->arg[0], tag = task << 7;
	struct bucket *bucket = bucket_of(task);
	struct slot *s = slot_of(task);

	if (!s || !bucket)
		return 0;
	s->died = bpf_ktime_get_ns();
#pragma unroll
	for (int i = 0; i < WAYS; i++)
		if ((bucket->entry[i] ^ tag) < 1 << SLOT_BITS)
			bucket->entry[i] = 0;
	return 0;
}
