//! The views. A view is a list of [`Section`]s; [`page`] lays them out in one scroll. The first
//! screen is the list of guests ([`guests`]) with the detail of the selected row.

pub mod accesses;
pub mod cpu_map;
pub mod cpus;
pub mod detail;
pub mod disks;
pub mod exits;
pub mod guest_tables;
pub mod guests;
pub mod host_devices;
pub mod host_disks;
pub mod interrupts;
pub mod jobs;
pub mod latency;
pub mod memory;
pub mod minute;
mod missing;
mod nodes;
mod owners;
pub mod page;
pub mod problems;
pub mod section;
pub mod sources;
mod storage;
pub mod tasks;
pub mod threads;
pub mod userspace;

pub use page::Page;
pub use section::Section;

use super::{AppState, Column, ColumnHead, ScreenView, TableId, layout};
use judge::model::Model;

/// The sections of a view in a width.
pub fn sections(view: ScreenView, state: &AppState, columns: u16) -> Vec<Section<'_>> {
    let Some(model) = &state.model else {
        return Vec::new();
    };
    match view {
        ScreenView::Guests => Vec::new(),
        ScreenView::Page => page_sections(state, model, columns),
        ScreenView::Problems => vec![problems::all(state, columns)],
        ScreenView::Host => {
            let mut page = Vec::from_iter(nodes::section(state, model));
            page.push(cpu_map::section(state, model, columns));
            page.push(cpus::section(state, model));
            page.push(host_devices::section(state, model));
            page
        }
        ScreenView::Latency => vec![latency::section(state)],
        ScreenView::Sources => vec![
            sources::section(model, columns),
            sources::unjudged(state, model, columns),
        ],
    }
}

/// The sections of the selected guest, else of the host.
fn page_sections<'a>(state: &'a AppState, model: &'a Model, columns: u16) -> Vec<Section<'a>> {
    let domain = state.domain();
    let guests = domain.map_or_else(|| state.guests(), |domain| vec![domain]);
    let mut page = vec![problems::section(state, columns)];
    if let Some(domain) = domain {
        // Few guests have a job at any time.
        if !domain.jobs.is_empty() {
            page.push(jobs::section(state, domain));
        }
        page.extend([
            exits::section(state, domain),
            userspace::section(state, domain),
            accesses::section(state, domain),
            threads::section(state, domain),
            interrupts::section(state, domain),
        ]);
    } else {
        page.push(tasks::section(state, model));
        page.extend(owners::section(state, &guests));
        page.extend(storage::section(state, &guests));
    }
    page.extend([
        disks::section(state, &guests),
        disks::nics(state, &guests),
        host_disks::section(state, &guests),
        memory::section(state, model, &guests),
    ]);
    // Beside the list the last minute is below the list.
    if domain.is_some() && state.view == ScreenView::Page {
        page.push(minute::section(state));
    }
    page
}

impl AppState {
    /// The sections of a view as they are laid out on this screen.
    pub fn page_of(&self, view: ScreenView) -> Page<'_> {
        Page::new(sections(view, self, layout::plan(self).page.width))
    }

    /// The sections that the screen shows: beside the list the sections of the selected row's page.
    pub fn shown_page(&self) -> Page<'_> {
        if self.view == ScreenView::Guests && !layout::plan(self).page.is_empty() {
            return self.page_of(ScreenView::Page);
        }
        self.page_of(self.view)
    }

    /// What describes the columns of a table; those of the list that the lens shows are not hidden.
    pub fn heads(&self, table: TableId) -> Vec<ColumnHead> {
        match table {
            TableId::Guests => heads_of(guests::columns_through(self.lens)),
            _ => heads(table),
        }
    }
}

/// What describes the columns of a table, left to right.
pub fn heads(table: TableId) -> Vec<ColumnHead> {
    match table {
        TableId::Guests => heads_of(guests::columns()),
        TableId::Exits => heads_of(exits::columns()),
        TableId::Userspace => heads_of(userspace::columns()),
        TableId::Accesses => heads_of(accesses::columns()),
        TableId::Threads => heads_of(threads::columns()),
        TableId::Interrupts => heads_of(interrupts::columns()),
        TableId::Jobs => heads_of(jobs::columns()),
        TableId::Disks => heads_of(disks::columns()),
        TableId::Nics => heads_of(disks::nic_columns()),
        TableId::HostDisks => heads_of(host_disks::columns()),
        TableId::Memory => heads_of(memory::columns()),
        TableId::Nodes => heads_of(nodes::columns()),
        TableId::Owners => heads_of(owners::columns()),
        TableId::Storage => heads_of(storage::columns()),
        TableId::Cpus => heads_of(cpus::columns()),
        TableId::HostDevices => heads_of(host_devices::columns()),
        TableId::Latency => heads_of(latency::columns()),
        TableId::Tasks => heads_of(tasks::columns()),
    }
}

fn heads_of<Row>(columns: Vec<Column<Row>>) -> Vec<ColumnHead> {
    columns.into_iter().map(|column| column.head).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_column_has_its_help() {
        assert!(
            TableId::ALL
                .into_iter()
                .flat_map(heads)
                .all(|head| !head.help.is_empty())
        );
    }
}
