//! The state of each source as a sentence: what failed, on what, why, and what to run.

use crate::proc::discovery::{Discovered, UnreadCount};
use crate::proc::file::FileError;
use crate::proc::paths::SystemPaths;
use engine::events::{Engine, EngineError, LOAD_KVM, Reading};
use sample::{EngineLevel, HostFacts, SourceId, SourceStatus};

/// What /proc showed in a tick.
pub(crate) struct ProcView<'a> {
    /// What discovery found.
    pub found: &'a Discovered,
    /// Why /proc itself cannot be listed.
    pub failure: Option<FileError>,
    /// Guests of which not all threads could be read, and why one could not.
    pub unread_guests: (usize, Option<FileError>),
    /// How many guests' command lines do not come, and the process of one of them.
    pub held_back: Option<(usize, i32)>,
}

/// /proc.
pub(crate) fn procfs(view: &ProcView<'_>, paths: &SystemPaths) -> SourceStatus {
    const ID: SourceId = SourceId::Procfs;
    match view.failure {
        Some(FileError::Other(why)) => {
            return SourceStatus::missing(ID, format!("/proc cannot be read: {why}"), cure(why));
        }
        // Where nothing is mounted, an empty folder is read without an error.
        failure
            if failure.is_some()
                || paths.real && paths.proc.join("self").symlink_metadata().is_err() =>
        {
            return SourceStatus::missing(ID, "/proc cannot be read", "`mount -t proc proc /proc`");
        }
        _ => {}
    }
    let (unread, (guests, guest_failure)) = (view.found.unread, view.unread_guests);
    let (mut causes, mut fixes) = (Vec::new(), Vec::new());
    let mut add = |cause: String, fix: String| {
        causes.push(cause);
        if !fixes.contains(&fix) {
            fixes.push(fix);
        }
    };
    let because = |failure: Option<FileError>| match failure {
        Some(FileError::Other(why)) => (format!(": {why}"), cure(why)),
        _ => (String::new(), rights::hint()),
    };
    if unread.processes > 0 {
        let UnreadCount {
            processes,
            guessed,
            failure,
            protected,
            ..
        } = unread;
        let (why, fix) = match because(failure) {
            (why, _) if protected && failure.is_none() => (
                why,
                "a security module (SELinux, AppArmor) refuses it: allow kvmtop's domain ptrace, \
                    or run it unconfined"
                    .into(),
            ),
            because => because,
        };
        let cause = format!(
            "the open files of {processes} processes are not readable{why}; {guessed} of them are \
             guests by their threads' names, and any other may hold a guest too"
        );
        add(cause, fix);
    }
    if unread.waiting > 0 {
        let cause = format!(
            "{} processes wait for a look: their users have very many open files",
            unread.waiting
        );
        let fix = "kvmtop goes on in the next intervals; ls /proc/PID/fd | wc -l shows how many a \
            process has";
        add(cause, fix.into());
    }
    if guests > 0 {
        let (why, fix) = because(guest_failure);
        add(
            format!(
                "the threads of {guests} guests could not all be read{why}; they are not shown, or \
            in part"
            ),
            fix,
        );
    }
    if let Some((guests, first)) = view.held_back {
        let cause = format!(
            "the command lines of {guests} guests do not come, one of them that of process \
             {first}: they are shown without name and set-up"
        );
        let fix = format!(
            "see `grep -e fuse -e nfs /proc/{first}/mountinfo`: such a process waits for a file \
             system that does not answer, or holds its memory back on purpose; kvmtop goes on \
             without"
        );
        add(cause, fix);
    }
    if paths.hides_processes() {
        let cause = "/proc is mounted with hidepid=, which hides the processes of other users and \
            their guests";
        add(cause.into(), rights::hint());
    }
    if rights::in_own_pid_namespace(&paths.proc) {
        let cause = "kvmtop runs in its own PID namespace: guests outside of it have no name here, \
                     and their events count in the engine's total but for no guest";
        add(
            cause.into(),
            "run kvmtop in the host's PID namespace (for a container: --pid=host)".into(),
        );
    }
    if causes.is_empty() {
        return SourceStatus::ok(ID);
    }
    SourceStatus::degraded(ID, causes.join("; "), fixes.join("; "))
}

/// What to do about an error that is neither the end of a process nor a missing right.
fn cure(why: rustix::io::Errno) -> String {
    use rustix::io::Errno;
    match why {
        Errno::MFILE => "`ulimit -n 65536` in the shell that starts kvmtop (LimitNOFILE= of a \
            service)"
            .into(),
        Errno::NFILE => {
            "`sysctl -w fs.file-max=1000000`: this host has no room for more open files".into()
        }
        _ => "see dmesg; kvmtop goes on and tries again".into(),
    }
}

/// `/dev/kvm`, where it is missing: then no guest can start here.
pub(crate) fn no_kvm(paths: &SystemPaths) -> Option<SourceStatus> {
    let there = paths.dev.join("kvm").exists() || paths.sys.join("module/kvm").is_dir();
    (!there).then(|| {
        SourceStatus::missing(
            SourceId::Kvm,
            "this host has no /dev/kvm: no KVM guest can run on it",
            format!(
                "{LOAD_KVM}; where that fails, enable virtualisation (VT-x, SVM) in the firmware, \
                 or nested virtualisation in the hypervisor below"
            ),
        )
    })
}

/// The reason for a missing engine.
pub(crate) fn no_engine(problems: &[EngineError]) -> EngineError {
    problems.first().cloned().unwrap_or_else(|| EngineError {
        cause: "tracing is off (--engine none)".into(),
        fix: "start kvmtop with --engine auto".into(),
    })
}

