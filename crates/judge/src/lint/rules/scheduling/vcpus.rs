//! vCPUs that wait, move, poll, are interrupted or start late.

use crate::figures::{figure, or_unknown};
use crate::lint::facts::{
    Audience, Confidence, Context, Finding, Fix, GuestContext, Mark, NO_VCPUS, Severity, Verdicts,
    worst_of,
};
use crate::lint::fixes;
use crate::lint::fixes::placement::guest_placement;
use crate::model::{ExitKind, ThreadModel};

/// The host has a CPU to spare from this idle time of all CPUs together on, percent of one CPU.
const MIN_SPARE_PERCENT: f64 = 50.0;

/// The most tasks that evidence names.
const MAX_TASKS: usize = 3;

/// With less wait, moves within a cache hurt little, percent.
const LITTLE_WAIT_PERCENT: f64 = 5.0;

/// A 99th percentile needs this many wake-ups.
const MIN_WAKEUPS: u64 = 20;

/// From this wait on, the vCPU competes for its CPU, percent.
const COMPETING_WAIT_PERCENT: f64 = 2.0;

/// From this use by others on, the CPU is not free, percent.
const MIN_OTHERS_PERCENT: f64 = 10.0;

/// On a host that is idle for more than this, polling hurts nobody, percent.
const IDLE_HOST_PERCENT: f64 = 20.0;

/// `halt_poll_ns` of x86 (`arch/x86/include/asm/kvm_host.h`, `KVM_HALT_POLL_NS_DEFAULT`).
const DEFAULT_POLL_NS: &str = "200000";

/// Without the host's tick rate: the highest that kernels are built with (`kernel/Kconfig.hz`).
const MAX_TICK_HZ: f64 = 1000.0;

pub(super) fn wait(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let mut late = Vec::new();
    let mut marks = Vec::new();
    let mut lost = 0.0;
    for thread in guest.domain.vcpus() {
        let Some(cpu) = thread.cpu else { continue };
        let Some(severity) = ctx.severity_of_wait(&cpu) else {
            continue;
        };
        let Some(percent) = cpu.wait_percent() else {
            continue;
        };
        lost += cpu.wait.unwrap_or(0.0);
        marks.push(Mark::Thread(thread.tid));
        marks.extend(thread.pinned_cpu().map(Mark::Pcpu));
        late.push((severity, percent, thread));
    }
    let Some((severity, percent, thread)) = worst_of(late) else {
        return;
    };
    let mut evidence = vec![format!(
        "{} waits {} % of the time it wants a CPU {}; the guest is short of {} CPUs",
        thread.label(),
        figure(percent),
        guest.window(),
        figure(lost / 100.0)
    )];
    let cost = ctx.waits().of_thread(thread);
    let parts = cost.map(|cost| cost.parts).unwrap_or_default();
    let mut beginning = "also on its CPU: ";
    let mut holders = Vec::new();
    for part in parts.into_iter().take(MAX_TASKS) {
        holders.push(if let Some(size) = part.figure {
            beginning = "meanwhile its CPU ran ";
            format!("{} {} %", part.name, figure(size))
        } else {
            part.name
        });
    }
    if !holders.is_empty() {
        evidence.push(format!("{beginning}{}", holders.join(", ")));
    }
    let mut fix = own_cpus(ctx, guest, lost);
    fix.push(fixes::advice(
        "Take load off the CPUs that this guest may use: other guests, host tasks, spare vCPUs",
    ));
    verdicts.find(Finding {
        cost: Some(lost),
        marks,
        ..Finding::new(severity, Confidence::High, evidence, fix)
    });
}

/// Pins that give a guest the `lost` time that its vCPUs wait, percent of one CPU; none on a full
/// host.
fn own_cpus(ctx: &Context<'_>, guest: &GuestContext<'_>, lost: f64) -> Vec<Fix> {
    let idle = ctx.model.host.usage().map(|usage| usage.idle * usage.cpus);
    if idle.is_some_and(|idle| idle < lost.max(MIN_SPARE_PERCENT)) {
        Vec::new()
    } else {
        guest_placement(ctx, guest)
    }
}

