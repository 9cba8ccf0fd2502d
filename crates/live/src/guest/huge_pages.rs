//! Transparent huge pages of a guest. The kernel walks all of the VMM's page tables for the figure, so it is read
//! rarely, of one guest at a time, and on a thread of its own: no tick waits for it.

use super::stagger::stagger;
use crate::proc::paths::SystemPaths;
use crate::proc::slow_files::{LateFile, NO_PATIENCE, SlowFiles};
use crate::proc::stat::kilobytes;

/// The first reading is this long after the guest was first seen: a short look does without.
const FIRST_NS: u64 = 15_000_000_000;
/// Time between two readings.
const EVERY_NS: u64 = 300_000_000_000;
/// The next guest has its turn after so long, whether or not this one has answered: a process can hold it back.
const TURN_NS: u64 = 10_000_000_000;

/// The last reading, and the one under way.
#[derive(Debug, Default)]
pub(crate) struct HugePages {
    /// `AnonHugePages` of `/proc/PID/smaps_rollup`, bytes; `None` before the first reading.
    pub bytes: Option<u64>,
    /// Monotonic nanoseconds.
    due_ns: Option<u64>,
    rollup: LateFile,
}

/// Whose turn it is, and who reads.
#[derive(Debug)]
pub(crate) struct HugePagesTurn<'t> {
    /// The user of the guest's process.
    pub uid: Option<u32>,
    /// From here on another guest may be read, monotonic nanoseconds.
    pub next_ns: &'t mut u64,
    /// Reads it.
    pub slow_files: &'t mut SlowFiles,
}

impl HugePages {
    /// Takes over what was read, and begins a reading that is due.
    pub(crate) fn read(&mut self, paths: &SystemPaths, pid: i32, now_ns: u64, turn: &mut HugePagesTurn<'_>) {
        if !self.rollup.is_awaited() {
            let due_ns = *self.due_ns.get_or_insert(now_ns + FIRST_NS + stagger(pid));
            if now_ns < due_ns.max(*turn.next_ns) {
                return;
            }
            self.due_ns = Some(now_ns + EVERY_NS);
            *turn.next_ns = now_ns + TURN_NS;
        }
        let path = paths.process(pid, "smaps_rollup");
        let rollup = self.rollup.read(turn.slow_files, path, 8192, turn.uid, NO_PATIENCE);
        if let Some(rollup) = &rollup {
            let text = rollup.as_deref().map(String::from_utf8_lossy);
            self.bytes = text.ok().and_then(|text| kilobytes(&text, "AnonHugePages"));
        }
        if !self.rollup.is_awaited() {
            *turn.next_ns = now_ns;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::fake::FakeProc;

    #[test]
    fn one_guest_is_read_at_a_time_and_rarely() {
        let fake = FakeProc::new();
        let rollup = b"7f00-7fff ---p 00000000 00:00 0 [rollup]\nRss: 9 kB\nAnonHugePages:    2048 kB\n";
        fake.process(32, "qemu").process_file("smaps_rollup", rollup);
        let (mut slow_files, mut next_ns) = (SlowFiles::default(), 0);
        let mut pages = HugePages::default();
        let mut read = |pages: &mut HugePages, next_ns: &mut u64, now_ns| {
            let mut turn = HugePagesTurn { uid: None, next_ns, slow_files: &mut slow_files };
            pages.read(&fake.paths(), 32, now_ns, &mut turn);
        };
        read(&mut pages, &mut next_ns, 0);
        assert!(!pages.rollup.is_awaited(), "not at once");
        next_ns = FIRST_NS + 1;
        read(&mut pages, &mut next_ns, FIRST_NS);
        assert!(!pages.rollup.is_awaited(), "it is the turn of another guest");
        let begin = FIRST_NS + 1;
        while pages.bytes.is_none() {
            read(&mut pages, &mut next_ns, begin);
            assert!(next_ns == begin || next_ns == begin + TURN_NS && pages.rollup.is_awaited());
        }
        assert_eq!((pages.bytes, next_ns), (Some(2 << 20), begin));
        read(&mut pages, &mut next_ns, begin + EVERY_NS - 1);
        assert!(!pages.rollup.is_awaited(), "not again soon");
    }
}
