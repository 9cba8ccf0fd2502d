//! `lscpu` without options: a line for each property, in any locale.

use super::TopologyText;
use crate::cpu_set::CpuSet;
use crate::sanitize;
use crate::topology::CpuTopo;

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

pub(super) fn looks_like(text: &str) -> bool {
    let found = parse(text);
    !found.topology.cpus.is_empty() && (found.threads_per_core.is_some() || text.contains("NUMA"))
}

/// Label and value of `On-line CPU(s) list:   0-15`; Chinese has a wide colon.
fn property(line: &str) -> Option<(&str, &str)> {
    let (label, value) = line.trim().split_once([':', '：'])?;
    Some((label.trim(), value.trim()))
}

fn cpus(value: &str) -> Option<CpuSet> {
    CpuSet::parse(value).ok().filter(|set| !set.is_empty())
}

pub(super) fn parse(text: &str) -> TopologyText {
    let mut found = TopologyText::default();
    let (mut online, mut nodes) = (None, Vec::new());
    for (label, value) in text.lines().take(20_000).filter_map(property) {
        let lower = label.to_lowercase();
        let is = |words: &[&str]| words.iter().any(|word| lower.contains(word));
        let of_cpus = lower.contains("cpu") || lower.contains("process");
        if label.contains("NUMA") {
            // The node's number is the only one in the label.
            let digits: String = label.chars().filter(char::is_ascii_digit).take(6).collect();
            if let (Ok(node), Some(cpus)) = (digits.parse::<u32>(), cpus(value)) {
                nodes.push((node, cpus));
            }
        } else if of_cpus && is(OFFLINE) {
            found.offline = cpus(value).unwrap_or_default();
        } else if of_cpus && is(ONLINE) && online.is_none() {
            online = cpus(value);
        } else if is(MODEL) && found.model.is_none() {
            found.model = Some(sanitize(value, 128)).filter(|model| !model.is_empty() && model != "-");
        } else if is(THREADS) && found.threads_per_core.is_none() {
            found.threads_per_core = value.parse().ok();
        }
    }
    if nodes.is_empty() && found.threads_per_core.is_none() {
        return TopologyText::default();
    }
    // A node lists its online CPUs (drivers/base/node.c, `node_read_cpumap`).
    let all = nodes.iter().fold(online.unwrap_or_default(), |all, (_, cpus)| all.union(cpus));
    for cpu in all.iter() {
        let node = nodes.iter().find(|(_, cpus)| cpus.contains(cpu)).map(|(node, _)| *node);
        found.add(CpuTopo { cpu, node, ..CpuTopo::default() });
    }
    found
}
