//! Ports, addresses and MSRs.

use super::exits::{marked_style, total};
use super::{Section, missing};
use crate::ui::{
    Action, AppState, Cell, Column, RowKey, RowStyle, StyleId, Table, TableId, clean, left, right,
    step,
};
use judge::figures::{micros, percent, rate, share};
use judge::lint::Mark;
use judge::model::{AccessRow, DomainModel};
use kvm::Space;
use sample::{Direction, SourceId};
use std::cmp::Reverse;

/// A row.
pub struct AccessTableRow<'a> {
    access: &'a AccessRow,
    style: RowStyle,
    /// Share of the time in exits, percent.
    time: Option<f64>,
    /// The key that gets the names of the guest's devices without one.
    naming_key: Option<&'static str>,
}

type Col<'a> = Column<AccessTableRow<'a>>;

/// The columns.
pub fn columns<'a>() -> Vec<Col<'a>> {
    vec![
        Col::text("device", "DEVICE", left(15).grow(10), |r| {
            r.access.device_name().unwrap_or_default().to_owned()
        })
        .help("The device that owns the address in this guest, or the MSR's name.")
        .drawn(device)
        .json("accesses[].device"),
        Col::text("access", "ACCESS", left(24).grow(10), |r| {
            brief_access(r).swap_remove(0)
        })
        .help("Port or device, and r for a read, w for a write.")
        .brief("", 12)
        .drawn(|r| Cell::FirstFit(brief_access(r)))
        .hidden(),
        Col::text("what", "WHAT", left(14).grow(14).drop_order(6), |r| {
            r.access
                .device
                .as_ref()
                .and_then(|d| d.friendly.clone())
                .unwrap_or_default()
        })
        .help("The device in plain words."),
        Col::text("address", "ADDRESS", left(15).grow(4).drop_order(1), |r| {
            format!("{} {}", r.access.space.as_str(), r.access.address_text())
        })
        .help(
            "I/O port (pio), guest physical address (mmio) or number of the MSR; `other`: did not \
                fit.",
        )
        .json("accesses[].space, address"),
        Col::text("direction", "R/W", left(5), |r| {
            r.access.direction.as_str().to_owned()
        })
        .help("Read or write.")
        .json("accesses[].access"),
        Col::figure("rate", "ACCESS/s", right(8), |r| r.access.rate, rate)
            .help("Accesses per second.")
            .brief("/s", 5)
            .json("accesses[].rate"),
        Col::figure(
            "cpu",
            "CPU%",
            right(5).drop_order(2),
            |r| r.access.cpu_percent,
            percent,
        )
        .help(
            "Time of the vCPUs in the exits that served the accesses, percent of one host CPU, \
                without the part in which another task had the CPU.",
        )
        .brief("CPU%", 5)
        .json("accesses[].cpu_percent"),
        Col::figure("time", "TIME%", right(5).drop_order(5), |r| r.time, share)
            .help("Share of the time in all exits but those in which the guest sleeps."),
        Col::figure(
            "mean",
            "MEAN us",
            right(7).drop_order(3),
            |r| r.access.span.mean_us(),
            micros,
        )
        .help("Mean time of these exits.")
        .brief("us", 6)
        .json("accesses[].mean_us"),
        Col::text("served", "SERVED BY", left(9).drop_order(4), |r| {
            match &r.access.device {
                Some(d) if r.access.space != Space::Msr => {
                    if d.in_kernel { "KVM" } else { "VMM" }.to_owned()
                }
                _ => String::new(),
            }
        })
        .help(
            "Where the device is emulated, if known: in the kernel (KVM), or in the program that \
                runs the guest (VMM), which takes longer.",
        ),
    ]
}

/// A port with its device, a device, or the address of what no device is known for, and the
/// direction: `0x608 acpi-tmr r`, `hpet w`. The shorter texts are for less room.
fn brief_access(row: &AccessTableRow<'_>) -> Vec<String> {
    let access = row.access;
    let address = access.address_text();
    let direction = match access.direction {
        Direction::Read => "r",
        Direction::Write => "w",
    };
    let Some(device) = access.device_name().map(clean) else {
        let place = format!("{} {address}", access.space.as_str());
        return vec![format!("{place} {direction}"), place];
    };
    let mut texts = Vec::new();
    if access.space == Space::Pio {
        let place = format!("{address} {device}");
        texts = vec![format!("{place} {direction}"), place];
    }
    texts.extend([format!("{device} {direction}"), device]);
    texts
}

/// The device, or the key that gets its name.
fn device(row: &AccessTableRow<'_>) -> Cell {
    let access = row.access;
    if let Some(name) = access.device_name() {
        return Cell::text(clean(name));
    }
    match row.naming_key {
        Some(key) if access.space != Space::Msr && access.address.is_some() => {
            Cell::text(format!("{key} names it")).styled(StyleId::Dim)
        }
        _ => Cell::unknown(),
    }
}

