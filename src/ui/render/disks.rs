//! Disks and network interfaces of one guest or of all, as the VMM and the host's kernel count them.

use super::{guest_cell, guests, host_disks, missing, row_of, say, title};
use crate::ui::draw::put;
use crate::ui::grid::{Cell, ColumnLayout, List, RowLook};
use crate::ui::list_row_id::ListRowId;
use crate::ui::order::{self, step};
use crate::ui::state::AppState;
use crate::ui::text::{clean, wrap};
use crate::ui::theme::{Look, Theme};
use crate::ui::view::ScreenView;
use judge::figures::{micros, rate};
use judge::model::{DiskRates, DomainModel, NicRates};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use sample::SourceId;
use std::cmp::Reverse;

/// Headers and layout of the disks.
pub const DISK_COLUMNS: [(&str, ColumnLayout); 14] = [
    ("GUEST", ColumnLayout::left(8, 16, 1)),
    ("DISK", ColumnLayout::left(7, 16, 0)),
    ("READ/s", ColumnLayout::right(6, 2, 0)),
    ("WRITE/s", ColumnLayout::right(7, 2, 0)),
    ("FLUSH/s", ColumnLayout::right(7, 2, 6)),
    ("READ B/s", ColumnLayout::right(8, 2, 3)),
    ("WRITE B/s", ColumnLayout::right(9, 2, 4)),
    ("READ us", ColumnLayout::right(7, 2, 1)),
    ("WRITE us", ColumnLayout::right(8, 2, 2)),
    ("FLUSH us", ColumnLayout::right(8, 2, 7)),
    ("IN FLIGHT", ColumnLayout::right(9, 0, 5)),
    ("ERR/s", ColumnLayout::right(5, 2, 6)),
    ("B/READ", ColumnLayout::right(6, 2, 8)),
    ("B/WRITE", ColumnLayout::right(7, 2, 9)),
];

/// Headers and layout of the network interfaces.
pub const NIC_COLUMNS: [(&str, ColumnLayout); 9] = [
    ("GUEST", ColumnLayout::left(8, 16, 1)),
    ("NIC", ColumnLayout::left(7, 16, 0)),
    ("RX pkt/s", ColumnLayout::right(8, 2, 0)),
    ("TX pkt/s", ColumnLayout::right(8, 2, 0)),
    ("RX B/s", ColumnLayout::right(6, 4, 2)),
    ("TX B/s", ColumnLayout::right(6, 4, 2)),
    ("DROP/s", ColumnLayout::right(6, 2, 1)),
    ("RX B/pkt", ColumnLayout::right(8, 0, 4)),
    ("TX B/pkt", ColumnLayout::right(8, 0, 5)),
];

/// What the columns mean.
pub const HELP: [(&str, &str); 10] = [
    ("DISK", "Target name (libvirt), or the drive's or device's id (the guest's own monitor). Read every 5 s."),
    ("READ/s WRITE/s", "Operations that the VMM completed, per second. esxtop: READS/s, WRITES/s."),
    ("READ B/s WRITE B/s", "Bytes per second. esxtop: MBREAD/s, MBWRTN/s."),
    (
        "READ us WRITE us",
        "Mean time of an operation from the guest's request to its completion by the VMM, microseconds: esxtop's GAVG \
         and LAT. KVM has no figures that split it as DAVG (device) and KAVG (kernel) do: compare with the \
         host's devices below; what they do not take is spent in the VMM and its queue.",
    ),
    (
        "FLUSH/s FLUSH us",
        "Flushes of the disk's write cache per second and their mean time: the guest asks that what it wrote is on the \
         medium.",
    ),
    (
        "IN FLIGHT",
        "Operations under way on average (Little's law): the time of all reads, writes and flushes that completed, \
         over the 5 s between two readings. Only what QEMU has taken from the guest's queue counts. esxtop: ACTV.",
    ),
    (
        "ERR/s",
        "Reads, writes and flushes that failed in QEMU or below it, per second; `-` where libvirt is asked, which does \
         not pass them on.",
    ),
    (
        "RX TX",
        "What the guest receives and sends: as libvirt counts it, else its tap and macvtap devices. esxtop: PKTRX/s, \
         PKTTX/s.",
    ),
    ("DROP/s", "Packets dropped in either direction. esxtop: %DRPRX, %DRPTX."),
    ("B/READ B/pkt", "Mean size, bytes."),
];

