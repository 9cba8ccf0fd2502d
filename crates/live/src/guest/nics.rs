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
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// At most this many queues of one guest are looked at.
const MAX_QUEUES: usize = 256;

/// How a tap device is set up.
#[derive(Debug, Clone, Default, PartialEq)]
struct TapSetup {
    /// The number of its queues that the VMM has open.
    queues: u32,
    /// What it is plugged into.
    bridge: Option<String>,
}

/// The tap devices of one guest.
#[derive(Debug, Default)]
pub(crate) struct GuestNics {
    taps: BTreeMap<String, TapSetup>,
    /// The VMM's network namespace: `net:[4026531840]`.
    namespace: PathBuf,
    before: Option<Arc<NetworkTable>>,
    /// How the counters grew between the last two readings, and the time between them, nanoseconds.
    pub grown: (Vec<NicSample>, u64),
}

impl GuestNics {
    /// Takes over a new list of the VMM's files.
    pub fn take_files(&mut self, paths: &SystemPaths, pid: i32, files: &KvmFiles) {
        self.namespace = std::fs::read_link(paths.process(pid, "ns/net")).unwrap_or_default();
        self.taps.clear();
        for fd in files.taps.iter().take(MAX_QUEUES) {
            let fdinfo = file::read_text(&paths.process(pid, &format!("fdinfo/{fd}")), 4096);
            if let Some(name) = tap_name(&fdinfo.unwrap_or_default()) {
                self.taps.entry(name).or_default().queues += 1;
            }
        }
        let own = std::fs::read_link(paths.proc.join("self/ns/net")).unwrap_or_default();
        // /sys shows the interfaces of kvmtop's own namespace alone.
        if own == self.namespace {
            for (name, tap) in &mut self.taps {
                let device = paths.sys.join("class/net").join(name);
                tap.bridge = master(&device);
            }
        }
    }

    /// Adds how the devices are set up to what somebody counted of them.
    pub(crate) fn describe(&self, nics: &mut [NicSample]) {
        for nic in nics {
            if let Some(tap) = self.taps.get(&nic.name) {
                nic.queues = Some(tap.queues);
                nic.bridge.clone_from(&tap.bridge);
            }
        }
    }

    /// Reads what is due.
    pub fn read(&mut self, pid: i32, reader: &mut ReadContext) {
        let mut table = None;
        if !self.taps.is_empty() {
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
        for name in self.taps.keys() {
            if let (Some(now), Some(before)) = (now.nics.get(name), before.nics.get(name)) {
                self.grown.0.extend(nic_since(now, before));
            }
        }
        self.before = table;
    }
}

/// The bridge of an interface; Open vSwitch names its kernel part `ovs-system`.
fn master(device: &Path) -> Option<String> {
    let master = std::fs::read_link(device.join("master")).ok()?;
    Some(kvm::sanitize(&master.file_name()?.to_string_lossy(), 16))
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
        let tap = fake.paths().sys.join("class/net/tap0");
        std::fs::create_dir_all(&tap).unwrap();
        std::os::unix::fs::symlink("../br0", tap.join("master")).unwrap();
        nics.take_files(
            &fake.paths(),
            10,
            &KvmFiles::read(&fake.paths(), 10).unwrap(),
        );
        let bridged = TapSetup {
            queues: 2,
            bridge: Some("br0".into()),
        };
        assert_eq!(nics.taps, [("tap0".to_owned(), bridged)].into());
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
