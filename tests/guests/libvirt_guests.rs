//! Two QEMU guests under libvirt, one pinned: names, roles, affinity, CPU figures and device names
//! as an oracle has them.

use crate::common;
use crate::common::libvirt::{self, Domain, Setup};
use crate::common::watch::Watch;
use engine::bpf::BpfEngine;
use judge::model::{Base, ExitRate, ExitRateSource, Model};
use live::metadata::libvirt::Libvirt;
use live::{
    Collector, CollectorCommand, CollectorOptions, LibvirtAndQmp, MonitorUse, SystemPaths, topology,
};
use sample::{EngineLevel, Origin, SourceId, SourceState, SourceStatus};
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A boot sector that switches to protected mode and then, for ever, reads the PM timer (port
/// 0x608), writes 0x0c to the RTC's index (0x70), reads its data (0x71) and reads the HPET's
/// counter (0xfed000f0).
const BUSY: [u8; 77] = [
    0xfa, 0x31, 0xc0, 0x8e, 0xd8, 0x0f, 0x01, 0x16, 0x47, 0x7c, 0x0f, 0x20, 0xc0, 0x0c, 0x01, 0x0f,
    0x22, 0xc0, 0xea, 0x17, 0x7c, 0x08, 0x00, 0x66, 0xb8, 0x10, 0x00, 0x8e, 0xd8, 0x66, 0xba, 0x08,
    0x06, 0xed, 0xb0, 0x0c, 0xe6, 0x70, 0xe4, 0x71, 0xa1, 0xf0, 0x00, 0xd0, 0xfe, 0xeb, 0xee, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xff, 0xff, 0x00, 0x00, 0x00, 0x9a, 0xcf, 0x00, 0xff,
    0xff, 0x00, 0x00, 0x00, 0x92, 0xcf, 0x00, 0x17, 0x00, 0x2f, 0x7c, 0x00, 0x00,
];
/// A boot sector that halts with interrupts off.
const IDLE: [u8; 4] = [0xfa, 0xf4, 0xeb, 0xfd];

fn batch(args: &[&str]) -> Vec<Value> {
    let out = common::kvmtop()
        .args(["--batch", "--json"])
        .args(args)
        .output()
        .expect("kvmtop runs");
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    common::intervals(&out.stdout)
}

/// An interval of kvmtop, and what `pidstat -t` prints over the same seconds: it starts when kvmtop
/// has printed the interval before, which is when the one that counts begins.
fn beside_pidstat(pid: u32, seconds: u32) -> (Vec<Value>, String) {
    let mut kvmtop = common::kvmtop()
        .args(["--batch", "--json", "-n", "2", "-d", &seconds.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .expect("kvmtop runs");
    let mut lines = BufReader::new(kvmtop.stdout.take().expect("a pipe")).lines();
    lines.next().expect("an interval").expect("text");
    let pidstat = Command::new("pidstat")
        .args(["-t", "-p", &pid.to_string(), &seconds.to_string(), "1"])
        .env("LC_ALL", "C")
        .output()
        .expect("pidstat");
    let interval = lines.next().expect("an interval").expect("text");
    assert!(kvmtop.wait().expect("kvmtop ends").success());
    (
        common::intervals(interval.as_bytes()),
        String::from_utf8_lossy(&pidstat.stdout).into_owned(),
    )
}

/// Percent usr, system, guest, wait by TID.
fn pidstat_rows(text: &str) -> Vec<(i64, [f64; 4])> {
    text.lines()
        .filter(|l| l.starts_with("Average:"))
        .filter_map(|l| {
            let f: Vec<_> = l.split_whitespace().collect();
            let tid = f.get(3)?.parse().ok()?;
            let n = |i: usize| f.get(i)?.parse::<f64>().ok();
            Some((tid, [n(4)?, n(5)?, n(6)?, n(7)?]))
        })
        .collect()
}

/// Where kvmtop's CPU figures of a process's threads are more than 2 points away from pidstat's.
fn compare(seen: &[Value], pid: u32, pidstat: &str) -> Vec<String> {
    let rows = pidstat_rows(pidstat);
    assert!(rows.len() > 2, "pidstat said: {pidstat}");
    let domain = seen[0]["domains"]
        .as_array()
        .expect("domains")
        .iter()
        .find(|d| d["pid"] == pid)
        .expect("the guest");
    let threads = domain["threads"].as_array().expect("threads");
    let mut differences = Vec::new();
    for (tid, want) in rows {
        let Some(t) = threads.iter().find(|t| t["tid"] == tid) else {
            continue;
        };
        for (name, want) in ["usr", "sys", "guest", "wait"].into_iter().zip(want) {
            let got = t[name]
                .as_f64()
                .unwrap_or_else(|| panic!("{name} of {tid} is {}", t[name]));
            if (got - want).abs() > 2.0 {
                differences.push(format!(
                    "{name} of {} ({tid}): kvmtop {got}, pidstat {want}",
                    t["comm"]
                ));
            }
        }
    }
    differences
}

/// The device of an address, and where its name comes from.
fn owner(domain: &Value, address: &str) -> (Value, Value) {
    let row = domain["accesses"]
        .as_array()
        .expect("accesses")
        .iter()
        .find(|a| a["address"] == address);
    row.map_or_else(
        || panic!("{address} is not hot"),
        |a| (a["device"].clone(), a["device_source"].clone()),
    )
}

/// Whether libvirt marks a domain because its monitor was asked
/// (`VIR_DOMAIN_TAINT_CUSTOM_MONITOR`).
fn is_tainted(name: &str) -> bool {
    let info = String::from_utf8_lossy(&libvirt::virsh(&["dominfo", name]).stdout).into_owned();
    assert!(info.contains("running"), "{info}");
    info.contains("custom monitor")
}

/// Asks one guest's monitor, as the key `i` does it.
fn one_guest_is_asked(pid: u32) {
    let source = LibvirtAndQmp::new(Libvirt::start(None, false), MonitorUse::OwnSocket);
    let mut collector = Collector::new(CollectorOptions {
        metadata: Some(source),
        ..CollectorOptions::default()
    });
    let pid = i32::try_from(pid).expect("a PID");
    let from = |collector: &mut Collector| {
        let sample = collector.tick();
        let domain = sample
            .domains
            .iter()
            .find(|d| d.facts.pid == Some(pid))
            .expect("the guest");
        let uuid = domain.facts.uuid.as_ref().map(|uuid| uuid.from);
        (
            uuid,
            domain.facts.devices.as_ref().map(|devices| devices.from),
        )
    };
    wait("libvirt knows it", || {
        from(&mut collector).0 == Some(Origin::Libvirt)
    });
    assert_eq!(from(&mut collector).1, Some(Origin::BuiltIn));
    collector
        .execute(CollectorCommand::AskMonitor(pid))
        .expect("asked");
    wait("its monitor answers", || {
        from(&mut collector).1 == Some(Origin::Monitor)
    });
}

#[test]
fn two_guests_under_libvirt() {
    const TEST: &str = "two_guests_under_libvirt";
    let _alone = common::alone();
    let daemons = match libvirt::start() {
        Ok(daemons) => daemons,
        Err(why) => return common::skipped(TEST, &why),
    };
    let pins = "<cputune><vcpupin vcpu='0' cpuset='0'/><vcpupin vcpu='1' cpuset='1'/><emulatorpin \
            cpuset='0-1'/></cputune>";
    let setup = Setup {
        vcpus: 2,
        max_vcpus: 2,
        tune: pins,
        clock: "<clock offset='utc'/>",
    };
    let idle = Setup { tune: "", ..setup };
    let (busy, idle) = match (
        Domain::start("kvmtop-busy", &BUSY, &setup),
        Domain::start("kvmtop-idle", &IDLE, &idle),
    ) {
        (Ok(a), Ok(b)) => (a, b),
        (Err(why), _) | (_, Err(why)) => return common::skipped(TEST, &why),
    };
    // The firmware is emulated here and takes seconds; the guest's own loop follows.
    let until = Instant::now() + Duration::from_secs(60);
    let hpet = |all: &[Value]| {
        all.iter()
            .flat_map(|i| i["domains"].as_array().unwrap())
            .any(|d| {
                d["name"] == "kvmtop-busy"
                    && d["accesses"]
                        .as_array()
                        .unwrap()
                        .iter()
                        .any(|a| a["device"] == "hpet")
            })
    };
    while !hpet(&batch(&["-n", "1"])) {
        assert!(
            Instant::now() < until,
            "the guest's loop did not begin within a minute"
        );
    }

    // kvmtop and pidstat do not begin at the same instant, so a change of load in between makes
    // them differ. A comparison that fails is repeated as a whole, a few times.
    let mut seen = Vec::new();
    for last in [false, false, false, false, true] {
        let (intervals, oracle) = beside_pidstat(busy.pid(), 5);
        seen = intervals;
        let differences = compare(&seen, busy.pid(), &oracle);
        assert!(
            differences.is_empty() || !last,
            "{}",
            differences.join("\n")
        );
        if differences.is_empty() {
            break;
        }
    }
    let domains = seen[0]["domains"].as_array().expect("domains");
    let find = |name: &str| {
        domains
            .iter()
            .find(|d| d["name"] == name)
            .unwrap_or_else(|| panic!("no {name}"))
    };
    let (b, i) = (find("kvmtop-busy"), find("kvmtop-idle"));
    assert_eq!(
        (b["pid"].as_u64(), i["pid"].as_u64()),
        (Some(busy.pid().into()), Some(idle.pid().into()))
    );
    assert_eq!(b["vcpus"], 2);
    assert_eq!(b["state"], "running");
    assert!(
        b["machine"].as_str().expect("machine").contains("q35"),
        "{}",
        b["machine"]
    );
    assert_eq!(b["uuid"].as_str().expect("uuid").len(), 36);

    let threads = b["threads"].as_array().expect("threads");
    let vcpu = |n: u64| {
        threads
            .iter()
            .find(|t| t["role"] == "vcpu" && t["vcpu"] == n)
            .expect("the vCPU's thread")
    };
    for n in [0, 1] {
        let comm =
            std::fs::read_to_string(format!("/proc/{}/task/{}/comm", busy.pid(), vcpu(n)["tid"]))
                .expect("comm");
        assert_eq!(comm.trim(), format!("CPU {n}/KVM"), "vCPU to TID");
        assert_eq!(vcpu(n)["affinity"], n.to_string());
        assert_eq!(vcpu(n)["cpu"], n);
    }
    let main = threads
        .iter()
        .find(|t| t["role"] == "emulator")
        .expect("the emulator's thread");
    assert_eq!(main["tid"], busy.pid());

    let devices = [
        ("0x608", "acpi-tmr"),
        ("0x71", "rtc"),
        ("0xfed000f0", "hpet"),
    ];
    for (address, device) in devices {
        assert_eq!(owner(b, address), (device.into(), "built-in".into()));
    }
    assert!(
        !is_tainted("kvmtop-busy"),
        "nobody wanted its monitor to be asked"
    );
    let sources = seen[0]["sources"].as_array().expect("sources");
    let monitor = sources
        .iter()
        .find(|s| s["name"] == "monitor")
        .expect("the source");
    assert_eq!(monitor["state"], "ok");
    assert!(
        monitor["cause"]
            .as_str()
            .expect("what it leaves out")
            .contains("built-in tables"),
        "{monitor}"
    );
    assert!(
        monitor["fix"]
            .as_str()
            .expect("what asks")
            .contains("--monitor"),
        "{monitor}"
    );
    one_guest_is_asked(busy.pid());
    assert!(
        is_tainted("kvmtop-busy") && !is_tainted("kvmtop-idle"),
        "only the one that was named is asked"
    );
    let asked = batch(&["-n", "2", "--monitor"]);
    let last = asked.last().expect("an interval")["domains"]
        .as_array()
        .expect("domains");
    let busy_again = last
        .iter()
        .find(|d| d["name"] == "kvmtop-busy")
        .expect("the guest");
    for (address, device) in devices {
        assert_eq!(owner(busy_again, address), (device.into(), "mtree".into()));
    }
    assert!(
        is_tainted("kvmtop-idle"),
        "--monitor asks every guest of libvirt"
    );

    let only = batch(&["-n", "1", "--domain", "kvmtop-id*"]);
    let names: Vec<_> = only[0]["domains"]
        .as_array()
        .unwrap()
        .iter()
        .map(|d| d["name"].clone())
        .collect();
    assert_eq!(names, ["kvmtop-idle"]);
    common::ran(TEST);
    drop((busy, idle));
    drop(daemons);
}

/// Makes a running domain a persistent one until dropped, so that its configuration can be changed.
struct Kept(String);

impl Kept {
    fn new(name: &str) -> Self {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(
            file.path(),
            libvirt::virsh(&["dumpxml", "--inactive", name]).stdout,
        )
        .expect("written");
        let defined = libvirt::virsh(&["define", &file.path().to_string_lossy()]);
        assert!(
            defined.status.success(),
            "{}",
            String::from_utf8_lossy(&defined.stderr)
        );
        Self(name.to_owned())
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = libvirt::virsh(&["undefine", &self.0]);
    }
}

/// Two guests pinned to one CPU, each with its emulator beside its vCPU: the commands that `check`
/// proposes are run as they are printed, and the findings are gone.
pub fn pasted_commands_cure(test: &str, persistent: bool) {
    const RULES: [&str; 4] = [
        "pin-overlap",
        "emulator-on-vcpu",
        "host-cpus-starved",
        "affinity-drift",
    ];
    let daemons = match libvirt::start() {
        Ok(daemons) => daemons,
        Err(why) => return common::skipped(test, &why),
    };
    let tune = "<cputune><vcpupin vcpu='0' cpuset='1'/><emulatorpin cpuset='1'/></cputune>";
    let setup = Setup {
        vcpus: 1,
        max_vcpus: 1,
        tune,
        clock: "<clock offset='utc'/>",
    };
    let names = ["kvmtop-crowded-1", "kvmtop-crowded-2"];
    let guests: Result<Vec<Domain>, String> = names
        .iter()
        .map(|name| Domain::start(name, &IDLE, &setup))
        .collect();
    let guests = match guests {
        Ok(guests) => guests,
        Err(why) => return common::skipped(test, &why),
    };
    let kept: Vec<Kept> = names
        .into_iter()
        .filter(|_| persistent)
        .map(Kept::new)
        .collect();
    let placement = || -> Vec<Value> {
        let out = common::kvmtop()
            .args([
                "check",
                "--json",
                "--duration",
                "5",
                "--domain",
                "kvmtop-crowded-*",
            ])
            .output()
            .expect("kvmtop runs");
        let report: Value = serde_json::from_slice(&out.stdout)
            .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&out.stderr)));
        let domains = report["domains"].as_array().expect("domains");
        assert!(
            domains.iter().all(|d| d["persistent"] == persistent),
            "{domains:#?}"
        );
        let findings = report["findings"].as_array().expect("findings").iter();
        findings
            .filter(|f| RULES.iter().any(|rule| f["rule"] == *rule))
            .cloned()
            .collect()
    };
    let before = placement();
    for rule in &RULES[..2] {
        assert!(
            before.iter().any(|f| f["rule"] == *rule),
            "{rule} of {before:#?}"
        );
    }
    let fixes = before
        .iter()
        .flat_map(|f| f["fix"].as_array().expect("fixes"))
        .filter(|f| f["kind"] == "command");
    let lines: BTreeSet<&str> = fixes
        .flat_map(|f| f["text"].as_str().expect("text").lines())
        // A guest of another test may share their CPUs.
        .filter(|line| line.contains("kvmtop-crowded"))
        .collect();
    assert!(!lines.is_empty(), "{before:#?}");
    for line in lines {
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words[0], "virsh", "{line}");
        let done = libvirt::virsh(&words[1..]);
        assert!(
            done.status.success(),
            "{line}: {}",
            String::from_utf8_lossy(&done.stderr)
        );
    }
    assert_eq!(placement(), Vec::<Value>::new(), "pasted for {before:#?}");
    common::ran(test);
    drop((kept, guests));
    drop(daemons);
}

