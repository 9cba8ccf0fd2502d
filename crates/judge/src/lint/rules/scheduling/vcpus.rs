//! vCPUs that wait, move, poll, are interrupted or start late.

use crate::cost::Part;

use crate::figures::figure;
use crate::lint::facts::{
    Audience, Confidence, Context, Finding, Fix, GuestContext, Mark, NO_VCPUS, Severity, Verdicts,
    known, worst_of,
};
use crate::lint::fixes;
use crate::lint::fixes::placement::guest_placement;
use crate::model::{CpuShare, Rates};
use crate::model::{ExitKind, ThreadModel};

/// The host has a CPU to spare from this idle time of all CPUs together on, percent of one CPU.
const IDLE_CPU: f64 = 50.0;

/// The most tasks that evidence names.
const MAX_TASKS: usize = 3;

/// With less wait, moves within a cache hurt little, percent.
const LITTLE_WAIT: f64 = 5.0;

/// A 99th percentile needs this many wake-ups.
const MIN_WAKEUPS: u64 = 20;

/// From this wait on, the vCPU competes for its CPU, percent.
const COMPETES: f64 = 2.0;

/// From this use by others on, the CPU is not free, percent.
const OTHERS_BUSY: f64 = 10.0;

/// On a host that is idle for more than this, polling hurts nobody, percent.
const IDLE_HOST: f64 = 20.0;

/// `halt_poll_ns` of x86 (`arch/x86/include/asm/kvm_host.h`, `KVM_HALT_POLL_NS_DEFAULT`).
const DEFAULT_POLL_NS: &str = "200000";

/// Without the host's tick rate: the highest that kernels are built with (`kernel/Kconfig.hz`).
const MAX_TICK: f64 = 1000.0;

const FEWER_VCPUS: &str = "Give the guest no more vCPUs than can run at the same time, or move \
    load off its CPUs";
const SPINS_INSIDE: &str = "The vCPUs run and yet spin: profile the guest (perf top) for spin \
    locks";
const SPINS_WAIT_UNKNOWN: &str = "First check whether the vCPUs wait for CPUs \
    (/proc/PID/task/TID/schedstat, twice). If they do, give the guest fewer vCPUs. If not, profile \
    the guest (perf top) for spin locks";
const SHOW_INTERRUPTS: &str = "grep . /proc/irq/*/effective_affinity_list; cat /proc/interrupts";
const ROUTE_INTERRUPTS: &str = "Route device interrupts away from the guest's CPUs \
    (/proc/irq/N/smp_affinity_list)";
const LESS_POLLING_NEED: &str = "on older kernels for guests that start afterwards; raises wake-up \
    latency a little";
const KEEP_POLLING: &str = "Keep it where the guest has its CPUs to itself and latency matters \
    more than power";
const PIN_NO_ROOM: &str = "Pin each busy vCPU to a CPU of its own; where the host has none free \
        for that, move a guest to another host first";
const LESS_LOAD: &str = "Take load off the CPUs that this guest may use: other guests, host tasks, \
    spare vCPUs";
const SHALLOW_SLEEP: &str = "tuned-adm profile virtual-host-latency 2>/dev/null || cpupower \
    idle-set -D 10";
const GUEST_IDLES_CPU: &str = "For a guest with CPUs of its own: -overcommit cpu-pm=on, or a \
    larger kvm.halt_poll_ns";

pub(super) fn wait(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let late = guest.domain.vcpus().filter_map(|thread| {
        let cpu = thread.cpu?;
        Some((
            ctx.severity_of_wait(&cpu)?,
            cpu.wait_percent()?,
            (thread, cpu.wait?),
        ))
    });
    let late: Vec<_> = late.collect();
    let lost = late.iter().map(|(.., (_, wait))| wait).sum::<f64>();
    let marks = late
        .iter()
        .flat_map(|(.., (t, _))| [Some(Mark::Thread(t.tid)), t.pinned_cpu().map(Mark::Pcpu)]);
    let marks = marks.flatten().collect();
    let Some((severity, share, (thread, _))) = worst_of(late) else {
        return;
    };
    let (name, window, waits, loses) =
        (thread.label(), guest.window(), figure(share), figure(lost));
    let parts = ctx
        .waits()
        .of_thread(thread)
        .map(|cost| cost.parts)
        .unwrap_or_default();
    let part = |p: &Part| {
        p.name.clone()
            + &p.figure
                .map_or_else(String::new, |f| format!(" {} %", figure(f)))
    };
    let by = if parts.iter().any(|p| p.figure.is_some()) {
        "it waits for "
    } else {
        "also on its CPU: "
    };
    let holders = parts
        .iter()
        .take(MAX_TASKS)
        .map(part)
        .collect::<Vec<_>>()
        .join(", ");
    let all = format!("all vCPUs of the guest together lose {loses} % of one CPU");
    let evidence = known([
        Some(format!(
            "{name} waits {waits} % of the time it wants a CPU {window}; {all}"
        )),
        (!holders.is_empty()).then(|| format!("{by}{holders}")),
    ]);
    let found = Finding::new(
        severity,
        Confidence::High,
        evidence,
        less_wait(ctx, guest, lost),
    );
    verdicts.find(Finding {
        cost: Some(lost),
        marks,
        ..found
    });
}

