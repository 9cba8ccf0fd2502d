//! The rings: one per CPU, which all tracepoints of that CPU write to.
#![allow(unsafe_code, reason = "two perf ioctls that perf-event2 does not wrap")]

use super::time_order::TimeOrder;
use crate::events::EngineError;
use crate::monotonic_ns;
use crate::pairing::{EventDecoder, RawSample};
use kvm::CpuSet;
use perf_event::events::Tracepoint;
use perf_event::{Builder, Clock, Counter, ReadFormat, SampleFlag, Sampler};
use perf_event_open_sys::bindings::{PERF_RECORD_LOST, PERF_RECORD_SAMPLE};
use perf_event_open_sys::ioctls;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Bytes of a ring for unprivileged users: with the ring's control page, the default of
/// `kernel.perf_event_mlock_kb`.
const MIN_RING_BYTES: usize = 512 * 1024;
/// Bytes of a ring where `kernel.perf_event_mlock_kb` does not apply (`CAP_IPC_LOCK`) and CPUs are
/// few: room for 45 000 events, so that the reader can wait for a while on a busy host.
const MAX_RING_BYTES: usize = 4 * 1024 * 1024;
/// The most bytes of all rings together when they are enlarged.
const ALL_RINGS_BYTES: usize = 16 * 1024 * 1024;
/// A ring with less free space than this may have refused a record.
const MIN_FREE_BYTES: usize = 1024;

/// The size of a record's header.
const HEADER_BYTES: usize = 8;

/// Names that VMMs give to vCPU threads: QEMU with and without `debug-threads`, Firecracker,
/// cloud-hypervisor, crosvm, kvmtool. An event's filter can be set only once, so it cannot follow
/// the threads themselves.
const VCPU_NAMES: [&str; 3] = ["CPU *", "qemu*", "*vcpu*"];

/// A CPU since it came online. An event of perf ends when its CPU goes offline, and stays ended
/// when the CPU comes back (kernel/events/core.c, `perf_event_exit_cpu_context`): so it needs a new
/// event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OnlineCpu {
    pub number: u32,
    /// The inode of its folder `topology`, which the kernel makes at each start of the CPU
    /// (drivers/base/topology.c, `topology_add_dev`).
    since: Option<u64>,
}

impl OnlineCpu {
    /// All CPUs that are online, by the folder of the host's CPUs.
    pub fn all_below(folder: &Path) -> Vec<Self> {
        let list = std::fs::read_to_string(folder.join("online")).unwrap_or_default();
        let online = CpuSet::parse(list.trim()).unwrap_or_default();
        let mut cpus = Vec::new();
        for number in online.iter() {
            let topology = std::fs::metadata(folder.join(format!("cpu{number}/topology")));
            cpus.push(Self {
                number,
                since: topology.ok().map(|folder| folder.ino()),
            });
        }
        cpus
    }
}

/// One CPU's ring and the events that write to it.
pub(super) struct Ring {
    pub cpu: OnlineCpu,
    /// The first event, which owns the ring.
    sampler: Sampler,
    /// The further events, except the frequent ones in `scheduler`.
    others: Vec<Counter>,
    /// The frequent scheduler events, which can be disabled.
    scheduler: Vec<Counter>,
    /// The time of the last record seen.
    last_time: u64,
    size: usize,
    /// Lost events, added up from the ring's records of loss.
    lost_records: u64,
    /// Lost events, as the kernel itself counts them.
    lost_counted: u64,
    /// Whether the kernel counts lost events itself.
    counts_lost: bool,
}

/// A tracepoint to open.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub id: u64,
    /// For the frequent scheduler events: the kernel's filter by a thread's name
    /// (Documentation/trace/events.rst).
    filter: Option<CString>,
}

impl Wanted {
    pub fn new(event: &str, id: u64) -> Self {
        let fields: &[&str] = match event {
            "sched_waking" => &["comm"],
            "sched_switch" => &["prev_comm", "next_comm"],
            _ => &[],
        };
        let mut terms = Vec::new();
        for field in fields {
            terms.extend(VCPU_NAMES.map(|name| format!("{field} ~ \"{name}\"")));
        }
        let filter = if terms.is_empty() {
            None
        } else {
            CString::new(terms.join(" || ")).ok()
        };
        Self { id, filter }
    }
}

