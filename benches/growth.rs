//! What a tick costs as the host grows: with the number of threads, and with the rate of events.
//!
//! The guests are tiny: each process holds a KVM VM whose vCPUs have run and sleep (growth in threads), or read a port
//! so often a second (growth in events). kvmtop and htop run as their user sees them, with the screen in a terminal;
//! `top -H -b` writes to nowhere; they run in turns. A tick's CPU is what all threads of the program used over some
//! seconds, divided by the ticks in them.
//!
//! ```console
//! cargo bench --bench growth -- [--ticks 20] [--threads 10,100,1000,2000] [--awake 2000] \
//!     [--rates 1000,10000,50000,100000,200000]
//! ```
#![allow(missing_docs, clippy::expect_used, clippy::unwrap_used)]

#[path = "../tests/common/mod.rs"]
mod common;

use common::guest::{Guest, Work};
use portable_pty::{CommandBuilder, PtySize, native_pty_system};
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::Duration;

/// What a program needs to settle: its first ticks, and the opening of what it keeps open.
const WARM: Duration = Duration::from_secs(4);
/// vCPUs of a sleeping guest: with its main thread, ten threads.
const VCPUS: usize = 9;
/// Reads a second that one vCPU can do on most hosts with room to spare.
const MAX_READS: u32 = 50_000;

/// CPU milliseconds a tick, resident MiB.
type Cost = (f64, f64);

/// Starts so many threads of guests that have run and sleep.
fn sleepers(threads: usize) -> Vec<Guest> {
    let mut guests: Vec<Guest> =
        (0..threads.div_ceil(VCPUS + 1)).map(|_| Guest::start(&[Work::PortReads(0x71, 1); VCPUS], true)).collect();
    for guest in &mut guests {
        guest.go();
        guest.wait_done();
    }
    guests
}

/// Starts so many threads of guests that all run, twice a second each.
fn awake(threads: usize) -> Vec<Guest> {
    let mut guests: Vec<Guest> =
        (0..threads.div_ceil(VCPUS + 1)).map(|_| Guest::start(&[Work::PacedReads(0x71, 2); VCPUS], true)).collect();
    guests.iter_mut().for_each(Guest::go);
    guests
}

/// Starts a guest that reads a port so often a second, over as many vCPUs as that takes.
fn reader(rate: u32) -> Guest {
    let vcpus = rate.div_ceil(MAX_READS);
    let mut guest = Guest::start(&vec![Work::PacedReads(0x71, rate / vcpus); vcpus as usize], true);
    guest.go();
    guest
}

/// Watches a program for a number of ticks of a second.
fn cost(pid: u32, ticks: u32) -> Cost {
    std::thread::sleep(WARM);
    let before = used_ns(pid);
    std::thread::sleep(Duration::from_secs(ticks.into()));
    ((used_ns(pid) - before) as f64 / 1e6 / f64::from(ticks), resident_mib(pid))
}

/// CPU time of all threads of a process, nanoseconds.
fn used_ns(pid: u32) -> u64 {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("the program lives");
    threads
        .filter_map(|t| std::fs::read_to_string(t.ok()?.path().join("schedstat")).ok())
        .filter_map(|s| s.split_whitespace().next()?.parse::<u64>().ok())
        .sum()
}

fn resident_mib(pid: u32) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let kib = status.lines().find_map(|l| l.strip_prefix("VmRSS:")?.split_whitespace().next()?.parse::<f64>().ok());
    kib.unwrap_or(0.0) / 1024.0
}

/// A program that draws its screen in a terminal; none where it is not installed.
fn drawing(program: &str, args: &[&str], ticks: u32) -> Option<Cost> {
    let size = PtySize { rows: 40, cols: 140, pixel_width: 0, pixel_height: 0 };
    let pair = native_pty_system().openpty(size).expect("a terminal");
    let mut command = CommandBuilder::new(program);
    command.args(args);
    command.env("TERM", "xterm-256color");
    let mut child = pair.slave.spawn_command(command).ok()?;
    drop(pair.slave);
    let mut screen = pair.master.try_clone_reader().expect("what it draws");
    std::thread::spawn(move || {
        let mut buffer = vec![0; 65536];
        while screen.read(&mut buffer).is_ok_and(|n| n > 0) {}
    });
    let cost = cost(child.process_id().expect("a PID"), ticks);
    child.kill().expect("it ends");
    child.wait().expect("it ended");
    Some(cost)
}

