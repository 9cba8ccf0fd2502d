//! `virsh domblkstat`, `domifstat` and `dommemstat`, as values of libvirt's bulk statistics.

use super::{Reader, VirshOutput};

/// libvirt's names of the values in the tables, and in `domstats`.
const DISK: &[(&str, &str)] = &[
    ("rd_req", "rd.reqs"),
    ("rd_bytes", "rd.bytes"),
    ("rd_total_times", "rd.times"),
    ("wr_req", "wr.reqs"),
    ("wr_bytes", "wr.bytes"),
    ("wr_total_times", "wr.times"),
    ("flush_operations", "fl.reqs"),
    ("flush_total_times", "fl.times"),
];
const NIC: &[(&str, &str)] = &[
    ("rx_bytes", "rx.bytes"),
    ("rx_packets", "rx.pkts"),
    ("rx_errs", "rx.errs"),
    ("rx_drop", "rx.drop"),
    ("tx_bytes", "tx.bytes"),
    ("tx_packets", "tx.pkts"),
    ("tx_errs", "tx.errs"),
    ("tx_drop", "tx.drop"),
];
const MEMORY: &[(&str, &str)] = &[
    ("actual", "balloon.current"),
    ("swap_in", "balloon.swap_in"),
    ("swap_out", "balloon.swap_out"),
    ("major_fault", "balloon.major_fault"),
    ("minor_fault", "balloon.minor_fault"),
    ("unused", "balloon.unused"),
    ("available", "balloon.available"),
    ("usable", "balloon.usable"),
    ("last_update", "balloon.last-update"),
    ("disk_caches", "balloon.disk_caches"),
    ("rss", "balloon.rss"),
];

fn known(names: &[(&str, &'static str)], name: &str) -> Option<&'static str> {
    names.iter().find(|(own, _)| *own == name).map(|(_, name)| *name)
}

impl Reader {
    /// `vda rd_req 100`, `vnet0 rx_bytes 100`, or `rss 8412345` below `actual 8388608`.
    pub(super) fn device_statistic(&mut self, line: &str) -> Option<()> {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.last()?.parse::<u64>().ok()?;
        match words[..] {
            [device, name, value] => {
                let disk = known(DISK, name).map(|key| ("block", key));
                let (group, key) = disk.or_else(|| known(NIC, name).map(|key| ("net", key)))?;
                let has = |at: &super::StatsReading| at.has_of_device(group, device, key);
                if self.domain()?.stats.last().is_none_or(has) {
                    self.open_reading();
                }
                self.domain()?.stats.last_mut()?.insert_of_device(group, device, key, value);
                self.table = VirshOutput::Devices;
            }
            [name, value] => {
                let key = known(MEMORY, name)?;
                let begins = name == "actual";
                if self.table != VirshOutput::Memory && !begins {
                    return None;
                }
                if self.domain()?.stats.last().is_none_or(|last| last.values.contains_key(key)) {
                    self.open_reading();
                }
                self.domain()?.stats.last_mut()?.insert(key, value);
                let named = self.table == VirshOutput::Memory;
                self.table = VirshOutput::Memory;
                // By itself the first line could be anything.
                return (named || !begins).then_some(());
            }
            _ => return None,
        }
        Some(())
    }
}
