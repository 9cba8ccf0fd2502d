//! The list of guests: its rows, what is selected, the filter.

use super::{RowKey, TableFilter};
use judge::cost::{GuestCosts, guest_costs};
use judge::model::{DomainModel, GuestId, Model};
use std::collections::HashMap;

/// A row of the list.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ListRow {
    /// A guest: its index in the model's list.
    Guest(usize),
    /// What the host does outside guests.
    Other,
    /// So many idle guests.
    Idle(usize),
}

/// The list of guests.
#[derive(Debug, Clone, Default)]
pub struct GuestList {
    /// The rows, top to bottom.
    pub rows: Vec<ListRow>,
    /// The guests that pass the filter, in the order of the list, folded ones too: indices into the
    /// model's list.
    pub guests: Vec<usize>,
    /// The selected row. `None` until a key selects one; the first row is selected then.
    pub cursor: Option<RowKey>,
    /// Index of the selected row.
    pub at: usize,
    /// Index of the first visible row.
    pub top: usize,
    /// Whether each idle guest has a row.
    pub shows_idle: bool,
    /// Which guests are shown.
    pub filter: TableFilter,
    /// What costs each guest its time, on average over [`CALM_MS`], in the order of the model.
    pub costs: Vec<GuestCosts>,
    /// The costs of the intervals of which these are the means, oldest first.
    recent: Vec<IntervalCosts>,
}

/// Costs and who takes the CPU are means over this long, so that names can be read, milliseconds.
const CALM_MS: i64 = 10_000;

#[derive(Debug, Clone)]
struct IntervalCosts {
    time_ms: i64,
    of_guests: HashMap<GuestId, GuestCosts>,
}

impl GuestList {
    /// The selected row; that of the host while there is none.
    pub fn selected(&self) -> ListRow {
        self.rows.get(self.at).copied().unwrap_or(ListRow::Other)
    }

    /// Takes in what the guests did in a new interval; `before` is the interval of the costs so
    /// far.
    pub fn watch(&mut self, before: Option<&Model>, model: &Model) {
        let before = before
            .into_iter()
            .flat_map(|m| &m.domains)
            .map(DomainModel::key);
        let before: HashMap<GuestId, &GuestCosts> = before.zip(&self.costs).collect();
        let now = model.time_ms;
        let last = self.recent.last().map_or(now, |last| last.time_ms);
        // The clock was set, or the screen shows another time.
        if now < last || now - last > CALM_MS {
            self.recent.clear();
        }
        let of_now = model.domains.iter().map(DomainModel::key);
        self.recent.push(IntervalCosts {
            time_ms: now,
            of_guests: of_now.zip(guest_costs(model)).collect(),
        });
        self.recent.retain(|recent| now - recent.time_ms < CALM_MS);
        let mut costs = Vec::new();
        for domain in &model.domains {
            let key = domain.key();
            let recent = self.recent.iter();
            let intervals: Vec<&GuestCosts> = recent
                .filter_map(|recent| recent.of_guests.get(&key))
                .collect();
            let mut mean = GuestCosts::mean(&intervals);
            if let Some(before) = before.get(&key) {
                mean.keep_lead(before);
            }
            costs.push(mean);
        }
        self.costs = costs;
    }
}