fn kvmtop(engine: &str, ticks: u32) -> Option<Cost> {
    drawing(env!("CARGO_BIN_EXE_kvmtop"), &["--engine", engine], ticks)
}

/// It reads every thread, and shows as many as there are rows.
fn htop(ticks: u32) -> Option<Cost> {
    drawing("htop", &["-d", "10"], ticks)
}

fn top(ticks: u32) -> Option<Cost> {
    let mut command = Command::new("top");
    command.args(["-H", "-b", "-d", "1"]).stdin(Stdio::null()).stdout(Stdio::null());
    let mut child = command.spawn().ok()?;
    let cost = cost(child.id(), ticks);
    child.kill().expect("it ends");
    child.wait().expect("it ended");
    Some(cost)
}

/// Port reads a second that kvmtop counts.
fn counted(pid: u32) -> f64 {
    let mut watch = common::watch::Watch::start(&["-d", "2", "--engine", "bpf"]);
    let interval = watch.next().clone();
    watch.stop();
    let domain = common::of_pid(std::slice::from_ref(&interval), pid)[0];
    let rows = domain["accesses"].as_array().expect("accesses").iter().filter(|a| a["vcpu"].is_null());
    rows.map(|a| a["rate"].as_f64().expect("a rate")).sum()
}

fn cells(cost: Option<Cost>) -> String {
    cost.map_or_else(|| format!("{:>10} {:>8}", "-", "-"), |(ms, mib)| format!("{ms:>10.2} {mib:>8.1}"))
}

fn list(args: &[String], name: &str, default: &str) -> Vec<u32> {
    let given = args.iter().position(|a| a == name).and_then(|i| args.get(i + 1));
    let text = given.map_or(default, String::as_str);
    text.split(',').filter(|w| !w.is_empty()).map(|w| w.parse().expect("numbers with commas")).collect()
}

fn main() {
    if std::env::var_os("KVMTOP_TEST_GUEST").is_some() {
        return common::guest::main();
    }
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let Some(why) = common::cannot_trace() {
        println!("growth: not run: {why}");
        return;
    }
    let ticks = list(&args, "--ticks", "20")[0];
    let threads = list(&args, "--threads", "10,100,1000,2000");
    let rates = list(&args, "--rates", "1000,10000,50000,100000,200000");
    println!("{:>9} {:>19} {:>19} {:>19} {:>19}", "", "kvmtop none", "kvmtop bpf", "top -H -b -d 1", "htop -d 10");
    println!("{:>9} {}", "threads", format!("{:>10} {:>8} ", "ms a tick", "RSS MiB").repeat(4).trim_end());
    for n in threads {
        let guests = sleepers(n as usize);
        let (none, bpf) = (kvmtop("none", ticks), kvmtop("bpf", ticks));
        println!("{n:>9} {} {} {} {}", cells(none), cells(bpf), cells(top(ticks)), cells(htop(ticks)));
        drop(guests);
    }
    for n in list(&args, "--awake", "2000") {
        let guests = awake(n as usize);
        let (none, bpf) = (kvmtop("none", ticks), kvmtop("bpf", ticks));
        println!("{n:>9} {} {}   all run", cells(none), cells(bpf));
        drop(guests);
    }
    println!("\n{:>9} {:>9} {:>19} {:>19}", "", "", "kvmtop none", "kvmtop bpf");
    println!(
        "{:>9} {:>9} {}",
        "reads/s",
        "counted",
        format!("{:>10} {:>8} ", "ms a tick", "RSS MiB").repeat(2).trim_end()
    );
    for rate in rates {
        let guest = reader(rate);
        let seen = counted(guest.pid());
        let (none, bpf) = (kvmtop("none", ticks), kvmtop("bpf", ticks));
        println!("{rate:>9} {seen:>9.0} {} {}", cells(none), cells(bpf));
        drop(guest);
    }
}
