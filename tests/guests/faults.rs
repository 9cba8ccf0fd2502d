//! Faults of a host that kvmtop outlives: guests that come and go, tracefs that goes away, other
//! tracers, no more files, no more memory, a CPU that goes, a clock that is set, a host that
//! sleeps.
#![allow(unsafe_code, reason = "asks the kernel what no crate asks")]

use crate::common;
use crate::common::ftrace::Instance;
use crate::common::guest::{Guest, Work};
use crate::common::watch::Watch;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const READS: u32 = 503;
/// What the last two thirds of all guests may add to the memory, bytes: the allocator's own.
const MAX_GROWTH: u64 = 6 << 20;

/// Runs a guest that reads its port [`READS`] times, and kills it. Its process.
fn short_life() -> u32 {
    let mut guest = Guest::start(&[Work::PortReads(0x608, READS)], true);
    guest.go();
    guest.wait_done();
    guest.pid()
}

/// Until an interval that began after this call is in.
fn catch_up(watch: &mut Watch) {
    let began = Instant::now();
    while Instant::now() <= began + Duration::from_secs_f64(length(watch.next())) {}
}

fn length(interval: &Value) -> f64 {
    interval["interval_s"].as_f64().expect("a length")
}

/// Reads of the port by these processes, and the events lost.
fn reads(seen: &[Value], pids: &BTreeSet<u32>) -> (u64, u64) {
    let domains = seen
        .iter()
        .flat_map(|i| i["domains"].as_array().expect("domains"));
    let own = domains.filter(|d| {
        d["pid"]
            .as_u64()
            .is_some_and(|pid| pids.contains(&(pid as u32)))
    });
    let rows = own.flat_map(|d| d["accesses"].as_array().expect("accesses"));
    // Without an address where the table of addresses was full: other guests of this machine may
    // fill it.
    let is_read =
        |a: &&Value| a["address"] == "0x608" || (a["address"].is_null() && a["space"] == "pio");
    let sums = rows.filter(is_read).filter(|a| a["vcpu"].is_null());
    let lost = seen
        .iter()
        .map(|i| i["lost_events"].as_u64().expect("lost_events"));
    (
        sums.map(|a| a["count"].as_u64().expect("count")).sum(),
        lost.sum(),
    )
}

/// Asserts that no read was counted twice, and that no more reads are missing than events were
/// lost.
fn assert_counted(what: &str, seen: &[Value], pids: &BTreeSet<u32>) {
    assert_counted_of(what, seen, pids, pids.len());
}

/// Asserts the same for `guests` guests, some of which had the process id of an earlier guest.
fn assert_counted_of(what: &str, seen: &[Value], pids: &BTreeSet<u32>, guests: usize) {
    let (counted, lost) = reads(seen, pids);
    let expected = u64::from(READS) * guests as u64;
    if counted + lost < expected {
        let of_each = pids
            .iter()
            .map(|pid| (*pid, reads(seen, &BTreeSet::from([*pid])).0));
        eprintln!(
            "{what}: reads by process: {:?}",
            of_each.collect::<Vec<_>>()
        );
    }
    assert!(
        counted <= expected && counted + lost >= expected,
        "{what}: {counted} of {expected}, {lost} lost"
    );
    eprintln!("{what}: {counted} of {expected} reads counted, {lost} events lost");
}

fn files(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd"))
        .expect("kvmtop lives")
        .count()
}

fn guests_come_and_go(engine: &str, guests: usize) {
    let mut command = common::kvmtop();
    command.args([
        "--batch",
        "--json",
        "-n",
        "100000",
        "-d",
        "0.2",
        "--no-monitor",
        "--engine",
        engine,
    ]);
    let mut watch = Watch::of(command);
    let mut pids = BTreeSet::new();
    let mut early = (0, 0);
    for n in 0..guests {
        pids.insert(short_life());
        if n == guests / 3 {
            catch_up(&mut watch);
            early = (
                files(watch.pid()),
                watch.last()["self"]["rss_bytes"].as_u64().expect("memory"),
            );
        }
    }
    catch_up(&mut watch);
    catch_up(&mut watch);
    let late = (
        files(watch.pid()),
        watch.last()["self"]["rss_bytes"].as_u64().expect("memory"),
    );
    let seen = watch.stop();
    assert_counted_of(&format!("{engine}, {guests} guests"), &seen, &pids, guests);
    eprintln!(
        "{engine}: {early:?} files and bytes after a third, {late:?} at the end, {} intervals",
        seen.len()
    );
    assert!(late.0 <= early.0, "open files: {} then {}", early.0, late.0);
    assert!(
        late.1 <= early.1 + MAX_GROWTH,
        "resident bytes: {} then {}",
        early.1,
        late.1
    );
}

