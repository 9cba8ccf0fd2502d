/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Counts a tracepoint by process, and nothing else. Loaded once for each event, with its number in place of EVENT. */
#include "tables.h"

char _license[] SEC("license") = "Dual MIT/GPL";

/* kvmtop looks for this constant among the instructions. */
#define EVENT 0x4b564d45

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct event_key);
	__type(value, u64);
} counts SEC(".maps");

SEC("raw_tracepoint/any")
int count(struct raw_args *ctx)
{
	u32 event;
	u64 one = 1, *n;

	asm volatile("%0 = %1" : "=r"(event) : "i"(EVENT));
	struct event_key key = { .owner = bpf_get_current_pid_tgid() >> 32, .event = event };

	n = bpf_map_lookup_elem(&counts, &key);
	if (!n && !bpf_map_update_elem(&counts, &key, &one, BPF_NOEXIST))
		return 0;
	if (!n)
		n = bpf_map_lookup_elem(&counts, &key); /* another thread of the process was first, or the map is full */
	if (!n)
		return lost();
	__sync_fetch_and_add(n, 1);
	return 0;
}
