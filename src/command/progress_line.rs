//! Progress of a long task: one line on the terminal that disappears at the end. Nothing is written where standard
//! error is not a terminal or cannot clear a line. Ctrl-C still ends the program.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

/// Time before the line first appears, and between updates.
const PATIENCE: Duration = Duration::from_millis(500);

/// A line on standard error, where that is a terminal.
#[derive(Debug)]
pub struct ProgressLine {
    task: String,
    /// When the line was written last; `None` where it cannot be.
    last: Option<Instant>,
    shown: bool,
}

impl ProgressLine {
    /// Starts a task of this name.
    pub fn new(task: String) -> Self {
        let can_clear = io::stderr().is_terminal() && std::env::var("TERM").as_deref() != Ok("dumb");
        Self { task, last: can_clear.then(Instant::now), shown: false }
    }

    /// Reports that `done` of `all` steps are done.
    pub fn at(&mut self, done: u64, all: u64) {
        let now = Instant::now();
        if self.last.is_some_and(|last| now - last >= PATIENCE) {
            (self.last, self.shown) = (Some(now), true);
            let _ = write!(io::stderr(), "\r{}: {} %\x1b[K", self.task, 100 * done / all.max(1));
        }
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        if self.shown {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
