//! What a guest loses at its network interface, and what serves it beside its VMM.

use crate::common;
use crate::common::cpu_group::CpuGroup;
use crate::common::findings::{Judge, REPORTED, about};
use crate::common::guest::{Guest, Work};
use crate::common::hog::Hog;
use crate::common::qemu::Running;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::Value;
use std::net::UdpSocket;
use std::os::fd::AsFd as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Makes a tap device in a network namespace of its own, and a guest of it whose firmware takes no
/// packets.
const TAP_GUEST: &str = "ip tuntap add dev kvtap0 mode tap && ip addr add 192.0.2.1/24 dev kvtap0 \
    && ip link set kvtap0 up && ip neigh add 192.0.2.2 lladdr 52:54:00:12:34:56 dev kvtap0 nud \
    permanent && exec qemu-system-x86_64 -name kvmtop-tap,debug-threads=on -accel kvm -m 32 \
    -display none -nodefaults -netdev tap,id=n,ifname=kvtap0,script=no,downscript=no -device \
    virtio-net-pci,netdev=n,mac=52:54:00:12:34:56";

fn guest_of(interval: &Value, pid: i32) -> &Value {
    let mut domains = interval["domains"].as_array().into_iter().flatten();
    domains.find(|d| d["pid"] == pid).unwrap_or(&Value::Null)
}

/// Sends packets to the guest, in its network namespace, until told to end.
fn send_packets(pid: i32, ends: &AtomicBool) {
    let namespace = std::fs::File::open(format!("/proc/{pid}/ns/net")).expect("a namespace");
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
        .expect("the namespace of the guest");
    let socket = UdpSocket::bind("192.0.2.1:0").expect("a socket");
    while !ends.load(Ordering::Relaxed) {
        for _ in 0..100 {
            // The queue is full: that is what is tested.
            let _ = socket.send_to(&[0; 100], "192.0.2.2:9");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn packets_that_a_guest_does_not_take_are_found() {
    const TEST: &str = "packets_that_a_guest_does_not_take_are_found";
    let _beside = common::beside_others();
    if let Some(why) = common::cannot_run_guests() {
        return common::skipped(TEST, &why);
    }
    let started = Command::new("unshare")
        .args(["-n", "sh", "-c", TAP_GUEST])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let mut guest = match started {
        Ok(child) => Running(child),
        Err(why) => return common::skipped(TEST, &format!("unshare: {why}")),
    };
    // The shell becomes QEMU once the device is there.
    let exe = format!("/proc/{}/exe", guest.pid());
    while !std::fs::read_link(&exe).is_ok_and(|exe| exe.ends_with("qemu-system-x86_64")) {
        if guest.0.try_wait().expect("its state").is_some() {
            return common::skipped(TEST, "no tap device, namespace or ip here");
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    let ends = Arc::new(AtomicBool::new(false));
    let sender = {
        let (pid, ends) = (guest.pid(), ends.clone());
        std::thread::spawn(move || send_packets(pid, &ends))
    };
    let mut watch = Judge::with(
        0,
        &["--no-monitor", "--engine", "none", "--domain", "kvmtop-tap"],
    );
    watch.until(2 * REPORTED, "dropped packets", |interval| {
        about(interval, "kvmtop-tap").any(|f| f["rule"] == "nic-drops")
    });
    let nic = &guest_of(&watch.last, guest.pid())["nics"][0];
    assert_eq!(nic["name"], "kvtap0");
    assert_eq!(
        nic["rx_drops"], nic["drops"],
        "all of them towards the guest: {nic:#}"
    );
    ends.store(true, Ordering::Relaxed);
    sender.join().expect("the sender");
    common::ran(TEST);
}

#[test]
fn a_program_that_serves_a_guest_counts_as_the_guest() {
    const TEST: &str = "a_program_that_serves_a_guest_counts_as_the_guest";
    let _beside = common::beside_others();
    if let Some(why) = common::cannot_run_guests() {
        return common::skipped(TEST, &why);
    }
    let group = match CpuGroup::new("kvmtop-attended") {
        Ok(group) => group,
        Err(why) => return common::skipped(TEST, &why),
    };
    let mut guest = Guest::start(&[Work::PortLoop(0x80)], true);
    let daemon = Hog::start("virtiofsd");
    group.take(guest.pid());
    group.take(daemon.pid());
    let mut watch = Judge::with(0, &["--no-monitor", "--engine", "none"]);
    let pid = i32::try_from(guest.pid()).expect("a PID");
    let served = |interval: &Value| {
        let threads = guest_of(interval, pid)["threads"].as_array();
        let mut threads = threads.into_iter().flatten();
        threads.any(|t| t["comm"] == "virtiofsd" && t["usr"].as_f64() > Some(1.0))
    };
    watch.until(REPORTED, "the program among the guest's threads", served);
    let mut tasks = watch.last["host"]["tasks"].as_array().into_iter().flatten();
    assert!(
        tasks.all(|task| task["comm"] != "virtiofsd"),
        "a task of the host too"
    );

    // Both share what the group may use.
    guest.go();
    group.quota(Some(Duration::from_millis(20)));
    watch.until(REPORTED, "the use of the limit", |interval| {
        guest_of(interval, pid)["cpu_limit_percent"].as_f64() > Some(50.0)
    });
    common::ran(TEST);
}
