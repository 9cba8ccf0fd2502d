//! The logs that libvirt keeps of running QEMUs, `/var/log/libvirt/qemu/NAME.log`: of a guest that KVM could not enter,
//! or whose QEMU aborted, they alone say why.
//!
//! Only root reads them. A guest can write as much as it likes into its log, so each log has a limit.

use crate::proc::file::open_owned;
use crate::proc::paths::SystemPaths;
use crate::timestamps::Timestamps;
use kvm::kernel_log::{LogLine, LogReader};
use kvm::sanitize;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Time between two looks.
const PERIOD_NS: u64 = 2_000_000_000;
/// Bytes of a log that are read when its guest is seen first, and of news at a time.
const MAX_FIRST_BYTES: u64 = 256 * 1024;
const MAX_NEW_BYTES: u64 = 64 * 1024;
/// No further log is read in a look after so many bytes.
const MAX_LOOK_BYTES: u64 = 1 << 20;
/// Looks at the log of a guest that ended: libvirt writes why at the end.
const MAX_LOOKS_AFTER_END: u32 = 5;
/// Maximum number of guests, and of lines that are kept.
const MAX_GUESTS: usize = 1024;
const MAX_LINES: usize = 64;
/// What libvirt writes before it starts QEMU (`qemuProcessLaunch` in its `src/qemu/qemu_process.c`).
const START_LINE: &str = ": starting up libvirt version:";

/// Follows the logs of the running guests.
#[derive(Debug)]
pub(crate) struct QemuLogs {
    folder: PathBuf,
    system_owner: u32,
    tails: HashMap<i32, LogTail>,
    due_ns: u64,
    lines: VecDeque<LogLine>,
}

/// How far a log was read.
#[derive(Debug)]
struct LogTail {
    pid: i32,
    name: String,
    reader: LogReader,
    inode: u64,
    offset: u64,
    looks_after_end: u32,
}

impl QemuLogs {
    pub(crate) fn new(paths: &SystemPaths) -> Self {
        Self {
            folder: paths.log.join("libvirt/qemu"),
            system_owner: paths.system_owner(),
            tails: HashMap::new(),
            due_ns: 0,
            lines: VecDeque::new(),
        }
    }

    /// The guests that run now, by process; returns the lines kept of them and of those that ended.
    pub(crate) fn read(&mut self, guests: &BTreeMap<i32, &str>, now: Timestamps) -> Vec<LogLine> {
        // Only their owner, root, reads them.
        if now.mono_ns >= self.due_ns && rustix::process::geteuid().as_raw() == self.system_owner {
            self.due_ns = now.mono_ns + PERIOD_NS;
            self.look(guests, now);
        }
        self.lines.iter().cloned().collect()
    }

    /// Reads what is new.
    fn look(&mut self, guests: &BTreeMap<i32, &str>, now: Timestamps) {
        for (pid, name) in guests.iter().take(MAX_GUESTS) {
            let same = self.tails.get(pid).is_some_and(|tail| tail.name == *name);
            if !same && name.len() < 200 && !name.contains('/') {
                let (reader, name) = (LogReader::of_qemu(name), (*name).to_owned());
                self.tails.insert(*pid, LogTail { pid: *pid, name, reader, inode: 0, offset: 0, looks_after_end: 0 });
            }
        }
        self.tails.retain(|pid, tail| {
            tail.looks_after_end = if guests.contains_key(pid) { 0 } else { tail.looks_after_end + 1 };
            tail.looks_after_end <= MAX_LOOKS_AFTER_END
        });
        let (mut found, mut spent) = (Vec::new(), 0);
        for tail in self.tails.values_mut() {
            if spent < MAX_LOOK_BYTES {
                spent += tail.read(&self.folder, self.system_owner, now, &mut found).unwrap_or(0);
            }
        }
        found.truncate(MAX_LINES);
        self.lines.extend(found);
        self.lines.drain(..self.lines.len().saturating_sub(MAX_LINES));
    }
}

impl LogTail {
    /// Reads what is new; returns how many bytes.
    fn read(&mut self, folder: &Path, owner: u32, now: Timestamps, found: &mut Vec<LogLine>) -> io::Result<u64> {
        let (mut file, meta) = open_owned(&folder.join(format!("{}.log", self.name)), owner)?;
        let (inode, length) = (meta.ino(), meta.len());
        let is_first = self.inode == 0;
        let max = if is_first { MAX_FIRST_BYTES } else { MAX_NEW_BYTES };
        // virtlogd gives a full log another name and begins a new one.
        if self.inode != inode || length < self.offset {
            (self.inode, self.offset) = (inode, if is_first { length.saturating_sub(max) } else { 0 });
        }
        if length - self.offset > 16 * MAX_NEW_BYTES {
            self.offset = length - MAX_NEW_BYTES;
        }
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(self.offset))?;
        file.take(max).read_to_end(&mut bytes)?;
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
        for line in &mut lines {
            let written_ms = written_ms(&line.text).filter(|_| is_first);
            let age_s = written_ms.map_or(0.0, |at| now.time_ms.saturating_sub(at).max(0) as f64 / 1e3);
            line.time_s = Some((now.mono_ns as f64 / 1e9 - age_s).max(0.0));
            line.text = sanitize(&format!("{}: {}", self.name, line.text), 500);
            (line.pid, line.guest) = (Some(self.pid), Some(self.name.clone()));
        }
        found.extend(lines);
        Ok(bytes.len() as u64)
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
    use crate::tests::fake_proc::FakeProc;
    use kvm::kernel_log::LogKind;
    use std::io::Write;

