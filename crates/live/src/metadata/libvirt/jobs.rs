//! Jobs as libvirt reports them. Of a migration the downtime limit, the bandwidth and the
//! capabilities are unknown, as libvirt reports them only on a writable connection. libvirt reports
//! no stream, and no commit that does not reach the top of the chain of images.

use super::domain_stats::{Stats, number};
use sample::{Job, JobKind};
use virt::sys::virDomainBlockJobInfo;

/// The job of a whole domain, from the parameters of `virDomainGetJobStats`. `status`: the step of
/// a migration.
pub(super) fn of_domain(stats: &Stats, status: &str) -> Job {
    let kind = match number(stats, "operation") {
        Some(2 | 6) => JobKind::Save,
        Some(4 | 5) => JobKind::Migration,
        Some(8) => JobKind::Dump,
        Some(9) => JobKind::Backup,
        _ => JobKind::Other,
    };
    // A migration may copy disks as well; whether it converges depends on the memory.
    let prefix = if number(stats, "memory_total").is_some_and(|all| all > 0) {
        "memory"
    } else {
        "disk"
    };
    let rounds = number(stats, "memory_iteration").filter(|rounds| *rounds > 0);
    let dirtied = if rounds > Some(1) {
        number(stats, "memory_dirty_rate")
    } else {
        None
    };
    Job {
        kind,
        status: if kind == JobKind::Migration {
            status
        } else {
            "active"
        }
        .into(),
        elapsed_ns: nanoseconds(stats, "time_elapsed"),
        done: number(stats, &format!("{prefix}_processed")),
        total: number(stats, &format!("{prefix}_total")),
        remaining: number(stats, &format!("{prefix}_remaining")),
        rate: number(stats, &format!("{prefix}_bps")),
        rounds,
        dirtied: dirtied
            .and_then(|pages| pages.checked_mul(number(stats, "memory_page_size").unwrap_or(4096))),
        downtime_ns: nanoseconds(stats, "downtime"),
        throttle_percent: number(stats, "auto_converge_throttle"),
        ..Job::default()
    }
}

/// A number of milliseconds as nanoseconds.
fn nanoseconds(stats: &Stats, name: &str) -> Option<u64> {
    number(stats, name)?.checked_mul(1_000_000)
}

/// The job of a disk, from `virDomainGetBlockJobInfo`.
pub(super) fn of_disk(name: &str, info: &virDomainBlockJobInfo) -> Job {
    let is_ready = info.end > 0 && info.cur == info.end;
    Job {
        kind: match info.type_ {
            1 => JobKind::Stream,
            2 => JobKind::Mirror,
            3 | 4 => JobKind::Commit,
            5 => JobKind::Backup,
            _ => JobKind::Other,
        },
        name: name.to_owned(),
        status: if is_ready { "ready" } else { "running" }.into(),
        done: Some(info.cur),
        total: Some(info.end),
        remaining: Some(info.end.saturating_sub(info.cur)),
        limit: Some(info.bandwidth).filter(|limit| *limit > 0),
        ..Job::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_migration_as_domjobinfo_has_it() {
        let text = "operation 5\ntime_elapsed 5040\nmemory_total 71303168\nmemory_processed \
            20993031\nmemory_remaining 11501568\nmemory_bps 4187500\nmemory_iteration \
            4\nmemory_dirty_rate 1010\nmemory_page_size 4096\ndowntime \
            2700\nauto_converge_throttle 20\ndisk_total 0";
        let pairs = text.lines().filter_map(|line| line.split_once(' '));
        let mut stats: Stats = pairs
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        let job = of_domain(&stats, "active");
        assert_eq!(
            (job.kind, job.rate, job.dirtied),
            (JobKind::Migration, Some(4_187_500), Some(1010 * 4096))
        );
        assert_eq!(
            (job.throttle_percent, job.downtime_ns),
            (Some(20), Some(2_700_000_000))
        );
        stats.insert("memory_iteration".into(), "1".into());
        assert_eq!(of_domain(&stats, "active").dirtied, None);
        let backup = [
            "operation 9",
            "disk_total 100",
            "disk_processed 40",
            "disk_remaining 60",
        ];
        let stats = backup
            .iter()
            .filter_map(|line| line.split_once(' '))
            .map(|(n, v)| (n.into(), v.into()))
            .collect();
        let job = of_domain(&stats, "active");
        assert_eq!(
            (job.kind, job.done, job.remaining),
            (JobKind::Backup, Some(40), Some(60))
        );
    }
}
