//! Exits to the VMM.

use super::exits::total;
use super::{Section, missing};
use crate::ui::{AppState, Column, RowKey, RowStyle, Table, TableId, left, right};
use judge::figures::{rate, share};
use judge::model::DomainModel;
use kvm::userspace_exit;
use sample::SourceId;

/// A row.
pub struct UserspaceRow {
    reason: i32,
    rate: Option<f64>,
    percent: f64,
}

type Col = Column<UserspaceRow>;

/// The columns.
pub fn columns() -> Vec<Col> {
    vec![
        Col::text("reason", "EXIT TO THE VMM", left(18).grow(6), |r| {
            userspace_exit::display(r.reason).replace("KVM_EXIT_", "")
        })
        .help(
            "Why the program that runs the guest (QEMU) had to help; `restart` is a signal to the \
                vCPU.",
        )
        .json("userspace_exits[].reason"),
        Col::figure("rate", "EXITS/s", right(7), |r| r.rate, rate)
            .help("Exits per second.")
            .json("userspace_exits[].rate"),
        Col::figure(
            "percent",
            "EXITS%",
            right(6).drop_order(1),
            |r| Some(r.percent),
            share,
        )
        .help("Share of the guest's exits to the VMM."),
        Col::text(
            "meaning",
            "MEANING",
            left(20).grow(100).drop_order(2),
            |r| {
                u32::try_from(r.reason)
                    .ok()
                    .and_then(userspace_exit::meaning)
                    .unwrap_or_default()
                    .to_owned()
            },
        )
        .help("What the reason means."),
    ]
}

/// The section.
pub fn section<'a>(state: &'a AppState, domain: &'a DomainModel) -> Section<'a> {
    let of_guest = domain.userspace.iter().filter(|row| row.vcpu.is_none());
    let all = judge::model::total(of_guest.clone().map(|row| row.count)) as f64;
    let interval_s = state.model.as_ref().and_then(|m| m.interval_s);
    let rows = of_guest.map(|row| UserspaceRow {
        reason: row.reason,
        rate: interval_s.map(|s| row.count as f64 / s),
        percent: 100.0 * row.count as f64 / all,
    });
    let table = Table {
        id: TableId::Userspace,
        columns: columns(),
        rows: rows.collect(),
        key: |r| RowKey::of(r.reason),
        style: |_| RowStyle::Plain,
    };
    let why = missing::because(state, "none in this interval", &[SourceId::Tracepoints]);
    let rate = interval_s.map(|s| all / s).filter(|n| *n > 0.0);
    Section::table(table, state, why).with_right(total(rate, None))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::screen_view::ScreenView;
    use crate::ui::tests::{draw, screen, text};
    use crate::ui::theme::Theme;
    use testkit::{Fixture, Guest, Host};

    #[test]
    fn exits_to_the_vmm_are_shown() {
        let guest = Guest::new("g", 100).vcpus(2, |_, t| {
            t.userspace(2, 300.0)
                .userspace(-4, 100.0)
                .userspace(-11, 5.0)
        });
        let mut state = screen(&Fixture::new(Host::numa(1, 2, 1)).guest(guest), 100, 40);
        state.view = ScreenView::Page;
        let shown = text(&draw(&state, &Theme::default()));
        for line in [
            "IO                           600     74 The VMM emulated an I/O port access of the \
                guest",
            "restart                      200     25",
            "error 11                    10.0      1",
        ] {
            assert!(shown.contains(line), "{line}\n{shown}");
        }
        assert!(shown.contains(" 810/s "), "{shown}");
    }

    #[test]
    fn without_any_the_section_is_folded() {
        let state = screen(
            &Fixture::new(Host::numa(1, 2, 1)).guest(Guest::new("g", 100)),
            100,
            40,
        );
        let domain = &state.model.as_ref().unwrap().domains[0];
        assert_eq!(section(&state, domain).note, "none in this interval");
    }
}
