//! SIGINT, SIGTERM and SIGHUP as something to wait for.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Becomes readable at the first signal that asks kvmtop to end, and stays so.
#[derive(Debug)]
pub struct Stop {
    reader: UnixStream,
}

impl Stop {
    /// From now on the signals are noted instead of ending the process; a second one ends it at once, in case something hangs.
    ///
    /// # Errors
    /// When the system has no file descriptor left.
    pub fn new() -> io::Result<Self> {
        let (reader, writer) = UnixStream::pair()?;
        let armed = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // In this order: at the first signal the flag is still down, and the second action lifts it.
            signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&armed))?;
            signal_hook::flag::register(signal, Arc::clone(&armed))?;
            signal_hook::low_level::pipe::register(signal, writer.try_clone()?)?;
        }
        Ok(Self { reader })
    }

    /// Whether a signal came.
    pub fn asked(&self) -> bool {
        self.wait_until(Instant::now())
    }

    /// Sleeps until the deadline or the signal; answers whether the signal came.
    pub fn wait_until(&self, deadline: Instant) -> bool {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            let mut fds = [PollFd::new(&self.reader, PollFlags::IN)];
            match poll(&mut fds, Some(&timeout)) {
                Ok(0) if left == Duration::ZERO => return false,
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return true,
                // Poll on an open socket fails only for want of memory: end rather than spin.
                Err(_) => return true,
            }
        }
    }
}
