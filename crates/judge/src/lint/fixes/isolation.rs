//! Which CPUs the host can give to pinned vCPUs alone. One answer for all guests, so that two
//! findings never propose options that contradict each other.

use super::{advice, kernel};
use crate::lint::facts::{Context, Fix};
use kvm::CpuSet;

/// What a host without a spare CPU can do.
pub(crate) const KEEP_FIRST_CORES: &str = "Keep a core free of vCPU pins, or move a guest to \
    another host";

/// The CPUs of a host by what they are for after the plan.
pub(crate) struct Isolation {
    /// CPUs that single vCPUs have, and those that are isolated now.
    guests: CpuSet,
    /// The rest, for the host's own tasks. Some CPU has to keep house for the isolated ones.
    pub host: CpuSet,
    /// The most vCPUs of a guest that are not pinned to single CPUs. They have to do with the
    /// host's CPUs.
    roaming: usize,
    /// Whether pinned vCPUs have CPUs that are not isolated yet.
    pub gives: bool,
    is_known: bool,
}

impl Isolation {
    /// Divides the host. A guest that the plan need not move counts as it is, unless it is
    /// real-time: then its fix is to move.
    pub fn new(ctx: &Context<'_>) -> Self {
        let map = ctx.map();
        let plan = ctx.plan();
        let mut guests = map.isolated.clone();
        let mut roaming = 0;
        for guest in ctx.running() {
            let stays = plan.guests[guest.index].optional && !guest.is_realtime();
            let layout = if stays {
                ctx.layout(guest)
            } else {
                &plan.after[guest.index]
            };
            guests = guests.union(&layout.single(map));
            roaming = roaming.max(layout.vcpus.len() - layout.pins(map).count());
        }
        // The boot CPU stays with the host whatever the option says (kernel/sched/isolation.c,
        // housekeeping_setup).
        let kept: CpuSet = map.general().first().into_iter().collect();
        let guests = guests.difference(&kept);
        Self {
            host: map.general().difference(&guests),
            roaming,
            gives: !guests.is_subset(&map.isolated),
            guests,
            is_known: !map.all.is_empty(),
        }
    }

    /// The kernel options that give the CPUs to the guests, each with the same list; or the reason
    /// against them.
    pub fn options(&self, names: &[&str]) -> Option<Fix> {
        if !self.is_known {
            return Some(advice(
                "Isolate the CPUs of pinned vCPUs with isolcpus= on the host's \
                kernel command line, and leave CPU 0 to the host; lscpu -p beside the other files \
                says which CPUs there are",
            ));
        }
        if !self.gives {
            return None;
        }
        if self.roaming > self.host.len() {
            return Some(advice(
                "isolcpus= is not proposed: a guest has more vCPUs without \
                CPUs of their own than CPUs would be left for them. Pin them first, or move a \
                guest to another host",
            ));
        }
        let options: Vec<String> = names
            .iter()
            .map(|name| format!("{name}={}", self.guests))
            .collect();
        Some(kernel(options.join(" ")))
    }
}
