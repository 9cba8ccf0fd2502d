//! Network interfaces of a guest that no manager reports on: the tap devices that its VMM holds
//! open, as the host's kernel counts them. With vhost the VMM holds them as well. Interfaces of
//! another network namespace than kvmtop's are not known.

use crate::metadata::source::nic_since;
use crate::proc::fds::KvmFiles;
use crate::proc::file;
use crate::proc::paths::SystemPaths;
use crate::proc::read_context::ReadContext;
use crate::proc::stat::value;
use sample::NicSample;
use std::collections::BTreeMap;
use std::path::Path;

/// At most this many interfaces of one guest are kept.
const MAX_NICS: usize = 64;
/// Time between two readings.
const PERIOD_NS: u64 = 5_000_000_000;

/// The tap devices of one guest.
#[derive(Debug, Default)]
pub(crate) struct GuestNics {
    /// The counters of each as last read; `None` before.
    before: BTreeMap<String, Option<NicSample>>,
    read_ns: u64,
    /// How the counters grew between the last two readings, and the time between them, nanoseconds.
    pub(super) grown: (Vec<NicSample>, u64),
}

impl GuestNics {
    /// Takes over a new list of the VMM's files.
    pub(crate) fn look(&mut self, paths: &SystemPaths, pid: i32, files: &KvmFiles) {
        let mut before = BTreeMap::new();
        let namespace = std::fs::read_link(paths.process(pid, "ns/net")).ok();
        if namespace == std::fs::read_link(paths.proc.join("self/ns/net")).ok() {
            for fd in files.taps.iter().take(MAX_NICS) {
                let fdinfo = file::read_text(&paths.process(pid, &format!("fdinfo/{fd}")), 4096);
                if let Some(name) = tap_name(&fdinfo.unwrap_or_default()) {
                    let known = self.before.remove(&name).flatten();
                    before.insert(name, known);
                }
            }
        }
        self.before = before;
    }

    /// Reads what is due.
    pub(crate) fn read(&mut self, reader: &ReadContext) {
        let over_ns = reader.now_ns.saturating_sub(self.read_ns);
        if self.read_ns > 0 && over_ns < PERIOD_NS {
            return;
        }
        self.read_ns = reader.now_ns;
        self.grown = (Vec::new(), 0);
        for (name, before) in &mut self.before {
            let now = counters(&reader.paths.sys.join("class/net").join(name), name);
            if let (Some(now), Some(before)) = (&now, &*before) {
                self.grown.0.extend(nic_since(now, before));
                self.grown.1 = over_ns;
            }
            *before = now;
        }
    }
}

/// The counters of a tap device as its guest sees them: what the host sends into it, the guest
/// receives.
fn counters(folder: &Path, name: &str) -> Option<NicSample> {
    let count = |file: &str| -> Option<u64> {
        let text = file::read_word(&folder.join("statistics").join(file))?;
        text.parse().ok()
    };
    Some(NicSample {
        name: name.to_owned(),
        rx_bytes: count("tx_bytes")?,
        tx_bytes: count("rx_bytes")?,
        rx_packets: count("tx_packets")?,
        tx_packets: count("rx_packets")?,
        drops: count("rx_dropped")?.saturating_add(count("tx_dropped")?),
    })
}

/// The interface of an open `/dev/net/tun` (`drivers/net/tun.c`, `tun_chr_show_fdinfo`); none
/// before `TUNSETIFF`. A name with a slash is no interface's.
fn tap_name(fdinfo: &str) -> Option<String> {
    let name = kvm::sanitize(value(fdinfo, "iff")?, 16);
    let is_name = !name.is_empty() && !name.contains('/') && !name.starts_with('.');
    is_name.then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::fake_proc::FakeProc;

    #[test]
    fn taps_of_the_guest_are_counted_from_its_side() {
        let fake = FakeProc::new();
        fake.process(10, "qemu")
            .fd(7, "/dev/net/tun")
            .fd(8, "/dev/net/tun")
            .fd(9, "/dev/net/tun");
        fake.write(
            "proc/10/fdinfo/7",
            "pos:\t0\nflags:\t0104002\nmnt_id:\t24\nino:\t5\niff:\ttap0\n",
        );
        fake.write("proc/10/fdinfo/8", "pos:\t0\niff:\ttap0\n");
        fake.write("proc/10/fdinfo/9", "pos:\t0\niff:\t\n");
        let table = |bytes: u64| {
            for (file, count) in [
                ("rx_bytes", bytes),
                ("tx_bytes", 900),
                ("rx_packets", 10),
                ("tx_packets", 20),
                ("rx_dropped", 3),
                ("tx_dropped", 4),
            ] {
                fake.write(
                    &format!("sys/class/net/tap0/statistics/{file}"),
                    &format!("{count}\n"),
                );
            }
        };
        table(1000);
        let mut nics = GuestNics::default();
        let mut reader = ReadContext::new(&fake.paths());
        let mut read = |nics: &mut GuestNics, now_ns: u64| {
            reader.now_ns = now_ns;
            nics.read(&reader);
        };
        nics.look(
            &fake.paths(),
            10,
            &KvmFiles::read(&fake.paths(), 10).unwrap(),
        );
        assert!(
            nics.before.keys().eq(["tap0"]),
            "the queues of one interface are one"
        );
        read(&mut nics, 1);
        assert_eq!(nics.grown, (Vec::new(), 0));
        table(6000);
        read(&mut nics, 2);
        assert_eq!(nics.grown.1, 0, "read every 5 s");
        read(&mut nics, 1 + PERIOD_NS);
        let grown = NicSample {
            name: "tap0".into(),
            tx_bytes: 5000,
            ..NicSample::default()
        };
        assert_eq!(nics.grown, (vec![grown], PERIOD_NS));
    }

    #[test]
    fn an_interface_that_was_made_again_has_no_growth() {
        let nic = |bytes| NicSample {
            rx_bytes: bytes,
            ..NicSample::default()
        };
        assert_eq!(nic_since(&nic(5), &nic(9)), None);
    }

    #[test]
    fn no_name_leads_out_of_its_folder() {
        assert_eq!(tap_name("iff:\t../x\n"), None);
        assert_eq!(tap_name("iff:\t..\n"), None);
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read(text in ".{0,400}") {
            let _ = tap_name(&text);
        }
    }
}
