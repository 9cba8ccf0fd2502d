//! Explains why the kernel refused a step, and what to do about it.

use crate::events::EngineError;
use rustix::thread::CapabilitySet;
use std::fmt::Display;
use std::io;

/// The step that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Creating or filling a map.
    Map,
    /// Loading a program.
    Program,
    /// Attaching a program.
    Attach,
    /// The object itself: a fault of the build.
    Object,
}

/// A failed step.
#[derive(Debug)]
pub(super) struct Refusal {
    pub stage: Stage,
    /// The map, program or tracepoint.
    pub what: String,
    pub error: io::Error,
    /// The verifier's log.
    pub log: String,
}

impl Refusal {
    pub fn new(stage: Stage, what: &str, error: io::Error) -> Self {
        Self {
            stage,
            what: what.into(),
            error,
            log: String::new(),
        }
    }

    /// Whether every other program would fail as well: no permission, no memory, no BPF.
    pub fn is_for_all(&self) -> bool {
        self.stage != Stage::Attach
            && matches!(
                self.error.raw_os_error(),
                Some(libc::EPERM | libc::ENOMEM | libc::ENOSYS)
            )
    }

    pub fn broken(why: &impl Display) -> Self {
        Self::new(Stage::Object, "", io::Error::other(why.to_string()))
    }
}

/// The properties of this process and kernel that decide whether BPF can be used.
#[derive(Debug)]
pub(super) struct Rights {
    /// Effective capabilities.
    pub caps: CapabilitySet,
    /// `/sys/kernel/security/lockdown`.
    pub lockdown: String,
    /// `uname -r`.
    pub kernel: String,
    /// `kernel.perf_event_paranoid`.
    pub paranoid: Option<i32>,
}

impl From<Refusal> for EngineError {
    fn from(refusal: Refusal) -> Self {
        Rights::here().explain(&refusal)
    }
}

impl Rights {
    /// The rights of the calling thread.
    pub fn here() -> Self {
        let kernel = rustix::system::uname()
            .release()
            .to_string_lossy()
            .into_owned();
        Self {
            caps: rights::effective(),
            lockdown: std::fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default(),
            kernel,
            paranoid: rights::paranoid(),
        }
    }

    fn lacks(&self, cap: CapabilitySet) -> bool {
        !self.caps.intersects(cap | CapabilitySet::SYS_ADMIN)
    }

    /// Before 5.5 maps could not be mapped, before 5.2 there were no global variables.
    fn too_old(&self) -> bool {
        rights::is_before(&self.kernel, (5, 5))
    }

    /// Whether the kernel refused a map or a program because of the limit of locked memory.
    fn is_over_limit(&self, refusal: &Refusal) -> bool {
        let is_charged = matches!(refusal.stage, Stage::Map | Stage::Program) && !self.too_old();
        let is_refused = refusal.error.raw_os_error() == Some(libc::EPERM);
        is_charged && is_refused && rights::charges_locked_memory(&self.kernel)
    }

    /// Why BPF cannot be used at all, and what to do. `None`: the cause is the map, the program or
    /// the tracepoint.
    fn all_of_bpf(&self, refusal: &Refusal, denied: bool) -> Option<EngineError> {
        let reason = if denied && self.lacks(CapabilitySet::BPF) {
            EngineError::new(
                "this process has neither CAP_BPF nor CAP_SYS_ADMIN",
                rights::hint(),
            )
        } else if denied && self.lacks(CapabilitySet::PERFMON) {
            EngineError::new(
                "this process has CAP_BPF but not CAP_PERFMON, which tracing programs need as well",
                rights::hint(),
            )
        } else if denied && self.lockdown.contains("[confidentiality]") {
            EngineError::new(
                "kernel lockdown \"confidentiality\" forbids it",
                "boot with lockdown=integrity, or use --engine none",
            )
        } else if self.is_over_limit(refusal) {
            let fix = "; a service needs LimitMEMLOCK=infinity, a container --ulimit memlock=-1";
            let why = "this kernel charges it to the limit of locked memory (RLIMIT_MEMLOCK), \
                       which is too low here and which this process may not raise without \
                       CAP_SYS_RESOURCE";
            EngineError::new(why, rights::hint() + fix)
        } else if refusal.error.raw_os_error() == Some(libc::ENOSYS) {
            EngineError::new(
                "this kernel is built without BPF",
                "boot a kernel with CONFIG_BPF_SYSCALL=y, or use --engine perf",
            )
        } else {
            return None;
        };
        Some(reason)
    }

