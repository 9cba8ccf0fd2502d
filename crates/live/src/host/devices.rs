//! The host's disks and network links (Documentation/admin-guide/iostats.rst, `proc_pid_net(5)`).

use super::block_devices;
use crate::proc::file::{self, read_number};
use crate::proc::paths::SystemPaths;
use procfs::DiskStat;
use procfs::net::InterfaceDeviceStatus;
use sample::{HostLink, WholeDisk};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// After this time what sysfs says of the devices is read again.
const FACTS_NS: u64 = 60_000_000_000;
/// At most this many disks, and links, are kept.
const MAX_DEVICES: usize = 512;
/// At most this much of a file is read.
const MAX_TEXT: usize = 4 << 20;
/// Bytes of a sector in the kernel's counts, whatever size the device's own sectors have.
const SECTOR: u64 = 512;
const MS: u64 = 1_000_000;
/// How the names of stacked devices begin that have no list of devices below them: devices on files
/// and in memory, volumes of ZFS.
const STACKED: [&str; 4] = ["loop", "ram", "zram", "zd"];

/// What sysfs says of a block device.
struct DiskFacts {
    alias: Option<String>,
    is_stacked: bool,
}

/// What sysfs says of a link.
struct LinkFacts {
    speed_mbit: Option<u64>,
}

/// Reads the host's devices in each tick.
#[derive(Default)]
pub(crate) struct HostDevices {
    paths: SystemPaths,
    /// By name; `None` for a partition.
    disks: HashMap<String, Option<DiskFacts>>,
    /// By name; `None` for an interface without a device.
    links: HashMap<String, Option<LinkFacts>>,
    due_ns: u64,
    /// The files that could not be read.
    pub unread: Vec<&'static str>,
}

impl HostDevices {
    pub fn new(paths: &SystemPaths) -> Self {
        Self {
            paths: paths.clone(),
            ..Self::default()
        }
    }

    /// Begins a tick.
    pub fn begin(&mut self, now_ns: u64) {
        self.unread.clear();
        if now_ns >= self.due_ns {
            self.disks.clear();
            self.links.clear();
            self.due_ns = now_ns + FACTS_NS;
        }
    }

    /// The disks that did something since they appeared; `None` where the kernel's list cannot be
    /// read.
    pub fn disks(&mut self) -> Option<Vec<WholeDisk>> {
        let Ok(text) = file::read_text(&self.paths.proc.join("diskstats"), MAX_TEXT) else {
            self.unread.push("/proc/diskstats");
            return None;
        };
        let mut disks = Vec::new();
        for line in text.lines() {
            let Ok(stat) = DiskStat::from_line(line) else {
                continue;
            };
            if stat.reads == 0 && stat.writes == 0 {
                continue;
            }
            if disks.len() < MAX_DEVICES {
                disks.extend(self.disk(&stat));
            }
        }
        Some(disks)
    }

    /// A disk; `None` for a partition.
    fn disk(&mut self, stat: &DiskStat) -> Option<WholeDisk> {
        let sys = &self.paths.sys;
        let facts = self
            .disks
            .entry(stat.name.clone())
            .or_insert_with(|| DiskFacts::read(sys, stat));
        let facts = facts.as_ref()?;
        Some(WholeDisk {
            name: kvm::sanitize(&stat.name, 64),
            alias: facts.alias.clone(),
            is_stacked: facts.is_stacked,
            reads: stat.reads,
            writes: stat.writes,
            read_bytes: stat.sectors_read.saturating_mul(SECTOR),
            write_bytes: stat.sectors_written.saturating_mul(SECTOR),
            time_ns: stat
                .time_reading
                .saturating_add(stat.time_writing)
                .saturating_mul(MS),
            busy_ns: stat.time_in_progress.saturating_mul(MS),
            in_flight: stat.in_progress,
        })
    }

    /// The links; `None` where the kernel's list cannot be read.
    pub fn links(&mut self) -> Option<Vec<HostLink>> {
        let path = self.paths.proc.join("net/dev");
        let Some(all) = file::read_as::<InterfaceDeviceStatus>(&path, MAX_TEXT) else {
            self.unread.push("/proc/net/dev");
            return None;
        };
        // In order of name.
        let all: BTreeMap<_, _> = all.0.iter().collect();
        let mut links = Vec::new();
        for (name, link) in all {
            let folder = self.paths.sys.join("class/net").join(name);
            let facts = self
                .links
                .entry(name.clone())
                .or_insert_with(|| LinkFacts::read(&folder));
            if let Some(facts) = facts
                && links.len() < MAX_DEVICES
            {
                links.push(HostLink {
                    name: kvm::sanitize(name, 16),
                    rx_bytes: link.recv_bytes,
                    tx_bytes: link.sent_bytes,
                    drops: link.recv_drop.saturating_add(link.sent_drop),
                    speed_mbit: facts.speed_mbit,
                });
            }
        }
        Some(links)
    }
}

impl DiskFacts {
    /// `None` for a partition, and for a device that sysfs does not have.
    fn read(sys: &Path, stat: &DiskStat) -> Option<Self> {
        let major = u32::try_from(stat.major).ok()?;
        let minor = u32::try_from(stat.minor).ok()?;
        let folder = sys.join(format!("dev/block/{major}:{minor}"));
        if !folder.exists() || folder.join("partition").exists() {
            return None;
        }
        let (_, alias, below) = block_devices::read(sys, (major, minor));
        let has_stacked_name = STACKED.iter().any(|kind| stat.name.starts_with(kind));
        Some(Self {
            is_stacked: !below.is_empty() || has_stacked_name,
            alias,
        })
    }
}

