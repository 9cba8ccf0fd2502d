//! Flushes of a disk's write cache that take most of its time.

use super::texts;
use crate::lint::prelude::*;
use crate::model::DiskRates;

pub(super) fn flushes(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let t = &ctx.thresholds().disks;
    let busy = |disk: &DiskRates| {
        let (ops, us) = disk.flush_ops.filter(|ops| *ops >= t.flushes).zip(disk.flush_mean_us)?;
        Some((ops * us / 1e4, ops, us))
    };
    let all = guest.domain.disks.iter().filter_map(|disk| busy(disk).map(|busy| (disk, busy)));
    let Some((disk, (percent, ops, us))) = all.max_by(|a, b| a.1.0.total_cmp(&b.1.0)) else { return };
    let Some(severity) = t.flush_time.of(percent) else { return };
    verdicts.find(Finding {
        severity,
        confidence: Confidence::Medium,
        evidence: vec![
            texts::flushing(&disk.name, percent, ops, us),
            texts::latencies(disk),
            format!("check: {}", fixes::virsh(guest, "domstats", "--block")),
        ],
        fix: vec![fixes::advice(texts::FLUSH_LESS), fixes::advice(texts::FLUSH_FASTER)],
        ..texts::FLUSHES.finding()
    });
}
