//! Real load on emulated network cards and disk controllers, and polling of old ports.

use super::texts::{EMULATED, POLLED, Regions};
use crate::lint::prelude::*;

/// The first group of regions that the guest uses at least this often.
fn used<T>(
    guest: &GuestContext<'_>,
    groups: &'static [(Regions, T)],
    least: f64,
    verdicts: &mut Verdicts,
) -> Option<(Regions, &'static T, EventTotals)> {
    for (regions, group) in groups {
        let accesses = guest.accesses(|r| r.device_name().is_some_and(|name| is_of(regions, name)));
        let rate = accesses.rate_or_tell(guest, verdicts);
        if accesses.count > 0 && rate.is_none_or(|rate| rate >= least) {
            return rate.map(|_| (*regions, group, accesses));
        }
    }
    None
}

fn is_of(regions: Regions, name: &str) -> bool {
    regions.iter().any(|prefix| name.starts_with(prefix))
}

pub(super) fn emulated(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let least = ctx.thresholds().devices.emulated;
    let Some((regions, (kind, element, device), accesses)) = used(guest, EMULATED, least, verdicts) else {
        return unnamed(guest, least, verdicts);
    };
    let mut names = guest.domain.accesses.iter().filter_map(AccessRow::device_name);
    let region = names.find(|name| is_of(regions, name)).unwrap_or(kind);
    let evidence = vec![accesses.describe(guest, "accesses", &format!("to {region}")), guest.perf_check("mmio")];
    let what = if guest.config.libvirt == Some(false) { device } else { element };
    let change = fixes::advice(format!(
        "Change the device to virtio: set {what}. First install the virtio drivers in the guest (Windows: \
         virtio-win); without them it does not find its {kind}"
    ));
    let found = Finding::new(Severity::Info, Confidence::High, evidence, vec![change]).caused_by(accesses);
    verdicts.find(Finding { title: format!("An emulated {kind} does real work"), ..found });
}

/// Says of a busy address whose device nothing names that no rule about devices could judge it.
fn unnamed(guest: &GuestContext<'_>, least: f64, verdicts: &mut Verdicts) {
    let is_unnamed = |r: &&AccessRow| r.vcpu.is_none() && r.space != Space::Msr && r.device.is_none();
    let rows = guest.domain.accesses.iter().filter(is_unnamed);
    let rates = rows.filter_map(|r| Some((r, r.rate?)));
    let Some((row, rate)) = rates.max_by(|a, b| a.1.total_cmp(&b.1)).filter(|(_, rate)| *rate >= least) else { return };
    let what = if row.space == Space::Pio { "port" } else { "address" };
    let (address, rate) = (row.address_text(), figure(rate));
    verdicts.cannot_tell(format!("nothing names the device of {what} {address}, which gets {rate} accesses/s"));
}

/// Polling of old ports.
pub(super) fn polling(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let least = ctx.thresholds().devices.polling;
    let Some((_, (name, help), accesses)) = used(guest, POLLED, least, verdicts) else { return };
    let fix = help.map_or_else(|| fixes::vmport_off(guest), |help| vec![fixes::advice(help)]);
    let evidence = vec![accesses.describe(guest, "accesses", ""), guest.perf_check("ioport")];
    let found = Finding::new(Severity::Info, Confidence::High, evidence, fix).caused_by(accesses);
    verdicts.find(Finding { title: format!("The guest polls {name}"), ..found });
}
