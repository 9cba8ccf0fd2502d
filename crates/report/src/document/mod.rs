//! The shape of the JSON that `--batch --json`, `report --json` and `check --json` write: schema 1.
//! Scripts rely on the fields' names and order, so fields are only ever added.
//!
//! Rules of the whole schema:
//! - A value that was not measured or is not known is `null`, never 0. A field that is left out
//!   instead says so.
//! - Figures are not rounded: a duration is the kernel's nanoseconds divided by 1000, a rate the
//!   count divided by `interval_s`.
//! - Counts and times cover the interval that ends at `time`; they are not totals.
//! - 100 percent of CPU time is one host CPU, so a guest with four busy vCPUs has 400.
//! - Text from guests and files is passed on as it is, escaped as JSON demands.

use super::View;
use super::json::TOOL;
use judge::figures;
use judge::lint::{CannotTell, Finding, StillWatched};
use judge::model::Model;
use sample::SourceStatus;

/// The schema's number: the value of every object's `schema`.
pub const SCHEMA: u32 = 1;

/// Defines objects of the JSON. `pub struct Name(source: &Type) { field: T = value, }` becomes a
/// struct with the field, and a `Name::new(source)` that sets the field to the value.
#[macro_export]
macro_rules! objects {
    ($(
        $(#[$about:meta])*
        pub struct $name:ident($($from:ident: $source:ty),*) {
            $($(#[$field_about:meta])* $field:ident: $type:ty = $value:expr,)*
        }
    )*) => {$(
        #[derive(Debug, Clone, PartialEq, serde::Serialize, schemars::JsonSchema)]
        $(#[$about])*
        pub struct $name {
            $($(#[$field_about])* pub $field: $type,)*
        }

        impl $name {
            /// The object of these figures.
            pub fn new($($from: $source),*) -> Self {
                Self { $($field: $value,)* }
            }
        }
    )*};
}

mod disk;
mod events;
mod guest;
mod host;
mod profile;

pub use guest::JsonDomain;
use host::JsonHost;
pub use profile::JsonProfile;

objects! {
    /// One interval (`--batch --json`, a line each), or the whole of what was read (`report
    /// --json`) or watched (`check --json`).
    #[schemars(rename = "report")]
    pub struct JsonDocument(view: &View<'_>) {
        /// Version of this format.
        #[schemars(extend("const" = 1))]
        schema: u32 = SCHEMA,
        /// `kvmtop` and its version.
        tool: &'static str = TOOL,
        /// End of the interval: RFC 3339, UTC, with milliseconds. `null`: the file holds no wall
        /// clock.
        #[schemars(extend("format" = "date-time"))]
        time: Option<String> = figures::utc(view.model.time_ms),
        /// Length of the interval. `null`: first interval of a host, or a file that does not say;
        /// every rate is `null` then.
        #[schemars(extend("exclusiveMinimum" = 0))]
        interval_s: Option<f64> = view.model.interval_s,
        /// Where the data comes from: `live`, `session` (a kvmtop recording), `perf.data`, `text`.
        source: String = view.source.to_owned(),
        /// What counted exits: `bpf` (in the kernel by BPF programs), `perf` (tracepoints through
        /// perf rings), `none` (KVM's counters and /proc only) or `file` (another tool made the
        /// file).
        #[schemars(extend("enum" = ["bpf", "perf", "none", "file"]))]
        engine: &'static str = view.model.engine.kind.as_str(),
        /// Events of guests that the kernel dropped within the interval, or that came of threads
        /// for which kvmtop's tables had no room. 0: every count is exact.
        lost_events: u64 = view.model.lost,
        /// What kvmtop itself used.
        #[serde(rename = "self")]
        own: JsonCost = JsonCost::new(view.model),
        /// Each source of data and its state.
        sources: Vec<JsonSource> = view.sources().into_iter().map(JsonSource::new).collect(),
        /// The host.
        host: JsonHost = JsonHost::new(&view.model.host),
        /// The guests that `--domain` selects, in order of PID.
        domains: Vec<JsonDomain> = view.guests().map(|d| JsonDomain::new(d, view.model)).collect(),
        /// What the rules found, worst first.
        findings: Vec<Finding> = view.selected_findings().cloned().collect(),
        /// Rules that could not be judged, with the reason. Absent: none.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        cannot_tell: Vec<CannotTell> = view.selected_cannot_tell().cloned().collect(),
        /// Guests and rules that have not been watched for long enough; a missing finding says
        /// nothing about them yet. Absent: none.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        #[schemars(length(min = 1))]
        watching: Vec<StillWatched> = view.selected_watching().cloned().collect(),
        /// What of the files was left out or read otherwise than it stands there, a sentence each.
        /// Absent: nothing.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        #[schemars(length(min = 1))]
        notes: Vec<String> = view.findings.notes.clone(),
    }

    /// kvmtop's own cost.
    pub struct JsonCost(m: &Model) {
        /// CPU time, percent of one host CPU. `null`: no earlier sample, or a file.
        cpu_percent: Option<f64> = m.own_cpu,
        /// Resident memory. `null`: a file.
        rss_bytes: Option<u64> = Some(m.own_rss).filter(|bytes| *bytes > 0),
        /// How much longer than asked the interval was, where that is more than half as long again:
        /// the host or what kvmtop reads was slow. 0: in time. `null`: a file. Over several
        /// intervals the sum.
        late_s: Option<f64> = Some(m.late_ns as f64 / 1e9).filter(|_| m.own_rss > 0),
    }

    /// A source of data.
    pub struct JsonSource(s: SourceStatus) {
        /// Live: `procfs`, `tracepoints`, `kvm-stats` (KVM's own statistics), `host-devices` (the
        /// host's disks and links, where they cannot be read), `kernel-log`,
        /// `libvirt`, `monitor` (QEMU's), `recording` (being written), `domain` (a `--domain` pattern that matches no guest).
        /// Files: `session`, `perf.data`, `trace`, `text` (tables), `xml`, `cmdline`, `mtree`,
        /// `topology`, `virsh` (what virsh prints about a domain), `config` (of a VMM, other than
        /// XML).
        #[schemars(extend("enum" = [
            "procfs", "tracepoints", "kvm-stats", "host-devices", "kernel-log", "libvirt",
            "monitor", "recording", "session", "domain", "perf.data", "trace", "text", "xml",
            "cmdline", "mtree", "topology", "virsh", "config",
        ]))]
        name: &'static str = s.id.as_str(),
        /// `ok`; `degraded`: works, but gives less than it could; `missing`: gives nothing.
        #[schemars(extend("enum" = ["ok", "degraded", "missing"]))]
        state: &'static str = s.state.as_str(),
        /// What failed, on what, and why; of a source that is `ok`, what it leaves out unless
        /// asked. Absent: nothing.
        #[serde(skip_serializing_if = "Option::is_none")]
        cause: Option<String> = s.cause,
        /// A command or step that mends it. Absent: none is known or needed.
        #[serde(skip_serializing_if = "Option::is_none")]
        fix: Option<String> = s.fix,
    }
}
