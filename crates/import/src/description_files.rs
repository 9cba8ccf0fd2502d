//! Description files given together with a recorded session: XML, command lines and memory trees of its domains, the
//! topology and the kernel log of its host. They complete the session's samples.

use super::Imported;
use super::guest::{self, UNNAMED};
use kvm::topology::HostTopology;
use sample::{DomainFacts, DomainSample, HostFacts, HostSample, Origin, Sample, ThreadEvents};
use std::sync::Arc;

/// Facts of domains and host from files. They fill what a sample leaves open and replace nothing that it has.
#[derive(Debug, Default)]
pub struct DescriptionFiles {
    described: Vec<Arc<DomainFacts>>,
    host: HostSample,
}

impl DescriptionFiles {
    /// Takes the descriptions of imported files. Also returns the names of domains that a file measured: only a
    /// session's own measurements are used.
    pub fn new(imported: Imported) -> (Self, Vec<String>) {
        let Sample { host, domains, .. } = imported.sample;
        let measured = |d: &DomainSample| {
            guest::events(d).any(|e| *e != ThreadEvents::default())
                || !d.counters.is_empty()
                || !d.kvm_events.is_empty()
        };
        let (measured, described): (Vec<_>, Vec<_>) = domains.into_iter().partition(measured);
        let described = described.into_iter().map(|d| d.facts).collect();
        (Self { described, host }, measured.into_iter().map(|d| d.facts.name.value.clone()).collect())
    }

    /// Completes a sample.
    pub fn complete(&self, sample: &mut Sample) {
        let is_only = sample.domains.len() == 1;
        for domain in &mut sample.domains {
            if let Some(description) = description(&self.described, &domain.facts, is_only) {
                fill(Arc::make_mut(&mut domain.facts), description);
            }
        }
        let HostFacts { topology, params, .. } = &*self.host.facts;
        if *topology != HostTopology::default() || !params.is_empty() {
            let facts = Arc::make_mut(&mut sample.host.facts);
            if facts.topology == HostTopology::default() {
                facts.topology.clone_from(topology);
            }
            for (name, value) in params {
                facts.params.entry(name.clone()).or_insert_with(|| value.clone());
            }
        }
        if sample.host.kernel_log.is_empty() {
            sample.host.kernel_log.clone_from(&self.host.kernel_log);
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

/// Fills gaps of the recorded facts from the description.
fn fill(all: &mut DomainFacts, described: &DomainFacts) {
    let described = described.clone();
    all.uuid = all.uuid.take().or(described.uuid);
    all.machine = all.machine.take().or(described.machine);
    all.vcpus = all.vcpus.take().or(described.vcpus);
    all.guest_os = all.guest_os.take().or(described.guest_os);
    if all.xml.is_none() {
        (all.xml, all.xml_text) = (described.xml, described.xml_text);
    }
    all.command = all.command.take().or(described.command);
    // The guest's own memory tree is better than built-in names, which are a guess.
    if described.devices.is_some() && all.devices.as_ref().is_none_or(|d| d.from == Origin::BuiltIn) {
        all.devices = described.devices;
    }
}