/// Pause-loop exits.
pub(super) fn pauses(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let exits = guest.exits(&[ExitKind::Pause]);
    let Some(per_vcpu) = exits.per_vcpu_or_tell(guest, verdicts) else {
        return;
    };
    let t = &ctx.thresholds().scheduling;
    let Some(severity) = t.pause.severity(per_vcpu) else {
        return;
    };
    let wait = guest.domain.vcpu_wait_percent();
    let waits = or_unknown(wait, figure);
    let evidence = vec![
        exits.describe(guest, "pause-loop exits", ""),
        format!("its vCPUs wait for a CPU {waits} % of the time they want one"),
    ];
    let found = if severity > Severity::Info && wait >= Some(t.pause_wait) {
        let lost = guest.domain.vcpus().filter_map(|t| t.cpu?.wait).sum();
        let mut fix = own_cpus(ctx, guest, lost);
        fix.push(fixes::advice(
            "Give the guest no more vCPUs than can run at the same time, or move load off its CPUs",
        ));
        Finding {
            title: "vCPUs spin on locks whose holder has no CPU".into(),
            ..Finding::new(severity, Confidence::High, evidence, fix)
        }
    } else {
        let fix = vec![fixes::advice(
            "If the vCPUs wait for CPUs (/proc/PID/task/TID/schedstat, twice), give the guest \
                fewer; else profile the guest (perf top) for spin locks",
        )];
        Finding {
            title: "vCPUs spin on locks".into(),
            ..Finding::new(Severity::Info, Confidence::Medium, evidence, fix)
        }
    };
    verdicts.find(found.caused_by(exits));
}

/// How bad the moves of a busy vCPU are.
fn severity_of_moves(ctx: &Context<'_>, seconds: f64, thread: &ThreadModel) -> Option<Severity> {
    let t = &ctx.thresholds().pinning;
    let moves = &thread.migrations;
    let total = moves.total?;
    let cpu = thread.cpu?;
    let mut rate = total as f64 / seconds;
    if ctx.topology().has_smt() {
        // A move to a sibling keeps the caches: it counts half.
        rate -= total.saturating_sub(moves.cross_core) as f64 / seconds / 2.0;
    }
    if moves.cross_node as f64 / seconds >= t.far_migrations {
        return Some(Severity::Critical);
    }
    let severity = t.migrations.severity(rate);
    if moves.cross_llc as f64 / seconds >= t.far_migrations {
        return severity.max(Some(Severity::Warning));
    }
    // The scheduler moves unpinned vCPUs by design. Where they hardly wait, that hurts little.
    if cpu
        .wait_percent()
        .is_some_and(|wait| wait < LITTLE_WAIT_PERCENT)
    {
        return severity.map(|_| Severity::Info);
    }
    severity
}

pub(super) fn migrating(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let Some(seconds) = guest.seconds else { return };
    let mut rate_of_all = 0.0;
    let mut moved = Vec::new();
    let mut marks = Vec::new();
    for thread in guest.domain.vcpus() {
        let Some(moves) = thread.migrations.total.filter(|moves| *moves > 0) else {
            continue;
        };
        marks.extend(thread.index.map(Mark::Vcpu));
        let is_busy = thread
            .cpu
            .is_some_and(|cpu| cpu.wanted() >= ctx.thresholds().pinning.busy);
        if is_busy && thread.pinned_cpu().is_none() {
            let rate = moves as f64 / seconds;
            rate_of_all += rate;
            let severity = severity_of_moves(ctx, seconds, thread);
            moved.extend(severity.map(|severity| (severity, rate, thread)));
        }
    }
    let Some((severity, rate, thread)) = worst_of(moved) else {
        return;
    };
    let m = &thread.migrations;
    let waits = thread
        .wait_percent()
        .map(|w| format!(" and waits {} % of that", figure(w)));
    let evidence = vec![
        format!(
            "{} moves/s of {} {}: {} to another core, {} to another last-level cache, {} to \
                another node; all busy vCPUs together {}/s",
            figure(rate),
            thread.label(),
            guest.window(),
            m.cross_core,
            m.cross_llc,
            m.cross_node,
            figure(rate_of_all)
        ),
        format!(
            "it wants a CPU {} % of the time{}",
            figure(thread.cpu.map_or(0.0, |c| c.wanted())),
            waits.unwrap_or_default()
        ),
    ];
    let no_room = fixes::advice(
        "Pin each busy vCPU to a CPU of its own; where the host has none free for that, move a \
            guest to another host first",
    );
    let fix = fixes::or_advice(guest_placement(ctx, guest), no_room);
    verdicts.find(Finding {
        marks,
        ..Finding::new(severity, Confidence::High, evidence, fix)
    });
}

