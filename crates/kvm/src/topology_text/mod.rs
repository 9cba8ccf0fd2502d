//! Reads the host's CPU topology from text: `lscpu`, `lscpu -e`, `lscpu -p`, `numactl -H`, `virsh capabilities` and the
//! sibling lists of sysfs, isolated CPUs from the kernel's command line, how fast CPUs run, and the host's memory. A
//! text can hold several; they complete each other.

mod clocks;
mod lscpu;

use super::cpu_set::{CpuSet, MAX_CPUS};
use super::domain_xml::{children, document};
use super::pattern::Pattern;
use super::sanitize;
use super::topology::{self, CpuTopo, HostTopology};
use super::unread::UnreadLines;
use anyhow::{Context as _, Result, bail};
use roxmltree::Node;
use std::collections::{BTreeMap, BTreeSet};

const MAX_TEXT: usize = 8 * 1024 * 1024;
/// The most hardware threads of a core that Linux runs on (POWER has eight).
const MAX_THREADS: usize = 8;

/// The note on a topology that does not list which CPUs share a core.
const SIBLINGS_UNKNOWN: &str = "this text says that cores have several threads, not which CPUs share a core: add the \
    output of 'lscpu -e'";

const TWO_MACHINES: &str =
    "two tables of lscpu contradict each other, as those of a host and of a guest: the larger is used";
const CUT_CAPABILITIES: &str =
    "the output of 'virsh capabilities' lists fewer CPUs than it counts: its list is not used";
const NOTHING_FOUND: &str = "no CPU found: not the output of 'lscpu', 'numactl -H' or 'virsh capabilities'";

/// The host's CPUs as a text describes them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopologyText {
    /// The online CPUs.
    pub topology: HostTopology,
    /// The CPUs that the text lists as offline.
    pub offline: CpuSet,
    /// Whether the CPUs are the rows of a table that nothing else counts: it may be cut.
    pub is_uncounted: bool,
    /// Lines within a table that could not be read.
    pub unread: UnreadLines,
    /// Further notes, a sentence each.
    pub notes: Vec<String>,
    /// The slower CPUs of a hybrid host.
    pub efficiency: CpuSet,
    /// Facts of the host by their names: the CPU's model, and how fast CPUs run; sanitized.
    pub params: BTreeMap<String, String>,
    /// Whether the CPU's flags say that a hypervisor runs it; `None` where they are missing or of several machines.
    pub virtualised: Option<bool>,
    /// Whether a summary names KVM as the hypervisor: a guest of KVM printed it.
    pub on_kvm: bool,
    /// CPUs of a smaller table beside the host's, as a guest prints them.
    pub of_guest: HostTopology,
    /// Hardware threads of a core, as a summary states them.
    threads_per_core: Option<u32>,
    /// The second-level cache of CPUs.
    l2: Vec<(u32, u32)>,
    /// The highest frequency of CPUs, MHz.
    max_mhz: Vec<(u32, u64)>,
}

impl TopologyText {
    /// Adds a CPU. Of two entries for one CPU the second fills what the first leaves open.
    fn add(&mut self, cpu: CpuTopo) {
        if cpu.cpu < MAX_CPUS && self.topology.cpus.len() < 4 * MAX_CPUS as usize {
            self.topology.cpus.push(cpu);
        }
    }

    /// Adds a table of `lscpu`. One that contradicts an earlier one is of another machine, often of a guest: the larger
    /// of the two stays.
    fn add_table(&mut self, table: &mut Self) {
        let mut table = std::mem::take(table);
        let place = |c: &CpuTopo| [c.core, c.socket, c.node, c.llc];
        let known: BTreeMap<u32, _> = self.topology.cpus.iter().map(|c| (c.cpu, place(c))).collect();
        let differs = |(old, new): (Option<u32>, Option<u32>)| old.is_some() && new.is_some() && old != new;
        let is_other =
            |new: &CpuTopo| known.get(&new.cpu).is_some_and(|old| old.iter().copied().zip(place(new)).any(differs));
        if table.topology.cpus.iter().any(is_other) {
            if table.topology.cpus.len() > self.topology.cpus.len() {
                std::mem::swap(self, &mut table);
            }
            self.notes = vec![TWO_MACHINES.to_owned()];
            self.of_guest = table.topology;
            return;
        }
        self.topology.cpus.append(&mut table.topology.cpus);
        self.offline = self.offline.union(&table.offline);
        self.l2.append(&mut table.l2);
        self.max_mhz.append(&mut table.max_mhz);
    }

    /// Keeps a fact, unless it is known.
    fn keep(&mut self, name: &str, value: String) {
        self.params.entry(name.to_owned()).or_insert(value);
    }

