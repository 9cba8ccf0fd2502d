//! Refuses an XML whose numbers no KVM guest can have, before anything is made of them.

use super::XmlError;
use crate::cpu_set::{CpuListError, CpuSet};
use crate::limits::{self, Implausible};
use crate::sanitize;
use roxmltree::Node;

/// The largest number of memory in any unit above the byte; libvirt writes KiB.
const GUEST_KIB: u64 = limits::GUEST_MEMORY / 1024;

/// Elements with numbers that size something: the attribute (empty: its text) and the largest number.
const NUMBERS: [(&str, &str, u32); 12] = [
    ("vcpu", "", limits::VCPUS),
    ("vcpu", "current", limits::VCPUS),
    ("vcpu", "id", limits::VCPU_IDS - 1),
    ("vcpupin", "vcpu", limits::VCPUS - 1),
    ("iothreads", "", limits::IOTHREADS),
    ("topology", "sockets", limits::VCPUS),
    ("topology", "dies", limits::VCPUS),
    ("topology", "clusters", limits::VCPUS),
    ("topology", "cores", limits::VCPUS),
    ("topology", "threads", limits::VCPUS),
    ("cell", "id", limits::NUMA_CELLS - 1),
    ("memnode", "cellid", limits::NUMA_CELLS - 1),
];

/// Attributes that hold a list of CPUs, nodes, vCPUs or `IOThread`s, by their elements.
const LISTS: [(&str, &str); 9] = [
    ("vcpu", "cpuset"),
    ("vcpupin", "cpuset"),
    ("emulatorpin", "cpuset"),
    ("iothreadpin", "cpuset"),
    ("vcpusched", "vcpus"),
    ("iothreadsched", "iothreads"),
    ("cell", "cpus"),
    ("memory", "nodeset"),
    ("memnode", "nodeset"),
];

/// Checks all elements except `<metadata>`, which other programs write.
///
/// # Errors
/// The first number that is too large.
pub(super) fn check(root: Node) -> Result<(), XmlError> {
    let mut open = vec![root];
    while let Some(node) = open.pop() {
        element(node)?;
        let before = open.len();
        open.extend(node.children().filter(|child| child.is_element() && child.tag_name().name() != "metadata"));
        let name = node.tag_name().name();
        most(&format!("the number of elements in <{name}>"), open.len() - before, limits::ELEMENTS)?;
        let cells = open.iter().skip(before).filter(|child| child.tag_name().name() == "cell").count();
        most("the number of <cell>", cells, limits::NUMA_CELLS as usize)?;
    }
    Ok(())
}

fn element(node: Node) -> Result<(), XmlError> {
    let name = node.tag_name().name();
    for (_, attribute, most) in NUMBERS.iter().filter(|row| row.0 == name) {
        let value = if attribute.is_empty() { node.text() } else { node.attribute(*attribute) };
        if let Some(value) = value.filter(|value| limits::beyond(value, u64::from(*most))) {
            return Err(implausible(&written(name, attribute), value, u64::from(*most)));
        }
    }
    for (_, attribute) in LISTS.iter().filter(|row| row.0 == name) {
        let Some(list) = node.attribute(*attribute) else { continue };
        if let Err(CpuListError::TooLarge(_)) = CpuSet::parse(list) {
            return Err(implausible(&written(name, attribute), list, u64::from(limits::HOST_CPUS - 1)));
        }
    }
    let memory = match name {
        "memory" | "currentMemory" => node.text(),
        "cell" => node.attribute("memory"),
        _ => None,
    };
    if let Some(number) = memory.map(str::trim).filter(|text| limits::beyond(text, GUEST_KIB)) {
        return Err(implausible(&format!("the memory of <{name}>"), number, GUEST_KIB));
    }
    Ok(())
}

/// `<vcpu>`, `<vcpu current=>`.
fn written(name: &str, attribute: &str) -> String {
    if attribute.is_empty() { format!("<{name}>") } else { format!("<{name} {attribute}=>") }
}

fn most(what: &str, number: usize, most: usize) -> Result<(), XmlError> {
    if number > most { Err(implausible(what, &number.to_string(), most as u64)) } else { Ok(()) }
}

fn implausible(what: &str, value: &str, most: u64) -> XmlError {
    XmlError::Implausible(Implausible { what: sanitize(what, 80), value: sanitize(value.trim(), 40), most })
}
