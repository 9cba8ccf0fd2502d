//! The list of programs, and how they are loaded and attached.

use super::attached::Attached;
use super::decode::Measured;
use super::object::Object;
use super::refusal::{Refusal, Stage};
use crate::events::{EngineError, LOAD_KVM};

/// The programs for one tracepoint, of which one is attached.
#[derive(Debug)]
pub(super) struct ProgramSpec {
    /// Their names in the object, in the order in which they are tried.
    pub programs: &'static [&'static str],
    event: &'static str,
    /// What is missing without the event; empty: nothing worth a message, or this architecture
    /// lacks it.
    without: &'static str,
}

/// What is missing without an event that only x86 has.
const fn x86(without: &'static str) -> &'static str {
    if cfg!(target_arch = "x86_64") {
        without
    } else {
        ""
    }
}

/// The programs of `kvm_exit` as a raw tracepoint. Newer kernels refuse the first, because it reads
/// more arguments than they pass. No kernel refuses the second, but on an older one it would take
/// something else for the reason: so it is tried last.
pub(super) const RAW_EXIT: [&str; 2] = ["kvm_exit_raw_old", "kvm_exit_raw"];

/// The event of an exit. Its program as a classic tracepoint has the same name.
const EXIT_EVENT: &str = "kvm_exit";

/// The one event that every KVM has.
const NEEDED_EVENT: &str = "kvm_userspace_exit";

macro_rules! spec {
    ($event:literal, $without:expr $(, $older:literal)*) => {
        ProgramSpec { programs: &[$event $(, $older)*], event: $event, without: $without }
    };
}

/// In the order in which they are attached: the end of threads first, so that none is missed;
/// accesses last, so that the exits around them are known.
pub(super) const PROGRAMS: &[ProgramSpec] = &[
    spec!("sched_process_exit", "threads that end are not noticed"),
    spec!(
        "sched_switch",
        "migrations and waiting for a CPU are not seen",
        "sched_switch_old"
    ),
    spec!(
        "hrtimer_expire_entry",
        "a wake-up by a timer is charged to the task that it interrupted"
    ),
    spec!("hrtimer_expire_exit", ""),
    spec!("sched_waking", "wake-up latencies are not measured"),
    spec!("kvm_entry", "exits have no durations"),
    spec!("kvm_exit", "exits are not counted by reason"),
    spec!("kvm_userspace_exit", "exits to user space are not counted"),
    spec!(
        "kvm_vcpu_wakeup",
        "halted time is not separated from other exit time"
    ),
    spec!("kvm_mmio", "accesses to device memory are not counted"),
    spec!("kvm_fast_mmio", ""),
    spec!("kvm_pio", x86("accesses to ports are not counted")),
    spec!("kvm_msr", x86("accesses to MSRs are not counted")),
];

/// The attached programs.
#[derive(Debug, Default)]
pub(super) struct Programs {
    pub attached: Attached,
    /// What is missing and why.
    pub gaps: Vec<EngineError>,
}

impl Programs {
    /// Loads and attaches the programs. `exit`: the number of `kvm_exit` as a classic tracepoint,
    /// or why it is not available. `raw_exit`: as a raw tracepoint it does as well, since it is
    /// known where the reason is.
    ///
    /// # Errors
    /// When no program would work.
    pub fn start(
        object: &Object,
        exit: Result<u64, &EngineError>,
        raw_exit: bool,
    ) -> Result<Self, EngineError> {
        let mut programs = Self::default();
        for spec in PROGRAMS {
            let attached = &mut programs.attached;
            let outcome = if spec.event == EXIT_EVENT {
                match exit {
                    Ok(id) => attach_exit(attached, object, id, raw_exit),
                    Err(error) => {
                        programs.gap(spec, error.clone());
                        continue;
                    }
                }
            } else {
                attached.attach_raw(object, spec.event, spec.programs)
            };
            if let Err(refusal) = outcome {
                programs.refused(spec, refusal)?;
            }
        }
        Ok(programs)
    }

    /// Notes what is missing without these programs; an error where nothing works without them.
    fn refused(&mut self, spec: &ProgramSpec, refusal: Refusal) -> Result<(), EngineError> {
        let absent =
            refusal.stage == Stage::Attach && refusal.error.raw_os_error() == Some(libc::ENOENT);
        if spec.event == NEEDED_EVENT && absent {
            return Err(EngineError::new(
                format!(
                    "this kernel has no tracepoint {NEEDED_EVENT}: the kvm module is not loaded"
                ),
                LOAD_KVM,
            ));
        }
        let is_fatal = spec.event == NEEDED_EVENT || refusal.is_for_all();
        let error = refusal.into();
        if is_fatal {
            return Err(error);
        }
        self.gap(spec, error);
        Ok(())
    }

    fn gap(&mut self, spec: &ProgramSpec, error: EngineError) {
        if !spec.without.is_empty() {
            let cause = format!("{}: {}", spec.without, error.cause);
            self.gaps.push(EngineError::new(cause, error.fix));
        }
    }

    /// What the attached programs measure.
    pub fn measured(&self) -> Measured {
        let attached = &self.attached;
        Measured {
            timed: attached.has("kvm_entry"),
            userspace: attached.has(NEEDED_EVENT),
            halts: attached.has("kvm_vcpu_wakeup"),
            switches: attached.has("sched_switch"),
            wakings: attached.has("sched_waking"),
        }
    }
}

/// Attaches a program to `kvm_exit`, as a raw tracepoint if that does.
fn attach_exit(
    attached: &mut Attached,
    object: &Object,
    id: u64,
    raw_exit: bool,
) -> Result<(), Refusal> {
    if raw_exit && attached.attach_raw(object, EXIT_EVENT, &RAW_EXIT).is_ok() {
        return Ok(());
    }
    attached.attach_classic(EXIT_EVENT, object.load(EXIT_EVENT)?, id)
}
