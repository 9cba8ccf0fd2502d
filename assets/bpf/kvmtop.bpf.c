/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Counts what KVM's threads do, in the kernel, with nothing copied per event.
 *
 * A thread that fires a kvm event gets a slot of fixed size; `tasks` leads from its task_struct's address to the slot, by one
 * load for the threads that have none. Addresses, not thread ids, because the scheduler's raw tracepoints carry pointers: so
 * none of the programs needs to know how this kernel lays out a task_struct.
 * Where a table is full, what was not touched in this tick and the one before makes room; else the `other` cell counts.
 */
#include "layout.h"

char _license[] SEC("license") = "Dual MIT/GPL";

/* 1: count; 2: durations and the scheduler too. Set before the programs load. */
const volatile u32 level = 2;

/* Grows by one whenever kvmtop has read; `min`, `max` and bursts are of one epoch. */
volatile u32 epoch;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 256);
	__type(key, u32);
	__type(value, struct slot);
} slots SEC(".maps");

/* Thread id by slot; 0: free. Tells the reader which slots to look at. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 256);
	__type(key, u32);
	__type(value, u32);
} owners SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_STACK);
	__uint(max_entries, 256);
	__type(value, u32);
} free_slots SEC(".maps");

/* Events of threads for which no slot was left. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} homeless SEC(".maps");

struct bucket {
	u64 used;
	u64 entry[WAYS]; /* task << 7 | slot */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1 << TASK_BITS);
	__type(key, u32);
	__type(value, struct bucket);
} tasks SEC(".maps");

/* Where a CPU sits, numbers from 1, 0 where not known; and whether a timer of the kernel is expiring on it. */
struct cpu {
	u32 core, llc, node, in_timer;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct cpu);
} cpus SEC(".maps");

/* ---- threads ---- */

static always_inline struct bucket *bucket_of(u64 task)
{
	u32 b = ((task >> 6) * 0x9e3779b97f4a7c15ull) >> (64 - TASK_BITS);

	return bpf_map_lookup_elem(&tasks, &b);
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
	return bpf_map_lookup_elem(&slots, &index);
}

/* No compare-and-swap (kernel 5.12): should two new threads write one entry, the later one stays, and the other takes a second
 * slot at its next event. The reader adds slots of one thread up. */
static noinline struct slot *new_slot(u64 task)
{
	struct bucket *bucket = bucket_of(task);
	u32 index = 0, zero = 0;
	u64 id = bpf_get_current_pid_tgid();
	struct slot *s;
	u64 *lost;
	u32 *owner;

	if (!bucket)
		return 0;
	if (bpf_map_pop_elem(&free_slots, &index))
		goto lost;
	s = bpf_map_lookup_elem(&slots, &index);
	owner = bpf_map_lookup_elem(&owners, &index);
	if (!s || !owner)
		return 0;
	s->task = task;
	s->tid = id;
	s->tgid = id >> 32;
	bpf_get_current_comm(s->comm, sizeof(s->comm));
	s->cpu = bpf_get_smp_processor_id() + 1;
#pragma unroll
	for (int i = 0; i < WAYS; i++) {
		if (!bucket->entry[i]) {
			bucket->entry[i] = task << 7 | index;
			bucket->used = 1;
			*owner = id;
			return s;
		}
	}
	bpf_map_push_elem(&free_slots, &index, 0);
lost:
	lost = bpf_map_lookup_elem(&homeless, &zero);
	if (lost)
		__sync_fetch_and_add(lost, 1);
	return 0;
}

static always_inline struct slot *my_slot(void)
{
	u64 task = bpf_get_current_task();
	struct slot *s = slot_of(task);

	return s ? s : new_slot(task);
}

/* ---- durations ---- */

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

/* ---- exits ---- */

/* A byte that stands for a reason: VMX and SVM reasons that occur get one of their own, the rest share 0xff. */
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
	u32 now = epoch;
	struct exit_cell *c;
	u64 found;

	s->scratch = EXITS;
	for (u64 i = 0; i < EXITS - 1; i++) {
		c = &s->exits[i];
		if (c->used && c->code == code && c->isa == isa) {
			s->exit_index[0xff] = i + 1;
			return i;
		}
		if (s->scratch == EXITS && (!c->used || now - c->epoch > 1))
			s->scratch = i;
	}
	found = s->scratch;
	if (found >= EXITS - 1) {
		s->overflow++;
		s->exits[EXITS - 1].used = 1;
		return EXITS - 1;
	}
	c = &s->exits[found];
	if (c->used) {
		s->exit_index[short_code(c->code) & 0xff] = 0;
		__builtin_memset(c, 0, sizeof(*c));
	}
	c->used = 1;
	c->code = code;
	c->isa = isa;
	c->epoch = now;
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