/// Tracing goes off and on again, as the key `e` does it: KVM's counters are the rate while it is
/// off, and only then.
#[test]
fn exit_rates_while_tracing_goes_off_and_on() {
    const TEST: &str = "exit_rates_while_tracing_goes_off_and_on";
    let _alone = common::alone();
    let daemons = match libvirt::start() {
        Ok(daemons) => daemons,
        Err(why) => return common::skipped(TEST, &why),
    };
    let setup = Setup {
        vcpus: 1,
        max_vcpus: 1,
        tune: "",
        clock: "<clock offset='utc'/>",
    };
    let guest = match Domain::start("kvmtop-levels", &BUSY, &setup) {
        Ok(guest) => guest,
        Err(why) => return common::skipped(TEST, &why),
    };
    let paths = SystemPaths::default();
    let engine = match BpfEngine::new(topology(&paths.sys), 16) {
        Ok(engine) => Box::new(engine),
        Err(why) => return common::skipped(TEST, &why.cause),
    };
    let libvirt = Libvirt::start(None, false);
    let source = LibvirtAndQmp::new(libvirt, MonitorUse::Never);
    let mut collector = Collector::new(CollectorOptions {
        engine: Some(engine),
        metadata: Some(source),
        paths,
        ..CollectorOptions::default()
    });
    let mut before = collector.tick();
    if before
        .sources
        .iter()
        .any(|source| source.id == SourceId::KvmStats && source.state != SourceState::Ok)
    {
        return common::skipped(TEST, "neither QEMU nor debugfs gives KVM's counters here");
    }
    let pid = i32::try_from(guest.pid()).expect("a PID");
    let mut rates = |collector: &mut Collector, seconds: u32| -> Vec<ExitRate> {
        (0..seconds)
            .map(|_| {
                std::thread::sleep(Duration::from_secs(1));
                let sample = collector.tick();
                let model = Model::new(&sample, Base::Previous(&before));
                before = sample;
                model
                    .domains
                    .iter()
                    .find(|d| d.facts.pid == Some(pid))
                    .expect("the guest")
                    .exit_rate
            })
            .collect()
    };
    // The firmware takes seconds; the guest's own loop exits to the VMM all the time.
    let until = Instant::now() + Duration::from_secs(60);
    while !rates(&mut collector, 1)
        .iter()
        .any(|rate| rate.per_second > Some(5000.0))
    {
        assert!(
            Instant::now() < until,
            "the guest's loop did not begin within a minute"
        );
    }
    collector
        .execute(CollectorCommand::Level(EngineLevel::None))
        .expect("tracing off");
    let untraced = rates(&mut collector, 7);
    let counted = |r: &ExitRate| r.source == ExitRateSource::Counters && r.per_second > Some(100.0);
    assert!(
        untraced[5..].iter().all(counted),
        "KVM's counters: {untraced:?}"
    );
    collector
        .execute(CollectorCommand::Level(EngineLevel::Full))
        .expect("tracing on");
    let traced = rates(&mut collector, 4);
    let by_events = |r: &ExitRate| {
        matches!(r.source, ExitRateSource::Traced | ExitRateSource::Userspace)
            && r.per_second > Some(100.0)
    };
    assert!(
        traced[1..].iter().all(by_events),
        "traced again: {traced:?}"
    );
    collector
        .execute(CollectorCommand::Level(EngineLevel::None))
        .expect("tracing off");
    let again = rates(&mut collector, 7);
    assert!(
        again[5..].iter().all(counted),
        "KVM's counters again: {again:?}"
    );
    let highest = |rates: &[ExitRate]| {
        rates
            .iter()
            .filter_map(|r| r.per_second)
            .fold(0.0, f64::max)
    };
    assert!(
        highest(&again) < 3.0 * highest(&untraced),
        "what happened meanwhile is no spike: {again:?}, {untraced:?}"
    );
    common::ran(TEST);
    drop(guest);
    drop(daemons);
}

