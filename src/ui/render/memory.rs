//! The memory of one guest or of all: how much of it is on the host, and on which NUMA nodes.

use super::{guests, missing, row_of, say, title};
use crate::ui::draw::put;
use crate::ui::grid::{Cell, ColumnLayout, List, RowLook};
use crate::ui::list_row_id::ListRowId;
use crate::ui::order::{self, step};
use crate::ui::state::AppState;
use crate::ui::text::clean;
use crate::ui::theme::{Look, Theme};
use crate::ui::view::ScreenView;
use judge::figures::{bytes, share};
use judge::model::{DomainModel, GuestConfig, Model};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use sample::SourceId;
use std::cmp::Reverse;

/// Less of its memory than this on the nodes of its vCPUs, in percent, is worth a colour: the threshold of the rule
/// `numa-split`.
const LOCAL: f64 = 80.0;

/// Headers and layout.
pub const COLUMNS: [(&str, ColumnLayout); 11] = [
    ("GUEST", ColumnLayout::left(10, 16, 0)),
    ("SIZE", ColumnLayout::right(8, 2, 3)),
    ("RESIDENT", ColumnLayout::right(8, 2, 0)),
    ("%SIZE", ColumnLayout::right(5, 0, 5)),
    ("BALLOON", ColumnLayout::right(8, 2, 4)),
    ("SWAP", ColumnLayout::right(8, 2, 0)),
    ("SWAP B/s", ColumnLayout::right(9, 0, 2)),
    ("HUGETLB", ColumnLayout::right(8, 2, 6)),
    ("THP", ColumnLayout::right(8, 2, 8)),
    ("LOCAL%", ColumnLayout::right(6, 0, 1)),
    ("BY NODE", ColumnLayout::left(22, 60, 7)),
];

/// Headers and layout of the nodes of one guest.
const NODE_COLUMNS: [(&str, ColumnLayout); 4] = [
    ("NODE", ColumnLayout::right(4, 0, 0)),
    ("MEMORY", ColumnLayout::right(8, 2, 0)),
    ("%", ColumnLayout::right(4, 0, 0)),
    ("VCPUS THERE NOW", ColumnLayout::left(15, 60, 0)),
];

/// What the columns mean.
pub const HELP: [(&str, &str); 8] = [
    ("SIZE", "Memory that the guest is configured with. esxtop: MEMSZ."),
    (
        "RESIDENT %SIZE",
        "Its part in the host's memory: the VMM's resident memory, its own 20 to 100 MiB included, and its explicit \
         huge pages. esxtop: GRANT.",
    ),
    (
        "BALLOON",
        "What the balloon leaves to the guest (libvirt or the guest's own monitor, every 5 s). esxtop's MCTLSZ is SIZE \
         less BALLOON.",
    ),
    ("SWAP SWAP B/s", "Its part in the host's swap, and how that grows. esxtop: SWCUR, SWW/s."),
    ("HUGETLB", "Explicit huge pages (hugetlbfs), beside the resident memory."),
    (
        "THP",
        "Transparent huge pages, part of the resident memory. The kernel walks all page tables for them, so they are \
         read every 5 minutes only (AnonHugePages in /proc/PID/smaps_rollup).",
    ),
    (
        "LOCAL%",
        "Its memory on the nodes where its vCPUs ran last, percent of its memory with a known node. esxtop: N%L.",
    ),
    ("BY NODE", "Its memory on each node of the host. Read every 30 s (/proc/PID/numa_maps) if there are several."),
];

fn topology(state: &AppState) -> Option<&kvm::topology::HostTopology> {
    state.model.as_ref().map(|m| &m.host.facts.topology)
}

fn resident(d: &DomainModel) -> Option<u64> {
    d.memory.resident.map(|bytes| bytes.saturating_add(d.memory.hugetlb.unwrap_or(0)))
}

fn local(d: &DomainModel, state: &AppState) -> Option<f64> {
    d.local_memory_percent(topology(state)?)
}

/// Memory to sort by: it changes slowly. Unknown memory comes last.
fn mib(bytes: Option<u64>) -> i64 {
    bytes.map_or(-1, |n| (n >> 20) as i64)
}

/// The guests, in the order of the view.
fn rows(state: &AppState) -> Vec<&DomainModel> {
    let mut rows = state.guests_of(ScreenView::Memory);
    let order = state.view.order_of(ScreenView::Memory);
    rows.sort_by_cached_key(|d| {
        Reverse(match order {
            order::RESIDENT => mib(resident(d)),
            order::SWAP => mib(d.swap.map(|(n, _)| n)),
            order::LOCAL => step(local(d, state).map(|l| 100.0 - l)),
            _ => 0,
        })
    });
    rows
}

/// Number of rows through which the selection can move.
pub fn len(state: &AppState) -> usize {
    let guests = state.guests_in_view();
    if guests.iter().any(|d| is_known(d)) { guests.len() } else { 0 }
}

/// Lines of a panel of all guests.
pub fn lines_of_all(state: &AppState) -> usize {
    state.guests().len() + 2
}

/// What the rows are about, in their order.
pub fn ids(state: &AppState) -> Vec<ListRowId> {
    if len(state) == 0 { Vec::new() } else { rows(state).iter().map(|d| ListRowId::of(d.key())).collect() }
}

/// Whether anything is known of a guest's memory.
fn is_known(d: &DomainModel) -> bool {
    d.memory.resident.is_some() || d.swap.is_some() || !d.node_memory.is_empty()
}

