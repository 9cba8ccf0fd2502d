//! `virsh capabilities`.

use crate::cpu_set::{CpuSet, MAX_CPUS};
use crate::domain_xml::{XmlError, document};
use crate::topology::{CpuTopo, HostTopology};

pub(super) fn looks_like(text: &str) -> bool {
    text.contains("<capabilities>") && text.contains("<topology>")
}

pub(super) fn parse(text: &str) -> Result<HostTopology, XmlError> {
    document(text, "capabilities", |root| {
        let mut host = HostTopology::default();
        let named = |node: &roxmltree::Node, name: &str| node.is_element() && node.tag_name().name() == name;
        // Only the host's part: guests have their own <cpu> elements.
        let Some(part) = root.children().find(|node| named(node, "host")) else { return host };
        for cell in part.descendants().filter(|node| named(node, "cell")) {
            let node_id = cell.attribute("id").and_then(|id| id.parse().ok());
            for cpu in cell.descendants().filter(|node| named(node, "cpu")).take(MAX_CPUS as usize) {
                let number = |name: &str| cpu.attribute(name).and_then(|value| value.trim().parse::<u32>().ok());
                let Some(id) = number("id").filter(|id| *id < MAX_CPUS) else { continue };
                if host.cpus.len() >= MAX_CPUS as usize {
                    return host;
                }
                host.cpus.push(CpuTopo {
                    cpu: id,
                    core: number("core_id"),
                    socket: number("socket_id"),
                    die: number("die_id"),
                    node: node_id,
                    llc: None,
                    siblings: cpu.attribute("siblings").and_then(|list| CpuSet::parse(list).ok()).unwrap_or_default(),
                });
            }
        }
        // Each cache is compared with each CPU.
        host.cpus.sort_by_key(|entry| entry.cpu);
        host.cpus.dedup_by_key(|entry| entry.cpu);
        let banks = part.descendants().filter(|node| named(node, "bank")).filter_map(|bank| {
            Some((bank.attribute("level")?.parse::<u32>().ok()?, CpuSet::parse(bank.attribute("cpus")?).ok()?))
        });
        let mut banks: Vec<(u32, CpuSet)> = banks.take(MAX_CPUS as usize).collect();
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
