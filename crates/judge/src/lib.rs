//! What kvmtop concludes from samples: rates and shares, placement, rules and their findings.

pub mod analysis;
pub mod cost;
pub mod figures;
pub mod lint;
pub mod model;
pub mod placement;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