fn come_and_go(test: &str, guests: usize) {
    if let Some(why) = common::cannot_trace() {
        return common::skipped(test, &why);
    }
    let _alone = common::alone();
    for engine in ["bpf", "perf"] {
        guests_come_and_go(engine, guests);
        common::ran(&format!("{test} ({engine})"));
    }
}

#[test]
fn guests_that_are_killed_in_a_row_lose_nothing_and_leave_nothing() {
    come_and_go(
        "guests_that_are_killed_in_a_row_lose_nothing_and_leave_nothing",
        60,
    );
}

/// Some minutes: `cargo test --test guests faults -- --ignored --nocapture a_thousand_guests`
#[test]
#[ignore = "some minutes"]
fn a_thousand_guests_that_are_killed_lose_nothing_and_leave_nothing() {
    come_and_go(
        "a_thousand_guests_that_are_killed_lose_nothing_and_leave_nothing",
        1000,
    );
}

/// Runs a command in the mount namespace of a process.
fn within(pid: u32, command: &[&str]) -> bool {
    let mut nsenter = Command::new("nsenter");
    nsenter
        .args(["-m", "-t", &pid.to_string()])
        .args(command)
        .stderr(Stdio::null());
    nsenter.status().is_ok_and(|status| status.success())
}

#[test]
fn tracefs_may_go_away_and_come_back() {
    const TEST: &str = "tracefs_may_go_away_and_come_back";
    if let Some(why) = common::cannot_trace() {
        return common::skipped(TEST, &why);
    }
    let _alone = common::alone();
    for engine in ["bpf", "perf"] {
        let mut command = Command::new("unshare");
        command.args([
            "-m",
            "--propagation",
            "private",
            env!("CARGO_BIN_EXE_kvmtop"),
        ]);
        command.args([
            "--batch",
            "--json",
            "-n",
            "1000",
            "-d",
            "0.3",
            "--no-monitor",
            "--engine",
            engine,
        ]);
        command.stdin(Stdio::null());
        let mut watch = Watch::of(command);
        let mut pids = BTreeSet::from([short_life()]);
        let gone = || {
            for place in [
                "/sys/kernel/tracing",
                "/sys/kernel/debug/tracing",
                "/sys/kernel/debug",
            ] {
                while within(watch.pid(), &["umount", "-l", place]) {}
            }
            within(
                watch.pid(),
                &["test", "!", "-e", "/sys/kernel/tracing/events"],
            )
        };
        if !gone() {
            return common::skipped(
                TEST,
                "tracefs cannot be unmounted, even in a namespace of its own",
            );
        }
        pids.insert(short_life());
        catch_up(&mut watch);
        pids.insert(short_life());
        catch_up(&mut watch);
        assert!(within(
            watch.pid(),
            &["mount", "-t", "tracefs", "nodev", "/sys/kernel/tracing"]
        ));
        pids.insert(short_life());
        catch_up(&mut watch);
        catch_up(&mut watch);
        assert_counted(&format!("{TEST} ({engine})"), &watch.stop(), &pids);
        common::ran(&format!("{TEST} ({engine})"));
    }
}