    /// Why this map, program or tracepoint cannot be used, and what to do.
    fn of_step(&self, refusal: &Refusal) -> EngineError {
        let error = refusal.error.to_string();
        match refusal.error.raw_os_error() {
            Some(libc::EMFILE | libc::ENFILE) => EngineError::new(
                "too many open files",
                "`ulimit -n 65536` in the shell that starts kvmtop (LimitNOFILE= of a service)",
            ),
            _ if self.too_old() => EngineError::new(
                format!(
                    "kernel {} is too old, the bpf engine needs 5.5",
                    self.kernel
                ),
                "use --engine perf",
            ),
            Some(libc::ENOMEM | libc::E2BIG) => EngineError::new(
                error,
                "give kvmtop's cgroup more memory (MemoryMax), or use --engine perf",
            ),
            _ => {
                let last = refusal
                    .log
                    .lines()
                    .rev()
                    .find(|line| !line.is_empty() && !line.starts_with("processed "));
                let why = match last {
                    Some(line) => format!(
                        "the kernel's verifier says \"{}\" ({error})",
                        kvm::sanitize(line, 100)
                    ),
                    None => error,
                };
                EngineError::new(why, "use --engine perf, and report this kernel's version")
            }
        }
    }

    /// The sentence for a refusal.
    pub fn explain(&self, refusal: &Refusal) -> EngineError {
        let denied = matches!(
            refusal.error.raw_os_error(),
            Some(libc::EPERM | libc::EACCES)
        );
        let what = match refusal.stage {
            Stage::Map => format!("creating the BPF map {}", refusal.what),
            Stage::Program => format!("loading the BPF program {}", refusal.what),
            Stage::Attach => format!("attaching to the tracepoint {}", refusal.what),
            Stage::Object => {
                return EngineError::new(
                    format!(
                        "the BPF programs inside kvmtop cannot be read: {}",
                        refusal.error
                    ),
                    "this build of kvmtop is broken: rebuild it, or use --engine perf",
                );
            }
        };
        if let Some(EngineError { cause, fix }) = self.all_of_bpf(refusal, denied) {
            return EngineError::new(format!("BPF cannot be used: {cause}"), fix);
        }
        // A program is attached to a tracepoint by an event of perf.
        let EngineError { cause, fix } = if denied
            && refusal.stage == Stage::Attach
            && let Some((why, fix)) = rights::paranoid_refusal(self.paranoid, self.caps)
        {
            EngineError::new(why, fix)
        } else {
            self.of_step(refusal)
        };
        EngineError::new(format!("{what} failed: {cause}"), fix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(stage: Stage, errno: i32) -> Refusal {
        Refusal::new(stage, "kvm_pio", io::Error::from_raw_os_error(errno))
    }

    const NONE: CapabilitySet = CapabilitySet::empty();
    const BOTH: CapabilitySet = CapabilitySet::BPF.union(CapabilitySet::PERFMON);

    fn rights(caps: CapabilitySet) -> Rights {
        Rights {
            caps,
            lockdown: "none [integrity] confidentiality\n".into(),
            kernel: "6.1.0-56-amd64".into(),
            paranoid: Some(2),
        }
    }

    #[test]
    fn each_missing_capability_is_named() {
        let none = rights(NONE).explain(&refused(Stage::Map, libc::EPERM));
        assert!(none.cause.contains("neither CAP_BPF"), "{none:?}");
        assert!(none.fix.contains("setcap cap_bpf,cap_perfmon"));
        let half = rights(CapabilitySet::BPF).explain(&refused(Stage::Program, libc::EPERM));
        assert!(
            half.cause.contains("CAP_BPF but not CAP_PERFMON"),
            "{half:?}"
        );
        let both = rights(BOTH).explain(&refused(Stage::Attach, libc::ENOENT));
        assert!(
            both.cause
                .starts_with("attaching to the tracepoint kvm_pio failed: No such file"),
            "{both:?}"
        );
    }

    #[test]
    fn the_levels_of_debian_are_named() {
        let (bpf, admin) = (BOTH, CapabilitySet::SYS_ADMIN);
        let said = |paranoid, caps| {
            let rights = Rights {
                paranoid: Some(paranoid),
                ..rights(caps)
            };
            rights.explain(&refused(Stage::Attach, libc::EACCES))
        };
        let barred = said(3, bpf);
        let cause = "attaching to the tracepoint kvm_pio failed: kernel.perf_event_paranoid is 3, \
                     with which CAP_PERFMON is not enough";
        assert_eq!(
            (barred.cause.as_str(), barred.fix.as_str()),
            (cause, "sysctl kernel.perf_event_paranoid=2")
        );
        assert!(
            !said(2, bpf).cause.contains("paranoid")
                && !said(4, bpf | admin).cause.contains("paranoid")
        );
    }

    #[test]
    fn one_cause_has_one_sentence() {
        let said = |map: &str| {
            let refusal = Refusal::new(Stage::Map, map, io::Error::from_raw_os_error(libc::EPERM));
            rights(NONE).explain(&refusal)
        };
        assert_eq!(said("slots"), said("free_slots"));
    }

    #[test]
    fn lockdown_age_and_missing_bpf() {
        let locked = Rights {
            lockdown: "none integrity [confidentiality]".into(),
            ..rights(CapabilitySet::all())
        };
        assert!(
            locked
                .explain(&refused(Stage::Program, libc::EPERM))
                .cause
                .contains("lockdown")
        );
        for (kernel, old) in [
            ("4.19.0", true),
            ("5.4.0-150-generic", true),
            ("5.5.0", false),
            ("6.18.44-fc-v595", false),
        ] {
            let rights = Rights {
                kernel: kernel.into(),
                ..rights(CapabilitySet::all())
            };
            assert_eq!(
                rights
                    .explain(&refused(Stage::Map, libc::EINVAL))
                    .cause
                    .contains("too old"),
                old,
                "{kernel}"
            );
        }
        assert!(
            rights(CapabilitySet::all())
                .explain(&refused(Stage::Map, libc::ENOSYS))
                .cause
                .contains("without BPF")
        );
    }

    #[test]
    fn a_limit_of_locked_memory_is_named_where_it_is_charged() {
        let said = |kernel: &str, stage, errno| {
            let rights = Rights {
                kernel: kernel.into(),
                ..rights(BOTH)
            };
            rights.explain(&refused(stage, errno))
        };
        let old = said("5.10.0-32-amd64", Stage::Map, libc::EPERM);
        assert!(
            old.cause
                .contains("limit of locked memory (RLIMIT_MEMLOCK)"),
            "{old:?}"
        );
        assert!(
            old.fix.contains("run kvmtop as root") && old.fix.contains("LimitMEMLOCK=infinity"),
            "{old:?}"
        );
        assert_eq!(said("5.10.0-32-amd64", Stage::Program, libc::EPERM), old);
        for other in [
            said("5.11.0", Stage::Map, libc::EPERM),
            said("5.10.0-32-amd64", Stage::Map, libc::ENOMEM),
            said("5.10.0-32-amd64", Stage::Attach, libc::EPERM),
        ] {
            assert!(!other.cause.contains("RLIMIT_MEMLOCK"), "{other:?}");
        }
    }

    #[test]
    fn the_verifiers_last_words_are_kept() {
        let log =
            "0: (bf) r6 = r1\nR1 invalid mem access 'scalar'\nprocessed 3 insns\n\n".to_string();
        let refusal = Refusal {
            log,
            ..refused(Stage::Program, libc::EACCES)
        };
        assert!(
            rights(CapabilitySet::all())
                .explain(&refusal)
                .cause
                .contains("R1 invalid mem access 'scalar'")
        );
    }
}
