//! `/proc/cpuinfo` of an x86 host (arch/x86/kernel/cpu/proc.c).

use super::TopologyText;
use crate::sanitize;
use crate::topology::CpuTopo;

/// A line's name and value.
fn field(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.split_once(':')?;
    Some((name.trim(), value.trim()))
}

pub(super) fn looks_like(text: &str) -> bool {
    let mut names = text.lines().take(200).filter_map(field).map(|(name, _)| name);
    names.any(|name| name == "processor") && names.any(|name| name == "core id")
}

pub(super) fn parse(text: &str) -> TopologyText {
    let mut found = TopologyText::default();
    if !looks_like(text) {
        return found;
    }
    let mut current: Option<CpuTopo> = None;
    for (name, value) in text.lines().filter_map(field) {
        let number = value.parse::<u32>().ok();
        match (name, number, current.as_mut()) {
            ("processor", Some(cpu), _) => {
                current.take().into_iter().for_each(|cpu| found.add(cpu));
                current = Some(CpuTopo { cpu, ..CpuTopo::default() });
            }
            ("model name", _, Some(_)) if found.model.is_none() => found.model = Some(sanitize(value, 128)),
            ("physical id", _, Some(cpu)) => cpu.socket = number,
            ("core id", _, Some(cpu)) => cpu.core = number,
            _ => {}
        }
    }
    current.into_iter().for_each(|cpu| found.add(cpu));
    found
}