SEC("tracepoint/kvm/kvm_exit")
int kvm_exit(struct trace_event_raw_kvm_exit *ctx)
{
	struct slot *s = my_slot();
	u32 code = 0, isa = 0;
	u64 i;

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
	s->exits_seen = 1;
	i = exit_cell(s, code, isa);
	opaque(i);
	if (i >= EXITS)
		return PASS;
	if (level < 2) {
		s->exits[i].time.count++;
		s->exits[i].epoch = epoch;
		return PASS;
	}
	s->exit_cell = i;
	s->touched = 0;
	s->user_at = 0;
	s->in_halt = 0;
	s->in_wait = 0;
	s->in_user_wait = 0;
	s->exit_at = bpf_ktime_get_ns();
	return PASS;
}

static always_inline void charge(struct slot *s, u64 touch, u64 ns, u64 times)
{
	u64 i = s->touches[touch];

	if (i > ACCESSES)
		return;
	s->accesses[i].timed = 1;
	add_time(&s->accesses[i].time, ns, times);
}

/* Several accesses in one exit have an equal share of its time each. */
static noinline int share(struct slot *s, u64 ns)
{
	u32 all = 0;

	for (u64 i = 0; i < TOUCHES; i++)
		if (i < s->touched)
			all += s->shares[i];
	if (!all)
		return 0;
	ns /= all;
	for (u64 i = 0; i < TOUCHES; i++)
		if (i < s->touched)
			charge(s, i, ns, s->shares[i]);
	return 0;
}

SEC("raw_tracepoint/kvm_entry")
int kvm_entry(struct raw_args *ctx)
{
	struct slot *s = slot_of(bpf_get_current_task());
	struct exit_cell *c;
	u64 now, ns, i;

	if (!s || !s->exit_at)
		return 0;
	now = bpf_ktime_get_ns();
	ns = now - s->exit_at;
	s->exit_at = 0;
	i = s->exit_cell;
	if (i >= EXITS)
		return 0;
	c = &s->exits[i];
	fresh(&c->time, &c->epoch);
	c->time.count++;
	add_time(&c->time, ns, 1);
	c->histogram[log2_bucket(ns)]++;
	c->halted += s->in_halt;
	c->preempted += s->in_wait + s->in_user_wait;
	if (s->user_at)
		c->userspace += now - s->user_at - s->in_user_wait;
	if (s->touched == 1 && s->shares[0] == 1)
		charge(s, 0, ns, 1);
	else if (s->touched)
		share(s, ns);
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
	if (s->exit_at)
		s->user_at = bpf_ktime_get_ns();
	return 0;
}

SEC("raw_tracepoint/kvm_vcpu_wakeup")
int kvm_vcpu_wakeup(struct raw_args *ctx)
{
	struct slot *s = slot_of(bpf_get_current_task());

	if (s && s->exit_at)
		s->in_halt += ctx->arg[0];
	return 0;
}

/* ---- accesses ---- */

enum { PIO = 1, MMIO = 2, MSR = 3 };

static always_inline u64 probe(u64 key)
{
	return (key * 0x9e3779b97f4a7c15ull) >> 58;
}

