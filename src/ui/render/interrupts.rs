//! What interrupted vCPUs and how long each way took, a part of the view of latencies.

use crate::ui::draw::put;
use crate::ui::grid::{Cell, ColumnLayout, List, RowLook};
use crate::ui::state::AppState;
use crate::ui::text::clean;
use crate::ui::theme::{Look, Theme};
use crate::ui::view::ScreenView;
use judge::figures::{micros, percent, rate};
use judge::model::{DomainModel, DoorbellModel, InjectionModel};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use std::cmp::Reverse;

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
pub const HELP: [(&str, &str); 6] = [
    (
        "INTERRUPT",
        "What KVM gave to a vCPU's local APIC, traced by BPF while this view is open or with --engine-detail \
         interrupts: `gsi`, a line of the interrupt controller; `msi`, a message by its vector, of which only the \
         guest knows the device; `ipi`, from another vCPU; `local`, announced by nothing, mostly the vCPU's own timer. \
         One that is posted to a running vCPU (APICv, AVIC) counts without a time: it causes no exit. What the \
         processor delivers without KVM (AVIC's `ipi`, assigned devices with posted interrupts) is not seen.",
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
    (
        "DOORBELL",
        "A port or an address whose writes KVM passes on as an eventfd, as of virtio queues, and the thread that they \
         woke: RUNS us from the wake-up until it had a CPU, mean. A thread that is awake anyway needs no wake-up \
         and is not counted.",
    ),
];

/// Headers and layout of the doorbells.
const BELL_COLUMNS: [(&str, ColumnLayout); 7] = [
    ("GUEST", ColumnLayout::left(8, 14, 1)),
    ("DOORBELL", ColumnLayout::left(17, 2, 0)),
    ("DEVICE", ColumnLayout::left(8, 16, 2)),
    ("WAKES", ColumnLayout::left(9, 8, 0)),
    ("BELL/s", ColumnLayout::right(6, 2, 0)),
    ("RUNS us", ColumnLayout::right(7, 1, 0)),
    ("P99 us", ColumnLayout::right(6, 2, 1)),
];

/// Interrupts with their guest.
type InterruptRow<'a> = (&'a DomainModel, &'a InjectionModel);

/// What is shown of the guests in view, the most frequent first.
#[derive(Debug)]
pub struct InterruptRows<'a> {
    interrupts: Vec<InterruptRow<'a>>,
    doorbells: Vec<(&'a DomainModel, &'a DoorbellModel)>,
}

impl<'a> InterruptRows<'a> {
    /// `None` where they are not traced.
    pub fn of(state: &'a AppState) -> Option<Self> {
        let guests = state.guests_in_view();
        guests.iter().find(|d| d.interrupts.is_some())?;
        let all = guests.iter().flat_map(|d| d.interrupts.iter().flatten().map(move |i| (*d, i)));
        let mut interrupts: Vec<InterruptRow<'_>> = all.collect();
        interrupts.sort_by_key(|(_, i)| Reverse(i.count));
        let all = guests.iter().flat_map(|d| d.doorbells.iter().flatten().map(move |bell| (*d, bell)));
        let mut doorbells: Vec<_> = all.collect();
        doorbells.sort_by_key(|(_, bell)| Reverse(bell.time.count));
        Some(Self { interrupts, doorbells })
    }

    /// The lines of each table with its headers.
    fn lines(&self) -> [u16; 2] {
        let bells = if self.doorbells.is_empty() { 0 } else { self.doorbells.len().min(8) as u16 + 1 };
        [self.interrupts.len().clamp(1, 16) as u16 + 1, bells]
    }

    /// Height including the rule: at most two fifths of the `all` available lines.
    pub fn height(&self, all: u16) -> u16 {
        (self.lines().iter().sum::<u16>() + 1).min(all * 2 / 5)
    }

    /// Paints them below a rule.
    pub fn paint(&self, buf: &mut Buffer, area: Rect, state: &AppState, theme: &Theme) {
        if area.height == 0 {
            return;
        }
        let rule = theme.glyphs.rule.to_string().repeat(area.width.into());
        put(buf, area.x, area.y, &rule, area.width, theme.style(Look::Dim));
        let area = Rect { y: area.y + 1, height: area.height - 1, ..area };
        let [upper, lower] = self.lines();
        let upper = upper.min(area.height.saturating_sub(lower.min(area.height / 2)));
        let below = Rect { y: area.y + upper, height: area.height - upper, ..area };
        let area = Rect { height: upper, ..area };
        if self.interrupts.is_empty() {
            super::say(buf, area, "No vCPU was interrupted through KVM in the interval.", Look::Dim, theme);
        } else {
            let rows: Vec<_> = self.interrupts.iter().map(|(d, i)| (cells(state, d, i), RowLook::Plain)).collect();
            List { columns: &COLUMNS, rows, at: None }.paint(buf, area, theme);
        }
        if !self.doorbells.is_empty() {
            let rows: Vec<_> = self.doorbells.iter().map(|(d, b)| (bell_cells(state, d, b), RowLook::Plain)).collect();
            List { columns: &BELL_COLUMNS, rows, at: None }.paint(buf, below, theme);
        }
    }
}

fn bell_cells(state: &AppState, d: &DomainModel, bell: &DoorbellModel) -> Vec<Cell> {
    vec![
        super::guest_cell(state, ScreenView::Latency, d),
        Cell::text(format!("{} {:#x}", bell.space.as_str(), bell.address)),
        bell.device.as_deref().map_or_else(Cell::unknown, |device| Cell::text(clean(device))),
        Cell::text(clean(&bell.comm)),
        Cell::figure(bell.rate(), rate),
        Cell::figure(bell.time.mean_us(), micros),
        Cell::figure(bell.time.quantile_us(0.99), micros),
    ]
}

fn cells(state: &AppState, d: &DomainModel, i: &InjectionModel) -> Vec<Cell> {
    vec![
        super::guest_cell(state, ScreenView::Latency, d),
        Cell::text(i.source.to_string()),
        Cell::text(format!("vcpu {}", i.vcpu)),
        Cell::text(i.comm.as_deref().map_or_else(|| i.by.as_str().into(), clean)),
        Cell::figure(i.rate(), rate),
        Cell::figure(i.asleep_percent(), percent),
        Cell::figure(i.kick.mean_us(), micros),
        Cell::figure(i.wake.mean_us(), micros),
        Cell::figure(i.delay.mean_us(), micros),
        Cell::figure(i.slept.mean_us(), micros),
        Cell::figure(i.p99_us(), micros),
    ]
}
