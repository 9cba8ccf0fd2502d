//! Description files given together with a recorded session: XML, command lines and memory trees of its domains, the
//! topology and the kernel log of its host. They complete the session's samples.

use super::guest::UNNAMED;
use super::imported::Imported;
use kvm::kernel_log::LogLine;
use kvm::topology::HostTopology;
use sample::{DomainFacts, DomainSample, HostFacts, Known, Origin, Sample, ThreadEvents};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Limit of the completed facts that are kept for reuse.
const MAX_COMPLETED: usize = 4096;

/// Facts of domains and host from files. They fill what a sample leaves open and replace nothing that it has.
#[derive(Debug, Default)]
pub struct DescriptionFiles {
    described: Vec<Arc<DomainFacts>>,
    topology: Option<HostTopology>,
    /// What the host offers to its guests, and the like.
    params: BTreeMap<String, String>,
    log: Vec<LogLine>,
    /// Facts as recorded and as completed, so that samples go on sharing them.
    completed: Vec<(Arc<DomainFacts>, Arc<DomainFacts>)>,
    host: Option<(Arc<HostFacts>, Arc<HostFacts>)>,
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
            domain.facts = self.completed(&domain.facts, is_only);
        }
        if self.topology.is_some() || !self.params.is_empty() {
            let done = self.host.take().filter(|(from, _)| Arc::ptr_eq(from, &sample.host.facts));
            let (from, to) = done.unwrap_or_else(|| {
                let mut facts = (*sample.host.facts).clone();
                let topology = self.topology.as_ref().filter(|_| facts.topology == HostTopology::default());
                facts.topology = topology.cloned().unwrap_or(facts.topology);
                for (name, value) in &self.params {
                    facts.params.entry(name.clone()).or_insert_with(|| value.clone());
                }
                (sample.host.facts.clone(), Arc::new(facts))
            });
            sample.host.facts = to.clone();
            self.host = Some((from, to));
        }
        if sample.host.kernel_log.is_empty() {
            sample.host.kernel_log.clone_from(&self.log);
        }
    }

    fn completed(&mut self, recorded: &Arc<DomainFacts>, is_only: bool) -> Arc<DomainFacts> {
        if let Some((_, completed)) = self.completed.iter().find(|(from, _)| Arc::ptr_eq(from, recorded)) {
            return completed.clone();
        }
        let text = |k: Option<&Known<String>>| k.map(|k| k.value.to_ascii_lowercase());
        let uuid = text(recorded.uuid.as_ref());
        let same = |d: &&Arc<DomainFacts>| match (text(d.uuid.as_ref()), &uuid) {
            (Some(a), Some(b)) => a == *b,
            _ => d.name.value == recorded.name.value,
        };
        // As among files: a single description without a name belongs to the only domain.
        let unnamed = || match self.described.as_slice() {
            [one] if is_only && one.uuid.is_none() && one.name.value == UNNAMED => Some(one),
            _ => None,
        };
        let Some(described) = self.described.iter().find(same).or_else(unnamed) else { return recorded.clone() };
        let completed = Arc::new(fill(recorded, described));
        if self.completed.len() >= MAX_COMPLETED {
            self.completed.clear();
        }
        self.completed.push((recorded.clone(), completed.clone()));
        completed
    }
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
    all.persistent = all.persistent.or(described.persistent);
    // The guest's own memory tree is better than built-in names, which are a guess.
    if described.devices.is_some() && all.devices.as_ref().is_none_or(|d| d.from == Origin::BuiltIn) {
        all.devices = described.devices;
    }
    all
}
