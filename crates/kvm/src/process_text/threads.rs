//! Threads and where they may run: `taskset -p` (util-linux, schedutils/taskset.c), `ps -L`, `ps -T` and
//! `/proc/PID/status` (`proc_pid_status` in the kernel's fs/proc/array.c).

use super::{MAX_LINES, ProcessText, name};
use crate::cpu_set::CpuSet;

pub(super) fn read(text: &str, found: &mut ProcessText) {
    let mut columns: Option<PsColumns> = None;
    let mut status = Status::default();
    for line in text.lines().take(MAX_LINES) {
        if let Some(heading) = PsColumns::of(line) {
            columns = Some(heading);
        } else if line.contains("'s current affinity ") || line.contains("'s new affinity ") {
            affinity(line, found);
        } else if let Some((key, value)) = line.split_once(':').filter(|(key, _)| STATUS.contains(key)) {
            status.line(key, value.trim(), found);
        } else if let Some(columns) = &columns {
            columns.row(line, found);
        }
    }
}

/// `pid 4391's current affinity list: 0-3`, `pid 4391's current affinity mask: f`. After a change the new one counts.
fn affinity(line: &str, found: &mut ProcessText) {
    let Some((_, rest)) = line.split_once("pid ") else { return };
    let Some((tid, rest)) = rest.split_once("'s ") else { return };
    let Some((kind, cpus)) = rest.split_once(": ") else { return };
    let cpus = if kind.ends_with("mask") { mask(cpus) } else { CpuSet::parse(cpus.trim()).ok() };
    let cpus = cpus.filter(|cpus| !cpus.is_empty());
    if let (Ok(tid), Some(cpus)) = (tid.trim().parse(), cpus)
        && let Some(thread) = found.thread(tid)
    {
        thread.cpus = Some(cpus);
    }
}

/// `ff`, `ffffffff,00000000`: the last digit holds the first CPUs.
fn mask(text: &str) -> Option<CpuSet> {
    let digits = text.trim().trim_start_matches("0x").bytes().rev().filter(|b| *b != b',');
    let mut cpus = CpuSet::new();
    for (digit, at) in digits.zip((0u32..).step_by(4)) {
        let bits = char::from(digit).to_digit(16)?;
        (0..4).filter(|bit| bits & (1 << bit) != 0).for_each(|bit| {
            cpus.insert(at + bit);
        });
    }
    Some(cpus)
}

/// Lines of `/proc/PID/status` that are read.
const STATUS: &[&str] = &["Name", "Tgid", "Pid", "VmSwap", "Cpus_allowed_list"];

/// The file so far.
#[derive(Default)]
struct Status {
    comm: String,
    tgid: Option<i32>,
    pid: Option<i32>,
}

impl Status {
    fn line(&mut self, key: &str, value: &str, found: &mut ProcessText) {
        match (key, self.tgid, self.pid) {
            ("Name", ..) => *self = Self { comm: name(value), ..Self::default() },
            ("Tgid", ..) if !self.comm.is_empty() => self.tgid = value.parse().ok(),
            ("Pid", Some(_), _) => self.pid = value.parse().ok(),
            ("VmSwap", Some(tgid), Some(pid)) if tgid == pid => {
                let kib = value.split_whitespace().next().and_then(|n| n.parse::<u64>().ok());
                if let (Some(kib), Some(process)) = (kib, found.process(pid)) {
                    process.swap = Some(kib.saturating_mul(1024));
                    process.comm = Some(self.comm.clone());
                }
            }
            ("Cpus_allowed_list", Some(tgid), Some(pid)) => {
                if let (Ok(cpus), Some(thread)) = (CpuSet::parse(value), found.thread(pid)) {
                    (thread.pid, thread.comm, thread.cpus) = (Some(tgid), Some(self.comm.clone()), Some(cpus));
                }
                *self = Self::default();
            }
            _ => {}
        }
    }
}

/// Where the columns of `ps` are. The name has to be the last one: it can hold a space.
struct PsColumns {
    pid: usize,
    tid: usize,
    cpu: Option<usize>,
    comm: usize,
}

impl PsColumns {
    fn of(line: &str) -> Option<Self> {
        if line.len() > 400 || !line.contains("PID") {
            return None;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let at = |names: &[&str]| words.iter().position(|word| names.contains(word));
        let comm = at(&["COMMAND", "CMD", "COMM"]).filter(|at| at + 1 == words.len())?;
        Some(Self { pid: at(&["PID"])?, tid: at(&["LWP", "TID", "SPID"])?, cpu: at(&["PSR", "P"]), comm })
    }

    fn row(&self, line: &str, found: &mut ProcessText) {
        let mut rest = line.trim_start();
        let mut words = Vec::with_capacity(self.comm);
        while words.len() < self.comm {
            let Some((word, after)) = rest.split_once(char::is_whitespace) else { return };
            words.push(word);
            rest = after.trim_start();
        }
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<i32>().ok());
        let (Some(pid), Some(tid)) = (number(self.pid), number(self.tid)) else { return };
        let last = self.cpu.and_then(|at| words.get(at)?.parse().ok());
        if let Some(thread) = found.thread(tid).filter(|_| !rest.is_empty()) {
            // `ps -elfL` has the command line instead of the name.
            let first = rest.split_whitespace().next().unwrap_or_default();
            let comm = if first.contains('/') && !rest.starts_with("CPU ") {
                first.rsplit('/').next().unwrap_or(first)
            } else {
                rest
            };
            (thread.pid, thread.comm, thread.last) = (Some(pid), Some(name(comm)), last);
        }
    }
}