    /// The slower CPUs: by their frequency, and by their second-level cache. Intel's efficiency cores share one in
    /// groups of two or four, while each performance core of the same host has its own.
    fn slower(&self) -> CpuSet {
        let mut cores: BTreeMap<u32, CpuSet> = BTreeMap::new();
        for (cpu, l2) in self.l2.iter().filter(|(cpu, _)| self.topology.cpu(*cpu).is_some()) {
            cores.entry(*l2).or_default().extend(self.topology.siblings(*cpu).first());
        }
        let shared = |l2: u32| cores.get(&l2).is_some_and(|cores| cores.len() > 1);
        let is_hybrid = cores.values().any(|cores| cores.len() == 1);
        let by_cache = self.l2.iter().filter(|(_, l2)| is_hybrid && shared(*l2)).map(|(cpu, _)| *cpu);
        by_cache.collect::<CpuSet>().union(&topology::slower(&self.max_mhz)).intersection(&self.topology.all())
    }
}

/// Whether a text is in one of the formats, or contains it.
pub fn looks_like(text: &str) -> bool {
    has_capabilities(text) || parse(text).is_ok()
}

/// Parses all that a text says.
///
/// # Errors
/// When no CPU is found, nor how fast CPUs run.
pub fn parse(text: &str) -> Result<TopologyText> {
    let mut found = TopologyText::default();
    if text.len() > MAX_TEXT {
        bail!(NOTHING_FOUND);
    }
    if has_capabilities(text) {
        let (host, counted) = capabilities(text).context("virsh capabilities")?;
        if host.cpus.len() < counted {
            found.notes.push(CUT_CAPABILITIES.to_owned());
        } else {
            found.topology = host;
        }
    }
    // The most exact reader comes first; the others fill in what it leaves open.
    let known = found.topology.cpus.len();
    lscpu::tables(text, &mut found);
    let rows = found.topology.cpus.len();
    numactl(text, &mut found);
    lscpu::summary(text, &mut found);
    let is_counted = known > 0 || found.topology.cpus.len() > rows || found.threads_per_core.is_some();
    found.is_uncounted = rows > 0 && !is_counted;
    siblings(text, &mut found);
    kernel_cmdline(text, &mut found);
    clocks::read(text, &mut found);
    module_parameters(text, &mut found);
    memory(text, &mut found);
    for topology in [&mut found.topology, &mut found.of_guest] {
        topology.complete(&HostTopology::default());
    }
    let offline = found.offline.clone();
    found.topology.cpus.retain(|entry| !offline.contains(entry.cpu));
    found.topology.normalise();
    found.of_guest.normalise();
    found.efficiency = found.slower();
    if found.topology == HostTopology::default() && found.params.is_empty() && found.notes.is_empty() {
        bail!(NOTHING_FOUND);
    }
    if found.threads_per_core.is_some_and(|n| n > 1) && !found.topology.has_smt() {
        found.notes.push(SIBLINGS_UNKNOWN.to_owned());
    }
    Ok(found)
}

fn has_capabilities(text: &str) -> bool {
    text.len() <= MAX_TEXT && text.contains("<capabilities>") && text.contains("<topology>")
}

/// Reads the CPUs of the host in `virsh capabilities`, and how many it counts.
fn capabilities(text: &str) -> Result<(HostTopology, usize)> {
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
        let counted = all("cpus").filter_map(|cpus| number(cpus, "num")).fold(0, u32::saturating_add);
        (host, counted as usize)
    })
}

/// The node and its CPUs in a line of `numactl -H` (`--hardware`): `node 0 cpus: 0 1 2 3`.
fn node(line: &str) -> Option<(u32, &str)> {
    let (node, cpus) = line.trim().strip_prefix("node ")?.split_once(" cpus:")?;
    Some((node.trim().parse().ok()?, cpus))
}

fn numactl(text: &str, found: &mut TopologyText) {
    let mut last = None;
    for (number, line) in text.lines().enumerate() {
        // A terminal wraps a long list.
        let is_rest = |line: &str| line.split_whitespace().all(|word| word.bytes().all(|b| b.is_ascii_digit()));
        let rest = || last.filter(|_| is_rest(line)).map(|node| (node, line));
        let here = node(line).or_else(rest);
        last = here.map(|(node, _)| node);
        let Some((node, cpus)) = here else { continue };
        for word in cpus.split_whitespace() {
            match word.parse::<u32>() {
                Ok(cpu) => found.add(CpuTopo { cpu, node: Some(node), ..CpuTopo::default() }),
                Err(_) => found.unread.add(number + 1, line),
            }
        }
    }
}

