//! The performance counters (PMU) of vCPU threads: what each does in the guest, and what outside it.
//!
//! Two groups of events a thread, one that counts in the guest alone (`exclude_host`) and one outside it
//! (`exclude_guest`): events of a group are counted together, so that their ratio is true even where groups take turns.

use crate::events::EngineError;
use crate::perf::refused;
use perf_event::events::{Cache, CacheId, CacheOp, CacheResult, Event, Hardware};
use perf_event::{Builder, Counter, ReadFormat};
use sample::{PmuCounters, PmuCounts, ThreadSample};
use std::collections::HashMap;
use std::io;
use std::time::Duration;

/// The most threads with open counters, each with six events; fewer where few files may be open.
const MAX_THREADS: usize = 512;
/// The counters take at most one in so many of the files that may be open.
const FILES_PART: u64 = 16;
const EVENTS: u64 = 6;
/// `perf` calls it `LLC-load-misses`. The event that it calls `cache-misses` is about another cache on AMD and Arm.
const LLC_MISSES: Cache = Cache { which: CacheId::LL, operation: CacheOp::READ, result: CacheResult::MISS };

/// The open counters. Dropping them closes them.
#[derive(Debug)]
pub struct VcpuPmu {
    /// By thread id and start.
    threads: HashMap<(i32, u64), [Group; 2]>,
    max_threads: usize,
    /// Why threads lack counters, and how many do.
    unopened: (Option<io::Error>, usize),
}

impl Default for VcpuPmu {
    fn default() -> Self {
        let files = rights::allow_files().unwrap_or(u64::MAX) / FILES_PART / EVENTS;
        Self { threads: HashMap::new(), max_threads: MAX_THREADS.min(files as usize), unopened: (open(0).err(), 0) }
    }
}

impl VcpuPmu {
    /// Opens the counters of new threads, sets those of all, and closes those of threads that are not among them.
    pub fn read<'a>(&mut self, vcpus: impl Iterator<Item = &'a mut ThreadSample>) {
        let mut before = std::mem::take(&mut self.threads);
        let mut vcpus = vcpus.peekable();
        self.unopened.1 = 0;
        // Without a vCPU it is known from the start whether this host counts: this thread would be counted too.
        if vcpus.peek().is_some() {
            self.unopened.0 = None;
        }
        for thread in vcpus {
            let key = (thread.tid, thread.start_ticks);
            let opened = match before.remove(&key) {
                Some(groups) => Some(groups),
                // What one thread is refused the next one is refused too.
                None if self.unopened.0.is_some() || self.threads.len() >= self.max_threads => None,
                None => match open(thread.tid) {
                    Err(e) if e.raw_os_error() == Some(libc::ESRCH) => continue,
                    Err(e) => {
                        self.unopened.0 = Some(e);
                        None
                    }
                    Ok(groups) => Some(groups),
                },
            };
            let Some([mut guest, mut host]) = opened else {
                self.unopened.1 += 1;
                continue;
            };
            thread.pmu = guest.read().zip(host.read()).map(|(guest, host)| PmuCounters { guest, host });
            self.threads.insert(key, [guest, host]);
        }
    }

    /// Whether counters of any thread are open.
    pub fn is_open(&self) -> bool {
        !self.threads.is_empty()
    }

    /// What is not counted, and why.
    pub fn gap(&self) -> Option<EngineError> {
        let (failure, threads) = &self.unopened;
        if let Some(e) = failure {
            return Some(refusal(e));
        }
        if *threads > 0 {
            return Some(EngineError {
                cause: format!("{threads} vCPUs are not counted: counters are open for {} others", self.max_threads),
                fix: format!("`ulimit -n 65536` where it is lower; at most {MAX_THREADS} vCPUs are counted"),
            });
        }
        let lacks = |of: fn(&Group) -> bool| self.threads.values().flatten().any(of);
        let lacking: Vec<_> = [
            ("instructions", lacks(|group| group.instructions.is_none())),
            ("reads that miss the last-level cache", lacks(|group| group.llc_misses.is_none())),
        ]
        .into_iter()
        .filter_map(|(event, is_lacking)| is_lacking.then_some(event))
        .collect();
        (!lacking.is_empty()).then(|| EngineError {
            cause: format!("this CPU, or its emulation, has no event for {}", lacking.join(" and ")),
            fix: "nothing to do; `perf list hw cache` shows the events that it has".into(),
        })
    }
}

