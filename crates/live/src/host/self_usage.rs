//! kvmtop's own CPU time and memory.

use crate::proc::file::read_text;
use crate::proc::paths::SystemPaths;
use engine::clock::clock_ns;
use rustix::time::ClockId;
use sample::OwnCost;

/// CPU time and resident memory of this process.
pub(crate) fn cost(paths: &SystemPaths) -> OwnCost {
    let pages = read_text(&paths.proc.join("self/statm"), 256)
        .ok()
        .and_then(|t| t.split_whitespace().nth(1)?.parse::<u64>().ok())
        .unwrap_or(0);
    OwnCost { cpu_ns: clock_ns(ClockId::ProcessCPUTime), rss_bytes: pages * rustix::param::page_size() as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_cost_is_some() {
        let cost = cost(&SystemPaths::default());
        assert!(cost.cpu_ns > 0 && cost.rss_bytes > 100_000);
    }
}
