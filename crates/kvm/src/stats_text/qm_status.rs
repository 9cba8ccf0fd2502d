//! `qm status 100 --verbose` of Proxmox VE (`vmstatus` in its PVE/QemuServer.pm; nested values are indented).

use super::{GuestStats, MAX_LINES, StatsReading, add, clock_ms};
use crate::{limits, sanitize};

/// Proxmox's names of a disk's counters (QEMU's `query-blockstats`) and libvirt's.
const DISK: &[(&str, &str)] = &[
    ("rd_operations", "rd.reqs"),
    ("rd_bytes", "rd.bytes"),
    ("rd_total_time_ns", "rd.times"),
    ("wr_operations", "wr.reqs"),
    ("wr_bytes", "wr.bytes"),
    ("wr_total_time_ns", "wr.times"),
];
/// Values of a guest's memory, bytes in Proxmox and KiB in libvirt.
const MEMORY: &[(&str, &str)] =
    &[("actual", "balloon.current"), ("free_mem", "balloon.unused"), ("total_mem", "balloon.available")];

#[derive(Default)]
struct StatusReader {
    stats: GuestStats,
    /// The names of the parts that a line is within, with their indentation.
    path: Vec<(usize, String)>,
    /// Lines that only this output has.
    telling: usize,
    uptime_s: Option<u64>,
    found: Vec<GuestStats>,
}

pub(super) fn parse(text: &str) -> Vec<GuestStats> {
    if !text.contains("vmid: ") && !text.contains("qmpstatus: ") {
        return Vec::new();
    }
    let mut reader = StatusReader::default();
    let mut clock = None;
    for line in text.lines().take(MAX_LINES) {
        if line.contains("qm status") || line.trim().is_empty() {
            reader.end(clock);
        }
        let Some((key, value)) = line.split_once(':').filter(|(key, _)| !key.trim().contains(' ')) else {
            clock = clock_ms(line).or(clock);
            continue;
        };
        reader.line(line.len() - line.trim_start().len(), key.trim(), value.trim(), clock);
    }
    reader.end(clock);
    reader.found
}

impl StatusReader {
    fn line(&mut self, indent: usize, key: &str, value: &str, clock: Option<u64>) {
        while self.path.last().is_some_and(|(outer, _)| *outer >= indent) {
            self.path.pop();
        }
        if value.is_empty() {
            if self.path.len() < 8 {
                self.path.push((indent, sanitize(key, 64)));
            }
            return;
        }
        let path: Vec<&str> = self.path.iter().map(|(_, name)| name.as_str()).collect();
        match (path.as_slice(), key) {
            (["blockstat", disk], _) => {
                if let Some((_, name)) = DISK.iter().find(|(name, _)| *name == key) {
                    let disk = (*disk).to_owned();
                    self.stats.reading.insert_of_device("block", &disk, name, value);
                }
            }
            (["ballooninfo"], _) => {
                if let (Some((_, name)), Ok(bytes)) =
                    (MEMORY.iter().find(|(name, _)| *name == key), value.parse::<u64>())
                {
                    self.stats.reading.insert(name, &(bytes / 1024).to_string());
                }
            }
            ([], "vmid" | "qmpstatus") => {
                self.telling += 1;
                if key == "qmpstatus" {
                    self.status(value);
                }
            }
            ([], "name") => self.stats.name = Some(sanitize(value, 256)),
            ([], "pid") => self.stats.pid = value.parse().ok(),
            ([], "cpus") => self.stats.vcpus = value.parse().ok().filter(|n| *n <= limits::VCPUS),
            ([], "uptime") => self.uptime_s = value.parse().ok(),
            _ => {}
        }
        // Keys come in order, and this is the last one.
        if self.path.is_empty() && key == "vmid" {
            self.end(clock);
        }
    }

    /// QEMU's own state (`RunState` in its qapi/run-state.json).
    fn status(&mut self, value: &str) {
        self.stats.paused = value != "running";
        self.stats.stopped = match value {
            "io-error" => Some("QEMU stopped it because a disk returned an error, for example because storage is full"),
            "internal-error" => Some("QEMU stopped it after an error within KVM"),
            "guest-panicked" => Some("the guest's kernel panicked"),
            _ => None,
        };
    }

    fn end(&mut self, clock: Option<u64>) {
        let telling = std::mem::take(&mut self.telling);
        let mut stats = std::mem::take(&mut self.stats);
        let uptime = self.uptime_s.take();
        self.path.clear();
        if telling > 0 {
            stats.reading = StatsReading {
                clock_ms: clock.or(uptime.and_then(|seconds| seconds.checked_mul(1000))),
                ..stats.reading
            };
            add(&mut self.found, stats);
        }
    }
}
