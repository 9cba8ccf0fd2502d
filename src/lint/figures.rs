//! How rules weigh and word their figures.

use super::Severity;
use super::text::{figure, maybe};
use super::view::{Guest, Seen, World};

/// The highest severity of several answers.
pub(super) fn worst(all: impl IntoIterator<Item = Option<Severity>>) -> Option<Severity> {
    all.into_iter().flatten().max()
}

/// A severity by what exits cost.
pub(super) fn by_cost(world: &World<'_>, guest: &Guest<'_>, seen: &Seen) -> Option<Severity> {
    let cost = seen.cost?;
    let steps = &world.options.thresholds.cost;
    worst([steps.of_one_cpu.of(cost), guest.over_vcpus(cost).and_then(|c| steps.of_vcpus.of(c))])
}

/// `15 879/s reads of … over 10 s, 1986/s on vCPU 3, 45 % of the guest's exits, costing 18 % of one CPU`.
pub(super) fn told(guest: &Guest<'_>, seen: &Seen, what: &str) -> String {
    let on = seen.vcpu.map_or_else(|| "a busy vCPU on average".into(), |v| format!("vCPU {v}"));
    let each = seen.mean_us.map_or_else(String::new, |m| format!(" ({} us each)", figure(m)));
    let parts = [
        Some(format!("{}/s {what} {}", maybe(seen.rate), guest.window())),
        seen.per_vcpu.map(|per| format!("{}/s on {on}", figure(per))),
        seen.exit_share.map(|share| format!("{} % of the guest's exits", figure(share))),
        seen.cost.map(|cost| format!("costing {} % of one CPU{each}", figure(cost))),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// One level louder.
pub(super) fn raise(s: Severity) -> Severity {
    match s {
        Severity::Info => Severity::Warning,
        Severity::Warning | Severity::Critical => Severity::Critical,
    }
}
