//! The few system calls of `bpf(2)` that the engine makes.
//!
//! `aya-obj` parses and relocates the object. The loader `aya` is not used: before it loads the
//! first program, it reads and keeps the kernel's whole BTF (some 30 MB) and probes for features
//! that are not needed here.
#![allow(
    unsafe_code,
    reason = "bpf(2) and mmap(2) take pointers, without a safe wrapper"
)]

use aya_obj::generated::{bpf_attr, bpf_cmd, bpf_insn, bpf_prog_type};
use perf_event::events::Tracepoint;
use perf_event::{Builder, ReadFormat};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use std::ffi::{CStr, CString, c_char};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Plain numbers without padding: any bytes are a value, and any value is bytes.
///
/// # Safety
/// `repr(C)` and made of numbers, or arrays of them, alone.
pub unsafe trait Record: Copy {}

/// The kernel wants unused bytes and padding to be 0.
fn attributes() -> bpf_attr {
    // SAFETY: a union of numbers, for which zeros are a value.
    unsafe { std::mem::zeroed() }
}

/// Every pointer in `attr` must be valid for what the command does with it: callers fill it from
/// what they borrow.
fn bpf(command: bpf_cmd, attr: &mut bpf_attr) -> io::Result<libc::c_long> {
    let size = size_of::<bpf_attr>();
    // SAFETY: the kernel takes any size of attributes, and writes back no more than that.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command as libc::c_int,
            std::ptr::from_mut(attr),
            size,
        )
    };
    if answer < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(answer)
    }
}

fn number(fd: BorrowedFd<'_>) -> u32 {
    fd.as_raw_fd().cast_unsigned()
}

/// `fd`: what the kernel returned for a descriptor that it has just made for the caller alone; BPF's
/// are close-on-exec.
fn owned(fd: libc::c_long) -> OwnedFd {
    // SAFETY: as above.
    unsafe { OwnedFd::from_raw_fd(fd as i32) }
}

/// A name as the kernel takes it: 15 bytes of letters, digits and `_`.
fn short_name(name: &str) -> [c_char; 16] {
    let mut short = [0; 16];
    let allowed = name
        .bytes()
        .filter(|b| b.is_ascii_alphanumeric() || *b == b'_');
    for (to, from) in short.iter_mut().take(15).zip(allowed) {
        *to = from as c_char;
    }
    short
}

/// Creates a map. A map whose elements are maps gets a `pattern`, a map such as they will be.
///
/// # Errors
/// The kernel's: EPERM without `CAP_BPF`, ENOMEM, EINVAL for a type it does not know.
pub fn create_map(
    map: &aya_obj::Map,
    name: &str,
    pattern: Option<BorrowedFd<'_>>,
) -> io::Result<OwnedFd> {
    let mut attr = attributes();
    // SAFETY: numbers alone, for which zeros are a value.
    let create = unsafe { &mut attr.__bindgen_anon_1 };
    create.map_type = map.map_type();
    create.map_flags = map.map_flags();
    create.max_entries = map.max_entries();
    create.key_size = map.key_size();
    create.value_size = map.value_size();
    create.map_name = short_name(name);
    create.inner_map_fd = pattern.map_or(0, number);
    bpf(bpf_cmd::BPF_MAP_CREATE, &mut attr).map(owned)
}

/// Writes an element; without a key, pushes it onto a stack. `value` must have the map's value
/// size.
///
/// # Errors
/// The kernel's: E2BIG for an index or a stack that is full.
pub fn update(map: BorrowedFd<'_>, key: Option<u32>, value: &[u8]) -> io::Result<()> {
    let key = key.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    element(bpf_cmd::BPF_MAP_UPDATE_ELEM, map, key, value.as_ptr())
}

fn element<K>(
    command: bpf_cmd,
    map: BorrowedFd<'_>,
    key: *const K,
    value: *const u8,
) -> io::Result<()> {
    let mut attr = attributes();
    attr.__bindgen_anon_2.map_fd = number(map);
    attr.__bindgen_anon_2.key = key as u64;
    attr.__bindgen_anon_2.__bindgen_anon_1.value = value as u64;
    bpf(command, &mut attr).map(drop)
}