#[test]
fn other_tracers_of_the_same_events_take_none_away() {
    const TEST: &str = "other_tracers_of_the_same_events_take_none_away";
    if let Some(why) = common::cannot_trace() {
        return common::skipped(TEST, &why);
    }
    let _alone = common::alone();
    let mut first = Watch::with_engine("bpf");
    let mut pids = BTreeSet::from([short_life()]);
    let instance = Instance::new().and_then(|i| i.enable("kvm").map(|()| i));
    let mut perf = Command::new("perf");
    perf.args(["stat", "-a", "-e", "kvm:*"])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let perf = perf.spawn();
    let mut second = Watch::with_engine("perf");
    let of_both = BTreeSet::from([short_life(), short_life()]);
    catch_up(&mut second);
    catch_up(&mut second);
    let seen_by_second = second.stop();
    let others = (instance.is_ok(), perf.is_ok());
    drop(instance);
    if let Ok(mut perf) = perf {
        let _ = perf.kill();
        let _ = perf.wait();
    }
    // The others are gone: events still come.
    pids.insert(short_life());
    pids.extend(&of_both);
    catch_up(&mut first);
    catch_up(&mut first);
    assert_counted("the first", &first.stop(), &pids);
    assert_counted("the second", &seen_by_second, &of_both);
    common::ran(&format!(
        "{TEST} (with another kvmtop; ftrace: {}, perf: {})",
        others.0, others.1
    ));
}

/// Sets how many files a process may open; the limit that it may be raised to stays.
fn limit_files(pid: u32, most: u64) -> Result<u64, std::io::Error> {
    let mut old = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    let pid = pid.cast_signed();
    // SAFETY: both structures live through the calls.
    let done = unsafe {
        libc::prlimit(pid, libc::RLIMIT_NOFILE, std::ptr::null(), &raw mut old) == 0 && {
            let new = libc::rlimit {
                rlim_cur: most.min(old.rlim_max),
                ..old
            };
            libc::prlimit(
                pid,
                libc::RLIMIT_NOFILE,
                &raw const new,
                std::ptr::null_mut(),
            ) == 0
        }
    };
    if done {
        Ok(old.rlim_cur)
    } else {
        Err(std::io::Error::last_os_error())
    }
}

#[test]
fn no_more_files_are_said_and_passed() {
    const TEST: &str = "no_more_files_are_said_and_passed";
    if let Some(why) = common::cannot_run_guests() {
        return common::skipped(TEST, &why);
    }
    let _alone = common::alone();
    let mut watch = Watch::start(&["-d", "0.3", "--engine", "none", "--no-monitor"]);
    let guests: Vec<Guest> = (0..3)
        .map(|_| Guest::start(&[Work::Idle, Work::Idle], true))
        .collect();
    catch_up(&mut watch);
    let before = match limit_files(watch.pid(), 3) {
        Ok(before) => before,
        Err(why) => return common::skipped(TEST, &why.to_string()),
    };
    let late = Guest::start(&[Work::Idle], true);
    catch_up(&mut watch);
    catch_up(&mut watch);
    let (state, cause) = watch.source("procfs");
    assert!(
        state != "ok" && cause.contains("open files"),
        "{state}: {cause}"
    );
    limit_files(watch.pid(), before).expect("the limit it had");
    catch_up(&mut watch);
    catch_up(&mut watch);
    assert_eq!(watch.source("procfs"), ("ok".into(), String::new()));
    for guest in guests.iter().chain([&late]) {
        assert_eq!(
            common::of_pid(std::slice::from_ref(watch.last()), guest.pid()).len(),
            1
        );
    }
    assert!(
        watch.seen.iter().all(|i| length(i) < 5.0),
        "no tick is held up"
    );
    watch.stop();
    common::ran(TEST);
}

#[test]
fn no_memory_for_a_map_is_said_and_leaves_the_other_engine() {
    const TEST: &str = "no_memory_for_a_map_is_said_and_leaves_the_other_engine";
    let has_strace = || Command::new("strace").arg("-V").output().is_ok();
    if let Some(why) =
        common::cannot_trace().or_else(|| (!has_strace()).then(|| "no strace".into()))
    {
        return common::skipped(TEST, &why);
    }
    let _alone = common::alone();
    let mut without = 0;
    // The first calls find out what the kernel can do; then come maps, programs, links.
    for nth in [1, 2, 4, 8, 12, 16, 20] {
        let inject = format!("inject=bpf:error=ENOMEM:when={nth}+");
        let strace = [
            "-f",
            "-qq",
            "-o",
            "/dev/null",
            "-e",
            "trace=bpf",
            "-e",
            &inject,
        ];
        let kvmtop = [
            env!("CARGO_BIN_EXE_kvmtop"),
            "-b",
            "--json",
            "-n",
            "2",
            "-d",
            "0.2",
            "--no-monitor",
        ];
        let out = Command::new("strace")
            .args(strace)
            .args(kvmtop)
            .stdin(Stdio::null())
            .output()
            .expect("strace");
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        if said.contains("strace:") {
            return common::skipped(TEST, said.trim());
        }
        assert!(out.status.success(), "call {nth}: {}: {said}", out.status);
        let seen = common::intervals(&out.stdout);
        let last = seen.last().expect("an interval");
        let sources = last["sources"].as_array().expect("sources");
        let tracepoints = sources
            .iter()
            .find(|s| s["name"] == "tracepoints")
            .expect("tracepoints");
        eprintln!("from call {nth}: engine {}, {tracepoints}", last["engine"]);
        if last["engine"] != "bpf" {
            without += 1;
            assert_eq!(last["engine"], "perf", "{tracepoints}");
            let cause = tracepoints["cause"].as_str().unwrap_or_default();
            assert!(
                cause.contains("memory") || cause.contains("BPF") || cause.contains("bpf"),
                "{tracepoints}"
            );
        }
    }
    assert!(without > 0, "no call of bpf(2) failed");
    common::ran(TEST);
}

