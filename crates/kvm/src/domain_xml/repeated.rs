//! What a piece of XML would give a domain a second time.

use super::DomainXml;
use super::xml::{attribute, child, children, document, elements, number};
use crate::cpu_set::CpuSet;
use roxmltree::Node;
use std::collections::{BTreeMap, BTreeSet};

/// The elements of a piece of XML that a domain has already, as an admin looks for them: `<timer
/// name='hpet'>`. libvirt refuses a second `<feature>` or pin, and ignores one of two other
/// elements.
pub fn repeated(xml: &DomainXml, piece: &str) -> Vec<String> {
    let all = document(
        &format!("<domain xmlns:qemu='q'>{piece}</domain>"),
        "domain",
        |root| {
            let mut found = Vec::new();
            note(&mut found, root, "vcpu", xml.max_vcpus.is_some());
            children(root, "cpu").for_each(|node| cpu(xml, node, &mut found));
            for timer in children(root, "clock").flat_map(|clock| children(clock, "timer")) {
                let name = attribute(timer, "name").unwrap_or_default();
                if xml.clock.timer(&name).is_some() {
                    found.push(format!("<timer name='{name}'>"));
                }
            }
            children(root, "features").for_each(|node| features(xml, node, &mut found));
            children(root, "cputune").for_each(|node| pins(xml, node, &mut found));
            children(root, "numatune").for_each(|node| memory(xml, node, &mut found));
            found
        },
    );
    let mut seen = BTreeSet::new();
    all.unwrap_or_default()
        .into_iter()
        .filter(|name| seen.insert(name.clone()))
        .collect()
}

/// Notes an element that is in the piece, if the domain has it already.
fn note(found: &mut Vec<String>, node: Node, element: &str, is_known: bool) {
    if is_known && child(node, element).is_some() {
        found.push(format!("<{element}>"));
    }
}

fn cpu(xml: &DomainXml, node: Node, found: &mut Vec<String>) {
    if node.attribute("mode").is_some() && (xml.cpu.mode.is_some() || xml.cpu.model.is_some()) {
        found.push("<cpu> mode and model".to_owned());
    }
    note(found, node, "topology", xml.topology.is_some());
    note(found, node, "numa", !xml.numa_cells.is_empty());
    for feature in children(node, "feature") {
        let name = attribute(feature, "name").unwrap_or_default();
        if let Some(policy) = xml.cpu.features.get(&name) {
            found.push(format!("<feature policy='{policy}' name='{name}'/>"));
        }
    }
}

fn features(xml: &DomainXml, node: Node, found: &mut Vec<String>) {
    let hyperv = xml.hyperv.iter().flat_map(|hyperv| hyperv.features.keys());
    let groups: [(&str, Vec<&String>); 2] = [
        ("hyperv", hyperv.collect()),
        ("kvm", xml.kvm_features.keys().collect()),
    ];
    for (group, known) in groups {
        for feature in children(node, group).flat_map(elements) {
            let name = feature.tag_name().name();
            if known.iter().any(|known| *known == name) {
                found.push(format!("<{name}>"));
            }
        }
    }
}

fn pins(xml: &DomainXml, node: Node, found: &mut Vec<String>) {
    if is_pinned(&xml.vcpu_pins, node, "vcpupin", "vcpu") {
        found.push("<vcpupin>".to_owned());
    }
    note(found, node, "emulatorpin", xml.emulator_pin.is_some());
    if is_pinned(&xml.iothread_pins, node, "iothreadpin", "iothread") {
        found.push("<iothreadpin>".to_owned());
    }
}

/// Whether one of these elements is about a thread that is pinned already.
fn is_pinned(pins: &BTreeMap<u32, CpuSet>, cputune: Node, element: &str, number_of: &str) -> bool {
    children(cputune, element)
        .filter_map(|pin| number(pin, number_of))
        .any(|thread| pins.contains_key(&thread))
}

fn memory(xml: &DomainXml, node: Node, found: &mut Vec<String>) {
    if xml.numatune.is_some() && child(node, "memory").is_some() {
        found.push("<memory> in <numatune>".to_owned());
    }
    let is_bound = xml.numa_cells.iter().any(|cell| cell.host_nodes.is_some());
    note(found, node, "memnode", is_bound);
}
