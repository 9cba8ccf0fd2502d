//! The few system calls of `bpf(2)` and `perf_event_open(2)` that the engine makes.
//!
//! `aya-obj` parses and relocates the object. The loader `aya` is not used: before it loads the first program, it
//! reads and keeps the kernel's whole BTF (some 30 MB) and probes for features that are not needed here.
#![allow(unsafe_code, reason = "bpf(2), perf_event_open(2) and mmap(2) take pointers, without a safe wrapper")]

use aya_obj::generated::bpf_insn;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

const BPF_MAP_CREATE: libc::c_int = 0;
const BPF_MAP_UPDATE_ELEM: libc::c_int = 2;
const BPF_MAP_DELETE_ELEM: libc::c_int = 3;
const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_RAW_TRACEPOINT_OPEN: libc::c_int = 17;
const BPF_MAP_FREEZE: libc::c_int = 22;
const BPF_MAP_LOOKUP_BATCH: libc::c_int = 24;

/// `enum bpf_prog_type` (uapi/linux/bpf.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramType {
    /// Gets the record that `format` describes.
    Tracepoint = 5,
    /// Gets the arguments of the tracepoint's `TP_PROTO`.
    RawTracepoint = 17,
}

/// Parts of `union bpf_attr` that are plain data, in the kernel's layout.
///
/// # Safety
/// `repr(C)`, no padding that is not a field, every pointer in it valid for what its command does with it.
unsafe trait Attr {}

#[repr(C)]
struct MapCreate {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    flags: u32,
    inner: u32,
    numa_node: u32,
    name: [u8; 16],
}
// SAFETY: numbers only.
unsafe impl Attr for MapCreate {}

#[repr(C)]
struct Element {
    map: u32,
    pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}
// SAFETY: `update` points key and value to memory of the map's sizes.
unsafe impl Attr for Element {}

#[repr(C)]
struct BatchLookup {
    begin: u64,
    end: u64,
    keys: u64,
    values: u64,
    count: u32,
    map: u32,
    element_flags: u64,
    flags: u64,
}
// SAFETY: `lookup_all` points to buffers of `count` elements.
unsafe impl Attr for BatchLookup {}

#[repr(C)]
struct ProgramLoad {
    kind: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
}
// SAFETY: `load_program` points to its slices with their lengths.
unsafe impl Attr for ProgramLoad {}

#[repr(C)]
struct RawTracepoint {
    name: u64,
    program: u32,
    pad: u32,
}
// SAFETY: `attach_raw` points to a C string.
unsafe impl Attr for RawTracepoint {}

#[repr(C)]
struct One {
    value: u32,
    pad: u32,
}
// SAFETY: numbers only.
unsafe impl Attr for One {}

fn bpf<A: Attr>(command: libc::c_int, attr: &A) -> io::Result<libc::c_long> {
    // SAFETY: `Attr` promises plain data of the command's layout; the kernel takes any size of it.
    let answer = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attr), size_of::<A>()) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}

