//! Lines of the kernel's log that concern guests, from /dev/kmsg.

use crate::proc::paths::SystemPaths;
use kvm::kernel_log::{LogLine, LogReader};
use rustix::fs::{Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use sample::{SourceId, SourceStatus};
use std::os::fd::OwnedFd;

/// Lines kept, newest last.
const MAX_LINES: usize = 64;
/// At most this many records are read in one tick: a full log takes a few ticks.
const MAX_RECORDS_PER_TICK: usize = 2000;

/// Follows the log from the oldest record that dmesg shows.
#[derive(Debug)]
pub(crate) struct KernelLog {
    file: Result<OwnedFd, Errno>,
    reader: LogReader,
    lines: Vec<LogLine>,
}

impl KernelLog {
    pub fn open(paths: &SystemPaths) -> Self {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::open(paths.dev.join("kmsg"), flags, Mode::empty());
        if let Ok(file) = &file {
            // Skips what `dmesg -C` cleared, as dmesg does. A file that is no log refuses this
            // call.
            let _ = rustix::fs::seek(file, SeekFrom::Data(0));
        }
        Self {
            file,
            reader: LogReader::default(),
            lines: Vec::new(),
        }
    }

    /// Reads new records; returns the newest lines, at most [`MAX_LINES`].
    pub fn read(&mut self) -> Vec<LogLine> {
        if let Ok(file) = &self.file {
            // Each read returns one record, no longer than the kernel's own buffer (kernel/printk,
            // `PRINTK_MESSAGE_MAX`).
            let mut buf = [0_u8; 8192];
            let mut found = Vec::new();
            let mut has_new_records = false;
            for _ in 0..MAX_RECORDS_PER_TICK {
                match rustix::io::read(file, &mut buf[..]) {
                    Ok(n) if n > 0 => {
                        has_new_records = true;
                        let text = String::from_utf8_lossy(&buf[..n]);
                        if let Some(line) = record(&text) {
                            self.reader.line(&line, &mut found);
                        }
                    }
                    // Records were overwritten before they were read.
                    Err(Errno::PIPE | Errno::INTR) => {}
                    _ => break,
                }
            }
            // A dump or a stack is over when the log has been silent for a tick.
            if !has_new_records {
                self.reader.finish(&mut found);
            }
            self.keep(found);
        }
        self.lines.clone()
    }

    /// Keeps the newest lines.
    fn keep(&mut self, found: Vec<LogLine>) {
        self.lines.extend(found);
        let surplus = self.lines.len().saturating_sub(MAX_LINES);
        self.lines.drain(..surplus);
    }

    /// The status, if the log is not readable.
    pub fn status(&self) -> Option<SourceStatus> {
        let e = self.file.as_ref().err()?;
        let cause = format!(
            "the kernel's log, /dev/kmsg, cannot be read: {}",
            std::io::Error::from(*e)
        );
        let fix = format!("{}; a container needs --device /dev/kmsg", rights::hint());
        Some(SourceStatus::missing(SourceId::KernelLog, cause, fix))
    }
}

/// The message of a record `PRIORITY,SEQUENCE,MICROSECONDS,FLAGS;TEXT` with its time in front, as
/// dmesg prints it. The record's properties follow on further lines
/// (Documentation/ABI/testing/dev-kmsg).
fn record(text: &str) -> Option<String> {
    let (head, body) = text.split_once(';')?;
    let microseconds: u64 = head.split(',').nth(2)?.parse().ok()?;
    Some(format!(
        "[{}.{:06}] {}",
        microseconds / 1_000_000,
        microseconds % 1_000_000,
        body.lines().next()?
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_dmesg_prints_it() {
        let text = "4,5,12500000,-;kvm [1234]: vcpu0, guest rIP: 0xfff unhandled rdmsr: 0x611\n \
            SUBSYSTEM=x\n";
        let line = record(text).unwrap();
        assert_eq!(
            line,
            "[12.500000] kvm [1234]: vcpu0, guest rIP: 0xfff unhandled rdmsr: 0x611"
        );
        let (mut reader, mut found) = (LogReader::default(), Vec::new());
        reader.line(&line, &mut found);
        assert_eq!(
            (found[0].msr, found[0].pid, found[0].time_s),
            (Some(0x611), Some(1234), Some(12.5))
        );
        assert_eq!(record("garbage"), None);
    }

    #[test]
    fn the_newest_lines_are_kept() {
        let fake = crate::tests::fake_proc::FakeProc::new();
        let mut log = KernelLog::open(&fake.paths());
        let (mut reader, mut found) = (LogReader::default(), Vec::new());
        for n in 0..200 {
            reader.line(
                &format!("[2.{n}] kvm [5]: vcpu0, guest rIP: 0x1 unhandled rdmsr: {n:#x}"),
                &mut found,
            );
        }
        log.keep(found);
        assert_eq!(
            (log.lines.len(), log.lines[0].msr),
            (MAX_LINES, Some(200 - MAX_LINES as u32))
        );
    }

    #[test]
    fn a_missing_log_is_said() {
        let fake = crate::tests::fake_proc::FakeProc::new();
        let mut log = KernelLog::open(&fake.paths());
        assert!(log.read().is_empty());
        let status = log.status().unwrap();
        assert_eq!(status.id, SourceId::KernelLog);
        // It is not there: rights do not help.
        assert!(
            status
                .fix
                .is_some_and(|fix| fix.contains("--device /dev/kmsg"))
        );
    }
}
