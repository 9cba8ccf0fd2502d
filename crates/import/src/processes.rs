//! What tools print about processes, as facts of the guests that these run.

use super::gathered::{Description, DomainFiles};
use super::guest::ImportedGuest;
use kvm::process_text::ProcessText;
use kvm::thread_name::Role;
use std::collections::{BTreeMap, BTreeSet};

/// Gives each process to the domain that it runs, or to the only one.
pub(super) fn add(domains: &mut Vec<DomainFiles>, found: &ProcessText, notes: &mut Vec<String>) {
    let known: Vec<_> = domains.iter().map(|domain| known_threads(&domain.description)).collect();
    let threads: BTreeSet<i32> = known.iter().flat_map(|known| known.keys().copied()).collect();
    let mut pids: Vec<i32> = found.pids().into_iter().filter(|pid| !threads.contains(pid)).collect();
    for (domain, known) in domains.iter_mut().zip(&known) {
        let of_guest = domain.guest.as_ref().and_then(|guest| guest.pid);
        if let Some(pid) = domain.description.process().or(of_guest) {
            give(domain, pid, known, found);
            pids.retain(|other| *other != pid);
        }
    }
    match (pids.as_slice(), domains.as_mut_slice()) {
        ([], _) => {}
        ([pid], [only]) if only.description.process().is_none() => give(only, *pid, &BTreeMap::new(), found),
        (all, []) => {
            for pid in all {
                let mut domain = DomainFiles::default();
                give(&mut domain, *pid, &BTreeMap::new(), found);
                domains.push(domain);
            }
        }
        (all, _) => {
            let some: Vec<String> = all.iter().take(5).map(i32::to_string).collect();
            notes.push(format!(
                "no file says which guests the processes {} run (add 'ps aux' or the status XML, \
                 /run/libvirt/qemu/NAME.xml): what is known of them is not used",
                some.join(", ")
            ));
        }
    }
}

/// The threads that a status XML names.
fn known_threads(description: &Description) -> BTreeMap<i32, (Role, u32)> {
    let xml = description.xml.as_ref().map(|(xml, _)| xml);
    let vcpus = xml.iter().flat_map(|xml| &xml.vcpu_threads).map(|(id, tid)| (*tid, (Role::Vcpu, *id)));
    let iothreads = xml.iter().flat_map(|xml| &xml.iothread_threads).map(|(id, tid)| (*tid, (Role::Iothread, *id)));
    vcpus.chain(iothreads).collect()
}

fn give(domain: &mut DomainFiles, pid: i32, known: &BTreeMap<i32, (Role, u32)>, found: &ProcessText) {
    domain.description.threads.complete(found.cpus(pid, known));
    let Some(memory) = found.memory.get(&pid) else { return };
    let guest = domain.guest.get_or_insert_with(ImportedGuest::default);
    guest.pid = guest.pid.or(Some(pid));
    guest.node_memory.clone_from(&memory.nodes);
    guest.swap_bytes = memory.swap;
}
