//! The frequency of the host's CPUs.

use crate::figures::{duration, figure};
use crate::lint::facts::{Confidence, Context, Finding, Mark, Severity, Verdicts};
use crate::lint::fixes;
use crate::model::CpuModel;
use kvm::CpuSet;
use kvm::topology::{CPU_BASE_KHZ, CPU_DRIVER, CPU_GOVERNOR, CPU_MAX_KHZ, EFFICIENCY_CPUS};

const FAST: &str = "cpupower frequency-set -g performance";
const FAST_NEED: &str = "until the next boot; costs power. tuned-adm profile virtual-host keeps it";
const LIMITS: &str = "Look for what limits the clock: firmware or BMC, a power cap, heat, \
    scaling_max_freq";
const CLOCK_LIMITS: &str = "look at: turbostat; grep . \
    /sys/devices/system/cpu/cpu*/cpufreq/scaling_*_freq";

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

/// Whether the hardware chooses the frequency, so that `powersave` is no fixed low one
/// (Documentation/admin-guide/pm/ `intel_pstate.rst` and `amd-pstate.rst`, "active mode").
fn is_hardwares(driver: &str) -> bool {
    matches!(driver, "intel_pstate" | "amd-pstate-epp" | "amd_pstate_epp")
}

/// Whether a governor can cost speed: it raises a CPU's clock only after it was busy for a while,
/// or never.
fn is_slow(governor: &str, driver: Option<&str>) -> bool {
    match governor {
        "ondemand" | "conservative" | "schedutil" => true,
        "powersave" => driver.is_some_and(|driver| !is_hardwares(driver)),
        _ => false,
    }
}

pub(super) fn frequency(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    crate::lint::incidents::logged(ctx, verdicts);
    if !ctx.is_file() && ctx.model.host.facts.virtualised != Some(true) {
        by_clocks(ctx, verdicts);
    }
}

/// Busy CPUs at low clocks.
fn by_clocks(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    let (t, topology) = (&ctx.thresholds().machine, ctx.topology());
    let Some(full) = khz(ctx, CPU_BASE_KHZ).or_else(|| khz(ctx, CPU_MAX_KHZ)) else {
        return;
    };
    let others = ctx
        .param(EFFICIENCY_CPUS)
        .and_then(|list| CpuSet::parse(list).ok())
        .unwrap_or_default();
    // Without a tick the kernel shows what it asked for, not what the CPU does.
    let others = topology
        .nohz_full
        .as_ref()
        .map_or(others.clone(), |cpus| others.union(cpus));
    let counted = ctx
        .model
        .host
        .cpus
        .iter()
        .filter(|cpu| !others.contains(cpu.cpu));
    let busy =
        counted.filter_map(|cpu| Some((cpu.frequency_khz? as f64, cpu.time?.busy(), cpu.cpu)));
    let busy: Vec<_> = busy.filter(|(_, busy, _)| *busy >= t.clock_busy).collect();
    let slow = busy
        .iter()
        .filter(|(khz, ..)| 100.0 * khz / full < t.slow_clock);
    let marks: Vec<Mark> = slow.clone().map(|(.., cpu)| Mark::Pcpu(*cpu)).collect();
    let heat = throttled(ctx);
    let Some((khz, percent, cpu)) = slow.min_by(|a, b| a.0.total_cmp(&b.0)) else {
        let found = heat.map(|heat| {
            Finding::new(
                Severity::Info,
                Confidence::High,
                vec![heat],
                vec![fixes::advice(LIMITS)],
            )
        });
        let title = "Heat throttled the host's CPUs";
        return found.into_iter().for_each(|found| {
            verdicts.find(Finding {
                title: title.into(),
                ..found
            });
        });
    };
    let (at, percent, limit, full) = (
        clock(*khz),
        figure(*percent),
        figure(t.slow_clock),
        clock(full),
    );
    let all = format!(
        "{} of {} busy CPUs run below {limit} % of {full}",
        marks.len(),
        busy.len()
    );
    let mut evidence = vec![format!(
        "CPU {cpu} runs at {at} while it is {percent} % busy; {all}"
    )];
    let (governor, driver) = (ctx.param(CPU_GOVERNOR), ctx.param(CPU_DRIVER));
    evidence.extend(governor.map(|name| {
        format!(
            "the governor is {name}, the driver {}",
            driver.unwrap_or("unknown")
        )
    }));
    evidence.extend(heat);
    evidence.push(CLOCK_LIMITS.into());
    let mut fix = Vec::new();
    if governor.is_some_and(|name| is_slow(name, driver)) {
        fix.push(fixes::command(FAST).needing(FAST_NEED));
    }
    fix.push(fixes::advice(LIMITS));
    let found = Finding::new(Severity::Warning, Confidence::Medium, evidence, fix);
    verdicts.find(Finding { marks, ..found });
}

/// How often heat throttled CPUs, as last read.
fn throttled(ctx: &Context<'_>) -> Option<String> {
    let times = |cpu: &CpuModel| {
        Some((
            cpu.power?.throttles.filter(|times| *times > 0)?,
            cpu.cpu,
            cpu.power?.over_ns,
        ))
    };
    let all: Vec<_> = ctx.model.host.cpus.iter().filter_map(times).collect();
    let (times, cpu, ns) = all.iter().max_by_key(|(times, ..)| *times)?;
    let over = duration(*ns as f64 / 1e3);
    let (n, of) = (all.len(), ctx.model.host.cpus.len());
    Some(format!(
        "heat throttled {n} of {of} CPUs; CPU {cpu} most often: {times} in {over}"
    ))
}
