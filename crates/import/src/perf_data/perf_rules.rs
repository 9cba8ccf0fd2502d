//! Decides which events count, as perf does: `perf kvm stat report` of the same file must show the same counts.
//!
//! perf keeps one open event for each thread and table (tools/perf/builtin-kvm.c, `handle_begin_event` and
//! `handle_end_event`; tools/perf/arch/x86/util/kvm-stat.c). It drops what a thread did before its first `kvm_entry`. A
//! port or MSR access begins an event and the next entry ends it, so of several accesses in one exit the last one
//! counts. A write to memory does the same. A read of memory ends what the exit, or a write, began.
//!
//! Unlike perf, the pairing counts no exit that overlaps lost events, unless perf's times are requested.

use engine::pairing::{EventKind, TracedAccess, TracedEvent};
use kvm::Space;
use sample::Direction;

/// An access that perf counts, with the time that perf gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CountedAccess {
    /// The access.
    pub access: TracedAccess,
    /// When it happened, nanoseconds.
    pub seen: u64,
    /// perf's time for it, nanoseconds.
    pub ns: u64,
}

/// What an event causes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// The event itself counts.
    Event,
    /// An access counts.
    Count(CountedAccess),
    /// Nothing counts yet, but the kernel, not the VMM, works for the event's thread.
    InKernel,
}

/// The events that perf holds open for one thread.
#[derive(Debug, Default)]
pub(super) struct PerfThread {
    /// Whether it entered its guest before.
    entered: bool,
    port: Option<(u64, TracedAccess)>,
    msr: Option<(u64, TracedAccess)>,
    /// Begin of the memory event: the time of the exit or of a write; 0 for none.
    memory_since: u64,
    memory: Option<(u64, TracedAccess)>,
    /// Accesses that perf does not count because of another one in the same exit.
    pub uncounted: u64,
}

impl PerfThread {
    /// Calls `step` for everything that this event causes, in order.
    pub fn event(&mut self, event: &TracedEvent, mut step: impl FnMut(Step)) {
        match event.kind {
            EventKind::Exit { .. } | EventKind::Access(_) if !self.entered => {}
            EventKind::Entry { .. } if !self.entered => {
                self.entered = true;
                step(Step::Event);
            }
            EventKind::Entry { .. } => {
                // Accesses count only now, so that the VMM's work after a write belongs to it.
                step(Step::InKernel);
                self.entry(event, |counted| step(Step::Count(counted)));
                step(Step::Event);
            }
            EventKind::Exit { .. } => {
                (self.memory_since, self.memory) = (event.time, None);
                step(Step::Event);
            }
            EventKind::Access(access) => {
                step(Step::InKernel);
                let own = self.access(event, access, |counted| step(Step::Count(counted)));
                self.uncounted += u64::from(!own);
            }
            _ => step(Step::Event),
        }
    }

    fn entry(&mut self, event: &TracedEvent, mut count: impl FnMut(CountedAccess)) {
        let memory = self.memory.take();
        if memory.is_some() {
            self.memory_since = 0;
        }
        for (seen, access) in self.port.take().into_iter().chain(self.msr.take()).chain(memory) {
            if let Some(ns) = event.time.checked_sub(seen) {
                count(CountedAccess { access, seen, ns });
            }
        }
    }

    /// Returns false if it replaces another access, or if no event is open for it.
    fn access(&mut self, event: &TracedEvent, access: TracedAccess, mut count: impl FnMut(CountedAccess)) -> bool {
        let now = Some((event.time, access));
        match (access.space, access.direction) {
            (Space::Pio, _) => std::mem::replace(&mut self.port, now).is_none(),
            (Space::Msr, _) => std::mem::replace(&mut self.msr, now).is_none(),
            (Space::Mmio, Direction::Write) => {
                self.memory_since = event.time;
                std::mem::replace(&mut self.memory, now).is_none()
            }
            (Space::Mmio, Direction::Read) => {
                if self.memory_since == 0 {
                    return false;
                }
                let since = std::mem::take(&mut self.memory_since);
                // perf takes a read after a write in the same exit for the end of the write.
                let (access, own) = self.memory.take().map_or((access, true), |(_, write)| (write, false));
                if let Some(ns) = event.time.checked_sub(since) {
                    count(CountedAccess { access, seen: event.time, ns });
                }
                own
            }
        }
    }
}
