//! Which events perf counts: `perf kvm stat report` of the same file must show the same counts.
//!
//! perf keeps, per thread, one open event for each of its tables (tools/perf/builtin-kvm.c, `handle_begin_event` and
//! `handle_end_event`; tools/perf/arch/x86/util/kvm-stat.c). A thread is known from its first `kvm_entry` on; what it did before is
//! dropped. A port or MSR access begins an event and the next entry ends it, so that of several in one exit the last one counts.
//! A write to memory does the same; a read ends what the exit, or a write, began.
//!
//! Unlike perf, the pairing behind this counts no exit that overlaps lost events, unless perf's times are asked for.

use crate::kvm::Space;
use crate::sample::Direction;
use crate::source::pairing::{Access, Event, Kind};

/// An access that perf counts, and the time that perf gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counted {
    /// The access.
    pub access: Access,
    /// When it was seen.
    pub seen: u64,
    /// perf's time for it, nanoseconds.
    pub ns: u64,
}

/// What is to be done because of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// The event itself counts.
    Event,
    /// An access counts.
    Count(Counted),
    /// The kernel is at work on the event's thread, and nothing is to be counted yet.
    InKernel,
}

/// What perf holds open on a thread.
#[derive(Debug, Default)]
pub(super) struct Thread {
    /// It entered its guest before.
    entered: bool,
    port: Option<(u64, Access)>,
    msr: Option<(u64, Access)>,
    /// Begin of the memory event: the exit, or a write; 0 for none.
    memory_since: u64,
    memory: Option<(u64, Access)>,
    /// Accesses within exits that perf counts once.
    pub uncounted: u64,
}

impl Thread {
    /// What is to be done because of this event, in order.
    pub fn event(&mut self, event: &Event, mut step: impl FnMut(Step)) {
        match event.kind {
            Kind::Exit { .. } | Kind::Access(_) if !self.entered => {}
            Kind::Entry { .. } if !self.entered => {
                self.entered = true;
                step(Step::Event);
            }
            Kind::Entry { .. } => {
                // The accesses are counted only now: what the VMM did after a write is its part all the same.
                step(Step::InKernel);
                self.entry(event, |counted| step(Step::Count(counted)));
                step(Step::Event);
            }
            Kind::Exit { .. } => {
                (self.memory_since, self.memory) = (event.time, None);
                step(Step::Event);
            }
            Kind::Access(access) => {
                step(Step::InKernel);
                let own = self.access(event, access, |counted| step(Step::Count(counted)));
                self.uncounted += u64::from(!own);
            }
            _ => step(Step::Event),
        }
    }

    fn entry(&mut self, event: &Event, mut count: impl FnMut(Counted)) {
        let memory = self.memory.take();
        if memory.is_some() {
            self.memory_since = 0;
        }
        for (seen, access) in self.port.take().into_iter().chain(self.msr.take()).chain(memory) {
            if let Some(ns) = event.time.checked_sub(seen) {
                count(Counted { access, seen, ns });
            }
        }
    }

    /// False where it takes another access's place, or finds none.
    fn access(&mut self, event: &Event, access: Access, mut count: impl FnMut(Counted)) -> bool {
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
                // After a write of the same exit, perf takes the read for its end.
                let (access, own) = self.memory.take().map_or((access, true), |(_, write)| (write, false));
                if let Some(ns) = event.time.checked_sub(since) {
                    count(Counted { access, seen: event.time, ns });
                }
                own
            }
        }
    }
}
