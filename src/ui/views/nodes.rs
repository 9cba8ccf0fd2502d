//! The NUMA nodes of the host: how much of their CPUs and memory guests have.

use super::Section;
use super::memory::size;
use crate::ui::{AppState, Column, RowKey, RowStyle, Table, TableId, left, right};
use judge::figures::{percent, rate, share};
use judge::model::{DomainModel, HostNodeModel, Model};
use kvm::CpuSet;

/// A node.
pub struct NodeRow<'a> {
    model: &'a Model,
    node: &'a HostNodeModel,
    cpus: CpuSet,
}

impl NodeRow<'_> {
    /// How busy its CPUs are on average, percent.
    fn busy(&self) -> Option<f64> {
        let times = self
            .cpus
            .iter()
            .filter_map(|cpu| self.model.host.cpu(cpu)?.time);
        let sum = times.map(|time| time.busy()).reduce(|a, b| a + b)?;
        Some(sum / self.cpus.len() as f64)
    }

    /// How many vCPUs ran there last.
    fn vcpus(&self) -> f64 {
        let vcpus = self.model.domains.iter().flat_map(DomainModel::vcpus);
        let here = vcpus
            .filter_map(|vcpu| vcpu.place.cpu)
            .filter(|cpu| self.cpus.contains(*cpu));
        here.count() as f64
    }

    /// Memory of guests there, bytes.
    fn guests(&self) -> f64 {
        let guests = self.model.domains.iter();
        let here = guests.filter_map(|guest| guest.node_memory.get(&self.node.node));
        here.sum::<u64>() as f64
    }
}

type Col<'a> = Column<NodeRow<'a>>;

/// The columns.
pub fn columns<'a>() -> Vec<Col<'a>> {
    let bytes = right(8).grow(2);
    vec![
        Col::figure(
            "node",
            "NODE",
            right(4),
            |r| Some(r.node.node.into()),
            share,
        )
        .help("Number of the NUMA node."),
        Col::text("cpus", "CPUS", left(8).grow(20).drop_order(3), |r| {
            r.cpus.to_string()
        })
        .help("Its CPUs."),
        Col::figure("busy", "BUSY%", right(6), NodeRow::busy, percent)
            .help("How busy they are on average, percent of one CPU."),
        Col::figure("vcpus", "VCPUS", right(5), |r| Some(r.vcpus()), share)
            .help("vCPUs that ran there last."),
        Col::figure(
            "total",
            "MEMORY",
            bytes,
            |r| Some(r.node.total as f64),
            size,
        )
        .help("Its memory."),
        Col::figure("guests", "GUESTS", bytes, |r| Some(r.guests()), size)
            .help("What of it guests have, where that is read: every 30 s."),
        Col::figure("free", "FREE", bytes, |r| Some(r.node.free as f64), size)
            .help("What of it nothing uses; caches are not free."),
        Col::figure(
            "huge_free",
            "HUGE FREE",
            right(9),
            |r| Some(r.node.huge_free as f64),
            size,
        )
        .help("Explicit huge pages there that are free."),
        Col::figure(
            "missed",
            "MISS/s",
            right(7).drop_order(1),
            |r| r.node.rate_of(r.node.missed),
            rate,
        )
        .help("Pages per second that it gave to tasks that wanted those of another node.")
        .warns_above_zero(),
    ]
}

/// The section; `None` on a host with one node.
pub fn section<'a>(state: &'a AppState, model: &'a Model) -> Option<Section<'a>> {
    let mut rows = Vec::new();
    for node in model.host.nodes.as_ref()? {
        let cpus = model.host.facts.topology.cpus.iter();
        let here = cpus.filter(|cpu| cpu.node == Some(node.node));
        rows.push(NodeRow {
            model,
            node,
            cpus: here.map(|cpu| cpu.cpu).collect(),
        });
    }
    let table = Table {
        id: TableId::Nodes,
        columns: columns(),
        rows,
        key: |r| RowKey::of(r.node.node),
        style: |_| RowStyle::Plain,
    };
    Some(Section::table(table, state, "not measured"))
}
