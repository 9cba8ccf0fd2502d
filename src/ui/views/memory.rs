//! The memory of guests: how much of it is on the host, and on which NUMA nodes.

use super::{Section, missing};
use crate::ui::{AppState, Cell, Column, RowKey, RowStyle, Table, TableId, clean, left, right};
use judge::figures::{bytes, percent, rate, share};
use judge::lint::{RuleId, Severity};
use judge::model::{DomainModel, GuestConfig, Model};
use sample::{HostMemory, SourceId};
use std::cmp::Reverse;

/// A guest and its memory, bytes.
pub struct MemoryRow<'a> {
    guest: &'a DomainModel,
    /// How bad it is that its memory is on other nodes than its vCPUs.
    split: Option<Severity>,
    resident: Option<f64>,
    swap: Option<f64>,
    swap_growth: Option<f64>,
    local_percent: Option<f64>,
}

impl<'a> MemoryRow<'a> {
    fn new(guest: &'a DomainModel, state: &AppState, model: &Model) -> Self {
        let found = state
            .findings_about(Some(guest.name()))
            .filter(|f| f.covers(RuleId::NumaSplit));
        Self {
            guest,
            split: found.map(|f| f.severity).max(),
            resident: guest.memory.on_host().map(|n| n as f64),
            swap: guest.swap.map(|swap| swap.bytes as f64),
            swap_growth: swap_growth(guest, model),
            local_percent: guest.local_memory_percent(&model.host.facts.topology),
        }
    }
}

type Col<'a> = Column<MemoryRow<'a>>;

/// The columns; a figure has the name that it has in JSON.
pub fn columns<'a>() -> Vec<Col<'a>> {
    vec![
        Col::text("domain", "GUEST", left(10).grow(16), |r| {
            r.guest.name().into()
        })
        .help("Its name.")
        .drawn(|r| Cell::name(clean(r.guest.name()))),
        Col::figure(
            "resident",
            "RESIDENT",
            right(8).grow(2),
            |r| r.resident,
            size,
        )
        .help("Its memory on the host, with its explicit huge pages and 20 to 100 MiB of the VMM."),
        Col::figure(
            "size",
            "ALLOTTED",
            right(9).grow(1).drop_order(3),
            |r| Some(GuestConfig::from_facts(&r.guest.facts).memory? as f64),
            size,
        )
        .help("Memory that it is configured with."),
        Col::figure("swap_bytes", "SWAP", right(8).grow(2), |r| r.swap, size)
            .help("Its part in the host's swap.")
            .warns_above_zero(),
        Col::figure(
            "swap_growth",
            "SWAP B/s",
            right(8).drop_order(2),
            |r| r.swap_growth,
            rate,
        )
        .help("How that grows.")
        .warns_above_zero(),
        Col::figure(
            "stall",
            "STALL%",
            right(6).drop_order(1),
            |r| Some(r.guest.pressure?.memory),
            percent,
        )
        .help(
            "Part of the last 10 s in which one of its threads waited for memory; `-`: not known.",
        )
        .warns_above_zero(),
        Col::figure(
            "local_percent",
            "LOCAL%",
            right(6).drop_order(1),
            |r| r.local_percent,
            share,
        )
        .help("The part of it on the NUMA nodes where its vCPUs ran last, percent."),
        Col::figure(
            "balloon_bytes",
            "BALLOON",
            right(8).grow(2).drop_order(4),
            balloon,
            size,
        )
        .help("What the balloon leaves to the guest."),
        Col::figure("huge", "HUGE", right(8).grow(2).drop_order(6), huge, size).help(
            "The part in huge pages: explicit ones (hugetlbfs), else transparent ones, read every \
                5 minutes.",
        ),
        Col::text("nodes", "BY NODE", left(22).grow(60).drop_order(7), |r| {
            let nodes = r.guest.node_memory.iter();
            let texts = nodes.map(|(node, n)| format!("{node}: {}", bytes(*n)));
            texts.collect::<Vec<_>>().join("  ")
        })
        .help("Its memory on each NUMA node."),
    ]
}

