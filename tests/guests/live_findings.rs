//! Findings about real guests: each is reported within ten seconds of the beginning of its cause
//! and withdrawn within thirty seconds of its end. An idle guest gets no findings.

use crate::common;
use crate::common::cpu_group::CpuGroup;
use crate::common::findings::{Judge, REPORTED, WITHDRAWN, evidence, findings, reported, rules};
use crate::common::guest::{Guest, Work};
use crate::common::hog::Hog;
use crate::common::libvirt::{self, Domain, Setup};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};
use serde_json::Value;
use std::time::{Duration, Instant};

fn pin(tid: i32, cpus: &[usize]) {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|c| set.set(*c));
    sched_setaffinity(Pid::from_raw(tid), &set).expect("affinity");
}

/// The CPUs that this test may use; `None` if there are fewer than two.
fn cpus() -> Option<Vec<usize>> {
    let set = rustix::thread::sched_getaffinity(None).ok()?;
    let all: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|c| set.is_set(*c)).collect();
    (all.len() > 1).then_some(all)
}

#[test]
fn clocks_are_reported_and_withdrawn_and_an_idle_guest_is_left_alone() {
    const TEST: &str = "clocks_are_reported_and_withdrawn_and_an_idle_guest_is_left_alone";
    let _beside = common::beside_others();
    if let Some(why) = common::cannot_trace() {
        return common::skipped(TEST, &why);
    }
    let work = [
        Work::PortLoop(0x608),
        Work::PortLoop(0x71),
        Work::MmioLoop(0xfed0_00f0),
        Work::Idle,
    ];
    let mut guests = work.map(|w| Guest::start(&[w], true));
    let mut watch = Judge::start();
    let names = guests.each_ref().map(|g| watch.name(g.pid()));
    let clocks: Vec<(&str, &str)> = ["acpi-pm-timer", "rtc-tick", "hpet-clock"]
        .into_iter()
        .zip(names.iter().map(String::as_str))
        .collect();
    guests.iter_mut().for_each(Guest::go);
    watch.until(REPORTED, "the clocks", |v| {
        clocks.iter().all(|(rule, name)| reported(v, rule, name))
    });
    // Waiting for a CPU is the machine's affair: who else loads it is not in this test's hands.
    let of_idle = |f: &&Value| f["domain"] == names[3].as_str() && f["rule"] != "vcpu-wait";
    assert_eq!(
        findings(&watch.last).find(of_idle),
        None,
        "{}",
        rules(&watch.last)
    );
    guests.iter_mut().for_each(Guest::rest);
    watch.until(WITHDRAWN, "the clocks rest", |v| {
        !clocks.iter().any(|(rule, name)| reported(v, rule, name))
    });
    common::ran(TEST);
}

/// What breaks a guest is reported within ten seconds, although the guest has only just started,
/// and stays for a while.
#[test]
fn what_breaks_a_guest_is_reported() {
    const TEST: &str = "what_breaks_a_guest_is_reported";
    let _beside = common::beside_others();
    if let Some(why) = common::cannot_trace() {
        return common::skipped(TEST, &why);
    }
    for engine in ["bpf", "perf"] {
        let work = [
            Work::TripleFault,
            Work::UnknownInstruction,
            Work::RefusedRun,
        ];
        let mut guests = work.map(|w| Guest::start(&[w], true));
        let mut watch = Judge::with(600, &["--engine", engine]);
        let names = guests.each_ref().map(|g| watch.name(g.pid()));
        guests.iter_mut().for_each(Guest::go);
        watch.until(REPORTED, "broken guests", |v| {
            names.iter().all(|name| reported(v, "abnormal-exit", name))
        });
        let seen = names
            .each_ref()
            .map(|name| evidence(&watch.last, "abnormal-exit", name));
        for (seen, word) in
            seen.iter()
                .zip(["KVM_EXIT_SHUTDOWN", "KVM_EXIT_INTERNAL_ERROR", "EINVAL"])
        {
            assert!(seen.contains(word), "{engine}: {word} in {seen}");
        }
    }
    common::ran(TEST);
}