/// Pins for a guest that loses so much time, and less load.
fn less_wait(ctx: &Context<'_>, guest: &GuestContext<'_>, lost: f64) -> Vec<Fix> {
    own_cpus(ctx, guest, lost)
        .into_iter()
        .chain([fixes::advice(LESS_LOAD)])
        .collect()
}

/// Pins that give a guest the `lost` time that its vCPUs wait, percent of one CPU; none on a full
/// host.
fn own_cpus(ctx: &Context<'_>, guest: &GuestContext<'_>, lost: f64) -> Vec<Fix> {
    let idle: Vec<f64> = ctx
        .model
        .host
        .cpus
        .iter()
        .filter_map(|c| Some(100.0 - c.time?.busy()))
        .collect();
    let no_room = !idle.is_empty() && idle.iter().sum::<f64>() < lost.max(IDLE_CPU);
    if no_room {
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
    let Some(severity) = t.pause.of(per_vcpu) else {
        return;
    };
    let wait = guest.domain.vcpu_wait_percent();
    let waits = severity > Severity::Info && wait.is_some_and(|w| w >= t.pause_wait);
    let (severity, confidence, title, advice) = match wait {
        _ if waits => (
            severity,
            Confidence::High,
            "vCPUs spin on locks whose holder has no CPU",
            FEWER_VCPUS,
        ),
        Some(_) => (
            Severity::Info,
            Confidence::Medium,
            "vCPUs spin on locks",
            SPINS_INSIDE,
        ),
        None => (
            Severity::Info,
            Confidence::Medium,
            "vCPUs spin on locks",
            SPINS_WAIT_UNKNOWN,
        ),
    };
    let lost = guest.domain.vcpus().filter_map(|t| t.cpu?.wait).sum();
    let mut fix = if waits {
        own_cpus(ctx, guest, lost)
    } else {
        Vec::new()
    };
    fix.push(fixes::advice(advice));
    let share = |w| {
        format!(
            "its vCPUs wait for a CPU {} % of the time they want one",
            figure(w)
        )
    };
    let evidence = vec![
        exits.describe(guest, "pause-loop exits", ""),
        wait.map_or_else(
            || "whether its vCPUs wait for CPUs is unknown".into(),
            share,
        ),
    ];
    let found = Finding::new(severity, confidence, evidence, fix).caused_by(exits);
    verdicts.find(Finding {
        title: title.into(),
        ..found
    });
}

/// How bad the moves of a busy vCPU are.
fn severity(ctx: &Context<'_>, seconds: f64, thread: &ThreadModel) -> Option<Severity> {
    let t = &ctx.thresholds().pinning;
    let moves = &thread.migrations;
    let (total, cpu) = (moves.total?, thread.cpu?);
    let rate = |n: u64| n as f64 / seconds;
    // A move to a sibling keeps the caches: it counts half.
    let near = rate(total.saturating_sub(moves.cross_core));
    let weighted = if ctx.topology().has_smt() {
        rate(total) - near / 2.0
    } else {
        rate(total)
    };
    match t.migrations.of(weighted) {
        _ if rate(moves.cross_node) >= t.far_migrations => Some(Severity::Critical),
        severity if rate(moves.cross_llc) >= t.far_migrations => {
            severity.max(Some(Severity::Warning))
        }
        // The scheduler spreads unpinned guests by design; without wait it hurts little.
        severity if cpu.wait_percent().is_some_and(|w| w < LITTLE_WAIT) => {
            severity.map(|_| Severity::Info)
        }
        severity => severity,
    }
}

pub(super) fn migrating(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let Some(seconds) = guest.seconds else { return };
    let is_busy = |cpu: &CpuShare| cpu.wanted() >= ctx.thresholds().pinning.busy;
    let free = guest
        .domain
        .vcpus()
        .filter(|t| t.cpu.as_ref().is_some_and(is_busy) && t.pinned_cpu().is_none());
    let moves: Vec<_> = free
        .filter_map(|t| Some((t, t.migrations.total? as f64 / seconds)))
        .collect();
    let all = moves.iter().map(|(_, rate)| rate).sum::<f64>();
    let moved = moves
        .into_iter()
        .filter_map(|(t, rate)| Some((severity(ctx, seconds, t)?, rate, t)));
    let Some((severity, rate, thread)) = worst_of(moved) else {
        return;
    };
    let fix = fixes::or_advice(guest_placement(ctx, guest), fixes::advice(PIN_NO_ROOM));
    let m = &thread.migrations;
    let far = [
        (m.cross_core, "core"),
        (m.cross_llc, "last-level cache"),
        (m.cross_node, "node"),
    ];
    let far = far
        .into_iter()
        .filter(|(n, _)| *n > 0)
        .map(|(n, what)| format!("{n} to another {what}"));
    let far = far.collect::<Vec<_>>().join(", ");
    let far = if far.is_empty() {
        far
    } else {
        format!(" ({far})")
    };
    let (name, window, rate, all) = (thread.label(), guest.window(), figure(rate), figure(all));
    let wanted = figure(thread.cpu.map_or(0.0, |c| c.wanted()));
    let waits = thread
        .wait_percent()
        .map(|w| format!(" and waits {} % of that", figure(w)));
    let evidence = vec![
        format!("{rate} moves/s of {name} {window}{far}; all busy vCPUs together {all}/s"),
        format!(
            "it wants a CPU {wanted} % of the time{}",
            waits.unwrap_or_default()
        ),
    ];
    let moved = guest
        .domain
        .vcpus()
        .filter(|t| t.migrations.total.unwrap_or(0) > 0);
    let marks = moved.filter_map(|t| t.index).map(Mark::Vcpu).collect();
    verdicts.find(Finding {
        marks,
        ..Finding::new(severity, Confidence::High, evidence, fix)
    });
}

pub(super) fn wakeups(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let (info_us, warning_us) = ctx.thresholds().pinning.wakeup_us;
    for thread in guest.domain.vcpus() {
        let (Some(cpu), Some(own), Some(w)) = (thread.pinned_cpu(), thread.cpu, &thread.wakeups)
        else {
            continue;
        };
        let (Some(median), Some(p99)) = (w.quantile_us(0.5), w.quantile_us(0.99)) else {
            continue;
        };
        // Other tasks on the CPU are the subject of other rules.
        let others = ctx
            .model
            .host
            .cpu(cpu)
            .and_then(|c| c.time)
            .map(|t| t.busy() - own.busy());
        let shared =
            own.wait.is_some_and(|w| w >= COMPETES) || others.is_none_or(|busy| busy > OTHERS_BUSY);
        if w.count < MIN_WAKEUPS || shared || p99 < warning_us && median < info_us {
            continue;
        }
        let severity = if p99 >= warning_us {
            Severity::Warning
        } else {
            Severity::Info
        };
        let (name, count, window) = (thread.label(), w.count, guest.window());
        let (median, p99) = (figure(median), figure(p99));
        let evidence = known([
            Some(format!(
                "{name}: of {count} wake-ups half took over {median} us and one in 100 over {p99} \
                    us {window}"
            )),
            sleeps(ctx, cpu),
            Some(format!(
                "look at: perf sched record -C {cpu} sleep 10; perf sched latency"
            )),
        ]);
        let shallow =
            fixes::command(SHALLOW_SLEEP).needing("keeps CPUs out of deep sleep; costs power");
        let fix = vec![shallow, fixes::advice(GUEST_IDLES_CPU).only(Audience::Qemu)];
        let found = Finding::new(severity, Confidence::Medium, evidence, fix);
        return verdicts.find(
            Finding {
                marks: vec![Mark::Pcpu(cpu)],
                ..found
            }
            .about_vcpu(thread),
        );
    }
}

/// How often a CPU wakes from sleep states, and how long it takes to leave them.
fn sleeps(ctx: &Context<'_>, cpu: u32) -> Option<String> {
    let power = ctx.model.host.cpu(cpu)?.power?;
    let (rate, leaving_us) = (power.wake_rate()?, power.wake_us()?);
    let (rate, leaving) = (figure(rate), figure(leaving_us));
    Some(format!(
        "CPU {cpu} wakes {rate} times/s from sleep states that take {leaving} us on average to \
        leave"
    ))
}

/// A vCPU that polls: how long, and the part of that after which it slept anyway, percent of a CPU.
type Poller<'a> = (f64, f64, &'a ThreadModel);

