//! Progress of a long task: one line on the terminal that disappears at the end. Nothing is written where standard
//! error is not a terminal or cannot clear a line. Ctrl-C still ends the program.

use judge::figures;
use kvm::sanitize;
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
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
        Self { task, begin, last: can_clear().then_some(begin), shown: false }
    }

    /// Reports that `done` of `all` steps are done.
    pub fn at(&mut self, done: u64, all: u64) {
        self.show(|elapsed| progress(done, all, elapsed));
    }

    fn show(&mut self, text: impl Fn(Duration) -> String) {
        let now = Instant::now();
        if self.last.is_some_and(|last| now - last >= PATIENCE) {
            (self.last, self.shown) = (Some(now), true);
            let _ = write!(std::io::stderr(), "\r{}: {}\x1b[K", self.task, text(now - self.begin));
        }
    }
}

/// Whether a line can be shown and taken away again.
fn can_clear() -> bool {
    std::io::stderr().is_terminal() && std::env::var("TERM").as_deref() != Ok("dumb")
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        if self.shown {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
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

/// What is done while this file is open; without a file what was read is judged or written.
fn task(file: &Path) -> String {
    match file.file_name() {
        Some(name) => format!("kvmtop: reading {}", sanitize(&name.to_string_lossy(), 40)),
        None => "kvmtop".into(),
    }
}

/// Shows while it lives how far files have been read, or for how long the program is at work on them. It looks at the
/// positions of the process's open files, so that no reader has to know of it (`/proc/PID/fdinfo`,
/// `proc_pid_fdinfo(5)`).
pub struct ReadingLine(Option<(Sender<()>, JoinHandle<()>)>);

impl ReadingLine {
    /// Watches these files, and those in these folders.
    pub fn new(paths: &[PathBuf]) -> Self {
        if !can_clear() {
            return Self(None);
        }
        let paths: Vec<PathBuf> = paths.iter().filter_map(|p| std::fs::canonicalize(p).ok()).collect();
        let (stop, stopped) = channel();
        let watch = move || {
            let (mut line, mut before) = (ProgressLine::new(task(Path::new(""))), (PathBuf::new(), 0));
            // A little more than the line's own pause.
            while stopped.recv_timeout(PATIENCE + PATIENCE / 10) == Err(RecvTimeoutError::Timeout) {
                let (path, position, size) = open_file(&paths).unwrap_or_default();
                if path != before.0 {
                    line = ProgressLine::new(task(&path));
                }
                // A reader whose position does not move works on what it has read, for an unknown time. So does a task
                // without an open file.
                if before == (path.clone(), position) || size == 0 {
                    line.show(|elapsed| format!("working for {}", figures::seconds(elapsed.as_secs_f64().round())));
                } else {
                    line.at(position, size);
                }
                before = (path, position);
            }
        };
        let thread = std::thread::Builder::new().name("progress".into()).spawn(watch);
        Self(thread.ok().map(|thread| (stop, thread)))
    }
}

impl Drop for ReadingLine {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.0.take() {
            drop(stop);
            let _ = thread.join();
        }
    }
}

/// The first of the process's open files that is one of these or in one of these folders: its path, the position of its
/// reader, its size.
fn open_file(paths: &[PathBuf]) -> Option<(PathBuf, u64, u64)> {
    std::fs::read_dir("/proc/self/fd").ok()?.flatten().find_map(|entry| {
        let path = std::fs::read_link(entry.path()).ok().filter(|path| paths.iter().any(|p| path.starts_with(p)))?;
        let info = std::fs::read_to_string(Path::new("/proc/self/fdinfo").join(entry.file_name())).ok()?;
        let position = info.lines().find_map(|l| l.strip_prefix("pos:"))?.trim().parse().ok()?;
        let size = std::fs::metadata(&path).ok().filter(std::fs::Metadata::is_file)?.len();
        Some((path, position, size))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Seek};

    #[test]
    fn progress_says_how_long_the_rest_takes() {
        let seconds = Duration::from_secs;
        assert_eq!(progress(0, 10, seconds(1)), "0 %");
        assert_eq!(progress(25, 100, seconds(10)), "25 %, 30 s left");
        assert_eq!(progress(1, 100, seconds(5)), "1 %, 8 min 15 s left");
        assert_eq!(progress(5, 3, seconds(1)), "100 %, 0 s left");
        assert_eq!(progress(1, 0, seconds(1)), "100 %, 0 s left");
    }

    #[test]
    fn a_file_being_read_is_found_with_its_position() {
        let folder = tempfile::tempdir().unwrap();
        let folder = std::fs::canonicalize(folder.path()).unwrap();
        let path = folder.join("big");
        std::fs::write(&path, [0; 100]).unwrap();
        let mut file = std::fs::File::open(&path).unwrap();
        file.read_exact(&mut [0; 40]).unwrap();
        assert_eq!(open_file(std::slice::from_ref(&folder)), Some((path.clone(), 40, 100)));
        file.rewind().unwrap();
        assert_eq!(open_file(std::slice::from_ref(&path)), Some((path, 0, 100)));
        assert_eq!(open_file(&[folder.join("other")]), None);
    }
}