/// Keeps what `free` prints of the host's memory, as it stands there, and what `numactl -H` prints of each node's.
fn memory(text: &str, found: &mut TopologyText) {
    let mut columns = Vec::new();
    for line in text.lines().take(20_000) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["total", "used", "free", ..] => columns = words,
            ["Mem:", values @ ..] => {
                for (name, value) in columns.iter().zip(values) {
                    found.keep(&format!("memory.{}", sanitize(name, 16)), sanitize(value, 16));
                }
            }
            ["node", node, what @ ("size:" | "free:"), size, "MB"] if node.parse::<u16>().is_ok() => {
                found.keep(&format!("numa.node{node}.{what}"), sanitize(size, 16) + " MB");
            }
            _ => {}
        }
    }
}

/// Reads the lists of threads of a core that sysfs has, behind a command or a path that names them: `0,12`, or
/// `…/cpu0/topology/thread_siblings_list:0,12`. Without another text they have to list all CPUs from 0.
fn siblings(text: &str, found: &mut TopologyText) {
    let mut is_list = false;
    let mut cores: BTreeSet<CpuSet> = BTreeSet::new();
    for line in text.lines().take(20_000).map(str::trim) {
        let names = ["thread_siblings_list", "core_cpus_list"].iter().any(|file| line.contains(file));
        let list = if names { line.rsplit_once("_list:").map_or("", |(_, list)| list) } else { line };
        let core = CpuSet::parse(list).ok().filter(|core| !core.is_empty() && core.len() <= MAX_THREADS);
        is_list = names || is_list && core.is_some();
        cores.extend(core.filter(|_| is_list && cores.len() < MAX_CPUS as usize));
    }
    let listed = cores.iter().fold(CpuSet::new(), |all, core| all.union(core));
    let known: CpuSet = found.topology.cpus.iter().map(|entry| entry.cpu).collect();
    let is_whole = cores.len() > 1 && listed.iter().last().is_some_and(|last| last as usize + 1 == listed.len());
    if known.is_empty() && !is_whole {
        return;
    }
    for core in &cores {
        for cpu in core.iter().filter(|cpu| known.is_empty() || known.contains(*cpu)) {
            found.add(CpuTopo { cpu, siblings: core.clone(), ..CpuTopo::default() });
        }
    }
}

/// A parameter of KVM's modules: `/sys/module/kvm/parameters/halt_poll_ns:200000` of `grep`, or the value in the line
/// after the file's name, as of `cat`.
static PARAMETER: Pattern = Pattern::new(concat!(
    r"(?m)^(?:[^>\n]* )?/sys/module/(?P<module>kvm(?:_intel|_amd)?)/parameters/(?P<name>[a-z0-9_]{1,64})",
    r"(?::|[ \t]*\r?\n)[ \t]*(?P<value>[A-Za-z0-9]{1,32})[ \t]*\r?$",
));

fn module_parameters(text: &str, found: &mut TopologyText) {
    for line in PARAMETER.captures_iter(text).take(1000) {
        found.keep(&format!("{}.{}", &line["module"], &line["name"]), line["value"].to_owned());
    }
}

/// The parameters of a line that is the command line of the running kernel, from `/proc/cmdline` or a boot log,
/// or the setting of GRUB (Documentation/admin-guide/kernel-parameters.txt, `isolcpus`, `nohz_full`).
fn parameters(line: &str) -> Option<&str> {
    let line = line.trim();
    let booted = line.split_once("Command line: ").map(|(_, rest)| rest);
    let of_grub = || line.strip_prefix("GRUB_CMDLINE_LINUX")?.split_once('=').map(|(_, rest)| rest);
    let rest = booted.or_else(|| line.strip_prefix("BOOT_IMAGE=").map(|_| line)).or_else(of_grub)?;
    (rest.contains("isolcpus=") || rest.contains("nohz_full=")).then_some(rest)
}

fn kernel_cmdline(text: &str, found: &mut TopologyText) {
    let line = text.lines().take(5000).find_map(parameters).unwrap_or_default();
    // `managed_irq,domain,2-7`: flags come before the list.
    let is_list = |part: &&str| part.starts_with(|c: char| c.is_ascii_digit());
    let cpus = |value: &str| {
        let list: Vec<&str> = value.split(',').filter(is_list).collect();
        CpuSet::parse(&list.join(",")).ok().filter(|cpus| !cpus.is_empty())
    };
    for word in line.split(|c: char| c.is_ascii_whitespace() || "\"'".contains(c)) {
        match word.split_once('=') {
            Some(("isolcpus", value)) => found.topology.isolated = cpus(value),
            Some(("nohz_full", value)) => found.topology.nohz_full = cpus(value),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
