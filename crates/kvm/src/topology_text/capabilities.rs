//! `virsh capabilities`.

use crate::cpu_set::{CpuSet, MAX_CPUS};
use crate::domain_xml::{children, document};
use crate::topology::{CpuTopo, HostTopology};
use roxmltree::Node;

/// Reads the CPUs of the host.
pub(super) fn parse(text: &str) -> anyhow::Result<HostTopology> {
    document(text, "capabilities", |root| {
        let mut host = HostTopology::default();
        // Only the host's part: guests have their own <cpu> elements.
        let all = |name: &'static str| {
            let below = children(root, "host").flat_map(|part| part.descendants());
            below.filter(move |node| node.tag_name().name() == name)
        };
        let number = |node: Node, name: &str| node.attribute(name)?.trim().parse::<u32>().ok();
        for cpu in all("cpu").take(MAX_CPUS as usize) {
            let cell = cpu.ancestors().find(|node| node.tag_name().name() == "cell");
            let Some((id, cell)) = number(cpu, "id").filter(|id| *id < MAX_CPUS).zip(cell) else { continue };
            host.cpus.push(CpuTopo {
                cpu: id,
                core: number(cpu, "core_id"),
                socket: number(cpu, "socket_id"),
                die: number(cpu, "die_id"),
                node: number(cell, "id"),
                llc: None,
                siblings: cpu.attribute("siblings").and_then(|list| CpuSet::parse(list).ok()).unwrap_or_default(),
            });
        }
        let bank = |bank| Some((number(bank, "level")?, CpuSet::parse(bank.attribute("cpus")?).ok()?));
        let mut banks: Vec<(u32, CpuSet)> = all("bank").filter_map(bank).take(MAX_CPUS as usize).collect();
        banks.sort_by_key(|bank| bank.0);
        for (id, (_, cpus)) in banks.iter().enumerate() {
            // Higher levels come later and overwrite.
            for entry in host.cpus.iter_mut().filter(|entry| cpus.contains(entry.cpu)) {
                entry.llc = Some(id as u32);
            }
        }
        host
    })
}
