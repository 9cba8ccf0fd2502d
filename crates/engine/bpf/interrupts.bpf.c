/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Times the way of an interrupt to a vCPU, in the kernel, without copying events.
 *
 * KVM announces an interrupt (kvm_set_irq, kvm_msi_set_irq, kvm_apic_ipi) and then gives it to the local APIC of each
 * vCPU that it is for (kvm_apic_accept_irq), all within one call of whoever injects it: a thread of the guest, vhost, a
 * kernel worker, a hard interrupt. A vCPU that sleeps is woken within that call too, a running one is kicked. So what
 * a context announced last belongs to what its vCPUs accept next, and the vCPU thread that it wakes then is the target.
 * kvm_vcpu_wakeup says whether the vCPU did sleep in KVM, kvm_entry when it runs the guest again.
 *
 * On arm64 one event stands for all of this (vgic_update_irq_pending), and names no vCPU for a line: the one that it
 * wakes is its target. A line that wakes none is counted, not timed; IPIs and messages of an ITS have no such event.
 *
 * An interrupt that comes to a vCPU while another one is on its way to it is counted, not timed.
 *
 * The other way, a guest's write that KVM turns into an eventfd (a doorbell) wakes a thread of its VMM or vhost within
 * the exit: what a vCPU thread wakes after kvm_pio or kvm_mmio, before it returns to the guest or to the VMM. A thread
 * that was awake anyway is not seen.
 *
 * The programs of kvm_entry and of the scheduler run very often, and few of their events concern an interrupt. So each
 * checks a small table first.
 */
#include "buckets.h"
#include "watched.h"

char _license[] SEC("license") = "Dual MIT/GPL";

/* Where fields of a task_struct are, bytes, by the running kernel's BTF. Set before the programs load. */
const volatile u32 task_pid = 0;
const volatile u32 task_tgid = 0;
const volatile u32 task_comm = 0;
const volatile u32 task_notifiers = 0; /* preempt_notifiers */
/* In a kvm_vcpu, by the BTF of KVM. */
const volatile u32 at_vcpu_id = 0;
/* 1: the processor delivers some interrupts (APICv, AVIC), and this kernel does not say which. */
const volatile u32 any_is_posted = 0;

/* What the context of this CPU (a task, or interrupts) announced, and which vCPU accepted it last. */
struct context {
	u64 task;
	u32 source, number;
	u64 at; /* 0: none was accepted, or it was woken */
	struct irq_key key;
};

/* A thread that a doorbell woke. */
struct ring {
	u64 at, ran; /* ns; ran 0: it has no CPU yet */
	struct bell_key key; /* space 0: KVM has not said which place it was */
	char comm[16];
};

/* A vCPU's thread, and the wake-up that an interrupt gave it. */
struct vcpu {
	u32 owner, vcpu; /* kvmtop fills these; a vCPU whose number it does not know is NO_VCPU */
	u64 at, waking, running; /* ns; `waking` 0: none */
};

/* By thread id. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, u32);
	__type(value, struct vcpu);
} vcpus SEC(".maps");

struct cpu {
	u32 interrupted; /* it handles a device's interrupt (1), expires a timer (2) or runs a softirq (4) */
	u32 pad;
	struct context contexts[2]; /* of tasks, and of interrupts */
	u64 task, vcpu; /* the thread and the struct kvm_vcpu that entered a guest here last */
	struct target entered;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct cpu);
} cpus SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, struct target);
	__type(value, struct flight);
} flights SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct irq_key);
	__type(value, struct irq_cell);
} cells SEC(".maps");

/* What a new cell holds: it is larger than a program's stack. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct irq_cell);
} empty SEC(".maps");

/* By thread id. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, u32);
	__type(value, struct ring);
} rings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, struct bell_key);
	__type(value, struct bell);
} bells SEC(".maps");

/* What a new bell holds. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct bell);
} silent SEC(".maps");

/* Interrupts injected by a kernel worker or a hard interrupt, which belong to no guest. */
struct foreign {
	u64 all;
	u64 claimed; /* those that woke a vCPU and so have a guest */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct foreign);
} foreign SEC(".maps");

static always_inline void count_foreign(u64 all, u64 claimed)
{
	u32 zero = 0;
	struct foreign *n = bpf_map_lookup_elem(&foreign, &zero);

	if (!n)
		return;
	__sync_fetch_and_add(&n->all, all);
	__sync_fetch_and_add(&n->claimed, claimed);
}

