//! Jobs: a migration that does not end, and jobs that move nothing or delay the guest.

use crate::figures::{bytes, duration, figure, seconds};
use crate::lint::facts::Check::Setup;
use crate::lint::facts::{
    Confidence, Context, Finding, Fix, GuestContext, Hold, Prose, Rule, RuleDoc, RuleId, Severity,
    Verdicts, known, thresholds,
};
use crate::lint::fixes;
use crate::model::jobs::{allowed_bytes, converges, dirtied_percent, last_pass_bytes, progress};
use sample::{Job, JobKind};

/// Jobs are read every 2 to 5 s.
const SOME_READINGS: Hold = Hold::For(5.0, 15.0);

/// A longer stop of the guest is not proposed.
const MAX_STOP_S: f64 = 30.0;

pub(in crate::lint) const RULES: &[Rule] = &[
    Rule::new(
        RuleId::JobNotConverging,
        Setup(not_converging),
        SOME_READINGS,
    )
    .described(RuleDoc {
        sees: "the guest writes its memory as fast as the migration moves it, so that the \
            migration does not end",
        problem: "migration never ends",
        why: "Each pass sends what the guest wrote during the pass before. QEMU stops the guest \
            for the last pass when the rest fits into the downtime limit, and passes that do not \
            shrink never get there",
        thresholds: thresholds![jobs.dirtied],
        limits: "Judged from the second pass on, while the guest runs here (not in post-copy). \
            libvirt tells no reader the downtime limit, so that QEMU's default of 300 ms is taken. \
            Pages of zeros are moved in a few bytes and count whole among what the guest writes",
        fix: "A longer downtime, more bandwidth, post-copy or auto-converge: each at once or at \
            the next attempt",
        links: &[
            "https://libvirt.org/migration.html",
            "https://www.qemu.org/docs/master/devel/migration/postcopy.html",
        ],
    }),
    Rule::new(RuleId::JobStalled, Setup(stalled), SOME_READINGS).described(RuleDoc {
        sees: "a job of the guest moves nothing",
        problem: "job stands still",
        why: "The target does not take the data: it is full, unreachable or waits itself. Until \
            the job ends the guest pays for it with tracked writes, copies before its writes, or a \
            full image",
        thresholds: thresholds![jobs.stalled_s],
        limits: "A job that its manager paused and one that waits to be completed are silent",
        fix: "The job's target",
        links: &["https://www.qemu.org/docs/master/interop/live-block-operations.html"],
    }),
];

/// `migration`, `backup drive-scsi0`.
fn name(job: &Job) -> String {
    format!("{} {}", job.kind.as_str(), job.name)
        .trim_end()
        .to_owned()
}

/// What the guest pays while the job runs.
fn slowdown(job: &Job) -> Option<String> {
    let throttle = job.throttle_percent.filter(|percent| *percent > 0)?;
    Some(format!(
        "meanwhile its vCPUs are held back for {throttle} % of the time"
    ))
}

fn not_converging(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let steps = &ctx.thresholds().jobs.dirtied;
    for job in &guest.domain.jobs {
        let Some(severity) = dirtied_percent(job).and_then(|percent| steps.severity(percent))
        else {
            continue;
        };
        // The threshold has a margin already, so none is asked for here.
        if converges(job, 0.0) != Some(false) {
            continue;
        }
        // QEMU holds the vCPUs back more and more, up to 99 %: until then the migration may end
        // yet.
        let slows_down = job.auto_converge == Some(true) || job.throttle_percent > Some(0);
        let severity = if slows_down && job.throttle_percent < Some(99) {
            Severity::Info
        } else {
            severity
        };
        let [dirtied, rate, last_pass] =
            [job.dirtied, job.rate, last_pass_bytes(job)].map(Option::unwrap_or_default);
        let limit = job
            .downtime_limit_ns
            .map_or("QEMU's default of 300 ms".into(), |ns| {
                duration(ns as f64 / 1e3)
            });
        let allowed = bytes(allowed_bytes(job).unwrap_or(0));
        let pass = job
            .rounds
            .map_or(String::new(), |rounds| format!(", pass {rounds}"));
        let evidence = known([
            Some(format!(
                "the guest writes {}/s, the {}{pass} moves {}/s",
                bytes(dirtied),
                name(job),
                bytes(rate)
            )),
            Some(format!(
                "{} are left after a pass, {allowed} may be (downtime limit: {limit})",
                bytes(last_pass)
            )),
            job.elapsed_ns
                .map(|ns| format!("it has run for {}", seconds(ns as f64 / 1e9))),
            slowdown(job),
        ]);
        verdicts.find(Finding::new(
            severity,
            Confidence::High,
            evidence,
            ways_to_end(guest, job),
        ));
    }
}

