//! How rules weigh and word their figures.

use crate::lint::Severity;
use crate::lint::context::guest::{Context, EventTotals, GuestContext};
use crate::lint::engine::text::{figure, maybe};

/// The highest severity of several verdicts.
pub(crate) fn worst(all: impl IntoIterator<Item = Option<Severity>>) -> Option<Severity> {
    all.into_iter().flatten().max()
}

/// A severity by what exits cost.
pub(crate) fn by_cost(world: &Context<'_>, guest: &GuestContext<'_>, seen: &EventTotals) -> Option<Severity> {
    let cost = seen.cost?;
    let steps = &world.options.thresholds.cost;
    worst([steps.of_one_cpu.of(cost), guest.over_vcpus(cost).and_then(|c| steps.of_vcpus.of(c))])
}

/// `15 879/s reads of … over 10 s, 1986/s on vCPU 3, 45 % of the guest's exits, costing 18 % of one CPU`.
pub(crate) fn told(guest: &GuestContext<'_>, seen: &EventTotals, what: &str) -> String {
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
pub(crate) fn raise(s: Severity) -> Severity {
    match s {
        Severity::Info => Severity::Warning,
        Severity::Warning | Severity::Critical => Severity::Critical,
    }
}
