//! The logs that libvirt keeps of running QEMUs, `/var/log/libvirt/qemu/NAME.log`: of a guest that KVM could not enter,
//! or whose QEMU aborted, they alone say why.
//!
//! Only root reads them. A guest can write as much as it likes into its log, so each log has a limit.

use crate::proc::file::open_owned;
use crate::proc::paths::SystemPaths;
use crate::timestamps::Timestamps;
use kvm::kernel_log::{LogLine, LogReader};
use kvm::sanitize;
use rights::keep_for_reading;
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Time between two looks.
const PERIOD_NS: u64 = 2_000_000_000;
/// Bytes of a log that are read when its guest is seen first, and of news at a time.
const MAX_FIRST_BYTES: u64 = 256 * 1024;
const MAX_NEW_BYTES: u64 = 64 * 1024;
/// Limit of bytes read in one look; the other logs come first in the next.
const MAX_LOOK_BYTES: u64 = 1 << 20;
/// Looks at the log of a guest that ended: libvirt writes why at the end.
const MAX_LOOKS_AFTER_END: u32 = 5;
/// Maximum number of guests, and of lines that are kept.
const MAX_GUESTS: usize = 1024;
const MAX_LINES: usize = 64;
/// What libvirt writes before it starts QEMU (`qemuProcessLaunch` in its `src/qemu/qemu_process.c`).
const START_LINE: &str = ": starting up libvirt version:";

/// The guests that run, by process, and when.
type Look = (BTreeMap<i32, String>, Timestamps);

/// Follows the logs of the running guests, on a thread of its own: `/var/log` may hang.
#[derive(Debug)]
pub(crate) struct QemuLogs {
    looks: SyncSender<Look>,
    found: Receiver<Vec<LogLine>>,
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
        let mut tails = LogTails::new(paths);
        let (looks, wanted) = sync_channel::<Look>(1);
        let (to, found) = sync_channel(1);
        // Without a thread no lines come, as without the right to read them.
        let _ = std::thread::Builder::new().name("qemu-logs".into()).spawn(move || {
            keep_for_reading();
            wanted.iter().try_for_each(|(guests, now)| to.send(tails.look(&guests, now)))
        });
        Self { looks, found, due_ns: 0, lines: VecDeque::new() }
    }

    /// The guests that run now, by process; returns the lines kept of them and of those that ended.
    pub(crate) fn read(&mut self, guests: BTreeMap<i32, String>, now: Timestamps) -> Vec<LogLine> {
        if now.mono_ns >= self.due_ns {
            self.due_ns = now.mono_ns + PERIOD_NS;
            // A thread that is still busy keeps the guests of a look before.
            let _ = self.looks.try_send((guests, now));
        }
        self.lines.extend(self.found.try_iter().flatten());
        self.lines.drain(..self.lines.len().saturating_sub(MAX_LINES));
        self.lines.iter().cloned().collect()
    }
}

/// How far each log was read, by process.
#[derive(Debug)]
struct LogTails {
    folder: PathBuf,
    system_owner: u32,
    tails: BTreeMap<i32, LogTail>,
    /// The process whose log was read last.
    last: i32,
}

impl LogTails {
    fn new(paths: &SystemPaths) -> Self {
        let (folder, system_owner) = (paths.log.join("libvirt/qemu"), paths.system_owner());
        Self { folder, system_owner, tails: BTreeMap::new(), last: 0 }
    }

    /// Reads what is new, of the logs in turn.
    fn look(&mut self, guests: &BTreeMap<i32, String>, now: Timestamps) -> Vec<LogLine> {
        // Only their owner, root, reads them.
        if rustix::process::geteuid().as_raw() != self.system_owner {
            return Vec::new();
        }
        for (pid, name) in guests.iter().take(MAX_GUESTS) {
            let same = self.tails.get(pid).is_some_and(|tail| tail.name == *name);
            if !same && name.len() < 200 && !name.contains('/') {
                let (reader, name) = (LogReader::of_qemu(name), name.clone());
                self.tails.insert(*pid, LogTail { pid: *pid, name, reader, inode: 0, offset: 0, looks_after_end: 0 });
            }
        }
        let (mut found, mut spent) = (Vec::new(), 0);
        let (before, after): (Vec<i32>, Vec<i32>) = self.tails.keys().partition(|pid| **pid <= self.last);
        for pid in after.into_iter().chain(before) {
            let Some(tail) = self.tails.get_mut(&pid).filter(|_| spent < MAX_LOOK_BYTES) else { break };
            self.last = pid;
            spent += tail.read(&self.folder, self.system_owner, now, &mut found).unwrap_or(0);
            tail.looks_after_end = if guests.contains_key(&pid) { 0 } else { tail.looks_after_end + 1 };
        }
        self.tails.retain(|_, tail| tail.looks_after_end <= MAX_LOOKS_AFTER_END);
        found.truncate(MAX_LINES);
        found
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
        tails: LogTails,
    }

    impl Place {
        fn with(text: &str) -> Self {
            let fake = FakeProc::new();
            fake.write("var/log/libvirt/qemu/web.log", text);
            let tails = LogTails::new(&fake.paths());
            Self { fake, tails }
        }

        fn append(&self, text: &str) {
            let file = self.fake.paths().log.join("libvirt/qemu/web.log");
            std::fs::OpenOptions::new().append(true).open(file).unwrap().write_all(text.as_bytes()).unwrap();
        }

        /// What a look finds.
        fn look(&mut self, guests: &[(i32, &str)]) -> Vec<LogLine> {
            self.tails.look(&guests.iter().map(|(pid, name)| (*pid, (*name).to_owned())).collect(), NOW)
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
        assert!(place.look(&[]).is_empty());
        (0..MAX_LOOKS_AFTER_END).for_each(|_| drop(place.look(&[])));
        assert!(place.tails.tails.is_empty());
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
    fn logs_that_are_flooded_keep_no_other_from_being_read() {
        let mut place = Place::with(BEFORE);
        let names: Vec<String> = (0..40).map(|n| format!("flood-{n}")).collect();
        let guests: Vec<(i32, &str)> = names.iter().zip(1..).map(|(name, pid)| (pid, &**name)).collect();
        let guests = [guests, vec![(77, "web")]].concat();
        let line = format!("{}\n", "x".repeat(120));
        let flood = |place: &Place| {
            for name in &names {
                place.fake.write(&format!("var/log/libvirt/qemu/{name}.log"), &line.repeat(4000));
            }
        };
        flood(&place);
        let looks = |place: &mut Place| (0..20).find(|_| !place.look(&guests).is_empty());
        assert_eq!(looks(&mut place), None);
        place.append(FAILED);
        flood(&place);
        assert!(looks(&mut place).is_some());
    }

    #[test]
    fn a_flood_another_folder_and_another_user_are_harmless() {
        let mut place = Place::with(BEFORE);
        place.look(&[(77, "web")]);
        place.append(&"x".repeat(40 * MAX_NEW_BYTES as usize));
        place.append(&format!("\n{FAILED}"));
        assert_eq!(place.look(&[(77, "web")]).len(), 1, "the end of a flood");
        assert!(place.look(&[(78, "../../etc/passwd")]).is_empty());
        place.tails.system_owner += 1;
        assert!(place.look(&[(79, "web")]).is_empty(), "only its owner reads it");
    }
}
