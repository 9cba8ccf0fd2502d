//! The thread that empties the rings.
#![allow(unsafe_code, reason = "borrows the rings' descriptors for poll(2)")]

use super::rings::{self, Ring, Wanted};
use super::time_order::TimeOrder;
use crate::kvm::topology::HostTopology;
use crate::source::engine::monotonic_ns;
use crate::source::events::{EngineError, Reading, ThreadKey};
use crate::source::pairing::{EventDecoder, Pairing};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The longest time that events wait in a ring that stays less than half full.
const PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// The reader's nice value. It needs little CPU time, but soon: on a busy host the rings would overflow while it waits.
const PRIORITY: i32 = -15;

/// The most scheduler events a second of threads named like vCPUs; beyond it they are disabled.
const MOST_SWITCHES: u64 = 50_000;
/// The most names kept of tasks that woke a vCPU.
const MAX_NAMES: usize = 4096;

struct State {
    rings: Vec<Ring>,
    decoder: EventDecoder,
    merge: TimeOrder,
    pairing: Pairing,
    scheduler: Budget,
    names: HashMap<i32, String>,
}

/// Limits how often something happens.
#[derive(Default)]
struct Budget {
    since: u64,
    count: u64,
    spent: bool,
}

impl Budget {
    /// Adds events; true when they have just exceeded the limit of one second.
    fn spend(&mut self, now: u64, count: u64) -> bool {
        if now.saturating_sub(self.since) > 1_000_000_000 {
            (self.since, self.count) = (now, 0);
        }
        self.count += count;
        let spent = !self.spent && self.count > MOST_SWITCHES;
        self.spent |= spent;
        spent
    }
}

struct WatcherShared {
    state: Mutex<State>,
    stop: AtomicBool,
}

/// Rings that a thread empties into a [`Pairing`] as long as this value lives.
pub(super) struct Watcher {
    shared: Arc<WatcherShared>,
}

impl Watcher {
    /// Opens the events and starts the thread.
    pub fn start(wanted: &[Wanted], decoder: EventDecoder, pairing: Pairing) -> Result<Self, EngineError> {
        let mut rings = rings::open(wanted)?;
        let fds: Vec<_> = rings.iter().map(Ring::fd).collect();
        let failed = |e: std::io::Error| EngineError {
            cause: format!("cannot start the reader of the perf rings: {e}"),
            fix: "use --engine none to go on without exits".into(),
        };
        rings.iter_mut().try_for_each(Ring::enable).map_err(failed)?;
        let state = Mutex::new(State {
            rings,
            decoder,
            merge: TimeOrder::default(),
            pairing,
            scheduler: Budget::default(),
            names: HashMap::new(),
        });
        let shared = Arc::new(WatcherShared { state, stop: AtomicBool::new(false) });
        let theirs = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("perf-rings".into())
            .spawn(move || {
                // Fails without privileges; the rings' size then has to suffice.
                let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), PRIORITY);
                while !theirs.stop.load(Ordering::Relaxed) {
                    // SAFETY: the descriptors belong to the rings, which `theirs` keeps open.
                    let borrowed = fds.iter().map(|fd| unsafe { BorrowedFd::borrow_raw(*fd) });
                    let mut polled: Vec<_> = borrowed.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
                    // If interrupted or failed, one pass more does no harm.
                    let _ = poll(&mut polled, Some(&PATIENCE));
                    theirs.lock().pass();
                }
            })
            .map_err(failed)?;
        Ok(Self { shared })
    }

    /// All that was counted up to now.
    pub fn read(&self) -> Reading {
        let mut state = self.shared.lock();
        let horizon = state.pass();
        let mut threads = state.pairing.snapshot();
        for waker in threads.iter_mut().flat_map(|thread| &mut thread.events.woken_by) {
            waker.comm = state.name_of(waker.tid);
        }
        let State { rings, pairing, .. } = &*state;
        Reading {
            mono_ns: Some(horizon),
            threads,
            lost: rings.iter().map(Ring::lost).sum(),
            overflow: pairing.overflow(),
            fires_kvm_exit: pairing.fires_kvm_exit(),
            events: pairing.events(),
            ..Reading::default()
        }
    }

    /// The scheduler events that are not watched, if any.
    pub fn gap(&self) -> Option<EngineError> {
        let state = self.shared.lock();
        if !state.rings.iter().any(Ring::has_scheduler) {
            return None;
        }
        let fix = "use --engine bpf, which adds them up in the kernel".into();
        if state.scheduler.spent {
            let cause = format!(
                "more than {MOST_SWITCHES} task switches of vCPUs a second: wake-ups and preemptions are not watched"
            );
            return Some(EngineError { cause, fix });
        }
        let unlike = state.pairing.names().filter(|name| !name.is_empty() && !rings::passes(name)).count();
        let cause =
            format!("{unlike} vCPU threads are not named as such: their wake-ups and preemptions are not watched");
        (unlike > 0).then_some(EngineError { cause, fix })
    }

    /// Frees the cells of threads that are gone.
    pub fn forget(&self, threads: &[ThreadKey]) {
        self.shared.lock().pairing.forget(threads);
    }

    /// CPUs went online or offline.
    pub fn set_topology(&self, topology: &HostTopology) {
        self.shared.lock().pairing.set_topology(topology);
    }
}

impl Drop for Watcher {
    /// The thread closes the events when it ends, within [`PATIENCE`]: closing a tracepoint takes the kernel
    /// milliseconds.
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
    }
}

impl WatcherShared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Takes the events out of the rings; returns the time up to which it has all of them.
    fn pass(&mut self) -> u64 {
        let horizon = monotonic_ns();
        for ring in &mut self.rings {
            ring.drain(horizon, &self.decoder, &mut self.merge);
        }
        let switches = self.merge.switches();
        self.merge.flush(horizon, &mut self.pairing);
        if self.scheduler.spend(horizon, switches) {
            self.rings.iter_mut().for_each(Ring::silence_scheduler);
        }
        for tid in self.pairing.take_new() {
            self.pairing.name(tid, &comm(tid));
        }
        horizon
    }

    /// The name of a task that woke a vCPU. The event does not have it, so it is read from /proc once.
    fn name_of(&mut self, tid: i32) -> String {
        if tid == 0 {
            return "interrupt".into();
        }
        if self.names.len() >= MAX_NAMES {
            self.names.clear();
        }
        self.names.entry(tid).or_insert_with(|| crate::kvm::sanitize(&comm(tid), 15)).clone()
    }
}

/// A thread's name; empty when it has ended.
fn comm(tid: i32) -> String {
    std::fs::read(format!("/proc/{tid}/comm"))
        .map(|name| String::from_utf8_lossy(name.trim_ascii_end()).into_owned())
        .unwrap_or_default()
}