impl LinkFacts {
    /// `None` for an interface without a device, such as a bridge, a bond or a tap: its packets go
    /// through another link as well, or do not leave the host.
    fn read(folder: &Path) -> Option<Self> {
        if !folder.join("device").exists() {
            return None;
        }
        // The file says -1 without a cable, which is no speed.
        Some(Self {
            speed_mbit: read_number(&folder.join("speed")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::fake_proc::FakeProc;

    /// A disk with reads and writes of 8 KiB and 4 KiB, 3 ms each.
    fn line(number: &str, name: &str, reads: u64, writes: u64) -> String {
        let (sectors_read, sectors_written) = (16 * reads, 8 * writes);
        let (ms_read, ms_written) = (3 * reads, 3 * writes);
        format!(
            "   {number} {name} {reads} 0 {sectors_read} {ms_read} {writes} 0 {sectors_written} \
             {ms_written} 2 40 90 0 0 0 0\n"
        )
    }

    fn host() -> (FakeProc, HostDevices) {
        let fake = FakeProc::new();
        fake.write("sys/dev/block/8:0/size", "9");
        fake.write("sys/dev/block/8:1/partition", "1");
        fake.write("sys/dev/block/9:0/slaves/sda", "");
        fake.write("sys/dev/block/7:2/size", "9");
        fake.write("sys/dev/block/7:0/loop/backing_file", "/vm/a.img\n");
        fake.write("sys/class/net/eno1/device/vendor", "1");
        fake.write("sys/class/net/eno1/speed", "10000\n");
        fake.write("sys/class/net/eno2/device/vendor", "1");
        fake.write("sys/class/net/eno2/speed", "-1\n");
        fake.write("sys/class/net/vmbr0/speed", "10000\n");
        let devices = HostDevices::new(&fake.paths());
        (fake, devices)
    }

    #[test]
    fn partitions_are_left_out_and_what_is_on_other_disks_is_told_from_them() {
        let (fake, mut devices) = host();
        let text = [
            line("8 0", "sda", 10, 20),
            line("8 1", "sda1", 10, 20),
            line("9 0", "md0", 10, 20),
            line("7 0", "loop0", 1, 0),
            line("7 2", "loop2", 1, 0),
            line("7 1", "loop1", 0, 0),
            line("8 16", "gone", 1, 1),
            "8 x broken\n".to_owned(),
        ];
        fake.write("proc/diskstats", &text.concat());
        devices.begin(0);
        let disks = devices.disks().unwrap();
        let names = disks
            .iter()
            .map(|disk| (disk.name.as_str(), disk.is_stacked));
        assert_eq!(
            names.collect::<Vec<_>>(),
            [
                ("sda", false),
                ("md0", true),
                ("loop0", true),
                ("loop2", true)
            ]
        );
        let sda = WholeDisk {
            name: "sda".into(),
            reads: 10,
            writes: 20,
            read_bytes: 81_920,
            write_bytes: 81_920,
            time_ns: 90 * MS,
            busy_ns: 40 * MS,
            in_flight: 2,
            ..WholeDisk::default()
        };
        assert_eq!(disks[0], sda);
        assert_eq!(disks[2].alias.as_deref(), Some("/vm/a.img"));
    }

    #[test]
    fn links_have_a_device_and_perhaps_a_speed() {
        let (fake, mut devices) = host();
        let head = "Inter-|   Receive          |  Transmit\n face |bytes    packets errs drop \
                    fifo frame compressed multicast|bytes    packets errs drop fifo colls \
                    carrier compressed\n";
        let mut text = head.to_owned();
        for name in ["lo", "eno2", "vmbr0", "eno1"] {
            text += &format!("  {name}: 1000 9 0 3 0 0 0 0  500 8 0 4 0 0 0 0\n");
        }
        fake.write("proc/net/dev", &text);
        devices.begin(0);
        let eno1 = HostLink {
            name: "eno1".into(),
            rx_bytes: 1000,
            tx_bytes: 500,
            drops: 7,
            speed_mbit: Some(10_000),
        };
        let eno2 = HostLink {
            name: "eno2".into(),
            speed_mbit: None,
            ..eno1.clone()
        };
        assert_eq!(devices.links(), Some(vec![eno1, eno2]));
        assert_eq!(devices.unread, Vec::<&str>::new());
    }

    #[test]
    fn what_cannot_be_read_is_named_and_what_sysfs_says_is_kept_for_a_minute() {
        let (fake, mut devices) = host();
        devices.begin(0);
        assert_eq!((devices.disks(), devices.links()), (None, None));
        assert_eq!(devices.unread, ["/proc/diskstats", "/proc/net/dev"]);
        fake.write("proc/diskstats", &line("8 0", "sda", 1, 1));
        let mut is_stacked = |now_ns| {
            devices.begin(now_ns);
            devices.disks().unwrap()[0].is_stacked
        };
        assert!(!is_stacked(1));
        fake.write("sys/dev/block/8:0/slaves/sdb", "");
        assert!(!is_stacked(FACTS_NS - 1));
        assert!(is_stacked(FACTS_NS));
    }
}
