//! The host's CPUs from one of `lscpu`, `lscpu -e`, `lscpu -p`, `numactl -H` and `virsh capabilities`.

use kvm::CpuSet;
use kvm::cpu_set::MAX_CPUS;
use kvm::domain_xml::{children, document};
use kvm::sanitize;
use kvm::topology::{CPU_MODEL, CpuTopo, HostTopology, slower};
use std::collections::BTreeMap;

/// Lines of a text that are read: a row for each CPU of the largest host, and what stands around them.
const MAX_LINES: usize = 2 * MAX_CPUS as usize;

const SIBLINGS_BY_ORDER: &str =
    "which CPUs share a core is taken from the order of the nodes' CPUs: add the output of 'lscpu -e'";
const SIBLINGS_UNKNOWN: &str =
    "it says that cores have several threads, not which CPUs share a core: add the output of 'lscpu -e'";
const OTHER_LANGUAGE: &str = "the output of lscpu in another language than English: run 'LC_ALL=C lscpu'";

/// The host's CPUs as a text describes them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrintedTopology {
    /// The CPUs that are online.
    pub topology: HostTopology,
    /// The slower CPUs of a hybrid host.
    pub efficiency: CpuSet,
    /// Facts of the host by their names: the CPU's model.
    pub params: BTreeMap<String, String>,
    /// Whether the CPU's flags say that a hypervisor runs it.
    pub virtualised: Option<bool>,
    /// What the text does not say, a sentence each.
    pub notes: Vec<String>,
}

/// Whether a text begins as one of these outputs does.
pub(crate) fn begins(text: &str) -> bool {
    let Some(first) = text.lines().map(str::trim).find(|line| !line.is_empty()) else { return false };
    let is_numactl = first.starts_with("available: ") && first.contains(" nodes (");
    first.starts_with("Architecture:")
        || is_foreign(first)
        || is_numactl
        || numa_node(first).is_some()
        || first.starts_with("# The following is the parsable format")
        || first.starts_with("<capabilities")
        || columns(first).is_some()
}

/// Whether a line is the first of `lscpu` in another language: a label and the architecture.
fn is_foreign(line: &str) -> bool {
    let Some((label, value)) = line.split_once([':', '：']) else { return false };
    label != "Architecture" && label.chars().all(char::is_alphabetic) && matches!(value.trim(), "x86_64" | "aarch64")
}

/// Reads a text.
///
/// # Errors
/// When no CPU is found.
pub fn parse(text: &str) -> Result<PrintedTopology, String> {
    let mut found = PrintedTopology::default();
    let first = text.trim_start().lines().next().unwrap_or_default();
    if is_foreign(first) {
        return Err(OTHER_LANGUAGE.into());
    }
    if first.starts_with("<capabilities") {
        found.topology.cpus = capabilities(text).map_err(|error| error.to_string())?;
    } else if first.starts_with("Architecture:") {
        summary(text, &mut found);
    } else if text.lines().any(|line| numa_node(line).is_some()) {
        found.topology.cpus = text.lines().take(MAX_LINES).filter_map(numa_node).flat_map(cpus_of_node).collect();
    } else {
        table(text, &mut found);
    }
    found.topology.complete(&HostTopology::default());
    found.topology.normalise();
    if found.topology.cpus.is_empty() {
        return Err("no CPU found in this output of lscpu, numactl or virsh capabilities".into());
    }
    Ok(found)
}

