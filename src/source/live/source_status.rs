//! The state of each source as a sentence: what failed, on what, why, and what to run.

use crate::sample::{EngineLevel, HostFacts, SourceId, SourceStatus};
use crate::source::events::{Engine, EngineError, Reading};
use crate::source::live::guest::counters::MissingCounters;
use crate::source::live::proc::discovery::Discovered;
use crate::source::live::proc::file::FileError;
use crate::source::live::proc::paths::SystemPaths;
use crate::source::privileges;

/// /proc. `own_namespace`: kvmtop runs in a PID namespace other than the host's.
pub(crate) fn procfs(found: &Discovered, failure: Option<FileError>, own_namespace: bool) -> SourceStatus {
    const ID: SourceId = SourceId::Procfs;
    if failure.is_some() {
        return SourceStatus::missing(ID, "/proc cannot be read", "mount -t proc proc /proc");
    }
    if own_namespace {
        return SourceStatus::degraded(
            ID,
            "kvmtop runs in its own PID namespace: guests outside of it have no name here, and their events count \
             in the engine's total but for no guest",
            "run kvmtop in the host's PID namespace (for a container: --pid=host)",
        );
    }
    let unreadable = found.guessed + found.denied;
    if unreadable > 0 {
        let cause = format!(
            "the open files of {unreadable} processes are not readable: {} of them are guests by their threads' \
             names, others may be missing",
            found.guessed
        );
        return SourceStatus::degraded(ID, cause, privileges::hint());
    }
    SourceStatus::ok(ID)
}

/// `/dev/kvm`, where it is missing: then no guest can start here.
pub(crate) fn no_kvm(paths: &SystemPaths) -> Option<SourceStatus> {
    let there = paths.dev.join("kvm").exists() || paths.sys.join("module/kvm").is_dir();
    (!there).then(|| {
        SourceStatus::missing(
            SourceId::Kvm,
            "this host has no /dev/kvm: no KVM guest can run on it",
            "modprobe kvm_intel or kvm_amd; where that fails, enable VT-x or SVM in the firmware, or nested \
             virtualisation in the hypervisor below",
        )
    })
}

/// Why there is no engine.
pub(crate) fn no_engine(problems: &[EngineError]) -> EngineError {
    problems.first().cloned().unwrap_or_else(|| EngineError {
        cause: "tracing is off (--engine none)".into(),
        fix: "start kvmtop with --engine auto".into(),
    })
}

/// KVM's own counters: for each guest, why it has none.
pub(crate) fn kvm_stats(missing: &[Option<MissingCounters>], paths: &SystemPaths) -> SourceStatus {
    const ID: SourceId = SourceId::KvmStats;
    let count = missing.iter().flatten().count();
    if count == 0 {
        return SourceStatus::ok(ID);
    }
    let denied = missing.contains(&Some(MissingCounters::Denied));
    let why = if denied {
        "its statistics files are not readable (a kernel under lockdown closes debugfs to root, too: \
         /sys/kernel/security/lockdown)"
    } else {
        "the VMM keeps no statistics file open (QEMU does since 8.1), and /sys/kernel/debug/kvm has no folder for it"
    };
    let cause = format!("{count} of {} guests without KVM's own counters: {why}", missing.len());
    let fix = if denied && rustix::process::geteuid().is_root() {
        "with --engine none kvmtop asks libvirt for them".into()
    } else if denied {
        format!("{}; with --engine none kvmtop asks libvirt for them", privileges::hint())
    } else if paths.sys.join("kernel/debug/kvm").is_dir() {
        "use QEMU 8.1 or later; with --engine none kvmtop asks libvirt for them".into()
    } else {
        "mount -t debugfs none /sys/kernel/debug".into()
    };
    if count == missing.len() { SourceStatus::missing(ID, cause, fix) } else { SourceStatus::degraded(ID, cause, fix) }
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
        let cause = if more > 0 { format!("{} (and {more} more)", first.cause) } else { first.cause.clone() };
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
        let cause = format!("{flavour} fires no kvm_exit: exit reasons and their times are not known");
        return SourceStatus::degraded(ID, cause, "nothing to do: kvmtop counts accesses and exits to the VMM instead");
    }
    SourceStatus::ok(ID)
}
