//! The thread that empties the rings.
#![allow(unsafe_code, reason = "borrows the rings' descriptors for poll(2)")]

use super::rings::{self, OnlineCpu, Ring, Wanted};
use super::time_order::TimeOrder;
use crate::events::{EngineError, Reading, ThreadKey};
use crate::monotonic_ns;
use crate::pairing::{EventDecoder, Pairing};
use rights::{for_rings, keep};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The longest time that events wait in a ring that stays less than half full.
const POLL_TIMEOUT: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000_000,
};

/// The reader's nice value. It needs little CPU time, but soon: on a busy host the rings would
/// overflow while it waits.
const NICE_VALUE: i32 = -15;

/// The most scheduler events a second of threads named like vCPUs; beyond it they are disabled.
const MAX_SWITCHES: u64 = 50_000;
/// How often the CPUs that are online are looked at, nanoseconds.
const CPUS_EVERY_NS: u64 = 200_000_000;
/// The most tasks that woke a vCPU whose names are remembered.
const MAX_NAMES: usize = 4096;

#[derive(Default)]
struct State {
    rings: Vec<Ring>,
    wanted: Vec<Wanted>,
    /// When [`State::follow_cpus`] last looked which CPUs are online.
    cpus_looked_at: u64,
    /// Events lost by rings that are closed, since their CPUs went offline.
    lost_by_closed_rings: u64,
    /// A CPU that was not watched for a moment, since the last reading.
    unwatched_cpu: Option<EngineError>,
    /// A CPU that was not watched in the interval that ended with the last reading.
    unwatched_in_interval: Option<EngineError>,
    decoder: EventDecoder,
    merge: TimeOrder,
    pairing: Pairing,
    /// The scheduler's events of the current second.
    switches: u64,
    /// When the current second began.
    switches_since: u64,
    /// Whether the scheduler's events were too many and are disabled.
    silenced: bool,
    /// Names of tasks that woke a vCPU, by thread id.
    names: HashMap<i32, String>,
}

/// Rings that a thread empties into a [`Pairing`] as long as this value lives. The thread holds the
/// state as well, except for a moment between two passes. So mostly the thread drops the state and
/// closes the events, which takes the kernel milliseconds for each.
pub(super) struct Watcher(Arc<Mutex<State>>);

impl Watcher {
    /// Opens the events and starts the thread.
    pub fn start(
        wanted: Vec<Wanted>,
        decoder: EventDecoder,
        pairing: Pairing,
    ) -> Result<Self, EngineError> {
        let began = monotonic_ns();
        let mut rings = rings::open(&online(), &wanted)?;
        rings
            .iter_mut()
            .try_for_each(Ring::enable)
            .map_err(|e| cannot_start(&e))?;
        let state = Arc::new(Mutex::new(State {
            rings,
            wanted,
            cpus_looked_at: began,
            decoder,
            pairing,
            switches_since: began,
            ..State::default()
        }));
        let watched = Arc::downgrade(&state);
        std::thread::Builder::new()
            .name("kvmtop/rings".into())
            .spawn(move || watch(&watched))
            .map_err(|e| cannot_start(&e))?;
        Ok(Self(state))
    }

    /// All that was counted up to now.
    pub fn read(&self) -> Reading {
        let mut state = lock(&self.0);
        let horizon = state.pass();
        state.unwatched_in_interval = state.unwatched_cpu.take();
        let mut threads = state.pairing.snapshot();
        for thread in &mut threads {
            for waker in &mut thread.events.woken_by {
                waker.comm = state.name_of(waker.tid);
            }
        }
        let lost_by_rings: u64 = state.rings.iter().map(Ring::lost).sum();
        let pairing = &state.pairing;
        Reading {
            mono_ns: Some(horizon),
            threads,
            lost: lost_by_rings + state.lost_by_closed_rings,
            overflow: pairing.overflow,
            fires_kvm_exit: pairing.fires_kvm_exit(),
            events: pairing.events,
            ..Reading::default()
        }
    }

    /// What is not watched: CPUs that came online, or the scheduler's events.
    pub fn gap(&self) -> Option<EngineError> {
        let state = lock(&self.0);
        if state.unwatched_in_interval.is_some() || !state.silenced {
            return state.unwatched_in_interval.clone();
        }
        let cause = format!(
            "more than {MAX_SWITCHES} task switches of vCPUs a second: wake-ups and preemptions \
                are not watched"
        );
        let fix = "use --engine bpf, which adds them up in the kernel";
        Some(EngineError::new(cause, fix))
    }