/// The CPUs of the host in `virsh capabilities`. Guests have `<cpu>` elements of their own.
fn capabilities(text: &str) -> anyhow::Result<Vec<CpuTopo>> {
    document(text, "capabilities", |root| {
        let mut cpus: Vec<CpuTopo> = Vec::new();
        let mut caches: Vec<(u32, CpuSet)> = Vec::new();
        for node in children(root, "host").flat_map(|host| host.descendants()) {
            let number = |name: &str| node.attribute(name)?.trim().parse::<u32>().ok();
            let name = node.tag_name().name();
            if let ("cpu", Some(cpu)) = (name, number("id").filter(|id| *id < MAX_CPUS)) {
                let cell = node.ancestors().find(|node| node.tag_name().name() == "cell");
                cpus.push(CpuTopo {
                    cpu,
                    core: number("core_id"),
                    socket: number("socket_id"),
                    die: number("die_id"),
                    node: cell.and_then(|cell| cell.attribute("id")?.parse().ok()),
                    llc: None,
                    siblings: node.attribute("siblings").and_then(|list| CpuSet::parse(list).ok()).unwrap_or_default(),
                });
            } else if let ("bank", Some(level), Some(list)) = (name, number("level"), node.attribute("cpus"))
                && let Ok(sharing) = CpuSet::parse(list)
                && caches.len() < MAX_CPUS as usize
            {
                caches.push((level, sharing));
            }
        }
        // Higher levels come later and replace lower ones.
        caches.sort_by_key(|cache| cache.0);
        for (id, (_, sharing)) in (0..).zip(&caches) {
            for entry in cpus.iter_mut().filter(|entry| sharing.contains(entry.cpu)) {
                entry.llc = Some(id);
            }
        }
        cpus
    })
}

/// The node and its CPUs in a line of `numactl -H`: `node 0 cpus: 0 1 2 3`.
fn numa_node(line: &str) -> Option<(u32, &str)> {
    let (node, cpus) = line.trim().strip_prefix("node ")?.split_once(" cpus:")?;
    Some((node.trim().parse().ok()?, cpus))
}

fn cpus_of_node((node, cpus): (u32, &str)) -> impl Iterator<Item = CpuTopo> {
    let numbers = cpus.split_whitespace().filter_map(|word| word.parse().ok());
    numbers.filter(|cpu| *cpu < MAX_CPUS).map(move |cpu| CpuTopo { cpu, node: Some(node), ..CpuTopo::default() })
}

/// Reads `lscpu` without options: a line for each property.
fn summary(text: &str, found: &mut PrintedTopology) {
    let mut nodes: BTreeMap<u32, CpuSet> = BTreeMap::new();
    let mut online = CpuSet::new();
    let mut threads = 1;
    for (label, value) in text.lines().take(MAX_LINES).filter_map(|line| line.trim().split_once(':')) {
        let value = value.trim();
        let node = label.strip_prefix("NUMA node").and_then(|rest| rest.strip_suffix(" CPU(s)"));
        if let Some(node) = node.and_then(|node| node.parse().ok()) {
            nodes.insert(node, CpuSet::parse(value).unwrap_or_default());
            continue;
        }
        match label {
            "On-line CPU(s) list" => online = CpuSet::parse(value).unwrap_or_default(),
            "Thread(s) per core" => threads = value.parse().unwrap_or(1),
            "Model name" => _ = found.params.insert(CPU_MODEL.into(), sanitize(value, 128)),
            "Flags" => found.virtualised = Some(value.split_whitespace().any(|flag| flag == "hypervisor")),
            _ => {}
        }
    }
    // A node lists the CPUs that are online (drivers/base/node.c, `node_read_cpumap`).
    let all = nodes.values().fold(online, |all, cpus| all.union(cpus));
    let cores = cores_by_order(nodes.values(), threads);
    if threads > 1 {
        found.notes.push(if cores.is_empty() { SIBLINGS_UNKNOWN } else { SIBLINGS_BY_ORDER }.into());
    }
    for cpu in all.iter() {
        let node = nodes.iter().find(|(_, cpus)| cpus.contains(cpu)).map(|(node, _)| *node);
        let siblings = cores.iter().find(|core| core.contains(cpu)).cloned().unwrap_or_default();
        found.topology.cpus.push(CpuTopo { cpu, node, siblings, ..CpuTopo::default() });
    }
}