/// Whether a test may change what all of this machine feels: only a machine that is there for it
/// says so.
fn may_change_the_host() -> Option<String> {
    let asked = std::env::var_os("KVMTOP_TEST_CHANGE_HOST").is_some();
    common::cannot_trace()
        .or_else(|| (!asked).then(|| "KVMTOP_TEST_CHANGE_HOST=1 is not set".into()))
}

/// The second CPU, set back when dropped.
struct SecondCpu;

impl SecondCpu {
    const ONLINE: &str = "/sys/devices/system/cpu/cpu1/online";

    fn set(online: bool) -> std::io::Result<()> {
        std::fs::write(Self::ONLINE, if online { "1" } else { "0" })
    }
}

impl Drop for SecondCpu {
    fn drop(&mut self) {
        Self::set(true).expect("the CPU goes on");
    }
}

#[test]
fn a_cpu_may_go_and_come_back() {
    const TEST: &str = "a_cpu_may_go_and_come_back";
    if let Some(why) = may_change_the_host() {
        return common::skipped(TEST, &why);
    }
    let _alone = common::alone();
    for engine in ["bpf", "perf"] {
        let mut watch = Watch::with_engine(engine);
        let mut pids = BTreeSet::from([short_life()]);
        let cpu = SecondCpu;
        if let Err(why) = SecondCpu::set(false) {
            return common::skipped(TEST, &why.to_string());
        }
        pids.insert(short_life());
        catch_up(&mut watch);
        assert_eq!(
            watch.last()["host"]["cpus"].as_array().expect("cpus").len(),
            1,
            "{engine}"
        );
        drop(cpu);
        catch_up(&mut watch);
        pids.insert(short_life());
        pids.insert(short_life());
        catch_up(&mut watch);
        catch_up(&mut watch);
        assert_counted(&format!("{TEST} ({engine})"), &watch.stop(), &pids);
        common::ran(&format!("{TEST} ({engine})"));
    }
}

/// The wall clock, set back to what it would be when dropped.
struct WallClock {
    moved_s: i64,
}

impl WallClock {
    fn step(&mut self, seconds: i64) -> std::io::Result<()> {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        let to = rustix::time::Timespec {
            tv_sec: now.tv_sec + seconds,
            ..now
        };
        rustix::time::clock_settime(rustix::time::ClockId::Realtime, to)?;
        self.moved_s += seconds;
        Ok(())
    }
}

impl Drop for WallClock {
    fn drop(&mut self) {
        self.step(-self.moved_s).expect("the clock is set back");
    }
}

/// Numbers that no clock may turn negative or huge: every one of an interval but identifiers and
/// times of day.
fn assert_sound(what: &str, value: &Value) {
    match value {
        Value::Object(all) => all
            .iter()
            .for_each(|(name, value)| assert_sound(&format!("{what}.{name}"), value)),
        Value::Array(all) => all.iter().for_each(|value| assert_sound(what, value)),
        Value::Number(n) => {
            let n = n.as_f64().expect("a number");
            let is_share = what.ends_with("_pct") || what.ends_with("percent");
            assert!(n >= 0.0 && (!is_share || n < 1e5), "{what}: {n}");
        }
        _ => {}
    }
}