/// Opens every event on these CPUs, disabled until [`Ring::enable`].
pub(super) fn open(cpus: &[OnlineCpu], wanted: &[Wanted]) -> Result<Vec<Ring>, EngineError> {
    rights::allow_files();
    let bytes_of_each = ALL_RINGS_BYTES / cpus.len().max(1);
    // A ring's size is a power of two.
    let size = 1 << bytes_of_each.clamp(MIN_RING_BYTES, MAX_RING_BYTES).ilog2();
    let rings = open_sized(cpus, wanted, size);
    if rings.is_err() && size > MIN_RING_BYTES {
        return open_sized(cpus, wanted, MIN_RING_BYTES);
    }
    rings
}

fn open_sized(
    cpus: &[OnlineCpu],
    wanted: &[Wanted],
    size: usize,
) -> Result<Vec<Ring>, EngineError> {
    cpus.iter()
        .map(|cpu| Ring::open(*cpu, wanted, size).map_err(|e| cannot_open(*cpu, &e)))
        .collect()
}

/// Opens the events of a CPU that came online and enables them. `like`: another ring.
pub(super) fn join(
    cpu: OnlineCpu,
    wanted: &[Wanted],
    like: Option<&Ring>,
) -> Result<Ring, EngineError> {
    let mut ring = Ring::open(cpu, wanted, like.map_or(MIN_RING_BYTES, |ring| ring.size))
        .map_err(|e| cannot_open(cpu, &e))?;
    ring.enable().map_err(|e| cannot_open(cpu, &e))?;
    Ok(ring)
}

fn cannot_open(cpu: OnlineCpu, error: &io::Error) -> EngineError {
    let what = format!("cannot open perf tracepoints on CPU {}", cpu.number);
    refused(&what, error, "use --engine none to go on without exits")
}

/// Why the kernel opens no event of perf, and what to do; `otherwise` where that is not known.
pub(crate) fn refused(what: &str, error: &io::Error, otherwise: &str) -> EngineError {
    let (why, fix) = match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => {
            rights::paranoid_refusal(rights::paranoid(), rights::effective()).unwrap_or_else(|| {
                (
                    "kernel.perf_event_paranoid forbids it and CAP_PERFMON is missing".into(),
                    rights::hint(),
                )
            })
        }
        Some(libc::EMFILE | libc::ENFILE) => {
            ("too many open files".into(), "`ulimit -n 65536`".into())
        }
        Some(libc::ENOSYS | libc::ENOENT | libc::EOPNOTSUPP) => (
            "this kernel is built without perf events".into(),
            "boot one with CONFIG_PERF_EVENTS=y".into(),
        ),
        _ => (error.to_string(), otherwise.into()),
    };
    EngineError::new(format!("{what}: {why}"), fix)
}

