//! The host's disks and network links, whoever uses them.

use super::Section;
use crate::ui::{
    AppState, Cell, Column, RowKey, RowStyle, Table, TableId, clean, left, right, step,
};
use judge::figures::{micros, percent, rate, share};
use judge::model::{HostLinkModel, Model, WholeDiskModel};
use std::cmp::Reverse;

/// A disk or a link.
pub struct DeviceRow<'a> {
    name: &'a str,
    /// Bytes per second read or received, and written or sent.
    bytes: [Option<f64>; 2],
    disk: Option<&'a WholeDiskModel>,
    link: Option<&'a HostLinkModel>,
}

impl<'a> DeviceRow<'a> {
    fn disk(disk: &'a WholeDiskModel) -> Self {
        Self {
            name: &disk.name,
            bytes: [disk.read_bytes, disk.write_bytes].map(|n| disk.rate_of(n)),
            disk: Some(disk),
            link: None,
        }
    }

    fn link(link: &'a HostLinkModel) -> Self {
        Self {
            name: &link.name,
            bytes: [link.rx_bytes, link.tx_bytes].map(|n| link.rate_of(n)),
            disk: None,
            link: Some(link),
        }
    }

    fn all_bytes(&self) -> f64 {
        self.bytes.iter().flatten().sum()
    }

    fn drops(&self) -> Option<f64> {
        let link = self.link?;
        link.rate_of(link.drops)
    }
}

type Col<'a> = Column<DeviceRow<'a>>;

/// The columns. Those of one kind of device have the names that JSON has.
pub fn columns<'a>() -> Vec<Col<'a>> {
    let ops = right(7).grow(2).drop_order(1);
    let bytes = right(8).grow(2);
    vec![
        Col::text("name", "NAME", left(8).grow(16), |r| r.name.to_owned())
            .help(
                "A block device, partitions included, or a network interface with a device: no \
                    bridge, bond or tap. What stands on others, as dm-0, md0 and loop0 do, \
                    carries their bytes again.",
            )
            .drawn(|r| Cell::name(clean(r.name))),
        Col::figure(
            "read_ops",
            "READ/s",
            ops,
            |r| r.disk?.rate_of(r.disk?.reads),
            rate,
        )
        .help("Reads per second."),
        Col::figure(
            "write_ops",
            "WRITE/s",
            ops,
            |r| r.disk?.rate_of(r.disk?.writes),
            rate,
        )
        .help("Writes per second."),
        Col::figure("in_bytes", "IN B/s", bytes, |r| r.bytes[0], rate)
            .help("Bytes read or received."),
        Col::figure("out_bytes", "OUT B/s", bytes, |r| r.bytes[1], rate)
            .help("Bytes written or sent."),
        Col::figure("mean_us", "us", ops, |r| r.disk?.mean_us(), micros)
            .help("Mean time of a read or write in the kernel and the device, microseconds."),
        Col::figure(
            "in_flight",
            "IN FLIGHT",
            right(9).drop_order(3),
            |r| Some(r.disk?.in_flight as f64),
            share,
        )
        .help("Requests under way, as last read."),
        Col::figure(
            "busy_percent",
            "BUSY%",
            right(6).drop_order(2),
            |r| r.disk?.busy_percent(),
            percent,
        )
        .help(
            "Part of the time in which a request was under way. An SSD or a RAID is not full at \
                100.",
        ),
        Col::figure("drops", "DROP/s", ops, DeviceRow::drops, rate)
            .help("Packets dropped, both ways.")
            .warns_above_zero(),
        Col::figure(
            "speed_mbit",
            "Mbit/s",
            right(6).grow(2).drop_order(2),
            |r| Some(r.link?.speed_mbit? as f64),
            share,
        )
        .help("Speed of the link; `-` where its driver does not say."),
    ]
}

/// The section: disks, then links, busiest first.
pub fn section<'a>(state: &'a AppState, model: &'a Model) -> Section<'a> {
    let disks = model.host.disks.iter().flatten().map(DeviceRow::disk);
    let links = model.host.links.iter().flatten().map(DeviceRow::link);
    let mut rows: Vec<_> = disks.chain(links).collect();
    rows.sort_by_cached_key(|r| (r.link.is_some(), Reverse(step(r.all_bytes()))));
    let table = Table {
        id: TableId::HostDevices,
        columns: columns(),
        rows,
        key: |r| RowKey::of((r.link.is_some(), r.name)),
        style: |r| {
            if r.all_bytes() > 0.0 {
                RowStyle::Plain
            } else {
                RowStyle::Dim
            }
        },
    };
    Section::table(table, state, "not known")
}