    const BEFORE: &str = "2026-11-22 08:00:00.000+0000: starting up libvirt version: 9.0.0\n\
        2026-11-22T08:00:01.000000Z qemu-system-x86_64: KVM internal error. Suberror: 1\n\
        2026-11-22 09:00:00.123+0000: starting up libvirt version: 9.0.0, qemu version: 7.2.22\n\
        LC_ALL=C /usr/bin/qemu-system-x86_64 \\\n-name guest=web,debug-threads=on \\\n-msg timestamp=on\n";
    const FAILED: &str = "2026-11-22T09:00:05.500000Z qemu-system-x86_64: terminating on signal 9 from pid 7 (bash)\n\
        2026-11-22 09:00:06.000+0000: shutting down, reason=crashed\n";
    /// A minute after boot, ten seconds after the failure.
    const NOW: Timestamps = Timestamps { mono_ns: 60_000_000_000, boot_ns: 0, time_ms: 1_795_338_015_500 };

    struct Place {
        fake: FakeProc,
        logs: QemuLogs,
    }

    impl Place {
        fn with(text: &str) -> Self {
            let fake = FakeProc::new();
            fake.write("var/log/libvirt/qemu/web.log", text);
            let logs = QemuLogs::new(&fake.paths());
            Self { fake, logs }
        }

        fn append(&self, text: &str) {
            let file = self.fake.paths().log.join("libvirt/qemu/web.log");
            std::fs::OpenOptions::new().append(true).open(file).unwrap().write_all(text.as_bytes()).unwrap();
        }

        /// What a look finds.
        fn look(&mut self, guests: &[(i32, &str)]) -> Vec<LogLine> {
            self.logs.lines.clear();
            self.logs.due_ns = 0;
            self.logs.read(&guests.iter().copied().collect(), NOW)
        }
    }

    #[test]
    fn only_what_the_running_guest_wrote_is_read_and_once() {
        let mut place = Place::with(BEFORE);
        let guests = [(77, "web")];
        assert!(place.look(&guests).is_empty(), "the error is of an earlier run");
        let (first, rest) = FAILED.split_at(20);
        place.append(first);
        assert!(place.look(&guests).is_empty(), "half a line");
        place.append(rest);
        // The guest has ended.
        let found = place.look(&[]);
        let [one] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((one.kind, one.pid, one.time_s), (LogKind::Killed, Some(77), Some(60.0)));
        assert!(one.text.starts_with("web: "), "{}", one.text);
        assert_eq!(place.logs.read(&BTreeMap::new(), NOW).len(), 1, "it is kept");
        assert!(place.look(&[]).is_empty());
        (0..MAX_LOOKS_AFTER_END).for_each(|_| drop(place.look(&[])));
        assert!(place.logs.tails.is_empty());
    }

    #[test]
    fn what_was_there_before_has_its_own_time_and_a_new_file_is_read_whole() {
        let mut place = Place::with(&format!("{BEFORE}{FAILED}"));
        let guests = [(77, "web")];
        assert_eq!(place.look(&guests)[0].time_s, Some(50.0));
        let folder = place.fake.paths().log.join("libvirt/qemu");
        std::fs::rename(folder.join("web.log"), folder.join("web.log.0")).unwrap();
        place.fake.write("var/log/libvirt/qemu/web.log", FAILED);
        assert_eq!(place.look(&guests).len(), 1);
    }

    #[test]
    fn a_flood_another_folder_and_another_user_are_harmless() {
        let mut place = Place::with(BEFORE);
        place.look(&[(77, "web")]);
        place.append(&"x".repeat(40 * MAX_NEW_BYTES as usize));
        place.append(&format!("\n{FAILED}"));
        assert_eq!(place.look(&[(77, "web")]).len(), 1, "the end of a flood");
        assert!(place.look(&[(78, "../../etc/passwd")]).is_empty());
        place.logs.system_owner += 1;
        assert!(place.look(&[(79, "web")]).is_empty(), "only its owner reads it");
    }
}
