//! How the guest's vCPUs get their CPUs.

use crate::lint::context::guest::{Context, ExitKind, GuestContext};
use crate::lint::context::totals::told;
use crate::lint::engine::text::figure;
use crate::lint::engine::verdicts::{NO_VCPUS, Verdicts};
use crate::lint::{Confidence, Finding, Mark, Severity, Target, fix, propose};
use crate::model::{CpuShare, ThreadModel};
use crate::sample::OtherTask;

const CPUTUNE_DOC: &str = "https://libvirt.org/formatdomain.html#cpu-tuning";
const SCHEDSTAT_DOC: &str = "https://docs.kernel.org/scheduler/sched-stats.html";

/// Wait as percent of the time that the thread ran or wanted to.
pub(crate) fn waiting(cpu: &CpuShare) -> Option<f64> {
    let wait = cpu.wait?;
    let wanted = wait + cpu.busy();
    Some(if wanted > 0.0 { 100.0 * wait / wanted } else { 0.0 })
}

/// Whether a vCPU wants its CPU enough for its wait to matter.
fn wants(cpu: &CpuShare, busy: f64) -> bool {
    cpu.busy() + cpu.wait.unwrap_or(0.0) >= busy
}

/// S-01: pause-loop exits.
pub(crate) fn pauses(world: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let seen = guest.exits(&[ExitKind::Pause]);
    if seen.count == 0 {
        return;
    }
    if seen.rate.is_none() {
        return verdicts.cannot(guest.no_rate());
    }
    let Some(per) = seen.per_vcpu else { return verdicts.cannot(NO_VCPUS) };
    let t = &world.options.thresholds.scheduling;
    let Some(mut severity) = t.pause.of(per) else { return };
    let wait = guest.domain.vcpu_wait_percent();
    if wait.is_none_or(|w| w < t.pause_wait) {
        severity = Severity::Info;
    }
    let waiting = severity > Severity::Info;
    let mut evidence = vec![told(guest, &seen, "pause-loop exits")];
    evidence.push(wait.map_or_else(
        || "whether its vCPUs wait for CPUs is not known".into(),
        |w| format!("its vCPUs wait for a CPU {} % of the time they want one", figure(w)),
    ));
    evidence.push(guest.perf("vmexit"));
    let fixes = if waiting {
        let mut f = propose::fixes(world, guest);
        f.push(fix::advice("Give the guest no more vCPUs than can run at the same time, or move load off its CPUs"));
        f
    } else {
        let inside =
            "it is contention inside the guest. Profile the guest (perf top) for spin locks; fewer vCPUs may be faster";
        vec![fix::advice(match wait {
            Some(_) => format!("The vCPUs run and yet spin: {inside}"),
            None => format!(
                "Look first whether the vCPUs wait for CPUs (/proc/PID/task/TID/schedstat, twice: the second figure is the wait in ns). If they do, \
                 give the guest no more vCPUs than can run at the same time; if not, {inside}"
            ),
        })]
    };
    verdicts.find(Finding {
        severity,
        confidence: if waiting { Confidence::High } else { Confidence::Medium },
        title: if waiting { "vCPUs spin on locks whose holder has no CPU".into() } else { "vCPUs spin on locks".into() },
        evidence,
        why: "The CPU notices a vCPU that spins (4096 cycles of PAUSE) and leaves the guest, so that another vCPU may run. With vCPUs waiting for a CPU \
              the lock's holder is probably one of them"
            .into(),
        fix: fixes,
        see: vec!["https://docs.kernel.org/admin-guide/kernel-parameters.html".into(), SCHEDSTAT_DOC.into()],
        cost: seen.cost,
        marks: seen.marks,
        ..Finding::default()
    });
}

