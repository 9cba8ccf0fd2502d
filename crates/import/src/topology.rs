//! The host's CPUs from one of `lscpu`, `lscpu -e`, `lscpu -p`, `numactl -H` and `virsh
//! capabilities`.

use kvm::CpuSet;
use kvm::cpu_set::MAX_CPUS;
use kvm::domain_xml::{Node, children, document};
use kvm::sanitize;
use kvm::topology::{CPU_MODEL, CpuTopo, HostTopology, slower};
use std::collections::BTreeMap;

/// Lines of a text that are read: a row for each CPU of the largest host, and what stands around
/// them.
const MAX_LINES: usize = 2 * MAX_CPUS as usize;

/// The host's CPUs as a text describes them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PrintedTopology {
    /// The CPUs that are online.
    pub topology: HostTopology,
    /// The slower CPUs of a hybrid host.
    pub efficiency: CpuSet,
    /// The CPU's model by the name of that fact.
    pub params: BTreeMap<String, String>,
}

/// Whether a text begins as one of these outputs does.
pub(crate) fn begins(text: &str) -> bool {
    let first_words = [
        "Architecture:",
        "available: ",
        "# The following is the parsable format",
        "<capabilities",
    ];
    first_words.iter().any(|words| text.starts_with(words))
        || column_titles(text.lines().next().unwrap_or_default()).is_some()
        || is_in_another_language(text)
}

/// Whether a text is what `lscpu` prints in another language: its first line has a label of that
/// language, and an architecture.
fn is_in_another_language(text: &str) -> bool {
    let first = text.lines().next().unwrap_or_default();
    let Some((label, value)) = first.split_once([':', '：']) else {
        return false;
    };
    matches!(value.trim(), "x86_64" | "aarch64")
        && label.trim_end().chars().all(char::is_alphabetic)
        && label != "Architecture"
}

/// Reads a text.
///
/// # Errors
/// When no CPU is found.
pub fn parse(text: &str) -> Result<PrintedTopology, String> {
    let mut found = PrintedTopology::default();
    if is_in_another_language(text) {
        return Err("lscpu printed this in another language: run 'LC_ALL=C lscpu'".into());
    }
    if text.starts_with("<capabilities") {
        found.topology.cpus = read_capabilities(text).map_err(|error| error.to_string())?;
    } else if text.starts_with("Architecture:") {
        read_summary(text, &mut found);
    } else if text.starts_with("available:") {
        found.topology.cpus = text
            .lines()
            .take(MAX_LINES)
            .filter_map(numa_node)
            .flatten()
            .collect();
    } else {
        read_table(text, &mut found);
    }
    found.topology.complete(&HostTopology::default());
    found.topology.normalise();
    if found.topology.cpus.is_empty() {
        return Err("no CPU found in this output of lscpu, numactl or virsh capabilities".into());
    }
    Ok(found)
}

/// The CPUs of the host in `virsh capabilities`. Guests have `<cpu>` elements of their own.
fn read_capabilities(text: &str) -> anyhow::Result<Vec<CpuTopo>> {
    document(text, "capabilities", |root| {
        let mut cpus: Vec<CpuTopo> = Vec::new();
        for node in children(root, "host").flat_map(|host| host.descendants()) {
            let name = node.tag_name().name();
            let id = number(node, "id");
            if name == "cpu"
                && let Some(cpu) = id.filter(|id| *id < MAX_CPUS)
            {
                let cell = node
                    .ancestors()
                    .find(|node| node.tag_name().name() == "cell");
                cpus.push(CpuTopo {
                    cpu,
                    core: number(node, "core_id"),
                    socket: number(node, "socket_id"),
                    die: number(node, "die_id"),
                    node: cell.and_then(|cell| cell.attribute("id")?.parse().ok()),
                    llc: None,
                    siblings: cpu_list(node, "siblings"),
                });
            } else if name == "bank"
                && number(node, "level") == Some(3)
                && let Some(cache) = id
            {
                let sharing = cpu_list(node, "cpus");
                for entry in cpus.iter_mut().filter(|entry| sharing.contains(entry.cpu)) {
                    entry.llc = Some(cache);
                }
            }
        }
        cpus
    })
}

fn number(node: Node<'_, '_>, attribute: &str) -> Option<u32> {
    node.attribute(attribute)?.parse().ok()
}

fn cpu_list(node: Node<'_, '_>, attribute: &str) -> CpuSet {
    let list = node.attribute(attribute);
    list.and_then(|list| CpuSet::parse(list).ok())
        .unwrap_or_default()
}

/// The CPUs of a NUMA node in a line of `numactl -H`: `node 0 cpus: 0 1 2 3`.
fn numa_node(line: &str) -> Option<impl Iterator<Item = CpuTopo>> {
    let (node, cpus) = line.strip_prefix("node ")?.split_once(" cpus:")?;
    let node = Some(node.parse().ok()?);
    let numbers = cpus
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .filter(|cpu| *cpu < MAX_CPUS);
    Some(numbers.map(move |cpu| CpuTopo {
        cpu,
        node,
        ..CpuTopo::default()
    }))
}

