//! Exits by reason.

use super::{Section, missing};
use crate::ui::{Action, AppState, Column, RowKey, RowStyle, Table, TableId, left, right, step};
use judge::figures::{micros, percent, rate, share};
use judge::lint::{Mark, Severity};
use judge::model::{DomainModel, ExitRow};
use kvm::exit_reason;
use sample::{EngineKind, EngineLevel, SourceId};
use std::cmp::Reverse;

/// A row.
pub struct ExitTableRow<'a> {
    exit: &'a ExitRow,
    style: RowStyle,
}

impl ExitTableRow<'_> {
    fn part(&self, ns: Option<u64>) -> Option<f64> {
        let all = self.exit.span.total_ns.filter(|all| *all > 0)?;
        Some(100.0 * ns? as f64 / all as f64)
    }
}

type Col<'a> = Column<ExitTableRow<'a>>;

/// The columns.
pub fn columns<'a>() -> Vec<Col<'a>> {
    vec![
        Col::text("reason", "EXIT REASON", left(18).grow(6), |r| {
            r.exit.reason.clone()
        })
        .help("Why the vCPU left the guest. In dim ones the guest sleeps.")
        .brief("", 12)
        .json("exits[].reason"),
        Col::figure("rate", "EXITS/s", right(7), |r| r.exit.rate, rate)
            .help("Exits per second.")
            .brief("/s", 5)
            .json("exits[].rate"),
        Col::figure(
            "count",
            "EXITS%",
            right(6).drop_order(4),
            |r| r.exit.count_percent,
            share,
        )
        .help("Share of the guest's exits.")
        .json("exits[].count_percent"),
        Col::figure(
            "cpu",
            "CPU%",
            right(5).drop_order(1),
            |r| r.exit.cpu_percent,
            percent,
        )
        .help(
            "Time of the vCPUs in these exits, percent of one host CPU, without the part in \
                WAITING%.",
        )
        .brief("CPU%", 5)
        .json("exits[].cpu_percent"),
        Col::figure(
            "time",
            "TIME%",
            right(5).drop_order(3),
            |r| r.exit.work_percent,
            share,
        )
        .help("Share of the time in all exits but those in which the guest sleeps.")
        .json("exits[].work_percent"),
        Col::figure(
            "mean",
            "MEAN us",
            right(7).drop_order(2),
            |r| r.exit.span.mean_us(),
            micros,
        )
        .help("Mean time until the next entry, microseconds.")
        .brief("us", 6)
        .json("exits[].mean_us"),
        Col::figure(
            "p99",
            "P99 us",
            right(7).drop_order(5),
            |r| r.exit.span.p99_us(),
            micros,
        )
        .help("99 of 100 were shorter; of at least 100.")
        .json("exits[].p99_us"),
        Col::figure(
            "max",
            "MAX us",
            right(7).drop_order(6),
            |r| r.exit.span.max_ns.map(|ns| ns as f64 / 1e3),
            micros,
        )
        .help("The longest of the interval.")
        .json("exits[].max_us"),
        Col::figure(
            "vmm",
            "IN VMM%",
            right(7).drop_order(7),
            |r| r.part(r.exit.userspace_ns),
            share,
        )
        .help(
            "Part of the time that was spent in the program that runs the guest (QEMU), not in \
                the kernel.",
        ),
        Col::figure(
            "waiting",
            "WAITING%",
            right(8).drop_order(8),
            |r| r.part(r.exit.preempted_ns),
            share,
        )
        .help("Part of the time in which the vCPU was ready to run and another task had its CPU."),
        Col::text("meaning", "MEANING", left(40).grow(80).drop_order(9), |r| {
            r.exit
                .id
                .and_then(|(isa, code)| exit_reason::meaning(isa, code))
                .unwrap_or_default()
                .to_owned()
        })
        .help("What the reason means."),
    ]
}

/// The style of a row of a guest that findings may be about.
pub fn marked_style(state: &AppState, domain: &DomainModel, mark: &Mark) -> RowStyle {
    worst_about(state, domain, mark).map_or(RowStyle::Plain, RowStyle::Severity)
}

