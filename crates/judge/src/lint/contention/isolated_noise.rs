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

impl Noise {
    fn add(&mut self, severity: Severity, line: String) {
        self.severity = self.severity.max(Some(severity));
        self.evidence.push(line);
    }
}

fn noise_on(ctx: &Context<'_>, thread: &ThreadModel, cpu: &CpuModel) -> Noise {
    let t = &ctx.thresholds().pinning;
    let number = cpu.cpu;
    let mut noise = Noise::default();
    if let Some(rate) = cpu.device_irq_rate
        && let Some(s) = t.isolated_irqs.of(rate)
    {
        noise.devices = true;
        noise.add(s, texts::device_interrupts(rate, number, &thread.label()));
    }
    let interrupts = cpu.time.map_or(0.0, |t| t.softirq + t.irq);
    let on_cpu = |k: &&HostTaskModel| k.kernel && k.last_cpu == number;
    let kernel: Vec<&HostTaskModel> = ctx.model.host.tasks.iter().filter(on_cpu).collect();
    let share = interrupts + kernel.iter().map(|k| k.cpu_percent).sum::<f64>();
    if let Some(s) = t.isolated_cpu.of(share) {
        noise.kernel = true;
        noise.add(s, texts::kernel_work(share, number, interrupts, &kernel));
    }
    let tickless = ctx.topology().nohz_full.as_ref().is_some_and(|s| s.contains(number));
    let busy = thread.cpu.is_some_and(|c| c.busy() > BUSY);
    if let Some(rate) = cpu.timer_irq_rate.filter(|r| tickless && busy && *r >= t.nohz_ticks) {
        noise.tick = true;
        noise.add(Severity::Info, texts::timer_interrupts(rate, number));
    }
    noise
}

pub(super) fn noise(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let host = ctx.topology();
    let pinned = guest.vcpu_threads().filter_map(|t| Some((t, t.pinned_cpu()?)));
    let isolated: Vec<(&ThreadModel, u32)> = pinned.filter(|(_, c)| host.is_isolated(*c)).collect();
    let measured = |c: u32| ctx.model.host.cpu(c).is_some_and(|s| s.time.is_some());
    if !isolated.is_empty() && !isolated.iter().any(|(_, c)| measured(*c)) {
        return verdicts.cannot_tell(texts::CPU_TIMES_UNKNOWN);
    }
    let mut worst: Option<(Severity, u32, Noise)> = None;
    for (thread, number) in isolated {
        let Some(cpu) = ctx.model.host.cpu(number) else { continue };
        if cpu.device_irq_rate.is_none() {
            // A large host's interrupts are counted only every few intervals.
            verdicts.not_read();
        }
        let noise = noise_on(ctx, thread, cpu);
        if let Some(severity) = noise.severity
            && worst.as_ref().is_none_or(|w| severity > w.0)
        {
            worst = Some((severity, number, noise));
        }
    }
    let Some((severity, cpu, noise)) = worst else { return };
    let fix = quieten(ctx, &noise);
    let mut evidence = noise.evidence;
    evidence.push(texts::CHECK_NOISE.into());
    verdicts.find(Finding {
        severity,
        confidence: Confidence::High,
        target: Target::Pcpu(cpu),
        evidence,
        fix,
        marks: vec![Mark::Pcpu(cpu)],
        ..texts::NOISE.finding()
    });
}

/// Keeps what was seen off the isolated CPUs: first the options that keep it away for good, then what can be moved at
/// once, each with what it leaves.
fn quieten(ctx: &Context<'_>, noise: &Noise) -> Vec<Fix> {
    let (isolated, rest) = (&ctx.map().isolated, ctx.map().general());
    // A host whose CPUs are all isolated counts as one without.
    if isolated.is_empty() {
        return vec![fixes::advice(texts::ALL_ISOLATED)];
    }
    let mut options = Vec::new();
    if noise.devices || noise.kernel {
        options.push(format!("irqaffinity={rest}"));
    }
    // The kernel drops nohz_full= where it differs from isolcpus= (kernel/sched/isolation.c, housekeeping_setup).
    let is_tickless = ctx.topology().nohz_full.as_ref().is_some_and(|full| isolated.is_subset(full));
    if noise.kernel && !isolated.contains(0) {
        options.push(format!("rcu_nocbs={isolated}"));
        options.extend((!is_tickless).then(|| format!("nohz_full={isolated}")));
    }
    let mut fix = Vec::new();
    if !options.is_empty() {
        fix.push(fixes::kernel(options.join(" ")).needing(texts::NOISE_OPTIONS_NEED));
    }
    if noise.devices || noise.kernel {
        fix.push(fixes::command(texts::move_irqs(&rest)).needing(texts::IRQ_AFFINITY_NEED));
    }
    if noise.kernel {
        fix.push(fixes::command(texts::move_workqueues(&rest)).needing(texts::WORKQUEUES_NEED));
    }
    if noise.tick {
        fix.push(fixes::advice(texts::KEPT_TICK));
    }
    if noise.kernel && isolated.contains(0) {
        fix.push(fixes::advice(texts::ISOLATED_BOOT_CPU));
    }
    fix
}
