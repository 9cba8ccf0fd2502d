//! `numactl -H` (`--hardware`): `node 0 cpus: 0 1 2 3`.

use super::TopologyText;
use crate::topology::CpuTopo;

/// The node and its CPUs.
fn node(line: &str) -> Option<(u32, &str)> {
    let rest = line.trim().strip_prefix("node ")?;
    let (node, cpus) = rest.split_once(" cpus:")?;
    Some((node.trim().parse().ok()?, cpus))
}

pub(super) fn looks_like(text: &str) -> bool {
    text.lines().take(5000).any(|line| node(line).is_some())
}

pub(super) fn parse(text: &str) -> TopologyText {
    let mut found = TopologyText::default();
    for (number, line) in text.lines().enumerate() {
        let Some((node, cpus)) = node(line) else { continue };
        for word in cpus.split_whitespace() {
            match word.parse::<u32>() {
                Ok(cpu) => found.add(CpuTopo { cpu, node: Some(node), ..CpuTopo::default() }),
                Err(_) => found.unread.add(number + 1, line),
            }
        }
    }
    found
}
