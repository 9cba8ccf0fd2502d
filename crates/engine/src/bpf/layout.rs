//! The records that the programs fill: `crates/engine/bpf/layout.h` in Rust. A test compares both
//! by the objects' BTF. What only programs use has no name here. `layout.h` says what each field
//! is, and [`tables`](super::tables) what a slot, a part, a bucket and a share are.
#![allow(
    unsafe_code,
    reason = "promises about types: numbers alone, or atomics that programs write meanwhile"
)]

use super::sys::{Record, SharedMemory};
use sample::{BUCKETS, Histogram, Timing};
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

/// Exit cells of a thread; the last is `other`.
pub const EXITS: usize = 23;
/// Access cells of a thread.
pub const ACCESSES: usize = 64;
/// Kinds of accesses: by kind are counted the accesses that find no cell.
pub const REST_KINDS: usize = 8;
/// `KVM_EXIT_*` 0 to 45, then a signal, then any other error.
pub const USERSPACE: usize = 48;
/// Cells for the wakers of a thread, and as many for the tasks that held its pCPU.
pub const OTHERS: usize = 16;
/// Entries of a bucket of `tasks`.
pub const WAYS: usize = 7;
/// log2 of the number of buckets of `tasks`.
pub const TASK_BITS: u32 = 12;
/// Bits for a slot in an entry of a bucket.
pub const SLOT_BITS: u32 = 13;
/// Slots in a part of `slots`.
pub const PART: usize = 64;
/// log2 of the number of cells of `shares`, and of `users`.
pub const SHARE_BITS: u32 = 12;
/// Marks exits of arm64, whose event carries no `isa`.
pub const ISA_ARM64: u32 = 0xa64;
/// Stands for a vCPU that no event names.
pub const NO_VCPU: u32 = u32::MAX;

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
    pub histogram: [AtomicU64; BUCKETS],
}

/// `struct access_cell`.
#[repr(C)]
pub struct RawAccess {
    pub key: AtomicU64,
    pub time: RawTiming,
    pub faults: AtomicU64,
    /// The current run.
    run_start: [AtomicU64; 2],
    pub longest_ns: [AtomicU64; 2],
    pub longest: [AtomicU32; 2],
    run: AtomicU32,
    pub timed: AtomicU16,
    skip: AtomicU16,
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
    pub uid: AtomicU32,
    pub exits_seen: AtomicU32,
    pub overflow: AtomicU32,
    pub changes: AtomicU32,
    pub epoch: AtomicU32,
    pub accesses_used: AtomicU64,
    pub userspace_used: AtomicU64,
    /// From `exit_at` to `waking_at`.
    of_programs: [AtomicU64; 10],
    /// `runnable` and `cpu`.
    of_programs_too: [AtomicU32; 2],
    pub from: AtomicU32,
    /// The last waker.
    waker: [AtomicU32; 5],
    pub migrations: AtomicU64,
    pub cross_core: AtomicU64,
    pub cross_llc: AtomicU64,
    pub cross_node: AtomicU64,
    pub wakeup: RawTiming,
    pub wakeup_histogram: [AtomicU64; BUCKETS],
    pub preempted: RawTiming,
    pub preempted_histogram: [AtomicU64; BUCKETS],
    pub other_errno: AtomicU32,
    pub pad_2: AtomicU32,
    pub woken_by: RawOthers,
    pub held_by: RawOthers,
    pub rests: [RawRest; REST_KINDS],
    pub userspace: [AtomicU64; USERSPACE],
    pub exits: [RawExit; EXITS],
    pub accesses: [RawAccess; ACCESSES],
    pub access_histogram: [[AtomicU64; BUCKETS]; ACCESSES],
    /// From `exit_index` on, and room for later fields.
    unused: [AtomicU64; 106],
}

pub const SLOT_SIZE: usize = 36864;

impl Slot {
    /// The words of the slot, to copy and to clear it.
    pub fn words(&self) -> &[AtomicU64; SLOT_SIZE / 8] {
        // SAFETY: atomics alone, of this size and aligned to words.
        unsafe { &*std::ptr::from_ref(self).cast() }
    }
}

const _: () = assert!(size_of::<Slot>() == SLOT_SIZE);

/// `struct bucket`.
#[repr(C)]
pub struct Bucket {
    pub used: AtomicU64,
    pub entry: [AtomicU64; WAYS],
}

/// `struct quota`.
#[repr(C)]
pub struct Quota {
    /// How many slots each process may have.
    pub slots: AtomicU64,
    pub free: AtomicU64,
    /// The number of events of threads whose process has as many slots as it may have.
    pub refused: AtomicU64,
    /// The number of events of threads whose user has as many slots as it may have.
    pub user_refused: AtomicU64,
}

