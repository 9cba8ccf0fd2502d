//! `lscpu` without options: a line for each property, in any locale, and the same as JSON.

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

/// Label and value of `On-line CPU(s) list:   0-15`; Chinese has a wide colon, JSON has both in quotes.
fn property(line: &str) -> Option<(&str, &str)> {
    let (label, value) = line.trim().split_once([':', '：'])?;
    Some((label.trim(), value.trim()))
}

/// A list (`0-7,16`) or, with `lscpu -x`, a mask (`0xff`).
fn cpus(value: &str) -> Option<CpuSet> {
    let Some(mask) = value.strip_prefix("0x") else { return CpuSet::parse(value).ok().filter(|set| !set.is_empty()) };
    let mut set = CpuSet::new();
    for (nibble, digit) in mask.chars().rev().filter(|c| *c != ',').take(2048).enumerate() {
        let bits = digit.to_digit(16)?;
        (0..4).filter(|bit| bits >> bit & 1 == 1).for_each(|bit| {
            set.insert(nibble as u32 * 4 + bit);
        });
    }
    (!set.is_empty()).then_some(set)
}

pub(super) fn parse(text: &str) -> TopologyText {
    let mut found = TopologyText::default();
    let (mut online, mut nodes) = (None, Vec::new());
    let lines = json(text);
    let lines = lines.as_deref().unwrap_or(text);
    for (label, value) in lines.lines().take(20_000).filter_map(property) {
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

/// `lscpu -J` as lines.
fn json(text: &str) -> Option<String> {
    /// Fields can have children, which newer versions nest.
    fn lines(value: &serde_json::Value, out: &mut String, depth: usize) {
        for item in value.as_array().into_iter().flatten().take(4096).filter(|_| depth < 8) {
            if let (Some(field), Some(data)) = (item["field"].as_str(), item["data"].as_str()) {
                out.push_str(field.trim_end_matches(':'));
                out.push_str(": ");
                out.push_str(data);
                out.push('\n');
            }
            lines(&item["children"], out, depth + 1);
        }
    }
    let text = text.trim();
    if !text.starts_with('{') || !text.contains("\"lscpu\"") {
        return None;
    }
    let document: serde_json::Value = serde_json::from_str(text).ok()?;
    let mut out = String::new();
    lines(&document["lscpu"], &mut out, 0);
    Some(out)
}