/* Whether kvm_entry fires on this kernel. */
static volatile u32 entries_fire;

#define PLACES 4096
#define place_of(n) ((((n) * 0x9e3779b97f4a7c15ull) >> 52) & (PLACES - 1))

/* How many flights there are to the vCPUs of each place. */
static volatile u32 in_flight[PLACES];

/* Whether an interrupt or a doorbell ever woke a task of this place. */
static volatile u32 woken[PLACES];

/* What a vCPU's thread does within an exit. */
static struct exit {
	u64 task;
	u64 written; /* it wrote to this port or address */
	u32 space;   /* 0: it did not */
	u32 rung;    /* a thread that it woke without such a write */
} exits[PLACES];

static always_inline struct exit *exit_of(u64 task)
{
	return &exits[place_of(task >> 6)];
}

static always_inline volatile u32 *flights_to(const struct target *target)
{
	return &in_flight[place_of((u64)target->owner << 32 | target->vcpu)];
}

static always_inline volatile u32 *was_woken(u64 task)
{
	return &woken[place_of(task >> 6)];
}

static always_inline void end_flight(const struct target *target)
{
	if (!bpf_map_delete_elem(&flights, target))
		__sync_fetch_and_add(flights_to(target), -1);
}

static always_inline struct cpu *this_cpu(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&cpus, &zero);
}

static always_inline int set_interrupt(u32 bit, u32 value)
{
	struct cpu *cpu = this_cpu();

	if (cpu)
		cpu->interrupted = (cpu->interrupted & ~bit) | value;
	return 0;
}

SEC("raw_tracepoint/irq_handler_entry")
int irq_handler_entry(struct raw_args *ctx)
{
	return set_interrupt(1, 1);
}

SEC("raw_tracepoint/irq_handler_exit")
int irq_handler_exit(struct raw_args *ctx)
{
	return set_interrupt(1, 0);
}

SEC("raw_tracepoint/hrtimer_expire_entry")
int hrtimer_expire_entry(struct raw_args *ctx)
{
	return set_interrupt(2, 2);
}

SEC("raw_tracepoint/hrtimer_expire_exit")
int hrtimer_expire_exit(struct raw_args *ctx)
{
	return set_interrupt(2, 0);
}

SEC("raw_tracepoint/softirq_entry")
int softirq_entry(struct raw_args *ctx)
{
	return set_interrupt(4, 4);
}

SEC("raw_tracepoint/softirq_exit")
int softirq_exit(struct raw_args *ctx)
{
	return set_interrupt(4, 0);
}

/* The context that runs on this CPU. */
static always_inline struct context *context(struct cpu *cpu)
{
	return &cpu->contexts[cpu->interrupted ? 1 : 0];
}

static always_inline int announce(u32 source, u32 number)
{
	struct cpu *cpu = this_cpu();
	struct context *c;

	if (!cpu)
		return 0;
	c = context(cpu);
	c->task = bpf_get_current_task();
	c->source = source;
	c->number = number;
	c->at = 0;
	return 0;
}

/* gsi, level, source */
SEC("raw_tracepoint/kvm_set_irq")
int kvm_set_irq(struct raw_args *ctx)
{
	u32 gsi = ctx->arg[0], level = ctx->arg[1];

	return level ? announce(GSI, gsi) : announce(LOCAL, 0);
}

/* It ends the delivery (arch/x86/kvm/ioapic.c, ioapic_set_irq). */
SEC("raw_tracepoint/kvm_ioapic_set_irq")
int kvm_ioapic_set_irq(struct raw_args *ctx)
{
	return announce(LOCAL, 0);
}

/* address, data: the vector is data's low byte. An irqfd of a GSI that is routed to an MSI comes here too. */
SEC("raw_tracepoint/kvm_msi_set_irq")
int kvm_msi_set_irq(struct raw_args *ctx)
{
	return announce(MSI, ctx->arg[1] & 0xff);
}

/* icr_low, dest_id */
SEC("raw_tracepoint/kvm_apic_ipi")
int kvm_apic_ipi(struct raw_args *ctx)
{
	return announce(IPI, ctx->arg[0] & 0xff);
}

static always_inline u32 injector(const struct cpu *cpu, u64 id)
{
	u32 tid = id;

	if (cpu->interrupted)
		return INTERRUPT;
	return bpf_map_lookup_elem(&vcpus, &tid) ? VCPU : current_kind(id);
}

