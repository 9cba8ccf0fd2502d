//! What interrupts vCPUs, and the threads that the guest's doorbells wake.

use super::Section;
use crate::ui::{
    AppState, Column, RowKey, RowStyle, ScreenView, Table, TableId, left, right, step,
};
use judge::figures::{micros, rate};
use judge::model::{DomainModel, DoorbellModel, InjectionModel};
use sample::{EngineKind, Row as _};
use std::cmp::Reverse;

/// Interrupts of one kind to one vCPU, or writes to one doorbell that wake one thread.
pub struct InterruptRow {
    key: RowKey,
    what: String,
    to: String,
    from: String,
    rate: Option<f64>,
    awake_us: Option<f64>,
    asleep_us: Option<f64>,
    p99_us: Option<f64>,
}

impl From<&InjectionModel> for InterruptRow {
    fn from(i: &InjectionModel) -> Self {
        Self {
            key: RowKey::of(i.key()),
            what: i.source.to_string(),
            to: match i.vcpu {
                Some(vcpu) => format!("vcpu {vcpu}"),
                None => "-".into(),
            },
            from: i.comm.clone().unwrap_or_else(|| i.by.as_str().into()),
            rate: i.rate(),
            awake_us: i.kick.mean_us(),
            asleep_us: i.slept.mean_us(),
            p99_us: i.slept.plus(&i.kick).p99_us(),
        }
    }
}

impl From<&DoorbellModel> for InterruptRow {
    fn from(bell: &DoorbellModel) -> Self {
        Self {
            key: RowKey::of(bell.key()),
            what: format!("doorbell {:#x}", bell.address),
            to: bell.comm.clone(),
            from: bell.device.clone().unwrap_or_default(),
            rate: bell.rate(),
            awake_us: None,
            asleep_us: bell.time.mean_us(),
            p99_us: bell.time.p99_us(),
        }
    }
}

type Col = Column<InterruptRow>;

/// The columns.
pub fn columns() -> Vec<Col> {
    vec![
        Col::text("interrupt", "INTERRUPT", left(16).grow(8), |r| {
            r.what.clone()
        })
        .help(
            "gsi, spi: a line of the guest's interrupt controller. msi: a message by its vector, \
                of which only the guest knows the device. ipi: from another vCPU. local: mostly \
                the vCPU's own timer. doorbell: an address by which the guest wakes a thread, as \
                of a virtio queue. What the processor delivers without KVM (AVIC, posted \
                interrupts of assigned devices) is not seen.",
        ),
        Col::text("to", "TO", left(8).grow(6), |r| r.to.clone())
            .help("The vCPU, or the thread that the doorbell wakes."),
        Col::text("from", "FROM", left(9).grow(10).drop_order(1), |r| {
            r.from.clone()
        })
        .help(
            "Who sent the interrupt: a thread, a vCPU, kworker (a slow path of KVM), interrupt \
                (of the host: an assigned device). Of a doorbell the device.",
        ),
        Col::figure("rate", "IRQ/s", right(6).grow(1), |r| r.rate, rate)
            .help("Interrupts or wake-ups per second."),
        Col::figure(
            "awake",
            "AWAKE us",
            right(8).drop_order(2),
            |r| r.awake_us,
            micros,
        )
        .help(
            "To a vCPU that did not sleep: from the interrupt until it runs the guest again, \
                mean.",
        ),
        Col::figure("asleep", "ASLEEP us", right(9), |r| r.asleep_us, micros).help(
            "To a vCPU that slept: from the interrupt until it runs the guest, mean. Of a \
                doorbell: from the wake-up until the thread has a CPU.",
        ),
        Col::figure(
            "p99",
            "P99 us",
            right(7).drop_order(3),
            |r| r.p99_us,
            micros,
        )
        .help("99 of 100 took less; of at least 100."),
    ]
}

/// The section.
pub fn section<'a>(state: &'a AppState, domain: &'a DomainModel) -> Section<'a> {
    let interrupts = domain.interrupts.iter().flatten().map(InterruptRow::from);
    let bells = domain.doorbells.iter().flatten().map(InterruptRow::from);
    let mut rows: Vec<_> = interrupts.chain(bells).collect();
    rows.sort_by_key(|r| Reverse(r.rate.map(step)));
    let table = Table {
        id: TableId::Interrupts,
        columns: columns(),
        rows,
        key: |r| r.key,
        style: |_| RowStyle::Plain,
    };
    Section::table(table, state, nothing(state, domain))
}