/// What changes a running migration: virsh, or a command `hmp` of QEMU's monitor, which Proxmox
/// passes on.
fn change(guest: &GuestContext<'_>, virsh: String, hmp: &str, effect: &str) -> Vec<Fix> {
    if let Some(id) = guest.proxmox_id() {
        return vec![fixes::command(format!("echo '{hmp}' | qm monitor {id}")).needing(effect)];
    }
    let by_hand = fixes::advice(format!("In the guest's monitor (HMP): {hmp}")).needing(effect);
    fixes::either(guest, fixes::command(virsh).needing(effect), by_hand)
}

fn ways_to_end(guest: &GuestContext<'_>, job: &Job) -> Vec<Fix> {
    let mut ways = Vec::new();
    let rate = job.rate.unwrap_or(0).max(1) as f64;
    // A quarter more, because what is left varies from pass to pass.
    let last_s = 1.25 * last_pass_bytes(job).unwrap_or(0) as f64 / rate;
    if last_s <= MAX_STOP_S {
        let ms = (last_s * 1e3).ceil().to_string();
        let effect = format!(
            "ends it; the guest stands still for up to {} then",
            duration(last_s * 1e6)
        );
        let hmp = format!("migrate_set_parameter downtime-limit {ms}");
        let virsh = fixes::virsh(guest, "migrate-setmaxdowntime", &ms);
        ways.extend(change(guest, virsh, &hmp, &effect));
    }
    // A bandwidth limit that the migration does not come near does not hold it back.
    if job.limit.is_some_and(|limit| rate >= 0.5 * limit as f64) {
        let dirtied = job.dirtied.unwrap_or(0) as f64;
        let mib = (2.0 * dirtied / f64::from(1 << 20)).ceil().to_string();
        let hmp = format!("migrate_set_parameter max-bandwidth {mib}M");
        let virsh = fixes::virsh(guest, "migrate-setspeed", &mib);
        let effect = "MiB/s, for later migrations too; takes this much of the network and nothing \
            from the guest";
        ways.extend(change(guest, virsh, &hmp, effect));
    }
    // A guest that is saved to a file cannot continue from there.
    if job.kind != JobKind::Save && job.postcopy != Some(false) {
        let virsh = fixes::virsh(guest, "migrate-postcopy", "");
        ways.extend(change(
            guest,
            virsh,
            "migrate_start_postcopy",
            "if post-copy was allowed at its start: the guest continues on the other \
            host at once, waits for each page over the network, and is lost if that fails \
            meanwhile",
        ));
    }
    if job.kind != JobKind::Save && job.postcopy == Some(false) {
        ways.push(fixes::advice(
            "Start it again with post-copy allowed (--postcopy, capability postcopy-ram)",
        ));
    }
    if job.auto_converge != Some(true) && job.throttle_percent.unwrap_or(0) == 0 {
        ways.push(fixes::advice(
            "Start it again with auto-converge, which holds the vCPUs back, for 20 to 99 % of the \
                time, until the guest writes less",
        ));
    }
    ways
}

const LOST: Prose = Prose {
    title: "The post-copy migration lost its connection: the guest stands still on both hosts",
    problem: "post-copy is interrupted",
    why: "A part of the guest's memory is on each host. Neither can continue until the connection \
        is back; ending QEMU on either loses the guest",
};

fn stalled(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    for job in &guest.domain.jobs {
        if job.status == "postcopy-paused" {
            let evidence = vec![format!("{} is {}", name(job), job.status)];
            let found = Finding::new(
                Severity::Critical,
                Confidence::High,
                evidence,
                fixes::recover_postcopy(guest),
            );
            verdicts.find(found.saying(LOST));
        } else if is_stalled(ctx, job) {
            let still = seconds(job.still_ns as f64 / 1e9);
            let progress = progress(job).map_or(String::new(), |percent| {
                format!(" at {} %", figure(percent))
            });
            let error = job.error.as_ref().map(|why| format!("its error: {why}"));
            let evidence = known([
                Some(format!("{} moved nothing for {still}{progress}", name(job))),
                error,
                slowdown(job),
            ]);
            let fix = vec![
                fixes::advice(
                    "Check the job's target: its free space, the network \
                to it, the load of its storage",
                ),
                fixes::advice(if guest.config.libvirt == Some(true) {
                    "virsh domjobinfo and blockjob --info show it; domjobabort and blockjob \
                        --abort end it without its result"
                } else {
                    "QMP query-jobs and query-migrate show it; job-cancel and migrate_cancel end it"
                }),
            ];
            verdicts.find(Finding::new(
                Severity::Warning,
                Confidence::High,
                evidence,
                fix,
            ));
        }
    }
}

fn is_stalled(ctx: &Context<'_>, job: &Job) -> bool {
    let may_move = matches!(
        job.status.as_str(),
        "active" | "running" | "postcopy-active"
    ) || job.error.is_some();
    // QEMU does not report the progress of jobs of kind `Other`. A backup that copies only what the
    // guest overwrites may stand still because the guest writes nothing.
    let shows_progress =
        job.kind != JobKind::Other && (job.kind != JobKind::Backup || job.done > Some(0));
    may_move
        && shows_progress
        && !job.has_failed()
        && job.still_ns as f64 / 1e9 >= ctx.thresholds().jobs.stalled_s
}
