//! The kernel's command line, from `/proc/cmdline` or a boot log: which CPUs are isolated
//! (Documentation/admin-guide/kernel-parameters.txt, `isolcpus`, `nohz_full`).

use super::TopologyText;
use crate::cpu_set::CpuSet;

/// The parameters of a line that is a command line of the running kernel.
fn parameters(line: &str) -> Option<&str> {
    let line = line.trim();
    let booted = line.split_once("Command line: ").map(|(_, rest)| rest);
    let rest = booted.or_else(|| line.strip_prefix("BOOT_IMAGE=").map(|_| line))?;
    (rest.contains("isolcpus=") || rest.contains("nohz_full=")).then_some(rest)
}

pub(super) fn looks_like(text: &str) -> bool {
    text.lines().take(5000).any(|line| parameters(line).is_some())
}

/// `managed_irq,domain,2-7`: flags come before the list.
fn cpus(value: &str) -> Option<CpuSet> {
    let list: Vec<&str> = value.split(',').filter(|part| part.starts_with(|c: char| c.is_ascii_digit())).collect();
    CpuSet::parse(&list.join(",")).ok().filter(|cpus| !cpus.is_empty())
}

pub(super) fn parse(text: &str) -> TopologyText {
    let mut found = TopologyText::default();
    let Some(line) = text.lines().take(5000).find_map(parameters) else { return found };
    for word in line.split_whitespace() {
        match word.split_once('=') {
            Some(("isolcpus", value)) => found.topology.isolated = cpus(value),
            Some(("nohz_full", value)) => found.topology.nohz_full = cpus(value),
            _ => {}
        }
    }
    found
}
