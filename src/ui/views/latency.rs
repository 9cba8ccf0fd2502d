//! How long the vCPUs of all guests wait for a CPU, and who delays them.

use super::Section;
use super::threads::{self, ThreadRow};
use crate::ui::{AppState, Cell, Column, RowKey, Table, TableId, clean, left, right, step};
use judge::figures::{micros, percent, rate, share};
use std::cmp::Reverse;

type Col<'a> = Column<ThreadRow<'a>>;

/// The columns.
pub fn columns<'a>() -> Vec<Col<'a>> {
    let [wait, p50, p99, delays] = threads::wait_columns();
    vec![
        Col::text("name", "GUEST", left(10).grow(14), |r| {
            r.domain.name().to_owned()
        })
        .help("Name of the guest.")
        .drawn(|r| Cell::name(clean(r.domain.name()))),
        Col::figure(
            "vcpu",
            "VCPU",
            right(4),
            |r| r.thread?.index.map(f64::from),
            share,
        )
        .help("Its number."),
        wait,
        Col::figure(
            "wakeups",
            "WAKE/s",
            right(6).drop_order(6),
            |r| r.per_second(Some(r.thread?.wakeups.as_ref()?.count)),
            rate,
        )
        .help("How often it was woken, per second."),
        p50,
        p99,
        Col::figure(
            "max",
            "MAX us",
            right(6).drop_order(3),
            |r| Some(r.waits()?.max_ns? as f64 / 1e3),
            micros,
        )
        .help("Its longest wait for a CPU."),
        Col::figure("sibling", "SIB%", right(5).drop_order(7), sibling, percent)
            .help("How busy its core's other thread is."),
        Col::figure(
            "wake_us",
            "SLEEP us",
            right(8).drop_order(8),
            |r| {
                let host = &r.state.model.as_ref()?.host;
                host.cpu(r.thread?.place.cpu?)?.power?.wake_us()
            },
            micros,
        )
        .help("How long its CPU takes on average to leave its sleep states."),
        delays,
    ]
}

fn sibling(row: &ThreadRow<'_>) -> Option<f64> {
    let host = &row.state.model.as_ref()?.host;
    let sibling = host.sibling(row.thread?.place.cpu?)?;
    Some(sibling.time?.busy())
}

/// How long tasks of the host waited.
fn host_waits(state: &AppState) -> Option<String> {
    let waits = state.model.as_ref()?.host.pressure?;
    let [cpu, io, memory] = [waits.cpu, waits.io, waits.memory].map(share);
    Some(format!(
        "tasks of the host waited for CPUs {cpu}, disks {io}, memory {memory} % of 10 s"
    ))
}

/// The section: the vCPU that waits for the largest part of its time first; those that want almost
/// no CPU last.
pub fn section(state: &AppState) -> Section<'_> {
    let causes = threads::causes(state);
    let mut rows = Vec::new();
    for domain in state.guests() {
        for thread in domain.vcpus() {
            rows.push(ThreadRow {
                state,
                domain,
                thread: Some(thread),
                idle: 0,
                causes: causes.clone(),
            });
        }
    }
    rows.sort_by_cached_key(|r| {
        r.thread
            .map(|t| (threads::is_idle(t), Reverse(t.wait_percent().map(step))))
    });
    let table = Table {
        id: TableId::Latency,
        columns: columns(),
        rows,
        key: |r| RowKey::of((r.domain.name(), r.thread.map(|t| (t.tid, t.index)))),
        style: ThreadRow::style,
    };
    let section = threads::in_section(state, table);
    match host_waits(state) {
        Some(waits) => section.with_right(waits),
        None => section,
    }
}

#[cfg(test)]
mod tests {
    use crate::ui::screen_view::ScreenView;
    use crate::ui::state::AppState;
    use crate::ui::table::{AnyTable, ColumnId, TableId, Value};
    use crate::ui::tests::{busy, screen};
    use testkit::{Fixture, Guest, Host};

    fn values(table: &dyn AnyTable, name: &str) -> Vec<Value> {
        let column = (0..table.width())
            .map(ColumnId)
            .find(|c| table.head(*c).name == name)
            .unwrap();
        (0..table.len())
            .map(|row| table.value(row, column))
            .collect()
    }

    fn values_of(state: &AppState, view: ScreenView, id: TableId, name: &str) -> Vec<Value> {
        let page = state.page_of(view);
        values(page.tables().find(|t| t.id() == id).unwrap(), name)
    }

    #[test]
    fn the_list_the_page_and_the_latencies_say_the_same_wait() {
        let guest = Guest::new("g", 1)
            .vcpus(1, |_, t| t.on(0).cpu(60.0, 0.0, 0.0, 20.0))
            .emulator(|t| t.on(1));
        let state = screen(&Fixture::new(Host::numa(1, 2, 1)).guest(guest), 120, 40);
        let wait = Value::Figure(25.0);
        assert_eq!(
            values(&crate::ui::views::guests::table(&state), "wait")[0],
            wait
        );
        assert_eq!(
            values_of(&state, ScreenView::Page, TableId::Threads, "wait")[0],
            wait
        );
        assert_eq!(
            values_of(&state, ScreenView::Latency, TableId::Latency, "wait"),
            [wait]
        );
    }

    #[test]
    fn those_that_wait_for_most_of_their_time_are_first_and_idle_ones_last() {
        let state = busy(120, 40);
        let names = values_of(&state, ScreenView::Latency, TableId::Latency, "name");
        assert_eq!(names.len(), 31);
        assert_eq!(
            names[..2],
            [Value::Text("db-prod".into()), Value::Text("db-prod".into())]
        );
        assert_eq!(names[30], Value::Text("idle-4".into()));
        let vcpus = values_of(&state, ScreenView::Latency, TableId::Latency, "vcpu");
        assert_eq!(vcpus[..2], [Value::Figure(3.0), Value::Figure(4.0)]);
    }

    #[test]
    fn a_99th_percentile_needs_100_waits() {
        let state = |rate| {
            let guest = Guest::new("g", 1).vcpus(1, move |_, t| {
                t.on(0).cpu(60.0, 0.0, 0.0, 1.0).wakes(rate, 50.0)
            });
            screen(&Fixture::new(Host::numa(1, 2, 1)).guest(guest), 120, 40)
        };
        let p99 = |state: &AppState| {
            let here = values_of(state, ScreenView::Latency, TableId::Latency, "p99");
            assert_eq!(
                here[0],
                values_of(state, ScreenView::Page, TableId::Threads, "p99")[0]
            );
            here[0].clone()
        };
        assert_eq!(p99(&state(99.0)), Value::Unknown);
        assert!(matches!(p99(&state(100.0)), Value::Figure(_)));
    }
}