/// Removes an element.
///
/// # Errors
/// The kernel's: ENOENT for an unknown key.
pub fn delete<K: Record>(map: BorrowedFd<'_>, key: &K) -> io::Result<()> {
    element(bpf_cmd::BPF_MAP_DELETE_ELEM, map, key, std::ptr::null())
}

/// All elements of a hash map from `K` to `V` with room for `size`, in one call (5.6).
///
/// # Errors
/// The kernel's: EINVAL before 5.6.
pub fn lookup_all<K: Record, V: Record>(map: BorrowedFd<'_>, size: u32) -> io::Result<Vec<(K, V)>> {
    let mut keys = Vec::<K>::with_capacity(size as usize);
    let mut values = Vec::<V>::with_capacity(size as usize);
    let mut cursor = 0_u64;
    let mut attr = attributes();
    attr.batch.out_batch = std::ptr::from_mut(&mut cursor) as u64;
    attr.batch.keys = keys.as_mut_ptr() as u64;
    attr.batch.values = values.as_mut_ptr() as u64;
    attr.batch.count = size;
    attr.batch.map_fd = number(map);
    match bpf(bpf_cmd::BPF_MAP_LOOKUP_BATCH, &mut attr) {
        // ENOENT: all were read.
        Err(e) if e.raw_os_error() != Some(libc::ENOENT) => return Err(e),
        _ => {}
    }
    // SAFETY: the kernel has written `count` of each, at most `size`; any bytes are a record.
    unsafe {
        keys.set_len(attr.batch.count.min(size) as usize);
        values.set_len(attr.batch.count.min(size) as usize);
    }
    Ok(keys.into_iter().zip(values).collect())
}

/// Closes a map to further writes, so that the verifier takes what is in it for constants.
///
/// # Errors
/// The kernel's.
pub fn freeze(map: BorrowedFd<'_>) -> io::Result<()> {
    element::<u32>(
        bpf_cmd::BPF_MAP_FREEZE,
        map,
        std::ptr::null(),
        std::ptr::null(),
    )
}

/// Loads a program. On failure `log` holds the verifier's messages.
///
/// # Errors
/// The kernel's: EPERM without `CAP_PERFMON`, EACCES or EINVAL where the verifier refuses.
pub fn load_program(
    kind: bpf_prog_type,
    instructions: &[bpf_insn],
    license: &CStr,
    name: &str,
    log: &mut Vec<u8>,
) -> io::Result<OwnedFd> {
    let mut attr = attributes();
    // SAFETY: numbers alone, for which zeros are a value.
    let load = unsafe { &mut attr.__bindgen_anon_3 };
    load.prog_type = kind as u32;
    load.prog_name = short_name(name);
    load.license = license.as_ptr() as u64;
    load.insns = instructions.as_ptr() as u64;
    load.insn_cnt = instructions.len() as u32;
    let refused = match bpf(bpf_cmd::BPF_PROG_LOAD, &mut attr) {
        Ok(fd) => return Ok(owned(fd)),
        Err(e) if e.raw_os_error() == Some(libc::EPERM) => return Err(e),
        Err(e) => e,
    };
    // A second attempt, for the verifier's log.
    log.resize(1 << 16, 0);
    attr.__bindgen_anon_3.log_level = 1;
    attr.__bindgen_anon_3.log_size = log.len() as u32;
    attr.__bindgen_anon_3.log_buf = log.as_mut_ptr() as u64;
    // The second attempt fails like the first, or with ENOSPC because the log is truncated: so the
    // first error is reported.
    let second = bpf(bpf_cmd::BPF_PROG_LOAD, &mut attr);
    log.truncate(log.iter().position(|b| *b == 0).unwrap_or(log.len()));
    second.map_err(|_| refused).map(owned)
}

/// Attaches a program to a raw tracepoint, until the descriptor is closed.
///
/// # Errors
/// The kernel's: ENOENT for a tracepoint it does not have, EINVAL when the program reads more
/// arguments than it has.
pub fn attach_raw(program: BorrowedFd<'_>, name: &str) -> io::Result<OwnedFd> {
    let name = CString::new(name)?;
    let mut attr = attributes();
    attr.raw_tracepoint.name = name.as_ptr() as u64;
    attr.raw_tracepoint.prog_fd = number(program);
    bpf(bpf_cmd::BPF_RAW_TRACEPOINT_OPEN, &mut attr).map(owned)
}

