//! The host's disks and network links, whoever uses them.

use super::disks::bad;
use super::section::Section;
use crate::ui::state::AppState;
use crate::ui::table::{Cell, Column, RowKey, RowStyle, Table, TableId, left, right, step};
use crate::ui::text::clean;
use judge::figures::{micros, percent, rate, share};
use judge::model::{HostLinkModel, Model, WholeDiskModel};
use std::cmp::Reverse;

type Disk<'a> = Column<&'a WholeDiskModel>;

/// The columns of disks; they have the names that JSON has.
pub fn disk_columns<'a>() -> Vec<Disk<'a>> {
    const NAME: &str = "A block device of the host, partitions included. What stands on others, as \
        dm-0, md0 and loop0 do, carries their bytes again.";
    const TIME: &str = "Mean time of a read or write in the kernel and the device, microseconds.";
    const BUSY: &str = "Part of the time in which a request was under way. An SSD or a RAID is not \
        full at 100.";
    vec![
        Disk::text("name", "DISK", left(8, 16, 0), |d| d.name.clone())
            .help(NAME)
            .drawn(|d| Cell::name(clean(&d.name))),
        Disk::figure(
            "read_ops",
            "READ/s",
            right(6, 2, 1),
            |d| d.rate_of(d.reads),
            rate,
        )
        .help("Reads per second."),
        Disk::figure(
            "write_ops",
            "WRITE/s",
            right(7, 2, 1),
            |d| d.rate_of(d.writes),
            rate,
        )
        .help("Writes per second."),
        Disk::figure(
            "read_bytes",
            "READ B/s",
            right(8, 2, 0),
            |d| d.rate_of(d.read_bytes),
            rate,
        )
        .help("Bytes read."),
        Disk::figure(
            "write_bytes",
            "WRITE B/s",
            right(9, 2, 0),
            |d| d.rate_of(d.write_bytes),
            rate,
        )
        .help("Bytes written."),
        Disk::figure("mean_us", "us", right(7, 2, 0), |d| d.mean_us(), micros).help(TIME),
        Disk::figure(
            "in_flight",
            "IN FLIGHT",
            right(9, 0, 3),
            |d| Some(d.in_flight as f64),
            share,
        )
        .help("Requests under way, as last read."),
        Disk::figure(
            "busy_percent",
            "BUSY%",
            right(6, 0, 2),
            |d| d.busy_percent(),
            percent,
        )
        .help(BUSY),
        Disk::text("alias", "STANDS FOR", left(10, 40, 4), |d| {
            d.alias.clone().unwrap_or_default()
        })
        .help("File of a loop device, name of a mapped one."),
    ]
}

/// The disks of the host, busiest first.
pub fn disks<'a>(state: &'a AppState, model: &'a Model) -> Section<'a> {
    let mut rows: Vec<&WholeDiskModel> = model.host.disks.iter().flatten().collect();
    let bytes = |d: &WholeDiskModel| d.rate_of(d.read_bytes.saturating_add(d.write_bytes));
    rows.sort_by_cached_key(|disk| Reverse(bytes(disk).map_or(0, step)));
    let table = Table {
        id: TableId::WholeDisks,
        columns: disk_columns(),
        rows,
        key: |d| RowKey::of(&d.name),
        style: |d| style(d.ops()),
    };
    Section::table(table, state, || nothing(model.host.disks.is_some()))
}

type Link<'a> = Column<&'a HostLinkModel>;

/// The columns of links; they have the names that JSON has.
pub fn link_columns<'a>() -> Vec<Link<'a>> {
    const NAME: &str = "A network interface of the host with a device: no bridge, bond or tap.";
    vec![
        Link::text("name", "LINK", left(8, 16, 0), |l| l.name.clone())
            .help(NAME)
            .drawn(|l| Cell::name(clean(&l.name))),
        Link::figure(
            "rx_bytes",
            "RX B/s",
            right(7, 2, 0),
            |l| l.rate_of(l.rx_bytes),
            rate,
        )
        .help("Bytes received."),
        Link::figure(
            "tx_bytes",
            "TX B/s",
            right(7, 2, 0),
            |l| l.rate_of(l.tx_bytes),
            rate,
        )
        .help("Bytes sent."),
        Link::figure("drops", "DROP/s", right(6, 2, 1), drops, rate)
            .help("Packets dropped, both ways.")
            .drawn(|l| bad(drops(l), rate)),
        Link::figure(
            "speed_mbit",
            "Mbit/s",
            right(6, 2, 2),
            |l| Some(l.speed_mbit? as f64),
            share,
        )
        .help("Its speed; `-` where its driver does not say."),
    ]
}

fn drops(link: &&HostLinkModel) -> Option<f64> {
    link.rate_of(link.drops)
}

/// The links of the host, busiest first.
pub fn links<'a>(state: &'a AppState, model: &'a Model) -> Section<'a> {
    let mut rows: Vec<&HostLinkModel> = model.host.links.iter().flatten().collect();
    let bytes = |l: &HostLinkModel| l.rate_of(l.rx_bytes.saturating_add(l.tx_bytes));
    rows.sort_by_cached_key(|link| Reverse(bytes(link).map_or(0, step)));
    let table = Table {
        id: TableId::Links,
        columns: link_columns(),
        rows,
        key: |l| RowKey::of(&l.name),
        style: |l| style(l.rate_of(l.rx_bytes.saturating_add(l.tx_bytes))),
    };
    Section::table(table, state, || nothing(model.host.links.is_some()))
}

/// A device that does nothing is dim.
fn style(rate: Option<f64>) -> RowStyle {
    if rate > Some(0.0) {
        RowStyle::Plain
    } else {
        RowStyle::Dim
    }
}

/// Why there is no row.
fn nothing(is_read: bool) -> String {
    if is_read { "none" } else { "not known" }.into()
}