/// `kvmtop record` at work, two samples a second.
struct Recorder {
    child: Child,
    session: PathBuf,
}

impl Recorder {
    /// Starts it and waits for the first sample.
    fn start(session: PathBuf, engine: &str) -> Self {
        let mut command = common::kvmtop();
        command
            .args(["record", "-d", "0.5", "--engine", engine])
            .arg(&session)
            .stderr(Stdio::null());
        let child = command.spawn().expect("kvmtop records");
        let begun = Instant::now();
        while std::fs::metadata(&session).map_or(0, |m| m.len()) == 0
            && begun.elapsed() < Duration::from_secs(60)
        {
            std::thread::sleep(Duration::from_millis(100));
        }
        Self { child, session }
    }

    /// Ends it as Ctrl-C does, and plays what it recorded.
    fn stop_and_replay(mut self) -> Vec<Value> {
        rustix::process::kill_process(
            rustix::process::Pid::from_child(&self.child),
            rustix::process::Signal::INT,
        )
        .expect("kvmtop lives");
        assert!(self.child.wait().expect("it ends").success());
        let mut replay = common::kvmtop();
        let replayed = replay
            .args(["replay", "--batch", "--json"])
            .arg(&self.session)
            .output()
            .expect("it replays");
        assert!(
            replayed.status.success(),
            "{}",
            String::from_utf8_lossy(&replayed.stderr)
        );
        let replayed = common::intervals(&replayed.stdout);
        assert!(replayed.len() > 3, "{} intervals recorded", replayed.len());
        replayed
    }
}

#[test]
fn the_clock_may_be_set() {
    const TEST: &str = "the_clock_may_be_set";
    if let Some(why) = may_change_the_host() {
        return common::skipped(TEST, &why);
    }
    let _alone = common::alone();
    let mut clock = WallClock { moved_s: 0 };
    if let Err(why) = clock.step(0) {
        return common::skipped(TEST, &why.to_string());
    }
    let dir = tempfile::tempdir().expect("folder");
    for engine in ["bpf", "perf"] {
        let mut watch = Watch::with_engine(engine);
        let recorder = Recorder::start(dir.path().join(engine), "none");
        let idle = Guest::start(&[Work::Idle], true);
        let mut pids = BTreeSet::from([short_life()]);
        catch_up(&mut watch);
        for step in [3600, -7200, 1800] {
            clock.step(step).expect("the clock is set");
            pids.insert(short_life());
            catch_up(&mut watch);
            catch_up(&mut watch);
        }
        let replayed = recorder.stop_and_replay();
        let seen = watch.stop();
        drop(idle);
        assert_counted(&format!("{TEST} ({engine})"), &seen, &pids);
        for interval in seen.iter().chain(&replayed) {
            assert_sound("", interval);
            // The emulated host is slow.
            assert!(length(interval) < 60.0, "{}", interval["interval_s"]);
        }
        common::ran(&format!("{TEST} ({engine})"));
    }
}

/// Suspends the host to memory until its real-time clock rings, and answers how long it slept; or
/// why it cannot.
fn sleep_and_wake(seconds: u32) -> Result<Duration, String> {
    const ALARM: &str = "/sys/class/rtc/rtc0/wakealarm";
    let asleep = || {
        use rustix::time::{ClockId, clock_gettime};
        let since_boot = |clock| Duration::try_from(clock_gettime(clock)).expect("a time");
        since_boot(ClockId::Boottime).saturating_sub(since_boot(ClockId::Monotonic))
    };
    let before = asleep();
    std::fs::write(ALARM, format!("+{seconds}")).map_err(|e| format!("{ALARM}: {e}"))?;
    std::fs::write("/sys/power/state", "mem").map_err(|e| format!("/sys/power/state: {e}"))?;
    Ok(asleep().saturating_sub(before))
}

/// The longest stretch of wall time that lies between two intervals and is in none of them,
/// seconds.
fn longest_gap(seen: &[Value]) -> f64 {
    let end = |i: &Value| {
        i["time"]
            .as_str()
            .and_then(|t| t.parse::<jiff::Timestamp>().ok())
            .expect("a time")
    };
    let gaps = seen.windows(2).map(|pair| {
        (end(&pair[1]) - end(&pair[0]))
            .total(jiff::Unit::Second)
            .expect("seconds")
    });
    gaps.zip(&seen[1..])
        .map(|(passed, interval)| passed - length(interval))
        .fold(0.0, f64::max)
}

