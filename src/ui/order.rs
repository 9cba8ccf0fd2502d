//! What the rows of a view are sorted by, chosen with a key.

use super::view::{ScreenView, ViewState};

/// CPU time.
pub const CPU: &str = "CPU";
/// Time runnable without a CPU.
pub const WAIT: &str = "wait";
/// The 99th percentile of wake-up latencies.
pub const P99: &str = "wake-up p99";
/// Moves between host CPUs.
pub const MOVES: &str = "moves";
/// The number of the thread or CPU.
pub const NUMBER: &str = "number";
/// Time in exits.
pub const TIME: &str = "time";
/// Number of exits or accesses.
pub const COUNT: &str = "count";
/// What an admin has to see first.
pub const TROUBLE: &str = "trouble";
/// Operations and packets.
pub const OPERATIONS: &str = "operations";
/// Bytes.
pub const BYTES: &str = "bytes";
/// Mean time of an operation.
pub const LATENCY: &str = "latency";
/// Memory on the host.
pub const RESIDENT: &str = "resident";
/// Memory in swap.
pub const SWAP: &str = "swap";
/// Memory far from the vCPUs.
pub const LOCAL: &str = "least local";
/// Name.
pub const NAME: &str = "name";

impl ScreenView {
    /// What its rows can be sorted by, the usual order first. Empty for a view with one order.
    pub fn orders(self) -> &'static [&'static str] {
        match self {
            Self::Threads => &[CPU, WAIT, P99, MOVES, NUMBER],
            Self::Exits | Self::Accesses => &[TIME, COUNT],
            Self::Cpus => &[TROUBLE, CPU, NUMBER],
            Self::Latency => &[P99, WAIT, NUMBER],
            Self::Disks => &[OPERATIONS, BYTES, LATENCY, NAME],
            Self::Memory => &[RESIDENT, SWAP, LOCAL, NAME],
            Self::Guests | Self::Findings | Self::Sources => &[],
        }
    }
}

impl ViewState {
    /// What the rows of a view are sorted by.
    pub fn order_of(&self, view: ScreenView) -> &'static str {
        let orders = view.orders();
        orders.get(self.orders.get(&view).copied().unwrap_or(0)).or(orders.first()).copied().unwrap_or(NAME)
    }

    /// What the rows of the view on the screen are sorted by.
    pub fn order(&self) -> &'static str {
        self.order_of(self.shown)
    }

    /// Sorts the view by what comes next; after the last comes the first.
    pub fn turn_order(&mut self) {
        let orders = self.shown.orders();
        let at = self.orders.entry(self.shown).or_default();
        *at = (*at + 1) % orders.len().max(1);
    }
}

/// A figure in steps of a fifth, to sort by: noise does not move rows. Unknown figures come last.
pub fn step(value: Option<f64>) -> i64 {
    match value {
        None => -1,
        Some(v) if v < 1.0 => 0,
        Some(v) => 1 + (v.ln() / 1.2_f64.ln()) as i64,
    }
}

/// Below this percentage of a CPU a thread is as good as idle: it moves past no other.
const LITTLE_CPU: f64 = 5.0;

/// The same for percent of a CPU.
pub fn cpu_step(percent: Option<f64>) -> i64 {
    step(percent.map(|p| if p < LITTLE_CPU { 0.0 } else { p }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_that_differ_little_are_equal() {
        let [none, nothing, little, much] = [None, Some(0.2), Some(12.0), Some(90.0)].map(step);
        assert!(none < nothing && nothing < little && little < much);
        assert_eq!(step(Some(80.0)), step(Some(84.0)));
        assert_eq!(cpu_step(Some(0.9)), cpu_step(Some(1.1)));
        assert!(cpu_step(None) < cpu_step(Some(2.0)) && cpu_step(Some(2.0)) < cpu_step(Some(6.0)));
    }

    #[test]
    fn orders_turn_in_a_circle() {
        let mut view = ViewState { shown: ScreenView::Latency, ..ViewState::default() };
        let names: Vec<_> = (0..4)
            .map(|_| {
                let name = view.order();
                view.turn_order();
                name
            })
            .collect();
        assert_eq!(names, [P99, WAIT, NUMBER, P99]);
    }
}