pub(super) fn halt_poll(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let t = &ctx.thresholds().scheduling;
    let poller = busiest(guest, t.halt_poll_guest);
    let Some((percent, failed, thread)) = poller else {
        return;
    };
    let Some(severity) = t.halt_poll.of(percent) else {
        return;
    };
    let idle = ctx.model.host.usage().map(|h| h.idle);
    let severity = if idle.is_some_and(|i| i <= IDLE_HOST) {
        severity
    } else {
        Severity::Info
    };
    let (name, window, ns) = (
        thread.label(),
        guest.window(),
        ctx.param("kvm.halt_poll_ns").unwrap_or(DEFAULT_POLL_NS),
    );
    let (polls, failed, runs) = (
        figure(percent),
        figure(failed),
        figure(thread.cpu.map_or(0.0, |c| c.guest)),
    );
    let evidence = vec![
        format!(
            "{name} polls {polls} % of the time ({failed} % in vain) {window}, while its guest \
            runs {runs} %"
        ),
        format!("kvm.halt_poll_ns is {ns}"),
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
    let less = fixes::command("echo 50000 > /sys/module/kvm/parameters/halt_poll_ns")
        .needing(LESS_POLLING_NEED);
    vec![less, fixes::advice(KEEP_POLLING)]
}

fn polled(counters: &Rates) -> Option<(f64, f64)> {
    let (fail, hit) = (
        counters.get("halt_poll_fail_ns")?,
        counters.get("halt_poll_success_ns")?,
    );
    Some(((fail + hit) / 1e7, fail / 1e7))
}

/// The mostly idle vCPU that polls most.
fn busiest<'a>(guest: &GuestContext<'a>, idle: f64) -> Option<Poller<'a>> {
    let mostly_idle = guest.domain.vcpus().filter(|t| {
        t.cpu
            .and_then(|c| c.kind(|c| c.guest))
            .is_some_and(|g| g < idle)
    });
    let pollers = mostly_idle
        .filter_map(|thread| polled(&thread.counters).map(|(all, failed)| (all, failed, thread)));
    // Of equal ones the first.
    pollers.reduce(|a, b| if b.0 > a.0 { b } else { a })
}

