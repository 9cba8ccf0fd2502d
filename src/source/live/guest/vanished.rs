//! Guests that started and ended between two ticks, known by their events only.

use super::exited_threads;
use crate::kvm::sanitize;
use crate::kvm::thread_name::{Role, classify};
use crate::sample::{DomainFacts, DomainSample, DomainState, Known, Origin, ThreadSample, Vmm};
use crate::source::events::{Reading, TracedThread};
use std::sync::Arc;

/// A guest of which only its threads' events are left; `None` when the events are not a guest's. Takes them out of the
/// reading.
pub(crate) fn from_events(pid: i32, tids: &[i32], reading: &mut Reading) -> Option<DomainSample> {
    let mut traced: Vec<(i32, TracedThread)> =
        tids.iter().filter_map(|tid| Some((*tid, reading.threads.remove(tid)?))).collect();
    let kvm_events = reading.kvm_events.remove(&pid).unwrap_or_default();
    if !traced.iter().any(|(_, t)| exited_threads::ran_a_vcpu(&t.events)) {
        return None;
    }
    traced.sort_by_key(|(tid, _)| *tid);
    let main = traced.iter().find(|(tid, _)| *tid == pid).or(traced.first())?;
    let comm = sanitize(&main.1.comm, 64);
    let facts = DomainFacts {
        name: Known::new(format!("{comm}-{pid}"), Origin::Process),
        vmm: Vmm::Other(comm),
        pid: Some(pid),
        ..DomainFacts::default()
    };
    let threads = traced.into_iter().map(|(tid, t)| {
        let (role, index) = match classify(&t.comm, tid == pid) {
            by_name @ (Role::Vcpu, _) => by_name,
            _ if exited_threads::ran_a_vcpu(&t.events) => (Role::Vcpu, t.vcpu),
            by_name => by_name,
        };
        ThreadSample { tid, comm: sanitize(&t.comm, 64), role, index, events: t.events, ..ThreadSample::default() }
    });
    Some(DomainSample {
        threads: threads.collect(),
        facts: Arc::new(facts),
        state: DomainState::Ended,
        kvm_events,
        ..DomainSample::default()
    })
}
