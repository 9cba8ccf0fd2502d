//! What disturbs an isolated CPU with a pinned vCPU.

use super::texts;
use crate::lint::prelude::*;
use crate::model::{CpuModel, HostTaskModel};

/// A busier vCPU should have its CPU's tick stopped, percent.
const BUSY: f64 = 50.0;

/// What disturbs one CPU.
#[derive(Default)]
struct Noise {
    severity: Option<Severity>,
    evidence: Vec<String>,
    /// Interrupts of devices.
    devices: bool,
    /// The kernel's own work.
    kernel: bool,
    /// The timer tick on a CPU that should not get it.
    tick: bool,
}

fn noise_on(ctx: &Context<'_>, thread: &ThreadModel, cpu: &CpuModel) -> Noise {
    let t = &ctx.thresholds().pinning;
    let number = cpu.cpu;
    let mut noise = Noise::default();
    if let Some((rate, s)) = cpu.device_irq_rate.and_then(|rate| Some((figure(rate), t.isolated_irqs.of(rate)?))) {
        (noise.devices, noise.severity) = (true, Some(s));
        let name = thread.label();
        noise.evidence.push(format!("{rate} device interrupts/s on isolated CPU {number}, to which {name} is pinned"));
    }
    let interrupts = cpu.time.map_or(0.0, |t| t.softirq + t.irq);
    let on_cpu = |k: &&HostTaskModel| k.kernel && k.last_cpu == number;
    let kernel: Vec<&HostTaskModel> = ctx.model.host.tasks.iter().filter(on_cpu).collect();
    let share = interrupts + kernel.iter().map(|k| k.cpu_percent).sum::<f64>();
    if let Some(s) = t.isolated_cpu.of(share) {
        (noise.kernel, noise.severity) = (true, noise.severity.max(Some(s)));
        let (percent, interrupts) = (figure(share), figure(interrupts));
        let names = texts::tasks(&kernel);
        let threads = if names.is_empty() { names } else { format!(", kernel threads {names}") };
        noise.evidence.push(format!(
            "kernel work takes {percent} % of isolated CPU {number} (interrupts {interrupts} %{threads})"
        ));
    }
    let tickless = ctx.topology().nohz_full.as_ref().is_some_and(|s| s.contains(number));
    let busy = thread.cpu.is_some_and(|c| c.busy() > BUSY);
    if let Some(rate) = cpu.timer_irq_rate.filter(|r| tickless && busy && *r >= t.nohz_ticks) {
        (noise.tick, noise.severity) = (true, noise.severity.max(Some(Severity::Info)));
        let rate = figure(rate);
        noise.evidence.push(format!(
            "{rate} timer interrupts/s on nohz_full CPU {number}: several tasks want it, or something keeps its tick on"
        ));
    }
    noise
}

pub(super) fn noise(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let host = ctx.topology();
    let pinned = guest.vcpu_threads().filter_map(|t| Some((t, t.pinned_cpu()?)));
    let isolated: Vec<(&ThreadModel, u32)> = pinned.filter(|(_, c)| host.is_isolated(*c)).collect();
    let measured = |c: u32| ctx.model.host.cpu(c).is_some_and(|s| s.time.is_some());
    if !isolated.is_empty() && !isolated.iter().any(|(_, c)| measured(*c)) {
        return verdicts.cannot_tell("what else runs on the isolated CPUs is unknown");
    }
    let mut worst: Option<(u32, Noise)> = None;
    for (thread, number) in isolated {
        let Some(cpu) = ctx.model.host.cpu(number) else { continue };
        if cpu.device_irq_rate.is_none() {
            // A large host's interrupts are counted only every few intervals.
            verdicts.not_read();
        }
        let noise = noise_on(ctx, thread, cpu);
        if noise.severity > worst.as_ref().and_then(|w| w.1.severity) {
            worst = Some((number, noise));
        }
    }
    let Some((cpu, noise)) = worst else { return };
    let fix = quieten(ctx, &noise);
    let mut evidence = noise.evidence;
    evidence.push("look at: watch -d cat /proc/interrupts; perf top -C CPU".into());
    let found = Finding::new(noise.severity.unwrap_or_default(), Confidence::High, evidence, fix);
    verdicts.find(Finding { target: Target::Pcpu(cpu), marks: vec![Mark::Pcpu(cpu)], ..found });
}

/// Keeps what was seen off the isolated CPUs: first the options that keep it away for good, then what can be moved at
/// once, each with what it leaves.
fn quieten(ctx: &Context<'_>, noise: &Noise) -> Vec<Fix> {
    let (isolated, rest) = (&ctx.map().isolated, ctx.map().general());
    // A host whose CPUs are all isolated counts as one without.
    if isolated.is_empty() {
        return vec![fixes::advice(texts::ALL_ISOLATED)];
    }
    // The kernel drops nohz_full= where it differs from isolcpus= (kernel/sched/isolation.c, housekeeping_setup).
    let is_tickless = ctx.topology().nohz_full.as_ref().is_some_and(|full| isolated.is_subset(full));
    let mut fix = Vec::new();
    if noise.devices || noise.kernel {
        let mut options = format!("irqaffinity={rest}");
        if noise.kernel && !isolated.contains(0) {
            options += &format!(" rcu_nocbs={isolated}");
            options += &if is_tickless { String::new() } else { format!(" nohz_full={isolated}") };
        }
        let move_irqs = format!("for i in /proc/irq/[0-9]*/smp_affinity_list; do echo {rest} > $i 2>/dev/null; done");
        fix.push(fixes::kernel(options).needing(texts::NOISE_OPTIONS_NEED));
        fix.push(fixes::command(move_irqs).needing(texts::IRQ_AFFINITY_NEED));
    }
    if noise.kernel {
        // Work that no CPU is bound to (Documentation/core-api/workqueue.rst, "Affinity Scopes"). The mask is
        // hexadecimal, in groups of 32 CPUs.
        let move_work = format!("echo {} > /sys/devices/virtual/workqueue/cpumask", rest.mask());
        fix.push(fixes::command(move_work).needing(texts::WORKQUEUES_NEED));
    }
    if noise.tick {
        fix.push(fixes::advice(texts::KEPT_TICK));
    }
    if noise.kernel && isolated.contains(0) {
        fix.push(fixes::advice(texts::ISOLATED_BOOT_CPU));
    }
    fix
}