/// Why they are missing, and what to do.
fn nothing(state: &AppState, domain: &DomainModel) -> &'static str {
    let is_bpf = state
        .model
        .as_ref()
        .is_some_and(|m| m.engine.kind == EngineKind::Bpf);
    if domain.interrupts.is_some() {
        "none came through KVM in this interval"
    } else if state.is_recorded() {
        "not recorded: record with --engine-detail interrupts"
    } else if !is_bpf {
        "not traced: only the BPF engine can"
    } else if state.view == ScreenView::Page {
        "traced while this page is open: wait an interval or two"
    } else {
        "traced while the guest's page is open: Enter"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::state::{ScreenSession, ScreenSource, Tick};
    use crate::ui::tests::{draw, screen, text};
    use crate::ui::theme::Theme;
    use judge::model::{Base, Model};
    use sample::{Doorbell, GuestInterrupts, Injection, IrqSource, ThreadKind};
    use testkit::{Fixture, Guest, Host};

    fn quiet() -> Fixture {
        Fixture::new(Host::numa(1, 2, 1)).guest(Guest::new("g", 100).vcpus(1, |_, t| t))
    }

    #[test]
    fn interrupts_and_doorbells_are_shown_the_most_frequent_first() {
        let mut now = quiet().sample(60.0);
        let of = |source, vcpu, count| Injection {
            source,
            vcpu,
            count,
            by: ThreadKind::Vcpu,
            ..Injection::default()
        };
        let mut timer = of(IrqSource::Local(0xec), Some(0), 500);
        (0..100).for_each(|_| timer.wake.add(3_000));
        (0..100).for_each(|_| timer.delay.add(4_000));
        (0..100).for_each(|_| timer.slept.add(9_000));
        let mut bell = Doorbell {
            address: 0xfe00_3000,
            comm: "IO iothread1".into(),
            ..Doorbell::default()
        };
        (0..40).for_each(|_| bell.time.add(8_000));
        now.domains[0].interrupts = Some(GuestInterrupts {
            injections: vec![timer, of(IrqSource::Spi(1), None, 7)],
            doorbells: vec![bell],
        });
        let model = Model::new(&now, Base::Previous(&quiet().sample(59.0)));
        let mut state = screen(&quiet(), 120, 40);
        state.view = ScreenView::Page;
        state.absorb(Tick {
            model,
            ..Tick::default()
        });
        let shown = text(&draw(&state, &Theme::default()));
        let line = |part: &str| {
            let line = shown
                .lines()
                .find(|line| line.contains(part))
                .unwrap_or_else(|| panic!("{part}\n{shown}"));
            line.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(line("0xec"), "local 0xec vcpu 0 vcpu 500 9.00 9.00");
        assert_eq!(line("spi"), "spi 1 pl011 - vcpu 7.00 - -");
        assert_eq!(
            line("doorbell"),
            "doorbell 0xfe003000 IO iothread1 - 40.0 8.00 -"
        );
    }

    #[test]
    fn without_any_the_section_says_what_traces_them() {
        let note =
            |state: &AppState| section(state, &state.model.as_ref().unwrap().domains[0]).note;
        let mut state = screen(&quiet(), 120, 40);
        assert_eq!(note(&state), "traced while the guest's page is open: Enter");
        state.view = ScreenView::Page;
        assert_eq!(
            note(&state),
            "traced while this page is open: wait an interval or two"
        );
        state.model.as_mut().unwrap().domains[0].interrupts = Some(Vec::new());
        assert_eq!(note(&state), "none came through KVM in this interval");
        state.model.as_mut().unwrap().domains[0].interrupts = None;
        state.model.as_mut().unwrap().engine.kind = EngineKind::Perf;
        assert_eq!(note(&state), "not traced: only the BPF engine can");
        state.session = ScreenSession {
            source: ScreenSource::Replay,
            ..ScreenSession::default()
        };
        assert_eq!(
            note(&state),
            "not recorded: record with --engine-detail interrupts"
        );
    }
}
