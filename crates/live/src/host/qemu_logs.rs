//! The logs that libvirt keeps of running QEMUs, `/var/log/libvirt/qemu/NAME.log`: of a guest that KVM could not enter,
//! or whose QEMU aborted, they alone say why.
//!
//! Only root reads them. A separate thread reads new lines. A guest can write as much as it likes into its log, so each
//! log has a limit.

use crate::owned_file::OwnedFolder;
use crate::timestamps::Timestamps;
use kvm::kernel_log::{LogLine, LogReader};
use kvm::sanitize;
use rights::keep_for_reading;
use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

/// Time between two looks.
const PERIOD: Duration = Duration::from_secs(2);
/// Bytes of a log that are read when its guest is seen first, and of news at a time.
const MAX_FIRST_BYTES: u64 = 256 * 1024;
const MAX_NEW_BYTES: u64 = 64 * 1024;
/// Looks at the log of a guest that ended: libvirt writes why at the end.
const MAX_LOOKS_AFTER_END: u32 = 5;
/// Maximum number of guests, and of lines that are kept or wait to be fetched.
const MAX_GUESTS: usize = 1024;
const MAX_LINES: usize = 64;
/// What libvirt writes before it starts QEMU (`qemuProcessLaunch` in its `src/qemu/qemu_process.c`).
const START_LINE: &str = ": starting up libvirt version:";

/// A guest of libvirt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LoggedGuest {
    /// Process id.
    pub pid: i32,
    /// The domain's name.
    pub name: String,
}

/// A line of a log.
#[derive(Debug)]
struct FoundLine {
    line: LogLine,
    /// When it was written, by its own date, milliseconds since the Unix epoch; `None`: just now.
    written_ms: Option<i64>,
}

/// Follows the logs of the running guests.
#[derive(Debug)]
pub(crate) struct QemuLogs {
    guests: SyncSender<Vec<LoggedGuest>>,
    found: Receiver<FoundLine>,
    lines: VecDeque<LogLine>,
}

impl QemuLogs {
    /// `log` is `/var/log`.
    pub(crate) fn new(log: PathBuf, system_owner: u32) -> Self {
        let (guests, wanted) = sync_channel(1);
        let (to, found) = sync_channel(2 * MAX_LINES);
        // Without a thread no lines come, as without the right to read them.
        let _ = std::thread::Builder::new().name("qemu-logs".into()).spawn(move || {
            keep_for_reading();
            let mut tails = LogTails { log, system_owner, tails: HashMap::new() };
            follow(&mut tails, &wanted, &to);
        });
        Self { guests, found, lines: VecDeque::new() }
    }

    /// The guests that run now; returns the lines kept of them and of those that ended.
    pub(crate) fn read(&mut self, guests: Vec<LoggedGuest>, now: Timestamps) -> Vec<LogLine> {
        // While the thread is busy it keeps the guests of a tick before.
        let _ = self.guests.try_send(guests);
        let mono_s = now.mono_ns as f64 / 1e9;
        while let Ok(FoundLine { mut line, written_ms }) = self.found.try_recv() {
            let age_s = written_ms.map_or(0.0, |at| now.time_ms.saturating_sub(at).max(0) as f64 / 1e3);
            line.time_s = Some((mono_s - age_s).max(0.0));
            if self.lines.len() >= MAX_LINES {
                self.lines.pop_front();
            }
            self.lines.push_back(line);
        }
        self.lines.iter().cloned().collect()
    }
}