pub(super) fn wakeups(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let (info_us, warning_us) = ctx.thresholds().pinning.wakeup_us;
    for thread in guest.domain.vcpus() {
        let Some(cpu) = thread.pinned_cpu() else {
            continue;
        };
        let Some(own) = thread.cpu else {
            continue;
        };
        let Some(w) = &thread.wakeups else {
            continue;
        };
        let Some(median) = w.quantile_us(0.5) else {
            continue;
        };
        let Some(p99) = w.quantile_us(0.99) else {
            continue;
        };
        // Where other tasks use the CPU, other rules say so.
        let is_shared = own.wait >= Some(COMPETING_WAIT_PERCENT)
            || ctx
                .busy_of(cpu)
                .is_none_or(|busy| busy - own.busy() > MIN_OTHERS_PERCENT);
        if w.count < MIN_WAKEUPS || is_shared || (p99 < warning_us && median < info_us) {
            continue;
        }
        let severity = if p99 >= warning_us {
            Severity::Warning
        } else {
            Severity::Info
        };
        let evidence = vec![
            format!(
                "{}: of {} wake-ups half took over {} us and one in 100 over {} us {}",
                thread.label(),
                w.count,
                figure(median),
                figure(p99),
                guest.window()
            ),
            format!("look at: perf sched record -C {cpu} sleep 10; perf sched latency"),
        ];
        let shallow = fixes::command(
            "tuned-adm profile virtual-host-latency 2>/dev/null || cpupower idle-set -D 10",
        );
        let own_cpus = fixes::advice(
            "For a guest with CPUs of its own: -overcommit cpu-pm=on, or a larger \
                kvm.halt_poll_ns",
        );
        let fix = vec![
            shallow.needing("keeps CPUs out of deep sleep; costs power"),
            own_cpus.only(Audience::Qemu),
        ];
        let found = Finding {
            marks: vec![Mark::Pcpu(cpu)],
            ..Finding::new(severity, Confidence::Medium, evidence, fix)
        };
        return verdicts.find(found.about_vcpu(thread));
    }
}

/// A vCPU that polls.
struct Poller<'a> {
    thread: &'a ThreadModel,
    /// How long it polls, percent of a CPU.
    percent: f64,
    /// How long it polls and then sleeps anyway, percent of a CPU.
    failed_percent: f64,
}

pub(super) fn halt_poll(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let t = &ctx.thresholds().scheduling;
    let poller = busiest(guest, t.halt_poll_guest);
    let Some(Poller {
        thread,
        percent,
        failed_percent,
    }) = poller
    else {
        return;
    };
    let Some(severity) = t.halt_poll.severity(percent) else {
        return;
    };
    let idle = ctx.model.host.usage().map(|h| h.idle);
    let severity = if idle.is_some_and(|i| i <= IDLE_HOST_PERCENT) {
        severity
    } else {
        Severity::Info
    };
    let evidence = vec![
        format!(
            "{} polls {} % of the time ({} % in vain) {}, while its guest runs {} %",
            thread.label(),
            figure(percent),
            figure(failed_percent),
            guest.window(),
            figure(thread.cpu.map_or(0.0, |c| c.guest))
        ),
        format!(
            "kvm.halt_poll_ns is {}",
            ctx.param("kvm.halt_poll_ns").unwrap_or(DEFAULT_POLL_NS)
        ),
    ];
    let found = Finding::new(severity, Confidence::High, evidence, less_polling());
    verdicts.find(
        Finding {
            cost: Some(percent),
            ..found
        }
        .about_vcpu(thread),
    );
}

