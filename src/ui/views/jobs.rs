//! What the VMM does with a guest for a while: migrations, block jobs, dumps.

use super::Section;
use super::memory::size;
use crate::ui::{
    AppState, Cell, Column, RowKey, RowStyle, StyleId, Table, TableId, clean, left, right,
};
use judge::figures::{duration, figure, micros, seconds, share};
use judge::lint::{RuleId, Severity};
use judge::model::{DomainModel, jobs};
use sample::{Job, JobKind};

/// A job, and what the guest pays for it.
pub struct JobRow<'a> {
    job: &'a Job,
    worst: Option<Severity>,
    write_us: Option<f64>,
}

type Col<'a> = Column<JobRow<'a>>;

/// The columns; one that shows a figure of JSON has its name.
pub fn columns<'a>() -> Vec<Col<'a>> {
    vec![
        Col::text("kind", "JOB", left(10).grow(24), |r| name(r.job))
            .help(
                "What the VMM does with the guest or a disk. Read every 2 s, through libvirt \
                    every 5 s.",
            )
            .drawn(|r| Cell::name(clean(name(r.job).trim_end()))),
        Col::text(
            "status",
            "STATE",
            left(8).grow(30).drop_order(1),
            |r| match &r.job.error {
                Some(why) => format!("{}: {why}", r.job.status),
                None => r.job.status.clone(),
            },
        )
        .help("QEMU's word for its state, and its error."),
        Col::figure(
            "elapsed_s",
            "FOR",
            right(8).grow(2).drop_order(2),
            |r| Some(jobs::elapsed_s(r.job)),
            seconds,
        )
        .help("Since its start; where that is not reported, since it was first seen."),
        Col::figure(
            "progress_percent",
            "DONE%",
            right(5),
            |r| jobs::progress(r.job),
            share,
        )
        .help("Done."),
        Col::figure(
            "bytes_rate",
            "B/s",
            right(8).grow(2),
            |r| float(r.job.rate),
            size,
        )
        .help("Bytes moved per second."),
        Col::figure(
            "dirtied_rate",
            "DIRTIED/s",
            right(9).grow(2),
            |r| float(r.job.dirtied),
            size,
        )
        .help("What the guest writes to its memory per second, each page once a pass."),
        Col::text("converges", "ENDS", left(4), |r| ends(r.job).into())
            .help(
                "Whether a migration ends at this rate: each pass leaves less than the one \
                    before, or the rest fits into the downtime limit.",
            )
            .drawn(|r| {
                Cell::text(ends(r.job)).styled(if ends(r.job) == "no" {
                    StyleId::Warning
                } else {
                    StyleId::Text
                })
            }),
        Col::figure(
            "remaining_bytes",
            "LEFT",
            right(8).grow(2).drop_order(1),
            |r| float(r.job.remaining),
            size,
        )
        .help("Bytes left. Of a migration they grow again after each pass over the memory."),
        Col::figure(
            "rounds",
            "PASS",
            right(4).grow(1).drop_order(3),
            |r| float(r.job.rounds),
            figure,
        )
        .help("Passes over the guest's memory, with the first."),
        Col::figure(
            "throttle_percent",
            "HELD%",
            right(5).drop_order(4),
            |r| float(r.job.throttle_percent),
            share,
        )
        .help("The part of the time in which auto-converge holds the vCPUs back, percent."),
        Col::figure(
            "expected_downtime_ms",
            "STOP",
            right(7).grow(1).drop_order(5),
            |r| ms(r.job.downtime_ns),
            pause,
        )
        .help("How long it would stand still if the migration ended now."),
        Col::figure(
            "downtime_limit_ms",
            "LIMIT",
            right(7).grow(1).drop_order(5),
            |r| ms(r.job.downtime_limit_ns),
            pause,
        )
        .help("How long the guest may stand still at the end of a migration."),
        Col::figure(
            "write_mean_us",
            "WRITE us",
            right(8).grow(1).drop_order(7),
            |r| r.write_us,
            micros,
        )
        .help("Mean time of the guest's writes to its disks now, microseconds."),
    ]
}

