//! Progress of a long task: one line on the terminal that disappears at the end.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

/// Time before the line first appears, and between updates.
const PATIENCE: Duration = Duration::from_secs(1);

/// A line on standard error, where that is a terminal.
#[derive(Debug)]
pub struct ProgressLine {
    task: String,
    last: Option<Instant>,
    shown: bool,
}

impl ProgressLine {
    /// Begins a task of this name.
    pub fn new(task: String) -> Self {
        Self { task, last: std::io::stderr().is_terminal().then(Instant::now), shown: false }
    }

    /// Reports that `done` of `all` steps are done.
    pub fn at(&mut self, done: usize, all: usize) {
        let now = Instant::now();
        if self.last.is_none_or(|last| now - last < PATIENCE) {
            return;
        }
        (self.last, self.shown) = (Some(now), true);
        let percent = 100 * done / all.max(1);
        let _ = write!(std::io::stderr(), "\r{}: {percent} %\x1b[K", self.task);
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        if self.shown {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}
