//! The rings: one a CPU, which all tracepoints of that CPU write to.

use super::super::EngineError;
use super::merge::Merge;
use crate::kvm::CpuSet;
use crate::source::pairing::{Decoder, RawSample};
use perf_event::events::Tracepoint;
use perf_event::{Builder, Clock, Counter, ReadFormat, SampleFlag, Sampler};
use perf_event_open_sys::ioctls;
use std::io;
use std::os::fd::{AsRawFd, RawFd};

/// Bytes of a ring. With its control page this is `kernel.perf_event_mlock_kb`, what a user may lock by default.
const RING: usize = 512 * 1024;
/// A ring with less room than this may have refused a record.
const FULL: usize = RING - 1024;

// Types of records (include/uapi/linux/perf_event.h, `perf_event_type`) and the size of their header.
const LOST: u32 = 2;
const SAMPLE: u32 = 9;
const HEADER: usize = 8;
/// pid, tid, time, cpu and a reserved word, which end every record but a sample (`sample_id_all`).
const TRAILER: usize = 24;

/// One CPU's ring and the events that write to it.
pub(super) struct Ring {
    sampler: Sampler,
    others: Vec<Counter>,
    /// The time of the last record seen.
    last: u64,
    lost_records: u64,
    lost_counted: u64,
    counts_lost: bool,
}

/// Opens every event on every CPU, all silent until [`Ring::enable`].
pub(super) fn open(ids: &[u64]) -> Result<Vec<Ring>, EngineError> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let online = CpuSet::parse(text.trim()).unwrap_or_default();
    allow_files(online.len() * ids.len() + 256);
    online.iter().map(|cpu| Ring::open(cpu, ids).map_err(|e| refused(cpu, &e))).collect()
}

/// Raises the soft limit of open files as far as it may go; needs no right.
fn allow_files(wanted: usize) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let wanted = wanted as u64;
    if limit.current.is_some_and(|now| now < wanted) {
        let current = Some(limit.maximum.map_or(wanted, |most| most.min(wanted)));
        // Refused: the opening that fails for it says so.
        let _ = setrlimit(Resource::Nofile, Rlimit { current, maximum: limit.maximum });
    }
}

fn refused(cpu: u32, error: &io::Error) -> EngineError {
    let (why, fix) = match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => (
            "kernel.perf_event_paranoid forbids it and CAP_PERFMON is missing".into(),
            "run as root, or: setcap cap_perfmon,cap_dac_read_search+ep on the kvmtop binary".into(),
        ),
        Some(libc::EMFILE | libc::ENFILE) => {
            ("too many open files: each tracepoint takes one a CPU".into(), "ulimit -n 65536".into())
        }
        Some(libc::ENOSYS | libc::ENOENT) => {
            ("this kernel is built without perf events".into(), "use --engine bpf or --engine none".into())
        }
        _ => (error.to_string(), "use --engine none to go on without exits".into()),
    };
    EngineError { cause: format!("cannot open perf tracepoints on CPU {cpu}: {why}"), fix }
}

impl Ring {
    fn open(cpu: u32, ids: &[u64]) -> io::Result<Self> {
        // Lost samples are counted by event since Linux 6.0.
        let counts = ReadFormat::LOST;
        let (counters, counts_lost) = match counters(cpu, ids, counts) {
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => (counters(cpu, ids, ReadFormat::empty())?, false),
            other => (other?, true),
        };
        let mut counters = counters.into_iter();
        let first = counters.next().ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT))?;
        let sampler = first.sampled(RING)?;
        let others: Vec<Counter> = counters.collect();
        for counter in &others {
            // SAFETY: both are open perf event descriptors of one CPU and one clock; the kernel checks the rest.
            if unsafe { ioctls::SET_OUTPUT(counter.as_raw_fd(), sampler.as_raw_fd()) } < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(Self { sampler, others, last: 0, lost_records: 0, lost_counted: 0, counts_lost })
    }

    /// Lets the events flow.
    pub fn enable(&mut self) -> io::Result<()> {
        self.others.iter_mut().try_for_each(Counter::enable)?;
        self.sampler.enable()
    }

    /// What to poll for a ring that is half full.
    pub fn fd(&self) -> RawFd {
        self.sampler.as_raw_fd()
    }

    /// Events that were dropped.
    pub fn lost(&self) -> u64 {
        self.lost_records.max(self.lost_counted)
    }

    /// Empties the ring of what came up to `horizon`, and of one record more where there is one.
    pub fn drain(&mut self, horizon: u64, decoder: &Decoder, merge: &mut Merge) {
        let mut used = 0;
        while let Some(record) = self.sampler.next_record() {
            used += HEADER + record.len();
            let data = record.to_contiguous();
            match record.ty() {
                SAMPLE => {
                    if let Some(sample) = sample(&data) {
                        self.last = sample.time;
                        decoder.decode(&sample, |event| merge.push(event));
                    }
                }
                LOST => {
                    if let Some((count, time)) = lost(&data) {
                        self.lost_records += count;
                        merge.gap(self.last, time);
                        self.last = time;
                    }
                }
                _ => {}
            }
            if self.last > horizon {
                break;
            }
        }
        if used >= FULL && self.lost_more() {
            // The record that tells of it comes with the next event; until then nothing shows that some are missing.
            merge.gap(self.last, super::watcher::now());
        }
    }

    /// Whether events were lost since this was last asked; always, where the kernel does not count them.
    fn lost_more(&mut self) -> bool {
        if !self.counts_lost {
            return true;
        }
        let counters = self.others.iter_mut().chain(std::iter::once(&mut *self.sampler));
        let lost: u64 = counters.filter_map(|counter| counter.read_full().ok()?.lost()).sum();
        let more = lost > self.lost_counted;
        self.lost_counted = lost;
        more
    }
}

fn counters(cpu: u32, ids: &[u64], read_format: ReadFormat) -> io::Result<Vec<Counter>> {
    ids.iter()
        .map(|id| {
            Builder::new(Tracepoint::with_id(*id))
                .any_pid()
                .one_cpu(cpu as usize)
                // Tracepoints fire in the kernel; excluded, they count 0 without an error.
                .exclude_kernel(false)
                .exclude_hv(false)
                .sample_period(1)
                .sample(SampleFlag::TID | SampleFlag::TIME | SampleFlag::CPU | SampleFlag::RAW)
                .sample_id_all(true)
                .wakeup_watermark(RING / 2)
                .clockid(Clock::MONOTONIC)
                .read_format(read_format)
                .build()
        })
        .collect()
}

/// The body of a sample of TID, TIME, CPU and RAW: `u32 pid, tid; u64 time; u32 cpu, res; u32 size; u8 raw[size]`.
fn sample(data: &[u8]) -> Option<RawSample<'_>> {
    let (head, rest) = data.split_at_checked(TRAILER)?;
    let (size, rest) = rest.split_first_chunk::<4>()?;
    let raw = rest.get(..u32::from_ne_bytes(*size) as usize)?;
    Some(RawSample { pid: word(head, 0)?, tid: word(head, 4)?, time: long(head, 8)?, cpu: word(head, 16)?.cast_unsigned(), raw })
}

/// The body of a record of loss: `u64 id, lost`, then the trailer.
fn lost(data: &[u8]) -> Option<(u64, u64)> {
    Some((long(data, 8)?, long(data, 16 + 8)?))
}

fn word(data: &[u8], at: usize) -> Option<i32> {
    data.get(at..)?.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes))
}

fn long(data: &[u8], at: usize) -> Option<u64> {
    data.get(at..)?.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes))
}
