//! Tags and pool of a guest of Proxmox VE, whose configuration is in /etc/pve.
//!
//! That is a file system of a daemon (pmxcfs), which may not answer: a thread that nobody waits for
//! reads it.

use super::stagger;
use crate::proc::file;
use crate::proc::paths::SystemPaths;
use crate::proc::read_context::ReadContext;
use crate::proc::slow_files::Late;
use kvm::labels::{self, Labels};

/// A guest's configuration is some KiB with its snapshots, the list of users and pools more.
const MAX_FILE: usize = 1 << 20;
/// Time between two looks.
const PERIOD_NS: u64 = 60_000_000_000;

/// Stands for a user of its own: a daemon that does not answer takes no other reader's places.
const CONFIG_READER: u32 = u32::MAX - 1;

/// Looks at the configuration of a guest now and then.
#[derive(Default)]
pub(super) struct ProxmoxConfig {
    late: Late<Labels>,
    due_ns: u64,
}

impl ProxmoxConfig {
    /// Looks if it is time to, and returns what an earlier look found.
    pub(super) fn read(&mut self, pid: i32, vmid: &str, reader: &ReadContext) -> Option<Labels> {
        let found = self.late.take();
        if reader.now_ns >= self.due_ns && !self.late.is_awaited() {
            let paths = reader.paths.clone();
            let vmid = vmid.to_owned();
            let work = move || labels_of(&paths, &vmid);
            self.late = Late(reader.slow_files.run(Some(CONFIG_READER), work));
            if self.late.is_awaited() {
                self.due_ns = reader.now_ns + PERIOD_NS + stagger(pid);
            }
        }
        found
    }
}

/// The labels that the configuration has now.
fn labels_of(paths: &SystemPaths, vmid: &str) -> Labels {
    let folder = paths.etc.join("pve");
    let config = folder.join("qemu-server").join(format!("{vmid}.conf"));
    let config = file::read_text(&config, MAX_FILE).unwrap_or_default();
    let users = file::read_text(&folder.join("user.cfg"), MAX_FILE).unwrap_or_default();
    Labels {
        owner: labels::proxmox_pool(&users, vmid),
        ..Labels::of_proxmox(&config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::fake_proc::FakeProc;
    use std::time::Duration;

    #[test]
    fn tags_and_pool_are_read_now_and_then() {
        let fake = FakeProc::new();
        fake.write("etc/pve/qemu-server/100.conf", "name: web\ntags: prod;db\n");
        fake.write("etc/pve/user.cfg", "pool:shop::100,101::\n");
        let mut config = ProxmoxConfig::default();
        let mut reader = ReadContext::new(&fake.paths());
        let mut look = |seconds: u64| {
            reader.now_ns = seconds * 1_000_000_000;
            let mut found = config.read(32, "100", &reader);
            // The answer comes from a thread.
            for _ in 0..1000 {
                if !config.late.is_awaited() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(1));
                found = config.read(32, "100", &reader);
            }
            found
        };
        let found = look(1).unwrap();
        assert_eq!(found.tags, ["prod", "db"]);
        assert_eq!(found.owner.as_deref(), Some("shop"));
        fake.write("etc/pve/qemu-server/100.conf", "tags: test\n");
        assert_eq!(look(2), None, "not yet again");
        assert_eq!(look(80).unwrap().tags, ["test"]);
    }
}
