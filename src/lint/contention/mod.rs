//! Who else runs on the CPUs of pinned vCPUs.

pub(super) mod capacity;

use crate::kvm::CpuSet;
use crate::kvm::thread_name::Role;
use crate::lint::context::guest::{Context, GuestContext};
use crate::lint::engine::text::figure;
use crate::lint::engine::verdicts::Verdicts;
use crate::lint::{Confidence, Finding, Mark, Severity, Target, fix, propose};
use crate::model::{HostTaskModel, ThreadModel};

const ISOLATION_DOC: &str = "https://docs.kernel.org/admin-guide/cpu-isolation.html";
const PARAMETERS_DOC: &str = "https://docs.kernel.org/admin-guide/kernel-parameters.html";
const IRQ_DOC: &str = "https://docs.kernel.org/core-api/irq/irq-affinity.html";
const REALTIME_DOC: &str = "https://libvirt.org/kbase/kvm-realtime.html";

fn names<'a>(tasks: impl IntoIterator<Item = &'a HostTaskModel>) -> String {
    let names: Vec<String> =
        tasks.into_iter().take(4).map(|t| format!("{} ({} %)", t.comm, figure(t.cpu_percent))).collect();
    names.join(", ")
}

/// vCPUs pinned to one CPU, with that CPU.
fn vcpu_cpus<'a>(guest: &GuestContext<'a>) -> Vec<(&'a ThreadModel, u32)> {
    guest.vcpu_threads().filter_map(|t| Some((t, t.pinned_cpu()?))).collect()
}

/// P-08: what disturbs an isolated CPU.
pub(crate) fn noise(world: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let host = propose::topology(world.model);
    let t = &world.options.thresholds.pinning;
    let mut worst: Option<(Severity, u32, Vec<String>)> = None;
    let isolated: Vec<(&ThreadModel, u32)> =
        vcpu_cpus(guest).into_iter().filter(|(_, c)| host.is_isolated(*c)).collect();
    if !isolated.is_empty() && !isolated.iter().any(|(_, c)| world.model.host.cpu(*c).is_some_and(|s| s.time.is_some()))
    {
        return verdicts.cannot("what else the isolated CPUs do is not known");
    }
    for (thread, cpu) in isolated {
        let Some(seat) = world.model.host.cpu(cpu) else { continue };
        if seat.device_irq_rate.is_none() {
            // A large host's interrupts are counted now and then only.
            verdicts.unread();
        }
        let mut severity = None;
        let mut lines = Vec::new();
        if let Some(rate) = seat.device_irq_rate
            && let Some(s) = t.isolated_irqs.of(rate)
        {
            severity = severity.max(Some(s));
            lines.push(format!(
                "{} device interrupts/s on isolated CPU {cpu}, which {} is pinned to",
                figure(rate),
                thread.label()
            ));
        }
        let soft = seat.time.map_or(0.0, |t| t.softirq + t.irq);
        let kernel: Vec<&HostTaskModel> =
            world.model.host.tasks.iter().filter(|k| k.kernel && k.last_cpu == cpu).collect();
        let share = soft + kernel.iter().map(|k| k.cpu_percent).sum::<f64>();
        if let Some(s) = t.isolated_cpu.of(share) {
            severity = severity.max(Some(s));
            let who = if kernel.is_empty() { String::new() } else { format!(", kernel threads {}", names(kernel)) };
            lines.push(format!(
                "kernel work takes {} % of isolated CPU {cpu} (interrupts {} %{who})",
                figure(share),
                figure(soft)
            ));
        }
        let full = host.nohz_full.as_ref().is_some_and(|s| s.contains(cpu));
        if full && seat.timer_irq_rate.is_some_and(|r| r >= t.nohz_ticks) && thread.cpu.is_some_and(|c| c.busy() > 50.0)
        {
            severity = severity.max(Some(Severity::Info));
            lines.push(format!("{} timer interrupts/s on nohz_full CPU {cpu}: more than one task wants it, or something keeps its tick", figure(seat.timer_irq_rate.unwrap_or(0.0))));
        }
        if let Some(s) = severity
            && worst.as_ref().is_none_or(|w| s > w.0)
        {
            worst = Some((s, cpu, lines));
        }
    }
    let Some((severity, cpu, mut evidence)) = worst else { return };
    evidence.push("check: watch -d cat /proc/interrupts; perf top -C CPU".into());
    let rest = host.all().difference(&host.isolated.clone().unwrap_or_default());
    verdicts.find(Finding {
        severity,
        confidence: Confidence::High,
        target: Target::Pcpu(cpu),
        title: "Interrupts or kernel threads disturb an isolated CPU with a vCPU".into(),
        evidence,
        why: "isolcpus keeps other tasks away, not interrupts, timers and kernel threads bound to the CPU. Each of them is an exit and a wait for the vCPU".into(),
        fix: vec![
            fix::kernel(format!("irqaffinity={rest} rcu_nocbs={} nohz_full={}", host.isolated.clone().unwrap_or_default(), host.isolated.clone().unwrap_or_default())),
            fix::command(format!("for i in /proc/irq/[0-9]*/smp_affinity_list; do echo {rest} > $i 2>/dev/null; done")).needing("effective at once, until the next boot; queues of multiqueue devices refuse, see managed_irq"),
        ],
        see: vec![ISOLATION_DOC.into(), IRQ_DOC.into(), PARAMETERS_DOC.into()],
        marks: vec![Mark::Pcpu(cpu)],
        ..Finding::default()
    });
}