/// A size in bytes, with its unit.
pub fn size(value: f64) -> String {
    bytes(value as u64)
}

/// How its memory in swap grew, bytes per second.
pub fn swap_growth(guest: &DomainModel, model: &Model) -> Option<f64> {
    Some(guest.swap?.grown as f64 / model.interval_s?)
}

/// Whole MiB, so that rows do not change places for a page.
fn mib(bytes: f64) -> u64 {
    bytes as u64 >> 20
}

fn balloon(row: &MemoryRow<'_>) -> Option<f64> {
    row.guest.memory.balloon.map(|n| n as f64)
}

fn huge(row: &MemoryRow<'_>) -> Option<f64> {
    let memory = row.guest.memory;
    let explicit = memory.hugetlb.filter(|bytes| *bytes > 0);
    explicit.or(memory.transparent).map(|bytes| bytes as f64)
}

/// The section.
pub fn section<'a>(
    state: &'a AppState,
    model: &'a Model,
    guests: &[&'a DomainModel],
) -> Section<'a> {
    let mut rows: Vec<_> = guests
        .iter()
        .map(|guest| MemoryRow::new(guest, state, model))
        .collect();
    // Where no source knows any memory, the section says why instead.
    if rows.iter().all(|r| r.resident.or(r.swap).is_none()) {
        rows.clear();
    }
    rows.sort_by_cached_key(|r| Reverse((r.split, r.swap.map(mib), r.resident.map(mib))));
    let table = Table {
        id: TableId::Memory,
        columns: columns(),
        rows,
        key: |r| RowKey::of(r.guest.key()),
        style: |r| r.split.map_or(RowStyle::Plain, RowStyle::Severity),
    };
    let why = missing::because(state, "not known", &[SourceId::Procfs]);
    let host = model.host.memory.as_ref().map(host_memory);
    Section::table(table, state, why).with_right(host.unwrap_or_default())
}

fn host_memory(memory: &HostMemory) -> String {
    let mut text = match (memory.free, memory.caches()) {
        (Some(free), Some(caches)) => {
            format!("host: {} free, {} cache", bytes(free), bytes(caches))
        }
        _ => format!("host: {} available", bytes(memory.available)),
    };
    text += &format!(
        " of {}, {} in swap",
        bytes(memory.total),
        bytes(memory.swap_used)
    );
    if memory.huge_total > Some(0) {
        let free = memory.huge_free.unwrap_or(0);
        text += &format!(", {} of huge pages free", bytes(free));
    }
    match memory.ksm_saved {
        Some(saved) if saved > 0 => text += &format!(", KSM saves {}", bytes(saved)),
        _ if memory.ksm_running => text += ", KSM runs",
        _ => {}
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::tests::{busy, judged, model};
    use testkit::Fixture;

    #[test]
    fn guests_with_a_problem_and_then_those_in_swap_are_first() {
        let state = judged(&Fixture::with_devices(), 120, 40);
        let guests = state.guests();
        let rows: Vec<_> = guests
            .iter()
            .map(|guest| MemoryRow::new(guest, &state, model(&state)))
            .collect();
        let split = rows.iter().find(|r| r.split.is_some()).unwrap();
        assert_eq!(
            (split.guest.name(), split.local_percent.map(f64::round)),
            ("db-prod", Some(71.0))
        );
        let section = section(&state, model(&state), &guests);
        let crate::ui::views::section::Body::Table(table) = &section.body else {
            panic!("no table")
        };
        assert_eq!(table.key(0), RowKey::of(split.guest.key()));
        let swapped = rows
            .iter()
            .max_by(|a, b| a.swap.partial_cmp(&b.swap).unwrap())
            .unwrap();
        assert_eq!(table.key(1), RowKey::of(swapped.guest.key()));
    }

    #[test]
    fn memory_that_no_source_gave_is_no_table() {
        let state = busy(120, 40);
        let section = section(&state, model(&state), &state.guests());
        assert_eq!(
            (section.body_lines(), section.note.starts_with("not known")),
            (0, true),
            "{}",
            section.note
        );
    }
}