/// S-02: interrupts of the host while the guest runs.
pub(crate) fn interrupts(world: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let seen = guest.exits(&[ExitKind::HostInterrupt]);
    if seen.count == 0 {
        return;
    }
    if seen.rate.is_none() {
        return verdicts.cannot(guest.no_rate());
    }
    // How many vCPUs were busy is only estimated where neither rows per vCPU nor CPU times tell: too little to blame the host.
    let measured = seen.vcpu.is_some() || guest.vcpu_threads().any(|t| t.cpu.is_some());
    let average = seen.rate.zip(guest.vcpus()).map(|(r, n)| r / n);
    let per = if measured { seen.per_vcpu } else { average };
    let Some(per) = per else { return verdicts.cannot(NO_VCPUS) };
    let t = &world.options.thresholds.scheduling;
    // Without the host's tick rate, the highest that kernels are built with.
    let tick = world.model.host.facts.tick_hz.map_or(1000.0, f64::from);
    if per < tick * t.interrupts_ticks {
        return;
    }
    let host = propose::topology(world.model);
    let isolated = guest.vcpu_threads().filter_map(ThreadModel::pinned_cpu).any(|c| host.is_isolated(c));
    let severity = if isolated && per >= t.interrupts_isolated { Severity::Warning } else { Severity::Info };
    let mut evidence = vec![told(guest, &seen, "host interrupts while the guest ran")];
    evidence.push(match world.model.host.facts.tick_hz {
        Some(hz) => format!("the host's own tick accounts for at most {hz}/s on a busy vCPU"),
        None => "the host's tick (at most 1000/s on a busy vCPU) does not explain that".into(),
    });
    evidence.push("check: trace-cmd record -e kvm:kvm_exit, whose intr_info names the vector on Intel (0xec tick, 0xfd reschedule, 0xfb call function); watch -d cat /proc/interrupts".into());
    verdicts.find(Finding {
        severity,
        confidence: Confidence::Medium,
        title: "Interrupts of the host stop the guest far more often than the host's tick".into(),
        evidence,
        why: "Each interrupt that a host CPU takes while it runs a guest is an exit: device interrupts routed to that CPU, rescheduling and function calls \
              from other CPUs, timers of other tasks, or interrupts meant for the guest that are not posted"
            .into(),
        fix: vec![
            fix::command("grep . /proc/irq/*/effective_affinity_list; cat /proc/interrupts").needing("shows which interrupts land on the guest's CPUs"),
            fix::advice("Route device interrupts away from the guest's CPUs (irqaffinity= on the kernel command line, /proc/irq/N/smp_affinity_list), unless they are the guest's own passed-through devices"),
        ],
        see: vec!["https://docs.kernel.org/core-api/irq/irq-affinity.html".into()],
        cost: seen.cost,
        marks: seen.marks,
        ..Finding::default()
    });
}

/// S-03: halt polling that mostly fails.
pub(crate) fn halt_poll(world: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let t = &world.options.thresholds.scheduling;
    let mut worst: Option<(f64, f64, &ThreadModel)> = None;
    for thread in guest.vcpu_threads() {
        let ns = |name: &str| thread.counters.get(name).copied();
        let (Some(fail), Some(hit)) = (ns("halt_poll_fail_ns"), ns("halt_poll_success_ns")) else { continue };
        let Some(cpu) = thread.cpu else { continue };
        let percent = (fail + hit) / 1e7;
        if cpu.guest < t.halt_poll_guest && worst.is_none_or(|(p, ..)| percent > p) {
            worst = Some((percent, fail / 1e7, thread));
        }
    }
    let Some((percent, failed, thread)) = worst.or_else(|| halt_poll_average(guest, t.halt_poll_guest)) else { return };
    let Some(mut severity) = t.halt_poll.of(percent) else { return };
    let idle = world.model.host.total().map(|h| h.idle + h.iowait);
    if idle.is_none_or(|i| i > 20.0) {
        severity = Severity::Info;
    }
    let ns = world.param("kvm.halt_poll_ns").unwrap_or("200000");
    verdicts.find(Finding {
        severity,
        confidence: Confidence::High,
        target: Target::Vcpu(thread.index.unwrap_or_default()),
        title: "Halt polling turns the guest's idle time into host CPU time".into(),
        evidence: vec![
            format!("{} polls {} % of the time ({} % in vain) {} while its guest runs {} %", thread.label(), figure(percent), figure(failed), guest.window(), figure(thread.cpu.map_or(0.0, |c| c.guest))),
            format!("kvm.halt_poll_ns is {ns}"),
            "check: cat /sys/module/kvm/parameters/halt_poll_ns; kvm_stat -1 | grep halt_poll".into(),
        ],
        why: "Before it lets a halted vCPU sleep, KVM waits a little for its next interrupt. That saves a wake-up for latency's sake, and costs host CPU \
              (shown as system time) when interrupts come a little later than it polls"
            .into(),
        fix: vec![
            fix::command("echo 50000 > /sys/module/kvm/parameters/halt_poll_ns").needing("effective for guests started afterwards on older kernels; raises wake-up latency a little"),
            fix::advice("Leave it where the guest has its CPUs to itself and latency matters more than the power"),
        ],
        see: vec!["https://docs.kernel.org/virt/kvm/halt-polling.html".into()],
        cost: Some(percent),
        marks: thread.index.map(Mark::Vcpu).into_iter().collect(),
        ..Finding::default()
    });
}