/// P-11: real-time vCPUs that share.
pub(crate) fn realtime(world: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let host = propose::topology(world.model);
    let live = guest.vcpu_threads().next().is_some();
    // Which CPUs are isolated is not in every description of a host.
    let shares = |cpu: Option<u32>| cpu.is_none_or(|c| host.isolated.is_some() && !host.is_isolated(c));
    let bad: Vec<(u32, Option<u32>)> = if live {
        guest
            .vcpu_threads()
            .filter(|t| matches!(t.place.policy, Some(1 | 2)) && shares(t.pinned_cpu()))
            .filter_map(|t| Some((t.index?, t.pinned_cpu())))
            .collect()
    } else {
        let pin = |v: u32| guest.config.pins.vcpu(v).and_then(CpuSet::single);
        guest
            .config
            .pins
            .realtime
            .iter()
            .map(|v| (*v, pin(*v)))
            .filter(|(_, c)| !host.cpus.is_empty() && shares(*c))
            .collect()
    };
    let throttled =
        world.param("kernel.sched_rt_runtime_us").and_then(|v| v.parse::<i64>().ok()).is_some_and(|us| us >= 0)
            && guest
                .vcpu_threads()
                .any(|t| matches!(t.place.policy, Some(1 | 2)) && t.cpu.is_some_and(|c| c.busy() > 94.0));
    let mut evidence = Vec::new();
    if let Some((v, cpu)) = bad.first() {
        let place =
            cpu.map_or_else(|| "is not pinned to one CPU".into(), |c| format!("is on CPU {c}, which is not isolated"));
        evidence.push(format!("vCPU {v} has a real-time policy and {place}; {} such vCPUs", bad.len()));
    }
    if throttled {
        evidence.push(
            "a real-time vCPU uses more than 94 % of its CPU, and sched_rt_runtime_us stops real-time tasks at 95 %"
                .into(),
        );
    }
    if evidence.is_empty() {
        return;
    }
    evidence.push("check: chrt -ap PID; cat /proc/sys/kernel/sched_rt_runtime_us".into());
    let fixes = if bad.is_empty() {
        vec![fix::command("sysctl kernel.sched_rt_runtime_us=-1").needing(
            "effective at once, until the next boot; only where every real-time task has a CPU of its own, since nothing stops one that runs wild",
        )]
    } else {
        realtime_fixes(world, guest)
    };
    verdicts.find(Finding {
        severity: Severity::Warning,
        confidence: Confidence::High,
        title: if bad.is_empty() {
            "The kernel stops a real-time vCPU that uses its whole CPU".into()
        } else {
            "A real-time vCPU shares its CPU".into()
        },
        evidence,
        why: "A vCPU with real-time priority keeps everything else off its CPU: kworkers that deliver its own interrupts, vhost, the emulator. Either those \
              starve, or the kernel stops the vCPU for 5 % of each second"
            .into(),
        fix: fixes,
        see: vec![REALTIME_DOC.into()],
        marks: bad.iter().map(|b| Mark::Vcpu(b.0)).collect(),
        ..Finding::default()
    });
}