/// Where the figures come from.
const SOURCES: [SourceId; 2] = [SourceId::Libvirt, SourceId::Monitor];

fn disks(state: &AppState) -> Vec<(&DomainModel, &DiskRates)> {
    let guests = state.guests_of(ScreenView::Disks).into_iter();
    let mut rows: Vec<_> = guests.flat_map(|d| d.disks.iter().map(move |disk| (d, disk))).collect();
    let order = state.view.order_of(ScreenView::Disks);
    rows.sort_by_cached_key(|(_, d)| {
        Reverse(match order {
            order::OPERATIONS => step(Some(d.read_ops + d.write_ops)),
            order::BYTES => step(Some(d.read_bytes + d.write_bytes)),
            order::LATENCY => step(d.slowest_us()),
            _ => 0,
        })
    });
    rows
}

fn nics(state: &AppState) -> Vec<(&DomainModel, &NicRates)> {
    let guests = state.guests_of(ScreenView::Disks).into_iter();
    let mut rows: Vec<_> = guests.flat_map(|d| d.nics.iter().map(move |nic| (d, nic))).collect();
    let order = state.view.order_of(ScreenView::Disks);
    rows.sort_by_cached_key(|(_, n)| {
        Reverse(match order {
            order::OPERATIONS => step(Some(n.rx_packets + n.tx_packets)),
            order::BYTES => step(Some(n.rx_bytes + n.tx_bytes)),
            _ => 0,
        })
    });
    rows
}

/// Number of rows through which the selection can move: the disks, then the interfaces.
pub fn len(state: &AppState) -> usize {
    state.guests_in_view().iter().map(|d| d.disks.len() + d.nics.len()).sum()
}

/// Lines of a panel of all guests: two tables, each with headers, if there are interfaces.
pub fn lines_of_all(state: &AppState) -> usize {
    let guests = state.guests();
    let nics: usize = guests.iter().map(|d| d.nics.len()).sum();
    guests.iter().map(|d| d.disks.len()).sum::<usize>().max(1) + 2 + if nics > 0 { nics + 2 } else { 0 }
}

/// What the rows are about, in their order.
pub fn ids(state: &AppState) -> Vec<ListRowId> {
    let disks = disks(state).into_iter().map(|(d, disk)| (d, &disk.name, false));
    let nics = nics(state).into_iter().map(|(d, nic)| (d, &nic.name, true));
    disks.chain(nics).map(|(d, name, is_nic)| ListRowId::of((d.key(), name, is_nic))).collect()
}

