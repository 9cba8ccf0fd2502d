//! The network interfaces of the namespaces that guests are in, as the host's kernel counts them.

use super::file;
use super::paths::SystemPaths;
use crate::metadata::source::devices_period;
use procfs::net::{DeviceStatus, InterfaceDeviceStatus};
use sample::NicSample;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// At most this many bytes of `net/dev` are read.
const MAX_TABLE: usize = 4 << 20;
/// At most this many namespaces are read in one tick.
const MAX_READS: usize = 16;

/// Counters of interfaces by name, and when they were read, monotonic nanoseconds.
#[derive(Debug)]
pub(crate) struct NetworkTable {
    pub read_ns: u64,
    pub nics: BTreeMap<String, NicSample>,
}

/// The interfaces of the host's network namespaces: guests of one namespace share its reading.
#[derive(Debug, Default)]
pub(crate) struct NetworkTables {
    /// Whether a screen shows the interfaces.
    pub is_watched: bool,
    /// By namespace: `net:[4026531840]`.
    tables: HashMap<PathBuf, Arc<NetworkTable>>,
    /// How many namespaces may still be read in this tick.
    reads_left: usize,
}

impl NetworkTables {
    /// Begins a tick. Namespaces that no guest asked for lately are forgotten.
    pub fn begin(&mut self, now_ns: u64) {
        self.reads_left = MAX_READS;
        let max_age_ns = 4 * self.period_ns();
        self.tables
            .retain(|_, table| now_ns.saturating_sub(table.read_ns) < max_age_ns);
    }

    /// Time between two readings of a namespace.
    fn period_ns(&self) -> u64 {
        devices_period(self.is_watched).as_nanos() as u64
    }

    /// The interfaces of a process's network namespace, as last read.
    pub fn table(
        &mut self,
        paths: &SystemPaths,
        pid: i32,
        namespace: &Path,
        now_ns: u64,
    ) -> Option<Arc<NetworkTable>> {
        let period_ns = self.period_ns();
        let known = self.tables.get(namespace).cloned();
        let is_due = known
            .as_ref()
            .is_none_or(|t| now_ns.saturating_sub(t.read_ns) >= period_ns);
        if !is_due || self.reads_left == 0 {
            return known;
        }
        self.reads_left -= 1;
        let devices: InterfaceDeviceStatus =
            file::read_as(&paths.process(pid, "net/dev"), MAX_TABLE)?;
        let table = Arc::new(NetworkTable {
            read_ns: now_ns,
            nics: devices.0.values().map(of_guest).collect(),
        });
        self.tables.insert(namespace.to_owned(), table.clone());
        Some(table)
    }
}

/// The name of an interface, and its counters as the guest of a tap device sees them: what the host
/// sends into a tap device, the guest receives.
fn of_guest(nic: &DeviceStatus) -> (String, NicSample) {
    let name = kvm::sanitize(&nic.name, 16);
    let nic = NicSample {
        name: name.clone(),
        rx_bytes: nic.sent_bytes,
        tx_bytes: nic.recv_bytes,
        rx_packets: nic.sent_packets,
        tx_packets: nic.recv_packets,
        drops: nic.recv_drop.saturating_add(nic.sent_drop),
        rx_drops: Some(nic.sent_drop),
        ..NicSample::default()
    };
    (name, nic)
}

#[cfg(test)]
mod tests {
    use super::*;
    use procfs::FromRead as _;

    proptest::proptest! {
        #[test]
        fn any_text_is_read(text in "(\\PC{0,20}\n){2}\\PC{0,400}") {
            let _ = InterfaceDeviceStatus::from_read(text.as_bytes());
        }
    }
}
