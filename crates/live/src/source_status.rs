//! The state of each source as a sentence: what failed, on what, why, and what to run.

use crate::proc::discovery::Discovered;
use crate::proc::file::FileError;
use crate::proc::paths::SystemPaths;
use engine::events::{Engine, EngineError, Reading};
use sample::{EngineLevel, SourceId, SourceStatus};

/// What /proc showed in a tick.
pub(crate) struct ProcView<'a> {
    /// What discovery found.
    pub found: &'a Discovered,
    /// Why /proc itself cannot be listed.
    pub failure: Option<FileError>,
    /// Guests of which not all threads could be read, and why one could not.
    pub unread_guests: (usize, Option<FileError>),
    /// The processes of guests whose command lines do not come.
    pub held_back: &'a [i32],
}

/// /proc.
pub(crate) fn procfs(view: &ProcView<'_>, paths: &SystemPaths) -> SourceStatus {
    const ID: SourceId = SourceId::Procfs;
    // Where nothing is mounted, an empty folder is read without an error.
    if view.failure.is_some() || paths.real && paths.proc.join("self").symlink_metadata().is_err() {
        let (why, fix) = because(view.failure, || "`mount -t proc proc /proc`".into());
        return SourceStatus::missing(ID, format!("/proc cannot be read{why}"), fix);
    }
    let mut problems: Vec<(String, String)> = Vec::new();
    let unread = view.found.unread;
    if unread.processes > 0 {
        let (why, fix) = because(unread.failure, rights::hint);
        let cause = format!(
            "the open files of {} processes are not readable{why}; guests among them are known by \
             their threads' names alone",
            unread.processes
        );
        problems.push((cause, fix));
    }
    if unread.waiting > 0 {
        let cause = format!(
            "{} processes have very many open files and wait for a look",
            unread.waiting
        );
        problems.push((
            cause,
            "nothing to do: kvmtop goes on in the next intervals".into(),
        ));
    }
    let (guests, guest_failure) = view.unread_guests;
    if guests > 0 {
        let (why, fix) = because(guest_failure, rights::hint);
        let cause = format!("the threads of {guests} guests could not all be read{why}");
        problems.push((cause, fix));
    }
    problems.extend(held_back(view.held_back));
    if paths.hides_processes() {
        let cause = "/proc is mounted with hidepid=, which hides the processes of other users and \
                     their guests";
        problems.push((cause.into(), rights::hint()));
    }
    if rights::in_own_pid_namespace(&paths.proc) {
        let cause = "kvmtop runs in its own PID namespace: guests outside of it have no name here, \
                     and their events count in the engine's total but for no guest";
        let fix = "run kvmtop in the host's PID namespace (for a container: --pid=host)";
        problems.push((cause.into(), fix.into()));
    }
    if problems.is_empty() {
        return SourceStatus::ok(ID);
    }
    degraded(ID, problems)
}

/// The status of a source with these problems, each a cause and its cure.
fn degraded(id: SourceId, problems: Vec<(String, String)>) -> SourceStatus {
    let (causes, mut fixes): (Vec<String>, Vec<String>) = problems.into_iter().unzip();
    fixes.dedup();
    SourceStatus::degraded(id, causes.join("; "), fixes.join("; "))
}

/// Guests whose command lines do not come: cause and cure.
fn held_back(pids: &[i32]) -> Option<(String, String)> {
    let pid = pids.first()?;
    let cause = format!(
        "the command lines of {} guests do not come, one of them that of process {pid}: they are \
         shown without name and set-up",
        pids.len()
    );
    let fix = format!(
        "see `grep -e fuse -e nfs /proc/{pid}/mountinfo`: such a process waits for a file system \
         that does not answer, or holds its memory back on purpose; kvmtop goes on without"
    );
    Some((cause, fix))
}

/// The end of a sentence that says why something could not be read, and what to do: `otherwise`
/// where it is neither the end of a process nor a limit.
fn because(failure: Option<FileError>, otherwise: fn() -> String) -> (String, String) {
    let Some(FileError::Other(why)) = failure else {
        return (String::new(), otherwise());
    };
    let fix = "`ulimit -n 65536` in the shell that starts kvmtop (LimitNOFILE= of a service); see \
               dmesg";
    (format!(": {why}"), fix.into())
}

/// The reason for a missing engine.
pub(crate) fn no_engine(problems: &[EngineError]) -> EngineError {
    problems.first().cloned().unwrap_or_else(|| {
        EngineError::new(
            "tracing is off (--engine none)",
            "start kvmtop with --engine auto",
        )
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

/// The host's disks and links, and what VMMs read and write, where a file could not be read;
/// `guests` is the number of those VMMs.
pub(crate) fn host_devices(unread: &[&str], guests: usize) -> Option<SourceStatus> {
    let mut problems = Vec::new();
    if !unread.is_empty() {
        let cause = format!("not readable: {}", unread.join(", "));
        let fix = "run kvmtop where the host's /proc is mounted (for a container: --pid=host \
                   --network=host)";
        problems.push((cause, fix.to_owned()));
    }
    if guests > 0 {
        let cause = format!(
            "{guests} guests whose disks neither libvirt nor a monitor reports have a /proc/PID/io \
             that is not readable"
        );
        problems.push((cause, rights::hint()));
    }
    if problems.is_empty() {
        return None;
    }
    Some(degraded(SourceId::HostDevices, problems))
}

/// The tracing engine.
pub(crate) fn tracepoints(
    engine: Option<&dyn Engine>,
    problems: &[EngineError],
    reading: &Reading,
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
        return SourceStatus::degraded(
            ID,
            "this kernel's KVM fires no kvm_exit: exit reasons and their times are not known",
            "nothing to do: kvmtop counts accesses and exits to the VMM instead",
        );
    }
    SourceStatus::ok(ID)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::discovery::UnreadCount;
    use crate::tests::fake_proc::FakeProc;
    use rustix::io::Errno;

    #[test]
    fn devices_are_a_source_only_where_a_file_is_not_readable() {
        assert_eq!(host_devices(&[], 0), None);
        let both = host_devices(&["/proc/diskstats"], 2).unwrap();
        let said = both.sentence();
        for part in [
            "not readable: /proc/diskstats; 2 guests",
            "--pid=host",
            "cap_sys_ptrace",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }

    #[test]
    fn what_proc_hides_is_said_with_its_cure() {
        let fake = FakeProc::new();
        let paths = fake.paths();
        let all = Discovered::default();
        let seen = ProcView {
            found: &all,
            failure: None,
            unread_guests: (0, None),
            held_back: &[],
        };
        assert_eq!(procfs(&seen, &paths), SourceStatus::ok(SourceId::Procfs));
        let full = FileError::Other(Errno::MFILE);
        let unread = |failure| Discovered {
            unread: UnreadCount {
                processes: 9,
                failure,
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
                "by their threads' names",
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
                    held_back: &[77, 78],
                    ..seen
                },
                "the command lines of 2 guests",
                "/proc/77/mountinfo",
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
