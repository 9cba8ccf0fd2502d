//! What a guest's jobs (migrations, block jobs, dumps) come to, and what the guest pays meanwhile.

use super::{DomainModel, share};
use sample::{Job, JobKind};

/// The downtime that QEMU allows where nobody set it (`DEFAULT_MIGRATE_SET_DOWNTIME`, QEMU's
/// `migration/options.c`).
pub const DEFAULT_DOWNTIME_NS: u64 = 300_000_000;

/// The least part of what a migration moves, percent, that a guest writes without end: a page that
/// it writes again and again in a pass counts once, so that the part is hardly above 100.
pub const ENDLESS_PERCENT: f64 = 90.0;

/// Seconds since its start; where that is not reported, since it was first seen.
pub fn elapsed_s(job: &Job) -> f64 {
    job.elapsed_ns.unwrap_or(job.watched_ns) as f64 / 1e9
}

/// How far a job is, percent of its bytes.
pub fn progress(job: &Job) -> Option<f64> {
    let all = job.total.filter(|all| *all > 0)? as f64;
    Some((100.0 * (1.0 - job.remaining? as f64 / all)).clamp(0.0, 100.0))
}

/// What the guest writes, percent of what the job moves in the same time.
pub fn dirtied_percent(job: &Job) -> Option<f64> {
    share(job.dirtied, job.rate)
}

/// Whether a migration ends at this rate: QEMU stops the guest for the last pass when the rest fits
/// into the downtime limit at the current rate (`migration_iteration_run` in its
/// `migration/migration.c`), and before that each pass leaves what the guest wrote during it.
/// `limit`: see [`ENDLESS_PERCENT`].
///
/// `None`: another job, or not known, as in the first pass.
pub fn converges(job: &Job, limit: f64) -> Option<bool> {
    match (job.kind, job.status.as_str()) {
        (JobKind::Migration | JobKind::Save, "active") => {}
        // The guest runs on the other host and fetches what it needs.
        (JobKind::Migration, "postcopy-active" | "device" | "pre-switchover") => return Some(true),
        _ => return None,
    }
    Some(dirtied_percent(job)? < limit || last_pass_bytes(job)? <= allowed_bytes(job)?)
}

/// What is left for the last pass, bytes: at the end of a pass the rest is small for a moment, so
/// that what the VMM expected after the last one counts as well.
pub fn last_pass_bytes(job: &Job) -> Option<u64> {
    let expected = job
        .downtime_ns
        .map(|ns| (job.rate.unwrap_or(0) as f64 * ns as f64 / 1e9) as u64);
    Some(job.remaining?.max(expected.unwrap_or(0)))
}

/// What the job moves within its downtime limit, bytes.
pub fn allowed_bytes(job: &Job) -> Option<u64> {
    let limit = job.downtime_limit_ns.unwrap_or(DEFAULT_DOWNTIME_NS);
    Some((job.rate? as f64 * limit as f64 / 1e9) as u64)
}

/// Mean time of the guest's writes now, microseconds.
pub fn write_mean_us(guest: &DomainModel) -> Option<f64> {
    let mut time_us = 0.0;
    let mut ops = 0.0;
    for disk in &guest.disks {
        if let Some(mean_us) = disk.write_mean_us {
            time_us += mean_us * disk.write_ops;
            ops += disk.write_ops;
        }
    }
    (ops > 0.0).then_some(time_us / ops)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A migration in its second pass, bytes.
    fn migration(rate: u64, dirtied: u64, remaining: u64) -> Job {
        Job {
            kind: JobKind::Migration,
            status: "active".into(),
            rate: Some(rate),
            dirtied: Some(dirtied),
            remaining: Some(remaining),
            total: Some(1000),
            ..Job::default()
        }
    }

    #[test]
    fn what_is_written_faster_than_it_is_moved_never_ends() {
        let judge =
            |rate, dirtied, remaining| converges(&migration(rate, dirtied, remaining), 90.0);
        assert_eq!(judge(100, 100, 500), Some(false));
        assert_eq!(judge(100, 90, 500), Some(false));
        assert_eq!(judge(100, 89, 500), Some(true));
        assert_eq!(judge(100, 900, 30), Some(true), "it fits into 300 ms");
        assert_eq!(judge(100, 900, 31), Some(false));
        assert_eq!(judge(0, 900, 500), None);
        let end_of_pass = Job {
            downtime_ns: Some(1_500_000_000),
            ..migration(100, 95, 4)
        };
        assert_eq!(
            converges(&end_of_pass, 90.0),
            Some(false),
            "150 bytes were left after the last pass"
        );
        let longer = Job {
            downtime_limit_ns: Some(5_000_000_000),
            ..migration(100, 900, 500)
        };
        assert_eq!(converges(&longer, 90.0), Some(true));
    }

    #[test]
    fn it_is_unknown_without_its_figures_and_for_other_jobs() {
        let first_pass = Job {
            dirtied: None,
            ..migration(100, 0, 500)
        };
        assert_eq!(converges(&first_pass, 90.0), None);
        assert_eq!(
            converges(
                &Job {
                    kind: JobKind::Mirror,
                    ..migration(1, 9, 9)
                },
                90.0
            ),
            None
        );
        assert_eq!(
            converges(
                &Job {
                    status: "setup".into(),
                    ..migration(1, 9, 9)
                },
                90.0
            ),
            None
        );
        assert_eq!(
            converges(
                &Job {
                    status: "postcopy-active".into(),
                    ..Job::default()
                },
                90.0
            ),
            None
        );
        let post = Job {
            status: "postcopy-active".into(),
            ..migration(100, 900, 500)
        };
        assert_eq!(converges(&post, 90.0), Some(true));
    }

    #[test]
    fn progress_is_what_is_not_left() {
        assert_eq!(progress(&migration(1, 1, 250)), Some(75.0));
        assert_eq!(
            progress(&Job {
                remaining: Some(5000),
                ..migration(1, 1, 1)
            }),
            Some(0.0)
        );
        assert_eq!(
            progress(&Job {
                total: Some(0),
                ..migration(1, 1, 1)
            }),
            None
        );
    }
}
