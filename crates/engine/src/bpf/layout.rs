//! The memory that the programs fill: `crates/engine/bpf/layout.h` in Rust. Both sides check sizes and offsets at compile
//! time.
#![allow(unsafe_code, reason = "a promise about types: plain atomics that programs may write meanwhile")]

use super::sys::SharedMemory;
use std::mem::offset_of;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

/// Exit cells of a thread; the last is `other`.
pub const EXITS: usize = 23;
/// Access cells of a thread.
pub const ACCESSES: usize = 64;
/// Kinds of accesses; those that find no cell are counted by kind.
pub const REST_KINDS: usize = 8;
/// `KVM_EXIT_*` 0 to 45, then a signal, then any other error.
pub const USERSPACE: usize = 48;
/// Wakers, and tasks that held the pCPU, of a thread.
pub const OTHERS: usize = 16;
/// Threads in a bucket of `tasks`.
pub const WAYS: usize = 7;
/// log2 of the number of buckets.
pub const TASK_BITS: u32 = 12;
/// Bits for a slot in an entry of a bucket.
pub const SLOT_BITS: u32 = 13;
/// Marks exits of arm64, whose event carries no `isa`.
pub const ISA_ARM64: u32 = 0xa64;

/// `struct extremes`.
#[repr(C)]
pub struct RawExtremes {
    pub min: AtomicU64,
    pub max: AtomicU64,
}

/// `struct timing`.
#[repr(C)]
pub struct RawTiming {
    pub count: AtomicU64,
    pub total: AtomicU64,
    pub square_low: AtomicU64,
    pub square_high: AtomicU64,
    pub extremes: [RawExtremes; 2],
    pub epoch: [AtomicU32; 2],
}

/// `struct exit_cell`.
#[repr(C)]
pub struct RawExit {
    pub time: RawTiming,
    pub userspace: AtomicU64,
    pub halted: AtomicU64,
    pub preempted: AtomicU64,
    pub code: AtomicU32,
    pub isa: AtomicU32,
    pub used: AtomicU32,
    pub pad: AtomicU32,
    pub histogram: [AtomicU64; sample::BUCKETS],
}

/// `struct access_cell`.
#[repr(C)]
pub struct RawAccess {
    pub key: AtomicU64,
    pub time: RawTiming,
    pub faults: AtomicU64,
    pub last: AtomicU64,
    pub run_start: AtomicU64,
    pub longest_ns: [AtomicU64; 2],
    pub longest: [AtomicU32; 2],
    pub run: AtomicU32,
    pub timed: AtomicU16,
    pub skip: AtomicU16,
}

/// `struct rest`.
#[repr(C)]
pub struct RawRest {
    pub count: AtomicU64,
    pub total: AtomicU64,
}

/// `struct other_task`.
#[repr(C)]
pub struct RawOther {
    pub tid: AtomicU32,
    pub count: AtomicU32,
    pub ns: AtomicU64,
    pub comm: [AtomicU8; 16],
}

/// `struct other_tasks`.
#[repr(C)]
pub struct RawOthers {
    pub task: [RawOther; OTHERS],
    pub rest: RawRest,
}

/// `struct slot`.
#[repr(C)]
pub struct Slot {
    pub task: AtomicU64,
    pub tid: AtomicU32,
    pub tgid: AtomicU32,
    pub comm: [AtomicU8; 16],
    pub born: AtomicU64,
    pub died: AtomicU64,
    pub vcpu: AtomicU32,
    pub pad_1: AtomicU32,
    pub exits_seen: AtomicU32,
    pub overflow: AtomicU32,
    pub changes: AtomicU32,
    pub epoch: AtomicU32,
    pub accesses_used: AtomicU64,
    pub userspace_used: AtomicU64,
    pub exit_at: AtomicU64,
    pub user_at: AtomicU64,
    pub in_halt: AtomicU64,
    pub in_wait: AtomicU64,
    pub in_user_wait: AtomicU64,
    pub exit_cell: AtomicU32,
    pub touched: AtomicU32,
    pub touches: [AtomicU16; 4],
    pub shares: [AtomicU16; 4],
    pub out_at: AtomicU64,
    pub waking_at: AtomicU64,
    pub runnable: AtomicU32,
    pub cpu: AtomicU32,
    pub from: AtomicU32,
    pub waker: AtomicU32,
    pub waker_comm: [AtomicU8; 16],
    pub migrations: AtomicU64,
    pub cross_core: AtomicU64,
    pub cross_llc: AtomicU64,
    pub cross_node: AtomicU64,
    pub wakeup: RawTiming,
    pub wakeup_histogram: [AtomicU64; sample::BUCKETS],
    pub preempted: RawTiming,
    pub preempted_histogram: [AtomicU64; sample::BUCKETS],
    pub other_errno: AtomicU32,
    pub pad_2: AtomicU32,
    pub woken_by: RawOthers,
    pub held_by: RawOthers,
    pub rests: [RawRest; REST_KINDS],
    pub userspace: [AtomicU64; USERSPACE],
    pub exits: [RawExit; EXITS],
    pub accesses: [RawAccess; ACCESSES],
    pub access_histogram: [[AtomicU64; sample::BUCKETS]; ACCESSES],
    pub exit_index: [AtomicU8; 256],
    pub scratch: AtomicU64,
    pub kvm_vcpu: AtomicU64,
    pub unused: [AtomicU64; 72],
}

/// Size of a slot.
pub const SLOT_SIZE: usize = 36864;

const _: () = assert!(size_of::<RawExit>() == 368);
const _: () = assert!(size_of::<RawAccess>() == 136);
const _: () = assert!(offset_of!(Slot, exits) == 2464);
const _: () = assert!(offset_of!(Slot, accesses) == 10928);
const _: () = assert!(offset_of!(Slot, access_histogram) == 19632);
const _: () = assert!(size_of::<Slot>() == SLOT_SIZE);

/// A slot as an array of words, to copy and to clear it.
#[repr(C)]
pub struct Words(pub [AtomicU64; SLOT_SIZE / 8]);

/// `struct bucket`.
#[repr(C)]
pub struct Bucket {
    pub used: AtomicU64,
    pub entry: [AtomicU64; WAYS],
}

// SAFETY: repr(C), atomics and arrays of atomics alone.
unsafe impl SharedMemory for Slot {}
// SAFETY: as above.
unsafe impl SharedMemory for Words {}
// SAFETY: as above.
unsafe impl SharedMemory for Bucket {}
// SAFETY: an atomic.
unsafe impl SharedMemory for AtomicU64 {}

/// The bucket of a task, as `bucket_of` in `threads.h` computes it.
pub fn bucket_of(task: u64) -> usize {
    ((task >> 6).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - TASK_BITS)) as usize
}
