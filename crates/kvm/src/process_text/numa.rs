//! Memory by NUMA node: `numastat -p PID`, `numastat -c qemu` (numactl's numastat.c) and `/proc/PID/numa_maps`
//! (`show_numa_map` in the kernel's `fs/proc/task_mmu.c`).

use super::{MAX_LINES, ProcessText, name};

/// numastat's MB are MiB.
const MIB: f64 = 1024.0 * 1024.0;
/// More nodes than any host has.
const MAX_NODES: usize = 1024;

pub(super) fn read(text: &str, pid: Option<i32>, found: &mut ProcessText) {
    let mut table = None;
    let mut nodes = Vec::new();
    for line in text.lines().take(MAX_LINES) {
        let line = line.trim();
        if let Some((_, about)) = line.split_once("Per-node process memory usage (in MBs)") {
            table = Some(about.trim().strip_prefix("for PID ").and_then(process));
            nodes.clear();
        } else if let Some(one) = &table {
            if line.contains("Node ") {
                nodes = node_numbers(line);
            } else if let Some((pid, comm)) = one.as_ref().filter(|_| line.starts_with("Total")) {
                add(found, *pid, comm, &nodes, line);
            } else if let Some((pid, comm)) = process(line) {
                let values = line.split_once('(').and_then(|(_, rest)| rest.split_once([')', ' ']));
                add(found, pid, &comm, &nodes, values.map_or("", |(_, values)| values));
            }
        } else if let Some(pid) = pid {
            mapping(line, pid, found);
        }
    }
}

/// `4391 (qemu-syste`, with or without the closing parenthesis.
fn process(text: &str) -> Option<(i32, String)> {
    let (pid, rest) = text.split_once(" (")?;
    let comm = rest.split([')', ' ']).next()?;
    Some((pid.trim().parse().ok()?, name(comm)))
}

/// `Node 0 Node 1 Total`.
fn node_numbers(line: &str) -> Vec<u32> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let numbers = words.windows(2).filter(|pair| pair[0] == "Node").filter_map(|pair| pair[1].parse().ok());
    numbers.take(MAX_NODES).collect()
}

fn add(found: &mut ProcessText, pid: i32, comm: &str, nodes: &[u32], values: &str) {
    let Some(process) = found.process(pid) else { return };
    process.comm = Some(comm.to_owned());
    let numbers = values.split_whitespace().filter_map(|word| word.parse::<f64>().ok());
    for (node, mib) in nodes.iter().zip(numbers.filter(|mib| mib.is_finite() && *mib >= 0.0)) {
        process.nodes.insert(*node, (mib * MIB) as u64);
    }
}

/// `7f1f3b9bd000 default anon=9 dirty=9 N0=3 N2=6 kernelpagesize_kB=4`.
fn mapping(line: &str, pid: i32, found: &mut ProcessText) {
    let mut words = line.split_whitespace();
    let hex = |word: &str| word.len() >= 8 && word.bytes().all(|b| b.is_ascii_hexdigit());
    if !words.next().is_some_and(hex) {
        return;
    }
    let page = words.clone().find_map(|word| word.strip_prefix("kernelpagesize_kB=")?.parse::<u64>().ok());
    let bytes = page.unwrap_or(4).min(1 << 30) * 1024;
    for word in words {
        let pages = word.strip_prefix('N').and_then(|rest| rest.split_once('='));
        let Some((Ok(node), Ok(pages))) = pages.map(|(node, n)| (node.parse::<u32>(), n.parse::<u64>())) else {
            continue;
        };
        let Some(process) = found.process(pid) else { return };
        if process.nodes.len() < MAX_NODES || process.nodes.contains_key(&node) {
            let sum = process.nodes.entry(node).or_default();
            *sum = sum.saturating_add(pages.saturating_mul(bytes));
        }
    }
}