pub(super) fn interrupts(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let exits = guest.exits(&[ExitKind::HostInterrupt]);
    let Some(rate) = exits.rate_or_tell(guest, verdicts) else {
        return;
    };
    // Without CPU times the number of busy vCPUs is an estimate: too weak to blame the host.
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
    if per_vcpu < tick_hz.map_or(MAX_TICK, f64::from) * t.interrupts_ticks {
        return;
    }
    let isolated = guest
        .domain
        .vcpus()
        .filter_map(ThreadModel::pinned_cpu)
        .any(|c| ctx.topology().is_isolated(c));
    let loud = isolated && per_vcpu >= t.interrupts_isolated;
    let severity = if loud {
        Severity::Warning
    } else {
        Severity::Info
    };
    let tick = tick_hz.map_or(MAX_TICK, f64::from);
    let evidence = vec![
        exits.describe(guest, "host interrupts", "in the running guest"),
        format!(
            "the host's own tick causes at most {}/s on a busy vCPU",
            figure(tick)
        ),
    ];
    verdicts.find(
        Finding::new(severity, Confidence::Medium, evidence, fewer_interrupts()).caused_by(exits),
    );
}

/// What shows the host's interrupts, and routes them elsewhere.
fn fewer_interrupts() -> Vec<Fix> {
    let show = fixes::command(SHOW_INTERRUPTS)
        .needing("shows which interrupts arrive on the guest's CPUs");
    vec![show, fixes::advice(ROUTE_INTERRUPTS)]
}
