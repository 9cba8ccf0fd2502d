//! What a tick costs as the host grows: with the number of vCPUs, by what they do, and with the
//! rate of events.
//!
//! The guests are tiny: each process holds a KVM VM whose vCPUs have run and sleep, wake once a
//! second, or always want to run (growth in threads), or read a port so often a second (growth in
//! events). kvmtop and htop run as their user sees them, with the screen in a terminal; `top -H -b`
//! writes to nowhere. They take turns in rounds, and the time of kvmtop is compared with htop's of
//! the same round. A tick's CPU is what all threads of the program used over some seconds, divided
//! by those seconds.
//!
//! ```console
//! cargo bench --bench growth -- [--rounds 3] [--ticks 8] [--vcpus 10,100,1000,2000] [--loads asleep,waking,running] \
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
/// vCPUs of a guest.
const VCPUS: usize = 8;
/// Reads a second that one vCPU can do on most hosts with room to spare.
const MAX_READS: u32 = 50_000;
/// The part of htop's CPU time that a tick may take.
const MAX_OF_HTOP: f64 = 0.6;

/// What a watcher costs.
#[derive(Debug, Clone, Copy)]
struct Cost {
    /// CPU milliseconds a tick.
    ms: f64,
    /// Resident memory, MiB.
    mib: f64,
}

/// What all vCPUs do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Load {
    /// They have run, and sleep.
    Asleep,
    /// They wake once a second.
    Waking,
    /// They always want to run.
    Running,
}

impl Load {
    fn parse(name: &str) -> Self {
        match name {
            "asleep" => Self::Asleep,
            "waking" => Self::Waking,
            "running" => Self::Running,
            _ => panic!("no load '{name}': asleep, waking, running"),
        }
    }

    fn work(self) -> Work {
        match self {
            Self::Asleep => Work::PortReads(0x71, 1),
            Self::Waking => Work::PacedReads(0x71, 1),
            Self::Running => Work::PortLoop(0x71),
        }
    }

    /// Starts guests with this many vCPUs in all. They give way to the watchers.
    fn start(self, vcpus: usize) -> Vec<Guest> {
        rustix::process::nice(19).expect("it may give way");
        let mut guests = Vec::new();
        for first in (0..vcpus).step_by(VCPUS) {
            guests.push(Guest::start(
                &vec![self.work(); VCPUS.min(vcpus - first)],
                true,
            ));
        }
        rustix::process::nice(-19).expect("it may go first again");
        for guest in &mut guests {
            guest.go();
            if self == Self::Asleep {
                guest.wait_done();
            }
        }
        guests
    }
}

/// Starts a guest that reads a port so often a second, over as many vCPUs as that takes.
fn reader(rate: u32) -> Guest {
    let vcpus = rate.div_ceil(MAX_READS);
    let mut guest = Guest::start(
        &vec![Work::PacedReads(0x71, rate / vcpus); vcpus as usize],
        true,
    );
    guest.go();
    guest
}

/// Watches a program for a number of ticks of a second.
fn cost(pid: u32, ticks: u32) -> Cost {
    std::thread::sleep(WARM);
    let before = used_ns(pid);
    std::thread::sleep(Duration::from_secs(ticks.into()));
    Cost {
        ms: (used_ns(pid) - before) as f64 / 1e6 / f64::from(ticks),
        mib: resident_mib(pid),
    }
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
    let kib = status.lines().find_map(|l| {
        l.strip_prefix("VmRSS:")?
            .split_whitespace()
            .next()?
            .parse::<f64>()
            .ok()
    });
    kib.unwrap_or(0.0) / 1024.0
}

/// A program that draws its screen in a terminal; none where it is not installed.
fn drawing(program: &str, args: &[&str], ticks: u32) -> Option<Cost> {
    let size = PtySize {
        rows: 40,
        cols: 140,
        pixel_width: 0,
        pixel_height: 0,
    };
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
    command
        .args(["-H", "-b", "-d", "1"])
        .stdin(Stdio::null())
        .stdout(Stdio::null());
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
    let rows = domain["accesses"]
        .as_array()
        .expect("accesses")
        .iter()
        .filter(|a| a["vcpu"].is_null());
    rows.map(|a| a["rate"].as_f64().expect("a rate")).sum()
}