/// What makes halt polling shorter.
fn less_polling() -> Vec<Fix> {
    let less = fixes::command("echo 50000 > /sys/module/kvm/parameters/halt_poll_ns").needing(
        "on older kernels for guests that start afterwards; raises wake-up latency a \
            little",
    );
    vec![
        less,
        fixes::advice(
            "Keep it where the guest has its CPUs to itself and latency \
        matters more than power",
        ),
    ]
}

/// The mostly idle vCPU that polls most; of equal ones the first.
fn busiest<'a>(guest: &GuestContext<'a>, max_guest_percent: f64) -> Option<Poller<'a>> {
    let mut busiest: Option<Poller<'a>> = None;
    for thread in guest.domain.vcpus() {
        let in_guest = thread.cpu.and_then(|cpu| cpu.kind(|cpu| cpu.guest));
        if in_guest.is_none_or(|percent| percent >= max_guest_percent) {
            continue;
        }
        if let Some(poller) = polling(thread)
            && busiest
                .as_ref()
                .is_none_or(|most| poller.percent > most.percent)
        {
            busiest = Some(poller);
        }
    }
    busiest
}

/// How long a vCPU polls. The counters are nanoseconds per second: 1e7 of them are one percent.
fn polling(thread: &ThreadModel) -> Option<Poller<'_>> {
    let fail_ns = thread.counters.get("halt_poll_fail_ns")?;
    let hit_ns = thread.counters.get("halt_poll_success_ns")?;
    Some(Poller {
        thread,
        percent: (fail_ns + hit_ns) / 1e7,
        failed_percent: fail_ns / 1e7,
    })
}

pub(super) fn interrupts(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let exits = guest.exits(&[ExitKind::HostInterrupt]);
    let Some(rate) = exits.rate_or_tell(guest, verdicts) else {
        return;
    };
    // Without CPU times the number of busy vCPUs, by which `exits.per_vcpu` divides, is an
    // estimate: too weak to blame the host.
    let measured = exits.vcpu.is_some() || guest.domain.vcpus().any(|t| t.cpu.is_some());
    let per_vcpu = if measured {
        exits.per_vcpu
    } else {
        guest.vcpus().map(|n| rate / n)
    };
    let Some(per_vcpu) = per_vcpu else {
        return verdicts.cannot_tell(NO_VCPUS);
    };
    let t = &ctx.thresholds().scheduling;
    let tick_hz = ctx.model.host.facts.tick_hz;
    let tick_hz = tick_hz.map_or(MAX_TICK_HZ, f64::from);
    if per_vcpu < tick_hz * t.interrupts_ticks {
        return;
    }
    let isolated = guest
        .domain
        .vcpus()
        .filter_map(ThreadModel::pinned_cpu)
        .any(|c| ctx.topology().is_isolated(c));
    let is_loud = isolated && per_vcpu >= t.interrupts_isolated;
    let severity = if is_loud {
        Severity::Warning
    } else {
        Severity::Info
    };
    let evidence = vec![
        exits.describe(guest, "host interrupts", "in the running guest"),
        format!(
            "the host's own tick causes at most {}/s on a busy vCPU",
            figure(tick_hz)
        ),
    ];
    verdicts.find(
        Finding::new(severity, Confidence::Medium, evidence, fewer_interrupts()).caused_by(exits),
    );
}

/// What shows the host's interrupts, and routes them elsewhere.
fn fewer_interrupts() -> Vec<Fix> {
    let show = fixes::command(
        "grep . /proc/irq/*/effective_affinity_list; cat \
        /proc/interrupts",
    )
    .needing("shows which interrupts arrive on the guest's CPUs");
    vec![
        show,
        fixes::advice(
            "Route device interrupts away from the guest's CPUs \
        (/proc/irq/N/smp_affinity_list)",
        ),
    ]
}