/// The same where KVM's counters are sums over the vCPUs, as in debugfs: what each polls on average, told of the one that
/// uses most system time.
fn halt_poll_average<'a>(guest: &GuestContext<'a>, idle: f64) -> Option<(f64, f64, &'a ThreadModel)> {
    let ns = |name: &str| guest.domain.counters.get(name).copied();
    let (fail, hit) = (ns("halt_poll_fail_ns")?, ns("halt_poll_success_ns")?);
    let vcpus: Vec<(&ThreadModel, CpuShare)> = guest.vcpu_threads().filter_map(|t| Some((t, t.cpu?))).collect();
    let count = vcpus.len() as f64;
    if vcpus.is_empty() || vcpus.iter().map(|v| v.1.guest).sum::<f64>() / count >= idle {
        return None;
    }
    let (thread, _) = vcpus.into_iter().max_by(|a, b| a.1.sys.total_cmp(&b.1.sys))?;
    Some(((fail + hit) / 1e7 / count, fail / 1e7 / count, thread))
}

/// P-01: a busy vCPU that moves.
pub(crate) fn migrating(world: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let Some(seconds) = guest.seconds else { return };
    let t = &world.options.thresholds.pinning;
    let host = propose::topology(world.model);
    let mut all = 0.0;
    let mut found: Option<(f64, Severity, &ThreadModel)> = None;
    for thread in guest.vcpu_threads() {
        let (Some(total), Some(cpu)) = (thread.migrations.total, thread.cpu) else { continue };
        if !wants(&cpu, t.busy) || thread.pinned_cpu().is_some() {
            continue;
        }
        let rate = total as f64 / seconds;
        all += rate;
        let far = |n: u64| n as f64 / seconds;
        // A move to a sibling keeps the caches: count it half.
        let near = total.saturating_sub(thread.migrations.cross_core) as f64 / seconds;
        let weighted = if host.has_smt() { rate - near / 2.0 } else { rate };
        let mut severity = t.migrations.of(weighted);
        if far(thread.migrations.cross_llc) >= t.far_migrations {
            severity = severity.max(Some(Severity::Warning));
        }
        if far(thread.migrations.cross_node) >= t.far_migrations {
            severity = Some(Severity::Critical);
        } else if waiting(&cpu).is_some_and(|w| w < 5.0) && far(thread.migrations.cross_llc) < t.far_migrations {
            // The scheduler spreads unpinned guests by design; without wait it hurts little.
            severity = severity.map(|_| Severity::Info);
        }
        if let Some(severity) = severity
            && found.is_none_or(|(r, s, _)| (severity, rate) > (s, r))
        {
            found = Some((rate, severity, thread));
        }
    }
    let Some((rate, severity, thread)) = found else { return };
    let m = &thread.migrations;
    let mut fixes = propose::fixes(world, guest);
    if fixes.is_empty() {
        fixes.push(fix::advice("Pin each busy vCPU to a CPU of its own; on this host there is no room for that beside the other guests' pins, so move a guest away first"));
    }
    verdicts.find(Finding {
        severity,
        confidence: Confidence::High,
        title: "Busy vCPUs are moved from CPU to CPU".into(),
        evidence: vec![
            format!("{} moved {}/s {} ({} to another core, {} to another last-level cache, {} to another node); all busy vCPUs together {}/s", thread.label(), figure(rate), guest.window(), m.cross_core, m.cross_llc, m.cross_node, figure(all)),
            format!("it wants a CPU {} % of the time{}", figure(thread.cpu.map_or(0.0, |c| c.busy() + c.wait.unwrap_or(0.0))), thread.cpu.as_ref().and_then(waiting).map_or_else(String::new, |w| format!(" and waits {} % of that", figure(w)))),
            format!("check: grep nr_migrations /proc/{}/task/{}/sched, twice", guest.domain.facts.pid.unwrap_or_default(), thread.tid),
        ],
        why: "Each move to another core leaves the caches behind, and one to another node leaves the memory behind as well. The scheduler moves what is \
              not pinned whenever something else wants its CPU"
            .into(),
        fix: fixes,
        see: vec![CPUTUNE_DOC.into(), "https://docs.kernel.org/scheduler/sched-domains.html".into()],
        marks: guest.vcpu_threads().filter(|t| t.migrations.total.unwrap_or(0) > 0).filter_map(|t| t.index).map(Mark::Vcpu).collect(),
        ..Finding::default()
    });
}

