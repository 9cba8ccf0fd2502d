//! The state of each source in a sentence, with its cure.

use crate::sample::{EngineLevel, HostFacts, SourceId, SourceStatus};
use crate::source::events::{Engine, EngineError, Reading};
use crate::source::live::guest::counters::MissingCounters;
use crate::source::live::proc::discovery::Discovered;
use crate::source::live::proc::file::FileError;
use crate::source::live::proc::paths::SystemPaths;

/// /proc.
pub(crate) fn procfs(found: &Discovered, failure: Option<FileError>) -> SourceStatus {
    const ID: SourceId = SourceId::Procfs;
    if failure.is_some() {
        return SourceStatus::missing(ID, "/proc cannot be read", "mount -t proc proc /proc");
    }
    if found.guessed + found.denied > 0 {
        let cause = format!(
            "the open files of {} processes may not be looked at: guests are told by their threads' names ({} found so), others \
             may be missing",
            found.guessed + found.denied,
            found.guessed
        );
        return SourceStatus::degraded(ID, cause, "run kvmtop as root, or give it CAP_SYS_PTRACE");
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
            "modprobe kvm_intel or kvm_amd; where that fails, switch on VT-x or SVM in the firmware, or nested virtualisation below",
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

/// KVM's own counters: of each guest, why it has none.
pub(crate) fn kvm_stats(lacks: &[Option<MissingCounters>], paths: &SystemPaths) -> SourceStatus {
    const ID: SourceId = SourceId::KvmStats;
    let lacking = lacks.iter().flatten().count();
    if lacking == 0 {
        return SourceStatus::ok(ID);
    }
    let denied = lacks.contains(&Some(MissingCounters::Denied));
    let why = if denied {
        "its files may not be read: they need root, and a locked-down kernel (/sys/kernel/security/lockdown) lets nobody \
         read debugfs"
    } else {
        "the VMM keeps no statistics file open (QEMU does from 8.1 on) and /sys/kernel/debug/kvm shows none of it"
    };
    let cause = format!("{lacking} of {} guests without KVM's own counters: {why}", lacks.len());
    let fix = if denied {
        "run kvmtop as root; with --engine none libvirt is asked for them"
    } else if paths.sys.join("kernel/debug/kvm").is_dir() {
        "use QEMU 8.1 or later; with --engine none libvirt is asked for them"
    } else {
        "mount -t debugfs none /sys/kernel/debug"
    };
    if lacking == lacks.len() { SourceStatus::missing(ID, cause, fix) } else { SourceStatus::degraded(ID, cause, fix) }
}

/// The engine.
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
        return SourceStatus::missing(ID, "the engine is switched off", "press e, or start kvmtop with --engine auto");
    }
    if reading.fires_kvm_exit == Some(false) {
        let flavour = host.kvm_flavour.as_deref().unwrap_or("this kernel's KVM");
        let cause = format!("{flavour} fires no kvm_exit, so there are no exit reasons and times");
        return SourceStatus::degraded(ID, cause, "nothing to mend: accesses and exits to the VMM are counted instead");
    }
    SourceStatus::ok(ID)
}
