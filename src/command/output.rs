//! Writes to stdout and stderr, whose reader may be slow, stopped or gone.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, write};
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A pipe that poll(2) calls writable has a free page: a write of this size does not block (`pipe_poll` and
/// `pipe_write` in the kernel's fs/pipe.c).
const MAX_WRITE_BYTES: usize = 4096;
/// How often a writer that waits for its reader looks whether kvmtop is to end.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// How long a reader that takes nothing is waited for once kvmtop is to end.
const MAX_WAIT_AT_END: Duration = Duration::from_secs(1);

/// Whether a signal has asked kvmtop to end.
static IS_ENDING: AtomicBool = AtomicBool::new(false);

/// From now on, a reader that takes nothing is not waited for: a signal has asked kvmtop to end.
pub fn stop_waiting() {
    IS_ENDING.store(true, Ordering::Relaxed);
}

/// Writes all of it. Waits for the reader as long as it likes, and about a second once kvmtop is to end.
///
/// # Errors
/// The kernel's; or the reader took nothing for that second.
pub fn write_all(out: &impl AsFd, bytes: &[u8]) -> io::Result<()> {
    let mut left = bytes;
    while !left.is_empty() {
        wait_for_room(out)?;
        let (chunk, _) = left.split_at(left.len().min(MAX_WRITE_BYTES));
        match write(out, chunk) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => left = left.get(written..).unwrap_or_default(),
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// Waits until the kernel takes a write at once, or knows that it never will.
fn wait_for_room(out: &impl AsFd) -> io::Result<()> {
    let mut ending_since: Option<Instant> = None;
    loop {
        let mut fds = [PollFd::new(out, PollFlags::OUT)];
        match poll(&mut fds, Some(&LOOK)) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(e) => return Err(e.into()),
        }
        if !IS_ENDING.load(Ordering::Relaxed) {
            continue;
        }
        if ending_since.get_or_insert_with(Instant::now).elapsed() >= MAX_WAIT_AT_END {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "a signal came, and its reader takes nothing"));
        }
    }
}