fn realtime_fixes(world: &Context<'_>, guest: &GuestContext<'_>) -> Vec<crate::lint::Fix> {
    let host = propose::topology(world.model);
    let mut fixes = propose::fixes(world, guest);
    if let Some(p) = propose::for_guest(world, guest).filter(|p| p.vcpus.iter().any(|c| !host.is_isolated(*c))) {
        let cpus = p.vcpus.iter().copied().collect::<CpuSet>().union(&host.isolated.clone().unwrap_or_default());
        fixes.push(fix::kernel(format!("isolcpus={cpus} nohz_full={cpus} rcu_nocbs={cpus}")));
    }
    fixes.push(fix::advice(
        "Or take <vcpusched> out of the domain: without CPUs of its own a real-time vCPU does more harm than good",
    ));
    fixes
}

/// CPU time that other guests' threads had on a CPU, percent.
fn of_other_guests(world: &Context<'_>, guest: &GuestContext<'_>, cpu: u32) -> f64 {
    let tenants = world.model.host.cpu(cpu).map(|c| c.tenants.iter()).into_iter().flatten();
    let others =
        tenants.filter(|t| t.here && world.model.domains.get(t.domain).is_some_and(|d| !std::ptr::eq(d, guest.domain)));
    others.map(|t| t.cpu).sum()
}

/// P-14: tasks of the host on a pinned vCPU's CPU.
pub(crate) fn strangers(world: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let host = propose::topology(world.model);
    let t = &world.options.thresholds.pinning;
    let mut worst: Option<(Severity, f64, u32, &ThreadModel, String)> = None;
    let mut cpus = CpuSet::new();
    for (thread, cpu) in vcpu_cpus(guest).into_iter().filter(|(_, c)| !host.is_isolated(*c)) {
        let tasks: Vec<&HostTaskModel> = world.model.host.tasks.iter().filter(|k| k.last_cpu == cpu).collect();
        let used: f64 = tasks.iter().map(|k| k.cpu_percent).sum();
        let Some(mut severity) = t.strangers.of(used) else { continue };
        let wait = thread
            .cpu
            .filter(|c| c.busy() + c.wait.unwrap_or(0.0) >= t.busy)
            .as_ref()
            .and_then(crate::lint::scheduling::waiting);
        // Wait behind another guest is not theirs.
        let theirs = used >= of_other_guests(world, guest, cpu);
        if theirs && wait.is_some_and(|w| w >= t.wait.warning) {
            severity = severity.max(Severity::Warning);
        } else if thread.cpu.is_some_and(|c| c.busy() < 10.0) {
            // Nobody is hurt while the vCPU is idle.
            severity = Severity::Info;
        }
        cpus.insert(cpu);
        if worst.as_ref().is_none_or(|w| (severity, used) > (w.0, w.1)) {
            let waits = wait
                .map_or_else(String::new, |w| format!("; the vCPU waits {} % of the time it wants the CPU", figure(w)));
            worst = Some((severity, used, cpu, thread, format!("{}{waits}", names(tasks))));
        }
    }
    let Some((severity, used, cpu, thread, who)) = worst else { return };
    let apart = guest.vcpu_cpus.single.union(&host.isolated.clone().unwrap_or_default());
    let rest = host.all().difference(&apart);
    let mut fixes = Vec::new();
    if !rest.is_empty() {
        fixes.push(
            fix::command(format!(
                "systemctl set-property --runtime user.slice AllowedCPUs={rest}\nsystemctl set-property --runtime system.slice AllowedCPUs={rest}"
            ))
            .needing("effective at once, until the next boot; needs cgroup v2"),
        );
    }
    fixes.push(fix::kernel(format!("isolcpus={apart}")));
    let mut marks: Vec<Mark> = cpus.iter().map(Mark::Pcpu).collect();
    marks.extend(thread.index.map(Mark::Vcpu));
    verdicts.find(Finding {
        severity,
        confidence: Confidence::High,
        target: Target::Pcpu(cpu),
        title: "Tasks of the host run on the CPU of a pinned vCPU".into(),
        evidence: vec![
            format!("tasks outside of the guests use {} % of CPU {cpu}, which {} is pinned to: {who}", figure(used), thread.label()),
            format!("check: ps -eLo psr,pcpu,comm --sort=-pcpu | awk '$1 == {cpu}' | head"),
        ],
        why: "A pin keeps the vCPU on its CPU; it keeps nobody else away. Whatever else runs there stops the vCPU, which cannot move".into(),
        fix: fixes,
        see: vec![ISOLATION_DOC.into(), PARAMETERS_DOC.into()],
        cost: Some(used),
        marks,
        ..Finding::default()
    });
}

