/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The records that programs and kvmtop share. src/bpf/layout.rs is the same in Rust; a test compares both. */
#pragma once
#include "bpf.h"

#define BUCKETS 32    /* of a histogram: sample::BUCKETS */
#define EXITS 23      /* exit cells a thread; the last is `other` */
#define ACCESSES 64   /* access cells a thread, a power of two */
#define PROBES 8      /* access cells tried before `others` */
#define REST_KINDS 8  /* one for each kind of access: an index of three bits */
#define TOUCHES 4     /* different accesses of one exit that share its time */
#define USERSPACE 48  /* KVM_EXIT_* 0..45, then a signal (-4), then any other error */
/* The VMM does not serve these, it stops the vCPU: KVM_EXIT_DEBUG, _SHUTDOWN, _FAIL_ENTRY, _INTERNAL_ERROR,
 * _SYSTEM_EVENT, and a signal. pairing/thread.rs has the same. */
#define ENDS_EXIT (1ull << 4 | 1ull << 8 | 1ull << 9 | 1ull << 17 | 1ull << 24 | 1ull << (USERSPACE - 2))
#define OTHERS 16     /* wakers, and tasks that held the pCPU, kept by thread */
#define WAYS 7        /* threads a bucket of `tasks` */
#define TASK_BITS 12  /* log2 of the buckets */
/* A task_struct is aligned to 64 bytes and its address starts with 7 ones: 13 bits are left for a slot. */
#define SLOT_BITS 13
#define PART 64       /* slots a part of `slots` */
#define SHARE_BITS 12 /* log2 of the cells of `shares` and `users` */
#define USER_PART 4   /* a user may have this many times as many slots as are free */

struct extremes {
	u64 min, max; /* 0: none yet */
};

struct timing {
	u64 count, total;
	u64 square_low, square_high;  /* of durations clipped at 2^30 ns, 128 bits */
	struct extremes extremes[2];  /* of the last even and the last odd epoch: one stays while kvmtop reads it */
	u32 epoch[2];                 /* which epochs these are */
};

/* Exits of one reason. */
struct exit_cell {
	struct timing time;
	u64 userspace, halted, preempted;
	u32 code, isa, used, pad;
	u64 histogram[BUCKETS];
};

/* Accesses to one port, address or MSR in one direction. */
struct access_cell {
	u64 key; /* address << 3 | space << 1 | write; 0: free */
	struct timing time;
	u64 faults;
	u64 last, run_start; /* bursts: runs with gaps below 1 ms */
	u64 longest_ns[2];   /* the longest run of even and of odd epochs */
	u32 longest[2];
	u32 run;
	u16 timed; /* an exit's time was charged to it */
	u16 skip;  /* accesses for which the clock need not be read */
};

/* What found no cell: accesses of one kind, or other tasks. */
struct rest {
	u64 count, total;
};

struct other_task {
	u32 tid, count;
	u64 ns;
	char comm[16];
};

struct other_tasks {
	struct other_task task[OTHERS];
	struct rest rest;
};

/*
 * All counters of one vCPU thread. Only the thread itself writes here, and the scheduler when it puts the thread on a
 * CPU.
 *
 * kvmtop reads while programs write. `changes` is odd while a program writes, so a copy is consistent if `changes`
 * was the same even number before and after it. kvmtop ends an epoch by writing `epoch`; a program counts an event,
 * with all its figures, in the epoch that it read when it started. Programs never wait for kvmtop.
 */
struct slot {
	u64 task; /* its task_struct */
	u32 tid, tgid;
	char comm[16];
	u64 born, died; /* ns: its first event, its end (0: it lives). Tell threads apart that had the same id */
	u32 vcpu;  /* number + 1; 0: not known */
	u32 uid;   /* whose the process is */
	u32 exits_seen, overflow;
	volatile u32 changes, epoch;
	u64 accesses_used, userspace_used; /* a bit for each cell, so that the reader touches only memory in use */

	/* the current exit */
	u64 exit_at, user_at; /* ns; 0: none */
	u64 in_halt, in_wait, in_user_wait;
	u32 exit_cell;
	u32 touched;          /* access cells in `touches` */
	u16 touches[TOUCHES]; /* the cells that share its time */
	u16 shares[TOUCHES];  /* how often each was touched */

