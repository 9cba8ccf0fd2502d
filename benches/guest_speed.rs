//! How much a watcher slows a guest down, and what the watcher itself costs.
//!
//! A guest runs on CPU 0 and counts its own rounds in its memory, which this program sees: no tracing is needed to
//! measure. Speed is rounds per second of the vCPUs' CPU time, so that what else runs on the host counts less. The
//! watchers take turns in interleaved rounds; each window under one is divided by the mean of the unwatched windows
//! before and after it. The control, which only sleeps, should read 1.00.
//!
//! ```console
//! cargo bench --bench guest_speed -- --rounds 9 [--load port|msr|apic] [--vcpus 2] [--perf]
//! ```
#![allow(unsafe_code, reason = "sets the guest's environment and maps its memory")]
#![allow(missing_docs, clippy::expect_used, clippy::unwrap_used)]

#[path = "../tests/common/mod.rs"]
mod common;

use common::guest::{Guest, MEMORY, MEMORY_ENV, PROGRESS, Work};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const WINDOW: Duration = Duration::from_millis(1500);
const WARM: Duration = Duration::from_secs(2);

struct Guests {
    guest: Guest,
    memory: *const u32,
    vcpus: usize,
    tids: Vec<i32>,
}

impl Guests {
    fn start(load: &str, vcpus: usize) -> Self {
        let work = match load {
            "port" => Work::CountedPort(0x608),
            "msr" => Work::CountedMsr(0x1b),
            "apic" => Work::CountedApic,
            other => panic!("--load {other}: port, msr or apic"),
        };
        let file = tempfile::NamedTempFile::new_in("/dev/shm").expect("a file in memory");
        file.as_file().set_len(MEMORY as u64).expect("its size");
        // SAFETY: no other thread reads the environment here.
        unsafe { std::env::set_var(MEMORY_ENV, file.path()) };
        let mut guest = Guest::start(&vec![work; vcpus], true);
        let task = format!("/proc/{}/task", guest.pid());
        let tids: Vec<i32> = std::fs::read_dir(task)
            .expect("threads")
            .filter_map(|e| e.ok()?.file_name().to_string_lossy().parse().ok())
            .filter(|tid| std::fs::read_to_string(format!("/proc/{tid}/comm")).is_ok_and(|c| c.contains("/KVM")))
            .collect();
        assert_eq!(tids.len(), vcpus, "vCPU threads");
        for tid in &tids {
            pin(*tid, 0);
        }
        // SAFETY: a fresh mapping of a file that is as long; never unmapped.
        let memory = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                MEMORY,
                libc::PROT_READ,
                libc::MAP_SHARED,
                std::os::fd::AsRawFd::as_raw_fd(file.as_file()),
                0,
            )
        };
        assert_ne!(memory, libc::MAP_FAILED);
        guest.go();
        std::thread::sleep(WARM);
        Self { guest, memory: memory.cast(), vcpus, tids }
    }

    fn rounds(&self) -> Vec<u32> {
        // SAFETY: within the mapping; the guest writes it, so each number is read once and as it is.
        (0..self.vcpus).map(|i| unsafe { self.memory.add(PROGRESS / 4 + i).read_volatile() }).collect()
    }

    /// Rounds per second of CPU time, and per second of wall time.
    fn speed(&self) -> (f64, f64) {
        let (began, rounds, cpu) = (Instant::now(), self.rounds(), on_cpu(&self.tids));
        std::thread::sleep(WINDOW);
        let done: u64 = self.rounds().iter().zip(&rounds).map(|(b, a)| u64::from(b.wrapping_sub(*a))).sum();
        (done as f64 / (on_cpu(&self.tids) - cpu), done as f64 / began.elapsed().as_secs_f64())
    }
}

/// CPU time of threads, seconds.
fn on_cpu(tids: &[i32]) -> f64 {
    tids.iter()
        .filter_map(|tid| std::fs::read_to_string(format!("/proc/{tid}/schedstat")).ok())
        .filter_map(|s| s.split_whitespace().next()?.parse::<f64>().ok())
        .sum::<f64>()
        / 1e9
}

fn pin(tid: i32, cpu: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    rustix::thread::sched_setaffinity(rustix::process::Pid::from_raw(tid), &set).expect("affinity");
}

