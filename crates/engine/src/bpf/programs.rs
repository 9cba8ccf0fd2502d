//! The list of programs, and how they are loaded and attached.

use super::decode::Measured;
use super::object::Object;
use super::refusal::{Refusal, Rights, Stage};
use super::sys;
use crate::events::EngineError;
use std::os::fd::{AsFd, OwnedFd};

/// A program, its tracepoint, and what is unknown without it.
#[derive(Debug)]
pub(super) struct ProgramSpec {
    /// Its name in the object.
    pub program: &'static str,
    /// The program for kernels whose tracepoint has fewer arguments; empty: none.
    old: &'static str,
    event: &'static str,
    /// Only at [`EngineLevel::Full`].
    full: bool,
    /// What is missing without it; empty: nothing worth a message, or this architecture has no such event.
    without: &'static str,
}

const fn spec(event: &'static str, full: bool, without: &'static str) -> ProgramSpec {
    ProgramSpec { program: event, old: "", event, full, without }
}

const fn x86(without: &'static str) -> &'static str {
    if cfg!(target_arch = "x86_64") { without } else { "" }
}

/// How `kvm_exit` can be had.
#[derive(Debug, Clone, Copy)]
pub(super) struct ExitEvent {
    /// Its number as a classic tracepoint.
    pub id: u64,
    /// Whether it is known where the reason is, so that a raw one does.
    pub raw: bool,
}

/// The programs of a raw `kvm_exit`. The second would hang on the older tracepoint as well, and take something else for
/// the reason: it is only for kernels that refuse the first, which reads more arguments than they have.
pub(super) const RAW_EXIT: [&str; 2] = ["kvm_exit_raw_old", "kvm_exit_raw"];

/// The one event that every KVM has.
const NEEDED: &str = "kvm_userspace_exit";

/// In the order in which they are attached: the end of threads first, so that none is missed; accesses last, so that
/// the exits around them are known.
pub(super) const PROGRAMS: &[ProgramSpec] = &[
    spec("sched_process_exit", false, "threads that end are not noticed"),
    ProgramSpec {
        old: "sched_switch_old",
        ..spec("sched_switch", true, "migrations and waiting for a CPU are not seen")
    },
    spec("hrtimer_expire_entry", true, "a wake-up by a timer is charged to the task that it interrupted"),
    spec("hrtimer_expire_exit", true, ""),
    spec("sched_waking", true, "wake-up latencies are not measured"),
    spec("kvm_entry", true, "exits have no durations"),
    spec("kvm_exit", false, "exits are not counted by reason"),
    spec(NEEDED, false, "exits to user space are not counted"),
    spec("kvm_vcpu_wakeup", true, "halted time is not separated from other exit time"),
    spec("kvm_mmio", false, "accesses to device memory are not counted"),
    spec("kvm_fast_mmio", false, ""),
    spec("kvm_pio", false, x86("accesses to ports are not counted")),
    spec("kvm_msr", false, x86("accesses to MSRs are not counted")),
];

/// The attached programs. Dropping this removes them from the kernel.
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
    /// Loads all programs of a level, then attaches them, so that all start within a moment of each other. `exit`:
    /// `kvm_exit`, or why it is not available.
    ///
    /// # Errors
    /// When no program would work.
    pub fn start(
        object: &Object,
        rights: &Rights,
        full: bool,
        exit: Result<ExitEvent, EngineError>,
    ) -> Result<Self, EngineError> {
        let mut attached = Self::default();
        let mut loaded = Vec::new();
        for spec in PROGRAMS.iter().filter(|p| full || !p.full) {
            if spec.event == "kvm_exit"
                && let Err(error) = &exit
            {
                attached.gap(spec, error.clone());
                continue;
            }
            match object.load(spec.program) {
                Ok(program) => loaded.push((spec, program)),
                Err(refusal) => attached.refused(spec, rights, &refusal)?,
            }
        }
        let (id, raw) = exit.map_or((0, false), |exit| (exit.id, exit.raw));
        for (spec, program) in loaded {
            if spec.event == "kvm_exit" && raw && attached.attach_raw_exit(object) {
                continue;
            }
            if let Err(refusal) = attached.attach(object, spec, program, id) {
                attached.refused(spec, rights, &refusal)?;
            }
        }
        Ok(attached)
    }

    /// Whether a raw `kvm_exit` could be had.
    fn attach_raw_exit(&mut self, object: &Object) -> bool {
        let [old, new] = RAW_EXIT.map(|name| {
            move || -> Result<(OwnedFd, OwnedFd), Refusal> {
                let program = object.load(name)?;
                let link = sys::attach_raw(program.as_fd(), "kvm_exit");
                Ok((link.map_err(|e| Refusal::new(Stage::Attach, name, e))?, program))
            }
        });
        let done = match old() {
            Err(e) if e.stage == Stage::Attach && e.error.raw_os_error() == Some(libc::EINVAL) => new(),
            done => done,
        };
        let Ok((link, program)) = done else { return false };
        self.links.push(link);
        self.programs.push(program);
        self.names.push("kvm_exit");
        true
    }

    fn attach(&mut self, object: &Object, spec: &ProgramSpec, program: OwnedFd, exit: u64) -> Result<(), Refusal> {
        let hang = |program: &OwnedFd| {
            let link = match spec.event {
                "kvm_exit" => sys::attach_tracepoint(program.as_fd(), exit),
                event => sys::attach_raw(program.as_fd(), event),
            };
            link.map_err(|e| Refusal::new(Stage::Attach, spec.event, e))
        };
        let (link, program) = match hang(&program) {
            Ok(link) => (link, program),
            Err(e) if spec.old.is_empty() || e.error.raw_os_error() != Some(libc::EINVAL) => return Err(e),
            Err(_) => {
                let program = object.load(spec.old)?;
                (hang(&program)?, program)
            }
        };
        self.links.push(link);
        self.programs.push(program);
        self.names.push(spec.event);
        Ok(())
    }

    fn refused(&mut self, spec: &ProgramSpec, rights: &Rights, refusal: &Refusal) -> Result<(), EngineError> {
        let absent = refusal.stage == Stage::Attach && refusal.error.raw_os_error() == Some(libc::ENOENT);
        if spec.event == NEEDED && absent {
            return Err(EngineError {
                cause: format!("this kernel has no tracepoint {NEEDED}: the kvm module is not loaded"),
                fix: "modprobe kvm_intel (or kvm_amd)".into(),
            });
        }
        let error = rights.explain(refusal);
        if spec.event == NEEDED || refusal.is_for_all() {
            return Err(error);
        }
        self.gap(spec, error);
        Ok(())
    }

    fn gap(&mut self, spec: &ProgramSpec, error: EngineError) {
        if !spec.without.is_empty() {
            self.gaps.push(EngineError { cause: format!("{}: {}", spec.without, error.cause), fix: error.fix });
        }
    }

    /// The kvm events for which a program did not run.
    pub fn missed(&self) -> u64 {
        // Scheduler events can nest; most of those missed concern threads that run no guest.
        let of_kvm = self.programs.iter().zip(&self.names).filter(|(_, event)| event.starts_with("kvm_"));
        of_kvm.filter_map(|(program, _)| sys::missed(program.as_fd())).sum()
    }

    /// What the attached programs measure.
    pub fn parts(&self) -> Measured {
        let has = |event| self.names.contains(&event);
        Measured {
            timed: has("kvm_entry"),
            userspace: has(NEEDED),
            halts: has("kvm_vcpu_wakeup"),
            switches: has("sched_switch"),
            wakings: has("sched_waking"),
        }
    }
}
