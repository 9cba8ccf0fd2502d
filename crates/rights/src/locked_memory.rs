//! The limit of locked memory, which kernels before 5.11 charge BPF to.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Whether a kernel of this release charges BPF's maps and programs to `RLIMIT_MEMLOCK`, 64 KiB by
/// default, and refuses them with EPERM (`bpf_charge_memlock` in kernel/bpf/syscall.c, up to 5.10).
pub fn charges_locked_memory(release: &str) -> bool {
    super::is_before(release, (5, 11))
}

/// Whether the running kernel does.
pub(super) fn is_charged_here() -> bool {
    charges_locked_memory(&rustix::system::uname().release().to_string_lossy())
}

/// Runs what creates maps or loads programs; on kernels that charge them, without a limit of locked
/// memory as far as this thread may raise it.
pub fn with_locked_memory<T>(create: impl FnOnce() -> T) -> T {
    if is_charged_here() {
        without_limit(create)
    } else {
        create()
    }
}

/// Gives the soft limit back. The hard one stays: once kvmtop has given up `CAP_SYS_RESOURCE` it
/// may still raise the soft limit up to it, for the maps of further guests.
fn without_limit<T>(create: impl FnOnce() -> T) -> T {
    let Rlimit { current, maximum } = getrlimit(Resource::Memlock);
    if setrlimit(
        Resource::Memlock,
        Rlimit {
            current: None,
            maximum: None,
        },
    )
    .is_err()
    {
        // As far as any process may; what it is not enough for, the kernel refuses.
        let _ = setrlimit(
            Resource::Memlock,
            Rlimit {
                current: maximum,
                maximum,
            },
        );
    }
    let created = create();
    let Rlimit { maximum, .. } = getrlimit(Resource::Memlock);
    // Lowering it is always permitted.
    let _ = setrlimit(Resource::Memlock, Rlimit { current, maximum });
    created
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keep_none;

    /// Limits are the process's: no other test of this crate looks at this one.
    #[test]
    fn the_limit_is_lifted_while_something_is_created_and_given_back() {
        let low = Some(65_536);
        let soft = || getrlimit(Resource::Memlock).current;
        let hard = getrlimit(Resource::Memlock).maximum;
        setrlimit(
            Resource::Memlock,
            Rlimit {
                current: low,
                maximum: hard,
            },
        )
        .unwrap();
        let lifted = without_limit(soft);
        assert!(lifted == hard || lifted.is_none(), "{lifted:?}");
        assert_eq!(soft(), low);
        // Without a right, as far as the hard limit.
        let hard = getrlimit(Resource::Memlock).maximum;
        let later = std::thread::spawn(move || {
            keep_none();
            without_limit(soft)
        });
        assert_eq!(later.join().unwrap(), hard);
        assert_eq!(soft(), low);
    }

    #[test]
    fn kernels_before_5_11_charge_bpf() {
        for (release, charges) in [
            ("5.4.0-150-generic", true),
            ("5.10.0-32-amd64", true),
            ("5.11.0", false),
        ] {
            assert_eq!(charges_locked_memory(release), charges, "{release}");
        }
        assert!(!charges_locked_memory("6.1.0-49-amd64") && !charges_locked_memory("unknown"));
    }
}
