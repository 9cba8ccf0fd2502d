//! Programs that serve one guest beside its VMM: file systems, TPMs, user networks, disks. What they
//! use is the guest's.

use super::live_guest::LiveGuest;
use crate::proc::file;
use crate::proc::read_context::ReadContext;
use std::collections::{BTreeMap, HashMap};

/// Their names, as far as the kernel keeps them (15 bytes).
const PROGRAMS: [&str; 10] = [
    "virtiofsd",
    "swtpm",
    "passt",
    "passt.avx2",
    "slirp-helper",
    "vhost-user-blk",
    "vhost-user-gpu",
    "qemu-storage-da",
    "qemu-vnc",
    "nbdkit",
];
/// Time between two looks for the guest of a program that is not known yet.
const LOOK_NS: u64 = 5_000_000_000;

/// Whether a process of this name serves a guest.
pub(crate) fn is_attendant(comm: &str) -> bool {
    PROGRAMS.contains(&comm)
}

/// The guests of these programs.
#[derive(Debug, Default)]
pub(crate) struct Attendants {
    owners: HashMap<i32, Option<i32>>,
    due_ns: u64,
}

impl Attendants {
    /// Finds the guest of each program; returns those that are found, with their guests.
    pub(crate) fn find_owners(
        &mut self,
        programs: &[i32],
        guests: &BTreeMap<i32, LiveGuest>,
        reader: &ReadContext,
    ) -> Vec<(i32, i32)> {
        self.owners.retain(|pid, owner| {
            programs.contains(pid) && owner.is_none_or(|owner| guests.contains_key(&owner))
        });
        let is_due = reader.now_ns >= self.due_ns;
        if is_due {
            self.due_ns = reader.now_ns + LOOK_NS;
        }
        for pid in programs {
            let owner = self.owners.get(pid).copied();
            if owner.is_none() || (owner == Some(None) && is_due) {
                self.owners.insert(*pid, owner_of(*pid, guests, reader));
            }
        }
        let known = self.owners.iter();
        known
            .filter_map(|(pid, owner)| Some((*pid, (*owner)?)))
            .collect()
    }
}

/// The only guest of the program's cgroup, else the one that connects to its socket.
fn owner_of(pid: i32, guests: &BTreeMap<i32, LiveGuest>, reader: &ReadContext) -> Option<i32> {
    let group_of = |pid: i32| file::read_text(&reader.paths.process(pid, "cgroup"), 64 * 1024).ok();
    let group = group_of(pid)?;
    let mut same = guests
        .keys()
        .filter(|guest| group_of(**guest).as_ref() == Some(&group));
    if let (Some(guest), None) = (same.next(), same.next()) {
        return Some(*guest);
    }
    let line = file::read_text(&reader.paths.process(pid, "cmdline"), 64 * 1024).ok()?;
    let names = |socket: &String| line.split('\0').any(|word| word.ends_with(socket.as_str()));
    let mut connected = guests.iter().filter(|(_, guest)| {
        let command = guest.description.facts.command.as_ref();
        command.is_some_and(|command| command.peer_sockets.iter().any(names))
    });
    connected.next().map(|(guest, _)| *guest)
}
