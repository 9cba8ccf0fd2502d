//! A disk whose queue is full.

use super::setup::DiskSetup;
use super::texts;
use crate::lint::prelude::*;
use crate::model::DiskRates;

pub(super) fn queue(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let t = &ctx.thresholds().disks;
    if guest.domain.disks.iter().any(|d| d.queue_depth.is_none() && d.read_ops + d.write_ops > 0.0) {
        verdicts.cannot_tell(texts::NO_TIMES);
    }
    let full = |disk: &DiskRates| {
        let slots = DiskSetup::of(guest, &disk.name)?.slots()?;
        Some((100.0 * disk.queue_depth? / slots, slots))
    };
    let all = guest.domain.disks.iter().filter_map(|disk| full(disk).map(|(percent, slots)| (disk, percent, slots)));
    let Some((disk, percent, slots)) = all.max_by(|a, b| a.1.total_cmp(&b.1)) else { return };
    if percent < t.queue_full {
        return;
    }
    let slow = disk.slowest_us().is_some_and(|us| us >= t.queue_us);
    let one_at_a_time = slots < 2.0;
    verdicts.find(Finding {
        severity: if slow { Severity::Warning } else { Severity::Info },
        confidence: Confidence::Medium,
        evidence: vec![
            texts::full_queue(disk, percent, slots),
            texts::latencies(disk),
            format!("check: {}", fixes::virsh(guest, "domstats", "--block")),
        ],
        fix: vec![fixes::advice(if one_at_a_time { texts::USE_VIRTIO } else { texts::FEWER_REQUESTS })],
        ..texts::QUEUE.finding()
    });
}