/// P-02: time on the run queue.
pub(crate) fn wait(world: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let t = &world.options.thresholds.pinning;
    let mut worst: Option<(f64, Severity, &ThreadModel)> = None;
    let mut lost = 0.0;
    let mut marks = Vec::new();
    for thread in guest.vcpu_threads() {
        let Some(cpu) = thread.cpu.filter(|c| wants(c, t.busy)) else { continue };
        let Some(share) = waiting(&cpu) else { continue };
        let Some(severity) = t.wait.of(share) else { continue };
        lost += cpu.wait.unwrap_or(0.0);
        marks.push(Mark::Thread(thread.tid));
        marks.extend(thread.pinned_cpu().map(Mark::Pcpu));
        if worst.is_none_or(|(s, ..)| share > s) {
            worst = Some((share, severity, thread));
        }
    }
    let Some((share, severity, thread)) = worst else { return };
    let mut evidence = vec![format!(
        "{} waits {} % of the time it wants a CPU {}; all its vCPUs together lose {} % of one CPU",
        thread.label(),
        figure(share),
        guest.window(),
        figure(lost)
    )];
    if !thread.preempted_by.is_empty() {
        let who: Vec<String> = thread
            .preempted_by
            .iter()
            .take(3)
            .map(|o| format!("{} ({} ms)", who(world, o), figure(o.ns as f64 / 1e6)))
            .collect();
        evidence.push(format!("meanwhile its CPU ran {}", who.join(", ")));
    }
    evidence.push(format!(
        "check: cat /proc/{}/task/{}/schedstat, twice: the second figure is the wait in ns",
        guest.domain.facts.pid.unwrap_or_default(),
        thread.tid
    ));
    let mut fixes = Vec::new();
    if thread.pinned_cpu().is_none() {
        fixes.extend(propose::fixes(world, guest));
    }
    fixes.push(fix::advice(
        "Take load off the CPUs that this guest may use: other guests, tasks of the host, or vCPUs it does not need",
    ));
    verdicts.find(Finding {
        severity,
        confidence: Confidence::High,
        title: "vCPUs are ready to run and wait for a CPU".into(),
        evidence,
        why: "The guest sees this time as steal: it is late with everything it does and cannot know why. It shows when more tasks want the CPUs than there \
              are, or when a quota stops the guest"
            .into(),
        fix: fixes,
        see: vec![SCHEDSTAT_DOC.into(), CPUTUNE_DOC.into()],
        cost: Some(lost),
        marks,
        ..Finding::default()
    });
}

/// A task by what it is to a guest, else by its name.
fn who(world: &Context<'_>, task: &OtherTask) -> String {
    let of = |g: &GuestContext<'_>| {
        let thread = g.domain.threads.iter().find(|t| t.tid == task.tid)?;
        Some(format!("{} of {}", thread.label(), g.name()))
    };
    world.guests.iter().find_map(of).unwrap_or_else(|| task.comm.clone())
}

/// P-12: from woken to running, on a CPU that is free.
pub(crate) fn wakeups(world: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let (info_us, warning_us) = world.options.thresholds.pinning.wakeup_us;
    for thread in guest.vcpu_threads() {
        let (Some(cpu), Some(w)) = (thread.pinned_cpu(), &thread.wakeups) else { continue };
        if w.count < 20 || thread.cpu.is_none_or(|c| c.wait.is_some_and(|x| x >= 2.0)) {
            continue;
        }
        // Somebody else on the CPU is another rule's matter.
        let seat = world.model.host.cpu(cpu);
        let own = thread.cpu.map_or(0.0, |c| c.busy());
        if seat.and_then(|s| s.time).is_none_or(|t| t.busy() - own > 10.0) {
            continue;
        }
        let (Some(median), Some(p99)) = (w.quantile_us(0.5), w.quantile_us(0.99)) else { continue };
        let severity = if p99 >= warning_us {
            Severity::Warning
        } else if median >= info_us {
            Severity::Info
        } else {
            continue;
        };
        verdicts.find(Finding {
            severity,
            confidence: Confidence::Medium,
            target: Target::Vcpu(thread.index.unwrap_or_default()),
            title: "Woken vCPUs take long to run though their CPU is free".into(),
            evidence: vec![
                format!("{}: half of {} wake-ups took over {} us, one in a hundred over {} us {}", thread.label(), w.count, figure(median), figure(p99), guest.window()),
                format!("check: perf sched record -C {cpu} sleep 10; perf sched latency"),
            ],
            why: "On an idle CPU of its own a vCPU should run some 50 us after its interrupt. More than that is mostly a deep sleep state the CPU has to \
                  leave, or kernel work with interrupts off"
                .into(),
            fix: vec![
                fix::command("tuned-adm profile virtual-host-latency 2>/dev/null || cpupower idle-set -D 10").needing("keeps CPUs out of deep sleep; costs power"),
                fix::advice("For a guest with CPUs of its own: -overcommit cpu-pm=on lets the guest idle the CPU itself; a larger kvm.halt_poll_ns hides the rest"),
            ],
            see: vec!["https://docs.kernel.org/admin-guide/pm/cpuidle.html".into(), "https://docs.kernel.org/virt/kvm/halt-polling.html".into()],
            marks: thread.index.map(Mark::Vcpu).into_iter().chain([Mark::Pcpu(cpu)]).collect(),
            ..Finding::default()
        });
        return;
    }
}
