/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The little of the kernel's BPF interface that kvmtop needs (uapi/linux/bpf.h): no libbpf, no kernel headers. */
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int s32;

#define SEC(name) __attribute__((section(name), used))
#define __uint(name, value) int(*name)[value]
#define __type(name, value) typeof(value) *name
#define always_inline inline __attribute__((always_inline))
#define noinline __attribute__((noinline))
#define relocated __attribute__((preserve_access_index))
#define field_exists(field) __builtin_preserve_field_info(field, 2)
/* Keeps the compiler from merging a check with what it guards: the verifier follows neither `a | b` of pointers nor a
 * bound proven on a copy. */
#define opaque(v) asm volatile("" : "+r"(v))
/* Keeps the compiler from moving reads and writes across it. */
#define barrier() asm volatile("" ::: "memory")
#define offset_of(type, field) __builtin_offsetof(type, field)

enum { BPF_MAP_TYPE_HASH = 1, BPF_MAP_TYPE_ARRAY = 2, BPF_MAP_TYPE_PERCPU_ARRAY = 6 };
enum { BPF_MAP_TYPE_ARRAY_OF_MAPS = 12, BPF_MAP_TYPE_STACK = 23 };
enum { BPF_F_MMAPABLE = 1 << 10, BPF_ANY = 0, BPF_NOEXIST = 1 };

static void *(*const bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*const bpf_map_update_elem)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static long (*const bpf_map_delete_elem)(void *map, const void *key) = (void *)3;
static u64 (*const bpf_ktime_get_ns)(void) = (void *)5;
static u32 (*const bpf_get_smp_processor_id)(void) = (void *)8;
static u64 (*const bpf_get_current_pid_tgid)(void) = (void *)14;
static u64 (*const bpf_get_current_uid_gid)(void) = (void *)15;
static long (*const bpf_get_current_comm)(void *buf, u32 size) = (void *)16;
static u64 (*const bpf_get_current_task)(void) = (void *)35;
static long (*const bpf_map_push_elem)(void *map, const void *value, u64 flags) = (void *)87;
static long (*const bpf_map_pop_elem)(void *map, void *value) = (void *)88;

static long (*const bpf_probe_read_kernel)(void *to, u32 size, const void *from) = (void *)113;

static always_inline u32 number_at(u64 at)
{
	u32 value = 0;

	bpf_probe_read_kernel(&value, sizeof(value), (void *)at);
	return value;
}

/* Arguments of a raw tracepoint, as TP_PROTO lists them. */
struct raw_args {
	u64 arg[5];
};
