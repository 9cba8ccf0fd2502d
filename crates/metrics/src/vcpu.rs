//! Counters of vCPUs and of a guest's other threads.

use super::ranked::{Ranked, add_known};
use judge::model::ThreadModel;
use sample::{Histogram, Joining, MissingExtreme, Sum as _, ThreadTimes, Timing};

/// CPU time of one or more threads, nanoseconds.
#[derive(Debug, Clone, Default)]
pub struct CpuMetrics {
    /// How much the threads' times grew.
    pub times: ThreadTimes,
    /// User time outside the guest. The kernel rounds user and guest time each for itself, so their
    /// difference can fall by a tick; this does not.
    pub own_user_ns: u64,
}

impl CpuMetrics {
    /// Adds how a thread's times grew from one reading to the next.
    pub fn add(&mut self, now: &ThreadTimes, before: &ThreadTimes) {
        self.times.join(
            now.since(before),
            &mut Joining::with(MissingExtreme::Unknown),
        );
        self.own_user_ns = self
            .own_user_ns
            .max(self.times.user_ns.saturating_sub(self.times.guest_ns));
    }
}

/// Counters of a vCPU, or of all vCPUs of a guest.
#[derive(Debug, Clone, Default)]
pub struct VcpuMetrics {
    /// CPU time.
    pub cpu: CpuMetrics,
    /// Exits by reason.
    pub exits: Ranked<[String; 1]>,
    /// Moves from one pCPU to another; `None` if no source counts them.
    pub moves: Option<u64>,
    /// Moves to another NUMA node; otherwise as `moves`.
    pub node_moves: Option<u64>,
    /// From woken to running; `None` if not measured.
    pub wakeups: Option<Timing>,
}

impl VcpuMetrics {
    /// Adds what a thread's interval says, except its CPU time and its exits.
    pub fn add(&mut self, thread: &ThreadModel) {
        add_known(&mut self.moves, thread.migrations.total);
        add_known(
            &mut self.node_moves,
            thread
                .migrations
                .total
                .map(|_| thread.migrations.cross_node),
        );
        if let Some(wakeups) = &thread.wakeups {
            let sum = self.wakeups.get_or_insert_default();
            if wakeups.total_ns.is_some() && wakeups.histogram.is_some() {
                sum.merge(wakeups, MissingExtreme::Unknown);
            }
        }
    }
}

/// The upper limits of durations in seconds, each with the number of durations between it and the
/// limit before; the last one is without a limit. The limits are every second one of
/// [`Histogram`]'s buckets from 1 µs to 1 s.
pub fn buckets(durations: &Timing) -> Vec<(f64, u64)> {
    let limits = (0..11).map(|i| (1024_u64 << (2 * i)) as f64 / 1e9);
    let mut buckets: Vec<(f64, u64)> = limits.map(|limit| (limit, 0)).collect();
    let mut beyond = durations.count;
    let counts = durations
        .histogram
        .iter()
        .flat_map(|histogram| &histogram.0);
    for (bucket, count) in counts.enumerate() {
        let upper = Histogram::upper(bucket) as f64 / 1e9;
        if let Some((_, sum)) = buckets.iter_mut().find(|(limit, _)| upper <= *limit) {
            *sum = sum.saturating_add(*count);
            beyond = beyond.saturating_sub(*count);
        }
    }
    buckets.push((f64::INFINITY, beyond));
    buckets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_time_outside_the_guest_never_falls() {
        let times = |user_ms: u64, guest_ms: u64| ThreadTimes {
            user_ns: user_ms * 1_000_000,
            guest_ns: guest_ms * 1_000_000,
            ..ThreadTimes::default()
        };
        let (mut cpu, mut before, mut last) = (CpuMetrics::default(), times(0, 0), 0);
        // Guest time grows a tick before user time does.
        for now in [
            times(20, 10),
            times(20, 20),
            times(30, 20),
            times(50, 30),
            times(50, 40),
        ] {
            cpu.add(&now, &before);
            assert!(cpu.own_user_ns >= last);
            (before, last) = (now, cpu.own_user_ns);
        }
        assert_eq!(
            (cpu.own_user_ns, cpu.times.guest_ns),
            (20_000_000, 40_000_000)
        );
        assert_eq!(cpu.times.wait_ns, None);
    }

    #[test]
    fn buckets_hold_what_the_samples_do() {
        let mut timing = Timing::default();
        for ns in [100, 1_000, 1_100, 5_000, 70_000, 900_000_000, 5_000_000_000] {
            timing.add(ns);
        }
        let buckets = buckets(&timing);
        assert_eq!(
            buckets.iter().map(|b| b.1).collect::<Vec<_>>(),
            [2, 1, 1, 0, 1, 0, 0, 0, 0, 0, 1, 1]
        );
        assert_eq!((buckets[0].0, buckets[10].0), (1.024e-6, 1.073_741_824));
        assert_eq!(timing.count, 7);
    }
}
