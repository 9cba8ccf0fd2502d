//! `lscpu -e`, a table with a row for each CPU; `lscpu -p`, a list with any columns (`# CPU,Core,Socket,Node`);
//! and `lscpu` without options, a line for each property, in any locale.

use super::TopologyText;
use crate::cpu_set::CpuSet;
use crate::sanitize;
use crate::topology::{CPU_MODEL, CpuTopo};
use std::collections::BTreeMap;

/// lscpu knows some twenty columns.
const MAX_COLUMNS: usize = 64;

/// The titles of a table in lower case (lscpu.c, `coldescs_cpu`), and whether commas separate its values. All levels of
/// cache can be in one column, `0:0:0:0`, which is `cache` here.
struct Columns {
    commas: bool,
    titles: Vec<String>,
}

impl Columns {
    /// `None` without a column of CPUs or any other that tells.
    fn of_titles(titles: &[&str], commas: bool) -> Option<Self> {
        let name = |title: &&str| match title.to_lowercase() {
            levels if levels.starts_with("l1d:") => "cache".to_owned(),
            name => name,
        };
        let titles: Vec<String> = titles.iter().map(name).collect();
        let tells = ["core", "socket", "node", "l4", "l3", "l2", "cache", "online"];
        let has = |names: &[&str]| titles.iter().any(|title| names.contains(&title.as_str()));
        (has(&["cpu"]) && has(&tells)).then_some(Self { commas, titles })
    }

    fn value<'a>(&self, values: &[&'a str], title: &str) -> Option<&'a str> {
        values.get(self.titles.iter().position(|known| known == title)?).copied()
    }

    /// Reads a row; `None` if its CPU number is missing, or if what stands below a title cannot be meant: pasting lost
    /// blanks, so that values moved to other columns.
    fn read(&self, values: &[&str], found: &mut TopologyText) -> Option<()> {
        let value = |title: &str| self.value(values, title);
        let has_moved = |title| value(title).is_some_and(|value| value.contains([':', '.', ',']));
        if ["core", "socket", "node"].into_iter().any(has_moved) {
            return None;
        }
        let number = |title: &str| value(title)?.parse::<u32>().ok();
        let cpu = number("cpu").filter(|_| values.len() > 1)?;
        // In other languages than English an offline CPU is known by the core that it lacks.
        let core_missing = matches!(value("core"), Some("" | "-"));
        if core_missing || value("online").is_some_and(|online| matches!(&*online.to_lowercase(), "no" | "n")) {
            found.offline.insert(cpu);
            return Some(());
        }
        let cache = ["l4", "l3", "l2", "cache"].into_iter().find_map(value);
        // All levels in one column begin with both parts of the first.
        let l2 = number("l2").or_else(|| cache?.split(':').nth(2)?.parse().ok());
        found.l2.extend(l2.map(|l2| (cpu, l2)));
        // The decimal point is a comma in some languages.
        let mhz = value("maxmhz").and_then(|text| text.split(['.', ',']).next()?.parse().ok());
        found.max_mhz.extend(mhz.map(|mhz| (cpu, mhz)));
        let llc = cache.and_then(|all| all.rsplit(':').find(|id| !id.is_empty()));
        found.add(CpuTopo {
            cpu,
            core: number("core"),
            socket: number("socket"),
            die: number("die"),
            node: number("node"),
            llc: llc.and_then(|id| id.parse().ok()),
            siblings: CpuSet::new(),
        });
        Some(())
    }
}

fn is_id(value: &str) -> bool {
    value == "-" || !value.is_empty() && value.len() <= 9 && value.bytes().all(|b| b.is_ascii_digit())
}

fn split(line: &str, commas: bool) -> Vec<&str> {
    let is_between = |c: char| if commas { c == ',' } else { c.is_whitespace() };
    let values = line.split(is_between).map(str::trim);
    values.filter(|value| commas || !value.is_empty()).take(MAX_COLUMNS).collect()
}

/// Reads `lscpu -e` and `lscpu -p`.
pub(super) fn tables(text: &str, found: &mut TopologyText) {
    let mut columns: Option<Columns> = None;
    let (mut tables, mut table) = (TopologyText::default(), TopologyText::default());
    let mut lines = text.lines().map(str::trim).enumerate().peekable();
    while let Some((number, line)) = lines.next() {
        // The titles of a list are a comment.
        if let Some(titles) = line.strip_prefix('#') {
            let new = Columns::of_titles(&split(titles, true), true);
            if new.is_some() {
                tables.add_table(&mut table);
            }
            columns = new.or(columns.filter(|known| known.commas));
            continue;
        }
        if let Some(known) = &columns {
            let values = split(line, known.commas);
            if values.first().is_some_and(|first| is_id(first)) {
                if known.read(&values, &mut table).is_none() {
                    found.unread.add(number + 1, line);
                }
                continue;
            }
        }
        // The titles of a table are followed by the row of a CPU.
        let (titles, next) = (split(line, false), split(lines.peek().map_or("", |(_, next)| next), false));
        columns = Columns::of_titles(&titles, false)
            .filter(|known| titles.len() <= next.len() && known.value(&next, "cpu").is_some_and(is_id));
        if columns.is_some() {
            tables.add_table(&mut table);
        }
    }
    tables.add_table(&mut table);
    found.topology.cpus.extend(tables.topology.cpus);
    found.offline = found.offline.union(&tables.offline);
    found.l2.extend(tables.l2);
    found.max_mhz.extend(tables.max_mhz);
    found.notes.extend(tables.notes);
    found.of_guest = tables.of_guest;
}

