//! What guests do to each storage that their disks are kept on.

use super::memory::size;
use super::section::Section;
use crate::ui::state::AppState;
use crate::ui::table::{Cell, Column, RowKey, RowStyle, Table, TableId, left, right, step};
use crate::ui::text::clean;
use judge::figures::{micros, rate, share};
use judge::model::{DiskRates, DomainModel, Requests};
use sample::StoredDisk;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// A disk of a guest that is kept there.
#[derive(Clone, Copy)]
struct KeptDisk<'a> {
    guest: &'a str,
    rates: &'a DiskRates,
    stored: &'a StoredDisk,
}

/// A storage, and the disks that are kept there.
pub struct StorageRow<'a> {
    storage: &'a str,
    disks: Vec<KeptDisk<'a>>,
}

impl<'a> StorageRow<'a> {
    fn sum(&self, figure: fn(&DiskRates) -> f64) -> f64 {
        self.disks.iter().map(|disk| figure(disk.rates)).sum()
    }

    /// Mean time of all reads and writes, microseconds.
    fn mean_us(&self) -> Option<f64> {
        let all = Requests::of_disks(self.disks.iter().map(|disk| disk.rates))?;
        Some(all.mean_us)
    }

    /// The guest whose disks there read and write most requests.
    fn busiest(&self) -> &'a str {
        let mut by_guest: BTreeMap<&str, f64> = BTreeMap::new();
        for disk in &self.disks {
            *by_guest.entry(disk.guest).or_default() += requests(disk.rates);
        }
        let most = by_guest.iter().max_by(|a, b| a.1.total_cmp(b.1));
        match most {
            Some((guest, ops)) if *ops > 0.0 => guest,
            _ => "",
        }
    }
}

fn requests(disk: &DiskRates) -> f64 {
    disk.read_ops + disk.write_ops
}

type Col<'a> = Column<StorageRow<'a>>;

/// The columns.
pub fn columns<'a>() -> Vec<Col<'a>> {
    let bytes = right(8).grow(2);
    vec![
        Col::text("storage", "STORAGE", left(12).grow(20), |r| {
            r.storage.into()
        })
        .help("Mount point of a file system, or the lowest device below the guests' block devices.")
        .drawn(|r| Cell::name(clean(r.storage))),
        Col::figure(
            "guests",
            "GUESTS",
            right(6).drop_order(1),
            |r| {
                let guests: BTreeSet<_> = r.disks.iter().map(|disk| disk.guest).collect();
                Some(guests.len() as f64)
            },
            share,
        )
        .help("Guests with a disk there."),
        Col::figure("iops", "IO/s", right(6), |r| Some(r.sum(requests)), rate)
            .help("Reads and writes of their disks there."),
        Col::figure("mean_us", "IO us", right(7), StorageRow::mean_us, micros)
            .help("Mean time of one, microseconds where no unit is given."),
        Col::figure(
            "read_bytes",
            "READ B/s",
            bytes.drop_order(2),
            |r| Some(r.sum(|disk| disk.read_bytes)),
            rate,
        )
        .help("Bytes read."),
        Col::figure(
            "write_bytes",
            "WRITE B/s",
            bytes.drop_order(2),
            |r| Some(r.sum(|disk| disk.write_bytes)),
            rate,
        )
        .help("Bytes written."),
        Col::text("busiest", "MOST BY", left(10).grow(16), |r| {
            r.busiest().into()
        })
        .help("The guest with most of the requests.")
        .drawn(|r| Cell::text(clean(r.busiest()))),
        Col::figure(
            "free",
            "FREE",
            right(8).drop_order(3),
            |r| Some(r.disks.first()?.stored.free_bytes? as f64),
            size,
        )
        .help("Room that is left there; none for block devices."),
        Col::figure(
            "filled",
            "FILLS /h",
            right(8).drop_order(4),
            |r| Some(r.disks.first()?.stored.filled_per_hour? as f64),
            size,
        )
        .help("How much of it is used up in an hour; `-` until it was watched for ten minutes."),
    ]
}

/// The section, the busiest storage first; `None` where none is known.
pub fn section<'a>(state: &'a AppState, guests: &[&'a DomainModel]) -> Option<Section<'a>> {
    let mut storages: BTreeMap<&str, Vec<KeptDisk<'_>>> = BTreeMap::new();
    for guest in guests {
        for rates in &guest.disks {
            if let Some(stored) = guest.stored(&rates.name) {
                storages.entry(&stored.storage).or_default().push(KeptDisk {
                    guest: guest.name(),
                    rates,
                    stored,
                });
            }
        }
    }
    if storages.is_empty() {
        return None;
    }
    let storages = storages.into_iter();
    let mut rows: Vec<_> = storages
        .map(|(storage, disks)| StorageRow { storage, disks })
        .collect();
    rows.sort_by_cached_key(|row| Reverse(step(row.sum(requests))));
    let table = Table {
        id: TableId::Storage,
        columns: columns(),
        rows,
        key: |r| RowKey::of(r.storage),
        style: |_| RowStyle::Plain,
    };
    Some(Section::table(table, state, ""))
}