/// Stops a process until dropped.
struct Stopped(u32);

impl Stopped {
    fn new(pid: u32) -> Self {
        assert!(
            Command::new("kill")
                .args(["-STOP", &pid.to_string()])
                .status()
                .expect("kill")
                .success()
        );
        Self(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = Command::new("kill")
            .args(["-CONT", &self.0.to_string()])
            .status();
    }
}

/// The UUID of a domain.
fn uuid_of(name: &str) -> String {
    String::from_utf8_lossy(&libvirt::virsh(&["domuuid", name]).stdout)
        .trim()
        .to_owned()
}

/// The number of this process's threads that ask libvirt about a guest.
fn calls() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task")
        .expect("threads")
        .flatten();
    let name = |task: std::fs::DirEntry| {
        std::fs::read_to_string(task.path().join("comm")).unwrap_or_default()
    };
    tasks
        .map(name)
        .filter(|name| name.trim() == "libvirt-guest")
        .count()
}

/// Waits for something that comes within a minute even on a busy machine.
fn wait(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < until, "{what}: not within a minute");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Checks that a QEMU under SIGSTOP loses only its own figures, is named, and is read again when it
/// continues. Hot-plugged vCPUs count.
pub fn a_guest_that_hangs_takes_nothing_from_the_others() {
    const TEST: &str = "a_guest_that_hangs_takes_nothing_from_the_others";
    let daemons = match libvirt::start() {
        Ok(daemons) => daemons,
        Err(why) => return common::skipped(TEST, &why),
    };
    let setup = Setup {
        vcpus: 1,
        max_vcpus: 4,
        tune: "",
        clock: "<clock offset='utc'/>",
    };
    let (hung, well) = match (
        Domain::start("kvmtop-hung", &IDLE, &setup),
        Domain::start("kvmtop-well", &IDLE, &setup),
    ) {
        (Ok(a), Ok(b)) => (a, b),
        (Err(why), _) | (_, Err(why)) => return common::skipped(TEST, &why),
    };
    // Used alone, libvirt's source does not know that the process is stopped: the call waits.
    let alone = Libvirt::start(Some("qemu:///system".into()), false);
    let uuids = ["kvmtop-hung", "kvmtop-well"].map(|name| (name, uuid_of(name)));
    let read = |wanted: &str| {
        let (_, uuid) = uuids
            .iter()
            .find(|(name, _)| *name == wanted)
            .expect("a guest");
        alone
            .domain(uuid)
            .is_some_and(|d| !d.activity.disks.is_empty())
    };
    let said = || alone.status(Instant::now()).sentence();
    wait("both are read", || {
        read("kvmtop-hung") && read("kvmtop-well")
    });
    let stopped = Stopped::new(hung.pid());
    wait("only one is left out", || {
        !read("kvmtop-hung") && said().contains("kvmtop-hung among them")
    });
    let before = calls();
    two_polls(&alone);
    assert!(
        read("kvmtop-well") && !read("kvmtop-hung"),
        "two polls later: {}",
        said()
    );
    assert!(calls() <= before + 1, "threads stay few");
    drop(stopped);
    wait("it is read again", || {
        read("kvmtop-hung") && read("kvmtop-well") && said().is_empty()
    });

    let libvirt = Libvirt::start(None, false);
    let source = LibvirtAndQmp::new(libvirt, MonitorUse::Never);
    let options = CollectorOptions {
        metadata: Some(source),
        ..CollectorOptions::default()
    };
    let mut collector = Collector::new(options);
    let pids = [hung.pid(), well.pid()].map(|pid| i32::try_from(pid).expect("a PID"));
    // Whether each has figures of its disks, and what is said of libvirt.
    let look = |collector: &mut Collector| {
        let sample = collector.tick();
        let domain = |pid: i32| {
            sample
                .domains
                .iter()
                .find(|d| d.facts.pid == Some(pid))
                .expect("the guest")
        };
        let figures = pids.map(|pid| !domain(pid).disks.is_empty());
        let vcpus = domain(pids[1])
            .facts
            .vcpus
            .as_ref()
            .map(|known| known.value);
        let said = sample
            .sources
            .iter()
            .find(|s| s.id == SourceId::Libvirt)
            .map(SourceStatus::sentence);
        (figures, vcpus, said.unwrap_or_default())
    };
    wait("both have figures", || {
        matches!(look(&mut collector), ([true, true], Some(1), _))
    });
    let stopped = Stopped::new(hung.pid());
    wait("the stopped one is named", || {
        let (figures, _, said) = look(&mut collector);
        figures == [false, true] && said.contains("kvmtop-hung among them")
    });
    assert!(
        libvirt::virsh(&["setvcpus", "kvmtop-well", "4", "--live"])
            .status
            .success(),
        "hot-plug"
    );
    wait("plugged in", || {
        matches!(look(&mut collector), ([false, true], Some(4), _))
    });
    drop(stopped);
    wait("it is read again", || {
        let (figures, _, said) = look(&mut collector);
        figures == [true, true] && said.is_empty()
    });
    common::ran(TEST);
    drop((hung, well));
    drop(daemons);
}

