//! The guests of each owner together.

use super::memory::size;
use super::section::Section;
use crate::ui::state::AppState;
use crate::ui::table::{Cell, Column, RowKey, RowStyle, Table, TableId, left, right, step};
use crate::ui::text::clean;
use judge::figures::{percent, rate, share};
use judge::model::DomainModel;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// An owner and its guests.
pub struct OwnerRow<'a> {
    owner: &'a str,
    guests: Vec<&'a DomainModel>,
}

impl OwnerRow<'_> {
    /// A figure of all guests together; `None` where none is known.
    fn sum(&self, figure: fn(&DomainModel) -> Option<f64>) -> Option<f64> {
        let known = self.guests.iter().filter_map(|guest| figure(guest));
        known.reduce(|a, b| a + b)
    }
}

fn cpu(guest: &DomainModel) -> Option<f64> {
    Some(guest.cpu?.busy())
}

fn worst_wait(row: &OwnerRow<'_>) -> Option<f64> {
    let waits = row.guests.iter().filter_map(|guest| guest.worst_wait());
    waits.map(|(_, percent)| percent).reduce(f64::max)
}

type Col<'a> = Column<OwnerRow<'a>>;

/// The columns.
pub fn columns<'a>() -> Vec<Col<'a>> {
    let bytes = right(8).grow(2);
    vec![
        Col::text("owner", "OWNER", left(10).grow(20), |r| r.owner.into())
            .help("nova's project, KubeVirt's namespace or Proxmox's pool.")
            .drawn(|r| Cell::name(clean(r.owner))),
        Col::figure(
            "guests",
            "GUESTS",
            right(6),
            |r| Some(r.guests.len() as f64),
            share,
        )
        .help("How many guests it has."),
        Col::figure(
            "vcpus",
            "VCPUS",
            right(5).drop_order(1),
            |r| r.sum(|guest| Some(guest.vcpu_count().into())),
            share,
        )
        .help("Their vCPUs."),
        Col::figure("cpu", "CPU%", right(6), |r| r.sum(cpu), percent)
            .help("CPU time of all of them. 100 is one host CPU."),
        Col::figure("wait", "WAIT%", right(6), worst_wait, percent)
            .help("The wait of the vCPU that waits longest, percent of the time it wanted to run."),
        Col::figure(
            "mem",
            "MEM",
            bytes,
            |r| r.sum(|guest| Some(guest.memory.on_host()? as f64)),
            size,
        )
        .help("Their memory on the host."),
        Col::figure(
            "disk",
            "DISK/s",
            bytes.drop_order(2),
            |r| r.sum(|guest| Some(guest.disk_rates()?.all())),
            rate,
        )
        .help("Bytes that their disks read and write."),
        Col::figure(
            "net",
            "NET/s",
            bytes.drop_order(2),
            |r| r.sum(|guest| Some(guest.nic_rates()?.all())),
            rate,
        )
        .help("Bytes that they receive and send."),
    ]
}

/// The guests by their owner, the busiest owner first.
fn owned<'a>(guests: &[&'a DomainModel]) -> Vec<OwnerRow<'a>> {
    let mut owned: BTreeMap<&str, Vec<&DomainModel>> = BTreeMap::new();
    for guest in guests {
        if let Some(owner) = &guest.facts.labels.owner {
            owned.entry(owner).or_default().push(guest);
        }
    }
    let owned = owned.into_iter();
    let mut rows: Vec<_> = owned
        .map(|(owner, guests)| OwnerRow { owner, guests })
        .collect();
    rows.sort_by_cached_key(|row| Reverse(step(row.sum(cpu).unwrap_or(0.0))));
    rows
}

/// The section; `None` where no guest has an owner.
pub fn section<'a>(state: &'a AppState, guests: &[&'a DomainModel]) -> Option<Section<'a>> {
    let rows = owned(guests);
    if rows.is_empty() {
        return None;
    }
    let table = Table {
        id: TableId::Owners,
        columns: columns(),
        rows,
        key: |r| RowKey::of(r.owner),
        style: |_| RowStyle::Plain,
    };
    Some(Section::table(table, state, ""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::tests::screen;
    use std::collections::HashMap;
    use testkit::Fixture;

    #[test]
    fn the_guests_of_an_owner_are_added() {
        let state = screen(&Fixture::with_devices(), 120, 40);
        let guests = state.guests();
        let mut rows = HashMap::new();
        for row in owned(&guests) {
            rows.insert(row.owner, (row.guests.len(), row.sum(cpu).unwrap()));
        }
        let all: f64 = guests.iter().filter_map(|guest| cpu(guest)).sum();
        assert_eq!(rows["shop"].0, 1);
        assert_eq!(rows["lab"].0, guests.len() - 1);
        assert!((rows["shop"].1 + rows["lab"].1 - all).abs() < 0.01);
        assert!(section(&state, &[]).is_none());
    }
}
