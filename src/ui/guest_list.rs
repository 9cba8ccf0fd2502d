//! The list of guests: its rows, what is selected, the filter.

use super::filter::TableFilter;
use super::table::RowKey;
use judge::cost::{GuestCosts, guest_costs};
use judge::model::{DomainModel, GuestId, Model};
use std::collections::HashMap;

/// A row of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    /// What costs each guest its time, in the order of the model.
    pub costs: Vec<GuestCosts>,
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
        let mut costs = guest_costs(model);
        for (domain, costs) in model.domains.iter().zip(&mut costs) {
            if let Some(before) = before.get(&domain.key()) {
                costs.keep_lead(before);
            }
        }
        self.costs = costs;
    }
}
