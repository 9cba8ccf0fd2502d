//! A guest that counts its rounds, and programs that watch it meanwhile.
#![allow(dead_code, reason = "each bench uses a part")]

use crate::common::guest::{Guest, MEMORY, MEMORY_ENV, PROGRESS, Work};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const WINDOW: Duration = Duration::from_millis(1500);
/// What a guest needs to start, and a watcher.
pub const WARM: Duration = Duration::from_secs(2);

/// The guest and its memory.
pub struct Guests {
    pub guest: Guest,
    memory: *const u32,
    vcpus: usize,
    tids: Vec<i32>,
}

impl Guests {
    /// A guest whose vCPUs repeat `load`, on CPU 0.
    pub fn start(load: &str, vcpus: usize) -> Self {
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
        // A thread names itself when it first runs.
        let mut tids = Vec::new();
        let began = Instant::now();
        while tids.len() < vcpus && began.elapsed() < WARM {
            tids = vcpu_threads(guest.pid());
        }
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
        Self {
            guest,
            memory: memory.cast(),
            vcpus,
            tids,
        }
    }

    fn rounds(&self) -> Vec<u32> {
        // SAFETY: within the mapping; the guest writes it, so each number is read once and as it
        // is.
        (0..self.vcpus)
            .map(|i| unsafe { self.memory.add(PROGRESS / 4 + i).read_volatile() })
            .collect()
    }

    /// Stops the whole guest, or continues it.
    pub fn stop(&self, stopped: bool) {
        let signal = if stopped {
            rustix::process::Signal::STOP
        } else {
            rustix::process::Signal::CONT
        };
        let pid = rustix::process::Pid::from_raw(self.guest.pid() as i32).expect("its pid");
        rustix::process::kill_process(pid, signal).expect("its parent may");
    }

    /// Rounds per second of CPU time, and per second of wall time.
    pub fn speed(&self) -> (f64, f64) {
        let (began, rounds, cpu) = (Instant::now(), self.rounds(), on_cpu(&self.tids));
        std::thread::sleep(WINDOW);
        let done: u64 = self
            .rounds()
            .iter()
            .zip(&rounds)
            .map(|(b, a)| u64::from(b.wrapping_sub(*a)))
            .sum();
        (
            done as f64 / (on_cpu(&self.tids) - cpu),
            done as f64 / began.elapsed().as_secs_f64(),
        )
    }
}

fn vcpu_threads(pid: u32) -> Vec<i32> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("threads");
    let tids = threads.filter_map(|e| e.ok()?.file_name().to_string_lossy().parse::<i32>().ok());
    tids.filter(|tid| {
        std::fs::read_to_string(format!("/proc/{tid}/comm")).is_ok_and(|c| c.contains("/KVM"))
    })
    .collect()
}

/// CPU time of threads, seconds.
pub fn on_cpu(tids: &[i32]) -> f64 {
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
pub fn family(pid: i32) -> Vec<i32> {
    let (mut tids, mut todo) = (Vec::new(), vec![pid]);
    while let Some(pid) = todo.pop() {
        let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
            continue;
        };
        for tid in threads.filter_map(|e| e.ok()?.file_name().to_string_lossy().parse::<i32>().ok())
        {
            tids.push(tid);
            let children = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/children"))
                .unwrap_or_default();
            todo.extend(
                children
                    .split_whitespace()
                    .filter_map(|c| c.parse::<i32>().ok()),
            );
        }
    }
    tids
}

/// Starts a watcher on the last CPU.
pub fn watcher(command: &str, output: Stdio) -> Child {
    let last = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) - 1;
    Command::new("setsid")
        .args([
            "taskset",
            "-c",
            &last.to_string(),
            "sh",
            "-c",
            &format!("exec {command}"),
        ])
        // perf leaves an empty perf.data where it is run.
        .current_dir(std::env::temp_dir())
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(Stdio::null())
        .spawn()
        .expect("the watcher starts")
}

/// Ends a watcher and its descendants.
pub fn end(mut child: Child) {
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

/// The middle one.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}