/// The severity of the worst finding about a part of a guest.
pub fn worst_about(state: &AppState, domain: &DomainModel, mark: &Mark) -> Option<Severity> {
    let findings = state.report.findings.iter();
    findings
        .filter(|f| f.domain.as_deref() == Some(domain.name()) && f.marks.contains(mark))
        .map(|f| f.severity)
        .max()
}

/// Events per second, and what they cost.
pub fn total(per_second: Option<f64>, cpu_percent: Option<f64>) -> String {
    let mut parts = Vec::new();
    if let Some(n) = per_second {
        parts.push(format!("{}/s", rate(n)));
    }
    if let Some(cpu) = cpu_percent {
        parts.push(format!("{} % of a CPU", percent(cpu)));
    }
    parts.join(", ")
}

/// The section.
pub fn section<'a>(state: &'a AppState, domain: &'a DomainModel) -> Section<'a> {
    let mut rows = Vec::new();
    for exit in &domain.exits.rows {
        let mut style = marked_style(state, domain, &Mark::Exit(exit.reason.clone()));
        if style == RowStyle::Plain && exit.idle {
            style = RowStyle::Dim;
        }
        rows.push(ExitTableRow { exit, style });
    }
    rows.sort_by_key(|r| {
        let size = Reverse((r.exit.cpu_percent.map(step), r.exit.rate.map(step)));
        (r.exit.idle, size)
    });
    let table = Table {
        id: TableId::Exits,
        columns: columns(),
        rows,
        key: |r| RowKey::of(&r.exit.reason),
        style: |r| r.style,
    };
    Section::table(table, state, nothing(state)).with_right(total(
        domain.exit_rate.per_second.filter(|n| *n > 0.0),
        domain.exits.cpu_percent(),
    ))
}

/// Why exits by reason are missing, and what to do.
fn nothing(state: &AppState) -> String {
    let what = match &state.model {
        Some(m) if m.engine.fires_kvm_exit == Some(false) => {
            "this kernel fires no kvm_exit: see exits to the VMM and devices".into()
        }
        Some(m) if m.engine.level != EngineLevel::None && m.engine.kind != EngineKind::None => {
            "none in this interval".into()
        }
        _ if state.is_recorded() => "not recorded".into(),
        _ => format!("not traced: {} traces", state.key_name(Action::EngineLevel)),
    };
    missing::because(state, &what, &[SourceId::Tracepoints])
}

#[cfg(test)]
mod tests {
    use super::super::{accesses, section::Body};
    use super::*;
    use crate::ui::state::Tick;
    use crate::ui::table::{AnyTable, ColumnId, Value};
    use crate::ui::tests::{judged, screen};
    use judge::analysis::DomainFilter;
    use judge::cost::{Unit, guest_costs};
    use judge::figures::figure;
    use judge::lint::{self, Options, RuleMemory};
    use judge::model::{Base, Model};
    use report::View;
    use report::document::JsonDocument;
    use sample::{Sample, SourceStatus};
    use testkit::{Fixture, Guest, Host};

