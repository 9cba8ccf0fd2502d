//! What disturbs an isolated CPU with a pinned vCPU.

use super::texts;
use crate::lint::context::Context;
use crate::lint::context::guest::GuestContext;
use crate::lint::engine::finding::{Confidence, Finding, Fix, Mark, Severity, Target};
use crate::lint::fixes;
use crate::lint::verdicts::Verdicts;
use crate::model::{CpuModel, HostTaskModel, ThreadModel};

/// A busier vCPU should have its CPU's tick stopped, percent.
const BUSY: f64 = 50.0;

/// What disturbs one CPU: how much, and the evidence.
fn noise_on(ctx: &Context<'_>, thread: &ThreadModel, cpu: &CpuModel) -> (Option<Severity>, Vec<String>) {
    let t = &ctx.thresholds().pinning;
    let number = cpu.cpu;
    let mut severity = None;
    let mut lines = Vec::new();
    if let Some(rate) = cpu.device_irq_rate
        && let Some(s) = t.isolated_irqs.of(rate)
    {
        severity = severity.max(Some(s));
        lines.push(texts::device_interrupts(rate, number, &thread.label()));
    }
    let interrupts = cpu.time.map_or(0.0, |t| t.softirq + t.irq);
    let on_cpu = |k: &&HostTaskModel| k.kernel && k.last_cpu == number;
    let kernel: Vec<&HostTaskModel> = ctx.model.host.tasks.iter().filter(on_cpu).collect();
    let share = interrupts + kernel.iter().map(|k| k.cpu_percent).sum::<f64>();
    if let Some(s) = t.isolated_cpu.of(share) {
        severity = severity.max(Some(s));
        lines.push(texts::kernel_work(share, number, interrupts, &kernel));
    }
    let tickless = ctx.topology().nohz_full.as_ref().is_some_and(|s| s.contains(number));
    let busy = thread.cpu.is_some_and(|c| c.busy() > BUSY);
    if let Some(rate) = cpu.timer_irq_rate.filter(|r| tickless && busy && *r >= t.nohz_ticks) {
        severity = severity.max(Some(Severity::Info));
        lines.push(texts::timer_interrupts(rate, number));
    }
    (severity, lines)
}

pub(super) fn noise(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let host = ctx.topology();
    let pinned = guest.vcpu_threads().filter_map(|t| Some((t, t.pinned_cpu()?)));
    let isolated: Vec<(&ThreadModel, u32)> = pinned.filter(|(_, c)| host.is_isolated(*c)).collect();
    let measured = |c: u32| ctx.model.host.cpu(c).is_some_and(|s| s.time.is_some());
    if !isolated.is_empty() && !isolated.iter().any(|(_, c)| measured(*c)) {
        return verdicts.cannot_tell(texts::CPU_TIMES_UNKNOWN);
    }
    let mut worst: Option<(Severity, u32, Vec<String>)> = None;
    for (thread, number) in isolated {
        let Some(cpu) = ctx.model.host.cpu(number) else { continue };
        if cpu.device_irq_rate.is_none() {
            // A large host's interrupts are counted only every few intervals.
            verdicts.not_read();
        }
        if let (Some(severity), lines) = noise_on(ctx, thread, cpu)
            && worst.as_ref().is_none_or(|w| severity > w.0)
        {
            worst = Some((severity, number, lines));
        }
    }
    let Some((severity, cpu, mut evidence)) = worst else { return };
    evidence.push(texts::CHECK_NOISE.into());
    verdicts.find(Finding {
        severity,
        confidence: Confidence::High,
        target: Target::Pcpu(cpu),
        evidence,
        fix: quieten(ctx),
        marks: vec![Mark::Pcpu(cpu)],
        ..texts::NOISE.finding()
    });
}

/// Keeps interrupts and the kernel's own work off the isolated CPUs.
fn quieten(ctx: &Context<'_>) -> Vec<Fix> {
    let (isolated, rest) = (&ctx.map().isolated, ctx.map().general());
    // A host whose CPUs are all isolated counts as one without.
    if isolated.is_empty() {
        return vec![fixes::advice(texts::ALL_ISOLATED)];
    }
    let mut options = format!("irqaffinity={rest}");
    let move_irqs = fixes::command(texts::move_irqs(&rest)).needing(texts::IRQ_AFFINITY_NEED);
    // The kernel drops nohz_full= where it differs from isolcpus= (kernel/sched/isolation.c, housekeeping_setup).
    if isolated.contains(0) {
        return vec![fixes::kernel(options), move_irqs, fixes::advice(texts::ISOLATED_BOOT_CPU)];
    }
    options += &format!(" rcu_nocbs={isolated} nohz_full={isolated}");
    vec![fixes::kernel(options), move_irqs]
}