/// Paints the view.
pub fn paint(buf: &mut Buffer, area: Rect, state: &AppState, theme: &Theme) {
    let rows = rows(state);
    let left = format!("{}  by {}", guests(state, ScreenView::Memory), state.view.order_of(ScreenView::Memory));
    let host = state.model.as_ref().and_then(|m| host(m, area.width.saturating_sub(40)));
    let mut inner = title(buf, area, ScreenView::Memory.title(), &left, &host.unwrap_or_default(), theme);
    if !rows.iter().any(|d| is_known(d)) {
        let nothing = "No memory is known: it is read from /proc/PID, which this input does not have.";
        let lines = say(buf, inner, &missing::because(state, nothing, &[SourceId::Procfs]), Look::Dim, theme);
        inner.y += lines.min(inner.height);
        inner.height -= lines.min(inner.height);
    }
    if rows.is_empty() {
        return;
    }
    let selected = row_of(state, ScreenView::Memory).map(|at| at.min(rows.len() - 1));
    let at = selected.unwrap_or(0);
    let detail = nodes(state, rows[at]);
    let (table, lines) = (rows.len() as u16 + 2, detail.len() as u16 + 2);
    // On a host with one node there is nothing to tell.
    let several = topology(state).is_some_and(|t| t.nodes().len() > 1);
    if several && !detail.is_empty() && (table + lines <= inner.height || (inner.height >= 16 && detail.len() > 1)) {
        let table = table.min(inner.height - lines.min(inner.height / 2));
        let area = Rect { y: inner.y + table, height: inner.height - table, ..inner };
        inner.height = table;
        below(buf, area, rows[at], detail, theme);
    }
    let rows: Vec<_> = rows.iter().map(|d| (cells(d, state), RowLook::Plain)).collect();
    List { columns: &COLUMNS, rows, at: selected }.paint(buf, inner, theme);
}

/// The host's memory; swap and KSM only if they fit in `room` columns.
fn host(m: &Model, room: u16) -> Option<String> {
    let memory = m.host.memory?;
    let free = format!("host {} free of {}", bytes(memory.available), bytes(memory.total));
    let ksm = if memory.ksm_running { "  KSM runs" } else { "" };
    let all = format!("{free}  swap {} used{ksm}", bytes(memory.swap_used));
    Some(if all.len() <= usize::from(room) { all } else { free })
}

fn cells(d: &DomainModel, state: &AppState) -> Vec<Cell> {
    let size = GuestConfig::of(&d.facts).memory;
    let known = |n: Option<u64>| n.map_or_else(Cell::unknown, |n| Cell::text(bytes(n)));
    let seconds = state.model.as_ref().and_then(|m| m.interval_s);
    let part = resident(d).zip(size.filter(|n| *n > 0)).map(|(part, all)| 100.0 * part as f64 / all as f64);
    let growth = d.swap.zip(seconds).map(|((_, grown), s)| grown as f64 / s);
    let local = local(d, state);
    let by_node = d.node_memory.iter().map(|(node, n)| format!("{node}: {}", bytes(*n))).collect::<Vec<_>>().join("  ");
    let bad = |is: bool| if is { Look::Warning } else { Look::Text };
    vec![
        Cell::text(clean(d.name())),
        known(size),
        known(resident(d)),
        Cell::figure(part, share),
        known(d.memory.balloon).role(bad(d.memory.balloon.zip(size).is_some_and(|(left, all)| left < all))),
        known(d.swap.map(|(n, _)| n)).role(bad(d.swap.is_some_and(|(n, _)| n > 0))),
        Cell::figure(growth, judge::figures::rate).role(bad(growth.is_some_and(|g| g > 0.0))),
        known(d.memory.hugetlb),
        known(d.memory.transparent),
        Cell::figure(local, share).role(bad(local.is_some_and(|l| l < LOCAL))),
        if by_node.is_empty() { Cell::unknown() } else { Cell::text(by_node) },
    ]
}

/// A row for each node that has memory or vCPUs of the guest.
fn nodes(state: &AppState, d: &DomainModel) -> Vec<(Vec<Cell>, RowLook)> {
    let Some(topology) = topology(state) else { return Vec::new() };
    let mut nodes = d.node_memory.iter().map(|(node, n)| (*node, (*n, Vec::new()))).collect::<Nodes>();
    for thread in d.vcpus() {
        if let Some((node, vcpu)) = thread.place.cpu.and_then(|cpu| topology.node_of(cpu)).zip(thread.index) {
            nodes.entry(node).or_default().1.push(vcpu);
        }
    }
    let all = d.node_memory.values().fold(0, |sum: u64, n| sum.saturating_add(*n));
    let row = |(node, (n, vcpus)): (u32, (u64, Vec<u32>))| {
        let vcpus: kvm::cpu_set::CpuSet = vcpus.into_iter().collect();
        let part = (all > 0).then(|| 100.0 * n as f64 / all as f64);
        let memory = if all > 0 { Cell::text(bytes(n)) } else { Cell::unknown() };
        (
            vec![Cell::text(node.to_string()), memory, Cell::figure(part, share), Cell::text(vcpus.to_string())],
            RowLook::Plain,
        )
    };
    nodes.into_iter().map(row).collect()
}

type Nodes = std::collections::BTreeMap<u32, (u64, Vec<u32>)>;

fn below(buf: &mut Buffer, area: Rect, d: &DomainModel, rows: Vec<(Vec<Cell>, RowLook)>, theme: &Theme) {
    let rule = theme.glyphs.rule.to_string().repeat(area.width.into());
    put(buf, area.x, area.y, &rule, area.width, theme.style(Look::Dim));
    let text = format!(" {} by NUMA node ", clean(d.name()));
    put(buf, area.x + 1, area.y, &text, area.width - 1, theme.style(Look::Head));
    let area = Rect { y: area.y + 1, height: area.height.saturating_sub(1), ..area };
    List { columns: &NODE_COLUMNS, rows, at: None }.paint(buf, area, theme);
}
