//! Who has the CPU that a guest wants: each cause on real guests, named right within ten seconds,
//! and nothing else.

use crate::common;
use crate::common::cpu_group::CpuGroup;
use crate::common::findings::{Judge, REPORTED, about, findings, rules};
use crate::common::guest::{Guest, Work};
use crate::common::hog::Hog;
use crate::common::qemu::Running;
use crate::common::screen::Screen;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::Value;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn pin(tid: i32, cpus: &[usize]) {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|c| set.set(*c));
    sched_setaffinity(Pid::from_raw(tid), &set).expect("affinity");
}

/// The rules that report something worse than an info of a guest: whoever else works on this
/// machine takes a few percent of its CPUs.
fn reported<'v>(interval: &'v Value, name: &'v str) -> Vec<&'v str> {
    let worse = about(interval, name).filter(|f| f["severity"] != "info");
    worse.filter_map(|f| f["rule"].as_str()).collect()
}

/// A guest in a group, as yet at rest, and the name that it goes by.
fn guest(watch: &mut Judge, group: &CpuGroup, work: &[Work]) -> (Guest, String) {
    let guest = Guest::start(work, true);
    group.take(guest.pid());
    let name = watch.name(guest.pid());
    (guest, name)
}

/// The row of a guest on the first screen, once it satisfies a test.
fn row(name: &str, holds: impl Fn(&str) -> bool) -> String {
    let screen = Screen::start(&["--no-monitor"], (160, 40));
    screen.wait("the list", |text| text.contains("WHAT COSTS IT"));
    let (until, mut row) = (Instant::now() + REPORTED, String::new());
    while !holds(&row) && Instant::now() < until {
        let text = screen.next();
        text.lines()
            .find(|line| line.contains(name))
            .unwrap_or_default()
            .clone_into(&mut row);
    }
    row
}

#[test]
fn each_cause_of_a_wait_is_named() {
    const TEST: &str = "each_cause_of_a_wait_is_named";
    let _alone = common::alone();
    if let Some(why) = common::cannot_trace() {
        return common::skipped(TEST, &why);
    }
    let set = sched_getaffinity(None).expect("affinity");
    let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|c| set.is_set(*c)).collect();
    let [first, .., last] = cpus.as_slice() else {
        return common::skipped(TEST, "one CPU only");
    };
    let groups =
        CpuGroup::new("kvmtop-causes").and_then(|all| Ok((all, CpuGroup::new("kvmtop-limited")?)));
    let (all, limited) = match groups {
        Ok(groups) => groups,
        Err(why) => return common::skipped(TEST, &why),
    };
    // Whoever else works on this machine comes after them, and kvmtop keeps off the first CPU.
    all.first();
    limited.first();
    pin(0, &[*last]);
    let mut watch = Judge::start();

    // Tasks of the host take the CPU of two guests: they are to blame, not the number of vCPUs.
    let (mut one, name) = guest(&mut watch, &all, &[Work::PortLoop(0x80)]);
    let (mut two, other) = guest(&mut watch, &all, &[Work::PortLoop(0x80)]);
    let pids = [one.pid(), two.pid()];
    pids.into_iter()
        .for_each(|pid| pin(watch.vcpu(pid), &[*first, *last]));
    // Many, so that a guest waits mostly for them even where both guests share a CPU.
    let hogs: Vec<Hog> = (0..8).map(|_| Hog::start("kvmtop-hog")).collect();
    for pid in hogs.iter().map(Hog::pid) {
        all.take(pid);
        pin(i32::try_from(pid).expect("a PID"), &[*first, *last]);
    }
    [&mut one, &mut two].into_iter().for_each(Guest::go);
    let hogged = |v: &Value| {
        let named = |f: &Value| {
            f["title"]
                .as_str()
                .is_some_and(|t| t.starts_with("kvmtop-hog takes the CPUs"))
        };
        [&name, &other]
            .iter()
            .all(|n| about(v, n).any(|f| f["rule"] == "host-task-hog" && named(f)))
    };
    watch.until(REPORTED, "tasks of the host", hogged);
    assert!(
        findings(&watch.last).all(|f| f["rule"] != "overcommit"),
        "{}",
        rules(&watch.last)
    );
    assert!(
        [&name, &other]
            .iter()
            .all(|n| about(&watch.last, n).all(|f| f["rule"] != "vcpu-wait")),
        "a cause of its own"
    );
    drop(hogs);

    // The same two on one pin: they are to blame.
    drop((one, two));
    let (mut one, name) = guest(&mut watch, &all, &[Work::PortLoop(0x80)]);
    let (mut two, other) = guest(&mut watch, &all, &[Work::PortLoop(0x80)]);
    [one.pid(), two.pid()]
        .into_iter()
        .for_each(|pid| pin(watch.vcpu(pid), &[*first]));
    [&mut one, &mut two].into_iter().for_each(Guest::go);
    watch.until(REPORTED, "two guests on one pin", |v| {
        [&name, &other]
            .iter()
            .all(|n| reported(v, n) == ["pin-overlap"])
    });
    drop((one, two));

    // A quota stops a guest that has a CPU for itself.
    let (mut one, name) = guest(&mut watch, &limited, &[Work::PortLoop(0x80)]);
    pin(watch.vcpu(one.pid()), &[*first]);
    limited.quota(Some(Duration::from_millis(20)));
    one.go();
    watch.until(REPORTED, "a quota", |v| {
        reported(v, &name) == ["quota-throttled"]
    });
    let shown = row(&name, |row| row.contains("CPU quota"));
    assert!(shown.contains("CPU quota"), "{shown}");
    limited.quota(None);
    drop(one);

    // A guest whose own load fills it waits for nobody: nothing is wrong with the host.
    let (mut one, name) = guest(&mut watch, &all, &[Work::Interrupted(false)]);
    pin(watch.vcpu(one.pid()), &[*first]);
    one.go();
    let until = Instant::now() + Duration::from_secs(10);
    while Instant::now() < until {
        assert!(
            reported(watch.next(), &name).is_empty(),
            "{}",
            rules(&watch.last)
        );
    }
    let shown = row(&name, |row| row.contains(" 9") || row.contains("100"));
    assert!(shown.contains(&name) && !shown.contains("waits"), "{shown}");
    drop(one);

    // QEMU emulates the CPU of a guest without KVM.
    let qemu = Command::new("qemu-system-x86_64")
        .args([
            "-name",
            "kvmtop-tcg,debug-threads=on",
            "-accel",
            "tcg",
            "-m",
            "16",
            "-display",
            "none",
            "-nodefaults",
        ])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let Ok(qemu) = qemu.map(Running) else {
        return common::skipped("a guest under TCG", "no qemu-system-x86_64");
    };
    all.take(u32::try_from(qemu.pid()).expect("a PID"));
    watch.until(REPORTED, "a guest without KVM", |v| {
        reported(v, "kvmtop-tcg") == ["no-kvm"]
    });
    common::ran(TEST);
}
