//! Programs that serve one guest beside its VMM: file systems, TPMs, user networks, disks. What they
//! use is the guest's.

use super::live_guest::LiveGuest;
use crate::proc::file;
use crate::proc::paths::SystemPaths;
use crate::proc::read_context::ReadContext;
use crate::proc::slow_files::{LateFile, SlowFile};
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
/// At most this many bytes of a command line, and of a list of cgroups, are read.
const MAX_LINE: usize = 64 << 10;
/// At most this many programs are looked at in one tick, and this many are followed.
const MAX_LOOKS: usize = 16;
const MAX_PROGRAMS: usize = 4096;
/// Time between two looks for the guest of a program that is not known yet.
const LOOK_NS: u64 = 5_000_000_000;

/// Whether a process of this name serves a guest.
pub(crate) fn is_attendant(comm: &str) -> bool {
    PROGRAMS.contains(&comm)
}

/// A program, and the guest that it serves.
#[derive(Debug, Default)]
struct Attendant {
    owner: Option<i32>,
    line: LateFile,
    due_ns: u64,
}

/// The guests of these programs.
#[derive(Debug, Default)]
pub(crate) struct Attendants {
    programs: BTreeMap<i32, Attendant>,
}

impl Attendants {
    /// Finds the guest of each program; returns those that are found, with their guests.
    /// `programs` ascend.
    pub fn find_owners(
        &mut self,
        programs: &[i32],
        guests: &BTreeMap<i32, LiveGuest>,
        reader: &mut ReadContext,
    ) -> Vec<(i32, i32)> {
        self.programs
            .retain(|pid, _| programs.binary_search(pid).is_ok());
        let mut found = Vec::new();
        let mut looks = 0;
        // Read once for all programs that are looked at now.
        let mut groups = None;
        for pid in programs.iter().take(MAX_PROGRAMS) {
            let program = self.programs.entry(*pid).or_default();
            program.owner.take_if(|owner| !guests.contains_key(owner));
            let is_due = reader.now_ns >= program.due_ns || program.line.is_awaited();
            if program.owner.is_none() && is_due && looks < MAX_LOOKS {
                looks += 1;
                program.due_ns = reader.now_ns + LOOK_NS;
                let file = SlowFile {
                    path: reader.paths.process(*pid, "cmdline"),
                    max: MAX_LINE,
                    uid: None,
                };
                if let Some(Ok(line)) = program.line.read(&mut reader.slow_files, file) {
                    program.owner = owner_by_socket(&line, guests).or_else(|| {
                        let group = group_of(*pid, &reader.paths)?;
                        let groups = groups.get_or_insert_with(|| groups_of(guests, &reader.paths));
                        *groups.get(&group)?
                    });
                }
            }
            found.extend(program.owner.map(|owner| (*pid, owner)));
        }
        found
    }
}

/// The guest that connects to a socket of a program's command line.
fn owner_by_socket(line: &[u8], guests: &BTreeMap<i32, LiveGuest>) -> Option<i32> {
    let words = line.split(|byte| *byte == 0);
    for (guest_pid, guest) in guests {
        let command = guest.description.facts.command.as_ref();
        for socket in command.iter().flat_map(|command| &command.peer_sockets) {
            if words.clone().any(|word| word.ends_with(socket.as_bytes())) {
                return Some(*guest_pid);
            }
        }
    }
    None
}

/// The guest of each cgroup; `None` where several guests share one.
fn groups_of(
    guests: &BTreeMap<i32, LiveGuest>,
    paths: &SystemPaths,
) -> HashMap<String, Option<i32>> {
    let mut groups = HashMap::new();
    for pid in guests.keys() {
        if let Some(group) = group_of(*pid, paths) {
            groups
                .entry(group)
                .and_modify(|owner| *owner = None)
                .or_insert(Some(*pid));
        }
    }
    groups
}

fn group_of(pid: i32, paths: &SystemPaths) -> Option<String> {
    file::read_text(&paths.process(pid, "cgroup"), MAX_LINE).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::fake_proc::FakeProc;
    use kvm::cmdline;
    use std::sync::Arc;

    #[test]
    fn a_program_belongs_to_the_guest_of_its_cgroup_or_of_its_socket() {
        let fake = FakeProc::new();
        let mut reader = ReadContext::new(&fake.paths());
        let mut guests = BTreeMap::new();
        for (pid, group) in [(10, "/a"), (20, "/shared"), (30, "/shared")] {
            fake.process(pid, "qemu")
                .process_file("cgroup", format!("0::{group}\n"));
            let mut guest = LiveGuest::open(pid, 0, &mut reader).unwrap();
            let line = format!(
                "qemu-system-x86_64 -m 1G -chardev socket,id=fs,path=/run/fs{pid} -netdev \
                    '{{\"type\":\"stream\",\"id\":\"n\",\"addr\":{{\"type\":\"unix\",\"path\":\
                    \"/run/net{pid}\"}}}}'"
            );
            let facts = Arc::make_mut(&mut guest.description.facts);
            facts.command = Some(Arc::new(cmdline::parse_text(&line).unwrap()));
            guests.insert(pid, guest);
        }
        let start = |pid, group: &str, line: &str| {
            fake.process(pid, "virtiofsd")
                .process_file("cgroup", format!("0::{group}\n"))
                .process_file("cmdline", line);
        };
        start(40, "/a", "virtiofsd\0--fd=3\0");
        start(41, "/shared", "virtiofsd\0--socket-path=/run/fs30\0");
        start(42, "/other", "passt\0-s\0/run/net20\0");
        start(43, "/shared", "swtpm\0socket\0");
        let mut attendants = Attendants::default();
        let programs = [40, 41, 42, 43];
        let owners = attendants.find_owners(&programs, &guests, &mut reader);
        assert_eq!(owners, [(40, 10), (41, 30), (42, 20)]);

        // Their guest ends.
        guests.remove(&10);
        let owners = attendants.find_owners(&programs, &guests, &mut reader);
        assert_eq!(owners, [(41, 30), (42, 20)]);
    }
}
