//! Reads files of a process that another program can hold back.
//!
//! `/proc/PID/cmdline` is memory of that process, `numa_maps` and `smaps_rollup` need the lock of its memory
//! (`get_mm_cmdline` of `fs/proc/base.c`; `fs/proc/task_mmu.c`): who reads a page of a file whose server does not
//! answer (FUSE, NFS) may hold that lock, and a change of the memory then lets nobody else have it. So a thread reads,
//! and one that takes too long is left behind. It ends with the process at the latest.

use super::file::{self, FileError};
use rights::keep_for_reading;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, TryRecvError, channel, sync_channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// The longest wait for a file. Reading takes some microseconds unless the machine is very busy.
pub(crate) const PATIENCE: Duration = Duration::from_millis(100);
/// For a file that takes the kernel long in any case: no tick waits for it.
pub(crate) const NO_PATIENCE: Duration = Duration::ZERO;
/// The longest wait in one tick, for all files together.
const PATIENCE_OF_TICK: Duration = Duration::from_millis(200);
/// At most this many threads are left behind with processes of kvmtop's own user, and as many with those of others.
const MAX_LEFT: usize = 32;
/// At most this many with those of one other user.
const MAX_LEFT_OF_USER: usize = 4;

/// What a file holds, or why it cannot be read.
pub(crate) type FileBytes = Result<Vec<u8>, FileError>;

/// A file that may come late.
#[derive(Debug, Default)]
pub(crate) struct LateFile {
    awaited: Option<Receiver<FileBytes>>,
}

impl LateFile {
    /// Whether a thread waits for it.
    pub(crate) fn is_awaited(&self) -> bool {
        self.awaited.is_some()
    }

    /// What it holds, once that is there. Asks for it unless a thread waits for it already, and waits so long at most:
    /// for at most `most` bytes of a file of a process of user `uid`.
    pub(crate) fn read(
        &mut self,
        files: &mut SlowFiles,
        path: PathBuf,
        most: usize,
        uid: Option<u32>,
        patience: Duration,
    ) -> Option<FileBytes> {
        if let Some(awaited) = &self.awaited {
            let received = awaited.try_recv();
            if received != Err(TryRecvError::Empty) {
                self.awaited = None;
            }
            return received.ok();
        }
        match files.read(path, most, uid, patience) {
            SlowFile::Read(bytes) => Some(bytes),
            SlowFile::Waiting(receiver) => {
                self.awaited = Some(receiver);
                None
            }
            SlowFile::Busy => None,
        }
    }
}

/// The answer to a question for a file.
enum SlowFile {
    /// It was read.
    Read(FileBytes),
    /// A thread waits for it; the bytes come later, if they do.
    Waiting(Receiver<FileBytes>),
    /// Too many threads wait, or this tick has waited long enough: ask again in another tick.
    Busy,
}

struct Question {
    path: PathBuf,
    most: usize,
    reply: SyncSender<FileBytes>,
}

/// A thread that reads one file after the other.
#[derive(Debug)]
struct FileThread {
    questions: Sender<Question>,
    /// The thread holds the other end as long as it lives.
    alive: Weak<()>,
}

/// The threads that read, and what may be waited for.
#[derive(Debug)]
pub(crate) struct SlowFiles {
    read: fn(&Path, usize) -> FileBytes,
    thread: Option<FileThread>,
    /// The threads left behind, with the user of the process that each waits for.
    left: Vec<(u32, Weak<()>)>,
    waited: Duration,
}

impl Default for SlowFiles {
    fn default() -> Self {
        Self { read: file::read_bytes, thread: None, left: Vec::new(), waited: Duration::ZERO }
    }
}

impl SlowFiles {
    /// Begins a tick.
    pub(crate) fn begin(&mut self) {
        self.waited = Duration::ZERO;
        self.left.retain(|(_, alive)| alive.strong_count() > 0);
    }

    /// How many threads are left behind.
    #[cfg(test)]
    fn left_behind(&self) -> usize {
        self.left.len()
    }