#[test]
fn overlapping_pins_are_reported_and_withdrawn() {
    const TEST: &str = "overlapping_pins_are_reported_and_withdrawn";
    let _pins = common::pinning();
    let _beside = common::beside_others();
    if let Some(why) = common::cannot_trace() {
        return common::skipped(TEST, &why);
    }
    let Some(cpus) = cpus() else {
        return common::skipped(TEST, "one CPU only");
    };
    let mut guests = [
        Guest::start(&[Work::PortLoop(0x80)], true),
        Guest::start(&[Work::PortLoop(0x80)], true),
    ];
    let mut watch = Judge::start();
    let pids = [guests[0].pid(), guests[1].pid()];
    let names = pids.map(|p| watch.name(p));
    guests.iter_mut().for_each(Guest::go);
    let vcpus = pids.map(|p| watch.vcpu(p));
    let main = i32::try_from(pids[0]).expect("a PID");

    vcpus.iter().for_each(|v| pin(*v, &cpus[..1]));
    let pair = |v: &Value| names.iter().any(|n| reported(v, "pin-overlap", n));
    watch.until(REPORTED, "pin-overlap", pair);
    pin(vcpus[1], &cpus[1..2]);
    watch.until(WITHDRAWN, "pin-overlap ends", |v| !pair(v));

    pin(main, &cpus[..1]);
    let helper = |v: &Value| reported(v, "emulator-on-vcpu", &names[0]);
    watch.until(REPORTED, "emulator-on-vcpu", helper);
    pin(main, &cpus);
    watch.until(WITHDRAWN, "emulator-on-vcpu ends", |v| !helper(v));

    // A task of the host that never sleeps, on the CPU of a pinned vCPU that never sleeps. The
    // evidence has to name it: whoever else runs on this machine may disturb that vCPU as well,
    // before and after. Both go before everyone else here, so that it is among the busiest of that
    // CPU.
    let hog = Hog::start("kvmtop-hog");
    let group = CpuGroup::new("kvmtop-pins");
    if let Ok(group) = &group {
        group.first();
        group.take(hog.pid());
        group.take(pids[0]);
    }
    pin(i32::try_from(hog.pid()).expect("a PID"), &cpus[..1]);
    let hogged = |v: &Value| evidence(v, "pinned-not-isolated", &names[0]).contains("kvmtop-hog");
    watch.until(REPORTED, "pinned-not-isolated", hogged);
    drop(hog);
    watch.until(WITHDRAWN, "the task's end", |v| !hogged(v));
    pin(vcpus[0], &cpus);
    watch.until(WITHDRAWN, "pinned-not-isolated ends", |v| {
        !reported(v, "pinned-not-isolated", &names[0])
    });
    common::ran(TEST);
}

#[test]
fn a_loaded_host_and_a_quota_are_reported_and_withdrawn() {
    const TEST: &str = "a_loaded_host_and_a_quota_are_reported_and_withdrawn";
    let _alone = common::alone();
    if let Some(why) = common::cannot_trace() {
        return common::skipped(TEST, &why);
    }
    let Some(cpus) = cpus() else {
        return common::skipped(TEST, "one CPU only");
    };
    let groups =
        CpuGroup::new("kvmtop-load").and_then(|load| Ok((load, CpuGroup::new("kvmtop-quota")?)));
    let (load, quota) = match groups {
        Ok(groups) => groups,
        Err(why) => return common::skipped(TEST, &why),
    };
    let mut guests = [
        Guest::start(&[Work::PortLoop(0x80)], true),
        Guest::start(&[Work::PortLoop(0x80)], true),
    ];
    load.take(guests[0].pid());
    quota.take(guests[1].pid());
    let mut watch = Judge::start();
    let names = guests.each_ref().map(|g| watch.name(g.pid()));

    // Long after kvmtop first looked at the guests' groups.
    guests.iter_mut().for_each(Guest::go);
    quota.quota(Some(Duration::from_millis(10)));
    let hogs: Vec<Hog> = (0..2 * cpus.len())
        .map(|_| Hog::start("kvmtop-hog"))
        .inspect(|h| load.take(h.pid()))
        .collect();
    let waits = |v: &Value| reported(v, "vcpu-wait", &names[0]);
    let held = |v: &Value| reported(v, "quota-throttled", &names[1]);
    watch.until(REPORTED, "vcpu-wait and quota-throttled", |v| {
        waits(v) && held(v)
    });
    // Whoever else loads this machine comes after the vCPU from here on, and moves it to no other
    // CPU.
    load.first();
    pin(watch.vcpu(guests[0].pid()), &cpus[..1]);
    drop(hogs);
    quota.quota(None);
    pin(watch.vcpu(guests[1].pid()), &cpus[1..2]);
    watch.until(WITHDRAWN, "both end", |v| {
        !waits(v) && !held(v) && !reported(v, "vcpu-migrating", &names[0])
    });
    common::ran(TEST);
}

