//! A guest's own NUMA cells, as domain XML and QEMU's `-numa` describe them.

use super::CpuSet;
use serde::{Deserialize, Serialize};

/// A NUMA cell of the guest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GuestNumaCell {
    /// Cell number.
    pub id: u32,
    /// Its vCPUs.
    pub cpus: CpuSet,
    /// Its memory in bytes.
    pub memory: Option<u64>,
    /// Host nodes that its memory is bound to (`<memnode>`, `host-nodes=` of its memory backend).
    pub host_nodes: Option<CpuSet>,
}
