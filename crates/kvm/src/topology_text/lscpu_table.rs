//! `lscpu -e`: a table with a row for each CPU, in any locale.

use super::TopologyText;
use crate::cpu_set::CpuSet;
use crate::topology::CpuTopo;

/// Values of the column ONLINE of an offline CPU. In other languages it is known by the core that it lacks.
const NO: [&str; 2] = ["no", "n"];

/// The columns of a CPU's values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CpuColumns {
    cpu: usize,
    core: Option<usize>,
    socket: Option<usize>,
    die: Option<usize>,
    node: Option<usize>,
    online: Option<usize>,
    /// The last level of cache, or all levels in one column: `0:0:0:0`.
    cache: Option<usize>,
    /// The second level of cache alone.
    l2: Option<usize>,
    max_mhz: Option<usize>,
}

impl CpuColumns {
    /// Columns by their titles (lscpu.c, `coldescs_cpu`); `None` without a column of CPUs or any other that tells.
    pub fn by_name(names: &[&str]) -> Option<Self> {
        let lower: Vec<String> = names.iter().map(|name| name.to_lowercase()).collect();
        let at = |wanted: &str| lower.iter().position(|name| name == wanted);
        let columns = Self {
            cpu: at("cpu")?,
            core: at("core"),
            socket: at("socket"),
            die: at("die"),
            node: at("node"),
            online: at("online"),
            cache: ["l4", "l3", "l2", "cache"]
                .into_iter()
                .find_map(at)
                .or_else(|| lower.iter().position(|name| name.starts_with("l1d:"))),
            l2: at("l2"),
            max_mhz: at("maxmhz"),
        };
        let tells = [columns.core, columns.socket, columns.node, columns.cache, columns.online];
        tells.iter().any(Option::is_some).then_some(columns)
    }

    /// Columns under titles in an unknown language, by their order (`CPU NODE SOCKET CORE L1d:L1i:L2:L3 ONLINE`, NODE
    /// only on hosts with nodes) and the colons between the cache's ids.
    fn by_values(values: &[&str]) -> Option<Self> {
        let cache = values.iter().position(|value| is_cache(value))?;
        let ids = values.get(..cache)?.iter().filter(|value| is_id(value)).count();
        if ids != cache || !(3..=6).contains(&cache) {
            return None;
        }
        Some(Self {
            cpu: 0,
            node: (cache > 3).then_some(1),
            socket: Some(cache - 2),
            core: Some(cache - 1),
            cache: Some(cache),
            online: Some(cache + 1).filter(|at| *at < values.len()),
            max_mhz: Some(cache + 2).filter(|at| *at < values.len()),
            ..Self::default()
        })
    }

    /// Reads a row; false if its CPU number is missing.
    pub fn read(&self, values: &[&str], found: &mut TopologyText) -> bool {
        let value = |at: Option<usize>| at.and_then(|at| values.get(at)).copied();
        let number = |at: Option<usize>| value(at).and_then(|text| text.parse::<u32>().ok());
        let Some(cpu) = number(Some(self.cpu)) else { return false };
        let core_missing = self.core.is_some() && matches!(value(self.core), Some("" | "-"));
        let off = value(self.online).is_some_and(|online| NO.contains(&online.to_lowercase().as_str()));
        if off || core_missing {
            found.offline.insert(cpu);
            return true;
        }
        // All levels in one column begin with both parts of the first.
        let l2 = number(self.l2).or_else(|| value(self.cache)?.split(':').nth(2)?.parse().ok());
        found.l2.extend(l2.map(|l2| (cpu, l2)));
        // The decimal point is a comma in some languages.
        let mhz = value(self.max_mhz).and_then(|text| text.split(['.', ',']).next()?.parse().ok());
        found.max_mhz.extend(mhz.map(|mhz| (cpu, mhz)));
        let llc = value(self.cache).and_then(|all| all.rsplit(':').find(|id| !id.is_empty()));
        found.add(CpuTopo {
            cpu,
            core: number(self.core),
            socket: number(self.socket),
            die: number(self.die),
            node: number(self.node),
            llc: llc.and_then(|id| id.parse().ok()),
            siblings: CpuSet::new(),
        });
        true
    }
}

/// `0:0:0:0`.
fn is_cache(value: &str) -> bool {
    value.matches(':').count() >= 2 && value.bytes().all(|b| b.is_ascii_digit() || b == b':')
}

fn is_id(value: &str) -> bool {
    value == "-" || !value.is_empty() && value.len() <= 9 && value.bytes().all(|b| b.is_ascii_digit())
}

pub(super) fn looks_like(text: &str) -> bool {
    !table(text, 5000).topology.cpus.is_empty()
}

pub(super) fn parse(text: &str) -> TopologyText {
    table(text, usize::MAX)
}

fn table(text: &str, lines: usize) -> TopologyText {
    let mut found = TopologyText::default();
    let mut columns: Option<CpuColumns> = None;
    let mut rows = text.lines().enumerate().take(lines).peekable();
    while let Some((number, line)) = rows.next() {
        let words: Vec<&str> = line.split_whitespace().take(32).collect();
        if let Some(known) = &columns {
            if words.first().is_some_and(|word| is_id(word)) && words.len() > 1 && known.read(&words, &mut found) {
                continue;
            }
            if words.first().is_some_and(|word| is_id(word)) {
                found.unread.add(number + 1, line);
                continue;
            }
            columns = None;
        }
        if words.len() < 2 || words.first().is_some_and(|word| is_id(word)) {
            continue;
        }
        // Titles are followed by the row of a CPU.
        let Some((_, next)) = rows.peek() else { break };
        let values: Vec<&str> = next.split_whitespace().take(32).collect();
        let by_name = CpuColumns::by_name(&words).filter(|_| words.len() <= values.len());
        columns = by_name
            .or_else(|| CpuColumns::by_values(&values))
            .filter(|known| values.get(known.cpu).is_some_and(|cpu| is_id(cpu)) && values.len() > 1);
    }
    found
}
