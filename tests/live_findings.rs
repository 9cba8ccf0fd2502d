//! Findings about real guests: each trouble is told within ten seconds and withdrawn within thirty of its end, and a guest that
//! idles is left alone.
#![allow(missing_docs, clippy::expect_used, clippy::unwrap_used)]

mod common;

use common::guest::{Guest, Work};
use common::watch::Watch;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};
use serde_json::Value;
use std::ffi::OsStr;
use std::process::Command;
use std::time::{Duration, Instant};

guest_process!();

const TOLD: Duration = Duration::from_secs(10);
const WITHDRAWN: Duration = Duration::from_secs(30);

/// kvmtop in batch mode, with guests judged from their first second on.
struct Judge {
    watch: Watch,
    _config: tempfile::NamedTempFile,
}

impl Judge {
    fn start() -> Self {
        let config = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(config.path(), "[findings]\nstartup_guard = 0\nresume_guard = 0\n").expect("written");
        let watch = Watch::start(&[OsStr::new("--config"), config.path().as_os_str()]);
        Self { watch, _config: config }
    }

    fn last(&self) -> &Value {
        self.watch.last()
    }

    /// Waits until a test of an interval holds, so long at most; answers how long it took.
    fn until(&mut self, limit: Duration, what: &str, holds: impl Fn(&Value) -> bool) -> Duration {
        let began = Instant::now();
        while !holds(self.watch.next()) {
            assert!(
                began.elapsed() < limit,
                "{what}: not within {limit:?}; the last interval found {}",
                rules(self.last())
            );
        }
        began.elapsed()
    }

    fn name(&mut self, pid: u32) -> String {
        let of = |v: &Value| v["domains"].as_array().into_iter().flatten().find(|d| d["pid"] == pid).cloned();
        self.until(TOLD, "the guest is seen", |v| {
            of(v).is_some_and(|d| d["threads"].as_array().is_some_and(|t| t.len() > 1))
        });
        of(self.last()).expect("seen")["name"].as_str().expect("a name").to_owned()
    }

    /// The thread of the guest's first vCPU.
    fn vcpu(&self, pid: u32) -> i32 {
        let domain =
            self.last()["domains"].as_array().into_iter().flatten().find(|d| d["pid"] == pid).expect("the guest");
        let thread = domain["threads"].as_array().into_iter().flatten().find(|t| t["role"] == "vcpu").expect("a vCPU");
        i32::try_from(thread["tid"].as_i64().expect("a TID")).expect("a TID")
    }
}

fn findings(interval: &Value) -> impl Iterator<Item = &Value> {
    interval["findings"].as_array().into_iter().flatten()
}

fn rules(interval: &Value) -> String {
    let all: Vec<String> = findings(interval).map(|f| format!("{} of {}", f["rule"], f["domain"])).collect();
    all.join(", ")
}

/// Whether a rule speaks about a guest, by itself or folded into another.
fn told(interval: &Value, rule: &str, domain: &str) -> bool {
    findings(interval).any(|f| {
        let folded = f["folded"].as_array().into_iter().flatten().any(|r| r == rule);
        (f["rule"] == rule || folded) && f["domain"] == domain
    })
}

fn pin(tid: i32, cpus: &[usize]) {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|c| set.set(*c));
    sched_setaffinity(Pid::from_raw(tid), &set).expect("affinity");
}

/// The CPUs this test may use, two at least.
fn cpus() -> Option<Vec<usize>> {
    let set = rustix::thread::sched_getaffinity(None).ok()?;
    let all: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|c| set.is_set(*c)).collect();
    (all.len() > 1).then_some(all)
}

#[test]
fn clocks_are_told_and_an_idle_guest_is_left_alone() {
    const TEST: &str = "clocks_are_told_and_an_idle_guest_is_left_alone";
    if let Some(why) = common::cannot_trace() {
        return common::skipped(TEST, &why);
    }
    let mut guests: Vec<Guest> =
        [Work::PortLoop(0x608), Work::PortLoop(0x71), Work::MmioReads(0xfed0_00f0, u32::MAX), Work::Idle]
            .iter()
            .map(|w| Guest::start(&[*w], true))
            .collect();
    let mut watch = Judge::start();
    let names: Vec<String> =
        guests.iter().map(Guest::pid).collect::<Vec<_>>().into_iter().map(|p| watch.name(p)).collect();
    let began = Instant::now();
    guests.iter_mut().for_each(Guest::go);
    for (rule, name) in ["acpi-pm-timer", "rtc-tick", "hpet-clock"].iter().zip(&names) {
        let left = (TOLD + Duration::from_secs(1)).saturating_sub(began.elapsed()).max(Duration::from_secs(1));
        watch.until(left, rule, |v| told(v, rule, name));
    }
    let idle = &names[3];
    assert!(!findings(watch.last()).any(|f| f["domain"] == idle.as_str()), "{}", rules(watch.last()));
    common::ran(TEST);
}

#[test]
fn pins_that_meet_are_told_and_withdrawn() {
    const TEST: &str = "pins_that_meet_are_told_and_withdrawn";
    if let Some(why) = common::cannot_trace() {
        return common::skipped(TEST, &why);
    }
    let Some(cpus) = cpus() else { return common::skipped(TEST, "one CPU only") };
    let mut guests = [Guest::start(&[Work::PortLoop(0x80)], true), Guest::start(&[Work::PortLoop(0x80)], true)];
    let mut watch = Judge::start();
    let pids = [guests[0].pid(), guests[1].pid()];
    let names = pids.map(|p| watch.name(p));
    guests.iter_mut().for_each(Guest::go);
    let vcpus = pids.map(|p| watch.vcpu(p));
    let main = i32::try_from(pids[0]).expect("a PID");

    vcpus.iter().for_each(|v| pin(*v, &cpus[..1]));
    let pair = |v: &Value| names.iter().any(|n| told(v, "pin-overlap", n));
    watch.until(TOLD, "pin-overlap", pair);
    pin(vcpus[1], &cpus[1..2]);
    watch.until(WITHDRAWN, "pin-overlap ends", |v| !pair(v));

    pin(main, &cpus[..1]);
    let helper = |v: &Value| told(v, "emulator-on-vcpu", &names[0]);
    watch.until(TOLD, "emulator-on-vcpu", helper);
    pin(main, &cpus);
    watch.until(WITHDRAWN, "emulator-on-vcpu ends", |v| !helper(v));

    // A task of the host that never sleeps, on the CPU of a pinned vCPU that never sleeps.
    let mut hog = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().expect("sh");
    pin(i32::try_from(hog.id()).expect("a PID"), &cpus[..1]);
    let hogged = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        watch.until(TOLD, "pinned-not-isolated", |v| told(v, "pinned-not-isolated", &names[0]))
    }));
    let _ = hog.kill();
    let _ = hog.wait();
    assert!(hogged.is_ok(), "a task on a pinned vCPU's CPU was not told");
    common::ran(TEST);
}
