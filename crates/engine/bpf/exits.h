/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Exits: from kvm_exit to the next kvm_entry of the thread. An exit in which the VMM takes the vCPU out of KVM (a
 * signal ends KVM_RUN, as when a guest is paused) lasts until then: the vCPU may stay out for hours. What it halts in
 * the same exit later counts as well.
 */
#pragma once
#include "accesses.h"

/* A byte for each VMX and SVM reason that occurs; 0xff for all others. */
static always_inline u64 short_code(u32 code)
{
	if (code < 0xc0)
		return code;
	if (code >> 2 == 0x100) /* SVM npf, avic, vmgexit */
		return 0xc0 | (code & 3);
	if (code >> 2 == 0x40) /* arm64 irq, serror, ... as kvm::exit_reason numbers them */
		return 0xc4 | (code & 3);
	return 0xff;
}

static noinline u64 new_exit(struct slot *s, u32 code, u32 isa)
{
	struct exit_cell *c;
	u32 epoch;
	u64 found;

	s->scratch = EXITS;
	for (u64 i = 0; i < EXITS - 1; i++) {
		c = &s->exits[i];
		if (c->used && c->code == code && c->isa == isa) {
			s->exit_index[0xff] = i + 1;
			return i;
		}
		if (s->scratch == EXITS && (!c->used || !is_recent(&c->time, s->epoch)))
			s->scratch = i;
	}
	found = s->scratch;
	if (found >= EXITS - 1) {
		s->overflow++;
		s->exits[EXITS - 1].used = 1;
		return EXITS - 1;
	}
	c = &s->exits[found];
	epoch = begin_change(s);
	if (c->used) {
		s->exit_index[short_code(c->code) & 0xff] = 0;
		__builtin_memset(c, 0, sizeof(*c));
	}
	c->used = 1;
	c->code = code;
	c->isa = isa;
	c->time.epoch[epoch & 1] = epoch;
	end_change(s);
	s->exit_index[short_code(code) & 0xff] = found + 1;
	return found;
}

static always_inline u64 exit_cell(struct slot *s, u32 code, u32 isa)
{
	u64 key = short_code(code);
	u64 i = s->exit_index[key & 0xff] - 1ull;

	opaque(i);
	if (i < EXITS - 1 && (key != 0xff || s->exits[i].code == code))
		return i;
	return new_exit(s, code, isa);
}

/* The fields of this kernel's `format` file, by a BTF that kvmtop makes of it: offsets below are placeholders. */
struct trace_event_raw_kvm_exit {
	u64 common;
	u32 exit_reason;
	u32 isa;
	u32 vcpu_id;
	s32 ret;
	u32 esr_ec;
} relocated;

/* A classic tracepoint program that returns 0 takes the event away from every perf session on the host. */
enum { PASS = 1 };

static always_inline void exited(struct slot *s, u32 code, u32 isa)
{
	u64 i = exit_cell(s, code, isa);

	opaque(i);
	if (i >= EXITS)
		return;
	s->exits_seen = 1;
	s->exit_cell = i;
	s->touched = 0;
	s->user_at = 0;
	s->in_halt = 0;
	s->in_wait = 0;
	s->in_user_wait = 0;
	s->ended_at = 0;
	s->halted_after = 0;
	s->stopped = 0;
	s->exit_at = bpf_ktime_get_ns();
}

SEC("tracepoint/kvm/kvm_exit")
int kvm_exit(struct trace_event_raw_kvm_exit *ctx)
{
	struct slot *s = my_slot();
	u32 code = 0, isa = 0;

	if (!s)
		return PASS;
	if (field_exists(ctx->exit_reason)) {
		code = ctx->exit_reason;
		if (field_exists(ctx->isa))
			isa = ctx->isa;
	} else if (field_exists(ctx->esr_ec)) { /* arm64: numbered as by kvm::exit_reason::arm64_code */
		u32 ret = ctx->ret & 0x7fffffff;

		isa = 0xa64;
		code = ret == 2 ? ctx->esr_ec & 0x3f : 0x100 + ret;
	}
	if (field_exists(ctx->vcpu_id))
		s->vcpu = ctx->vcpu_id + 1;
	exited(s, code, isa);
	return PASS;
}

/*
 * The classic tracepoint costs five times as much as a raw one, as it collects a record first. The raw one has the
 * reason as an argument up to 5.15. Later, on AMD, it is read from where the record gets it (`svm_get_exit_info` in
 * arch/x86/kvm/svm/svm.c). Places are bytes, by the running kernel's BTF, set before the programs load.
 */
const volatile u32 at_vcpu_id = 0;   /* in a kvm_vcpu, with which a vcpu_svm begins */
const volatile u32 at_vmcb = 0;	     /* in a vcpu_svm */
const volatile u32 at_exit_code = 0; /* in its vmcb */

static always_inline void read_vcpu_id(struct slot *s, u64 vcpu)
{
	u32 id = 0;

	if (s->kvm_vcpu == vcpu)
		return;
	bpf_probe_read_kernel(&id, sizeof(id), (void *)(vcpu + at_vcpu_id));
	s->kvm_vcpu = vcpu;
	s->vcpu = id + 1;
}

