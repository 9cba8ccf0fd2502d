//! How much a watcher slows a guest down, and what the watcher itself costs.
//!
//! A guest runs on CPU 0 and counts its own rounds in its memory, which this program sees: no
//! tracing is needed to measure. Speed is rounds per second of the vCPUs' CPU time, so that what
//! else runs on the host counts less. The watchers take turns in interleaved rounds; each window
//! under one is divided by the mean of the unwatched windows before and after it. The control,
//! which only sleeps, should read 1.00.
//!
//! ```console
//! cargo bench --bench guest_speed -- --rounds 9 [--load port|msr|apic] [--vcpus 2] [--perf]
//! ```
#![allow(
    unsafe_code,
    reason = "sets the guest's environment and maps its memory"
)]
#![allow(missing_docs, clippy::expect_used, clippy::unwrap_used)]

#[path = "../tests/common/mod.rs"]
mod common;
mod watched;

use std::process::Stdio;
use std::time::Instant;
use watched::{Guests, WARM, end, family, median, on_cpu, watcher};

fn peak_rss_mib(tids: &[i32]) -> f64 {
    tids.iter()
        .filter_map(|tid| std::fs::read_to_string(format!("/proc/{tid}/status")).ok())
        .filter_map(|s| {
            s.lines()
                .find(|l| l.starts_with("VmHWM"))?
                .split_whitespace()
                .nth(1)?
                .parse::<f64>()
                .ok()
        })
        .fold(0.0, f64::max)
        / 1024.0
}

fn main() {
    let args: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| a != "--bench")
        .collect();
    if std::env::var_os("KVMTOP_TEST_GUEST").is_some() {
        return common::guest::main();
    }
    let value = |name: &str, default: &str| {
        args.iter()
            .position(|a| a == name)
            .and_then(|i| args.get(i + 1))
            .map_or(default.to_string(), Clone::clone)
    };
    let (rounds, vcpus): (usize, usize) = (
        value("--rounds", "9").parse().expect("--rounds N"),
        value("--vcpus", "1").parse().expect("--vcpus N"),
    );
    let load = value("--load", "port");
    if let Some(why) = common::cannot_trace() {
        println!("guest_speed: not run: {why}");
        return;
    }
    let guests = Guests::start(&load, vcpus);
    let kvmtop = env!("CARGO_BIN_EXE_kvmtop");
    let mut watchers = vec![
        ("control (sleep)", "sleep 60".to_string()),
        (
            "kvmtop --engine bpf",
            format!("{kvmtop} --batch --json --engine bpf"),
        ),
        (
            "kvmtop --engine perf",
            format!("{kvmtop} --batch --json --engine perf"),
        ),
        (
            "kvmtop --engine none",
            format!("{kvmtop} --batch --json --engine none"),
        ),
        (
            "kvmtop profile",
            format!("{kvmtop} profile {} --duration 10m", guests.guest.pid()),
        ),
    ];
    if args.iter().any(|a| a == "--perf") {
        watchers.push((
            "perf kvm stat live",
            "script -qc 'perf kvm stat live' /dev/null".into(),
        ));
        watchers.push((
            "perf kvm stat record",
            "perf kvm stat record -a -o /dev/shm/guest_speed.perf".into(),
        ));
    }
    let mut results: Vec<(Vec<f64>, Vec<f64>, f64)> =
        vec![(Vec::new(), Vec::new(), 0.0); watchers.len()];
    let mut alone = Vec::new();
    for round in 0..rounds {
        let mut before = guests.speed();
        for ((_, command), (ratios, cpu, rss)) in watchers.iter().zip(&mut results) {
            let child = watcher(command, Stdio::null());
            std::thread::sleep(WARM);
            let members = family(child.id() as i32);
            let (began, used) = (Instant::now(), on_cpu(&members));
            let under = guests.speed();
            cpu.push(100.0 * (on_cpu(&members) - used) / began.elapsed().as_secs_f64());
            *rss = peak_rss_mib(&members).max(*rss);
            end(child);
            let after = guests.speed();
            ratios.push(under.0 / f64::midpoint(before.0, after.0));
            alone.push(after.1);
            before = after;
        }
        eprintln!("round {} of {rounds}", round + 1);
    }
    let _ = std::fs::remove_file("/dev/shm/guest_speed.perf");
    println!(
        "load {load}, {vcpus} vCPU: {:.0} rounds/s unwatched; {rounds} interleaved rounds",
        median(&alone)
    );
    println!(
        "{:<22} {:>6} {:>15} {:>14} {:>9}",
        "watcher", "speed", "(min..max)", "its CPU, %", "RSS, MiB"
    );
    for ((name, _), (ratios, cpu, rss)) in watchers.iter().zip(&results) {
        let (min, max) = ratios
            .iter()
            .fold((f64::MAX, 0.0_f64), |(a, b), r| (a.min(*r), b.max(*r)));
        println!(
            "{name:<22} {:>6.3} {:>15} {:>14.2} {rss:>9.1}",
            median(ratios),
            format!("({min:.3}..{max:.3})"),
            median(cpu)
        );
    }
    std::process::exit(0); // the guest ends with this process
}