/// Checks that reads made while the host falls asleep and after it wakes are counted once each, or
/// reported as missing. No interval includes the time asleep, and the times of the neighbouring
/// intervals show it as a gap.
#[test]
fn the_host_may_sleep() {
    const TEST: &str = "the_host_may_sleep";
    const ACROSS: u32 = 40_000;
    if let Some(why) = may_change_the_host() {
        return common::skipped(TEST, &why);
    }
    let _alone = common::alone();
    let dir = tempfile::tempdir().expect("folder");
    let mut watches = ["bpf", "perf"].map(|engine| (engine, Watch::with_engine(engine)));
    let recorder = Recorder::start(dir.path().join("recording"), "bpf");
    let mut check = common::kvmtop();
    let check = check.args(["check", "--duration", "6s", "--engine", "none"]);
    let check = check
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("kvmtop checks");
    let mut guest = Guest::start(&[Work::PortReads(0x608, ACROSS)], true);
    watches.iter_mut().for_each(|(_, watch)| catch_up(watch));
    guest.go();
    std::thread::sleep(Duration::from_millis(500));
    let slept = sleep_and_wake(6);
    guest.wait_done();
    let check = check.wait_with_output().expect("it ends");
    let asleep = match slept {
        Ok(asleep) if asleep > Duration::from_secs(1) => asleep.as_secs_f64(),
        Ok(asleep) => return common::skipped(TEST, &format!("the host slept {asleep:?}")),
        Err(why) => return common::skipped(TEST, &why),
    };
    let after = short_life();
    let expected = u64::from(ACROSS + READS);
    let pids = BTreeSet::from([guest.pid(), after]);
    for (_, watch) in &mut watches {
        catch_up(watch);
        catch_up(watch);
    }
    let replayed = recorder.stop_and_replay();
    let [bpf, perf] = watches.map(|(engine, watch)| (engine, watch.stop()));
    for (what, seen) in [bpf, perf, ("replay", replayed)] {
        let (counted, lost) = reads(&seen, &pids);
        let gap = longest_gap(&seen);
        // A ring of perf ends with its CPU, and a new one is there as soon as kvmtop runs again:
        // what the guest did before that is said to be missing.
        let said = seen
            .iter()
            .flat_map(|i| i["sources"].as_array().expect("sources"));
        let said = said
            .filter_map(|source| source["cause"].as_str())
            .find(|cause| cause.contains("came online"));
        eprintln!(
            "{what}: {counted} of {expected} reads, {lost} lost; {asleep:.1} s asleep, a gap of \
            {gap:.1} s"
        );
        eprintln!("{what}: {}", said.unwrap_or("no gap is said"));
        assert!(counted <= expected, "{what}");
        assert!(
            counted + lost >= expected || (what == "perf" && said.is_some()),
            "{what}"
        );
        assert!((gap - asleep).abs() < 1.5, "{what}");
        for interval in &seen {
            assert_sound("", interval);
            assert!(length(interval) < 60.0, "{}", interval["interval_s"]);
        }
    }
    // 3: too little was seen, on a machine as slow as this one.
    assert!(
        check.status.code().is_some_and(|code| code <= 3),
        "{}",
        String::from_utf8_lossy(&check.stderr)
    );
    common::ran(TEST);
}

/// What changes a whole host, in one that is emulated.
pub fn faults_of_an_emulated_host() {
    const TEST: &str = "faults_of_an_emulated_host";
    if let Some(why) = common::nested::missing(common::nested::Host::AMD, &[]) {
        return common::skipped(TEST, &why);
    }
    let tests = [
        "faults::a_cpu_may_go_and_come_back",
        "faults::the_clock_may_be_set",
    ];
    let alone = ["faults::the_host_may_sleep"];
    match common::nested::run_tests_then_alone(
        "faults",
        "KVMTOP_TEST_CHANGE_HOST=1",
        (&tests, 4),
        &alone,
        400,
    ) {
        Ok(()) => common::ran(TEST),
        Err(why) => common::skipped(TEST, &why),
    }
}