/// Paints the view.
pub fn paint(buf: &mut Buffer, area: Rect, state: &AppState, theme: &Theme) {
    let (disks, nics) = (disks(state), nics(state));
    let operations: f64 = disks.iter().map(|(_, d)| d.read_ops + d.write_ops).sum();
    let bytes: f64 = disks.iter().map(|(_, d)| d.read_bytes + d.write_bytes).sum();
    let right =
        if disks.is_empty() { String::new() } else { format!("{} op/s  {} B/s", rate(operations), rate(bytes)) };
    let left = format!("{}  by {}", guests(state, ScreenView::Disks), state.view.order_of(ScreenView::Disks));
    let inner = title(buf, area, ScreenView::Disks.title(), &left, &right, theme);
    if inner.height < 2 {
        return;
    }
    let at = row_of(state, ScreenView::Disks);
    let in_nics = at.and_then(|at| at.checked_sub(disks.len())).filter(|at| *at < nics.len());
    let devices = host_disks::rows(state).filter(|_| state.view.shown == ScreenView::Disks);
    // A panel of the first screen has nothing to say about what is not there.
    let no_nics = nics.is_empty() && state.view.shown != ScreenView::Disks;
    let no_disk = disks.is_empty().then(|| {
        let asked = "No disk is known yet: libvirt or the guest's own monitor (QMP) is asked every 5 s.";
        missing::because(state, asked, &SOURCES)
    });
    let table = no_disk.as_ref().map_or(disks.len(), |why| wrap(why, inner.width).len()) as u16 + 1;
    let [upper, lower] = if no_nics {
        [inner, Rect { height: 0, ..inner }]
    } else {
        let devices = devices.as_ref().map_or(0, |rows| rows.len().max(1) as u16 + 2);
        halves(inner, table + devices, nics.len().max(1) as u16 + 1)
    };
    let upper = if let Some(rows) = devices {
        let [upper, below] = halves(upper, table, rows.len().max(1) as u16 + 1);
        host_disks::paint(buf, below, state, &rows, theme);
        upper
    } else {
        upper
    };
    if let Some(why) = no_disk {
        say(buf, upper, &why, Look::Dim, theme);
    } else {
        let rows: Vec<_> = disks.iter().map(|(d, disk)| (disk_cells(state, d, disk), RowLook::Plain)).collect();
        List { columns: &DISK_COLUMNS, rows, at: at.filter(|at| *at < disks.len()) }.paint(buf, upper, theme);
    }
    if lower.height == 0 {
        return;
    }
    let rule = theme.glyphs.rule.to_string().repeat(lower.width.into());
    put(buf, lower.x, lower.y, &rule, lower.width, theme.style(Look::Dim));
    let lower = Rect { y: lower.y + 1, height: lower.height - 1, ..lower };
    if nics.is_empty() {
        let nothing = "No network interface is known: neither libvirt nor an open tap or macvtap device \
                       of the VMM names one.";
        // Without disks, the text above already gives the cause.
        let sources = if disks.is_empty() { &[] } else { &SOURCES[..1] };
        say(buf, lower, &missing::because(state, nothing, sources), Look::Dim, theme);
    } else {
        let rows: Vec<_> = nics.iter().map(|(d, nic)| (nic_cells(state, d, nic), RowLook::Plain)).collect();
        List { columns: &NIC_COLUMNS, rows, at: in_nics }.paint(buf, lower, theme);
    }
}

/// Splits an area into an upper and a lower part for these numbers of rows; the lower part begins with a rule. The
/// upper part gets at least half of the area if it wants that much.
fn halves(area: Rect, upper: u16, lower: u16) -> [Rect; 2] {
    let upper = upper.min(area.height.saturating_sub(lower + 1).max(area.height / 2));
    [Rect { height: upper, ..area }, Rect { y: area.y + upper, height: area.height - upper, ..area }]
}

fn disk_cells(state: &AppState, d: &DomainModel, disk: &DiskRates) -> Vec<Cell> {
    let size = |bytes: f64, ops: f64| (ops > 0.0).then(|| bytes / ops);
    let failing = disk.failed_ops.is_some_and(|n| n > 0.0);
    vec![
        guest_cell(state, ScreenView::Disks, d),
        Cell::text(clean(&disk.name)),
        Cell::text(rate(disk.read_ops)),
        Cell::text(rate(disk.write_ops)),
        Cell::figure(disk.flush_ops, rate),
        Cell::text(rate(disk.read_bytes)),
        Cell::text(rate(disk.write_bytes)),
        Cell::figure(disk.read_mean_us, micros),
        Cell::figure(disk.write_mean_us, micros),
        Cell::figure(disk.flush_mean_us, micros),
        Cell::figure(disk.queue_depth, rate),
        Cell::figure(disk.failed_ops, rate).role(if failing { Look::Warning } else { Look::Text }),
        Cell::figure(size(disk.read_bytes, disk.read_ops), rate),
        Cell::figure(size(disk.write_bytes, disk.write_ops), rate),
    ]
}

fn nic_cells(state: &AppState, d: &DomainModel, nic: &NicRates) -> Vec<Cell> {
    let size = |bytes: f64, packets: f64| (packets > 0.0).then(|| bytes / packets);
    vec![
        guest_cell(state, ScreenView::Disks, d),
        Cell::text(clean(&nic.name)),
        Cell::text(rate(nic.rx_packets)),
        Cell::text(rate(nic.tx_packets)),
        Cell::text(rate(nic.rx_bytes)),
        Cell::text(rate(nic.tx_bytes)),
        Cell::text(rate(nic.drops)).role(if nic.drops > 0.0 { Look::Warning } else { Look::Text }),
        Cell::figure(size(nic.rx_bytes, nic.rx_packets), rate),
        Cell::figure(size(nic.tx_bytes, nic.tx_packets), rate),
    ]
}