static noinline struct irq_cell *cell_of(const struct irq_key *key)
{
	struct irq_cell *cell = key ? find_or_add(&cells, key, &empty) : 0;

	if (cell && key->tid && !cell->comm[0])
		bpf_get_current_comm(cell->comm, sizeof(cell->comm));
	return cell;
}

static always_inline int add_count(struct irq_cell *cell, u64 times)
{
	__sync_fetch_and_add(&cell->count, times);
	return 0;
}

/* Counts an interrupt, and lets its way begin. */
static always_inline int begin(const struct irq_key *key, u64 now)
{
	struct target target = { .owner = key->owner, .vcpu = key->vcpu };
	struct flight flight = { .at = now, .posted = any_is_posted, .key = *key }, *before;
	struct irq_cell *cell = cell_of(key);

	if (!cell)
		return lost();
	add_count(cell, 1);
	if (!bpf_map_update_elem(&flights, &target, &flight, BPF_NOEXIST)) {
		__sync_fetch_and_add(flights_to(&target), 1);
		return 0;
	}
	/* Nothing ends the way of a kicked vCPU then. */
	if (!entries_fire)
		return bpf_map_update_elem(&flights, &target, &flight, BPF_ANY) ? lost() : 0;
	before = bpf_map_lookup_elem(&flights, &target);
	if (!before)
		return lost();
	if (before->posted)
		return bpf_map_update_elem(&flights, &target, &flight, BPF_ANY) ? lost() : 0;
	__sync_fetch_and_add(&cell->joined, 1);
	return 0;
}

/* An interrupt comes to a vCPU, or to one that the wake-up tells (NO_VCPU). */
static noinline int accept(struct cpu *cpu, u32 source, u32 number, u32 vcpu)
{
	u64 id = bpf_get_current_pid_tgid(), now = bpf_ktime_get_ns();
	u32 process = id >> 32, by, *owner = 0;
	struct irq_key key = {};
	struct irq_cell *cell;
	struct context *c;

	if (!cpu)
		return 0;
	c = context(cpu);
	by = injector(cpu, id);
	key.source = source;
	key.number = number;
	key.vcpu = vcpu;
	key.by = by;
	if (by != INTERRUPT)
		owner = bpf_map_lookup_elem(&watched, &process);
	c->at = now;
	if (owner) {
		key.owner = *owner;
		if (by != VCPU)
			key.tid = id;
	}
	c->key = key;
	if (owner && vcpu != NO_VCPU)
		return begin(&key, now);
	if (owner) {
		cell = cell_of(&key);
		return cell ? add_count(cell, 1) : lost();
	}
	/* All other tasks belong to guests that are not watched. */
	if (by == INTERRUPT || by == KWORKER)
		count_foreign(1, 0);
	else
		c->at = 0;
	return 0;
}

/* vcpu_id (called apicid), delivery mode, trigger mode, vector */
SEC("raw_tracepoint/kvm_apic_accept_irq")
int kvm_apic_accept_irq(struct raw_args *ctx)
{
	u32 mode = ctx->arg[1] >> 8 & 7, vector = ctx->arg[3] & 0xff, source;
	struct cpu *cpu = this_cpu();
	struct context *c;

	/* 0 and 1: fixed and lowest priority. The other modes (NMI, INIT, ...) lack a vector. */
	if (!cpu || mode > 1)
		return 0;
	c = context(cpu);
	if (c->task != bpf_get_current_task()) {
		c->task = bpf_get_current_task();
		c->source = LOCAL;
	}
	source = c->source == GSI || c->number == vector ? c->source : LOCAL;
	return accept(cpu, source, source == GSI ? c->number : vector, ctx->arg[0]);
}

/* How long after a line a vCPU's wake-up is taken to be due to it: no event ends an injection by irqfd. */
#define MAX_WAKE_NS 10000000

/*
 * vcpu_id, number, level (arch/arm64/kvm/vgic/trace.h). Numbers below 32 are the vCPU's own, such as its timer; the
 * others are lines, for which KVM passes vCPU 0 whatever their target is.
 */
SEC("raw_tracepoint/vgic_update_irq_pending")
int vgic_update_irq_pending(struct raw_args *ctx)
{
	struct cpu *cpu = this_cpu();
	u32 number = ctx->arg[1];

	if (!cpu)
		return 0;
	context(cpu)->task = bpf_get_current_task();
	if (!(ctx->arg[2] & 0xff)) {
		context(cpu)->at = 0;
		return 0;
	}
	return number < 32 ? accept(cpu, LOCAL, number, ctx->arg[0]) : accept(cpu, SPI, number - 32, NO_VCPU);
}

