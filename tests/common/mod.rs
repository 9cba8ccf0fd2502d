//! What the real-guest tests share: a guest of a few bytes that does exactly what a test asks for,
//! and the log of what ran.
#![allow(dead_code, missing_docs)]

pub mod child;
pub mod cpu_group;
pub mod exporter;
pub mod findings;
pub mod ftrace;
pub mod guest;
pub mod hog;
pub mod libvirt;
pub mod nested;
pub mod qemu;
pub mod screen;
pub mod stalled_fs;
pub mod watch;

use serde_json::Value;
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::{
    Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
};

static MACHINE: RwLock<()> = RwLock::new(());
/// Tests that may run beside each other.
const PLACES: usize = 4;
static FREE: Mutex<usize> = Mutex::new(PLACES);
static LEFT: Condvar = Condvar::new();

/// The machine for one test.
pub type Alone = RwLockWriteGuard<'static, ()>;

/// Waits until no other test of this binary runs. Rings overflow on a busy machine, and an engine
/// counts every guest.
pub fn alone() -> Alone {
    MACHINE.write().unwrap_or_else(PoisonError::into_inner)
}

/// A place on the machine beside a few other tests.
pub struct Beside(Option<RwLockReadGuard<'static, ()>>);

/// Waits until no test has the machine for itself, and until there is a place.
pub fn beside_others() -> Beside {
    let free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut free = LEFT
        .wait_while(free, |free| *free == 0)
        .unwrap_or_else(PoisonError::into_inner);
    *free -= 1;
    drop(free);
    Beside(Some(MACHINE.read().unwrap_or_else(PoisonError::into_inner)))
}

/// Waits until no other test pins guests to CPUs: an overlap concerns all guests on a CPU. To be
/// taken before [`beside_others`], so that no place is kept in vain.
pub fn pinning() -> MutexGuard<'static, ()> {
    static PINS: Mutex<()> = Mutex::new(());
    PINS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Beside {
    fn drop(&mut self) {
        self.0 = None;
        *FREE.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        LEFT.notify_one();
    }
}

/// The binary under test.
pub fn kvmtop() -> Command {
    let mut c = Command::new(env!("CARGO_BIN_EXE_kvmtop"));
    c.stdin(Stdio::null());
    c
}

/// Notes that a real-guest test ran.
pub fn ran(test: &str) {
    log(&format!("RAN {test}"));
}

/// Notes that a real-guest test could not run here, and why.
pub fn skipped(test: &str, why: &str) {
    log(&format!("SKIPPED {test}: {why}"));
}

fn log(line: &str) {
    eprintln!("{line}");
    let Some(path) = std::env::var_os("KVMTOP_TEST_LOG") else {
        return;
    };
    if let Ok(mut f) = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
    {
        // One write a line: tests of several processes append at once.
        let _ = f.write_all(format!("{line}\n").as_bytes());
    }
}

/// What a test that traces a guest needs and this machine lacks.
pub fn cannot_trace() -> Option<String> {
    if let Some(why) = cannot_run_guests() {
        return Some(why);
    }
    if !rustix::process::geteuid().is_root() {
        return Some("not root".into());
    }
    let events = [
        "/sys/kernel/tracing/events/kvm",
        "/sys/kernel/debug/tracing/events/kvm",
    ];
    if !events.iter().any(|p| std::path::Path::new(p).is_dir()) {
        return Some("tracefs shows no kvm events".into());
    }
    None
}

/// `KVMTOP_TEST_GUESTS=0` leaves out every test that starts a guest.
pub fn guests_refused() -> Option<String> {
    std::env::var_os("KVMTOP_TEST_GUESTS")
        .is_some_and(|v| v == "0")
        .then(|| "KVMTOP_TEST_GUESTS=0".into())
}

/// What a test that starts a guest needs and this machine lacks.
pub fn cannot_run_guests() -> Option<String> {
    if let Some(why) = guests_refused() {
        return Some(why);
    }
    match std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/kvm")
    {
        Ok(_) => None,
        Err(e) => Some(format!("/dev/kvm: {e}")),
    }
}

/// One JSON object per interval of a finished `--batch --json` run.
pub fn intervals(stdout: &[u8]) -> Vec<Value> {
    String::from_utf8_lossy(stdout)
        .lines()
        .map(|l| serde_json::from_str(l).expect("a JSON object a line"))
        .collect()
}

/// The domains of all intervals that belong to this process.
pub fn of_pid(intervals: &[Value], pid: u32) -> Vec<&Value> {
    intervals
        .iter()
        .flat_map(|i| i["domains"].as_array().expect("domains"))
        .filter(|d| d["pid"] == pid)
        .collect()
}