/// The section.
pub fn section<'a>(state: &'a AppState, domain: &'a DomainModel) -> Section<'a> {
    let naming_key = if state.may_ask_monitor_of(domain) {
        Some(state.key_name(Action::AskMonitor))
    } else {
        None
    };
    let mut rows = Vec::new();
    for access in &domain.accesses {
        let mark = Mark::Access(access.space, access.address, access.direction);
        let total_ns = access.span.total_ns;
        rows.push(AccessTableRow {
            access,
            style: marked_style(state, domain, &mark),
            time: total_ns.and_then(|ns| domain.exits.work_percent(ns)),
            naming_key,
        });
    }
    // In steps, so that the addresses of one device, read and written equally often, keep their
    // places.
    rows.sort_by_key(|r| {
        let a = r.access;
        let size = Reverse((a.cpu_percent.map(step), a.rate.map(step)));
        (size, a.space, a.address, a.direction)
    });
    let table = Table {
        id: TableId::Accesses,
        columns: columns(),
        rows,
        key: |r| RowKey::of((r.access.space, r.access.address, r.access.direction)),
        style: |r| r.style,
    };
    let nothing = "no port, device memory or MSR was touched in this interval";
    let why = missing::because(state, nothing, &[SourceId::Tracepoints]);
    let rates = domain.accesses.iter().filter_map(|a| a.rate);
    let percents = domain.accesses.iter().filter_map(|a| a.cpu_percent);
    Section::table(table, state, why).with_right(total(
        rates.reduce(|a, b| a + b),
        percents.reduce(|a, b| a + b),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::guest_list::ListRow;
    use crate::ui::screen_view::ScreenView;
    use crate::ui::table::ColumnId;
    use crate::ui::tests::{busy, draw, screen, text};
    use crate::ui::theme::Theme;
    use crate::ui::update::select;
    use sample::{Direction, DomainFacts, Known, Origin};
    use std::sync::Arc;
    use testkit::{Fixture, Guest, Host};

    #[test]
    fn a_device_is_shown_with_what_it_costs_and_where_it_is_emulated() {
        let mut state = busy(120, 60);
        let is_windows =
            |row: &ListRow| state.guest_at(*row).is_some_and(|d| d.name() == "win10-2");
        let windows = state.list.rows.iter().position(is_windows).unwrap();
        select(&mut state, windows);
        state.view = ScreenView::Page;
        let shown = text(&draw(&state, &Theme::default()));
        let timer = shown
            .lines()
            .find(|line| line.contains("pio 0x608"))
            .unwrap();
        let words: Vec<&str> = timer
            .trim_end_matches(['│', '█'])
            .split_whitespace()
            .collect();
        let figures = ["0x608", "read", "15.9k", "17.9", "56", "11.3", "VMM"];
        assert_eq!(words[words.len() - figures.len()..], figures, "{timer}");
        assert!(
            timer.trim_start().starts_with(['●', '▲', '·', '■', '◆']),
            "a finding is about it: {timer}"
        );
    }

    #[test]
    fn all_of_many_addresses_are_shown() {
        let guest = Guest::new("g", 100).vcpus(1, |_, t| {
            (0..80).fold(t, |t, page| {
                t.mmio(
                    0xc000_0000 + page * 4096,
                    Direction::Write,
                    10.0 + 10.0 * page as f64,
                    4.0,
                )
            })
        });
        let state = screen(&Fixture::new(Host::numa(1, 2, 1)).guest(guest), 120, 40);
        let section = section(&state, &state.model.as_ref().unwrap().domains[0]);
        assert_eq!((section.body_lines(), section.note.as_str()), (81, ""));
        assert_eq!(section.right, "32.4k/s, 13.0 % of a CPU");
    }

    #[test]
    fn an_address_without_a_name_says_which_key_names_it() {
        let access = |t: testkit::Thread| t.mmio(0xc000_0000, Direction::Write, 100.0, 4.0);
        let guest = Guest::new("g", 100).vcpus(1, |_, t| access(t));
        let mut state = screen(&Fixture::new(Host::numa(1, 2, 1)).guest(guest), 160, 40);
        let uuid = |from| {
            Some(Known::new(
                "6f9e4c5b-1d2a-4f3b-8c7d-0123456789ab".to_owned(),
                from,
            ))
        };
        let cell = |state: &AppState| {
            let section = section(state, &state.model.as_ref().unwrap().domains[0]);
            section.as_table().unwrap().cell(0, ColumnId(0))
        };
        let facts = |state: &mut AppState, change: &dyn Fn(&mut DomainFacts)| {
            change(Arc::make_mut(
                &mut state.model.as_mut().unwrap().domains[0].facts,
            ));
        };
        facts(&mut state, &|facts| facts.uuid = uuid(Origin::CommandLine));
        assert_eq!(cell(&state), Cell::unknown(), "not libvirt's");
        facts(&mut state, &|facts| facts.uuid = uuid(Origin::Libvirt));
        assert_eq!(cell(&state), Cell::text("i names it").styled(StyleId::Dim));
        state.session.may_ask_monitors = false;
        assert_eq!(cell(&state), Cell::unknown(), "--no-monitor");
        state.session.may_ask_monitors = true;
        facts(&mut state, &|facts| {
            facts.devices = Some(Known::new(Arc::default(), Origin::Monitor));
        });
        assert_eq!(
            cell(&state),
            Cell::unknown(),
            "the monitor does not know it either"
        );
    }

    #[test]
    fn a_guest_that_touches_nothing_says_so() {
        let state = screen(
            &Fixture::new(Host::numa(1, 2, 1)).guest(Guest::new("g", 100)),
            120,
            40,
        );
        let section = section(&state, &state.model.as_ref().unwrap().domains[0]);
        assert_eq!(
            section.note,
            "no port, device memory or MSR was touched in this interval"
        );
    }
}
