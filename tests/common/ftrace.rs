//! An instance of ftrace, a tracer beside ours that stops what it began.

use std::io::Result;
use std::path::{Path, PathBuf};

/// Removed when dropped.
pub struct Instance(PathBuf);

impl Instance {
    /// Tracefs must be mounted, and ours to write.
    pub fn new() -> Result<Self> {
        let folder = Path::new("/sys/kernel/tracing/instances")
            .join(format!("kvmtop-{}", std::process::id()));
        std::fs::create_dir(&folder)?;
        let instance = Self(folder);
        // By its own clock, CPUs of a virtual machine need not agree on what was first.
        instance.write("trace_clock", "mono")?;
        instance.write("buffer_size_kb", "8192")?;
        Ok(instance)
    }

    fn write(&self, file: &str, text: &str) -> Result<()> {
        std::fs::write(self.0.join(file), text)
    }

    /// `events`: such as `kvm` or `sched/sched_switch`.
    pub fn enable(&self, events: &str) -> Result<()> {
        self.write(&format!("events/{events}/enable"), "1")
    }

    /// Those alone whose fields are so.
    pub fn enable_filtered(&self, event: &str, filter: &str) -> Result<()> {
        self.write(&format!("events/{event}/filter"), filter)?;
        self.enable(event)
    }

    /// Forgets what was traced.
    pub fn clear(&self) -> Result<()> {
        self.write("trace", "")
    }

    /// What was traced, in its order.
    pub fn text(&self) -> Result<String> {
        std::fs::read(self.0.join("trace")).map(|text| String::from_utf8_lossy(&text).into_owned())
    }
}

/// An event of the text.
#[derive(Debug)]
pub struct Event<'t> {
    /// The task that ran: `IO io1-99`.
    pub task: &'t str,
    /// Its time, microseconds.
    pub us: f64,
    /// `sched_waking`.
    pub name: &'t str,
}

/// ` IO io1-99 [000] d..2. 2419.771216: sched_waking: comm=CPU 0/KVM pid=97 prio=120
/// target_cpu=001`
pub fn events(text: &str) -> impl Iterator<Item = Event<'_>> {
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| {
            let (head, rest) = line.split_once(" [")?;
            let mut parts = rest.split(": ");
            let seconds: f64 = parts.next()?.split_whitespace().last()?.parse().ok()?;
            Some(Event {
                task: head.trim(),
                us: seconds * 1e6,
                name: parts.next()?,
            })
        })
}

impl Drop for Instance {
    fn drop(&mut self) {
        // What cannot be removed is seen by the next test that makes it.
        let _ = self.write("events/enable", "0");
        let _ = std::fs::remove_dir(&self.0);
    }
}
