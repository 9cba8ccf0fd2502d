//! Hardware threads and NUMA nodes: what the guest sees against where its vCPUs and its memory are.

mod memory_nodes;
pub(super) mod rules;
mod smt;
mod texts;
