/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
#pragma once
#include "bpf.h"

/*
 * Which guest's process a process works for: itself, or the guest of a vhost kernel thread. kvmtop fills it
 * (crates/engine/src/bpf/watched.rs).
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, u32);
	__type(value, u32);
} watched SEC(".maps");
