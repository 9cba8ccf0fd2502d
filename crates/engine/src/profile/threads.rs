//! The events of the sampled threads, and the ring of each.

use super::FREQUENCY_HZ;
use super::record::{self, REGISTERS, SampledStack};
use crate::events::EngineError;
use crate::perf::refused;
use perf_event::events::Software;
use perf_event::{Builder, SampleFlag, Sampler};
use perf_event_open_sys::bindings::{PERF_RECORD_LOST, PERF_RECORD_SAMPLE};
use sample::ProfiledThread;
use std::io;

/// Bytes of a thread's ring: room for 15 samples of [`STACK_BYTES`] and some more. A thread fires
/// at most 10 between two readings, at [`FREQUENCY_HZ`].
const RING_BYTES: usize = 128 * 1024;
/// Bytes of the user stack in each sample. The stacks of a VMM's threads are shallow.
const STACK_BYTES: u32 = 8 * 1024;

/// A thread that is sampled.
pub(super) struct SampledThread {
    pub thread: ProfiledThread,
    /// Samples that the kernel could not write.
    pub lost: u64,
    sampler: Sampler,
}

/// Opens an event for each thread, disabled. Adds sentences to `gaps`: what these threads will not
/// show.
///
/// # Errors
/// When no event could be opened.
pub(super) fn open(
    wanted: &[ProfiledThread],
    gaps: &mut Vec<String>,
) -> Result<Vec<SampledThread>, EngineError> {
    rights::allow_files();
    let mut threads = Vec::new();
    let mut last_failure = None;
    let mut failures = 0;
    for thread in wanted {
        match sampler(thread.tid) {
            Ok(sampler) => threads.push(SampledThread {
                thread: thread.clone(),
                lost: 0,
                sampler,
            }),
            // The thread has ended meanwhile.
            Err(e) if e.raw_os_error() == Some(libc::ESRCH) => {}
            Err(e) => {
                failures += 1;
                last_failure = Some(e);
            }
        }
    }
    if threads.is_empty() {
        return Err(match last_failure {
            Some(e) => refused("its threads cannot be sampled", &e, "run kvmtop as root"),
            None => EngineError::new(
                "its threads have ended",
                "kvmtop --batch -n 1 lists those that run",
            ),
        });
    }
    if let Some(e) = last_failure {
        gaps.push(format!("{failures} threads could not be sampled ({e})"));
    }
    Ok(threads)
}

fn sampler(tid: i32) -> io::Result<Sampler> {
    let registers = REGISTERS
        .iter()
        .fold(0, |mask, register| mask | 1_u64 << register);
    let counter = Builder::new(Software::CPU_CLOCK)
        .observe_pid(tid)
        .any_cpu()
        .enabled(false)
        .exclude_kernel(false)
        .exclude_hv(false)
        .sample_frequency(u64::from(FREQUENCY_HZ))
        .sample(
            SampleFlag::IP | SampleFlag::CALLCHAIN | SampleFlag::REGS_USER | SampleFlag::STACK_USER,
        )
        // User callers come from the unwind tables: without frame pointers the kernel would find
        // wrong ones.
        .exclude_callchain_user(true)
        .sample_regs_user(registers)
        .sample_stack_user(STACK_BYTES)
        .build()?;
    counter.sampled(RING_BYTES)
}

impl SampledThread {
    pub fn enable(&mut self) {
        // A thread that has ended yields nothing.
        let _ = self.sampler.enable();
    }

    pub fn disable(&mut self) {
        let _ = self.sampler.disable();
        // The event counts the CPU time while it was enabled.
        self.thread.cpu_ns = self.sampler.read().ok();
    }

    /// Takes the samples out of the ring.
    pub fn drain(&mut self, mut each: impl FnMut(&SampledStack<'_>)) {
        while let Some(record) = self.sampler.next_record() {
            let body = record.to_contiguous();
            match record.ty() {
                PERF_RECORD_SAMPLE => {
                    if let Some(sampled) = record::sample(record.misc(), &body) {
                        each(&sampled);
                    }
                }
                PERF_RECORD_LOST => self.lost += record::lost(&body).unwrap_or(0),
                _ => {}
            }
        }
    }
}