/// KVM's own counters, of which `missing` of the `guests` have none.
pub(crate) fn kvm_stats(missing: usize, guests: usize, paths: &SystemPaths) -> SourceStatus {
    const ID: SourceId = SourceId::KvmStats;
    const FIX: &str = "use QEMU 8.1 or later; or, where `kvmtop doctor` shows no lockdown, as \
                       root: `mount -t debugfs none /sys/kernel/debug`";
    if missing == 0 {
        return SourceStatus::ok(ID);
    }
    let cause = format!(
        "{missing} of {guests} guests without KVM's own counters: the VMM keeps no statistics file \
         open (QEMU does since 8.1) that kvmtop may read, and debugfs is closed or has no folder \
         for it"
    );
    let fix = if paths.may_trace_all() {
        FIX.to_owned()
    } else {
        format!("{}; {FIX}", rights::hint())
    };
    if missing == guests {
        SourceStatus::missing(ID, cause, fix)
    } else {
        SourceStatus::degraded(ID, cause, fix)
    }
}

/// The tracing engine.
pub(crate) fn tracepoints(
    engine: Option<&dyn Engine>,
    problems: &[EngineError],
    reading: &Reading,
    host: &HostFacts,
) -> SourceStatus {
    const ID: SourceId = SourceId::Tracepoints;
    let Some(engine) = engine else {
        let why = no_engine(problems);
        return SourceStatus::missing(ID, why.cause, why.fix);
    };
    let gaps = engine.gaps();
    if let Some(first) = gaps.iter().chain(problems).next() {
        let more = gaps.len() + problems.len() - 1;
        let cause = if more > 0 {
            format!("{} (and {more} more)", first.cause)
        } else {
            first.cause.clone()
        };
        return SourceStatus::degraded(ID, cause, first.fix.clone());
    }
    if engine.level() == EngineLevel::None {
        return SourceStatus::missing(
            ID,
            "tracing is switched off",
            "press e to switch it on, or start kvmtop with --engine auto",
        );
    }
    if reading.fires_kvm_exit == Some(false) {
        let flavour = host.kvm_flavour.as_deref().unwrap_or("this kernel's KVM");
        let cause =
            format!("{flavour} fires no kvm_exit: exit reasons and their times are not known");
        return SourceStatus::degraded(
            ID,
            cause,
            "nothing to do: kvmtop counts accesses and exits to the VMM instead",
        );
    }
    SourceStatus::ok(ID)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::fake_proc::FakeProc;
    use rustix::io::Errno;

    #[test]
    fn what_proc_hides_is_said_with_its_cure() {
        let fake = FakeProc::new();
        let paths = fake.paths();
        let all = Discovered::default();
        let seen = ProcView {
            found: &all,
            failure: None,
            unread_guests: (0, None),
            held_back: None,
        };
        assert_eq!(procfs(&seen, &paths), SourceStatus::ok(SourceId::Procfs));
        let full = FileError::Other(Errno::MFILE);
        let unread = |failure| Discovered {
            unread: UnreadCount {
                processes: 9,
                guessed: 2,
                failure,
                protected: false,
                waiting: 0,
            },
            ..Discovered::default()
        };
        let (denied, exhausted) = (unread(None), unread(Some(full)));
        for (view, cause, fix) in [
            (
                ProcView {
                    found: &denied,
                    ..seen
                },
                "2 of them are guests by their threads",
                "cap_sys_ptrace",
            ),
            (
                ProcView {
                    found: &exhausted,
                    ..seen
                },
                "Too many open files",
                "ulimit -n",
            ),
            (
                ProcView {
                    unread_guests: (4, Some(full)),
                    ..seen
                },
                "4 guests could not all be read",
                "ulimit -n",
            ),
            (
                ProcView {
                    failure: Some(full),
                    ..seen
                },
                "Too many open files",
                "ulimit -n",
            ),
        ] {
            let status = procfs(&view, &paths);
            assert!(
                status
                    .cause
                    .as_deref()
                    .is_some_and(|said| said.contains(cause)),
                "{status:?}"
            );
            assert!(
                status.fix.as_deref().is_some_and(|said| said.contains(fix)),
                "{status:?}"
            );
        }
        let both = procfs(
            &ProcView {
                found: &exhausted,
                unread_guests: (4, Some(full)),
                ..seen
            },
            &paths,
        );
        assert_eq!(
            both.fix.as_deref().map(|fix| fix.matches("ulimit").count()),
            Some(1),
            "{both:?}"
        );
        fake.process(1, "init");
        std::fs::create_dir_all(paths.proc.join("self/ns")).unwrap();
        std::os::unix::fs::symlink("pid:[4026532999]", paths.proc.join("self/ns/pid")).unwrap();
        let outside = procfs(&seen, &paths);
        assert!(
            outside
                .fix
                .as_deref()
                .is_some_and(|fix| fix.contains("--pid=host")),
            "{outside:?}"
        );
        let unmounted = procfs(
            &seen,
            &SystemPaths {
                real: true,
                proc: paths.sys.clone(),
                ..paths.clone()
            },
        );
        assert_eq!(unmounted.cause.as_deref(), Some("/proc cannot be read"));
        // Whose /proc has no init, if it is the kernel's own.
        fake.end(1);
        let hidden = procfs(
            &seen,
            &SystemPaths {
                real: true,
                ..paths
            },
        );
        assert!(
            hidden
                .cause
                .as_deref()
                .is_some_and(|cause| cause.contains("mounted with hidepid=")),
            "{hidden:?}"
        );
    }
}
