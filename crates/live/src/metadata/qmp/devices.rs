//! A monitor's answers about disks and balloon (qapi/block-core.json, `query-blockstats`;
//! qapi/machine.json, `query-balloon`), and what the VMM does with the guest ([`jobs`]). No monitor
//! counts what network cards do.

use super::conversation::QmpConversation;
use super::{jobs, state};
use crate::metadata::source::{DeviceCounters, ReportedState, add_requests};
use kvm::sanitize;
use sample::{DiskSample, MemoryInGuest};
use serde::Deserialize;
use serde_json::json;
use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

/// At most this many disks of one guest are kept.
const MAX_DISKS: usize = 4096;

#[derive(Deserialize)]
struct QmpBlock {
    device: Option<String>,
    qdev: Option<String>,
    #[serde(rename = "node-name")]
    node: Option<String>,
    stats: QmpBlockStats,
}

#[derive(Deserialize)]
struct QmpBlockStats {
    rd_bytes: u64,
    wr_bytes: u64,
    rd_operations: u64,
    wr_operations: u64,
    rd_total_time_ns: Option<u64>,
    wr_total_time_ns: Option<u64>,
    flush_operations: Option<u64>,
    flush_total_time_ns: Option<u64>,
    failed_rd_operations: Option<u64>,
    failed_wr_operations: Option<u64>,
    failed_flush_operations: Option<u64>,
    #[serde(default)]
    timed_stats: Vec<QmpTimedStats>,
    rd_latency_histogram: Option<QmpHistogram>,
    wr_latency_histogram: Option<QmpHistogram>,
    flush_latency_histogram: Option<QmpHistogram>,
}

/// What QEMU says of the last interval of a length.
#[derive(Deserialize)]
struct QmpTimedStats {
    interval_length: u64,
    max_rd_latency_ns: u64,
    max_wr_latency_ns: u64,
    max_flush_latency_ns: u64,
}

impl QmpTimedStats {
    fn longest_ns(&self) -> u64 {
        let writes_ns = self.max_wr_latency_ns.max(self.max_flush_latency_ns);
        writes_ns.max(self.max_rd_latency_ns)
    }
}

/// Requests by their time: there is a bin below the first boundary and one above the last.
#[derive(Deserialize)]
struct QmpHistogram {
    boundaries: Vec<u64>,
    bins: Vec<u64>,
}

#[derive(Deserialize)]
struct QmpBalloon {
    actual: u64,
}

/// What a monitor says of a guest that changes all the time.
pub(in crate::metadata) struct MonitorFigures {
    /// Disks, balloon and jobs.
    pub devices: DeviceCounters,
    /// Whether the vCPUs may run, and why not.
    pub state: ReportedState,
}

/// Asks for the counters of the disks, for the balloon, which not every guest has, and whether the
/// guest is paused.
pub(in crate::metadata) fn ask(monitor: &mut QmpConversation) -> Result<MonitorFigures, String> {
    let state = state::ask(monitor)?;
    let blocks: Vec<QmpBlock> = monitor.ask(&json!({"execute": "query-blockstats"}))?;
    let at = Instant::now();
    let balloon = monitor
        .ask::<QmpBalloon>(&json!({"execute": "query-balloon"}))
        .ok()
        .map(|b| b.actual);
    let in_guest = if balloon.is_some() {
        memory_in_guest(monitor)
    } else {
        None
    };
    let disks = blocks.iter().take(MAX_DISKS).filter_map(disk).collect();
    let jobs = jobs::ask(monitor);
    Ok(MonitorFigures {
        devices: DeviceCounters {
            at,
            disks,
            nics: Vec::new(),
            balloon,
            in_guest,
            jobs,
        },
        state,
    })
}

/// Where QEMU keeps devices with an id, and those without.
const DEVICE_FOLDERS: [&str; 2] = ["/machine/peripheral", "/machine/peripheral-anon"];