/// Lets libvirt's source poll twice.
fn two_polls(source: &Libvirt) {
    for _ in 0..2 {
        source.refresh();
        std::thread::sleep(Duration::from_secs(2));
    }
}

/// Six QEMUs that hang are more than half of the threads that ask: the others keep their figures,
/// and libvirt's daemon its workers.
pub fn many_guests_that_hang_take_nothing_from_the_others() {
    const TEST: &str = "many_guests_that_hang_take_nothing_from_the_others";
    let daemons = match libvirt::start() {
        Ok(daemons) => daemons,
        Err(why) => return common::skipped(TEST, &why),
    };
    let setup = Setup {
        vcpus: 1,
        max_vcpus: 1,
        tune: "",
        clock: "<clock offset='utc'/>",
    };
    let names: Vec<String> = (0..8).map(|n| format!("kvmtop-of-many-{n}")).collect();
    let guests: Result<Vec<Domain>, String> = names
        .iter()
        .map(|name| Domain::start(name, &IDLE, &setup))
        .collect();
    let guests = match guests {
        Ok(guests) => guests,
        Err(why) => return common::skipped(TEST, &why),
    };
    let alone = Libvirt::start(None, true);
    let uuids: Vec<String> = names.iter().map(|name| uuid_of(name)).collect();
    let read = |uuid: &String| {
        alone
            .domain(uuid)
            .is_some_and(|d| !d.activity.disks.is_empty())
    };
    wait("all are read", || uuids.iter().all(read));
    let pids = guests
        .iter()
        .map(|guest| i32::try_from(guest.pid()).expect("a PID"));
    alone.set_processes(uuids.iter().cloned().zip(pids).collect());
    let stopped: Vec<Stopped> = guests[..6]
        .iter()
        .map(|guest| Stopped::new(guest.pid()))
        .collect();
    let before = calls();
    wait("they are left out", || !uuids[..6].iter().any(read));
    assert!(uuids[6..].iter().all(read));
    two_polls(&alone);
    assert!(
        uuids[6..].iter().all(read) && !uuids[..6].iter().any(read),
        "two polls later"
    );
    let said = alone.status(Instant::now()).sentence();
    assert!(
        said.contains("6 of 8 guests do not answer libvirt"),
        "{said}"
    );
    assert!(
        calls() <= before + 1,
        "nobody waits for a process that is known to be stopped"
    );
    drop(stopped);
    wait("all are read again", || {
        uuids.iter().all(read) && alone.status(Instant::now()).sentence().is_empty()
    });
    common::ran(TEST);
    drop(guests);
    drop(daemons);
}

