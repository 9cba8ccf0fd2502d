//! A block device of the host that is slow.

use super::texts;
use crate::lint::prelude::*;
use crate::model::addressed;

pub(super) fn slow_storage(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let t = &ctx.thresholds().disks;
    let Some(disks) = &guest.domain.host_disks else {
        let slow = |us: f64| t.storage_us.of(us).is_some();
        let mut asked = guest.domain.disks.iter().filter(|d| d.read_ops + d.write_ops >= t.timed_ops);
        if asked.any(|d| d.slowest_us().is_some_and(slow)) {
            verdicts.cannot_tell(texts::NOT_TIMED);
        }
        return;
    };
    let timed = addressed(disks).filter(|disk| disk.ops() >= t.timed_ops).filter_map(|d| Some((d, d.mean_us().0?)));
    let Some((disk, us)) = timed.max_by(|a, b| a.1.total_cmp(&b.1)) else { return };
    let Some(severity) = t.storage_us.of(us) else { return };
    verdicts.find(Finding {
        severity,
        confidence: Confidence::High,
        evidence: vec![texts::device(disk), "look at: iostat -x 1".to_owned()],
        fix: vec![fixes::advice(texts::LOOK_AT_STORAGE)],
        ..texts::STORAGE.finding()
    });
}
