//! Real load on an emulated network card or disk controller.

use super::texts::{self, EmulatedKind};
use crate::lint::prelude::*;
use crate::model::AccessRow;

/// How the names of regions of emulated devices begin (QEMU's `info mtree`).
const KINDS: &[(&EmulatedKind, &[&str])] = &[
    (&texts::NETWORK_CARD, &["e1000", "rtl8139", "pcnet", "ne2000", "vmxnet3"]),
    (&texts::DISK_CONTROLLER, &["ahci", "ide", "piix-bmdma", "bmdma", "lsi-", "megasas"]),
];

pub(super) fn emulated(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    for (kind, regions) in KINDS {
        let of = |name: &str| regions.iter().any(|prefix| name.starts_with(prefix));
        let accesses = guest.accesses(|r| r.device_name().is_some_and(of));
        if accesses.count == 0 {
            continue;
        }
        let Some(rate) = accesses.rate else { return verdicts.cannot_tell(guest.why_no_rate()) };
        if rate < ctx.thresholds().devices.emulated {
            continue;
        }
        let mut names = guest.domain.accesses.iter().filter_map(AccessRow::device_name);
        let region = names.find(|n| of(n)).unwrap_or(kind.name);
        return verdicts.find(Finding {
            severity: Severity::Info,
            confidence: Confidence::High,
            title: texts::emulated_title(kind),
            why: texts::EMULATED_WHY.into(),
            evidence: vec![accesses.describe(guest, "accesses", &format!("to {region}")), guest.perf_check("mmio")],
            fix: vec![fixes::advice(texts::change_to_virtio(kind, guest.config.libvirt))],
            cost: accesses.cost,
            marks: accesses.marks,
            ..Finding::default()
        });
    }
    unnamed(ctx, guest, verdicts);
}

/// Says of a busy address whose device nothing names that no rule about devices could judge it.
fn unnamed(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let is_unnamed = |r: &&AccessRow| r.vcpu.is_none() && r.space != Space::Msr && r.device.is_none();
    let rows = guest.domain.accesses.iter().filter(is_unnamed);
    let rates = rows.filter_map(|r| Some((r, r.rate?)));
    let Some((row, rate)) = rates.max_by(|a, b| a.1.total_cmp(&b.1)) else { return };
    if rate >= ctx.thresholds().devices.emulated {
        verdicts.cannot_tell(texts::unnamed_address(row.space, &row.address_text(), rate));
    }
}