fn name(job: &Job) -> String {
    format!("{} {}", job.kind.as_str(), job.name)
}

fn float(value: Option<u64>) -> Option<f64> {
    value.map(|value| value as f64)
}

fn ms(ns: Option<u64>) -> Option<f64> {
    ns.map(|ns| ns as f64 / 1e6)
}

fn pause(ms: f64) -> String {
    duration(ms * 1e3)
}

fn ends(job: &Job) -> &'static str {
    match jobs::converges(job, jobs::ENDLESS_PERCENT) {
        Some(true) => "yes",
        Some(false) => "no",
        None => "",
    }
}

/// The section.
pub fn section<'a>(state: &'a AppState, guest: &'a DomainModel) -> Section<'a> {
    let write_us = jobs::write_mean_us(guest);
    let mut rows = Vec::new();
    for job in &guest.jobs {
        let moves = matches!(job.kind, JobKind::Migration | JobKind::Save);
        let findings = state.findings_about(Some(guest.name())).filter(|f| {
            f.covers(RuleId::JobStalled) || moves && f.covers(RuleId::JobNotConverging)
        });
        rows.push(JobRow {
            job,
            worst: findings.map(|f| f.severity).max(),
            write_us,
        });
    }
    let table = Table {
        id: TableId::Jobs,
        columns: columns(),
        rows,
        key: |r| RowKey::of((r.job.kind.as_str(), &r.job.name)),
        style: |r| r.worst.map_or(RowStyle::Plain, RowStyle::Severity),
    };
    Section::table(table, state, "none runs")
}

#[cfg(test)]
mod tests {
    use crate::ui::screen_view::ScreenView;
    use crate::ui::state::Tick;
    use crate::ui::tests::{draw, screen, snapshot, text};
    use crate::ui::theme::Theme;
    use judge::model::{Base, Model};
    use sample::{Job, JobKind};
    use testkit::{Fixture, Guest, Host};

    const MIB: u64 = 1 << 20;

    /// The page of a guest that writes its memory faster than a migration moves it, while a disk is
    /// backed up.
    fn page(jobs: Vec<Job>) -> String {
        let mut guest = Guest::new("web-1", 500).vcpus(1, |v, t| t.on(v).cpu(50.0, 0.5, 4.0, 0.0));
        guest.rest.jobs = jobs;
        let fixture = Fixture::new(Host::numa(1, 8, 1)).guest(guest);
        let mut state = screen(&fixture, 140, 40);
        state.view = ScreenView::Page;
        let model = Model::new(&fixture.sample(60.0), Base::Previous(&fixture.sample(59.0)));
        state.absorb(Tick {
            model,
            ..Tick::default()
        });
        text(&draw(&state, &Theme::default()))
    }

    #[test]
    fn a_job_has_a_row_with_what_the_guest_pays() {
        let migration = Job {
            kind: JobKind::Migration,
            status: "active".into(),
            elapsed_ns: Some(95_000_000_000),
            total: Some(4096 * MIB),
            remaining: Some(1024 * MIB),
            rate: Some(100 * MIB),
            rounds: Some(9),
            dirtied: Some(99 * MIB),
            downtime_limit_ns: Some(300_000_000),
            downtime_ns: Some(10_240_000_000),
            throttle_percent: Some(40),
            ..Job::default()
        };
        let backup = Job {
            kind: JobKind::Backup,
            name: "drive-scsi0".into(),
            status: "paused".into(),
            error: Some("no space left".into()),
            watched_ns: 20_000_000_000,
            total: Some(4096 * MIB),
            remaining: Some(2048 * MIB),
            ..Job::default()
        };
        snapshot("page_with_jobs", &page(vec![migration, backup]));
        assert!(
            !page(Vec::new()).contains("jobs"),
            "a page without a job is as before"
        );
    }
}