    fn table<'s, 'a>(section: &'s Section<'a>) -> &'s (dyn AnyTable + 'a) {
        let Body::Table(table) = &section.body else {
            panic!("{}: {}", section.title, section.note)
        };
        table.as_ref()
    }

    /// The value of a column by its name.
    fn value(table: &dyn AnyTable, row: usize, name: &str) -> Option<f64> {
        let column = (0..table.width())
            .map(ColumnId)
            .find(|id| table.head(*id).name == name)
            .unwrap();
        match table.value(row, column) {
            Value::Figure(figure) => Some(figure),
            _ => None,
        }
    }

    /// The screen over a host whose samples are changed by `change`.
    fn changed(f: &Fixture, change: fn(&mut Sample)) -> AppState {
        let mut state = AppState {
            size: (160, 60),
            ..AppState::default()
        };
        let sample = |second: i32| {
            let mut sample = f.sample(f64::from(second));
            change(&mut sample);
            sample
        };
        let mut memory = RuleMemory::default();
        for second in 30..=60 {
            let model = Model::new(&sample(second), Base::Previous(&sample(second - 1)));
            let report = lint::run(&model, &mut memory, &Options::default());
            state.absorb(Tick {
                model,
                report,
                ..Tick::default()
            });
        }
        state
    }

    /// In a third of the time of each exit another task had the CPU.
    fn preempt(sample: &mut Sample) {
        for exit in sample
            .domains
            .iter_mut()
            .flat_map(|d| &mut d.threads)
            .flat_map(|t| &mut t.events.exits)
        {
            exit.preempted_ns = exit.time.total_ns.map(|ns| ns / 3);
        }
    }

    fn same(a: Option<f64>, b: Option<f64>, what: &str) {
        match (a, b) {
            (Some(a), Some(b)) => assert!(
                (a - b).abs() <= 1e-9 * b.abs().max(1.0),
                "{what}: {a} and {b}"
            ),
            (a, b) => assert_eq!(a, b, "{what}"),
        }
    }

    #[test]
    fn a_figure_is_the_same_in_every_place() {
        for state in [
            changed(&Fixture::busy_host(), |_| {}),
            changed(&Fixture::busy_host(), preempt),
        ] {
            let (model, all) = (state.model.as_ref().unwrap(), DomainFilter::default());
            let view = View {
                model,
                findings: &lint::Report::default(),
                source: "live",
                filter: &all,
            };
            let json = JsonDocument::new(&view);
            let (mut findings, mut parts) = (0, 0);
            for ((domain, json), costs) in model
                .domains
                .iter()
                .zip(&json.domains)
                .zip(guest_costs(model))
            {
                let (exits, devices) = (section(&state, domain), accesses::section(&state, domain));
                if let Body::Text(_) = devices.body {
                    continue;
                }
                let (exits, devices) = (table(&exits), table(&devices));
                let at = |table: &dyn AnyTable, key: RowKey| {
                    (0..table.len()).find(|row| table.key(*row) == key).unwrap()
                };
                for e in json.exits.iter().filter(|e| e.vcpu.is_none()) {
                    let row = at(exits, RowKey::of(&e.reason));
                    let in_json = [
                        e.rate,
                        e.count_percent,
                        e.cpu_percent,
                        e.work_percent,
                        e.mean_us,
                        e.max_us,
                    ];
                    for (name, json) in ["rate", "count", "cpu", "time", "mean", "max"]
                        .into_iter()
                        .zip(in_json)
                    {
                        same(
                            value(exits, row, name),
                            json,
                            &format!("{} {name}", e.reason),
                        );
                    }
                }
                let row_of = |a: &judge::model::AccessRow| {
                    at(devices, RowKey::of((a.space, a.address, a.direction)))
                };
                for (a, json) in domain
                    .accesses
                    .iter()
                    .zip(json.accesses.iter().filter(|a| a.vcpu.is_none()))
                {
                    let in_json = [json.rate, json.cpu_percent, json.mean_us];
                    for (name, json) in ["rate", "cpu", "mean"].into_iter().zip(in_json) {
                        same(
                            value(devices, row_of(a), name),
                            json,
                            &format!("{} {name}", a.address_text()),
                        );
                    }
                }
                let sum = |wanted: &dyn Fn(&judge::model::AccessRow) -> bool| {
                    let rows = domain.accesses.iter().filter(|a| wanted(a));
                    rows.filter_map(|a| value(devices, row_of(a), "cpu"))
                        .reduce(|a, b| a + b)
                };
                for part in costs
                    .costs
                    .iter()
                    .filter(|c| c.unit == Unit::OfCpu)
                    .flat_map(|c| &c.parts)
                {
                    let of_device = sum(&|a| {
                        a.device_name().map(|n| n.trim_start_matches("kvm-")) == Some(&part.name)
                    });
                    if of_device.is_some() {
                        same(part.figure, of_device, &part.name);
                        parts += 1;
                    }
                }
                for f in state
                    .report
                    .findings
                    .iter()
                    .filter(|f| f.domain.as_deref() == Some(domain.name()))
                {
                    let marks = f.marks.iter().map(|mark| match mark {
                        Mark::Access(space, address, direction) => sum(&|a| {
                            (a.space, a.address, a.direction) == (*space, *address, *direction)
                        }),
                        Mark::Exit(reason) => value(exits, at(exits, RowKey::of(reason)), "cpu"),
                        _ => None,
                    });
                    if let Some(of_rows) = marks
                        .collect::<Option<Vec<f64>>>()
                        .filter(|rows| !rows.is_empty())
                    {
                        same(f.cost, Some(of_rows.iter().sum()), &f.title);
                        let costing = format!("costing {} % of one CPU", figure(f.cost.unwrap()));
                        let sums = f.evidence.iter().any(|text| text.contains(&costing))
                            || !f.folded.is_empty();
                        assert!(sums, "{costing}: {:?}", f.evidence);
                        findings += 1;
                    }
                }
            }
            assert!(parts >= 2 && findings >= 1, "{parts} {findings}");
        }
    }

    #[test]
    fn the_costliest_reason_is_first_and_sleep_is_last_and_dim() {
        let state = judged(&Fixture::busy_host(), 120, 40);
        let section = section(&state, &state.model.as_ref().unwrap().domains[0]);
        assert_eq!(section.right, "35.4k/s, 31.9 % of a CPU");
        let table = table(&section);
        let reasons: Vec<_> = (0..table.len())
            .map(|row| table.value(row, ColumnId(0)))
            .collect();
        let expected = [
            "IO_INSTRUCTION",
            "EXTERNAL_INTERRUPT",
            "MSR_WRITE",
            "EPT_MISCONFIG",
            "HLT",
        ];
        assert_eq!(reasons, expected.map(|reason| Value::Text(reason.into())));
        assert_eq!(
            (table.style(0), table.style(4)),
            (RowStyle::Plain, RowStyle::Dim)
        );
        assert!(
            matches!(table.style(1), RowStyle::Severity(_)),
            "a finding is about it"
        );
        assert_eq!(
            (value(table, 4, "cpu"), value(table, 4, "time")),
            (None, None),
            "sleep is no cost"
        );
    }

    #[test]
    fn few_exits_have_no_99th_percentile_and_a_vcpu_that_waits_costs_no_cpu() {
        let guest = Guest::new("g", 100).vcpus(1, |_, t| {
            t.exits("CPUID", 99.0, 50.0)
                .exits("EXTERNAL_INTERRUPT", 300.0, 1000.0)
        });
        let state = changed(&Fixture::new(Host::numa(1, 2, 1)).guest(guest), preempt);
        let section = section(&state, &state.model.as_ref().unwrap().domains[0]);
        let table = table(&section);
        assert!(value(table, 0, "p99").is_some() && value(table, 1, "p99").is_none());
        assert_eq!(value(table, 0, "waiting").map(f64::round), Some(33.0));
        assert_eq!(
            value(table, 0, "cpu").map(f64::round),
            Some(20.0),
            "of 30 %"
        );
    }

    #[test]
    fn an_empty_section_says_why_and_what_to_do() {
        let quiet =
            || Fixture::new(Host::numa(1, 2, 1)).guest(Guest::new("g", 100).vcpus(1, |_, t| t));
        let note = |f: &Fixture| {
            let state = screen(f, 120, 40);
            let section = section(&state, &state.model.as_ref().unwrap().domains[0]);
            assert_eq!(section.body_lines(), 0);
            section.note
        };
        assert_eq!(note(&quiet()), "none in this interval");
        let mut f = quiet();
        f.engine.fires_kvm_exit = Some(false);
        assert_eq!(
            note(&f),
            "this kernel fires no kvm_exit: see exits to the VMM and devices"
        );
        f = quiet();
        f.engine.level = EngineLevel::None;
        assert_eq!(note(&f), "not traced: e traces");
        let missing = SourceStatus::missing(SourceId::Tracepoints, "no permission", "run as root");
        assert!(note(&f.source(missing)).contains("(tracepoints missing: see 5)"));
    }
}
