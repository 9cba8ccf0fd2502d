//! The views. A view is a list of [`Section`]s; [`page`] lays them out in one scroll. The first screen is the list of
//! guests ([`guests`]) with the detail of the selected row.

pub mod accesses;
pub mod cpu_map;
pub mod cpus;
pub mod detail;
pub mod disks;
pub mod exits;
pub mod guests;
pub mod host_disks;
pub mod interrupts;
pub mod jobs;
pub mod latency;
pub mod memory;
pub mod minute;
mod missing;
pub mod page;
pub mod problems;
pub mod section;
pub mod sources;
pub mod tasks;
pub mod threads;
pub mod userspace;

pub use page::{Page, PageState};
pub use section::{Section, SectionId};

use super::state::AppState;
use super::table::{ColumnHead, TableId};
use serde::Deserialize;
use strum::IntoStaticStr;

/// What fills the screen below the header.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum ScreenView {
    /// The list of guests, and the detail of the selected one.
    #[default]
    Guests,
    /// All of one guest, or of the host outside guests.
    #[serde(skip)]
    Page,
    /// The host's CPUs.
    Cpus,
    /// How long vCPUs wait for a CPU.
    Latency,
    /// Disks, network interfaces and memory.
    Storage,
    /// Which sources work and which are missing.
    Sources,
}

impl ScreenView {
    /// The views that a number and Tab show, in this order.
    pub const ALL: [Self; 5] = [Self::Guests, Self::Cpus, Self::Latency, Self::Storage, Self::Sources];

    /// Its name in the config file and in names of files.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// The view `by` places further; after the last comes the first.
    #[must_use]
    pub fn turn(self, by: isize) -> Self {
        let at = Self::ALL.iter().position(|v| *v == self).unwrap_or(0);
        Self::ALL[(at as isize + by).rem_euclid(Self::ALL.len() as isize) as usize]
    }
}

/// The sections of a view in a width.
pub fn sections(view: ScreenView, state: &AppState, columns: u16) -> Vec<Section<'_>> {
    let Some(model) = &state.model else { return Vec::new() };
    match view {
        ScreenView::Guests => Vec::new(),
        ScreenView::Page => match state.domain() {
            Some(domain) => [
                problems::section(state, columns),
                jobs::section(state, domain),
                exits::section(state, domain),
                userspace::section(state, domain),
                accesses::section(state, domain),
                threads::section(state, domain),
                interrupts::section(state, domain),
                disks::section(state, &[domain]),
                disks::nics(state, &[domain]),
                host_disks::section(state, &[domain]),
                memory::section(state, model, &[domain]),
                minute::section(state),
            ]
            .into_iter()
            // The page beside the list: the last minute is below the list. Few guests have a job at any time.
            .filter(|section| match section.id {
                SectionId::Minute => state.view == view,
                SectionId::Table(TableId::Jobs) => !domain.jobs.is_empty(),
                _ => true,
            })
            .collect(),
            None => vec![problems::section(state, columns), tasks::section(state, model)],
        },
        ScreenView::Cpus => vec![cpu_map::section(state, model, columns), cpus::section(state, model)],
        ScreenView::Latency => vec![latency::section(state)],
        ScreenView::Storage => {
            let guests = state.guests();
            vec![
                disks::section(state, &guests),
                disks::nics(state, &guests),
                host_disks::section(state, &guests),
                memory::section(state, model, &guests),
            ]
        }
        ScreenView::Sources => vec![sources::section(model, columns), sources::unjudged(state, model, columns)],
    }
}

/// A table, its title, and what describes its columns, left to right.
type TableRow = (TableId, &'static str, fn() -> Vec<ColumnHead>);

/// All tables, in the order of the help.
pub const TABLES: [TableRow; 14] = [
    (TableId::Guests, "guests", || heads_of(guests::columns())),
    (TableId::Exits, "exits", || heads_of(exits::columns())),
    (TableId::Userspace, "exits to the VMM", || heads_of(userspace::columns())),
    (TableId::Accesses, "devices", || heads_of(accesses::columns())),
    (TableId::Threads, "threads", || heads_of(threads::columns())),
    (TableId::Interrupts, "interrupts", || heads_of(interrupts::columns())),
    (TableId::Jobs, "jobs", || heads_of(jobs::columns())),
    (TableId::Disks, "disks", || heads_of(disks::columns())),
    (TableId::Nics, "network interfaces", || heads_of(disks::nic_columns())),
    (TableId::HostDisks, "block devices of the host", || heads_of(host_disks::columns())),
    (TableId::Memory, "memory", || heads_of(memory::columns())),
    (TableId::Cpus, "CPUs", || heads_of(cpus::columns())),
    (TableId::Latency, "latency", || heads_of(latency::columns())),
    (TableId::Tasks, "tasks outside guests", || heads_of(tasks::columns())),
];

/// A table's title.
pub fn title(table: TableId) -> &'static str {
    TABLES[table as usize].1
}

/// What describes the columns of a table, left to right.
pub fn heads(table: TableId) -> Vec<ColumnHead> {
    (TABLES[table as usize].2)()
}

fn heads_of<Row>(columns: Vec<super::table::Column<Row>>) -> Vec<ColumnHead> {
    columns.into_iter().map(|column| column.head).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_table_has_its_row() {
        assert!(TABLES.iter().enumerate().all(|(n, (id, ..))| *id as usize == n));
    }

    #[test]
    fn each_column_has_its_help() {
        assert!(TABLES.iter().flat_map(|(.., heads)| heads()).all(|head| !head.help.is_empty()));
    }
}
