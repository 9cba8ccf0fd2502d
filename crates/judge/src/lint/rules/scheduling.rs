//! How the guest's vCPUs get their CPUs, and what the host does meanwhile: they wait, move, poll,
//! are interrupted or start late.

use crate::figures::{figure, or_unknown};
use crate::lint::facts::Check::Behaviour;
use crate::lint::facts::{
    Audience, Confidence, Context, Finding, Fix, GuestContext, Hold, Mark, NO_VCPUS, Rule, RuleDoc,
    RuleId, Severity, Verdicts, links, thresholds, worst_of,
};
use crate::lint::fixes;
use crate::lint::fixes::placement::guest_placement;
use crate::model::{ExitKind, ThreadModel};

pub(in crate::lint) const RULES: &[Rule] = &[
    Rule::new(RuleId::PauseLoops, Behaviour(pauses), Hold::USUAL).described(RuleDoc {
        sees: "vCPUs spin on locks whose holder does not run",
        problem: "vCPUs spin on locks",
        why: "A vCPU that spins (4096 cycles of PAUSE) exits: where vCPUs wait for a CPU, the \
            lock's holder is one of them",
        thresholds: thresholds![scheduling.pause, scheduling.pause_wait],
        limits: "Whether the lock's holder waits is inferred from the wait of all vCPUs; without \
            it, an info only",
        fix: "Pins, fewer vCPUs or less load on the guest's CPUs; without wait, the program inside \
            the guest",
        links: &[links::KERNEL_PARAMETERS, links::SCHED_STATS],
    }),
    Rule::new(RuleId::HostInterrupts, Behaviour(interrupts), Hold::USUAL).described(RuleDoc {
        sees: "interrupts of the host stop the guest far more often than its tick",
        problem: "host interrupts stop it",
        why: "Each interrupt that a host CPU receives while it runs a guest is an exit: device \
            interrupts routed to that CPU, rescheduling and function calls from other CPUs, timers \
            of other tasks",
        thresholds: thresholds![scheduling.interrupts_ticks, scheduling.interrupts_isolated],
        limits: "Which interrupts they are is not known. Without the host's tick rate 1000 Hz is \
            assumed",
        fix: "Interrupt affinity on the host",
        links: &[links::IRQ_AFFINITY],
    }),
    Rule::new(RuleId::HaltPollBurn, Behaviour(halt_poll), Hold::USUAL).described(RuleDoc {
        sees: "halt polling turns the guest's idle time into host CPU time",
        problem: "halt polling burns CPU",
        why: "Before KVM lets a halted vCPU sleep, it polls a little for its next interrupt. That \
            saves a wake-up when the interrupt comes soon; when it comes later, the polling only \
            costs host CPU (shown as system time)",
        thresholds: thresholds![scheduling.halt_poll, scheduling.halt_poll_guest],
        limits: "Needs KVM's counters of each vCPU. A host that is idle for more than 20 % of its \
            time gets an info only",
        fix: "A KVM module parameter on the host",
        links: &[links::HALT_POLLING],
    }),
    Rule::new(RuleId::VcpuMigrating, Behaviour(migrating), Hold::USUAL).described(RuleDoc {
        sees: "busy vCPUs are moved from CPU to CPU",
        problem: "vCPUs move between CPUs",
        why: "A move to another core leaves the caches behind, one to another node the memory too",
        thresholds: thresholds![pinning.busy, pinning.migrations, pinning.far_migrations],
        limits: "A move to a sibling thread counts half; without wait and moves to another cache \
            it is an info",
        fix: "Pins of the guest's threads, at once and in the domain's XML",
        links: &[
            links::CPU_TUNING,
            "https://docs.kernel.org/scheduler/sched-domains.html",
        ],
    }),
    Rule::new(RuleId::VcpuWait, Behaviour(wait), Hold::USUAL).described(RuleDoc {
        sees: "the guest's vCPUs are ready to run and wait for a CPU",
        problem: "vCPUs wait for a CPU",
        why: "The guest sees this time as steal. More tasks want these CPUs than there are, or a \
            quota stops the guest",
        thresholds: thresholds![pinning.busy, pinning.wait],
        limits: "A less busy vCPU: a warning from 5 % of a CPU on, if its wait would be critical. \
            Who ran meanwhile is known only with scheduler tracepoints. A finding that explains it \
            includes this one",
        fix: "Less load on the guest's CPUs; pins of its threads where the host has CPUs to spare",
        links: &[links::SCHED_STATS, links::CPU_TUNING],
    }),
    Rule::new(RuleId::WakeupLatency, Behaviour(wakeups), Hold::USUAL).described(RuleDoc {
        sees: "woken vCPUs start late though their CPU is free",
        problem: "vCPUs wake up late",
        why: "On an idle CPU of its own a vCPU should run about 50 us after its interrupt. A \
            longer delay usually means a deep sleep state that the CPU has to leave, or kernel \
            work with interrupts disabled",
        thresholds: thresholds![pinning.wakeup_us],
        limits: "Needs scheduler tracepoints and a vCPU pinned to one CPU. What delays the wake-up \
            is not visible",
        fix: "CPU sleep states on the host, which costs power; or -overcommit cpu-pm=on for the \
            guest",
        links: &[
            "https://docs.kernel.org/admin-guide/pm/cpuidle.html",
            links::HALT_POLLING,
        ],
    }),
];

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

