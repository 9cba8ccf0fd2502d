//! The state of the sources: what could not be read, which events were lost, what kvmtop costs.

use super::figures::bounded;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};
use strum::IntoStaticStr;

/// How exits are counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum EngineKind {
    /// Aggregated in the kernel by BPF programs.
    Bpf,
    /// Tracepoints copied through perf rings and aggregated in user space.
    Perf,
    /// No tracing: KVM's own counters and /proc.
    #[default]
    None,
    /// A file of another tool.
    File,
}

/// Whether the engine traces. `e` switches it on the live screen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum EngineLevel {
    /// No tracing.
    None,
    /// Everything.
    #[default]
    #[serde(alias = "Counts")]
    Full,
}

/// The engine and the events that it missed. Counters are cumulative since the engine started.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EngineStatus {
    /// The engine.
    pub kind: EngineKind,
    /// How much it traces.
    pub level: EngineLevel,
    /// Grows by one whenever the counters restart from zero (another engine, another level).
    pub generation: u32,
    /// Events that the kernel dropped before kvmtop read them.
    pub lost: u64,
    /// Events counted in an `other` cell because a bounded map was full.
    pub overflow: u64,
    /// Whether this kernel fires `kvm_exit`: `Some(false)` once guests ran and exited to user space
    /// without one (as `kvm_pvm` does); `None` while unknown.
    pub fires_kvm_exit: Option<bool>,
    /// Events handled.
    pub events: u64,
}

bounded!(EngineStatus { lost, overflow, events } kind, level, generation, fires_kvm_exit);

/// The state of a source.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum SourceState {
    /// It works.
    #[default]
    Ok,
    /// It works, but with less than it could provide.
    Degraded,
    /// Not available.
    Missing,
}

/// A source of data.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, IntoStaticStr,
)]
#[cfg_attr(test, derive(strum::EnumIter))]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum SourceId {
    /// `/proc`: processes, threads and CPUs of the live host.
    Procfs,
    /// The engine that counts exits and accesses.
    Tracepoints,
    /// Disks and network links of the live host, and what VMMs read and write.
    HostDevices,
    /// KVM's own statistics.
    KvmStats,
    /// The kernel's log, live or a file of it.
    KernelLog,
    /// libvirt.
    Libvirt,
    /// The QEMU monitor.
    Monitor,
    /// The recording that kvmtop is writing. Never part of a recorded sample.
    Recording,
    /// The recording that kvmtop is reading.
    Session,
    /// A `--domain` pattern; reported only if it matches no guest.
    Domain,
    /// A `perf.data` file.
    #[serde(rename = "perf.data")]
    #[strum(serialize = "perf.data")]
    PerfData,
    /// Text lines of a trace.
    Trace,
    /// Text tables of `perf kvm stat`.
    Text,
    /// A libvirt domain XML in a file.
    Xml,
    /// A VMM's command line in a file.
    Cmdline,
    /// `info mtree` in a file.
    Mtree,
    /// A host's CPU topology in a file.
    Topology,
    /// The configuration of a VMM in a file, other than a libvirt XML.
    Config,
}

/// One source of data and, if it does not provide everything, cause and fix in a sentence each.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SourceStatus {
    /// The source.
    pub id: SourceId,
    /// The state.
    pub state: SourceState,
    /// What failed and why; of a source that works, what it leaves out unless it is asked to.
    pub cause: Option<String>,
    /// What to run or change.
    pub fix: Option<String>,
}

impl SourceStatus {
    /// A source that works.
    pub fn ok(id: SourceId) -> Self {
        Self {
            id,
            state: SourceState::Ok,
            cause: None,
            fix: None,
        }
    }

    /// A source that is not available.
    pub fn missing(id: SourceId, cause: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            id,
            state: SourceState::Missing,
            cause: Some(cause.into()),
            fix: Some(fix.into()),
        }
    }

    /// Cause and fix as one sentence: `why; what to do`.
    pub fn sentence(&self) -> String {
        [self.cause.as_deref(), self.fix.as_deref()]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join("; ")
    }

    /// A source that provides less than it could.
    pub fn degraded(id: SourceId, cause: impl Into<String>, fix: impl Into<String>) -> Self {
        Self {
            state: SourceState::Degraded,
            ..Self::missing(id, cause, fix)
        }
    }
}

/// Reads the sources of a recording. A source that only another version of kvmtop has is left out.
pub(crate) fn known_sources<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Vec<SourceStatus>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Entry {
        Known(SourceStatus),
        Unknown(IgnoredAny),
    }
    let mut known = Vec::new();
    for entry in Vec::<Entry>::deserialize(from)? {
        if let Entry::Known(source) = entry {
            known.push(source);
        }
    }
    Ok(known)
}

/// What kvmtop itself used, cumulative.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OwnCost {
    /// CPU time of the process, all threads, nanoseconds.
    pub cpu_ns: u64,
    /// Resident memory, bytes.
    pub rss_bytes: u64,
    /// How much longer than asked the time since the sample before is, where that is more than half
    /// as long again, nanoseconds; else 0. Not cumulative.
    pub late_ns: u64,
}

bounded!(OwnCost {
    cpu_ns,
    rss_bytes,
    late_ns
});

#[cfg(test)]
mod tests {
    use super::*;
    use strum::IntoEnumIterator;

    #[test]
    fn a_source_has_one_name_on_screen_in_json_and_in_serde() {
        for id in SourceId::iter() {
            assert_eq!(serde_json::to_value(id).unwrap(), id.as_str());
        }
    }
}
