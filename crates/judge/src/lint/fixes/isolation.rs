//! Which CPUs the host can give to pinned vCPUs alone. One answer for all guests, so that two
//! findings never propose options that contradict each other.

use super::{advice, kernel};
use crate::lint::facts::{Context, Fix, GuestContext};
use kvm::CpuSet;

/// What a host without a spare CPU can do.
pub(crate) const KEEP_FIRST_CORES: &str = "Keep a core free of vCPU pins, or move a guest to \
    another host";

const UNKNOWN: &str = "Isolate the CPUs of pinned vCPUs with isolcpus= on the host's kernel \
    command line, and leave CPU 0 to the host; lscpu -p beside the other files says which CPUs \
    there are";

const TOO_FEW: &str = "isolcpus= is not proposed: a guest has more vCPUs without CPUs of their own \
    than CPUs would be left for them. Pin them first, or move a guest to another host";

/// The CPUs of a host by what they are for after the plan.
pub(crate) struct Isolation {
    /// CPUs that single vCPUs have, and those that are isolated now.
    guests: CpuSet,
    /// The rest, for the host's own tasks. May be empty.
    pub host: CpuSet,
    /// The CPU that stays with the host although a vCPU has it.
    kept: Option<u32>,
    /// The most vCPUs of a guest that are not pinned to single CPUs. They have to do with the
    /// host's CPUs.
    roaming: usize,
    isolated: CpuSet,
    is_known: bool,
}

impl Isolation {
    /// Divides the host. A guest that the plan need not move counts as it is, unless it is
    /// real-time: then its fix is to move.
    pub fn new(ctx: &Context<'_>) -> Self {
        let map = ctx.map();
        let plan = ctx.plan();
        let (mut guests, mut roaming) = (map.isolated.clone(), 0);
        for (g, now) in ctx.layouts.iter().enumerate().filter(|(_, l)| l.running) {
            let realtime = ctx.guests.get(g).is_some_and(GuestContext::is_realtime);
            let stays = plan.guests.get(g).is_none_or(|p| p.optional) && !realtime;
            let layout = if stays {
                now
            } else {
                plan.after.get(g).unwrap_or(now)
            };
            guests = guests.union(&layout.single(map));
            roaming = roaming.max(layout.vcpus.len() - layout.pins(map).count());
        }
        let general = map.general();
        // Some CPU has to keep house for the isolated ones, in the end the boot CPU whatever the
        // option says (kernel/sched/isolation.c, housekeeping_setup).
        let kept = general.first().filter(|cpu| guests.contains(*cpu));
        Self {
            host: general.difference(&guests),
            guests,
            kept,
            roaming,
            isolated: map.isolated.clone(),
            is_known: !map.all.is_empty(),
        }
    }

    /// Whether pinned vCPUs have CPUs that are not isolated yet.
    pub fn gives(&self) -> bool {
        !self.guests.is_subset(&self.isolated)
    }

    /// The kernel options that give the CPUs to the guests, each with the same list; or the reason
    /// against them.
    pub fn options(&self, names: &[&str]) -> Vec<Fix> {
        if !self.is_known {
            return vec![advice(UNKNOWN)];
        }
        let kept = self.kept.into_iter().collect();
        let cpus = self.guests.difference(&kept);
        let host = self.host.union(&kept);
        let mut fix = Vec::new();
        if !cpus.is_subset(&self.isolated) {
            let options = names
                .iter()
                .map(|n| format!("{n}={cpus}"))
                .collect::<Vec<_>>()
                .join(" ");
            fix.push(if self.roaming > host.len() {
                advice(TOO_FEW)
            } else {
                kernel(options)
            });
        }
        fix.extend(
            self.kept
                .map(|cpu| advice(format!("CPU {cpu} cannot be isolated: {KEEP_FIRST_CORES}"))),
        );
        fix
    }
}