    /// Reads a file of a process of user `uid`, at most `most` bytes.
    fn read(&mut self, path: PathBuf, most: usize, uid: Option<u32>, patience: Duration) -> SlowFile {
        // A user that is not known shares the places of one.
        let uid = uid.unwrap_or(u32::MAX);
        if self.waited >= PATIENCE_OF_TICK || !self.has_room(uid) {
            return SlowFile::Busy;
        }
        let Some(thread) = self.thread.take().or_else(|| FileThread::start(self.read)) else { return SlowFile::Busy };
        let (reply, answer) = sync_channel(1);
        if thread.questions.send(Question { path, most, reply }).is_err() {
            return SlowFile::Busy;
        }
        let begin = Instant::now();
        let received = answer.recv_timeout(patience.min(PATIENCE_OF_TICK.saturating_sub(self.waited)));
        match received {
            Ok(bytes) => {
                self.thread = Some(thread);
                SlowFile::Read(bytes)
            }
            Err(RecvTimeoutError::Timeout) => {
                self.waited += begin.elapsed();
                self.left.push((uid, thread.alive));
                SlowFile::Waiting(answer)
            }
            Err(RecvTimeoutError::Disconnected) => SlowFile::Busy,
        }
    }

    fn has_room(&self, uid: u32) -> bool {
        let own = rustix::process::geteuid().as_raw();
        let of_user = self.left.iter().filter(|(user, _)| *user == uid).count();
        let of_others = self.left.iter().filter(|(user, _)| *user != own).count();
        if uid == own { of_user < MAX_LEFT } else { of_user < MAX_LEFT_OF_USER && of_others < MAX_LEFT }
    }
}

impl FileThread {
    /// Starts a thread; `None` if the system has none to give.
    fn start(read: fn(&Path, usize) -> FileBytes) -> Option<Self> {
        let (questions, asked) = channel::<Question>();
        let living = Arc::new(());
        let alive = Arc::downgrade(&living);
        let work = move || {
            keep_for_reading();
            for Question { path, most, reply } in asked {
                // Nobody may wait for it any more.
                let _ = reply.try_send(read(&path, most));
            }
            drop(living);
        };
        std::thread::Builder::new().name("slow-files".into()).stack_size(256 << 10).spawn(work).ok()?;
        Some(Self { questions, alive })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// Reads a file once it is there.
    fn once_there(path: &Path, most: usize) -> FileBytes {
        while !path.exists() {
            std::thread::sleep(Duration::from_millis(1));
        }
        file::read_bytes(path, most)
    }

    #[test]
    fn a_file_that_can_be_read_is_read_at_once() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a"), "text").unwrap();
        let mut files = SlowFiles::default();
        for (name, expected) in [("a", Ok(b"tex".to_vec())), ("b", Err(FileError::Gone)), ("a", Ok(b"tex".to_vec()))] {
            let SlowFile::Read(bytes) = files.read(dir.path().join(name), 3, None, PATIENCE) else {
                panic!("it waits")
            };
            assert_eq!(bytes, expected);
        }
        assert_eq!(files.left_behind(), 0);
    }

    #[test]
    fn files_that_are_held_back_take_few_threads_and_little_of_a_tick() {
        let dir = tempfile::tempdir().unwrap();
        let held = dir.path().join("held");
        let mut files = SlowFiles { read: once_there, ..SlowFiles::default() };
        let own = rustix::process::geteuid().as_raw();
        let mut answers = Vec::new();
        for user in 0..100 {
            for _ in 0..10 {
                files.begin();
                let begin = Instant::now();
                while let SlowFile::Waiting(answer) = files.read(held.clone(), 9, Some(own + 1 + user), PATIENCE) {
                    answers.push(answer);
                }
                assert!(begin.elapsed() < 10 * PATIENCE_OF_TICK, "a tick waits for {:?}", begin.elapsed());
            }
            assert!(files.left_behind() <= MAX_LEFT.min(MAX_LEFT_OF_USER * (user as usize + 1)));
        }
        assert_eq!(files.left_behind(), MAX_LEFT);
        // Others have used up their places: kvmtop's own user still has some.
        files.begin();
        let SlowFile::Waiting(answer) = files.read(held.clone(), 9, Some(own), PATIENCE) else {
            panic!("no place is left")
        };
        answers.push(answer);
        // It is there with all that is in it.
        std::fs::write(dir.path().join("whole"), "text").unwrap();
        std::fs::rename(dir.path().join("whole"), &held).unwrap();
        for answer in answers {
            assert_eq!(answer.recv_timeout(Duration::from_secs(30)).unwrap(), Ok(b"text".to_vec()));
        }
        let until = Instant::now() + Duration::from_secs(30);
        while files.left_behind() > 0 {
            assert!(Instant::now() < until, "a thread that has read its file goes on");
            std::thread::sleep(Duration::from_millis(1));
            files.begin();
        }
    }
}
