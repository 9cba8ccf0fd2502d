//! kvmtop at work in batch mode, read interval by interval.

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// An interval of a second takes no longer than this on any machine.
const SILENCE: Duration = Duration::from_secs(30);

/// A running kvmtop. A thread reads what it prints: a full pipe would hold it up.
pub struct Watch {
    child: Child,
    lines: Receiver<Value>,
    /// All intervals so far, at least one.
    pub seen: Vec<Value>,
}

impl Watch {
    /// Starts it with these options and waits for its first interval: the engine is in place from
    /// then on.
    pub fn start<S: AsRef<std::ffi::OsStr>>(options: &[S]) -> Self {
        let mut command = super::kvmtop();
        command
            .args(["--batch", "--json", "-n", "1000"])
            .args(options);
        Self::of(command)
    }

    /// The same for a command that becomes kvmtop and prints JSON.
    pub fn of(mut command: Command) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .spawn()
            .expect("kvmtop starts");
        let stdout = BufReader::new(child.stdout.take().expect("stdout"));
        let (send, lines) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines() {
                let value = serde_json::from_str(&line.expect("text")).expect("JSON");
                if send.send(value).is_err() {
                    return;
                }
            }
        });
        let mut watch = Self {
            child,
            lines,
            seen: Vec::new(),
        };
        watch.next();
        watch
    }

    /// Starts it with an engine, two intervals a second.
    pub fn with_engine(engine: &str) -> Self {
        Self::start(&["-d", "0.5", "--engine", engine])
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the next interval.
    pub fn next(&mut self) -> &Value {
        self.seen
            .push(self.lines.recv_timeout(SILENCE).expect("an interval"));
        self.last()
    }

    /// The newest interval.
    pub fn last(&self) -> &Value {
        self.seen.last().expect("the first was waited for")
    }

    /// The state of a source in the newest interval, and why it is not whole.
    pub fn source(&self, name: &str) -> (String, String) {
        let all = self.last()["sources"].as_array().expect("sources");
        let source = all
            .iter()
            .find(|s| s["name"] == name)
            .unwrap_or(&Value::Null);
        (
            source["state"].as_str().unwrap_or("").into(),
            source["cause"].as_str().unwrap_or("").into(),
        )
    }

    /// Ends it as Ctrl-C does; answers with all that it printed.
    pub fn stop(mut self) -> Vec<Value> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("kvmtop lives");
        self.seen.extend(self.lines.iter());
        let status = self.child.wait().expect("kvmtop ends");
        assert!(status.success(), "SIGINT ends kvmtop with {status}");
        std::mem::take(&mut self.seen)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