fn owned(fd: libc::c_long) -> io::Result<OwnedFd> {
    let fd = i32::try_from(fd).map_err(io::Error::other)?;
    // SAFETY: the kernel has just made this descriptor for the caller alone; BPF's are close-on-exec.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A name as the kernel takes it: 15 bytes of letters, digits, `_` and `.`.
fn short_name(name: &str) -> [u8; 16] {
    let mut short = [0; 16];
    let allowed = name.bytes().filter(|b| b.is_ascii_alphanumeric() || *b == b'_');
    for (to, from) in short.iter_mut().take(15).zip(allowed) {
        *to = from;
    }
    short
}

/// Creates a map.
///
/// # Errors
/// The kernel's: EPERM without `CAP_BPF`, ENOMEM, EINVAL for a type it does not know.
pub fn create_map(map: &aya_obj::Map, name: &str) -> io::Result<OwnedFd> {
    let attr = MapCreate {
        map_type: map.map_type(),
        key_size: map.key_size(),
        value_size: map.value_size(),
        max_entries: map.max_entries(),
        flags: map.map_flags(),
        inner: 0,
        numa_node: 0,
        name: short_name(name),
    };
    bpf(BPF_MAP_CREATE, &attr).and_then(owned)
}

/// Writes an element; without a key, pushes it onto a stack. `value` must have the map's value size.
///
/// # Errors
/// The kernel's: E2BIG for an index or a stack that is full.
pub fn update(map: BorrowedFd<'_>, key: Option<u32>, value: &[u8]) -> io::Result<()> {
    let attr = Element {
        map: map.as_raw_fd().cast_unsigned(),
        pad: 0,
        key: key.as_ref().map_or(0, |k| std::ptr::from_ref(k) as u64),
        value: value.as_ptr() as u64,
        flags: 0,
    };
    bpf(BPF_MAP_UPDATE_ELEM, &attr).map(drop)
}

/// Removes an element of a map whose keys are `K` numbers.
///
/// # Errors
/// The kernel's: ENOENT where there is none.
pub fn delete<const K: usize>(map: BorrowedFd<'_>, key: [u32; K]) -> io::Result<()> {
    let attr = Element { map: map.as_raw_fd().cast_unsigned(), pad: 0, key: key.as_ptr() as u64, value: 0, flags: 0 };
    bpf(BPF_MAP_DELETE_ELEM, &attr).map(drop)
}

/// All elements of a hash map from `K` numbers to `V` counters, in one call (5.6). `size` is the map's.
///
/// # Errors
/// The kernel's: EINVAL before 5.6.
pub fn lookup_all<const K: usize, const V: usize>(
    map: BorrowedFd<'_>,
    size: usize,
) -> io::Result<Vec<([u32; K], [u64; V])>> {
    let (mut keys, mut values) = (vec![[0_u32; K]; size], vec![[0_u64; V]; size]);
    let mut cursor = 0_u64;
    let mut attr = BatchLookup {
        begin: 0,
        end: std::ptr::from_mut(&mut cursor) as u64,
        keys: keys.as_mut_ptr() as u64,
        values: values.as_mut_ptr() as u64,
        count: size as u32,
        map: map.as_raw_fd().cast_unsigned(),
        element_flags: 0,
        flags: 0,
    };
    // SAFETY: as in `bpf`; the kernel writes `count` back, so this one is passed as mutable.
    let answer = unsafe {
        libc::syscall(libc::SYS_bpf, BPF_MAP_LOOKUP_BATCH, std::ptr::from_mut(&mut attr), size_of::<BatchLookup>())
    };
    let error = io::Error::last_os_error();
    // ENOENT says that there is no more.
    if answer < 0 && error.raw_os_error() != Some(libc::ENOENT) {
        return Err(error);
    }
    Ok(keys.into_iter().zip(values).take(attr.count as usize).collect())
}

/// Closes a map to further writes, so that the verifier takes what is in it for constants.
///
/// # Errors
/// The kernel's.
pub fn freeze(map: BorrowedFd<'_>) -> io::Result<()> {
    bpf(BPF_MAP_FREEZE, &One { value: map.as_raw_fd().cast_unsigned(), pad: 0 }).map(drop)
}

/// Loads a program. On failure `log` holds the verifier's messages.
///
/// # Errors
/// The kernel's: EPERM without `CAP_PERFMON`, EACCES or EINVAL where the verifier refuses.
pub fn load_program(
    kind: ProgramType,
    instructions: &[bpf_insn],
    license: &CStr,
    name: &str,
    log: &mut Vec<u8>,
) -> io::Result<OwnedFd> {
    let mut attr = ProgramLoad {
        kind: kind as u32,
        instruction_count: instructions.len() as u32,
        instructions: instructions.as_ptr() as u64,
        license: license.as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log: 0,
        kernel_version: 0,
        flags: 0,
        name: short_name(name),
    };
    let first = bpf(BPF_PROG_LOAD, &attr);
    let refused = match first {
        Ok(fd) => return owned(fd),
        Err(e) if e.raw_os_error() == Some(libc::EPERM) => return Err(e),
        Err(e) => e,
    };
    log.resize(1 << 16, 0);
    (attr.log_level, attr.log_size, attr.log) = (1, 1 << 16, log.as_mut_ptr() as u64);
    // The second attempt fails like the first, or with ENOSPC because the log is truncated: the first error matters.
    let second = bpf(BPF_PROG_LOAD, &attr);
    log.truncate(log.iter().position(|b| *b == 0).unwrap_or(log.len()));
    second.map_err(|_| refused).and_then(owned)
}

/// Attaches a program to a raw tracepoint, until the descriptor is closed.
///
/// # Errors
/// The kernel's: ENOENT for a tracepoint it does not have, EINVAL when the program reads more arguments than it has.
pub fn attach_raw(program: BorrowedFd<'_>, name: &str) -> io::Result<OwnedFd> {
    let name = CString::new(name)?;
    let attr = RawTracepoint { name: name.as_ptr() as u64, program: program.as_raw_fd().cast_unsigned(), pad: 0 };
    bpf(BPF_RAW_TRACEPOINT_OPEN, &attr).and_then(owned)
}

/// Attaches a program to a tracepoint by its number, until the descriptor is closed. One event on one CPU is enough:
/// the programs hang on the tracepoint itself and run wherever it fires (`kernel/trace/bpf_trace.c`,
/// `perf_event_attach_bpf_prog`). The event itself stays disabled: else it would sample too, for nobody, on its CPU.
///
/// # Errors
/// The kernel's: EPERM, EACCES without `CAP_PERFMON`.
pub fn attach_tracepoint(program: BorrowedFd<'_>, id: u64) -> io::Result<OwnedFd> {
    use perf_event_open_sys as perf;
    let mut attr = perf::bindings::perf_event_attr::default();
    attr.config = id;
    attr.type_ = perf::bindings::PERF_TYPE_TRACEPOINT;
    attr.size = size_of::<perf::bindings::perf_event_attr>() as u32;
    attr.set_disabled(1);
    // Any online CPU does: the program runs on all of them. CPU 0 can be offline (arm64, x86 before 6.5).
    let cpu = rustix::thread::sched_getcpu() as libc::c_int;
    // SAFETY: `attr` is initialised and of the size it says.
    let fd = unsafe { perf::perf_event_open(&raw mut attr, -1, cpu, -1, perf::bindings::PERF_FLAG_FD_CLOEXEC.into()) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    let event = owned(fd.into())?;
    // SAFETY: both descriptors are open.
    let attached = unsafe { perf::ioctls::SET_BPF(event.as_raw_fd(), program.as_raw_fd().cast_unsigned()) } >= 0;
    if attached { Ok(event) } else { Err(io::Error::last_os_error()) }
}

/// Runs a program of a raw tracepoint once, with these arguments, in the calling thread (5.10).
///
/// # Errors
/// The kernel's: EPERM without `CAP_PERFMON`.
#[cfg(test)]
pub fn run_raw(program: BorrowedFd<'_>, arguments: &[u64; 12]) -> io::Result<()> {
    #[repr(C)]
    struct TestRun {
        program: u32,
        answer: u32,
        sizes: [u32; 2],
        data: [u64; 2],
        repeat: u32,
        duration: u32,
        arguments_size: u32,
        arguments_size_out: u32,
        arguments: u64,
        arguments_out: u64,
    }
    // SAFETY: the arguments are read alone, and have the size that is said.
    unsafe impl Attr for TestRun {}
    const BPF_PROG_TEST_RUN: libc::c_int = 10;
    let attr = TestRun {
        program: program.as_raw_fd().cast_unsigned(),
        answer: 0,
        sizes: [0; 2],
        data: [0; 2],
        repeat: 0,
        duration: 0,
        arguments_size: size_of_val(arguments) as u32,
        arguments_size_out: 0,
        arguments: arguments.as_ptr() as u64,
        arguments_out: 0,
    };
    bpf(BPF_PROG_TEST_RUN, &attr).map(drop)
}

/// Events for which a program did not run, because a BPF program was already running on that CPU (`recursion_misses` of
/// `bpf_prog_show_fdinfo`, kernel/bpf/syscall.c; 5.12).
pub fn missed(program: BorrowedFd<'_>) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", program.as_raw_fd())).ok()?;
    text.lines().find_map(|line| line.strip_prefix("recursion_misses:")?.trim().parse().ok())
}

/// A part of a map's memory, shared with the programs.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: shared memory that lives as long as the mapping; it is only reached through atomics (`Mapping::at`).
unsafe impl Send for Mapping {}

/// What may be laid over a map's memory: any bit pattern is valid, and all access is atomic, since programs write
/// meanwhile.
///
/// # Safety
/// `repr(C)` and made of atomics, or arrays of them, alone.
pub unsafe trait SharedMemory {}

impl Mapping {
    /// Maps `len` bytes of an array map with `BPF_F_MMAPABLE` (5.5). Both figures are multiples of the page size.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new(map: BorrowedFd<'_>, offset: usize, len: usize) -> io::Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let offset = libc::off_t::try_from(offset).map_err(io::Error::other)?;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, access, libc::MAP_SHARED, map.as_raw_fd(), offset) };
        Self::mapped(start, len)
    }

    /// Zeroed memory of this process alone.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn anonymous(len: usize) -> io::Result<Self> {
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, access, flags, -1, 0) };
        Self::mapped(start, len)
    }

    fn mapped(start: *mut libc::c_void, len: usize) -> io::Result<Self> {
        match NonNull::new(start.cast::<u8>()) {
            Some(start) if start.as_ptr().cast() != libc::MAP_FAILED => Ok(Self { start, len }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// The `T` at this byte; `None` beyond the mapping or where it would not be aligned.
    pub fn at<T: SharedMemory>(&self, byte: usize) -> Option<&T> {
        let inside = byte.checked_add(size_of::<T>())? <= self.len;
        let start = self.start.as_ptr().wrapping_add(byte).cast::<T>();
        // SAFETY: inside the mapping, aligned, and `SharedMemory` allows any content and concurrent writes.
        (inside && start.is_aligned()).then(|| unsafe { &*start })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`; references to it cannot outlive `self`.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}