	/* scheduling */
	u64 out_at, waking_at;
	u32 runnable, cpu, from, waker; /* cpu, from: number + 1 */
	char waker_comm[16];
	u64 migrations, cross_core, cross_llc, cross_node;
	struct timing wakeup;
	u64 wakeup_histogram[BUCKETS];
	struct timing preempted; /* from switched out while runnable until it runs */
	u64 preempted_histogram[BUCKETS];
	u32 other_errno, pad_2;
	struct other_tasks woken_by, held_by;
	struct rest rests[REST_KINDS]; /* accesses that found no cell, by space << 1 | write */

	u64 userspace[USERSPACE];
	struct exit_cell exits[EXITS];
	struct access_cell accesses[ACCESSES];
	u64 access_histogram[ACCESSES][BUCKETS];
	u8 exit_index[256]; /* short code -> exit cell + 1 */
	volatile u64 scratch; /* for values that the verifier must forget, as it follows all values of a variable */
	u64 kvm_vcpu; /* the struct kvm_vcpu that `vcpu` is of */
	u64 ended_at; /* when the VMM took the vCPU out of KVM within the current exit, ns; 0: it did not */
	u64 halted_after; /* its time in halt since then */
	u64 stopped; /* its time stopped by SIGSTOP or a tracer before that */
	u64 fence; /* for order_stores */
	u64 unused[68];
};

_Static_assert(sizeof(struct slot) == 36864, "a slot is nine pages, so that each can be mapped by itself");

/* How many slots each process may have, how many are free, and how many events came of threads that got none because
 * their process or their user has its share. */
struct quota {
	u64 slots, free, refused, user_refused;
};

/* The slots that a process or a user has, and the process that was last refused one there. */
struct share {
	u32 slots, refused;
};

/* Kinds of threads. */
enum thread_kind { MAIN, IOTHREAD, POOL, IO_URING, VHOST, VCPU, KWORKER, INTERRUPT, OTHER_THREAD };
#define THREAD_KINDS 16 /* room for more */

/* Durations that several CPUs add up at once. */
struct span {
	u64 count, ns;
	u64 histogram[BUCKETS];
};

/* Requests of one kind to one block device, for one guest (disks.bpf.c). `owner`, here and below: its process. */
struct disk_key {
	u32 owner, dev, kind, pad;
};

struct disk_cell {
	u64 bytes;
	u64 submitted[THREAD_KINDS];
	struct span total;  /* from queued to completed */
	struct span device; /* from issued to completed */
};

enum irq_source { LOCAL, GSI, MSI, IPI, SPI };

#define NO_VCPU 0xffffffffu

/* Interrupts of one kind to one vCPU, by one injector (interrupts.bpf.c). */
struct irq_key {
	u32 owner;
	u32 source, number; /* enum irq_source; the line of a GSI or an SPI, else the vector */
	u32 vcpu;	    /* KVM's number of the target, or NO_VCPU */
	u32 by, tid; /* enum thread_kind; its id where it is a thread of the guest but no vCPU, else 0 */
};

struct irq_cell {
	u64 count;
	u64 joined;	   /* found another interrupt on its way to the vCPU */
	char comm[16];	   /* the injector's name when it first came, where `tid` is not 0 */
	struct span wake;  /* a vCPU that slept: from the injection to the wake-up */
	struct span delay; /* from there until its thread had a CPU */
	struct span slept; /* from the injection until it ran the guest */
	struct span kick;  /* a vCPU that did not sleep: the same */
};

/* A vCPU. */
struct target {
	u32 owner, vcpu;
};

/* An interrupt on its way. */
struct flight {
	u64 at;
	u32 asleep;
	u32 posted; /* a running vCPU takes it without an exit, at an unknown time */
	struct irq_key key;
};

/* Doorbells of one place that wake one thread. */
struct bell_key {
	u32 owner, space; /* space: 1 port, 2 memory */
	u64 address;
	u32 to, tid; /* the thread: enum thread_kind, id */
};

struct bell {
	char comm[16];
	struct span ran; /* from the wake-up until the thread had a CPU */
};

/* One tracepoint, counted for one process (events.bpf.c). */
struct event_key {
	u32 owner, event;
};
