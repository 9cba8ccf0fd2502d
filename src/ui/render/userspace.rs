//! Exits that the VMM served, kvm tracepoints, KVM's own counters.

use super::{say, scope, title};
use crate::ui::cells::userspace_name;
use crate::ui::grid::{Cell, ColumnLayout, List, RowLook};
use crate::ui::order::step;
use crate::ui::state::AppState;
use crate::ui::text::clean;
use crate::ui::theme::{Look, Theme};
use judge::figures::{rate, share};
use judge::model::Model;
use kvm::userspace_exit;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use std::cmp::Reverse;
use std::collections::BTreeMap;

const EXITS: [(&str, ColumnLayout); 4] = [
    ("EXIT TO VMM", ColumnLayout::left(14, 2, 0)),
    ("/s", ColumnLayout::right(6, 0, 0)),
    ("%CNT", ColumnLayout::right(4, 0, 1)),
    ("MEANING", ColumnLayout::left(12, 90, 2)),
];

const RATES: [(&str, ColumnLayout); 2] =
    [("KVM EVENT OR COUNTER", ColumnLayout::left(18, 24, 0)), ("/s", ColumnLayout::right(6, 0, 0))];

/// What the columns mean.
pub const HELP: [(&str, &str); 3] = [
    ("EXIT TO VMM", "Why KVM_RUN returned to the VMM; `restart` is a signal that pulled the vCPU out."),
    ("%CNT", "Share of the exits to the VMM of the guest or vCPU."),
    ("KVM EVENT", "Tracepoints kvm:* when they are counted (K), then KVM's own statistics, per second."),
];

/// Exits to the VMM of the guests in the view, or of the selected vCPU: number, count.
pub fn exits(state: &AppState) -> Vec<(i32, u64)> {
    let vcpu = state.vcpu().filter(|_| !state.view.is_of_all());
    let mut sums: BTreeMap<i32, u64> = BTreeMap::new();
    for (_, reason, n) in state.guests_in_view().iter().flat_map(|d| &d.userspace).filter(|(v, ..)| *v == vcpu) {
        let sum = sums.entry(*reason).or_default();
        *sum = sum.saturating_add(*n);
    }
    let mut rows: Vec<_> = sums.into_iter().collect();
    rows.sort_by_key(|(reason, n)| (Reverse(step(Some(*n as f64))), *reason));
    rows
}

/// kvm tracepoints and KVM's counters of the guests in the view that moved in the interval, by name.
fn rates(state: &AppState) -> Vec<(String, f64)> {
    let seconds = state.model.as_ref().and_then(|m| m.interval_s).unwrap_or(1.0);
    let mut sums: BTreeMap<String, f64> = BTreeMap::new();
    for d in state.guests_in_view() {
        let events = d.kvm_events.iter().map(|(k, n)| (k, *n as f64 / seconds));
        for (name, rate) in events.chain(d.counters.iter().map(|(k, r)| (k, *r))).filter(|(_, r)| *r > 0.0) {
            *sums.entry(clean(name)).or_default() += rate;
        }
    }
    sums.into_iter().collect()
}

/// Exits to the VMM, unless they already replace the list of exits.
fn beside_exits(state: &AppState) -> Vec<(i32, u64)> {
    if state.model.as_ref().is_some_and(Model::no_kvm_exit) { Vec::new() } else { exits(state) }
}

/// Lines that the panel needs to show everything.
pub fn lines(state: &AppState) -> u16 {
    let rows = beside_exits(state).len().max(rates(state).len());
    u16::try_from(rows).unwrap_or(u16::MAX).saturating_add(2)
}

/// The list of exits to the VMM.
pub fn exits_list(state: &AppState, focused: bool) -> List<'static> {
    let rows = exits(state);
    let all: u64 = rows.iter().map(|r| r.1).sum();
    let seconds = state.model.as_ref().and_then(|m| m.interval_s);
    let cells = |(reason, n): (i32, u64)| {
        vec![
            Cell::text(userspace_name(reason).replace("KVM_EXIT_", "")),
            Cell::figure(seconds.map(|s| n as f64 / s), rate),
            Cell::figure(Some(100.0 * n as f64 / all.max(1) as f64), share),
            Cell::text(u32::try_from(reason).ok().and_then(userspace_exit::meaning).unwrap_or_default())
                .role(Look::Dim),
        ]
    };
    List {
        columns: &EXITS,
        rows: rows.into_iter().map(|r| (cells(r), RowLook::Plain)).collect(),
        at: focused.then_some(state.view.at),
    }
}

/// Paints the panel.
pub fn paint(buf: &mut Buffer, area: Rect, state: &AppState, theme: &Theme) {
    let inner = title(buf, area, "EXITS TO THE VMM, KVM'S COUNTERS", &scope(state), "", theme);
    if inner.is_empty() || state.domain().is_none() {
        return;
    }
    let (exits, rates) = (beside_exits(state), rates(state));
    if exits.is_empty() && rates.is_empty() {
        say(buf, inner, "No exit to the VMM in this interval, and no counter of KVM that moved.", Look::Dim, theme);
        return;
    }
    let mut left = inner;
    if !rates.is_empty() {
        let mut right = inner;
        if exits.is_empty() {
            left.width = 0;
        } else {
            right.width = (inner.width * 2 / 5).min(46);
            right.x = inner.right() - right.width;
            left.width = inner.width - right.width - 2;
        }
        let rates = rates.into_iter().map(|(k, r)| (vec![Cell::text(k), Cell::text(rate(r))], RowLook::Plain));
        let rows: Vec<_> = rates.collect();
        List { columns: &RATES, rows, at: None }.paint(buf, right, theme);
    }
    if left.width > 0 {
        exits_list(state, false).paint(buf, left, theme);
    }
}