/*
 * What kvm_apic_accept_irq announced goes to the vCPU's processor. Intel's KVM says so once it has woken a vCPU that
 * slept (vmx_deliver_interrupt, arch/x86/kvm/vmx/vmx.c), AMD's before (svm_complete_interrupt_delivery, svm.c).
 */
SEC("raw_tracepoint/kvm_apicv_accept_irq")
int kvm_apicv_accept_irq(struct raw_args *ctx)
{
	struct cpu *cpu = this_cpu();
	struct target target;
	struct flight *flight;
	struct context *c;

	if (!cpu)
		return 0;
	c = context(cpu);
	if (!c->at || c->task != bpf_get_current_task())
		return 0;
	target.owner = c->key.owner;
	target.vcpu = c->key.vcpu;
	flight = bpf_map_lookup_elem(&flights, &target);
	if (flight && flight->at == c->at)
		flight->posted = 1;
	return 0;
}

/* A thread within KVM_RUN is loaded on a CPU, of which preemption tells KVM (vcpu_load, virt/kvm/kvm_main.c). */
static always_inline int is_in_kvm(u64 task)
{
	u64 first = 0;

	bpf_probe_read_kernel(&first, sizeof(first), (void *)(task + task_notifiers));
	return first != 0;
}

/* The current thread wakes another one: by a doorbell, if it is a vCPU within such a write. */
static noinline int rings_for(u64 current, u64 task)
{
	u32 me = bpf_get_current_pid_tgid(), tid = number_at(task + task_pid), process, *owner;
	struct vcpu *v = bpf_map_lookup_elem(&vcpus, &me);
	struct exit *exit = exit_of(current);
	struct ring ring = {};
	union name name = {};

	if (!v || bpf_map_lookup_elem(&vcpus, &tid))
		return 0;
	process = number_at(task + task_tgid);
	owner = bpf_map_lookup_elem(&watched, &process);
	if (!owner || *owner != v->owner)
		return 0;
	bpf_probe_read_kernel(name.comm, sizeof(name.comm), (void *)(task + task_comm));
	/* KVM's threads (kvm-pit, after an end of interrupt) do not wait for an eventfd. */
	if (name.begin == NAMED('k', 'v', 'm', '-'))
		return 0;
	__builtin_memcpy(ring.comm, name.comm, sizeof(ring.comm));
	ring.key.owner = *owner;
	ring.key.to = kind_by_name(name.begin, tid == process);
	ring.key.tid = tid;
	if (exit->task == current && exit->space) {
		ring.key.space = exit->space;
		ring.key.address = exit->written;
	} else {
		exit->rung = tid;
	}
	exit->task = current;
	exit->space = 0;
	ring.at = bpf_ktime_get_ns();
	*was_woken(task) = 1;
	return bpf_map_update_elem(&rings, &tid, &ring, BPF_ANY) ? lost() : 0;
}

static noinline int answered(const struct ring *ring)
{
	struct bell *bell = ring ? find_or_add(&bells, &ring->key, &silent) : 0;

	if (!bell)
		return lost();
	if (!bell->comm[0])
		__builtin_memcpy(bell->comm, ring->comm, sizeof(bell->comm));
	add(&bell->ran, ring->ran - ring->at);
	return 0;
}

static always_inline int wrote(u32 space, u64 place)
{
	u64 task = bpf_get_current_task();
	struct exit *exit = exit_of(task);

	exit->task = task;
	exit->written = place;
	exit->space = space;
	exit->rung = 0;
	return 0;
}

/* rw (1: write), port, size, count, value. Before the write is done. */
SEC("raw_tracepoint/kvm_pio")
int kvm_pio(struct raw_args *ctx)
{
	return (u32)ctx->arg[0] == 1 ? wrote(1, (u16)ctx->arg[1]) : 0;
}

/* type (2: write), length, address, value. Before the write is done. */
SEC("raw_tracepoint/kvm_mmio")
int kvm_mmio(struct raw_args *ctx)
{
	return (u32)ctx->arg[0] == 2 ? wrote(2, ctx->arg[2]) : 0;
}