fn refusal(error: &io::Error) -> EngineError {
    const WHAT: &str = "CPU cycles of vCPUs cannot be counted";
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV) => EngineError {
            cause: format!("{WHAT}: this host has no PMU, or the hypervisor below it gives it none"),
            fix: "`dmesg | grep -i pmu`; where the host is a guest itself, give it one (libvirt: <pmu state='on'/>)"
                .into(),
        },
        Some(libc::EACCES | libc::EPERM) => {
            EngineError { fix: "as root: kvmtop --engine-detail counters".into(), ..refused(WHAT, error, "") }
        }
        _ => refused(WHAT, error, "see dmesg; kvmtop goes on and tries again"),
    }
}

fn open(tid: i32) -> io::Result<[Group; 2]> {
    Ok([Group::open(tid, true)?, Group::open(tid, false)?])
}

/// Events that are counted together.
#[derive(Debug)]
struct Group {
    cycles: Counter,
    instructions: Option<Counter>,
    llc_misses: Option<Counter>,
}

impl Group {
    fn open(tid: i32, in_guest: bool) -> io::Result<Self> {
        let times = ReadFormat::TOTAL_TIME_ENABLED | ReadFormat::TOTAL_TIME_RUNNING;
        let mut cycles =
            of_thread(Hardware::CPU_CYCLES, tid, in_guest).read_format(ReadFormat::GROUP | times).build()?;
        let instructions = member(&of_thread(Hardware::INSTRUCTIONS, tid, in_guest), &mut cycles)?;
        let llc_misses = member(&of_thread(LLC_MISSES, tid, in_guest), &mut cycles)?;
        cycles.enable_group()?;
        Ok(Self { cycles, instructions, llc_misses })
    }

    fn read(&mut self) -> Option<PmuCounts> {
        let counts = self.cycles.read_group().ok()?;
        let of = |counter: &Counter| counts.get(counter).map(|entry| entry.value());
        let ns = |time: Option<Duration>| time.map_or(0, |time| time.as_nanos() as u64);
        Some(PmuCounts {
            cycles: of(&self.cycles),
            instructions: self.instructions.as_ref().and_then(of),
            llc_misses: self.llc_misses.as_ref().and_then(of),
            enabled_ns: ns(counts.time_enabled()),
            running_ns: ns(counts.time_running()),
        })
    }
}

/// Adds an event to a group; `None` if the CPU lacks it, and has the others all the same.
fn member(event: &Builder<'_>, group: &mut Counter) -> io::Result<Option<Counter>> {
    match event.build_with_group(group) {
        Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::EINVAL | libc::EOPNOTSUPP)) => Ok(None),
        built => built.map(Some),
    }
}

fn of_thread(event: impl Event, tid: i32, in_guest: bool) -> Builder<'static> {
    let mut builder = Builder::new(event);
    builder.observe_pid(tid).any_cpu().exclude_kernel(false).exclude_hv(false);
    builder.exclude_host(in_guest).exclude_guest(!in_guest);
    builder
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> ThreadSample {
        ThreadSample { tid: rustix::thread::gettid().as_raw_nonzero().get(), ..ThreadSample::default() }
    }

    /// With a PMU it counts this thread outside of guests; without one, or without the right, it says why.
    #[test]
    fn it_counts_or_says_why_not_and_a_thread_that_is_gone_is_passed_over() {
        let mut pmu = VcpuPmu::default();
        let before = pmu.gap().map(|why| why.cause);
        let mut threads = [ThreadSample { tid: i32::MAX, ..ThreadSample::default() }, own()];
        pmu.read(threads.iter_mut());
        let [gone, own] = threads;
        assert_eq!(gone.pmu, None);
        match own.pmu {
            Some(counts) => assert!(counts.host.cycles.is_some() && pmu.is_open()),
            None => assert!(pmu.gap().is_some_and(|why| why.cause.contains("CPU cycles")), "{pmu:?}"),
        }
        pmu.read([].into_iter());
        assert!(!pmu.is_open(), "closed with its guest");
        assert_eq!(pmu.gap().map(|why| why.cause), before);
    }

    #[test]
    fn threads_beyond_the_limit_are_said() {
        let mut pmu = VcpuPmu { max_threads: 0, ..VcpuPmu::default() };
        pmu.read([own(), own()].iter_mut());
        let gap = pmu.gap().unwrap();
        assert!(gap.cause.starts_with("2 vCPUs are not counted") && gap.fix.contains("ulimit"), "{gap:?}");
    }

    #[test]
    fn a_refusal_says_what_to_run() {
        for (error, cause, fix) in [
            (libc::ENOENT, "no PMU", "dmesg"),
            (libc::EMFILE, "too many open files", "ulimit -n"),
            (libc::EACCES, "CPU cycles of vCPUs cannot be counted: ", "--engine-detail counters"),
        ] {
            let said = refusal(&io::Error::from_raw_os_error(error));
            assert!(said.cause.contains(cause) && said.fix.contains(fix), "{said:?}");
        }
    }
}