/// A child of a folder of QEMU's devices.
#[derive(Deserialize)]
struct QmpDevice {
    name: String,
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Deserialize)]
struct QmpGuestStats {
    stats: HashMap<String, u64>,
    #[serde(rename = "last-update")]
    last_update: u64,
}

/// What the driver of the balloon last said of the guest's memory. QEMU asks the driver only where
/// somebody has set `guest-stats-polling-interval`.
fn memory_in_guest(monitor: &mut QmpConversation) -> Option<MemoryInGuest> {
    for folder in DEVICE_FOLDERS {
        let list = json!({"execute": "qom-list", "arguments": {"path": folder}});
        let devices: Vec<QmpDevice> = monitor.ask(&list).ok()?;
        let Some(balloon) = devices.iter().find(|d| d.kind.contains("virtio-balloon")) else {
            continue;
        };
        let path = format!("{folder}/{}", balloon.name);
        let get = json!({
            "execute": "qom-get",
            "arguments": {"path": path, "property": "guest-stats"}
        });
        let said: QmpGuestStats = monitor.ask(&get).ok()?;
        return from_stats(&said);
    }
    None
}

fn from_stats(said: &QmpGuestStats) -> Option<MemoryInGuest> {
    if said.last_update == 0 {
        return None;
    }
    let swapped_in = balloon_stat(said, "stat-swap-in");
    let swapped_out = balloon_stat(said, "stat-swap-out");
    Some(MemoryInGuest {
        total: balloon_stat(said, "stat-total-memory")?,
        usable: balloon_stat(said, "stat-available-memory")
            .or_else(|| balloon_stat(said, "stat-free-memory")),
        caches: balloon_stat(said, "stat-disk-caches"),
        major_faults: balloon_stat(said, "stat-major-faults"),
        swapped: swapped_in
            .zip(swapped_out)
            .map(|(inward, outward)| inward.saturating_add(outward)),
        updated_s: said.last_update,
        grown: None,
    })
}

/// A figure of the balloon's driver by its name.
fn balloon_stat(said: &QmpGuestStats, name: &str) -> Option<u64> {
    // -1, here as the largest number, stands for a figure that the driver does not give.
    said.stats.get(name).copied().filter(|n| *n != u64::MAX)
}

/// The counters of a drive; `None` for an empty one (no medium).
fn disk(block: &QmpBlock) -> Option<DiskSample> {
    let stats = &block.stats;
    if block.node.is_none() && stats.rd_operations == 0 {
        return None;
    }
    Some(DiskSample {
        read_ops: stats.rd_operations,
        write_ops: stats.wr_operations,
        read_bytes: stats.rd_bytes,
        write_bytes: stats.wr_bytes,
        read_ns: stats.rd_total_time_ns,
        write_ns: stats.wr_total_time_ns,
        flush_ops: stats.flush_operations,
        flush_ns: stats.flush_total_time_ns,
        failed_ops: failed_ops(stats),
        latencies: latencies(stats),
        longest_ns: longest_ns(stats),
        name: name(
            block.device.as_deref(),
            block.qdev.as_deref(),
            block.node.as_deref(),
        )?,
    })
}

/// Requests by a time that they took at most.
fn latencies(stats: &QmpBlockStats) -> BTreeMap<u64, u64> {
    let histograms = [
        &stats.rd_latency_histogram,
        &stats.wr_latency_histogram,
        &stats.flush_latency_histogram,
    ];
    let mut latencies = BTreeMap::new();
    for histogram in histograms.into_iter().flatten() {
        let ends = histogram.boundaries.iter().chain([&u64::MAX]);
        for (end_ns, requests) in ends.zip(&histogram.bins) {
            add_requests(&mut latencies, *end_ns, *requests);
        }
    }
    latencies
}

