//! Lines of the kernel's log that concern guests, from /dev/kmsg.

use crate::kvm::kernel_log::{self, LogLine};
use crate::sample::{SourceId, SourceStatus};
use crate::source::live::proc::paths::SystemPaths;
use crate::source::privileges;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;

/// Lines kept, newest last.
const KEPT: usize = 64;
/// At most this many records are read in one tick: a full log takes a few ticks.
const PER_TICK: usize = 2000;
/// Pause after reading the log to its end.
const PAUSE_NS: u64 = 3_000_000_000;

/// Follows the log from its oldest record.
#[derive(Debug)]
pub(crate) struct KernelLog {
    file: Result<OwnedFd, Errno>,
    lines: VecDeque<LogLine>,
    next_ns: u64,
}

impl KernelLog {
    pub(crate) fn open(paths: &SystemPaths) -> Self {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::open(paths.dev.join("kmsg"), flags, Mode::empty());
        Self { file, lines: VecDeque::new(), next_ns: 0 }
    }

    /// Reads new records; returns the lines kept.
    pub(crate) fn read(&mut self, now_ns: u64) -> Vec<LogLine> {
        if let Ok(file) = &self.file
            && now_ns >= self.next_ns
        {
            // Each read returns one record, no longer than the kernel's own buffer (kernel/printk,
            // `PRINTK_MESSAGE_MAX`).
            let mut buf = [0_u8; 8192];
            for _ in 0..PER_TICK {
                match rustix::io::read(file, &mut buf[..]) {
                    Ok(n) if n > 0 => {
                        let text = String::from_utf8_lossy(buf.get(..n).unwrap_or_default());
                        self.lines.extend(record(&text));
                    }
                    // Records were overwritten before they were read.
                    Err(Errno::PIPE | Errno::INTR) => {}
                    _ => {
                        self.next_ns = now_ns + PAUSE_NS;
                        break;
                    }
                }
            }
            while self.lines.len() > KEPT {
                self.lines.pop_front();
            }
        }
        self.lines.iter().cloned().collect()
    }

    /// The status, if the log is not readable.
    pub(crate) fn status(&self) -> Option<SourceStatus> {
        let e = self.file.as_ref().err()?;
        let cause = format!("the kernel's log, /dev/kmsg, cannot be read: {}", std::io::Error::from(*e));
        Some(SourceStatus::missing(SourceId::KernelLog, cause, privileges::hint()))
    }
}

/// A record `PRIORITY,SEQUENCE,MICROSECONDS,FLAGS;TEXT` and, on lines of their own, its properties
/// (Documentation/ABI/testing/dev-kmsg).
fn record(text: &str) -> Option<LogLine> {
    let (head, body) = text.split_once(';')?;
    let mut line = kernel_log::parse(body.lines().next()?).into_iter().next()?;
    let microseconds: f64 = head.split(',').nth(2)?.parse().ok()?;
    line.time_s = Some(microseconds / 1e6);
    Some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_kvm_and_one_of_others() {
        let line = record("4,5,12500000,-;kvm [1234]: vcpu0, guest rIP: 0xfff unhandled rdmsr: 0x611\n SUBSYSTEM=x\n")
            .unwrap();
        assert_eq!((line.msr, line.pid, line.time_s), (Some(0x611), Some(1234), Some(12.5)));
        assert_eq!(record("6,6,13,-;usb 1-1: new device\n"), None);
        assert_eq!(record("garbage"), None);
    }

    #[test]
    fn a_missing_log_is_said() {
        let fake = crate::source::live::proc::fake::FakeProc::new();
        let mut log = KernelLog::open(&fake.paths());
        assert!(log.read(0).is_empty());
        assert_eq!(log.status().unwrap().id, SourceId::KernelLog);
    }
}
