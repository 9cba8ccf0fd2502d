//! What /proc would say of a thread that an engine read as the kernel keeps it. Pure.

use super::stat::{SchedStat, Stat, Switches, TICK_NS};
use crate::source::events::KernelTask;

/// User and system time, nanoseconds.
pub(crate) type ShownTimes = (u64, u64);

/// A thread as the texts of /proc have it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TaskTexts<'a> {
    /// As `stat`, apart from what is of the whole process.
    pub stat: Stat<'a>,
    /// As `schedstat`; the number of times it got a CPU is not read.
    pub sched: SchedStat,
    /// As `sched`.
    pub switches: Switches,
    /// What `shown_times` wants at the next reading.
    pub shown: ShownTimes,
}

impl<'a> TaskTexts<'a> {
    /// `before`: the times that this thread's reading before gave.
    pub(crate) fn new(task: &'a KernelTask, before: ShownTimes) -> Self {
        let shown = shown_times(task, before);
        let end = task.comm.iter().position(|b| *b == 0).unwrap_or(task.comm.len());
        Self {
            stat: Stat {
                comm: task.comm.get(..end).unwrap_or_default(),
                state: state_letter(task.state, task.exit_state),
                kernel: false,
                user_ticks: shown.0 / TICK_NS,
                system_ticks: shown.1 / TICK_NS,
                threads: 0,
                start_ticks: task.start_ns / TICK_NS,
                cpu: Some(task.cpu),
                rt_priority: Some(task.rt_priority),
                policy: Some(task.policy),
                guest_ticks: task.guest_ns / TICK_NS,
            },
            sched: SchedStat { run_ns: task.run_ns, wait_ns: task.wait_ns, arrivals: 0 },
            switches: Switches {
                voluntary: Some(task.voluntary),
                involuntary: Some(task.involuntary),
                migrations: Some(task.migrations),
            },
            shown,
        }
    }
}

/// The user and system times that `stat` shows (kernel/sched/cputime.c, `cputime_adjust`). The kernel counts them in
/// its ticks, which fall on one or the other; it shows the exact time on a CPU, divided in their ratio, so that neither
/// goes back. It therefore keeps what it showed last. A [`KernelTask`] gives the kernel nothing to keep, so that is
/// kept here, and the later of both counts.
fn shown_times(task: &KernelTask, before: ShownTimes) -> ShownTimes {
    let sum = |(user, system): ShownTimes| user.saturating_add(system);
    let last = if sum(task.shown) >= sum(before) { task.shown } else { before };
    let run = task.run_ns;
    if sum(last) >= run {
        return last;
    }
    let counted = u128::from(task.system_ns) + u128::from(task.user_ns);
    let system = if task.system_ns == 0 {
        0
    } else if task.user_ns == 0 {
        run
    } else {
        // No more than `run`.
        (u128::from(task.system_ns) * u128::from(run) / counted) as u64
    };
    let system = system.max(last.1);
    let user = run.saturating_sub(system);
    if user < last.0 { (last.0, run - last.0) } else { (user, system) }
}

/// The letter of `stat` (include/linux/sched.h, `__task_state_index`; fs/proc/array.c, `task_state_array`).
fn state_letter(state: u32, exit_state: u32) -> u8 {
    const REPORTED: u32 = 0x7f;
    const UNINTERRUPTIBLE: u32 = 2;
    const IDLE: u32 = UNINTERRUPTIBLE | 0x400;
    const WAITS_FOR_LOCK_OR_FROZEN: u32 = 0x1000 | 0x8000;
    let reported = if state & WAITS_FOR_LOCK_OR_FROZEN != 0 {
        UNINTERRUPTIBLE
    } else if state & IDLE == IDLE {
        REPORTED + 1
    } else {
        (state | exit_state) & REPORTED
    };
    let index = u32::BITS - reported.leading_zeros();
    b"RSDTtXZPI".get(index as usize).copied().unwrap_or(b'?')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(user_ns: u64, system_ns: u64, run_ns: u64, shown: ShownTimes) -> KernelTask {
        KernelTask { user_ns, system_ns, shown, run_ns, ..KernelTask::default() }
    }

    #[test]
    fn times_are_divided_as_the_kernel_does() {
        assert_eq!(shown_times(&task(4, 12, 1000, (0, 0)), (0, 0)), (250, 750));
        assert_eq!(shown_times(&task(0, 0, 1000, (0, 0)), (0, 0)), (1000, 0), "no tick yet: all is user time");
        assert_eq!(shown_times(&task(0, 4, 1000, (0, 0)), (0, 0)), (0, 1000));
        assert_eq!(shown_times(&task(4, 12, 1000, (300, 700)), (0, 0)), (300, 700), "nothing ran since");
        assert_eq!(shown_times(&task(4, 12, 1100, (300, 700)), (0, 0)), (300, 800), "user time does not go back");
        assert_eq!(shown_times(&task(12, 4, 1100, (300, 700)), (0, 0)), (400, 700), "nor system time");
        assert_eq!(shown_times(&task(12, 4, 1100, (0, 0)), (300, 700)), (400, 700), "of readings here either");
        let most = u64::MAX;
        assert_eq!(shown_times(&task(most, most, most, (0, 0)), (0, 0)), (most / 2 + 1, most / 2));
    }

    #[test]
    fn states_are_the_letters_of_stat() {
        let letters: Vec<u8> =
            [0, 1, 2, 4, 8, 0x40, 0x402, 0x1002, 0x8000].into_iter().map(|state| state_letter(state, 0)).collect();
        assert_eq!(letters, b"RSDTtPIDD");
        assert_eq!((state_letter(0x80, 0x10), state_letter(0x80, 0x20)), (b'X', b'Z'));
    }
}