/// The longest request of the shortest interval that QEMU is told to measure.
fn longest_ns(stats: &QmpBlockStats) -> Option<u64> {
    let intervals = stats.timed_stats.iter();
    let shortest = intervals.min_by_key(|interval| interval.interval_length)?;
    // 0: there was no request.
    Some(shortest.longest_ns()).filter(|ns| *ns > 0)
}

/// Operations that failed; QEMU has always counted all three kinds or none.
fn failed_ops(stats: &QmpBlockStats) -> Option<u64> {
    let writes_and_flushes = stats
        .failed_wr_operations?
        .saturating_add(stats.failed_flush_operations?);
    Some(
        stats
            .failed_rd_operations?
            .saturating_add(writes_and_flushes),
    )
}

/// The name of a disk: that of `-drive`, else the `id` of the device
/// (`/machine/peripheral/disk0/virtio-backend`), else the node's name.
pub(super) fn name(device: Option<&str>, qdev: Option<&str>, node: Option<&str>) -> Option<String> {
    let id = qdev.and_then(|path| {
        let path = path.strip_suffix("/virtio-backend").unwrap_or(path);
        path.rsplit('/').next()
    });
    let mut given = [device, id, node].into_iter().flatten();
    let name = given.find(|name| !name.is_empty())?;
    Some(sanitize(name, 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_have_the_names_that_an_admin_gave() {
        let block = |device: &str, qdev: Option<&str>, node: Option<&str>| {
            let stats = r#"{"rd_bytes":512,"wr_bytes":0,"rd_operations":1,"wr_operations":0,"flush_operations":3,
                            "rd_total_time_ns":9000,"wr_total_time_ns":0,"flush_total_time_ns":600,
                            "timed_stats":[{"interval_length":10,"max_rd_latency_ns":5,"max_wr_latency_ns":70,
                                            "max_flush_latency_ns":9}],
                            "rd_latency_histogram":{"boundaries":[1000],"bins":[4,1]},
                            "wr_latency_histogram":{"boundaries":[1000,5000],"bins":[1,2,3]},
                            "failed_rd_operations":1,"failed_wr_operations":2,"failed_flush_operations":0}"#;
            let text = json!({"device": device, "qdev": qdev, "node-name": node}).to_string();
            let text = format!("{},\"stats\":{stats}}}", text.trim_end_matches('}'));
            disk(&serde_json::from_str(&text).unwrap()).unwrap()
        };
        assert_eq!(
            block("drive-scsi0", Some("/machine/x"), Some("#block1")).name,
            "drive-scsi0"
        );
        assert_eq!(
            block(
                "",
                Some("/machine/peripheral/disk0/virtio-backend"),
                Some("n")
            )
            .name,
            "disk0"
        );
        assert_eq!(block("", None, Some("node\u{1b}[2J1")).name, "node1");
        let disk = block("d", None, None);
        assert_eq!(
            (disk.read_ops, disk.read_bytes, disk.read_ns),
            (1, 512, Some(9000))
        );
        assert_eq!(
            (disk.flush_ops, disk.flush_ns, disk.failed_ops),
            (Some(3), Some(600), Some(3))
        );
        assert_eq!(disk.latencies, [(1000, 5), (5000, 2), (u64::MAX, 4)].into());
        assert_eq!(disk.longest_ns, Some(70));
    }

    #[test]
    fn figures_that_the_balloons_driver_does_not_give_are_unknown() {
        let text = r#"{"stats": {"stat-total-memory": 4096, "stat-available-memory": 1024,
            "stat-free-memory": 512, "stat-disk-caches": 18446744073709551615,
            "stat-major-faults": 3, "stat-swap-in": 18446744073709551615, "stat-swap-out": 0},
            "last-update": 1795269802}"#;
        let mut said: QmpGuestStats = serde_json::from_str(text).unwrap();
        let memory = from_stats(&said).unwrap();
        assert_eq!((memory.caches, memory.swapped), (None, None));
        assert_eq!(memory.used_percent(), Some(75.0));
        said.last_update = 0;
        assert_eq!(from_stats(&said), None);
    }
}