fn follow(tails: &mut LogTails, wanted: &Receiver<Vec<LoggedGuest>>, to: &SyncSender<FoundLine>) {
    let mut guests = Vec::new();
    loop {
        match wanted.recv_timeout(PERIOD) {
            Ok(now) => guests = now,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        for found in tails.look(&guests) {
            if to.send(found).is_err() {
                return;
            }
        }
        std::thread::sleep(PERIOD);
    }
}

/// How far each log was read.
struct LogTails {
    log: PathBuf,
    system_owner: u32,
    tails: HashMap<i32, LogTail>,
}

struct LogTail {
    guest: LoggedGuest,
    reader: LogReader,
    inode: u64,
    offset: u64,
    looks_after_end: u32,
}

impl LogTails {
    /// Reads what is new.
    fn look(&mut self, guests: &[LoggedGuest]) -> Vec<FoundLine> {
        for guest in guests.iter().take(MAX_GUESTS) {
            let same = self.tails.get(&guest.pid).is_some_and(|tail| tail.guest == *guest);
            if !same && guest.name.len() < 200 && !guest.name.contains('/') {
                let reader = LogReader::of_qemu(&guest.name);
                let guest = guest.clone();
                self.tails.insert(guest.pid, LogTail { guest, reader, inode: 0, offset: 0, looks_after_end: 0 });
            }
        }
        self.tails.retain(|pid, tail| {
            let runs = guests.iter().any(|guest| guest.pid == *pid);
            tail.looks_after_end = if runs { 0 } else { tail.looks_after_end + 1 };
            tail.looks_after_end <= MAX_LOOKS_AFTER_END
        });
        let mut found = Vec::new();
        // Only its owner, root, reads it.
        let may_read = rustix::process::geteuid().as_raw() == self.system_owner;
        let folder = may_read.then(|| OwnedFolder::open(&self.log.join("libvirt"), "qemu", self.system_owner));
        if let Some(Ok(Some(folder))) = folder {
            self.tails.values_mut().for_each(|tail| tail.read(&folder, &mut found));
        }
        found.truncate(MAX_LINES);
        found
    }
}

impl LogTail {
    fn read(&mut self, folder: &OwnedFolder, found: &mut Vec<FoundLine>) {
        let Ok(Some(file)) = folder.file(&format!("{}.log", self.guest.name), usize::MAX) else { return };
        let (inode, length) = (file.stamp.0, file.len as u64);
        let is_first = self.inode == 0;
        let max = if is_first { MAX_FIRST_BYTES } else { MAX_NEW_BYTES };
        // virtlogd gives a full log another name and begins a new one.
        if self.inode != inode || length < self.offset {
            (self.inode, self.offset) = (inode, if is_first { length.saturating_sub(max) } else { 0 });
        }
        if length - self.offset > 16 * MAX_NEW_BYTES {
            self.offset = length - MAX_NEW_BYTES;
        }
        let Ok(bytes) = file.read_at(self.offset, max) else { return };
        // A line that is still being written is read when it is whole, unless it is longer than a share.
        let whole = bytes.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
        let used = if whole == 0 && bytes.len() as u64 == max { bytes.len() } else { whole };
        self.offset += used as u64;
        let text = String::from_utf8_lossy(bytes.get(..used).unwrap_or_default());
        // Lines before the last start belong to earlier runs of the guest.
        let text = match text.rfind(START_LINE) {
            Some(at) if is_first => text.get(at..).and_then(|rest| rest.split_once('\n')).map_or("", |(_, rest)| rest),
            _ => &text,
        };
        let mut lines = Vec::new();
        text.lines().for_each(|raw| self.reader.line(raw, &mut lines));
        // A report of several lines is over when the log pauses.
        if used == 0 {
            self.reader.finish(&mut lines);
        }
        found.extend(lines.into_iter().map(|line| self.found(line, is_first)));
    }

    fn found(&self, mut line: LogLine, is_first: bool) -> FoundLine {
        let written_ms = written_ms(&line.text).filter(|_| is_first);
        line.pid = Some(self.guest.pid);
        line.text = sanitize(&format!("{}: {}", self.guest.name, line.text), 500);
        line.guest = Some(self.guest.name.clone());
        FoundLine { line, written_ms }
    }
}

/// The date that a line begins with: QEMU's (`-msg timestamp=on`) or libvirt's.
fn written_ms(text: &str) -> Option<i64> {
    let first = text.split_whitespace().next()?;
    let own = first.parse::<jiff::Timestamp>().ok();
    let libvirts = || jiff::Timestamp::strptime("%Y-%m-%d %H:%M:%S%.f%z", text.get(..28)?).ok();
    own.or_else(libvirts).map(jiff::Timestamp::as_millisecond)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kvm::kernel_log::LogKind;
    use std::io::Write;
    use std::path::Path;

    const BEFORE: &str = "2026-11-22 08:00:00.000+0000: starting up libvirt version: 9.0.0\n\
        2026-11-22T08:00:01.000000Z qemu-system-x86_64: KVM internal error. Suberror: 1\n\
        2026-11-22 09:00:00.123+0000: starting up libvirt version: 9.0.0, qemu version: 7.2.22\n\
        LC_ALL=C /usr/bin/qemu-system-x86_64 \\\n-name guest=web,debug-threads=on \\\n-msg timestamp=on\n";
    const FAILED: &str = "2026-11-22T09:00:05.500000Z qemu-system-x86_64: terminating on signal 9 from pid 7 (bash)\n\
        2026-11-22 09:00:06.000+0000: shutting down, reason=crashed\n";

    fn place() -> (tempfile::TempDir, LogTails, PathBuf, Vec<LoggedGuest>) {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("libvirt/qemu")).unwrap();
        let owner = rustix::process::geteuid().as_raw();
        let tails = LogTails { log: root.path().to_owned(), system_owner: owner, tails: HashMap::new() };
        let file = root.path().join("libvirt/qemu/web.log");
        let guests = vec![LoggedGuest { pid: 77, name: "web".into() }];
        (root, tails, file, guests)
    }

    fn append(file: &Path, text: &str) {
        std::fs::OpenOptions::new().append(true).open(file).unwrap().write_all(text.as_bytes()).unwrap();
    }

    #[test]
    fn only_what_the_running_guest_wrote_is_read_and_once() {
        let (_root, mut tails, file, guests) = place();
        std::fs::write(&file, BEFORE).unwrap();
        assert!(tails.look(&guests).is_empty(), "the error is of an earlier run");
        let (first, rest) = FAILED.split_at(20);
        append(&file, first);
        assert!(tails.look(&guests).is_empty(), "half a line");
        append(&file, rest);
        // The guest has ended.
        let found = tails.look(&[]);
        let [one] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((one.line.kind, one.line.pid, one.written_ms), (LogKind::Killed, Some(77), None));
        assert!(one.line.text.starts_with("web: "), "{}", one.line.text);
        assert!(tails.look(&[]).is_empty());
        (0..MAX_LOOKS_AFTER_END).for_each(|_| drop(tails.look(&[])));
        assert!(tails.tails.is_empty());
    }

    #[test]
    fn what_was_there_before_has_its_own_time_and_a_new_file_is_read_whole() {
        let (root, mut tails, file, guests) = place();
        std::fs::write(&file, format!("{BEFORE}{FAILED}")).unwrap();
        let found = tails.look(&guests);
        assert_eq!(found[0].written_ms, Some(1_795_338_005_500));
        std::fs::rename(&file, root.path().join("libvirt/qemu/web.log.0")).unwrap();
        std::fs::write(&file, FAILED).unwrap();
        assert_eq!(tails.look(&guests).len(), 1);
    }

    #[test]
    fn a_link_another_users_folder_and_a_flood_are_harmless() {
        let (root, mut tails, file, mut guests) = place();
        std::fs::write(root.path().join("real"), format!("{BEFORE}{FAILED}")).unwrap();
        std::os::unix::fs::symlink(root.path().join("real"), &file).unwrap();
        assert!(tails.look(&guests).is_empty());
        std::fs::remove_file(&file).unwrap();
        std::fs::write(&file, BEFORE).unwrap();
        tails.look(&guests);
        append(&file, &"x".repeat(40 * MAX_NEW_BYTES as usize));
        append(&file, &format!("\n{FAILED}"));
        assert_eq!(tails.look(&guests).len(), 1, "the end of a flood");
        guests[0].name = "../../etc/passwd".into();
        guests[0].pid = 78;
        assert!(tails.look(&guests).is_empty());
        tails.system_owner += 1;
        guests[0] = LoggedGuest { pid: 79, name: "web".into() };
        assert!(tails.look(&guests).is_empty(), "only its owner reads it");
    }
}
