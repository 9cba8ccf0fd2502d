//! Reads the threads of watched processes in one pass (`assets/bpf/tasks.bpf.c`): a record of each, without a file for
//! each and without text. Wherever this cannot be had, /proc says the same.

use super::object::{self, Choices, Object};
use super::refusal::{Refusal, Stage};
use super::watched::WatchedIds;
use super::{kernel_btf, sys};
use crate::kvm::kernel_types::{self, KernelField};
use crate::kvm::topology::HostTopology;
use crate::source::events::KernelTask;
use std::collections::HashMap;
use std::io::{ErrorKind, Read};
use std::os::fd::{AsFd, OwnedFd};

/// `MASK_WORDS` in `tasks.bpf.c`.
const MASK_WORDS: u32 = 16;
/// Bytes of `struct record` there.
const RECORD: usize = 144;
/// The kernel gives out at most 32 KiB at a time (`bpf_seq_read` in `kernel/bpf/bpf_iter.c`).
const BUFFER: usize = 32 << 10;
/// Records that are kept of one pass: a kernel has at most 4 million threads.
const MOST_RECORDS: usize = 1 << 22;

/// The constants that hold places, and the field that each leads to, by way of the struct that it is in.
const FIELDS: [(&str, &[KernelField]); 20] = [
    ("at_pid", &[("task_struct", "pid")]),
    ("at_tgid", &[("task_struct", "tgid")]),
    ("at_comm", &[("task_struct", "comm")]),
    ("at_state", &[("task_struct", "__state")]),
    ("at_exit_state", &[("task_struct", "exit_state")]),
    ("at_cpu", &[("task_struct", "thread_info"), ("thread_info", "cpu")]),
    ("at_policy", &[("task_struct", "policy")]),
    ("at_rt_priority", &[("task_struct", "rt_priority")]),
    ("at_start", &[("task_struct", "start_boottime")]),
    ("at_utime", &[("task_struct", "utime")]),
    ("at_stime", &[("task_struct", "stime")]),
    ("at_gtime", &[("task_struct", "gtime")]),
    ("at_shown_utime", &[("task_struct", "prev_cputime"), ("prev_cputime", "utime")]),
    ("at_shown_stime", &[("task_struct", "prev_cputime"), ("prev_cputime", "stime")]),
    ("at_run", &[("task_struct", "se"), ("sched_entity", "sum_exec_runtime")]),
    ("at_wait", &[("task_struct", "sched_info"), ("sched_info", "run_delay")]),
    ("at_migrations", &[("task_struct", "se"), ("sched_entity", "nr_migrations")]),
    ("at_voluntary", &[("task_struct", "nvcsw")]),
    ("at_involuntary", &[("task_struct", "nivcsw")]),
    ("at_affinity", &[("task_struct", "cpus_mask")]),
];

/// The loaded iterator.
#[derive(Debug)]
pub(super) struct TaskReader {
    iterator: OwnedFd,
    watched: WatchedIds<1>,
}

impl TaskReader {
    /// `None` where the kernel has no such iterator (5.8) or other fields (5.16), or where figures of it would not be
    /// those of /proc: with `nohz_full` the kernel adds what a CPU has not yet accounted for, and on other
    /// architectures than x86 it scales times by an approximation (lib/math/div64.c, up to 6.12).
    pub fn start(topology: &HostTopology) -> Option<Self> {
        if !cfg!(target_arch = "x86_64") || topology.nohz_full.as_ref().is_some_and(|cpus| !cpus.is_empty()) {
            return None;
        }
        let btf = kernel_btf::read("").ok()?;
        let mut constants = places(&btf)?;
        let cpus = topology.cpus.iter().map(|cpu| cpu.cpu + 1).max().unwrap_or(1);
        constants.insert("mask_words", cpus.div_ceil(64).min(MASK_WORDS));
        let function = kernel_types::function(&btf, "bpf_iter_task")?;
        Self::load(&Choices { constants, ..Choices::default() }, function).ok()
    }

    fn load(choices: &Choices<'_>, function: u32) -> Result<Self, Refusal> {
        let mut object = Object::prepare(object::tasks_object()?, &[], choices)?;
        let program = object.load_iterator("threads", function)?;
        let iterator = sys::iterator(program.as_fd()).map_err(|e| Refusal::new(Stage::Attach, "iter", e))?;
        Ok(Self { iterator, watched: WatchedIds::new(object.take_map("watched")?) })
    }

    /// The threads of these processes, in the order of their ids; a process without any is left out. Empty when the
    /// kernel did not give them all.
    pub fn read(&mut self, processes: &[i32]) -> HashMap<i32, Vec<KernelTask>> {
        self.watched.set(&processes.iter().map(|process| (*process, *process)).collect::<Vec<_>>());
        self.pass().unwrap_or_default()
    }

    fn pass(&self) -> std::io::Result<HashMap<i32, Vec<KernelTask>>> {
        let mut file = sys::iterate(self.iterator.as_fd())?;
        let mut threads: HashMap<i32, Vec<KernelTask>> = HashMap::new();
        let mut buffer = vec![0; BUFFER];
        for _ in 0..MOST_RECORDS {
            match file.read(&mut buffer) {
                Ok(0) => return Ok(threads),
                // Whole records: what no longer fits is kept for the next reading.
                Ok(n) => {
                    for record in buffer.get(..n).unwrap_or_default().chunks_exact(RECORD) {
                        let (process, task) = decode(record);
                        threads.entry(process).or_default().push(task);
                    }
                }
                // It passed a million threads without one to show.
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(e) => return Err(e),
            }
        }
        Err(ErrorKind::InvalidData.into())
    }
}

/// The constants of `tasks.bpf.c` for a kernel with these types; `None` where one is missing.
pub(super) fn places(btf: &[u8]) -> Option<HashMap<&'static str, u32>> {
    let wanted: Vec<KernelField> = FIELDS.iter().flat_map(|(_, path)| *path).copied().collect();
    let found = kernel_types::offsets(btf, &wanted)?;
    let at = |path: &[KernelField]| path.iter().map(|field| found.get(field).copied()).sum::<Option<u32>>();
    FIELDS.iter().map(|(constant, path)| Some((*constant, at(path)?))).collect()
}

/// The process and the thread of a record.
fn decode(record: &[u8]) -> (i32, KernelTask) {
    let half = |at: usize| {
        let bytes = record.get(4 * at..).and_then(|rest| rest.first_chunk());
        bytes.copied().map_or(0, u32::from_ne_bytes)
    };
    let word = |at: usize| {
        let bytes = record.get(8 * at..).and_then(|rest| rest.first_chunk());
        bytes.copied().map_or(0, u64::from_ne_bytes)
    };
    let task = KernelTask {
        tid: half(0).cast_signed(),
        state: half(2),
        exit_state: half(3),
        cpu: half(4),
        policy: half(5),
        rt_priority: half(6),
        start_ns: word(4),
        user_ns: word(5),
        system_ns: word(6),
        guest_ns: word(7),
        shown: (word(8), word(9)),
        run_ns: word(10),
        wait_ns: word(11),
        migrations: word(12),
        voluntary: word(13),
        involuntary: word(14),
        affinity: word(15),
        comm: record.last_chunk().copied().unwrap_or_default(),
    };
    (half(1).cast_signed(), task)
}