/* 5.16 and later: vcpu, isa. */
SEC("raw_tracepoint/kvm_exit")
int kvm_exit_raw(struct raw_args *ctx)
{
	struct slot *s = my_slot();
	u64 vcpu = ctx->arg[0], vmcb = 0;
	u32 code = 0;

	if (!s)
		return 0;
	read_vcpu_id(s, vcpu);
	bpf_probe_read_kernel(&vmcb, sizeof(vmcb), (void *)(vcpu + at_vmcb));
	bpf_probe_read_kernel(&code, sizeof(code), (void *)(vmcb + at_exit_code));
	exited(s, code, ctx->arg[1]);
	return 0;
}

/* Before: reason, vcpu, isa. */
SEC("raw_tracepoint/kvm_exit")
int kvm_exit_raw_old(struct raw_args *ctx)
{
	struct slot *s = my_slot();

	if (!s)
		return 0;
	read_vcpu_id(s, ctx->arg[1]);
	exited(s, ctx->arg[0], ctx->arg[2]);
	return 0;
}

/* Charges `times` accesses with `ns` each. `bucket`: log2_bucket(ns), which the caller has computed. */
static always_inline void charge(struct slot *s, u32 epoch, u64 touch, u64 ns, u64 bucket, u64 times)
{
	u64 i = s->touches[touch];
	struct access_cell *c;

	if (i >= ACCESSES) {
		s->rests[i & (REST_KINDS - 1)].total += ns * times;
		return;
	}
	c = &s->accesses[i];
	c->timed = 1;
	add_time(&c->time, access_extremes(c, epoch), ns, times);
	s->access_histogram[i][bucket & (BUCKETS - 1)] += times;
}

/* Several accesses in one exit have an equal share of its time each. */
static noinline int share(struct slot *s, u32 epoch, u64 ns)
{
	u32 all = 0;
	u64 bucket;

	for (u64 i = 0; i < TOUCHES; i++)
		if (i < s->touched)
			all += s->shares[i];
	if (!all)
		return 0;
	ns /= all;
	bucket = log2_bucket(ns);
	for (u64 i = 0; i < TOUCHES; i++)
		if (i < s->touched)
			charge(s, epoch, i, ns, bucket, s->shares[i]);
	return 0;
}

SEC("raw_tracepoint/kvm_entry")
int kvm_entry(struct raw_args *ctx)
{
	struct slot *s = slot_of(bpf_get_current_task());
	struct exit_cell *c;
	u64 end, ns, i, bucket;
	u32 epoch;

	if (!s || !s->exit_at)
		return 0;
	end = s->ended_at;
	if (!end)
		end = bpf_ktime_get_ns();
	ns = end - s->exit_at - s->stopped + s->halted_after;
	s->exit_at = 0;
	i = s->exit_cell;
	if (i >= EXITS)
		return 0;
	c = &s->exits[i];
	epoch = begin_change(s);
	c->time.count++;
	add_time(&c->time, extremes_of(&c->time, epoch), ns, 1);
	bucket = log2_bucket(ns);
	c->histogram[bucket]++;
	c->halted += s->in_halt;
	c->preempted += s->in_wait + s->in_user_wait;
	if (s->user_at)
		c->userspace += end - s->user_at - s->in_user_wait - s->stopped;
	if (s->touched == 1 && s->shares[0] == 1)
		charge(s, epoch, 0, ns, bucket, 1);
	else if (s->touched)
		share(s, epoch, ns);
	end_change(s);
	return 0;
}

SEC("raw_tracepoint/kvm_userspace_exit")
int kvm_userspace_exit(struct raw_args *ctx)
{
	struct slot *s = my_slot();
	u64 reason = (u32)ctx->arg[0];
	s32 error = ctx->arg[1];

	if (!s)
		return 0;
	if (error < 0) {
		reason = USERSPACE - 2;
		if (error != -4) { /* EINTR */
			reason = USERSPACE - 1;
			s->other_errno = error;
		}
	} else if (reason >= USERSPACE - 2) {
		reason = USERSPACE - 1;
		s->other_errno = reason;
	}
	s->userspace[reason]++;
	s->userspace_used |= 1ull << reason;
	if (!s->exit_at || s->ended_at)
		return 0;
	if (ENDS_EXIT >> reason & 1)
		s->ended_at = bpf_ktime_get_ns();
	else if (!s->user_at)
		s->user_at = bpf_ktime_get_ns();
	return 0;
}

SEC("raw_tracepoint/kvm_vcpu_wakeup")
int kvm_vcpu_wakeup(struct raw_args *ctx)
{
	struct slot *s = slot_of(bpf_get_current_task());

	if (!s || !s->exit_at)
		return 0;
	s->in_halt += ctx->arg[0];
	if (s->ended_at)
		s->halted_after += ctx->arg[0];
	return 0;
}