/* address: the eventfd was signalled before (handle_ept_misconfig, arch/x86/kvm/vmx/vmx.c). */
SEC("raw_tracepoint/kvm_fast_mmio")
int kvm_fast_mmio(struct raw_args *ctx)
{
	u64 task = bpf_get_current_task();
	struct exit *exit = exit_of(task);
	struct ring *ring, whole;
	u32 tid;

	if (exit->task != task || !exit->rung)
		return 0;
	tid = exit->rung;
	exit->rung = 0;
	ring = bpf_map_lookup_elem(&rings, &tid);
	if (!ring || ring->key.space)
		return 0;
	ring->key.space = 2;
	ring->key.address = ctx->arg[0];
	if (!ring->ran)
		return 0;
	whole = *ring;
	bpf_map_delete_elem(&rings, &tid);
	return answered(&whole);
}

/* The current context injected and then wakes a thread. Whether that is a vCPU. */
static noinline int wakes_vcpu(struct context *c, u64 task)
{
	struct flight *flight;
	struct target target;
	struct irq_cell *cell;
	struct vcpu *v;
	u32 tid;

	if (!c)
		return 0;
	tid = number_at(task + task_pid);
	v = bpf_map_lookup_elem(&vcpus, &tid);
	if (!v)
		return 0;
	/* Nothing said which vCPU of which guest it was for. */
	if (c->key.vcpu == NO_VCPU &&
	    (v->vcpu == NO_VCPU || !is_in_kvm(task) || bpf_ktime_get_ns() - c->at > MAX_WAKE_NS))
		return 0;
	if (!c->key.owner || (c->key.vcpu == NO_VCPU && c->key.owner == v->owner)) {
		cell = c->key.owner ? cell_of(&c->key) : 0;
		if (cell)
			add_count(cell, -1);
		else
			count_foreign(0, 1);
		c->key.owner = v->owner;
		if (c->key.vcpu == NO_VCPU)
			c->key.vcpu = v->vcpu;
		begin(&c->key, c->at);
	}
	target.owner = c->key.owner;
	target.vcpu = c->key.vcpu;
	flight = bpf_map_lookup_elem(&flights, &target);
	if (v->owner == target.owner && flight && flight->at == c->at) {
		flight->posted = 0;
		v->vcpu = target.vcpu;
		v->at = c->at;
		v->running = 0;
		v->waking = bpf_ktime_get_ns();
		*was_woken(task) = 1;
	}
	c->at = 0;
	return 1;
}

/* What woke it before, woke it before it had left its CPU. */
static noinline int forget_ring(u64 task)
{
	u32 tid = number_at(task + task_pid);

	if (bpf_map_lookup_elem(&rings, &tid))
		bpf_map_delete_elem(&rings, &tid);
	return 0;
}

SEC("raw_tracepoint/sched_waking")
int sched_waking(struct raw_args *ctx)
{
	u64 current = bpf_get_current_task(), task = ctx->arg[0];
	struct cpu *cpu = this_cpu();
	struct context *c;

	if (!cpu)
		return 0;
	c = context(cpu);
	if (c->at && c->task == current && wakes_vcpu(c, task))
		return 0;
	if (*was_woken(task))
		forget_ring(task);
	return cpu->interrupted || !is_in_kvm(current) ? 0 : rings_for(current, task);
}

static always_inline int runs(u64 task)
{
	u32 tid = number_at(task + task_pid);
	struct vcpu *v = bpf_map_lookup_elem(&vcpus, &tid);

	struct ring *ring, whole;

	if (v) {
		if (v->waking && !v->running)
			v->running = bpf_ktime_get_ns();
		return 0;
	}
	ring = bpf_map_lookup_elem(&rings, &tid);
	if (!ring || ring->ran)
		return 0;
	ring->ran = bpf_ktime_get_ns();
	if (!ring->key.space)
		return 0;
	whole = *ring;
	bpf_map_delete_elem(&rings, &tid);
	return answered(&whole);
}

/* 4.x to 7.x: preempt, prev, next */
SEC("raw_tracepoint/sched_switch")
int sched_switch(struct raw_args *ctx)
{
	return *was_woken(ctx->arg[2]) ? runs(ctx->arg[2]) : 0;
}

