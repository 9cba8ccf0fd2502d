//! Progress of a long task: one line on the terminal that disappears at the end. Nothing is written where standard
//! error is not a terminal or cannot clear a line. Ctrl-C still ends the program.

use judge::figures;
use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

/// Time before the line first appears, and between updates.
const PATIENCE: Duration = Duration::from_millis(500);

/// A line on standard error, where that is a terminal.
#[derive(Debug)]
pub struct ProgressLine {
    task: String,
    begin: Instant,
    last: Option<Instant>,
    shown: bool,
}

impl ProgressLine {
    /// Starts a task of this name.
    pub fn new(task: String) -> Self {
        let begin = Instant::now();
        let can_clear = io::stderr().is_terminal() && std::env::var("TERM").as_deref() != Ok("dumb");
        Self { task, begin, last: can_clear.then_some(begin), shown: false }
    }

    /// Reports that `done` of `all` steps are done.
    pub fn at(&mut self, done: u64, all: u64) {
        let now = Instant::now();
        if self.last.is_some_and(|last| now - last >= PATIENCE) {
            (self.last, self.shown) = (Some(now), true);
            let _ = write!(io::stderr(), "\r{}: {}\x1b[K", self.task, progress(done, all, now - self.begin));
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

/// The progress of a task, and how long the rest takes at the same speed.
fn progress(done: u64, all: u64, elapsed: Duration) -> String {
    let all = all.max(1);
    let done = done.min(all);
    let part = done as f64 / all as f64;
    if done == 0 {
        return "0 %".into();
    }
    let left = elapsed.as_secs_f64() * (1.0 - part) / part;
    format!("{} %, {} left", (100.0 * part) as u64, figures::seconds(left.ceil()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_says_how_long_the_rest_takes() {
        let seconds = Duration::from_secs;
        assert_eq!(progress(0, 10, seconds(1)), "0 %");
        assert_eq!(progress(25, 100, seconds(10)), "25 %, 30 s left");
        assert_eq!(progress(1, 100, seconds(5)), "1 %, 8 min 15 s left");
        assert_eq!(progress(5, 3, seconds(1)), "100 %, 0 s left");
        assert_eq!(progress(1, 0, seconds(1)), "100 %, 0 s left");
    }
}
