/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Guests' processes and their threads, for programs that count by guest. */
#pragma once
#include "tables.h"

/* From a process to the guest's process that it works for: itself, or for a vhost kernel thread its guest. kvmtop fills
 * it. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, u32);
	__type(value, u32);
} watched SEC(".maps");

union name {
	char comm[16];
	u32 begin;
};

#define NAMED(a, b, c, d) (a | b << 8 | c << 16 | d << 24)

/*
 * The kind of a thread by its name: "IO iothread1", "worker", "CPU 0/KVM" of QEMU with `-name debug-threads=on`, as
 * libvirt starts it; "vhost-1234", "iou-wrk-1234", "kworker/0:1" of the kernel.
 */
static always_inline u32 kind_by_name(u32 begin, int is_main)
{
	switch (begin) {
	case NAMED('i', 'o', 'u', '-'):
		return IO_URING;
	case NAMED('v', 'h', 'o', 's'):
		return VHOST;
	case NAMED('w', 'o', 'r', 'k'):
		return POOL;
	case NAMED('C', 'P', 'U', ' '):
		return VCPU;
	case NAMED('k', 'w', 'o', 'r'):
		return KWORKER;
	}
	if ((begin & 0xffffff) == NAMED('I', 'O', ' ', 0))
		return IOTHREAD;
	return is_main ? MAIN : OTHER_THREAD;
}

/* The kind of the current thread. `id`: its process and thread id. */
static always_inline u32 current_kind(u64 id)
{
	union name name = {};

	bpf_get_current_comm(name.comm, sizeof(name.comm));
	return kind_by_name(name.begin, (u32)id == id >> 32);
}