/* ns, waited, valid: the vCPU leaves its sleep, or the polling before it. */
SEC("raw_tracepoint/kvm_vcpu_wakeup")
int kvm_vcpu_wakeup(struct raw_args *ctx)
{
	u32 tid = bpf_get_current_pid_tgid();
	struct vcpu *v = bpf_map_lookup_elem(&vcpus, &tid);
	struct target target;
	struct flight *flight;
	struct irq_cell *cell;
	struct irq_key key;
	u64 waking;

	if (!v || !v->waking)
		return 0;
	waking = v->waking;
	v->waking = 0;
	target.owner = v->owner;
	target.vcpu = v->vcpu;
	flight = bpf_map_lookup_elem(&flights, &target);
	/* It was woken before it had left the CPU. */
	if (!flight || flight->at != v->at || !v->running || !(ctx->arg[1] & 0xff))
		return 0;
	flight->asleep = 1;
	key = flight->key;
	cell = cell_of(&key);
	if (cell) {
		add(&cell->wake, waking - v->at);
		add(&cell->delay, v->running - waking);
	}
	if (!entries_fire)
		end_flight(&target);
	return 0;
}

/* Ends an exit where kvm_entry does not fire: what the thread wakes later is not due to this exit's write. */
SEC("raw_tracepoint/kvm_userspace_exit")
int kvm_userspace_exit(struct raw_args *ctx)
{
	u64 task = bpf_get_current_task();
	struct exit *exit = exit_of(task);

	if (exit->task == task)
		exit->task = 0;
	return 0;
}

static noinline int arrived(u32 owner, u32 vcpu)
{
	struct target target = { .owner = owner, .vcpu = vcpu };
	struct flight *flight = bpf_map_lookup_elem(&flights, &target);
	struct irq_cell *cell;
	struct irq_key key;
	u64 ns;

	if (!flight)
		return 0;
	ns = bpf_ktime_get_ns() - flight->at;
	key = flight->key;
	cell = flight->posted ? 0 : cell_of(&key);
	if (cell)
		add(flight->asleep ? &cell->slept : &cell->kick, ns);
	end_flight(&target);
	return 0;
}

/* The thread runs its guest. */
static always_inline void entered(u64 task, const struct target *target)
{
	struct exit *exit = exit_of(task);

	if (exit->task == task)
		exit->task = 0;
	if (!entries_fire)
		entries_fire = 1;
	if (*flights_to(target))
		arrived(target->owner, target->vcpu);
}

/* vcpu, since 5.10. */
SEC("raw_tracepoint/kvm_entry")
int kvm_entry_raw(struct raw_args *ctx)
{
	u64 task = bpf_get_current_task(), vcpu = ctx->arg[0];
	struct cpu *cpu = this_cpu();

	if (!cpu)
		return 0;
	if (cpu->vcpu != vcpu || cpu->task != task) {
		cpu->vcpu = vcpu;
		cpu->task = task;
		cpu->entered.owner = bpf_get_current_pid_tgid() >> 32;
		cpu->entered.vcpu = number_at(vcpu + at_vcpu_id);
	}
	entered(task, &cpu->entered);
	return 0;
}

/* arm64 passes the program counter: the thread tells which vCPU it is. */
SEC("raw_tracepoint/kvm_entry")
int kvm_entry_by_thread(struct raw_args *ctx)
{
	u64 task = bpf_get_current_task();
	u32 tid = bpf_get_current_pid_tgid();
	struct cpu *cpu = this_cpu();
	struct vcpu *v;

	if (!cpu)
		return 0;
	/* A task that ended may leave its address to another one. */
	if (cpu->task != task || cpu->vcpu != tid || cpu->entered.vcpu == NO_VCPU) {
		v = bpf_map_lookup_elem(&vcpus, &tid);
		if (!v)
			return 0;
		cpu->task = task;
		cpu->vcpu = tid;
		cpu->entered.owner = v->owner;
		cpu->entered.vcpu = v->vcpu;
	}
	entered(task, &cpu->entered);
	return 0;
}

/* The fields of this kernel's `format` file, by a BTF that kvmtop makes of it: offsets below are placeholders. */
struct trace_event_raw_kvm_entry {
	u64 common;
	u32 vcpu_id;
} relocated;

/* A classic tracepoint program that returns 0 takes the event away from every perf session on the host. */
enum { PASS = 1 };

/* Where the place of the number in a kvm_vcpu is not known: it costs several times as much. */
SEC("tracepoint/kvm/kvm_entry")
int kvm_entry(struct trace_event_raw_kvm_entry *ctx)
{
	struct target target = { .owner = bpf_get_current_pid_tgid() >> 32, .vcpu = ctx->vcpu_id };

	entered(bpf_get_current_task(), &target);
	return PASS;
}
