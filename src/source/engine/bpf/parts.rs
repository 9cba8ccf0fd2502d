//! Which programs there are, and how they get to work.

use super::decode::Parts;
use super::explain::{Refusal, Rights, Stage};
use super::object::Object;
use super::sys;
use crate::source::events::EngineError;
use std::os::fd::{AsFd, OwnedFd};

/// A program, the tracepoint it hangs on, and what it is good for.
#[derive(Debug)]
pub(super) struct Part {
    /// Its name in the object, and that of another for kernels whose tracepoint has fewer arguments.
    pub program: &'static str,
    old: &'static str,
    event: &'static str,
    /// Only where durations are taken.
    full: bool,
    /// What is missing without it; empty: nothing to speak of, or not an event of this architecture.
    without: &'static str,
}

const fn part(event: &'static str, full: bool, without: &'static str) -> Part {
    Part { program: event, old: "", event, full, without }
}

const fn x86(without: &'static str) -> &'static str {
    if cfg!(target_arch = "x86_64") { without } else { "" }
}

/// The one event that every KVM has.
const NEEDED: &str = "kvm_userspace_exit";

/// In the order in which they are attached: the end of threads first, so that none is missed; accesses last, so that the exits
/// around them are known.
pub(super) const PARTS: &[Part] = &[
    part("sched_process_exit", false, "threads that end are not noticed"),
    Part { old: "sched_switch_old", ..part("sched_switch", true, "migrations and waiting for a CPU are not seen") },
    part("hrtimer_expire_entry", true, "a wake-up by a timer is charged to the task that it interrupted"),
    part("hrtimer_expire_exit", true, ""),
    part("sched_waking", true, "wake-up latencies are not measured"),
    part("kvm_entry", true, "exits have no durations"),
    part("kvm_exit", false, "exits are not counted by reason"),
    part(NEEDED, false, "exits to user space are not counted"),
    part("kvm_vcpu_wakeup", true, "halts are not told from other exit time"),
    part("kvm_mmio", false, "accesses to device memory are not counted"),
    part("kvm_fast_mmio", false, ""),
    part("kvm_pio", false, x86("accesses to ports are not counted")),
    part("kvm_msr", false, x86("accesses to MSRs are not counted")),
];

/// Programs at work. Dropping it takes them out of the kernel.
#[derive(Debug, Default)]
pub(super) struct Attached {
    links: Vec<OwnedFd>,
    programs: Vec<OwnedFd>,
    /// Their tracepoints, in the same order.
    names: Vec<&'static str>,
    /// What is missing and why.
    pub gaps: Vec<EngineError>,
}

impl Attached {
    /// Loads all programs of a level, then attaches them, so that they begin within a moment of each other. `exit` is the
    /// number of `kvm_exit`, or why it cannot be had.
    ///
    /// # Errors
    /// When nothing would work.
    pub fn start(
        object: &Object,
        rights: &Rights,
        full: bool,
        exit: Result<u64, EngineError>,
    ) -> Result<Self, EngineError> {
        let mut attached = Self::default();
        let mut loaded = Vec::new();
        for part in PARTS.iter().filter(|p| full || !p.full) {
            if part.event == "kvm_exit"
                && let Err(error) = &exit
            {
                attached.gap(part, error.clone());
                continue;
            }
            match object.load(part.program) {
                Ok(program) => loaded.push((part, program)),
                Err(refusal) => attached.refused(part, rights, &refusal)?,
            }
        }
        let exit = exit.unwrap_or_default();
        for (part, program) in loaded {
            if let Err(refusal) = attached.attach(object, part, program, exit) {
                attached.refused(part, rights, &refusal)?;
            }
        }
        Ok(attached)
    }

    fn attach(&mut self, object: &Object, part: &Part, program: OwnedFd, exit: u64) -> Result<(), Refusal> {
        let hang = |program: &OwnedFd| {
            let link = match part.event {
                "kvm_exit" => sys::attach_tracepoint(program.as_fd(), exit),
                event => sys::attach_raw(program.as_fd(), event),
            };
            link.map_err(|e| Refusal::new(Stage::Attach, part.event, e))
        };
        let (link, program) = match hang(&program) {
            Ok(link) => (link, program),
            Err(e) if part.old.is_empty() || e.error.raw_os_error() != Some(libc::EINVAL) => return Err(e),
            Err(_) => {
                let program = object.load(part.old)?;
                (hang(&program)?, program)
            }
        };
        self.links.push(link);
        self.programs.push(program);
        self.names.push(part.event);
        Ok(())
    }

    fn refused(&mut self, part: &Part, rights: &Rights, refusal: &Refusal) -> Result<(), EngineError> {
        let absent = refusal.stage == Stage::Attach && refusal.error.raw_os_error() == Some(libc::ENOENT);
        if part.event == NEEDED && absent {
            return Err(EngineError {
                cause: format!("this kernel has no tracepoint {NEEDED}: the kvm module is not loaded"),
                fix: "modprobe kvm_intel (or kvm_amd)".into(),
            });
        }
        let error = rights.explain(refusal);
        if part.event == NEEDED || refusal.is_for_all() {
            return Err(error);
        }
        self.gap(part, error);
        Ok(())
    }

    fn gap(&mut self, part: &Part, error: EngineError) {
        if !part.without.is_empty() {
            self.gaps.push(EngineError { cause: format!("{}: {}", part.without, error.cause), fix: error.fix });
        }
    }

    /// Nanoseconds that the kernel measured in all of them, and kvm events for which they did not run.
    pub fn stats(&self) -> sys::ProgramStats {
        let mut sum = sys::ProgramStats::default();
        for (program, event) in self.programs.iter().zip(&self.names) {
            let stats = sys::program_stats(program.as_fd()).unwrap_or_default();
            sum.run_ns += stats.run_ns;
            // Scheduler events run inside each other now and then, most of them of threads that run no guest.
            sum.misses += if event.starts_with("kvm_") { stats.misses } else { 0 };
        }
        sum
    }

    /// What the programs at work can tell.
    pub fn parts(&self) -> Parts {
        let has = |event| self.names.contains(&event);
        Parts {
            timed: has("kvm_entry"),
            userspace: has(NEEDED),
            halts: has("kvm_vcpu_wakeup"),
            switches: has("sched_switch"),
            wakings: has("sched_waking"),
        }
    }
}