/// libvirtd hangs, ends and comes back: kvmtop says so each time, loses no guest and no name, and
/// is never held up.
pub fn the_daemon_may_hang_end_and_come_back() {
    const TEST: &str = "the_daemon_may_hang_end_and_come_back";
    let daemons = match libvirt::start() {
        Ok(daemons) if daemons.are_own() => daemons,
        Ok(_) => return common::skipped(TEST, "libvirtd ran before the test, which would stop it"),
        Err(why) => return common::skipped(TEST, &why),
    };
    let setup = Setup {
        vcpus: 1,
        max_vcpus: 1,
        tune: "",
        clock: "<clock offset='utc'/>",
    };
    let guest = match Domain::start("kvmtop-daemonless", &IDLE, &setup) {
        Ok(guest) => guest,
        Err(why) => return common::skipped(TEST, &why),
    };
    let mut watch = Watch::start(&["-d", "0.5", "--engine", "none"]);
    let until = |watch: &mut Watch, what: &str, ok: bool| {
        wait(what, || {
            watch.next();
            let interval = std::slice::from_ref(watch.last());
            let known = common::of_pid(interval, guest.pid())
                .iter()
                .any(|d| d["name"] == "kvmtop-daemonless");
            assert!(
                known || watch.seen.len() < 20,
                "{what}: the guest lost its name: {}",
                watch.last()
            );
            (watch.source("libvirt").0 == "ok") == ok && known
        });
    };
    until(&mut watch, "libvirt answers", true);
    let hung = Stopped::new(libvirt::daemon());
    until(&mut watch, "a daemon that hangs is said", false);
    // Nor does one that starts now wait for the daemon, which answers nobody before the process
    // below is let go.
    let late = Watch::start(&["-d", "0.5", "--engine", "none"]);
    let seen = common::of_pid(std::slice::from_ref(late.last()), guest.pid());
    assert!(
        seen.iter().any(|d| d["cpu"]["sys"].is_f64()),
        "{}",
        late.last()
    );
    late.stop();
    drop(hung);
    until(&mut watch, "it answers again", true);
    let daemon = libvirt::daemon();
    assert!(
        Command::new("kill")
            .arg(daemon.to_string())
            .status()
            .is_ok_and(|status| status.success())
    );
    wait("libvirtd ends", || {
        !std::path::Path::new(&format!("/proc/{daemon}")).exists()
    });
    until(&mut watch, "a daemon that is gone is said", false);
    assert!(
        Command::new("libvirtd")
            .arg("-d")
            .status()
            .is_ok_and(|status| status.success())
    );
    until(&mut watch, "the new daemon answers", true);
    let longest = watch
        .seen
        .iter()
        .filter_map(|i| i["interval_s"].as_f64())
        .fold(0.0, f64::max);
    assert!(longest < 5.0, "an interval of {longest} s");
    watch.stop();
    common::ran(TEST);
    drop(guest);
    drop(daemons);
}