    /// Frees the cells of threads that are gone.
    pub fn forget(&self, threads: &[ThreadKey]) {
        lock(&self.0).pairing.forget(threads);
    }
}

/// Empties the rings until their [`Watcher`] is gone.
fn watch(watched: &Weak<Mutex<State>>) {
    // Without privileges this fails: the rings then have to hold what comes while the thread waits.
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE_VALUE);
    let _ = keep(for_rings());
    while let Some(state) = watched.upgrade() {
        let fds: Vec<_> = lock(&state).rings.iter().map(Ring::fd).collect();
        // SAFETY: the descriptors belong to the rings, which `state` keeps open; rings are closed
        // by this thread alone, below.
        let borrowed = fds.iter().map(|fd| unsafe { BorrowedFd::borrow_raw(*fd) });
        let mut polled: Vec<_> = borrowed
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        // Where the call is interrupted or fails, a pass too early does no harm.
        let _ = poll(&mut polled, Some(&POLL_TIMEOUT));
        let mut state = lock(&state);
        state.pass();
        state.follow_cpus();
    }
}

fn cannot_start(error: &std::io::Error) -> EngineError {
    EngineError::new(
        format!("cannot start the reader of the perf rings: {error}"),
        "use --engine none to go on without exits",
    )
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    /// Takes the events out of the rings; returns the time up to which it has all events.
    fn pass(&mut self) -> u64 {
        let horizon = monotonic_ns();
        for ring in &mut self.rings {
            ring.drain(horizon, &self.decoder, &mut self.merge);
        }
        if horizon.saturating_sub(self.switches_since) > 1_000_000_000 {
            self.switches = 0;
            self.switches_since = horizon;
        }
        self.switches += self.merge.take_switches();
        self.merge.flush(horizon, &mut self.pairing);
        if !self.silenced && self.switches > MAX_SWITCHES {
            self.silenced = true;
            self.rings.iter_mut().for_each(Ring::silence_scheduler);
        }
        for tid in std::mem::take(&mut self.pairing.new) {
            self.pairing.name(tid, &comm(tid));
        }
        horizon
    }

    /// Opens rings for CPUs that came online and closes the rings of offline CPUs after their last
    /// events were taken out. Only the thread that polls the rings may call this.
    fn follow_cpus(&mut self) {
        let last_look = self.cpus_looked_at;
        let now = monotonic_ns();
        if now.saturating_sub(last_look) < CPUS_EVERY_NS {
            return;
        }
        let online = online();
        // The list cannot be read for a moment: the next look will find what has changed.
        if online.is_empty() {
            return;
        }
        self.cpus_looked_at = now;
        for ended in self
            .rings
            .extract_if(.., |ring| !online.contains(&ring.cpu))
        {
            self.lost_by_closed_rings += ended.lost();
        }
        for cpu in online {
            if self.rings.iter().any(|ring| ring.cpu == cpu) {
                continue;
            }
            match rings::join(cpu, &self.wanted, self.rings.first()) {
                Ok(mut ring) => {
                    if self.silenced {
                        ring.silence_scheduler();
                    }
                    self.rings.push(ring);
                    let cause = format!(
                        "CPU {} came online: what guests did there until kvmtop watched it is not \
                            counted",
                        cpu.number
                    );
                    let fix = "nothing to do: it is watched now";
                    self.unwatched_cpu
                        .get_or_insert(EngineError::new(cause, fix));
                }
                Err(why) => self.unwatched_cpu = Some(why),
            }
            self.merge.gap(last_look, monotonic_ns());
        }
    }

    /// The name of a task that woke a vCPU. The event does not have it, so it is read from /proc
    /// once.
    fn name_of(&mut self, tid: i32) -> String {
        if tid == 0 {
            return "interrupt".into();
        }
        if self.names.len() >= MAX_NAMES {
            self.names.clear();
        }
        self.names
            .entry(tid)
            .or_insert_with(|| kvm::sanitize(&comm(tid), 15))
            .clone()
    }
}

/// The CPUs that are online.
fn online() -> Vec<OnlineCpu> {
    OnlineCpu::all_below(Path::new("/sys/devices/system/cpu"))
}

/// A thread's name; empty when it has ended.
fn comm(tid: i32) -> String {
    std::fs::read(format!("/proc/{tid}/comm"))
        .map(|name| String::from_utf8_lossy(name.trim_ascii_end()).into_owned())
        .unwrap_or_default()
}
