//! The placement plan as a whole, with the text to paste.

use crate::lint::facts::{Context, Fix, Options, host_tasks_by_cpu};
use crate::lint::fixes;
use crate::model::Model;
use crate::placement::{CpuMap, GuestLayout, GuestPlan};
use sample::DomainFacts;
use std::collections::BTreeMap;
use std::sync::Arc;

/// One placement of all guests on a host.
#[derive(Debug, Clone, Default)]
pub struct HostPlan {
    /// The host's CPUs; empty where they are unknown, and then nothing is planned.
    pub map: CpuMap,
    /// CPU time of the host's own tasks on the CPUs that the plan avoids for them, percent.
    pub busy: BTreeMap<u32, f64>,
    /// The guests, in the order of the model.
    pub guests: Vec<PlannedGuest>,
}

/// A guest's part of the plan.
#[derive(Debug, Clone, Default)]
pub struct PlannedGuest {
    /// The guest.
    pub facts: Arc<DomainFacts>,
    /// Where its threads may run.
    pub before: GuestLayout,
    /// Where they may run after the plan.
    pub after: GuestLayout,
    /// The changes.
    pub plan: GuestPlan,
    /// The commands and XML to get there.
    pub fix: Vec<Fix>,
    /// The commands and XML that restore the current placement.
    pub undo: Vec<Fix>,
}

/// Plans the placement of all guests of a host. Pure, and applies nothing.
pub fn plan(model: &Model, options: &Options) -> HostPlan {
    let ctx = Context::new(model, options);
    let whole = ctx.plan();
    let mut guests = Vec::new();
    for guest in &ctx.guests {
        let mut fix = fixes::placement::guest_placement(&ctx, guest);
        fixes::in_place(&ctx.guests, Some(guest.index), &mut fix);
        guests.push(PlannedGuest {
            facts: guest.domain.facts.clone(),
            before: ctx.layout(guest).clone(),
            after: whole.after[guest.index].clone(),
            plan: whole.guests[guest.index].clone(),
            fix,
            undo: fixes::placement::undo(&ctx, guest),
        });
    }
    HostPlan {
        map: ctx.map().clone(),
        busy: host_tasks_by_cpu(model, options),
        guests,
    }
}
