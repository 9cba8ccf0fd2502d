//! Counters of a host and of all its guests.

use super::guest::GuestMetrics;
use judge::analysis::JudgedInterval;
use judge::lint::{Finding, Severity};
use judge::model::DomainModel;
use sample::{
    CpuTimes, DomainFacts, DomainSample, DomainState, HostFacts, OwnCost, Sample, SourceStatus,
    growth,
};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Guests with series; more are only counted.
const MAX_GUESTS: usize = 1024;
/// Maximum length of a name, bytes.
const MAX_NAME: usize = 128;

/// A guest's process: its id and when it started.
type GuestProcess = (Option<i32>, u64);

/// Time of a host CPU by mode. The kernel counts guest time as user time, too.
fn modes(c: &CpuTimes) -> [(&'static str, u64); 8] {
    let guest = c.guest_ns.saturating_add(c.guest_nice_ns);
    [
        (
            "user",
            c.user_ns.saturating_add(c.nice_ns).saturating_sub(guest),
        ),
        ("system", c.system_ns),
        ("guest", guest),
        ("idle", c.idle_ns),
        ("iowait", c.iowait_ns),
        ("irq", c.irq_ns),
        ("softirq", c.softirq_ns),
        ("steal", c.steal_ns),
    ]
}

/// Findings of one rule about a guest or the host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FindingMetrics {
    /// Number of findings.
    pub count: u64,
    /// When the first of them was first seen, milliseconds since the epoch.
    pub since_ms: Option<i64>,
}

/// Rule, severity, and the guest's name (empty for the host).
pub type FindingLabels = (&'static str, Severity, String);

/// Everything that is served: the last state, and counters since the start of kvmtop.
#[derive(Debug, Clone, Default)]
pub struct HostMetrics {
    /// Whether each vCPU has its own series.
    pub per_vcpu: bool,
    /// When the last sample was taken, milliseconds since the epoch.
    pub time_ms: i64,
    /// Samples taken.
    pub samples: u64,
    /// The guests by the name that their series have.
    pub guests: BTreeMap<String, GuestMetrics>,
    /// Guests beyond the number that has series.
    pub left_out: u64,
    /// The host's facts.
    pub facts: Arc<HostFacts>,
    /// Its CPUs.
    pub cpus: u64,
    /// Their time by mode, nanoseconds.
    pub cpu_ns: BTreeMap<&'static str, u64>,
    /// The findings.
    pub findings: BTreeMap<FindingLabels, FindingMetrics>,
    /// The sources.
    pub sources: Vec<SourceStatus>,
    /// Events that the kernel dropped.
    pub lost: u64,
    /// Events without room in a bounded table.
    pub overflow: u64,
    /// kvmtop's own cost.
    pub own: OwnCost,
}

impl HostMetrics {
    /// Metrics without a sample.
    pub fn new(per_vcpu: bool) -> Self {
        Self {
            per_vcpu,
            ..Self::default()
        }
    }

    /// Adds a sample and the interval that ends with it, which holds the selected guests. `before`
    /// is the sample at the interval's start.
    pub fn add(&mut self, now: &Sample, before: Option<&Sample>, interval: &JudgedInterval) {
        let before = if interval.model.interval_s.is_some() {
            before
        } else {
            None
        };
        self.samples += 1;
        self.time_ms = now.time_ms;
        self.own = now.own;
        self.sources.clone_from(&interval.model.sources);
        self.add_host(now, before);
        self.add_guests(now, before, interval);
        self.find(&interval.report.findings);
    }

    fn add_host(&mut self, now: &Sample, before: Option<&Sample>) {
        self.facts = now.host.facts.clone();
        self.cpus = now.host.cpus.len() as u64;
        let Some(before) = before else { return };
        let engine = Some(&before.engine).filter(|e| e.generation == now.engine.generation);
        self.lost += growth(now.engine.lost, engine.map(|e| e.lost));
        self.overflow += growth(now.engine.overflow, engine.map(|e| e.overflow));
        let older: HashMap<u32, &CpuTimes> = before.host.cpus.iter().map(|c| (c.cpu, c)).collect();
        for cpu in &now.host.cpus {
            // A CPU that came online has counters from before.
            let Some(older) = older.get(&cpu.cpu) else {
                continue;
            };
            // The kernel's idle and iowait can fall by a tick (`get_iowait_time`, fs/proc/stat.c).
            for ((mode, now), (_, before)) in modes(cpu).into_iter().zip(modes(older)) {
                *self.cpu_ns.entry(mode).or_default() += now.saturating_sub(before);
            }
        }
    }

    fn add_guests(&mut self, now: &Sample, before: Option<&Sample>, interval: &JudgedInterval) {
        let guests = std::mem::take(&mut self.guests).into_values();
        let mut known: HashMap<GuestProcess, GuestMetrics> =
            guests.map(|guest| (id(&guest.facts), guest)).collect();
        let samples: HashMap<GuestProcess, &DomainSample> =
            now.domains.iter().map(|d| (id(&d.facts), d)).collect();
        let mut older: HashMap<GuestProcess, &DomainSample> = HashMap::new();
        for guest in before.iter().flat_map(|before| &before.domains) {
            older.insert(id(&guest.facts), guest);
        }
        let mut living: Vec<&DomainModel> = interval.model.domains.iter().collect();
        living.retain(|guest| guest.state != DomainState::Ended);
        // Another user's guests take neither a name nor a place from those of libvirt or root.
        living.sort_by_key(|d| (d.facts.foreign, d.facts.start_ticks, d.facts.pid));
        for model in living.iter().take(MAX_GUESTS) {
            let id = id(&model.facts);
            let Some(sample) = samples.get(&id) else {
                continue;
            };
            let mut guest = known.remove(&id).unwrap_or_default();
            let older = before.map(|before| (before, older.get(&id).copied()));
            guest.add(sample, older, model, (now.mono_ns, self.per_vcpu));
            // Names differ; their beginnings may be the same.
            let mut label = limited(&model.facts.name.value);
            while self.guests.contains_key(&label) {
                label = format!("{label}#{}", id.0.unwrap_or(0));
            }
            self.guests.insert(label, guest);
        }
        self.left_out = living.len().saturating_sub(MAX_GUESTS) as u64;
    }

    fn find(&mut self, findings: &[Finding]) {
        self.findings.clear();
        for finding in findings {
            let concerned = finding
                .domain
                .iter()
                .chain(&finding.also)
                .map(|name| limited(name));
            let mut concerned: Vec<String> = concerned.collect();
            if concerned.is_empty() {
                concerned.push(String::new());
            }
            // Which of joined rules names the finding may change from sample to sample.
            for rule in finding.folded.iter().chain([&finding.rule]) {
                for domain in &concerned {
                    let labels = (rule.as_str(), finding.severity, domain.clone());
                    let same = self.findings.entry(labels).or_default();
                    same.count += 1;
                    same.since_ms = [same.since_ms, finding.since_ms]
                        .into_iter()
                        .flatten()
                        .min();
                }
            }
        }
    }
}

fn id(facts: &DomainFacts) -> GuestProcess {
    (facts.pid, facts.start_ticks)
}

fn limited(name: &str) -> String {
    kvm::sanitize(name, MAX_NAME)
}