fn cells(cost: Option<Cost>) -> String {
    cost.map_or_else(
        || format!("{:>10} {:>8}", "-", "-"),
        |cost| format!("{:>10.2} {:>8.1}", cost.ms, cost.mib),
    )
}

/// The words of an option's list.
fn list(args: &[String], name: &str, default: &str) -> Vec<String> {
    let given = args
        .iter()
        .position(|a| a == name)
        .and_then(|i| args.get(i + 1));
    let text = given.map_or(default, String::as_str);
    text.split(',')
        .filter(|w| !w.is_empty())
        .map(str::to_owned)
        .collect()
}

fn numbers(args: &[String], name: &str, default: &str) -> Vec<u32> {
    list(args, name, default)
        .iter()
        .map(|w| w.parse().expect("numbers with commas"))
        .collect()
}

fn median(mut figures: Vec<f64>) -> Option<f64> {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied()
}

/// The medians of the rounds; `None` where the watcher is not installed.
fn median_cost(rounds: &[Option<Cost>]) -> Option<Cost> {
    let ms = median(rounds.iter().flatten().map(|cost| cost.ms).collect())?;
    let mib = median(rounds.iter().flatten().map(|cost| cost.mib).collect())?;
    Some(Cost { ms, mib })
}

/// A line of the table of threads: what each watcher costs.
fn compare(load: &str, vcpus: u32, rounds: u32, ticks: u32) {
    let guests = Load::parse(load).start(vcpus as usize);
    let (mut none, mut bpf, mut tops, mut htops) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        none.push(kvmtop("none", ticks));
        bpf.push(kvmtop("bpf", ticks));
        tops.push(top(ticks));
        htops.push(htop(ticks));
    }
    drop(guests);
    let mut ratios = Vec::new();
    for (kvmtop, htop) in bpf.iter().zip(&htops) {
        if let (Some(kvmtop), Some(htop)) = (kvmtop, htop) {
            ratios.push(kvmtop.ms / htop.ms);
        }
    }
    let ratio = match median(ratios) {
        Some(ratio) if ratio > MAX_OF_HTOP => format!("{ratio:.2}, more than {MAX_OF_HTOP}"),
        Some(ratio) => format!("{ratio:.2}"),
        None => "-".into(),
    };
    let costs = [none, bpf, tops, htops]
        .map(|rounds| cells(median_cost(&rounds)))
        .join(" ");
    println!("{load:>8} {vcpus:>6} {costs}  {ratio}");
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
    let (rounds, ticks) = (
        numbers(&args, "--rounds", "3")[0],
        numbers(&args, "--ticks", "8")[0],
    );
    let rates = numbers(&args, "--rates", "1000,10000,50000,100000,200000");
    let watchers = ["kvmtop none", "kvmtop bpf", "top -H -b -d 1", "htop -d 10"]
        .map(|name| format!("{name:>19}"));
    println!("{:>15} {}  bpf/htop", "", watchers.join(" "));
    println!(
        "{:>8} {:>6} {}",
        "vCPUs",
        "number",
        format!("{:>10} {:>8} ", "ms a tick", "RSS MiB")
            .repeat(4)
            .trim_end()
    );
    for load in list(&args, "--loads", "asleep,waking,running") {
        for vcpus in numbers(&args, "--vcpus", "10,100,1000,2000") {
            compare(&load, vcpus, rounds, ticks);
        }
    }
    println!(
        "\n{:>9} {:>9} {:>19} {:>19}",
        "", "", "kvmtop none", "kvmtop bpf"
    );
    println!(
        "{:>9} {:>9} {}",
        "reads/s",
        "counted",
        format!("{:>10} {:>8} ", "ms a tick", "RSS MiB")
            .repeat(2)
            .trim_end()
    );
    for rate in rates {
        let guest = reader(rate);
        let seen = counted(guest.pid());
        let (none, bpf) = (kvmtop("none", ticks), kvmtop("bpf", ticks));
        println!("{rate:>9} {seen:>9.0} {} {}", cells(none), cells(bpf));
        drop(guest);
    }
}
