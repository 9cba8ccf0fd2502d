//! Parsers of the texts of /proc/PID/task/TID: `stat`, `schedstat`, `sched`. Pure.
//!
//! kvmtop reads these files of each thread in each tick, so it keeps them open and reads into one
//! buffer. The crate procfs opens a file anew, takes twice the time, and does not know `sched`.

use std::str::FromStr;

/// Nanoseconds of a clock tick as /proc counts them: `USER_HZ` is 100 on every architecture that
/// runs KVM (include/asm-generic/param.h).
pub(crate) const TICK_NS: u64 = 10_000_000;

/// `PF_KTHREAD` of include/linux/sched.h: a kernel thread.
const PF_KTHREAD: u64 = 0x0020_0000;

/// The fields of a `stat` line that kvmtop needs (fs/proc/array.c, `do_task_stat`;
/// `proc_pid_stat(5)` numbers them).
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Stat<'a> {
    /// Field 2, without its parentheses; may hold any byte, parentheses, spaces and line breaks
    /// too.
    pub comm: &'a [u8],
    /// Field 3: `R`, `S`, `D`, `Z`, …
    pub state: u8,
    /// Whether field 9 says that this is a kernel thread.
    pub kernel: bool,
    /// Field 14, ticks, guest time included.
    pub user_ticks: u64,
    /// Field 15, ticks.
    pub system_ticks: u64,
    /// Field 20.
    pub threads: u64,
    /// Field 22, ticks after boot.
    pub start_ticks: u64,
    /// Field 39: the CPU it ran on last.
    pub cpu: Option<u32>,
    /// Field 41.
    pub policy: Option<u32>,
    /// Field 43, ticks; 0 on kernels before 2.6.24.
    pub guest_ticks: u64,
}

impl<'a> Stat<'a> {
    /// Reads a line. The name ends at the last `)`: no field after it can hold one.
    pub fn parse(line: &'a [u8]) -> Option<Self> {
        let open = line.iter().position(|b| *b == b'(')?;
        let close = line.iter().rposition(|b| *b == b')')?;
        let comm = line.get(open + 1..close)?;
        let rest = line.get(close + 1..)?;
        let mut words = rest
            .split(u8::is_ascii_whitespace)
            .filter(|w| !w.is_empty());
        // The fields behind the name begin with field 3.
        let state = *words.next()?.first()?;
        let mut fields = [0_u64; 44];
        let mut field_count = 4;
        for (field, word) in fields.iter_mut().skip(4).zip(words) {
            // Negative fields (tpgid, nice, priority) are not used.
            *field = number(word).unwrap_or(0);
            field_count += 1;
        }
        // All fields up to the start time exist since Linux 2.6.
        if field_count <= 22 {
            return None;
        }
        let present = fields.get(..field_count)?;
        Some(Self {
            comm,
            state,
            kernel: fields[9] & PF_KTHREAD != 0,
            user_ticks: fields[14],
            system_ticks: fields[15],
            threads: fields[20],
            start_ticks: fields[22],
            cpu: small_field(present, 39),
            policy: small_field(present, 41),
            guest_ticks: fields[43],
        })
    }

    /// Whether the task has ended and waits to be reaped.
    pub fn is_dead(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x')
    }
}

/// A field as 32 bits; `None` where the kernel lacks it, or where it is too large.
fn small_field(fields: &[u64], field: usize) -> Option<u32> {
    u32::try_from(*fields.get(field)?).ok()
}

/// A `schedstat` line: nanoseconds on a CPU, nanoseconds runnable but waiting, and how often the
/// thread got a CPU (fs/proc/base.c, `proc_pid_schedstat`). A kernel without `CONFIG_SCHED_INFO`
/// prints zeroes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SchedStat {
    /// Exact time on a CPU.
    pub run_ns: u64,
    /// Time in a run queue.
    pub wait_ns: u64,
    /// How often the thread got a CPU.
    pub arrivals: u64,
}

impl SchedStat {
    pub fn parse(line: &[u8]) -> Option<Self> {
        let mut words = line
            .split(u8::is_ascii_whitespace)
            .filter(|w| !w.is_empty())
            .map(number);
        Some(Self {
            run_ns: words.next()??,
            wait_ns: words.next()??,
            arrivals: words.next()??,
        })
    }
}

fn is_separator(c: char) -> bool {
    c == ':' || c.is_whitespace()
}