/// Reads `lscpu` without options: a line for each property.
fn read_summary(text: &str, found: &mut PrintedTopology) {
    let mut nodes: BTreeMap<u32, CpuSet> = BTreeMap::new();
    let mut threads = 1;
    for line in text.lines().take(MAX_LINES) {
        let Some((label, value)) = line.trim().split_once(':') else {
            continue;
        };
        let value = value.trim();
        let node = label
            .strip_prefix("NUMA node")
            .and_then(|rest| rest.strip_suffix(" CPU(s)"));
        if let Some(node) = node.and_then(|node| node.parse().ok()) {
            nodes.insert(node, CpuSet::parse(value).unwrap_or_default());
        }
        match label {
            "Thread(s) per core" => threads = value.parse().unwrap_or(1),
            "Model name" => _ = found.params.insert(CPU_MODEL.into(), sanitize(value, 128)),
            _ => {}
        }
    }
    let cores = cores_by_order(nodes.values(), threads);
    // The lists of nodes have only CPUs that are online (drivers/base/node.c, `node_read_cpumap`).
    for (node, cpus) in &nodes {
        for cpu in cpus.iter() {
            let siblings = cores
                .iter()
                .find(|core| core.contains(cpu))
                .cloned()
                .unwrap_or_default();
            found.topology.cpus.push(CpuTopo {
                cpu,
                node: Some(*node),
                siblings,
                ..CpuTopo::default()
            });
        }
    }
}

/// The cores of nodes, by the order of their CPUs. Firmware lists the first threads of all cores
/// before the second ones, so a node's list has as many ranges of one length as a core has threads
/// (`0-7,32-39`). Empty where a node's list is not like this: its cores are then not known.
fn cores_by_order<'a>(nodes: impl Iterator<Item = &'a CpuSet>, threads: usize) -> Vec<CpuSet> {
    let mut cores = Vec::new();
    for ranges in nodes.map(CpuSet::ranges) {
        let length = ranges.first().map_or(0, |(first, last)| last - first);
        if threads < 2
            || ranges.len() != threads
            || ranges.iter().any(|(first, last)| last - first != length)
        {
            return Vec::new();
        }
        for offset in 0..=length {
            cores.push(ranges.iter().map(|(first, _)| first + offset).collect());
        }
    }
    cores
}

/// The titles in the first line of `lscpu -e`, or in the comment before a list of `lscpu -p`, in
/// lower case.
fn column_titles(line: &str) -> Option<Vec<String>> {
    let titles: Vec<String> = row_values(line.trim_start_matches(['#', ' ']))
        .iter()
        .map(|t| t.to_lowercase())
        .collect();
    let is_heading = titles.first().is_some_and(|title| title == "cpu");
    let mut others = titles.iter();
    if is_heading && others.any(|title| title == "core" || title == "node") {
        Some(titles)
    } else {
        None
    }
}

/// The values of a row of `lscpu -e` or of `lscpu -p`, in which they can be empty.
fn row_values(line: &str) -> Vec<&str> {
    if line.contains(',') {
        line.split(',').collect()
    } else {
        line.split_whitespace().collect()
    }
}

/// A row below its titles.
struct PrintedRow<'a> {
    titles: &'a [String],
    values: &'a [&'a str],
}

impl<'a> PrintedRow<'a> {
    fn value(&self, title: &str) -> Option<&'a str> {
        let column = self.titles.iter().position(|known| known == title)?;
        self.values.get(column).copied()
    }

    fn number(&self, title: &str) -> Option<u32> {
        self.value(title)?.parse().ok()
    }
}

/// Reads `lscpu -e` and `lscpu -p`: a row for each CPU.
fn read_table(text: &str, found: &mut PrintedTopology) {
    let mut titles: Vec<String> = Vec::new();
    let mut speeds = Vec::new();
    for line in text.lines().take(MAX_LINES) {
        if let Some(new) = column_titles(line) {
            titles = new;
            continue;
        }
        let row = PrintedRow {
            titles: &titles,
            values: &row_values(line),
        };
        // A CPU without a core is offline: it is left out.
        let (Some(cpu), core @ Some(_)) = (row.number("cpu"), row.number("core")) else {
            continue;
        };
        if cpu >= MAX_CPUS {
            continue;
        }
        // Some versions print the caches of all levels in one column: `0:0:0:0`, L1d first.
        let caches = titles.iter().find(|title| title.starts_with("l1d:"));
        let caches = caches.and_then(|title| row.value(title));
        let llc = row.number("l3");
        let llc = llc.or_else(|| caches?.split(':').next_back()?.parse().ok());
        if let Some(mhz) = row.value("maxmhz")
            && let Ok(mhz) = mhz.split('.').next().unwrap_or_default().parse()
        {
            speeds.push((cpu, mhz));
        }
        found.topology.cpus.push(CpuTopo {
            cpu,
            core,
            socket: row.number("socket"),
            node: row.number("node"),
            llc,
            ..CpuTopo::default()
        });
    }
    found.efficiency = slower(&speeds);
}

#[cfg(test)]
mod tests;