/// The cores of nodes whose lists each have as many equal ranges as a core has threads (`0-7,32-39`): firmware lists
/// the first threads of all cores before the second ones. Empty where a node's list is another one.
fn cores_by_order<'a>(nodes: impl Iterator<Item = &'a CpuSet>, threads: usize) -> Vec<CpuSet> {
    let mut cores = Vec::new();
    for ranges in nodes.map(CpuSet::ranges) {
        let length = ranges.first().map_or(0, |(first, last)| last - first);
        if threads < 2 || ranges.len() != threads || ranges.iter().any(|(first, last)| last - first != length) {
            return Vec::new();
        }
        for at in 0..=length {
            cores.push(ranges.iter().map(|(first, _)| first + at).collect());
        }
    }
    cores
}

/// The titles in the first line of `lscpu -e`, or in the comment before a list of `lscpu -p`, in lower case.
fn columns(line: &str) -> Option<Vec<String>> {
    let titles: Vec<String> = values(line.trim_start_matches(['#', ' '])).map(str::to_lowercase).collect();
    let tells = ["core", "socket", "node", "online"];
    let is_heading = titles.first().is_some_and(|title| title == "cpu");
    (is_heading && titles.iter().any(|title| tells.contains(&title.as_str()))).then_some(titles)
}

/// The values of a row of `lscpu -e` or of `lscpu -p`, in which they can be empty.
fn values(line: &str) -> Box<dyn Iterator<Item = &str> + '_> {
    if line.contains(',') { Box::new(line.split(',').map(str::trim)) } else { Box::new(line.split_whitespace()) }
}

/// Reads `lscpu -e` and `lscpu -p`: a row for each CPU.
fn table(text: &str, found: &mut PrintedTopology) {
    let mut titles: Vec<String> = Vec::new();
    let (mut l2, mut mhz) = (Vec::new(), Vec::new());
    for line in text.lines().take(MAX_LINES) {
        if let Some(new) = columns(line) {
            titles = new;
            continue;
        }
        let row: Vec<&str> = values(line).collect();
        let value = |title: &str| row.get(titles.iter().position(|known| known == title)?).copied();
        let number = |title: &str| value(title)?.parse::<u32>().ok();
        let Some(cpu) = number("cpu").filter(|cpu| *cpu < MAX_CPUS) else { continue };
        if matches!(value("online"), Some("no" | "N")) || matches!(value("core"), Some("" | "-")) {
            continue;
        }
        // All levels in one column: `0:0:0:0`, L1d first.
        let caches = titles.iter().find(|title| title.starts_with("l1d:")).and_then(|title| value(title));
        let mut levels = caches.unwrap_or_default().split(':').filter_map(|id| id.parse().ok());
        let level_2 = number("l2").or_else(|| levels.clone().nth(2));
        l2.extend(level_2.map(|l2| (cpu, l2)));
        mhz.extend(value("maxmhz").and_then(|text| Some((cpu, text.split('.').next()?.parse().ok()?))));
        let (core, socket, node) = (number("core"), number("socket"), number("node"));
        let llc = number("l3").or_else(|| levels.next_back()).or(level_2);
        found.topology.cpus.push(CpuTopo { cpu, core, socket, node, llc, ..CpuTopo::default() });
    }
    found.topology.complete(&HostTopology::default());
    found.topology.normalise();
    found.efficiency = slower(&mhz).union(&sharing_l2(&l2, &found.topology));
}

/// The slower cores of Intel's hybrid hosts: they share a second-level cache in groups, while each fast core has its
/// own.
fn sharing_l2(l2: &[(u32, u32)], topology: &HostTopology) -> CpuSet {
    let mut cores: BTreeMap<u32, CpuSet> = BTreeMap::new();
    for (cpu, cache) in l2 {
        cores.entry(*cache).or_default().extend(topology.siblings(*cpu).first());
    }
    if !cores.values().any(|cores| cores.len() == 1) {
        return CpuSet::new();
    }
    let is_shared = |cache: &u32| cores.get(cache).is_some_and(|cores| cores.len() > 1);
    l2.iter().filter(|(_, cache)| is_shared(cache)).map(|(cpu, _)| *cpu).collect()
}

#[cfg(test)]
mod tests;
