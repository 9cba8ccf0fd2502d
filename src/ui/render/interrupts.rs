//! What interrupted vCPUs and how long each way took, a part of the view of latencies.

use crate::figures::{micros, percent, rate};
use crate::model::{DomainModel, InjectionModel};
use crate::sample::IrqSource;
use crate::ui::draw::put;
use crate::ui::grid::{Cell, ColumnLayout, List, RowLook};
use crate::ui::state::AppState;
use crate::ui::text::clean;
use crate::ui::theme::{Look, Theme};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

/// Headers and layout.
const COLUMNS: [(&str, ColumnLayout); 11] = [
    ("GUEST", ColumnLayout::left(8, 14, 1)),
    ("INTERRUPT", ColumnLayout::left(9, 8, 0)),
    ("TO", ColumnLayout::left(6, 2, 0)),
    ("FROM", ColumnLayout::left(9, 8, 0)),
    ("IRQ/s", ColumnLayout::right(6, 2, 0)),
    ("ASLEEP%", ColumnLayout::right(7, 0, 4)),
    ("KICK us", ColumnLayout::right(7, 1, 2)),
    ("WAKE us", ColumnLayout::right(7, 1, 0)),
    ("DELAY us", ColumnLayout::right(8, 1, 0)),
    ("TOTAL us", ColumnLayout::right(8, 1, 3)),
    ("P99 us", ColumnLayout::right(6, 2, 1)),
];

/// What the columns mean.
pub const HELP: [(&str, &str); 5] = [
    (
        "INTERRUPT",
        "What KVM gave to a vCPU's local APIC, traced by BPF while this view is open or with --engine-detail \
         interrupts: `gsi`, a line of the interrupt controller; `msi`, a message by its vector, of which only the \
         guest knows the device; `ipi`, from another vCPU; `local`, announced by nothing, mostly the vCPU's own timer. \
         What the processor delivers alone (APICv, AVIC, posted interrupts) is not seen.",
    ),
    (
        "FROM",
        "Who injected it: a thread of the guest by its name, a vCPU, `kworker` (irqfd's slow path), `interrupt` (the \
         host's: an assigned device).",
    ),
    ("KICK us", "To a vCPU that did not sleep: from the injection until it entered the guest again, mean."),
    (
        "WAKE us DELAY us TOTAL us",
        "To a vCPU that slept (ASLEEP% of them): from the injection until KVM woke its thread, from there until the \
         thread had a CPU, and from the injection until it ran the guest, mean.",
    ),
    ("P99 us", "99 of 100 interrupts, of both kinds, took less from the injection to the guest."),
];

/// Interrupts with their guest.
pub type InterruptRow<'a> = (&'a DomainModel, &'a InjectionModel);

/// The interrupts, the most frequent first; `None` where they are not traced.
pub fn rows(state: &AppState) -> Option<Vec<InterruptRow<'_>>> {
    let guests = state.guests_in_view();
    let mut traced = guests.into_iter().filter_map(|d| Some((d, d.interrupts.as_ref()?))).peekable();
    traced.peek()?;
    let mut rows: Vec<InterruptRow<'_>> = traced.flat_map(|(d, all)| all.iter().map(move |i| (d, i))).collect();
    rows.sort_by_key(|(_, i)| std::cmp::Reverse(i.count));
    Some(rows)
}

/// The lines that they take of so many: with a rule and headers, at most a third.
pub fn height(all: u16, rows: usize) -> u16 {
    (rows.clamp(1, 16) as u16 + 2).min(all / 3)
}

/// Paints them below a rule.
pub fn paint(buf: &mut Buffer, area: Rect, state: &AppState, rows: &[InterruptRow<'_>], theme: &Theme) {
    if area.height == 0 {
        return;
    }
    let rule = theme.glyphs.rule.to_string().repeat(area.width.into());
    put(buf, area.x, area.y, &rule, area.width, theme.style(Look::Dim));
    let area = Rect { y: area.y + 1, height: area.height - 1, ..area };
    if rows.is_empty() {
        super::say(buf, area, "No vCPU was interrupted within the interval.", Look::Dim, theme);
        return;
    }
    let rows: Vec<_> = rows.iter().map(|(d, i)| (cells(state, d, i), RowLook::Plain)).collect();
    List { columns: &COLUMNS, rows, at: None }.paint(buf, area, theme);
}

fn cells(state: &AppState, d: &DomainModel, i: &InjectionModel) -> Vec<Cell> {
    vec![
        super::guest_cell(state, d),
        Cell::text(name(i.source)),
        Cell::text(format!("vcpu {}", i.vcpu)),
        Cell::text(i.comm.as_deref().map_or_else(|| i.by.as_str().into(), clean)),
        Cell::figure(i.rate, rate),
        Cell::figure(i.asleep_percent(), percent),
        Cell::figure(i.kick.mean_us(), micros),
        Cell::figure(i.wake.mean_us(), micros),
        Cell::figure(i.delay.mean_us(), micros),
        Cell::figure(i.slept.mean_us(), micros),
        Cell::figure(i.p99_us(), micros),
    ]
}

/// `gsi 4 serial 1`, `msi 0x31`.
fn name(source: IrqSource) -> String {
    match (source, source.line_name()) {
        (IrqSource::Gsi(line), Some(device)) => format!("gsi {line} {device}"),
        (IrqSource::Gsi(line), None) => format!("gsi {line}"),
        _ => format!("{} {:#04x}", source.as_str(), source.number()),
    }
}