/* Not at its first place: at one of the next, or not there yet. */
static noinline u64 find_access(struct slot *s, u64 key)
{
	u64 first = probe(key), found = ACCESSES;
	u32 now = epoch;
	struct access_cell *c;

	for (u64 i = 0; i < PROBES; i++) {
		u64 at = (first + i) & (ACCESSES - 1);

		c = &s->accesses[at];
		if (c->key == key)
			return at;
		if (found == ACCESSES && (!c->key || now - c->epoch > 1))
			found = at;
	}
	if (found >= ACCESSES) {
		s->overflow++;
		/* One `other` cell for all; its key is never found. */
		s->accesses[ACCESSES].key = key & 7;
		return ACCESSES;
	}
	c = &s->accesses[found & (ACCESSES - 1)];
	__builtin_memset(c, 0, sizeof(*c));
	c->key = key;
	c->epoch = now;
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
 * Bursts are runs with gaps below 1 ms. Without a kvm_exit to give the time the clock is read here, which costs as much as all
 * the rest: eight accesses in a row that are dense enough share one reading, as no gap among them can be that long unseen.
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

static always_inline void access(u64 address, u64 space, u64 write, u64 fault)
{
	struct slot *s = my_slot();
	u64 key = address << 3 | space << 1 | write;
	struct access_cell *c;
	u64 i;

	if (!s)
		return;
	i = probe(key) & (ACCESSES - 1);
	if (s->accesses[i].key != key)
		i = find_access(s, key);
	if (i > ACCESSES)
		return;
	c = &s->accesses[i];
	c->time.count++;
	c->faults += fault;
	if (level < 2) {
		c->epoch = epoch;
		return;
	}
	if (c->epoch != epoch) {
		c->epoch = epoch;
		c->time.min = 0;
		c->time.max = 0;
		c->best = 0;
		c->run = 0;
		c->skip = 0;
	}
	if (c->skip) {
		c->skip--;
		c->run++;
	} else {
		burst(c, s->exit_at);
	}
	if (c->run > c->best) {
		c->best = c->run;
		c->best_ns = c->last - c->run_start;
	}
	if (s->exit_at)
		touch(s, i);
}

SEC("raw_tracepoint/kvm_pio")
int kvm_pio(struct raw_args *ctx)
{
	access(ctx->arg[1] & 0xffff, PIO, ctx->arg[0] & 1, 0);
	return 0;
}

/* A read that user space serves comes twice, first as type 0 without its value: that one does not count. */
SEC("raw_tracepoint/kvm_mmio")
int kvm_mmio(struct raw_args *ctx)
{
	u32 type = ctx->arg[0];

	if (type)
		access(ctx->arg[2] & ~3ull, MMIO, type == 2, 0);
	return 0;
}

/* A write that an ioeventfd takes before any emulation. */
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

/* ---- the scheduler ---- */

/* Takes the place of the least if all are taken. */
static noinline int add_other(struct slot *s, struct other_task *others, u32 tid, u64 ns, const char *comm)
{
	u64 count = ~0ull;

	s->scratch = 0;
	for (u64 i = 0; i < OTHERS; i++) {
		struct other_task *o = &others[i];

		if (o->count && o->tid == tid) {
			o->count++;
			o->ns += ns;
			return 0;
		}
		if (o->count < count) {
			count = o->count;
			s->scratch = i;
		}
	}
	struct other_task *o = &others[s->scratch & (OTHERS - 1)];

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

enum { ASLEEP, RUNNABLE, UNTOLD };

static noinline int switched_in(struct slot *s)
{
	u64 now = bpf_ktime_get_ns();
	u32 cpu = bpf_get_smp_processor_id() + 1, tid, slept;
	u64 out = s->out_at, wait;

	if (s->cpu != cpu) {
		if (s->cpu)
			moved(s, s->cpu, cpu);
		s->cpu = cpu;
	}
	if (!out)
		return 0;
	s->out_at = 0;
	slept = s->runnable == UNTOLD ? s->waking_at > out : s->runnable == ASLEEP;
	if (slept) {
		u64 woken = s->waking_at;

		if (!woken)
			return 0;
		/* Woken between its decision to sleep and the switch: then it waited from the switch on. */
		wait = now - (woken > out ? woken : out);
		fresh(&s->wakeup, &s->wakeup_epoch);
		s->wakeup.count++;
		add_time(&s->wakeup, wait, 1);
		s->wakeup_histogram[log2_bucket(wait)]++;
		add_other(s, s->woken_by, s->waker, 0, s->waker_comm);
	} else {
		wait = now - out;
		if (s->user_at)
			s->in_user_wait += wait;
		else
			s->in_wait += wait;
	}
	/* Still `prev`: the task that gives the CPU up. Idle (0) held nothing. */
	tid = bpf_get_current_pid_tgid();
	if (tid)
		add_other(s, s->held_by, tid, wait, 0);
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
	if (n)
		switched_in(n);
}

/* 5.18 and later: preempt, prev, next, prev_state. */
SEC("raw_tracepoint/sched_switch")
int sched_switch(struct raw_args *ctx)
{
	switched(ctx->arg[1], ctx->arg[2], (ctx->arg[0] & 1) || !(u32)ctx->arg[3] ? RUNNABLE : ASLEEP);
	return 0;
}

/* Before: no prev_state. A thread slept if something woke it. */
SEC("raw_tracepoint/sched_switch")
int sched_switch_old(struct raw_args *ctx)
{
	switched(ctx->arg[1], ctx->arg[2], ctx->arg[0] & 1 ? RUNNABLE : UNTOLD);
	return 0;
}

/*
 * Who wakes is the running task, unless an interrupt took its place. What wakes vCPUs from an interrupt is timers above all:
 * their own, which KVM keeps in an hrtimer.
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

/* The task_struct will be another thread's one day. */
SEC("raw_tracepoint/sched_process_exit")
int sched_process_exit(struct raw_args *ctx)
{
	u64 task = ctx->arg[0], tag = task << 7;
	struct bucket *bucket = bucket_of(task);
	struct slot *s = slot_of(task);

	if (!s || !bucket)
		return 0;
	s->dead = 1;
#pragma unroll
	for (int i = 0; i < WAYS; i++)
		if ((bucket->entry[i] ^ tag) < 1 << SLOT_BITS)
			bucket->entry[i] = 0;
	return 0;
}