/// Threads of a process and of all its descendants.
fn family(pid: i32) -> Vec<i32> {
    let (mut tids, mut todo) = (Vec::new(), vec![pid]);
    while let Some(pid) = todo.pop() {
        let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { continue };
        for tid in threads.filter_map(|e| e.ok()?.file_name().to_string_lossy().parse::<i32>().ok()) {
            tids.push(tid);
            let children = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/children")).unwrap_or_default();
            todo.extend(children.split_whitespace().filter_map(|c| c.parse::<i32>().ok()));
        }
    }
    tids
}

fn peak_rss_mib(tids: &[i32]) -> f64 {
    tids.iter()
        .filter_map(|tid| std::fs::read_to_string(format!("/proc/{tid}/status")).ok())
        .filter_map(|s| s.lines().find(|l| l.starts_with("VmHWM"))?.split_whitespace().nth(1)?.parse::<f64>().ok())
        .fold(0.0, f64::max)
        / 1024.0
}

fn watcher(command: &str) -> Child {
    let last = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) - 1;
    Command::new("setsid")
        .args(["taskset", "-c", &last.to_string(), "sh", "-c", &format!("exec {command}")])
        // perf leaves an empty perf.data where it is run.
        .current_dir(std::env::temp_dir())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the watcher starts")
}

fn end(mut child: Child) {
    for tid in family(child.id() as i32).into_iter().rev() {
        if let Some(pid) = rustix::process::Pid::from_raw(tid) {
            // Threads and what has ended by itself answer with an error.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
        }
    }
    std::thread::sleep(Duration::from_millis(500));
    let _ = child.kill();
    let _ = child.wait();
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    if std::env::var_os("KVMTOP_TEST_GUEST").is_some() {
        return common::guest::main();
    }
    let value = |name: &str, default: &str| {
        args.iter().position(|a| a == name).and_then(|i| args.get(i + 1)).map_or(default.to_string(), Clone::clone)
    };
    let (rounds, vcpus): (usize, usize) =
        (value("--rounds", "9").parse().expect("--rounds N"), value("--vcpus", "1").parse().expect("--vcpus N"));
    let load = value("--load", "port");
    if let Some(why) = common::cannot_trace() {
        println!("guest_speed: not run: {why}");
        return;
    }
    let guests = Guests::start(&load, vcpus);
    let kvmtop = env!("CARGO_BIN_EXE_kvmtop");
    let mut watchers = vec![
        ("control (sleep)", "sleep 60".to_string()),
        ("kvmtop --engine bpf", format!("{kvmtop} --batch --json --engine bpf")),
        ("kvmtop --engine perf", format!("{kvmtop} --batch --json --engine perf")),
        ("kvmtop --engine none", format!("{kvmtop} --batch --json --engine none")),
        ("kvmtop profile", format!("{kvmtop} profile {} --duration 10m", guests.guest.pid())),
    ];
    if args.iter().any(|a| a == "--perf") {
        watchers.push(("perf kvm stat live", "script -qc 'perf kvm stat live' /dev/null".into()));
        watchers.push(("perf kvm stat record", "perf kvm stat record -a -o /dev/shm/guest_speed.perf".into()));
    }
    let mut results: Vec<(Vec<f64>, Vec<f64>, f64)> = vec![(Vec::new(), Vec::new(), 0.0); watchers.len()];
    let mut alone = Vec::new();
    for round in 0..rounds {
        let mut before = guests.speed();
        for ((_, command), (ratios, cpu, rss)) in watchers.iter().zip(&mut results) {
            let child = watcher(command);
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
    println!("load {load}, {vcpus} vCPU: {:.0} rounds/s unwatched; {rounds} interleaved rounds", median(&alone));
    println!("{:<22} {:>6} {:>15} {:>14} {:>9}", "watcher", "speed", "(min..max)", "its CPU, %", "RSS, MiB");
    for ((name, _), (ratios, cpu, rss)) in watchers.iter().zip(&results) {
        let (min, max) = ratios.iter().fold((f64::MAX, 0.0_f64), |(a, b), r| (a.min(*r), b.max(*r)));
        println!(
            "{name:<22} {:>6.3} {:>15} {:>14.2} {rss:>9.1}",
            median(ratios),
            format!("({min:.3}..{max:.3})"),
            median(cpu)
        );
    }
    std::process::exit(0); // the guest ends with this process
}
