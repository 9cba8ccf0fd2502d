//! Description files given together with a recorded session: XML, command lines and memory trees of its domains, the
//! topology and the kernel log of its host. They complete the session's samples.

use super::Imported;
use super::guest::UNNAMED;
use kvm::kernel_log::LogLine;
use kvm::topology::HostTopology;
use sample::{DomainFacts, DomainSample, Origin, Sample, ThreadEvents};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Limit of the completed facts that are kept for reuse.
const MAX_COMPLETED: usize = 4096;

/// Facts of domains and host from files. They fill what a sample leaves open and replace nothing that it has.
#[derive(Debug, Default)]
pub struct DescriptionFiles {
    described: Vec<Arc<DomainFacts>>,
    topology: Option<HostTopology>,
    /// The host's parameters, such as its module parameters.
    params: BTreeMap<String, String>,
    log: Vec<LogLine>,
    /// Facts as recorded and as completed, so that samples share the completed ones as they shared the recorded.
    completed: Vec<(Arc<DomainFacts>, Arc<DomainFacts>)>,
}

impl DescriptionFiles {
    /// Takes the descriptions of imported files. Also returns the names of domains that a file measured: only a
    /// session's own measurements are used.
    pub fn new(imported: Imported) -> (Self, Vec<String>) {
        let Sample { host, domains, .. } = imported.sample;
        let measured = |d: &DomainSample| {
            let mut events = d.threads.iter().map(|t| &t.events).chain([&d.unattributed]);
            events.any(|e| *e != ThreadEvents::default()) || !d.counters.is_empty() || !d.kvm_events.is_empty()
        };
        let (measured, described): (Vec<_>, Vec<_>) = domains.into_iter().partition(measured);
        let topology = host.facts.topology.clone();
        let files = Self {
            described: described.into_iter().map(|d| d.facts).collect(),
            topology: (topology != HostTopology::default()).then_some(topology),
            params: host.facts.params.clone(),
            log: host.kernel_log,
            ..Self::default()
        };
        (files, measured.into_iter().map(|d| d.facts.name.value.clone()).collect())
    }

    /// Whether there is nothing to add.
    pub fn is_empty(&self) -> bool {
        self.described.is_empty() && self.topology.is_none() && self.params.is_empty() && self.log.is_empty()
    }

    /// Completes a sample.
    pub fn complete(&mut self, sample: &mut Sample) {
        let is_only = sample.domains.len() == 1;
        for domain in &mut sample.domains {
            let recorded = domain.facts.clone();
            if let Some((_, completed)) = self.completed.iter().find(|(from, _)| Arc::ptr_eq(from, &recorded)) {
                domain.facts = completed.clone();
                continue;
            }
            if let Some(description) = description(&self.described, &recorded, is_only) {
                domain.facts = Arc::new(fill(&recorded, description));
            }
            if self.completed.len() >= MAX_COMPLETED {
                self.completed.clear();
            }
            self.completed.push((recorded, domain.facts.clone()));
        }
        let recorded = &sample.host.facts;
        let topology = self.topology.as_ref().filter(|_| recorded.topology == HostTopology::default());
        if topology.is_some() || self.params.keys().any(|name| !recorded.params.contains_key(name)) {
            let facts = Arc::make_mut(&mut sample.host.facts);
            facts.topology = topology.cloned().unwrap_or_else(|| std::mem::take(&mut facts.topology));
            for (name, value) in &self.params {
                facts.params.entry(name.clone()).or_insert_with(|| value.clone());
            }
        }
        if sample.host.kernel_log.is_empty() {
            sample.host.kernel_log.clone_from(&self.log);
        }
    }
}

/// The description of a recorded domain: by UUID or else by name. A single one without a name belongs to the only
/// domain.
fn description<'a>(all: &'a [Arc<DomainFacts>], recorded: &DomainFacts, is_only: bool) -> Option<&'a DomainFacts> {
    let uuid = |facts: &DomainFacts| facts.uuid.as_ref().map(|uuid| uuid.value.to_ascii_lowercase());
    let recorded_uuid = uuid(recorded);
    let same = |d: &&Arc<DomainFacts>| match (uuid(d), &recorded_uuid) {
        (Some(a), Some(b)) => a == *b,
        _ => d.name.value == recorded.name.value,
    };
    let unnamed = || match all {
        [one] if is_only && one.uuid.is_none() && one.name.value == UNNAMED => Some(one),
        _ => None,
    };
    all.iter().find(same).or_else(unnamed).map(|facts| &**facts)
}

/// The recorded facts, with gaps filled from the description.
fn fill(recorded: &DomainFacts, described: &DomainFacts) -> DomainFacts {
    let mut all = recorded.clone();
    let described = described.clone();
    all.uuid = all.uuid.or(described.uuid);
    all.machine = all.machine.or(described.machine);
    all.vcpus = all.vcpus.or(described.vcpus);
    all.guest_os = all.guest_os.or(described.guest_os);
    if all.xml.is_none() {
        (all.xml, all.xml_text) = (described.xml, described.xml_text);
    }
    all.command = all.command.or(described.command);
    // The guest's own memory tree is better than built-in names, which are a guess.
    if described.devices.is_some() && all.devices.as_ref().is_none_or(|d| d.from == Origin::BuiltIn) {
        all.devices = described.devices;
    }
    all
}
