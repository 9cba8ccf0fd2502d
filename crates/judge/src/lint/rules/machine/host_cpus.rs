//! The host's CPUs: their frequency, and what an outer hypervisor takes of them.

use crate::figures::{duration, figure};
use crate::lint::facts::{Confidence, Context, Finding, Mark, Severity, Verdicts};
use crate::lint::fixes;
use crate::model::CpuModel;
use kvm::CpuSet;
use kvm::topology::{CPU_BASE_KHZ, CPU_DRIVER, CPU_GOVERNOR, CPU_MAX_KHZ, EFFICIENCY_CPUS};

/// `800 MHz`, `1.5 GHz`.
fn clock(khz: f64) -> String {
    if khz < 1e6 {
        format!("{} MHz", figure(khz / 1e3))
    } else {
        format!("{} GHz", figure(khz / 1e6))
    }
}

fn khz(ctx: &Context<'_>, name: &str) -> Option<f64> {
    ctx.param(name)?.parse().ok().filter(|khz| *khz > 0.0)
}

/// Whether a governor can cost speed: it raises a CPU's clock only after it was busy for a while,
/// or never.
fn is_slow(governor: &str, driver: Option<&str>) -> bool {
    match (governor, driver) {
        ("ondemand" | "conservative" | "schedutil", _) => true,
        // The hardware chooses the frequency, so that `powersave` is no fixed low one
        // (Documentation/admin-guide/pm/ `intel_pstate.rst` and `amd-pstate.rst`, "active mode").
        (_, None | Some("intel_pstate" | "amd-pstate-epp" | "amd_pstate_epp")) => false,
        _ => governor == "powersave",
    }
}

pub(super) fn frequency(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    crate::lint::incidents::logged(ctx, verdicts);
    if !ctx.is_file() && ctx.model.host.facts.virtualised != Some(true) {
        by_clocks(ctx, verdicts);
    }
}

/// A busy CPU whose clock is known.
struct BusyCpu {
    cpu: u32,
    khz: f64,
    busy: f64,
}

fn busy_cpus(ctx: &Context<'_>) -> Vec<BusyCpu> {
    let others = ctx.param(EFFICIENCY_CPUS).unwrap_or_default();
    let others = CpuSet::parse(others).unwrap_or_default();
    // Without a tick the kernel shows what it asked for, not what the CPU does.
    let others = others.union(&ctx.topology().nohz_full.clone().unwrap_or_default());
    let mut all = Vec::new();
    for cpu in &ctx.model.host.cpus {
        if let Some(khz) = cpu.frequency_khz
            && let Some(time) = cpu.time
            && time.busy() >= ctx.thresholds().machine.clock_busy
            && !others.contains(cpu.cpu)
        {
            all.push(BusyCpu {
                cpu: cpu.cpu,
                khz: khz as f64,
                busy: time.busy(),
            });
        }
    }
    all
}

/// Busy CPUs at low clocks.
fn by_clocks(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    let t = &ctx.thresholds().machine;
    let Some(full) = khz(ctx, CPU_BASE_KHZ).or_else(|| khz(ctx, CPU_MAX_KHZ)) else {
        return;
    };
    let mut slow = busy_cpus(ctx);
    let count = slow.len();
    slow.retain(|cpu| 100.0 * cpu.khz / full < t.slow_clock);
    let limits = fixes::advice(
        "Look for what limits the clock: firmware or BMC, a power cap, heat, scaling_max_freq",
    );
    let heat = throttled(ctx);
    let Some(worst) = slow.iter().min_by(|a, b| a.khz.total_cmp(&b.khz)) else {
        if let Some(heat) = heat {
            verdicts.find(Finding {
                title: "Heat throttled the host's CPUs".into(),
                ..Finding::new(Severity::Info, Confidence::High, vec![heat], vec![limits])
            });
        }
        return;
    };
    let mut evidence = vec![format!(
        "CPU {} runs at {} while it is {} % busy; {} of {count} busy CPUs run below {} % of {}",
        worst.cpu,
        clock(worst.khz),
        figure(worst.busy),
        slow.len(),
        figure(t.slow_clock),
        clock(full)
    )];
    let mut fix = Vec::new();
    if let Some(governor) = ctx.param(CPU_GOVERNOR) {
        let driver = ctx.param(CPU_DRIVER);
        let name = driver.unwrap_or("unknown");
        evidence.push(format!("the governor is {governor}, the driver {name}"));
        if is_slow(governor, driver) {
            fix.push(
                fixes::command("cpupower frequency-set -g performance").needing(
                    "until the next boot; costs power. tuned-adm profile virtual-host keeps it",
                ),
            );
        }
    }
    evidence.extend(heat);
    evidence.push(
        "look at: turbostat; grep . /sys/devices/system/cpu/cpu*/cpufreq/scaling_*_freq".into(),
    );
    fix.push(limits);
    verdicts.find(Finding {
        marks: slow.iter().map(|slow| Mark::Pcpu(slow.cpu)).collect(),
        ..Finding::new(Severity::Warning, Confidence::Medium, evidence, fix)
    });
}

/// How often heat throttled CPUs, as last read.
fn throttled(ctx: &Context<'_>) -> Option<String> {
    let cpus = &ctx.model.host.cpus;
    let worst = cpus.iter().max_by_key(|cpu| throttles(cpu))?;
    if throttles(worst) == 0 {
        return None;
    }
    Some(format!(
        "heat throttled {} of {} CPUs; CPU {} most often: {} in {}",
        cpus.iter().filter(|cpu| throttles(cpu) > 0).count(),
        cpus.len(),
        worst.cpu,
        throttles(worst),
        duration(worst.power?.over_ns as f64 / 1e3)
    ))
}

/// How often heat throttled a CPU; 0 where that is unknown.
fn throttles(cpu: &CpuModel) -> u64 {
    cpu.power.and_then(|power| power.throttles).unwrap_or(0)
}

pub(super) fn steal(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    let cpus = &ctx.model.host.cpus;
    let Some(mean) = ctx.model.host.total() else {
        return;
    };
    let total = mean.steal * cpus.len() as f64;
    let shares = cpus.iter().filter_map(|c| Some((c.cpu, c.time?.steal)));
    let worst = shares.max_by(|a, b| a.1.total_cmp(&b.1));
    let Some((cpu, share)) = worst.filter(|w| w.1 >= ctx.thresholds().machine.steal) else {
        return;
    };
    let evidence = vec![format!(
        "{} % of CPU {cpu} is stolen; {} % of one CPU over the whole host",
        figure(share),
        figure(total)
    )];
    let fix = vec![fixes::advice(
        "Move to a larger or dedicated instance, or ask the outer hypervisor's operator",
    )];
    verdicts.find(Finding {
        cost: Some(total),
        marks: vec![Mark::Pcpu(cpu)],
        ..Finding::new(Severity::Warning, Confidence::High, evidence, fix)
    });
}
