//! How far something that takes its time has come: one line on the terminal that goes away again.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

/// Nothing is said of what is done within this time, nor more often.
const PATIENCE: Duration = Duration::from_secs(1);

/// A line on standard error, where that is a terminal.
#[derive(Debug)]
pub struct Progress {
    what: String,
    last: Option<Instant>,
    shown: bool,
}

impl Progress {
    /// Begins something that is named so.
    pub fn new(what: String) -> Self {
        Self { what, last: std::io::stderr().is_terminal().then(Instant::now), shown: false }
    }

    /// So much of it is done.
    pub fn at(&mut self, done: usize, all: usize) {
        let now = Instant::now();
        if self.last.is_none_or(|last| now - last < PATIENCE) {
            return;
        }
        (self.last, self.shown) = (Some(now), true);
        let percent = 100 * done / all.max(1);
        let _ = write!(std::io::stderr(), "\r{}: {percent} %\x1b[K", self.what);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}
