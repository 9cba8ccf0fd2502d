//! The thread that empties the rings.

use super::super::{EngineError, Reading};
use super::merge::Merge;
use super::rings::{self, Ring};
use crate::source::pairing::{Decoder, Pairing};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// How long events wait at most in a ring that stays less than half full.
const PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// `CLOCK_MONOTONIC`, the clock of the rings, nanoseconds.
pub(super) fn now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

struct State {
    rings: Vec<Ring>,
    decoder: Decoder,
    merge: Merge,
    pairing: Pairing,
}

struct Shared {
    state: Mutex<State>,
    stop: AtomicBool,
}

/// Rings that are being emptied into a [`Pairing`]; all ends with this value.
pub(super) struct Watcher {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Watcher {
    /// Opens the events and begins.
    pub fn start(ids: &[u64], decoder: Decoder, pairing: Pairing) -> Result<Self, EngineError> {
        let mut rings = rings::open(ids)?;
        let fds: Vec<_> = rings.iter().map(Ring::fd).collect();
        let failed = |e: std::io::Error| EngineError {
            cause: format!("cannot begin to watch the perf rings: {e}"),
            fix: "use --engine none to go on without exits".into(),
        };
        rings.iter_mut().try_for_each(Ring::enable).map_err(failed)?;
        let state = Mutex::new(State { rings, decoder, merge: Merge::default(), pairing });
        let shared = Arc::new(Shared { state, stop: AtomicBool::new(false) });
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("perf-rings".into())
            .spawn(move || {
                while !theirs.stop.load(Ordering::Relaxed) {
                    // SAFETY: the descriptors belong to the rings, which `theirs` keeps open.
                    let borrowed = fds.iter().map(|fd| unsafe { BorrowedFd::borrow_raw(*fd) });
                    let mut polled: Vec<_> = borrowed.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
                    // Interrupted or failed: a pass too many does no harm.
                    let _ = poll(&mut polled, Some(&PATIENCE));
                    theirs.lock().pass();
                }
            })
            .map_err(failed)?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// All that was counted up to now.
    pub fn read(&self) -> Reading {
        let mut state = self.shared.lock();
        state.pass();
        let State { rings, pairing, .. } = &mut *state;
        Reading {
            threads: pairing.snapshot(),
            lost: rings.iter().map(Ring::lost).sum(),
            overflow: pairing.overflow(),
            fires_kvm_exit: pairing.fires_kvm_exit(),
            events: pairing.events(),
            ..Reading::default()
        }
    }

    /// Frees the cells of threads that are gone.
    pub fn forget(&self, tids: &[i32]) {
        self.shared.lock().pairing.forget(tids);
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Takes what is in the rings.
    fn pass(&mut self) {
        let horizon = now();
        for ring in &mut self.rings {
            ring.drain(horizon, &self.decoder, &mut self.merge);
        }
        self.merge.flush(horizon, &mut self.pairing);
        for tid in self.pairing.take_new() {
            // A thread that is gone already stays without a name.
            if let Ok(comm) = std::fs::read_to_string(format!("/proc/{tid}/comm")) {
                self.pairing.name(tid, comm.trim_end());
            }
        }
    }
}