/// Parts of the label of "Thread(s) per core" in util-linux's translations.
const THREADS: &[&str] =
    &["thread", "поток", "потік", "线程", "執行緒", "スレッド", "hilo", "wątk", "vlák", "tråd", "luồng"];
/// Parts of the label of "Model name".
const MODEL: &[&str] =
    &["model name", "modellname", "nom de modèle", "имя модели", "型号名称", "モデル名", "nombre del modelo"];
/// Parts of the label of "On-line CPU(s) list".
const ONLINE: &[&str] = &["on-line", "online", "en ligne", "on line", "в сети", "在线", "オンライン", "línea", "aktiv"];
/// Parts of the label of "Off-line CPU(s) list".
const OFFLINE: &[&str] = &["off-line", "offline", "hors ligne", "离线", "オフライン"];

/// The note on cores that no text lists.
const SIBLINGS_BY_ORDER: &str = "which CPUs share a core is taken from the order of the nodes' CPUs: the output of \
    'lscpu -e' tells it for sure";

/// The cores of nodes that each have as many equal ranges of CPUs as a core has threads: firmware lists the first
/// threads of all cores before the second ones (`0-7,32-39`). Empty where a node's list is another one.
fn cores_of<'a>(nodes: impl Iterator<Item = &'a CpuSet>, threads: u32) -> Vec<CpuSet> {
    let mut cores = Vec::new();
    for ranges in nodes.map(CpuSet::ranges) {
        let length = ranges.first().map_or(0, |(first, last)| last - first);
        if threads < 2 || ranges.len() != threads as usize || ranges.iter().any(|(a, b)| b - a != length) {
            return Vec::new();
        }
        cores.extend((0..=length).map(|at| ranges.iter().map(|(first, _)| first + at).collect::<CpuSet>()));
    }
    cores
}

/// Reads the lines of `lscpu` without options: `On-line CPU(s) list:   0-15`; Chinese has a wide colon.
pub(super) fn summary(text: &str, found: &mut TopologyText) {
    let (mut online, mut offline, mut nodes) = (None, CpuSet::new(), BTreeMap::new());
    let (mut model, mut threads, mut cores) = (None, None, None);
    let cpus = |value: &str| CpuSet::parse(value).ok().filter(|set| !set.is_empty());
    let mut virtualised = Vec::new();
    for (label, value) in text.lines().take(20_000).filter_map(|line| line.trim().split_once([':', '：'])) {
        let (lower, value) = (label.to_lowercase(), value.trim());
        let is = |words: &[&str]| words.iter().any(|word| lower.contains(word));
        let of_cpus = lower.contains("cpu") || lower.contains("process");
        found.on_kvm |= value == "KVM" && lower.contains("hypervisor");
        if value.starts_with("fpu ") {
            virtualised.push(value.split_whitespace().any(|flag| flag == "hypervisor"));
        } else if label.contains("NUMA") {
            // The node's number is the only one in the label.
            let digits: String = label.chars().filter(char::is_ascii_digit).take(6).collect();
            // A second list is the same again, or a guest's.
            if let Some((node, cpus)) = digits.parse::<u32>().ok().zip(cpus(value)) {
                nodes.entry(node).or_insert(cpus);
            }
        } else if of_cpus && is(OFFLINE) {
            offline = cpus(value).unwrap_or_default();
        } else if of_cpus && is(ONLINE) && online.is_none() {
            online = cpus(value);
        } else if is(MODEL) && model.is_none() {
            model = Some(sanitize(value, 128)).filter(|model| !model.is_empty() && model != "-");
        } else if is(THREADS) && threads.is_none() {
            threads = value.parse().ok();
        } else if label.starts_with("L1d") && cores.is_none() {
            // `1 MiB (32 instances)`: each core has one.
            let count = value.split_once('(').and_then(|(_, rest)| rest.split_once(' '));
            cores = count.and_then(|(count, _)| count.parse::<usize>().ok()).filter(|count| *count > 0);
        }
    }
    found.virtualised = virtualised.first().copied().filter(|first| virtualised.iter().all(|other| other == first));
    if nodes.is_empty() && threads.is_none() {
        return;
    }
    found.offline = found.offline.union(&offline);
    model.into_iter().for_each(|model| found.keep(CPU_MODEL, model));
    // A node lists its online CPUs (drivers/base/node.c, `node_read_cpumap`).
    let all = nodes.iter().fold(online.unwrap_or_default(), |all, (_, cpus)| all.union(cpus));
    let per_core = |cores: usize| u32::try_from(all.len() / cores).ok().filter(|n| *n as usize * cores == all.len());
    found.threads_per_core = threads.or_else(|| cores.and_then(per_core));
    let cores = cores_of(nodes.values(), found.threads_per_core.unwrap_or(1));
    if found.topology.cpus.iter().all(|entry| entry.core.is_none() && entry.siblings.is_empty()) && !cores.is_empty() {
        found.notes.push(SIBLINGS_BY_ORDER.to_owned());
        let siblings = cores.iter().flat_map(|core| core.iter().map(move |cpu| (cpu, core.clone())));
        siblings.for_each(|(cpu, siblings)| found.add(CpuTopo { cpu, siblings, ..CpuTopo::default() }));
    }
    for cpu in all.iter() {
        let node = nodes.iter().find(|(_, cpus)| cpus.contains(cpu)).map(|(node, _)| *node);
        found.add(CpuTopo { cpu, node, ..CpuTopo::default() });
    }
}