impl Ring {
    fn open(cpu: OnlineCpu, wanted: &[Wanted], size: usize) -> io::Result<Self> {
        // Lost samples are counted by event since Linux 6.0.
        let mut counts_lost = true;
        let mut opened = counters(cpu.number, wanted, size, ReadFormat::LOST);
        if let Err(e) = &opened
            && e.raw_os_error() == Some(libc::EINVAL)
        {
            counts_lost = false;
            opened = counters(cpu.number, wanted, size, ReadFormat::empty());
        }
        // The first wanted event holds the ring's memory. It has no filter: only events of the
        // scheduler have one, and those come last.
        let mut counters = opened?.into_iter().zip(wanted);
        let (first, _) = counters
            .next()
            .ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT))?;
        let sampler = first.sampled(size)?;
        let mut ring = Self {
            cpu,
            sampler,
            others: Vec::new(),
            scheduler: Vec::new(),
            last_time: 0,
            size,
            lost_records: 0,
            lost_counted: 0,
            counts_lost,
        };
        for (counter, wanted) in counters {
            // SAFETY: both are open perf event descriptors of one CPU and one clock; the kernel
            // checks the rest.
            check(unsafe { ioctls::SET_OUTPUT(counter.as_raw_fd(), ring.sampler.as_raw_fd()) })?;
            if let Some(filter) = &wanted.filter {
                // SAFETY: the kernel copies the NUL-terminated text and does not write to it.
                check(unsafe {
                    ioctls::SET_FILTER(counter.as_raw_fd(), filter.as_ptr().cast_mut())
                })?;
                ring.scheduler.push(counter);
            } else {
                ring.others.push(counter);
            }
        }
        Ok(ring)
    }

    /// Enables the events.
    pub fn enable(&mut self) -> io::Result<()> {
        self.others
            .iter_mut()
            .chain(&mut self.scheduler)
            .try_for_each(Counter::enable)?;
        self.sampler.enable()
    }

    /// Disables the frequent scheduler events.
    pub fn silence_scheduler(&mut self) {
        for counter in &mut self.scheduler {
            // To disable an open event cannot fail.
            let _ = counter.disable();
        }
    }

    /// The descriptor to poll: readable when the ring is half full.
    pub fn fd(&self) -> RawFd {
        self.sampler.as_raw_fd()
    }

    /// Events that the kernel dropped.
    pub fn lost(&self) -> u64 {
        self.lost_records.max(self.lost_counted)
    }

    /// Takes the records up to `horizon` out of the ring, and the first one after it.
    pub fn drain(&mut self, horizon: u64, decoder: &EventDecoder, merge: &mut TimeOrder) {
        let mut used = 0;
        while let Some(record) = self.sampler.next_record() {
            used += HEADER_BYTES + record.len();
            let data = record.to_contiguous();
            match record.ty() {
                PERF_RECORD_SAMPLE => {
                    if let Some(sample) = sample(&data) {
                        self.last_time = sample.time;
                        decoder.decode(&sample, |event| merge.push(event));
                    }
                }
                PERF_RECORD_LOST => {
                    if let Some(loss) = lost(&data) {
                        self.lost_records += loss.count;
                        merge.gap(self.last_time, loss.time);
                        self.last_time = loss.time;
                    }
                }
                _ => {}
            }
            if self.last_time > horizon {
                break;
            }
        }
        let may_have_been_full = used + MIN_FREE_BYTES >= self.size;
        if may_have_been_full && self.count_lost() {
            // The kernel writes its record of the loss with the next event; until then nothing in
            // the ring shows that events are missing.
            merge.gap(self.last_time, monotonic_ns());
        }
    }

    /// Counts the lost events anew; returns whether there are more than at the last call. Always
    /// true where the kernel does not count them.
    fn count_lost(&mut self) -> bool {
        if !self.counts_lost {
            return true;
        }
        let counters = self
            .others
            .iter_mut()
            .chain(&mut self.scheduler)
            .chain(std::iter::once(&mut *self.sampler));
        let lost: u64 = counters
            .filter_map(|counter| counter.read_full().ok()?.lost())
            .sum();
        let more = lost > self.lost_counted;
        self.lost_counted = lost;
        more
    }
}

fn counters(
    cpu: u32,
    wanted: &[Wanted],
    ring_bytes: usize,
    read_format: ReadFormat,
) -> io::Result<Vec<Counter>> {
    wanted
        .iter()
        .map(|wanted| counter(cpu, wanted.id, ring_bytes, read_format))
        .collect()
}

fn counter(cpu: u32, id: u64, ring_bytes: usize, read_format: ReadFormat) -> io::Result<Counter> {
    Builder::new(Tracepoint::with_id(id))
        .any_pid()
        .one_cpu(cpu as usize)
        // Tracepoints fire in the kernel; excluded, they count 0 without an error.
        .exclude_kernel(false)
        .exclude_hv(false)
        .sample_period(1)
        .sample(SampleFlag::TID | SampleFlag::TIME | SampleFlag::CPU | SampleFlag::RAW)
        .sample_id_all(true)
        .wakeup_watermark(ring_bytes / 2)
        .clockid(Clock::MONOTONIC)
        .read_format(read_format)
        .build()
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// The body of a sample of TID, TIME, CPU and RAW: `u32 pid, tid; u64 time; u32 cpu, res; u32 size;
/// u8 raw[size]`.
fn sample(data: &[u8]) -> Option<RawSample<'_>> {
    let (size, rest) = data.get(24..)?.split_first_chunk::<4>()?;
    let raw = rest.get(..u32::from_ne_bytes(*size) as usize)?;
    Some(RawSample {
        pid: word(data, 0)?,
        tid: word(data, 4)?,
        time: long(data, 8)?,
        cpu: word(data, 16)?.cast_unsigned(),
        raw,
    })
}

/// Events that the kernel dropped, and when it says so.
struct Loss {
    count: u64,
    time: u64,
}

/// The body of a record of loss: `u64 id, lost`, then pid, tid and time (`sample_id_all`).
fn lost(data: &[u8]) -> Option<Loss> {
    Some(Loss {
        count: long(data, 8)?,
        time: long(data, 16 + 8)?,
    })
}

fn word(data: &[u8], offset: usize) -> Option<i32> {
    Some(i32::from_ne_bytes(*data.get(offset..)?.first_chunk()?))
}

fn long(data: &[u8], offset: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*data.get(offset..)?.first_chunk()?))
}
