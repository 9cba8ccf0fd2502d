//! The interrupt controller: whether its hardware acceleration works, and how much the guest uses it.

mod apicv;
mod lapic;
pub(super) mod rules;
mod texts;
