//! Network interfaces of a guest that no manager reports on: the tap devices that its VMM holds
//! open, as the host's kernel counts them. With vhost the VMM holds them as well.

use crate::metadata::source::nic_since;
use crate::proc::fds::KvmFiles;
use crate::proc::file;
use crate::proc::network_tables::NetworkTable;
use crate::proc::paths::SystemPaths;
use crate::proc::read_context::ReadContext;
use crate::proc::stat::value;
use sample::NicSample;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

/// At most this many interfaces of one guest are kept.
const MAX_NICS: usize = 64;

/// The tap devices of one guest.
#[derive(Debug, Default)]
pub(crate) struct GuestNics {
    names: BTreeSet<String>,
    /// The VMM's network namespace: `net:[4026531840]`.
    namespace: PathBuf,
    before: Option<Arc<NetworkTable>>,
    /// How the counters grew between the last two readings, and the time between them, nanoseconds.
    pub(super) grown: (Vec<NicSample>, u64),
}

impl GuestNics {
    /// Takes over a new list of the VMM's files.
    pub(crate) fn take_files(&mut self, paths: &SystemPaths, pid: i32, files: &KvmFiles) {
        self.namespace = std::fs::read_link(paths.process(pid, "ns/net")).unwrap_or_default();
        self.names.clear();
        for fd in files.taps.iter().take(MAX_NICS) {
            let fdinfo = file::read_text(&paths.process(pid, &format!("fdinfo/{fd}")), 4096);
            self.names.extend(tap_name(&fdinfo.unwrap_or_default()));
        }
    }

    /// Reads what is due.
    pub(crate) fn read(&mut self, pid: i32, reader: &mut ReadContext) {
        let mut table = None;
        if !self.names.is_empty() {
            let networks = &mut reader.networks;
            table = networks.table(&reader.paths, pid, &self.namespace, reader.now_ns);
        }
        let (Some(now), Some(before)) = (&table, &self.before) else {
            (self.before, self.grown) = (table, (Vec::new(), 0));
            return;
        };
        if now.read_ns == before.read_ns {
            return;
        }
        self.grown = (Vec::new(), now.read_ns - before.read_ns);
        for name in &self.names {
            if let (Some(now), Some(before)) = (now.nics.get(name), before.nics.get(name)) {
                self.grown.0.extend(nic_since(now, before));
            }
        }
        self.before = table;
    }
}

/// The interface of an open `/dev/net/tun` (`drivers/net/tun.c`, `tun_chr_show_fdinfo`); none
/// before `TUNSETIFF`.
fn tap_name(fdinfo: &str) -> Option<String> {
    Some(kvm::sanitize(value(fdinfo, "iff")?, 16)).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::fake_proc::FakeProc;

    const PERIOD_NS: u64 = 5_000_000_000;
    const HEAD: &str = "Inter-|   Receive          |  Transmit\n face |bytes    packets errs drop \
                        fifo frame compressed multicast|bytes    packets errs drop fifo colls \
                        carrier compressed\n";

    #[test]
    fn taps_of_the_guest_are_counted_from_its_side() {
        let fake = FakeProc::new();
        let p = fake
            .process(10, "qemu")
            .fd(7, "/dev/net/tun")
            .fd(8, "/dev/net/tun")
            .fd(9, "/dev/net/tun");
        fake.write(
            "proc/10/fdinfo/7",
            "pos:\t0\nflags:\t0104002\nmnt_id:\t24\nino:\t5\niff:\ttap0\n",
        );
        fake.write("proc/10/fdinfo/8", "pos:\t0\niff:\ttap0\n");
        fake.write("proc/10/fdinfo/9", "pos:\t0\niff:\t\n");
        std::fs::create_dir_all(fake.paths().process(10, "net")).unwrap();
        let table = |bytes: u64| {
            format!(
                "{HEAD}    lo:  5 1 0 0 0 0 0 0  5 1 0 0 0 0 0 0\n  tap0: {bytes} 10 0 3 0 0 0 0  \
                    900 20 0 4 0 0 0 0\n"
            )
        };
        let p = p.process_file("net/dev", table(1000).as_bytes());
        let mut nics = GuestNics::default();
        let mut reader = ReadContext::new(&fake.paths());
        let read = |nics: &mut GuestNics, reader: &mut ReadContext, now_ns: u64| {
            reader.now_ns = now_ns;
            reader.networks.begin(now_ns);
            nics.read(10, reader);
        };
        nics.take_files(
            &fake.paths(),
            10,
            &KvmFiles::read(&fake.paths(), 10).unwrap(),
        );
        assert_eq!(
            nics.names,
            ["tap0".to_owned()].into(),
            "the queues of one interface are one"
        );
        read(&mut nics, &mut reader, 0);
        assert_eq!(nics.grown, (Vec::new(), 0));
        let p = p.process_file("net/dev", table(6000).as_bytes());
        read(&mut nics, &mut reader, 1);
        assert_eq!(nics.grown.1, 0, "read every 5 s");
        read(&mut nics, &mut reader, PERIOD_NS);
        let grown = NicSample {
            name: "tap0".into(),
            tx_bytes: 5000,
            rx_drops: Some(0),
            ..NicSample::default()
        };
        assert_eq!(nics.grown, (vec![grown.clone()], PERIOD_NS));
        // While a screen shows it.
        p.process_file("net/dev", table(11_000).as_bytes());
        reader.networks.is_watched = true;
        read(&mut nics, &mut reader, PERIOD_NS + 2_000_000_000);
        assert_eq!(nics.grown, (vec![grown], 2_000_000_000));
    }

    #[test]
    fn an_interface_that_was_made_again_has_no_growth() {
        let nic = |bytes| NicSample {
            rx_bytes: bytes,
            ..NicSample::default()
        };
        assert_eq!(nic_since(&nic(5), &nic(9)), None);
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read(text in ".{0,400}") {
            let _ = tap_name(&text);
        }
    }
}
