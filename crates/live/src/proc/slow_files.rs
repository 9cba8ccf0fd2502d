//! Reads files of a process that another program can hold back.
//!
//! `/proc/PID/cmdline` is memory of that process, and `numa_maps` and `smaps_rollup` need the lock
//! of its memory (`get_mm_cmdline` of `fs/proc/base.c`; `fs/proc/task_mmu.c`). A thread of the
//! process may hold that lock while it reads a page of a file whose server does not answer (FUSE,
//! NFS); once another thread wants to change the memory, all readers wait. So a separate thread
//! reads each file, and the tick goes on without an answer that takes too long. A thread that waits
//! ends with the process at the latest.

use super::file::{self, FileError};
use crate::user_slots::UserSlots;
use rights::{for_reading, keep};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// The longest wait for a file. Reading takes some microseconds unless the machine is very busy.
const FILE_TIMEOUT: Duration = Duration::from_millis(100);
/// The longest wait in one tick, for all files together.
const TICK_TIMEOUT: Duration = Duration::from_millis(200);

/// The content of a file, or why it cannot be read.
pub(crate) type FileBytes = Result<Vec<u8>, FileError>;

/// What to read: at most `max` bytes of a file of a process that runs as user `uid`.
#[derive(Debug)]
pub(crate) struct SlowFile {
    pub path: PathBuf,
    pub max: usize,
    pub uid: Option<u32>,
}

/// What a thread finds out, perhaps late.
#[derive(Debug)]
pub(crate) struct Late<T>(pub Option<Receiver<T>>);

/// The content of a file.
pub(crate) type LateFile = Late<FileBytes>;

impl<T> Default for Late<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> Late<T> {
    /// Whether a thread still works on the answer.
    pub fn is_awaited(&self) -> bool {
        self.0.is_some()
    }

    /// The answer, if it is there.
    pub fn take(&mut self) -> Option<T> {
        self.take_within(Duration::ZERO)
    }

    fn take_within(&mut self, timeout: Duration) -> Option<T> {
        let answer = self.0.as_ref()?.recv_timeout(timeout);
        if !matches!(answer, Err(RecvTimeoutError::Timeout)) {
            self.0 = None;
        }
        answer.ok()
    }
}

impl LateFile {
    /// Returns the content once it was read. Starts a thread unless one reads already, and waits a
    /// little for the new thread.
    pub fn read(&mut self, files: &mut SlowFiles, file: SlowFile) -> Option<FileBytes> {
        if self.is_awaited() {
            return self.take();
        }
        self.0 = files.start(file);
        let time_left = TICK_TIMEOUT.saturating_sub(files.waited);
        let begin = Instant::now();
        let content = self.take_within(FILE_TIMEOUT.min(time_left));
        files.waited += begin.elapsed();
        content
    }
}

/// The threads that read.
#[derive(Debug)]
pub(crate) struct SlowFiles {
    read: fn(&Path, usize) -> FileBytes,
    slots: UserSlots,
    /// How long this tick has waited for files.
    pub waited: Duration,
}

impl Default for SlowFiles {
    fn default() -> Self {
        Self {
            read: file::read_bytes,
            slots: UserSlots::default(),
            waited: Duration::ZERO,
        }
    }
}

impl SlowFiles {
    /// Runs work that may wait for a process of this user, or for a file of it. `None` as for
    /// [`Self::start`].
    pub fn run<T: Send + 'static>(
        &self,
        uid: Option<u32>,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<Receiver<T>> {
        // All users that are not known share the places of one user.
        self.slots.run(uid.unwrap_or(u32::MAX), "files", move || {
            // Dropping a capability is always permitted.
            let _ = keep(for_reading());
            work()
        })
    }

    /// Starts a thread that reads a file. `None`: too many threads wait, or this tick has waited
    /// long enough; ask again in another tick.
    pub fn start(&self, SlowFile { path, max, uid }: SlowFile) -> Option<Receiver<FileBytes>> {
        let read = self.read;
        if self.waited < TICK_TIMEOUT {
            self.run(uid, move || read(&path, max))
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::user_slots::{MAX_THREADS, MAX_THREADS_OF_USER};
    use std::path::Path;

    /// Reads a file as soon as it exists.
    fn once_there(path: &Path, max: usize) -> FileBytes {
        while !path.exists() {
            std::thread::sleep(Duration::from_millis(1));
        }
        file::read_bytes(path, max)
    }

    #[test]
    fn a_file_that_can_be_read_is_read_at_once() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a"), "text").unwrap();
        let mut files = SlowFiles::default();
        for (name, expected) in [
            ("a", Ok(b"tex".to_vec())),
            ("b", Err(FileError::Gone)),
            ("a", Ok(b"tex".to_vec())),
        ] {
            files.waited = Duration::ZERO;
            let file = SlowFile {
                path: dir.path().join(name),
                max: 3,
                uid: None,
            };
            assert_eq!(LateFile::default().read(&mut files, file), Some(expected));
        }
        assert_eq!(files.slots.taken(), 0);
    }

    #[test]
    fn files_that_are_held_back_take_few_threads_and_little_of_a_tick() {
        let dir = tempfile::tempdir().unwrap();
        let held = dir.path().join("held");
        let mut files = SlowFiles {
            read: once_there,
            ..SlowFiles::default()
        };
        let own = rustix::process::geteuid().as_raw();
        let mut late = Vec::new();
        let mut ask = |files: &mut SlowFiles, user: u32| {
            let (mut file, asked) = (
                LateFile::default(),
                SlowFile {
                    path: held.clone(),
                    max: 9,
                    uid: Some(user),
                },
            );
            assert_eq!(file.read(files, asked), None);
            let waits = file.is_awaited();
            late.extend(waits.then_some(file));
            waits
        };
        for user in 0..100 {
            for _ in 0..10 {
                files.waited = Duration::ZERO;
                let begin = Instant::now();
                while ask(&mut files, own + 1 + user) {}
                assert!(
                    begin.elapsed() < 10 * TICK_TIMEOUT,
                    "a tick waits for {:?}",
                    begin.elapsed()
                );
            }
            let users = user as usize + 1;
            assert!(files.slots.taken() <= (MAX_THREADS_OF_USER * users).min(MAX_THREADS + users));
        }
        assert_eq!(
            files.slots.taken(),
            MAX_THREADS + 96,
            "each user has one, and four have three more"
        );
        // Others have used up their places: kvmtop's own user still has some.
        files.waited = Duration::ZERO;
        assert!(ask(&mut files, own), "a place is left");
        // It is there with all that is in it.
        std::fs::write(dir.path().join("whole"), "text").unwrap();
        std::fs::rename(dir.path().join("whole"), &held).unwrap();
        for file in late {
            let answer = file.0.unwrap().recv_timeout(Duration::from_secs(30));
            assert_eq!(answer.unwrap(), Ok(b"text".to_vec()));
        }
        assert_eq!(
            files.slots.taken(),
            0,
            "a thread that has read its file ends"
        );
    }
}
