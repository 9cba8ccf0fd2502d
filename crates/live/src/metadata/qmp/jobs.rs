//! A monitor's answers about jobs (qapi/migration.json, `query-migrate`; qapi/job.json,
//! `query-jobs`).

use super::conversation::QmpConversation;
use kvm::sanitize;
use sample::{Job, JobKind};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct QmpMigration {
    status: Option<String>,
    total_time: Option<u64>,
    expected_downtime: Option<u64>,
    cpu_throttle_percentage: Option<u64>,
    error_desc: Option<String>,
    ram: Option<QmpMemory>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
struct QmpMemory {
    transferred: Option<u64>,
    remaining: Option<u64>,
    total: Option<u64>,
    dirty_pages_rate: Option<u64>,
    dirty_sync_count: Option<u64>,
    page_size: Option<u64>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
struct QmpMigrationLimits {
    /// Milliseconds.
    downtime_limit: Option<u64>,
    /// Bytes per second; 0: unlimited.
    max_bandwidth: Option<u64>,
}

#[derive(Deserialize)]
struct QmpCapability {
    capability: String,
    state: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct QmpJob {
    id: String,
    #[serde(rename = "type")]
    kind: String,
    status: String,
    current_progress: Option<u64>,
    total_progress: Option<u64>,
    error: Option<String>,
}

/// Asks for the guest's jobs. This QEMU refuses a command that it does not have, and then has no
/// job of that kind.
pub(super) fn ask(monitor: &mut QmpConversation) -> Vec<Job> {
    let mut jobs: Vec<Job> = query::<QmpMigration>(monitor, "migrate")
        .and_then(migration)
        .into_iter()
        .collect();
    // QEMU goes on naming a migration that failed; nobody needs its limits.
    if let Some(migration) = jobs.first_mut().filter(|job| !job.has_failed()) {
        add_limits(migration, monitor);
    }
    let of_blocks: Vec<QmpJob> = query(monitor, "jobs").unwrap_or_default();
    jobs.extend(of_blocks.iter().filter_map(block_job));
    jobs
}

fn query<T: DeserializeOwned>(monitor: &mut QmpConversation, what: &str) -> Option<T> {
    monitor
        .ask(&json!({"execute": format!("query-{what}")}))
        .ok()
}

/// A migration that is under way or has failed.
fn migration(said: QmpMigration) -> Option<Job> {
    let status = said.status?;
    if matches!(status.as_str(), "none" | "completed" | "cancelled") {
        return None;
    }
    let ram = said.ram.unwrap_or_default();
    // The first pass sends all of the memory. How much the guest writes is known after that pass.
    let dirtied = if ram.dirty_sync_count > Some(1) {
        ram.dirty_pages_rate
    } else {
        None
    };
    Some(Job {
        kind: JobKind::Migration,
        status: sanitize(&status, 32),
        error: said.error_desc.map(|why| sanitize(&why, 200)),
        elapsed_ns: said.total_time.and_then(nanoseconds),
        done: ram.transferred,
        total: ram.total,
        remaining: ram.remaining,
        rounds: ram.dirty_sync_count,
        dirtied: dirtied.and_then(|pages| pages.checked_mul(ram.page_size.unwrap_or(4096))),
        downtime_ns: said.expected_downtime.and_then(nanoseconds),
        throttle_percent: said.cpu_throttle_percentage,
        ..Job::default()
    })
}

fn add_limits(job: &mut Job, monitor: &mut QmpConversation) {
    let limits: QmpMigrationLimits = query(monitor, "migrate-parameters").unwrap_or_default();
    let capabilities: Vec<QmpCapability> =
        query(monitor, "migrate-capabilities").unwrap_or_default();
    job.downtime_limit_ns = limits.downtime_limit.and_then(nanoseconds);
    job.limit = limits.max_bandwidth.filter(|limit| *limit > 0);
    job.auto_converge = capability(&capabilities, "auto-converge");
    job.postcopy = capability(&capabilities, "postcopy-ram");
}

fn capability(all: &[QmpCapability], name: &str) -> Option<bool> {
    let found = all.iter().find(|c| c.capability == name)?;
    Some(found.state)
}

fn nanoseconds(ms: u64) -> Option<u64> {
    ms.checked_mul(1_000_000)
}

/// A job that is not over, or has failed.
fn block_job(job: &QmpJob) -> Option<Job> {
    if matches!(job.status.as_str(), "concluded" | "null" | "aborting") && job.error.is_none() {
        return None;
    }
    Some(Job {
        kind: match job.kind.as_str() {
            "backup" => JobKind::Backup,
            "mirror" => JobKind::Mirror,
            "commit" => JobKind::Commit,
            "stream" => JobKind::Stream,
            "snapshot-save" => JobKind::Save,
            _ => JobKind::Other,
        },
        name: sanitize(&job.id, 64),
        status: if job.error.is_some() {
            "failed".into()
        } else {
            sanitize(&job.status, 32)
        },
        error: job.error.as_deref().map(|why| sanitize(why, 200)),
        done: job.current_progress,
        total: job.total_progress,
        remaining: job
            .total_progress
            .zip(job.current_progress)
            .map(|(all, done)| all.saturating_sub(done)),
        ..Job::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As QEMU 7.2 says it, shortened.
    const ACTIVE: &str = r#"{"status": "active", "total-time": 5040, "expected-downtime": 2700, "setup-time": 3,
        "cpu-throttle-percentage": 20, "ram": {"total": 71303168, "postcopy-requests": 0, "dirty-sync-count": 4,
        "page-size": 4096, "remaining": 11501568, "mbps": 33.5, "transferred": 20993031, "dirty-pages-rate": 1010}}"#;

    fn of(text: &str) -> Option<Job> {
        migration(serde_json::from_str(text).unwrap())
    }

    #[test]
    fn a_migration_that_runs() {
        let job = of(ACTIVE).unwrap();
        assert_eq!(
            (job.kind, job.status.as_str(), job.rounds),
            (JobKind::Migration, "active", Some(4))
        );
        assert_eq!(
            (job.dirtied, job.remaining),
            (Some(1010 * 4096), Some(11_501_568))
        );
        assert_eq!(
            (job.elapsed_ns, job.downtime_ns),
            (Some(5_040_000_000), Some(2_700_000_000))
        );
        let first =
            of(&ACTIVE.replace("\"dirty-sync-count\": 4", "\"dirty-sync-count\": 1")).unwrap();
        assert_eq!(
            (first.rounds, first.dirtied),
            (Some(1), None),
            "nothing is known of what the guest writes"
        );
    }

    #[test]
    fn no_migration_runs() {
        assert_eq!(of("{}"), None);
        assert_eq!(of(r#"{"status": "completed", "total-time": 7}"#), None);
        let failed = of(r#"{"status": "failed", "error-desc": "no route\u001b[2J"}"#).unwrap();
        assert_eq!(
            (failed.has_failed(), failed.error.as_deref()),
            (true, Some("no route"))
        );
    }

    #[test]
    fn block_jobs_and_their_errors() {
        let job = |text: &str| block_job(&serde_json::from_str(text).unwrap());
        let running = r#"{"id": "d0", "type": "backup", "status": "running", "current-progress": 10,
            "total-progress": 100}"#;
        let backup = job(running).unwrap();
        assert_eq!((backup.kind, backup.remaining), (JobKind::Backup, Some(90)));
        let over = r#"{"id": "d0", "type": "stream", "status": "concluded"}"#;
        assert_eq!(job(over), None);
        assert!(
            job(&over.replace('}', r#", "error": "EIO"}"#))
                .unwrap()
                .has_failed()
        );
    }
}
