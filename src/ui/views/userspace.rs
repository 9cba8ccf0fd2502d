//! Exits to the VMM, and KVM's own counters.

use super::exits::total;
use super::missing;
use super::section::Section;
use crate::ui::state::AppState;
use crate::ui::table::{Column, RowKey, RowStyle, Table, TableId, left, right};
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
    const REASON: &str = "Why the program that runs the guest (QEMU) had to help; `restart` is a signal to the vCPU.";
    vec![
        Col::text("reason", "EXIT TO THE VMM", left(18, 6, 0), |r| {
            userspace_exit::display(r.reason).replace("KVM_EXIT_", "")
        })
        .help(REASON)
        .json("userspace_exits[].reason"),
        Col::figure("rate", "EXITS/s", right(7, 0, 0), |r| r.rate, rate)
            .help("Exits per second.")
            .json("userspace_exits[].rate")
            .with_change(),
        Col::figure("percent", "EXITS%", right(6, 0, 1), |r| Some(r.percent), share)
            .help("Share of the guest's exits to the VMM."),
        Col::text("meaning", "MEANING", left(20, 100, 2), |r| {
            u32::try_from(r.reason).ok().and_then(userspace_exit::meaning).unwrap_or_default().to_owned()
        })
        .help("What the reason means."),
    ]
}

/// The section.
pub fn section<'a>(state: &'a AppState, domain: &'a DomainModel) -> Section<'a> {
    let of_guest = || domain.userspace.iter().filter(|(vcpu, ..)| vcpu.is_none());
    let all = judge::model::total(of_guest().map(|row| row.2)) as f64;
    let per_second = |n: f64| Some(n / state.model.as_ref()?.interval_s?);
    let rows = of_guest().map(|&(_, reason, n)| UserspaceRow {
        reason,
        rate: per_second(n as f64),
        percent: 100.0 * n as f64 / all,
    });
    let (rows, key) = (rows.collect(), |r: &UserspaceRow| RowKey::of(r.reason));
    let table = Table { id: TableId::Userspace, columns: columns(), rows, key, style: |_| RowStyle::Plain };
    let why = || missing::because(state, "none in this interval", &[SourceId::Tracepoints]);
    Section::table(table, state, why).with_right(total(per_second(all).filter(|n| *n > 0.0), None))
}

/// A counter, and its growth per second.
pub type CounterRow<'a> = (&'a str, f64);

/// The columns of KVM's counters.
pub fn counter_columns<'a>() -> Vec<Column<CounterRow<'a>>> {
    const COUNTER: &str = "A statistic of KVM, or a tracepoint of KVM where these are counted (--kvm-events).";
    const GROWTH: &str = "Growth per second; names that end in ns are nanoseconds.";
    vec![
        Column::text("counter", "COUNTER", left(32, 16, 0), |r: &CounterRow<'_>| r.0.to_owned()).help(COUNTER),
        Column::figure("rate", "PER s", right(8, 0, 0), |r: &CounterRow<'_>| Some(r.1), rate)
            .help(GROWTH)
            .with_change(),
    ]
}

/// The section of KVM's counters: those that grew.
pub fn counters<'a>(state: &'a AppState, domain: &'a DomainModel) -> Section<'a> {
    let seconds = state.model.as_ref().and_then(|m| m.interval_s).unwrap_or(1.0);
    let events = domain.kvm_events.iter().map(|(name, n)| (name.as_str(), *n as f64 / seconds));
    let counters = domain.counters.iter().map(|(name, rate)| (name.as_str(), *rate));
    let rows = events.chain(counters).filter(|(_, rate)| *rate > 0.0).collect();
    let key = |r: &CounterRow<'_>| RowKey::of(r.0);
    let table = Table { id: TableId::Counters, columns: counter_columns(), rows, key, style: |_| RowStyle::Plain };
    Section::table(table, state, || missing::because(state, "none that grew", &[SourceId::KvmStats]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::tests::{draw, screen, text};
    use crate::ui::theme::Theme;
    use crate::ui::views::ScreenView;
    use testkit::{Fixture, Guest, Host};

    #[test]
    fn exits_to_the_vmm_and_counters_that_grew_are_shown() {
        let mut guest =
            Guest::new("g", 100).vcpus(2, |_, t| t.userspace(2, 300.0).userspace(-4, 100.0).userspace(-11, 5.0));
        guest.counters = [("halt_wakeup", 40.0), ("pf_fixed", 0.0)].map(|(name, rate)| (name.into(), rate)).into();
        guest.kvm_events = [("kvm_eoi".into(), 7.0)].into();
        let mut state = screen(&Fixture::new(Host::numa(1, 2, 1)).guest(guest), 100, 40);
        state.view = ScreenView::Page;
        let shown = text(&draw(&state, &Theme::default()));
        for line in [
            "IO                           600     74 The VMM emulated an I/O port access of the guest",
            "restart                      200     25",
            "error 11                    10.0      1",
            "kvm_eoi                                              7.00",
            "halt_wakeup                                          40.0",
        ] {
            assert!(shown.contains(line), "{line}\n{shown}");
        }
        assert!(shown.contains(" 810/s ") && !shown.contains("pf_fixed"), "{shown}");
    }

    #[test]
    fn without_any_the_sections_are_folded() {
        let state = screen(&Fixture::new(Host::numa(1, 2, 1)).guest(Guest::new("g", 100)), 100, 40);
        let domain = &state.model.as_ref().unwrap().domains[0];
        assert_eq!(section(&state, domain).note, "none in this interval");
        assert_eq!(counters(&state, domain).note, "none that grew");
    }
}