/// `struct share`.
#[repr(C)]
pub struct Share {
    pub slots: AtomicU32,
    /// The id of the process that was last refused a slot; 0: none.
    pub refused: AtomicU32,
}

// SAFETY: repr(C), atomics and arrays of atomics alone.
unsafe impl SharedMemory for Slot {}
// SAFETY: as above.
unsafe impl SharedMemory for Quota {}
// SAFETY: as above.
unsafe impl SharedMemory for Share {}
// SAFETY: as above.
unsafe impl SharedMemory for Bucket {}
// SAFETY: an atomic.
unsafe impl SharedMemory for AtomicU64 {}

/// How many one bits a task's address begins with, as an address of the kernel.
const LEADING_ONES: u32 = 7;

/// The entry of a bucket for this task and its slot. The address of a task begins with ones, which
/// are shifted out, and ends with six zeros: the slot's number has room in the lowest
/// [`SLOT_BITS`].
pub fn bucket_entry(task: u64, slot: usize) -> u64 {
    task << LEADING_ONES | slot as u64
}

/// The number of a task's bucket, as `bucket_of` in `threads.h` computes it.
pub fn bucket_of(task: u64) -> usize {
    ((task >> 6).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - TASK_BITS)) as usize
}

/// The cell of a process in `shares`, or of a user in `users`, as `share_of` in `threads.h`
/// computes it.
pub fn share_of(id: u32, seed: u32) -> usize {
    (id.wrapping_mul(seed) >> (32 - SHARE_BITS)) as usize
}

/// The kinds of threads, by number: `enum thread_kind`.
pub const THREAD_KINDS: usize = 16;

/// `struct span`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct RawSpan {
    pub count: u64,
    pub ns: u64,
    pub histogram: [u64; BUCKETS],
}

/// `enum kind` of `disks.bpf.c`: the kinds of requests.
pub const READ: u32 = 0;
pub const WRITE: u32 = 1;
pub const FLUSH: u32 = 2;

/// `struct disk_key`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DiskKey {
    /// Here and in the keys below: the guest's process.
    pub owner: u32,
    pub dev: u32,
    /// [`READ`], [`WRITE`], [`FLUSH`], or another number for other requests.
    pub kind: u32,
    pub pad: u32,
}

/// `struct disk_cell`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct RawDisk {
    pub bytes: u64,
    pub submitted: [u64; THREAD_KINDS],
    pub total: RawSpan,
    pub device: RawSpan,
}

/// `struct irq_key`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct IrqKey {
    pub owner: u32,
    pub source: u32,
    pub number: u32,
    pub vcpu: u32,
    pub by: u32,
    pub tid: u32,
}

/// `struct irq_cell`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct RawIrq {
    pub count: u64,
    pub joined: u64,
    pub comm: [u8; 16],
    pub wake: RawSpan,
    pub delay: RawSpan,
    pub slept: RawSpan,
    pub kick: RawSpan,
}

/// `struct target`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Target {
    pub owner: u32,
    pub vcpu: u32,
}

/// `struct bell_key`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct BellKey {
    pub owner: u32,
    pub space: u32,
    pub address: u64,
    pub to: u32,
    pub tid: u32,
}

/// `struct bell`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct RawBell {
    pub comm: [u8; 16],
    pub ran: RawSpan,
}

/// `struct event_key`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct EventKey {
    pub owner: u32,
    pub event: u32,
}

/// A key that begins with the guest's process.
pub trait GuestKey: Record {
    /// The guest's process.
    fn guest(&self) -> i32;
}

macro_rules! guest_keys {
    ($($key:ty),*) => {$(
        // SAFETY: repr(C), numbers without padding.
        unsafe impl Record for $key {}
        impl GuestKey for $key {
            fn guest(&self) -> i32 {
                self.owner.cast_signed()
            }
        }
    )*};
}
guest_keys!(DiskKey, IrqKey, Target, BellKey, EventKey);

// SAFETY: repr(C), numbers and arrays of them without padding.
unsafe impl Record for RawDisk {}
// SAFETY: as above.
unsafe impl Record for RawIrq {}
/// `struct flight`, which only programs read.
pub type RawFlight = [u64; 5];

// SAFETY: an array of numbers.
unsafe impl Record for RawFlight {}
// SAFETY: as above.
unsafe impl Record for RawBell {}
// SAFETY: a number.
unsafe impl Record for u64 {}
// SAFETY: a number.
unsafe impl Record for u32 {}

impl From<&RawSpan> for Timing {
    fn from(span: &RawSpan) -> Self {
        let histogram = Some(Histogram::trimmed(span.histogram));
        Self {
            count: span.count,
            total_ns: Some(span.ns),
            histogram,
            ..Self::default()
        }
    }
}