/// The value of a line `name: value` or `name value`, in files that the crate procfs does not read:
/// `sched`, `fdinfo` and `cpu.stat`.
pub(crate) fn value<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    text.lines().find_map(|line| {
        let rest = line
            .strip_prefix(name)
            .filter(|rest| rest.starts_with(is_separator))?;
        Some(rest.trim_start_matches(is_separator).trim_end())
    })
}

/// The value of a line as [`value`] finds it, where it is a number.
pub(crate) fn count(text: &str, name: &str) -> Option<u64> {
    value(text, name)?.parse().ok()
}

/// Decimal digits only.
pub(crate) fn number<T: FromStr>(word: &[u8]) -> Option<T> {
    // The parser of numbers would also take a plus sign.
    word.first().filter(|first| first.is_ascii_digit())?;
    std::str::from_utf8(word).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A vCPU thread of QEMU 7.2 on Linux 6.18, its name replaced.
    fn line(comm: &str) -> String {
        format!(
            "1311 ({comm}) R 1 1290 1290 0 -1 138412096 2031 0 3 0 512 377 0 0 20 0 5 0 225401 \
             1037410304 9071 18446744073709551615 1 1 0 0 0 0 268444224 4096 16963 0 0 0 -1 1 50 1 \
             0 377 0 0 0 0 0 0 0 0 0\n"
        )
    }

    #[test]
    fn a_vcpu_thread() {
        let text = line("CPU 0/KVM");
        let s = Stat::parse(text.as_bytes()).unwrap();
        assert_eq!(
            (s.comm, s.state, s.kernel),
            (&b"CPU 0/KVM"[..], b'R', false)
        );
        assert_eq!(
            (s.user_ticks, s.system_ticks, s.guest_ticks),
            (512, 377, 377)
        );
        assert_eq!((s.threads, s.start_ticks), (5, 225_401));
        assert_eq!((s.cpu, s.policy), (Some(1), Some(1)));
    }

    #[test]
    fn any_name_is_a_name() {
        for comm in [
            "a) S 1 1 (b",
            "))) ((",
            "two\nlines",
            "x\u{1b}[31m",
            "",
            "(sd-pam)",
            "a b c d e f g h",
        ] {
            let text = line(comm);
            let s = Stat::parse(text.as_bytes()).unwrap();
            assert_eq!(s.comm, comm.as_bytes());
            assert_eq!((s.state, s.start_ticks), (b'R', 225_401));
        }
    }

    #[test]
    fn kernel_threads_and_the_dead_are_recognised() {
        let kernel = "2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 1 0 0 20 0 1 0 5 0 0";
        let s = Stat::parse(kernel.as_bytes()).unwrap();
        assert!(s.kernel && !s.is_dead());
        assert_eq!((s.cpu, s.policy), (None, None));
        let zombie = "9 (qemu) Z 1 9 9 0 -1 4227084 0 0 0 0 0 1 0 0 20 0 1 0 5 0 0";
        assert!(Stat::parse(zombie.as_bytes()).unwrap().is_dead());
    }

    #[test]
    fn a_cut_line_is_none() {
        assert_eq!(Stat::parse(b"9 (qemu) S 1 9 9 0 -1 42"), None);
        assert_eq!(Stat::parse(b""), None);
        assert_eq!(Stat::parse(b") ("), None);
        assert_eq!(SchedStat::parse(b"12 13"), None);
    }

    #[test]
    fn schedstat_and_sched() {
        assert_eq!(
            SchedStat::parse(b"147659 12 7\n"),
            Some(SchedStat {
                run_ns: 147_659,
                wait_ns: 12,
                arrivals: 7
            })
        );
        let sched = "CPU 0/KVM (12, #threads: 3)\n----\nse.exec_start   :   \
            1308432.965961\nse.nr_migrations                             :                   \
            14\nnr_switches                                  :                   \
            30\nnr_voluntary_switches                        :                   \
            20\nnr_involuntary_switches                      :                   10\n";
        assert_eq!(value(sched, "se.nr_migrations"), Some("14"));
        assert_eq!(value(sched, "nr_voluntary_switches"), Some("20"));
        assert_eq!(
            value("Name:\tx\nVmSwap:\t  12 kB\n", "VmSwap"),
            Some("12 kB")
        );
    }

    proptest! {
        #[test]
        fn never_panics(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let _ = (Stat::parse(&bytes), SchedStat::parse(&bytes));
        }
    }
}
