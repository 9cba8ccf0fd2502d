//! Transparent huge pages of a guest. The kernel walks all of the VMM's page tables for the figure, so it is read
//! rarely, of one guest at a time, and on a thread of its own: no tick waits for it.

use super::stagger::stagger;
use crate::source::live::proc::file;
use crate::source::live::proc::paths::SystemPaths;
use crate::source::live::proc::stat::kilobytes;
use crate::source::privileges::keep_for_reading;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, channel};

/// The first reading is this long after the guest was first seen: a short look does without.
const FIRST_NS: u64 = 15_000_000_000;
/// Time between two readings.
const EVERY_NS: u64 = 300_000_000_000;

/// The last reading, and the one under way.
#[derive(Debug, Default)]
pub(crate) struct HugePages {
    /// `AnonHugePages` of `/proc/PID/smaps_rollup`, bytes; `None` before the first reading.
    pub bytes: Option<u64>,
    /// Monotonic nanoseconds.
    due_ns: Option<u64>,
    pending: Option<Receiver<Option<u64>>>,
}

impl HugePages {
    /// Takes over what was read, and begins a reading that is due. `walking` is set while any guest is being read.
    pub(crate) fn read(&mut self, paths: &SystemPaths, pid: i32, now_ns: u64, walking: &Arc<AtomicBool>) {
        if let Some(pending) = &self.pending {
            match pending.try_recv() {
                Ok(bytes) => self.bytes = bytes,
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => {}
            }
            self.pending = None;
        }
        let due_ns = *self.due_ns.get_or_insert(now_ns + FIRST_NS + stagger(pid));
        if now_ns < due_ns || walking.swap(true, Ordering::AcqRel) {
            return;
        }
        self.due_ns = Some(now_ns + EVERY_NS);
        let (send, pending) = channel();
        let (path, done) = (paths.process(pid, "smaps_rollup"), walking.clone());
        let walk = move || {
            keep_for_reading();
            let text = file::read_text(&path, 8192).ok();
            done.store(false, Ordering::Release);
            let _ = send.send(text.and_then(|text| kilobytes(&text, "AnonHugePages")));
        };
        match std::thread::Builder::new().name("huge-pages".into()).spawn(walk) {
            Ok(_) => self.pending = Some(pending),
            Err(_) => walking.store(false, Ordering::Release),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::live::proc::fake::FakeProc;

    #[test]
    fn one_guest_is_read_at_a_time_and_rarely() {
        let fake = FakeProc::new();
        let rollup = b"7f00-7fff ---p 00000000 00:00 0 [rollup]\nRss: 9 kB\nAnonHugePages:    2048 kB\n";
        fake.process(32, "qemu").process_file("smaps_rollup", rollup);
        let walking = Arc::new(AtomicBool::new(false));
        let mut pages = HugePages::default();
        pages.read(&fake.paths(), 32, 0, &walking);
        assert!(pages.pending.is_none(), "not at once");
        walking.store(true, Ordering::Release);
        pages.read(&fake.paths(), 32, FIRST_NS, &walking);
        assert!(pages.pending.is_none(), "another guest is being read");
        walking.store(false, Ordering::Release);
        pages.read(&fake.paths(), 32, FIRST_NS, &walking);
        let (send, answered) = channel();
        send.send(pages.pending.take().unwrap().recv().unwrap()).unwrap();
        pages.pending = Some(answered);
        assert!(!walking.load(Ordering::Acquire));
        pages.read(&fake.paths(), 32, FIRST_NS + 1, &walking);
        assert_eq!((pages.bytes, pages.pending.is_none()), (Some(2 << 20), true));
    }
}