/// Attaches a program to a tracepoint by its number, until the descriptor is closed. One event on
/// one CPU is enough: the programs hang on the tracepoint itself and run wherever it fires
/// (`kernel/trace/bpf_trace.c`, `perf_event_attach_bpf_prog`). The event itself stays disabled:
/// else it would sample too, for nobody, on its CPU.
///
/// # Errors
/// The kernel's: EPERM, EACCES without `CAP_PERFMON`.
pub fn attach_tracepoint(program: BorrowedFd<'_>, id: u64) -> io::Result<OwnedFd> {
    let mut event = Builder::new(Tracepoint::with_id(id))
        .any_pid()
        // Any online CPU does: the program runs on all of them. CPU 0 can be offline (arm64, x86
        // before 6.5).
        .one_cpu(rustix::thread::sched_getcpu())
        .exclude_kernel(false)
        .exclude_hv(false)
        .read_format(ReadFormat::empty())
        .build()?;
    event.set_bpf(program.as_raw_fd())?;
    Ok(owned(event.into_raw_fd().into()))
}

/// Runs a program of a raw tracepoint once, with these arguments, in the calling thread (5.10).
///
/// # Errors
/// The kernel's: EPERM without `CAP_PERFMON`.
#[cfg(test)]
pub fn run_raw(program: BorrowedFd<'_>, arguments: &[u64; 12]) -> io::Result<()> {
    let mut attr = attributes();
    attr.test.prog_fd = number(program);
    attr.test.ctx_in = arguments.as_ptr() as u64;
    attr.test.ctx_size_in = size_of_val(arguments) as u32;
    bpf(bpf_cmd::BPF_PROG_TEST_RUN, &mut attr).map(drop)
}

/// Events for which a program did not run, because a BPF program was already running on that CPU
/// (`recursion_misses` of `bpf_prog_show_fdinfo`, kernel/bpf/syscall.c; 5.12).
pub fn missed(program: BorrowedFd<'_>) -> Option<u64> {
    let text =
        std::fs::read_to_string(format!("/proc/self/fdinfo/{}", program.as_raw_fd())).ok()?;
    text.lines()
        .find_map(|line| line.strip_prefix("recursion_misses:")?.trim().parse().ok())
}

const READ_WRITE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

/// A part of a map's memory, shared with the programs.
#[derive(Debug)]
pub struct Mapping {
    start: *mut u8,
    len: usize,
}

// SAFETY: shared memory that lives as long as the mapping; it is only reached through atomics
// (`Mapping::at`).
unsafe impl Send for Mapping {}

/// What may be laid over a map's memory: any bit pattern is valid, and all access is atomic, since
/// programs write meanwhile.
///
/// # Safety
/// `repr(C)` and made of atomics, or arrays of them, alone.
pub unsafe trait SharedMemory {}

impl Mapping {
    /// Maps the first `len` bytes of an array map with `BPF_F_MMAPABLE` (5.5). `len` is a multiple
    /// of the page size.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new(map: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe { mmap(null_mut(), len, READ_WRITE, MapFlags::SHARED, map, 0) }?.cast();
        Ok(Self { start, len })
    }

    /// Zeroed memory of this process alone.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn anonymous(len: usize) -> io::Result<Self> {
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe { mmap_anonymous(null_mut(), len, READ_WRITE, MapFlags::PRIVATE) }?;
        let start = start.cast();
        Ok(Self { start, len })
    }

    /// The `T` with this index in an array of them; `None` beyond the mapping.
    pub fn at<T: SharedMemory>(&self, index: usize) -> Option<&T> {
        if index >= self.len / size_of::<T>() {
            return None;
        }
        // SAFETY: inside the mapping, aligned since a mapping begins with a page, and
        // `SharedMemory` allows any content and concurrent writes.
        Some(unsafe { &*self.start.cast::<T>().wrapping_add(index) })
    }

    /// The number with this index; 0 beyond the mapping.
    pub fn read_u64(&self, index: usize) -> u64 {
        self.at::<AtomicU64>(index).map_or(0, |n| n.load(Relaxed))
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`; references to it cannot outlive `self`.
        let _ = unsafe { munmap(self.start.cast(), self.len) };
    }
}
