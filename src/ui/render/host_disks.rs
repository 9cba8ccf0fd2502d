//! The host's block devices and what they did for guests, a part of the view of disks.

use crate::ui::draw::put;
use crate::ui::grid::{Cell, ColumnLayout, List, RowLook};
use crate::ui::state::AppState;
use crate::ui::text::clean;
use crate::ui::theme::{Look, Theme};
use crate::ui::view::ScreenView;
use judge::figures::{micros, percent, rate};
use judge::model::{DomainModel, HostDiskModel};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

/// Headers and layout.
const COLUMNS: [(&str, ColumnLayout); 12] = [
    ("GUEST", ColumnLayout::left(8, 16, 1)),
    ("ON HOST", ColumnLayout::left(8, 16, 0)),
    ("READ/s", ColumnLayout::right(6, 2, 0)),
    ("WRITE/s", ColumnLayout::right(7, 2, 0)),
    ("FLUSH/s", ColumnLayout::right(7, 2, 6)),
    ("READ us", ColumnLayout::right(7, 2, 1)),
    ("WRITE us", ColumnLayout::right(8, 2, 2)),
    ("FLUSH us", ColumnLayout::right(8, 2, 7)),
    ("DEVICE us", ColumnLayout::right(9, 2, 3)),
    ("P99 us", ColumnLayout::right(6, 2, 4)),
    ("SUBMITTED BY", ColumnLayout::left(12, 6, 5)),
    ("STANDS FOR", ColumnLayout::left(10, 40, 8)),
];

/// What the columns mean.
pub const HELP: [(&str, &str); 2] = [
    (
        "ON HOST",
        "A block device of the host that worked for the guest, timed by BPF while this view is open or with \
         --engine-detail disks. READ us and WRITE us run from the submission by a thread of the guest to the \
         completion; what the guest's disk takes longer is spent in the VMM. What the page cache answers or writes \
         back later, and storage over the network, is not seen here.",
    ),
    (
        "DEVICE us",
        "The part of reads and writes in the device, from their issue to its driver; `-` for a device without one \
         (device-mapper, md), whose rows are followed by those of the devices below. SUBMITTED BY: the thread that \
         submitted most. STANDS FOR: the file behind a loop device, the name of a mapped one.",
    ),
];

/// A device with its guest.
pub type HostDiskRow<'a> = (&'a DomainModel, &'a HostDiskModel);

/// The devices in the order of the guests, the busiest first; `None` where they are not timed.
pub fn rows(state: &AppState) -> Option<Vec<HostDiskRow<'_>>> {
    let guests = state.guests_in_view();
    let mut timed = guests.into_iter().filter_map(|d| Some((d, d.host_disks.as_ref()?))).peekable();
    timed.peek()?;
    let mut rows: Vec<HostDiskRow<'_>> = timed.flat_map(|(d, disks)| disks.iter().map(move |disk| (d, disk))).collect();
    rows.sort_by_cached_key(|(d, disk)| (d.facts.pid, disk.number));
    Some(rows)
}

/// Paints them below a rule.
pub fn paint(buf: &mut Buffer, area: Rect, state: &AppState, rows: &[HostDiskRow<'_>], theme: &Theme) {
    if area.height == 0 {
        return;
    }
    let rule = theme.glyphs.rule.to_string().repeat(area.width.into());
    put(buf, area.x, area.y, &rule, area.width, theme.style(Look::Dim));
    let area = Rect { y: area.y + 1, height: area.height - 1, ..area };
    if rows.is_empty() {
        let nothing = "No thread of a guest asked a block device of the host since they are timed.";
        super::say(buf, area, nothing, Look::Dim, theme);
        return;
    }
    let rows: Vec<_> = rows.iter().map(|(d, disk)| (cells(state, d, disk), RowLook::Plain)).collect();
    List { columns: &COLUMNS, rows, at: None }.paint(buf, area, theme);
}

fn cells(state: &AppState, d: &DomainModel, disk: &HostDiskModel) -> Vec<Cell> {
    let most = disk.submitted_most().map(|(who, share)| format!("{} {}%", who.as_str(), percent(share)));
    vec![
        super::guest_cell(state, ScreenView::Disks, d),
        Cell::text(clean(&disk.name)),
        Cell::figure(disk.rate_of(disk.reads.total.count), rate),
        Cell::figure(disk.rate_of(disk.writes.total.count), rate),
        Cell::figure(disk.rate_of(disk.flushes.total.count), rate),
        Cell::figure(disk.reads.total.mean_us(), micros),
        Cell::figure(disk.writes.total.mean_us(), micros),
        Cell::figure(disk.flushes.total.mean_us(), micros),
        Cell::figure(disk.mean_us().1, micros),
        Cell::figure(disk.p99_us(), micros),
        most.map_or_else(Cell::blank, Cell::text),
        disk.alias.as_deref().map_or_else(Cell::blank, |alias| Cell::text(clean(alias))),
    ]
}