/// P-15: no CPU left for the host.
pub(crate) fn starved(world: &Context<'_>, verdicts: &mut Verdicts) {
    let host = propose::topology(world.model);
    let online: CpuSet = world.model.host.cpus.iter().map(|c| c.cpu).collect();
    let online = if online.is_empty() { host.all() } else { online };
    let pinned = world.guests.iter().filter(|g| g.running()).fold(CpuSet::new(), |a, g| a.union(&g.vcpu_cpus.single));
    if pinned.is_empty() {
        return;
    }
    if online.is_empty() {
        return verdicts.cannot("which CPUs the host has is not known (lscpu -p or virsh capabilities tells)");
    }
    let nodes: Vec<CpuSet> = match host.nodes() {
        n if n.is_empty() => vec![online.clone()],
        n => n.iter().map(|n| host.cpus_of_node(n).intersection(&online)).filter(|s| !s.is_empty()).collect(),
    };
    let full: Vec<&CpuSet> = nodes.iter().filter(|n| n.is_subset(&pinned)).collect();
    let waiting = world
        .guests
        .iter()
        .flat_map(|g| g.domain.threads.iter().filter(|t| t.role == Role::Emulator))
        .filter_map(|t| t.cpu)
        .filter_map(|c| c.wait)
        .fold(0.0, f64::max);
    let starving = waiting >= world.options.thresholds.pinning.starved_wait && pinned.len() * 2 > online.len();
    if full.is_empty() && !starving {
        return;
    }
    let mut evidence = Vec::new();
    if let Some(first) = full.first() {
        evidence.push(format!(
            "single vCPUs are pinned to every CPU of {first}; {} of {} nodes are full",
            full.len(),
            nodes.len()
        ));
    }
    if starving {
        evidence.push(format!("an emulator thread waits {} % of the time for a CPU", figure(waiting)));
    }
    evidence.push("check: virsh vcpupin of each guest against lscpu -e".into());
    verdicts.find(Finding {
        severity: Severity::Warning,
        confidence: Confidence::High,
        target: Target::Host,
        title: "Pinned vCPUs leave the host no CPU of its own".into(),
        evidence,
        why: "Emulators, vhost, libvirtd, ssh and the kernel need CPU time too. With a vCPU pinned to every CPU all of it is taken from guests, at moments \
              nobody chose"
            .into(),
        fix: vec![fix::advice("Keep the first core of every node free of vCPU pins: take a vCPU away from a guest, or move it to another node or host")],
        see: vec![ISOLATION_DOC.into()],
        marks: full.iter().flat_map(|s| s.iter()).take(64).map(Mark::Pcpu).collect(),
        ..Finding::default()
    });
}