fn wait(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let mut late = Vec::new();
    let mut marks = Vec::new();
    let mut lost = 0.0;
    for thread in guest.domain.vcpus() {
        if let Some(cpu) = thread.cpu
            && let Some(severity) = ctx.severity_of_wait(&cpu)
            && let Some(percent) = cpu.wait_percent()
        {
            lost += cpu.wait.unwrap_or(0.0);
            marks.push(Mark::Thread(thread.tid));
            marks.extend(thread.pinned_cpu().map(Mark::Pcpu));
            late.push((severity, percent, thread));
        }
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
fn pauses(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let exits = guest.exits(&[ExitKind::Pause]);
    let Some(per_vcpu) = exits.per_vcpu_or_tell(verdicts) else {
        return;
    };
    let t = &ctx.thresholds().scheduling;
    let Some(severity) = t.pause.severity(per_vcpu) else {
        return;
    };
    let wait = guest.domain.vcpu_wait_percent();
    let waits = or_unknown(wait, figure);
    let evidence = vec![
        exits.describe("pause-loop exits", ""),
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

fn migrating(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
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

fn wakeups(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let (info_us, warning_us) = ctx.thresholds().pinning.wakeup_us;
    for thread in guest.domain.vcpus() {
        let (Some(cpu), Some(own), Some(w)) = (thread.pinned_cpu(), thread.cpu, &thread.wakeups)
        else {
            continue;
        };
        let (Some(median), Some(p99)) = (w.quantile_us(0.5), w.quantile_us(0.99)) else {
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
        let fix = vec![
            fixes::command(
                "tuned-adm profile virtual-host-latency 2>/dev/null || cpupower idle-set -D 10",
            )
            .needing("keeps CPUs out of deep sleep; costs power"),
            fixes::advice(
                "For a guest with CPUs of its own: -overcommit cpu-pm=on, or a larger \
                    kvm.halt_poll_ns",
            )
            .only(Audience::Qemu),
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

fn halt_poll(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let t = &ctx.thresholds().scheduling;
    let Some(Poller {
        thread,
        percent,
        failed_percent,
    }) = busiest(guest, t.halt_poll_guest)
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
    let fix = vec![
        fixes::command("echo 50000 > /sys/module/kvm/parameters/halt_poll_ns").needing(
            "on older kernels for guests that start afterwards; raises wake-up latency a little",
        ),
        fixes::advice(
            "Keep it where the guest has its CPUs to itself and latency matters more than power",
        ),
    ];
    let found = Finding {
        cost: Some(percent),
        ..Finding::new(severity, Confidence::High, evidence, fix)
    };
    verdicts.find(found.about_vcpu(thread));
}

/// The mostly idle vCPU that polls most; of equal ones the first.
fn busiest<'a>(guest: &GuestContext<'a>, max_guest_percent: f64) -> Option<Poller<'a>> {
    let idle = guest.domain.vcpus().filter(|thread| {
        let in_guest = thread.cpu.and_then(|cpu| cpu.kind(|cpu| cpu.guest));
        in_guest.is_some_and(|percent| percent < max_guest_percent)
    });
    idle.filter_map(polling).reduce(|most, next| {
        if next.percent > most.percent {
            next
        } else {
            most
        }
    })
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

fn interrupts(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let exits = guest.exits(&[ExitKind::HostInterrupt]);
    let Some(rate) = exits.rate_or_tell(verdicts) else {
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
    let tick_hz = (ctx.model.host.facts.tick_hz).map_or(MAX_TICK_HZ, f64::from);
    if per_vcpu < tick_hz * t.interrupts_ticks {
        return;
    }
    let mut pins = guest.domain.vcpus().filter_map(ThreadModel::pinned_cpu);
    let isolated = pins.any(|cpu| ctx.topology().is_isolated(cpu));
    let severity = if isolated && per_vcpu >= t.interrupts_isolated {
        Severity::Warning
    } else {
        Severity::Info
    };
    let evidence = vec![
        exits.describe("host interrupts", "in the running guest"),
        format!(
            "the host's own tick causes at most {}/s on a busy vCPU",
            figure(tick_hz)
        ),
    ];
    let fix = vec![
        fixes::command("grep . /proc/irq/*/effective_affinity_list; cat /proc/interrupts")
            .needing("shows which interrupts arrive on the guest's CPUs"),
        fixes::advice(
            "Route device interrupts away from the guest's CPUs (/proc/irq/N/smp_affinity_list)",
        ),
    ];
    verdicts.find(Finding::new(severity, Confidence::Medium, evidence, fix).caused_by(exits));
}
