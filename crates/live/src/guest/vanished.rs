//! Guests that started and ended between two ticks, known by their events only.

use super::exited_threads;
use super::traced_process::TracedProcess;
use engine::events::TracedThread;
use kvm::sanitize;
use kvm::thread_name::{Role, classify};
use sample::{DomainFacts, DomainSample, DomainState, Known, Origin, ThreadSample, Vmm};
use std::sync::Arc;

/// The guests of one process id, one after the other, of which only their threads' events are left.
pub(crate) fn from_events(pid: i32, mut traced: TracedProcess) -> Vec<DomainSample> {
    let mut domains = Vec::new();
    while !traced.is_empty() {
        let later = traced.take_later(None);
        domains.extend(guest(pid, traced.into_threads().map(|life| (life.key.tid, life)).collect()));
        traced = later;
    }
    domains
}

/// `None` when the events are not a guest's.
fn guest(pid: i32, traced: Vec<(i32, TracedThread)>) -> Option<DomainSample> {
    if !traced.iter().any(|(_, t)| exited_threads::ran_a_vcpu(&t.events)) {
        return None;
    }
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
        ..DomainSample::default()
    })
}