/// A boot sector that lets the firmware's timer interrupt, 18 times a second, wake it from HLT.
const IDLE: [u8; 4] = [0xfb, 0xf4, 0xeb, 0xfd];
/// A boot sector that counts for ever, with the same interrupt.
const BUSY: [u8; 4] = [0xfb, 0x40, 0xeb, 0xfd];

/// Ten minutes (`KVMTOP_SILENCE_SECONDS` sets another time) on a quiet machine:
/// `cargo test --release --test guests live_findings -- --ignored --nocapture silence`
#[test]
#[ignore = "takes ten minutes and a machine that does nothing else"]
fn silence() {
    const TEST: &str = "silence";
    let _alone = common::alone();
    let seconds = std::env::var("KVMTOP_SILENCE_SECONDS")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(600);
    let Some(cpus) = cpus() else {
        return common::skipped(TEST, "one CPU only");
    };
    let daemons = match libvirt::start() {
        Ok(daemons) => daemons,
        Err(why) => return common::skipped(TEST, &why),
    };
    // The busy guest has the last CPU for itself; everything that this test starts keeps to the
    // others.
    let (last, rest) = cpus.split_last().expect("two CPUs");
    pin(0, rest);
    let rest = rest
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(",");
    let tune = format!(
        "<cputune><vcpupin vcpu='0' cpuset='{last}'/><emulatorpin cpuset='{rest}'/></cputune>"
    );
    let clock = "<clock offset='utc'><timer name='hpet' present='no'/></clock>";
    let busy = Domain::start(
        "kvmtop-healthy",
        &BUSY,
        &Setup {
            vcpus: 1,
            max_vcpus: 1,
            tune: &tune,
            clock,
        },
    );
    let idle = Domain::start(
        "kvmtop-quiet",
        &IDLE,
        &Setup {
            vcpus: 1,
            max_vcpus: 1,
            tune: "",
            clock,
        },
    );
    let (busy, idle) = match (busy, idle) {
        (Ok(a), Ok(b)) => (a, b),
        (Err(why), _) | (_, Err(why)) => return common::skipped(TEST, &why),
    };
    // The firmware runs for seconds and does not act like a healthy guest: it polls its timers.
    let mut watch = Judge::guarding(30);
    let names = [watch.name(busy.pid()), watch.name(idle.pid())];
    let until = Instant::now() + Duration::from_secs(seconds);
    let (mut intervals, mut disturbed, mut reported) = (0, 0, Vec::new());
    while Instant::now() < until {
        let interval = watch.next();
        intervals += 1;
        for f in findings(interval).filter(|f| names.iter().any(|n| f["domain"] == n.as_str())) {
            let line = format!(
                "{} {} of {}: {}",
                f["severity"], f["rule"], f["domain"], f["evidence"][0]
            );
            eprintln!("{} {line}", interval["time"]);
            // A few percent of the busy guest's CPU go to daemons of this machine, which cannot be
            // sent away.
            if f["rule"] == "pinned-not-isolated" && f["severity"] == "info" {
                disturbed += 1;
            } else {
                reported.push(line);
            }
        }
    }
    eprintln!(
        "{intervals} intervals, in {disturbed} of them tasks of this machine on the busy guest's \
        CPU"
    );
    drop((busy, idle));
    drop(daemons);
    assert!(intervals + 5 > seconds / 2, "{intervals} intervals only");
    assert!(
        reported.is_empty(),
        "{} findings in {intervals} intervals, the first {}",
        reported.len(),
        reported[0]
    );
    common::ran(TEST);
}
