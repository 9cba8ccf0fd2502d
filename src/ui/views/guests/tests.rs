use super::*;
use crate::ui::state::AppState;
use crate::ui::table::{ColumnId, Value};
use crate::ui::tests::{busy, draw, model, press, replayed, resized, screen, text};
use crate::ui::{Theme, Tick};
use judge::analysis::{DomainFilter, JudgedInterval, Pattern};
use judge::lint::{Finding, Report, RuleId, Severity};
use judge::model::{Base, Model, TaskGroup};
use judge::testing::FixtureModel as _;
use sample::{EngineLevel, OtherTask};
use testkit::Fixture;

fn lines(state: &AppState) -> Vec<String> {
    text(&draw(state, &Theme::default()))
        .lines()
        .map(String::from)
        .collect()
}

fn line(state: &AppState, what: &str) -> String {
    let all = lines(state);
    all.iter()
        .find(|line| line.contains(what))
        .unwrap_or_else(|| panic!("no {what}: {}", all.join("\n")))
        .clone()
}

/// The names of the rows, top to bottom.
fn rows(state: &AppState) -> Vec<String> {
    let name = |row: &ListRow| match row {
        ListRow::Other => "other".to_owned(),
        ListRow::Idle(n) => format!("{n} idle"),
        ListRow::Guest(_) => state.guest_at(*row).unwrap().name().to_owned(),
    };
    state.list.rows.iter().map(name).collect()
}

fn finding(domain: Option<&str>, severity: Severity, problem: &str) -> Finding {
    Finding {
        rule: RuleId::RtcTick,
        domain: domain.map(Into::into),
        severity,
        problem: problem.into(),
        ..Finding::default()
    }
}

/// The screen with these findings, after the places of rows were held for long enough.
fn found(mut state: AppState, findings: Vec<Finding>) -> AppState {
    let mut model = state.model.clone().unwrap();
    model.time_ms += 60_000;
    state.absorb(Tick {
        model,
        report: Report {
            findings,
            ..Report::default()
        },
        ..Tick::default()
    });
    state
}

/// `n` guests made from the guest at an index of the busy host, named `NAME-1`, `NAME-2`.
fn crowd(f: &mut Fixture, at: usize, n: i32, name: &str) {
    let made = f.guests[at].clone();
    for i in 1..=n {
        let (mut guest, pid) = (made.clone(), 100_000 + 1000 * i);
        guest.facts.name.value = format!("{name}-{i}");
        guest.facts.pid = Some(pid);
        guest
            .threads
            .iter_mut()
            .zip(1..)
            .for_each(|(thread, n)| thread.tid = pid + n);
        f.guests.push(guest);
    }
}

#[test]
fn the_worst_problem_is_first_then_the_largest_cost_then_the_busiest() {
    let state = screen(&Fixture::busy_host(), 120, 40);
    assert_eq!(
        rows(&state),
        ["db-prod", "win10-2", "build-3", "web-1", "idle-4", "other"]
    );
    let findings = vec![
        finding(Some("web-1"), Severity::Critical, "no Hyper-V clock"),
        finding(None, Severity::Critical, "KSM uses much CPU"),
        finding(Some("build-3"), Severity::Warning, "many memory faults"),
    ];
    let state = found(state, findings);
    assert_eq!(
        rows(&state),
        ["web-1", "build-3", "db-prod", "win10-2", "idle-4", "other"]
    );
    let win = line(&state, "win10-2");
    assert!(
        win.contains("emulated clocks") && !win.contains("KSM") && !win.contains('▲'),
        "{win}"
    );
    assert!(
        line(&state, "web-1").contains("▲ web-1")
            && line(&state, "web-1").ends_with("no Hyper-V clock")
    );
    assert!(line(&state, "▲ host tasks").contains("KSM uses much CPU"));
    assert!(
        lines(&state)[3].starts_with(" ▲"),
        "the host's own problem has a line of its own: {}",
        lines(&state)[3]
    );
    let low = resized(&state, 120, 24);
    assert!(
        lines(&low)[1].starts_with("▲CPU"),
        "or marks the host's line: {}",
        lines(&low)[1]
    );
}

#[test]
fn a_setting_that_costs_little_is_no_problem_of_the_list() {
    let setting = |severity| Finding {
        rule: RuleId::DiskSetup,
        ..finding(Some("web-1"), severity, "a disk on IDE")
    };
    let said = |severity| {
        line(
            &found(
                screen(&Fixture::busy_host(), 120, 40),
                vec![setting(severity)],
            ),
            "web-1",
        )
    };
    assert!(!said(Severity::Info).contains("IDE"));
    assert!(said(Severity::Warning).contains("a disk on IDE"));
}

#[test]
fn among_200_guests_the_one_that_storms_the_pm_timer_is_within_the_first_three() {
    let mut f = Fixture::busy_host();
    crowd(&mut f, 2, 97, "web");
    crowd(&mut f, 3, 98, "build");
    assert_eq!(f.guests.len(), 200);
    let state = screen(&f, 120, 40);
    // The database waits for more than a third of a CPU.
    assert_eq!(rows(&state)[..2], ["db-prod", "win10-2"]);
    // Each of them has a problem.
    let names: Vec<String> = model(&state)
        .domains
        .iter()
        .map(|d| d.name().to_owned())
        .collect();
    let findings = names
        .iter()
        .map(|name| finding(Some(name), Severity::Warning, "no Hyper-V clock"))
        .collect();
    let state = found(state, findings);
    assert!(
        rows(&state)[..3].contains(&"win10-2".to_owned()),
        "{:?}",
        &rows(&state)[..3]
    );
}

#[test]
fn idle_guests_share_a_line_and_are_shown_when_they_are_asked_for() {
    let mut f = Fixture::busy_host();
    crowd(&mut f, 4, 7, "sleepy");
    let mut state = screen(&f, 120, 40);
    assert_eq!(
        rows(&state),
        ["db-prod", "win10-2", "build-3", "web-1", "other", "8 idle"]
    );
    assert!(
        line(&state, "GUEST ").ends_with(" 4 of 12 guests"),
        "{}",
        line(&state, "GUEST ")
    );
    assert!(line(&state, "+8 idle").contains("Enter shows them"));
    press(&mut state, "<End><Enter>");
    assert_eq!(rows(&state).len(), 13);
    assert!(line(&state, "GUEST ").ends_with(" 12 of 12 guests"));
    press(&mut state, "<Esc>/name=sleepy-1<Enter>");
    assert_eq!(rows(&state), ["sleepy-1"]);
    assert!(line(&state, "GUEST ").ends_with(" 1 of 12 guests"));
    // A warning is never folded away.
    press(&mut state, "<Esc>");
    let state = found(
        state,
        vec![finding(
            Some("sleepy-2"),
            Severity::Warning,
            "idle, yet woken often",
        )],
    );
    assert!(
        rows(&state)[0] == "sleepy-2" && rows(&state).last().unwrap() == "7 idle",
        "{:?}",
        rows(&state)
    );
}

#[test]
fn nothing_is_idle_before_it_was_measured() {
    let mut f = Fixture::busy_host();
    crowd(&mut f, 4, 7, "sleepy");
    let mut state = AppState::new(crate::ui::ScreenSession::default(), (120, 40));
    state.absorb(Tick {
        model: f.first(),
        ..Tick::default()
    });
    assert!(
        rows(&state).len() == 13 && lines(&state)[1].contains("measuring"),
        "{}",
        lines(&state).join("\n")
    );
    let db = line(&state, "db-prod");
    assert_eq!(
        db.split_whitespace().collect::<Vec<_>>(),
        ["db-prod", "-", "-", "-", "-", "-", "-"]
    );
    state.absorb(Tick {
        model: f.model(),
        ..Tick::default()
    });
    assert_eq!(rows(&state).last().unwrap(), "8 idle");
}

#[test]
fn other_names_the_tasks_and_the_guests_that_they_delay() {
    let f = Fixture::busy_host();
    let mut state = screen(&f, 120, 40);
    let other = line(&state, "   host tasks ");
    assert!(
        other.contains("node_exporter 12, ksmd 9") && !other.contains("delays"),
        "{other}"
    );
    // Only db-prod waits for a noticeable time; a task outside guests ran then.
    let mut model = model(&state).clone();
    let db = model
        .domains
        .iter_mut()
        .find(|d| d.name() == "db-prod")
        .unwrap();
    let vcpu = db.threads.iter_mut().find(|t| t.index == Some(3)).unwrap();
    vcpu.preempted_by = vec![OtherTask {
        tid: 4321,
        comm: "rustc".into(),
        count: 9,
        ns: 150_000_000,
    }];
    model.host.task_groups.as_mut().unwrap().insert(
        0,
        TaskGroup {
            comm: "rustc".into(),
            cpu_percent: 360.0,
            count: 4,
        },
    );
    model.time_ms += 1000;
    state.absorb(Tick {
        model,
        ..Tick::default()
    });
    let other = line(&state, "   host tasks ");
    assert!(other.contains("rustc 360, node_exporter …"), "{other}");
    assert!(
        line(&state, "db-prod").contains("waits for a CPU"),
        "{}",
        line(&state, "db-prod")
    );
    assert!(
        lines(&state)[1].contains("(rustc 10)"),
        "percent of the host: {}",
        lines(&state)[1]
    );
    // The row and the host's line have the same figure.
    let usage = crate::ui::tests::model(&state).host.usage().unwrap();
    let cpu = columns()
        .into_iter()
        .find(|c| c.head.name == "cpu")
        .unwrap();
    let row = GuestRow::new(&state, ListRow::Other);
    assert_eq!(
        cpu.cell(&row),
        crate::ui::table::Cell::text(judge::figures::percent(usage.other * 36.0))
    );
}

#[test]
fn narrow_screens_have_five_columns_and_wide_ones_eight() {
    let state = busy(120, 40);
    let header = |state: &AppState| {
        line(state, "GUEST ")
            .split_whitespace()
            .map(String::from)
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(
        header(&state),
        "GUEST CPU% guest usr sys wait WAIT% EXITS/s MEM WHAT COSTS IT PROBLEM 5 of 5 guests"
    );
    assert_eq!(
        header(&resized(&state, 80, 24)),
        "GUEST CPU% WAIT% WHAT COSTS IT PROBLEM 5 of 5 guests"
    );
    assert_eq!(
        header(&resized(&state, 60, 16)),
        "GUEST CPU% WAIT% PROBLEM 5 of 5 guests"
    );
    assert!(
        line(&resized(&state, 199, 40), "win10-2").contains("emulated clocks 30 %: acpi-tmr 18"),
        "{}",
        line(&state, "win10-2")
    );
    for (columns, rows) in [(80, 24), (120, 40), (200, 50)] {
        let state = resized(&state, columns, rows);
        assert!(
            line(&state, "win10-2").contains("emulated clocks"),
            "{}",
            line(&state, "win10-2")
        );
    }
    // A column that is on and does not fit.
    let narrow = resized(&state, 80, 24);
    let (table, theme) = (table(&narrow), Theme::default());
    let painter = TablePainter::new(&table, narrow.table(TableId::Guests), 79, &theme);
    let shows = |name| {
        painter.shows(ColumnId(
            columns()
                .iter()
                .position(|column| column.head.name == name)
                .unwrap(),
        ))
    };
    assert!(shows("wait") && !shows("exits") && !shows("load"));
}

#[test]
fn a_long_name_is_cut_in_its_middle() {
    let mut f = Fixture::busy_host();
    f.guests[0].facts.name.value = "customer-frontend-production-07".into();
    f.guests[0] = f.guests[0].clone().stopped(sample::Stop::default());
    let narrow = line(&screen(&f, 80, 24), "(paused)");
    assert!(narrow.contains("cus…07 (paused)"), "{narrow}");
}

#[test]
fn rows_keep_their_places_for_five_seconds_and_the_selection_follows() {
    let mut state = screen(&Fixture::busy_host(), 120, 40);
    press(&mut state, "<Down><Down>");
    assert_eq!(state.domain().unwrap().name(), "build-3");
    let critical = |state: &AppState, after_ms: i64| {
        let mut model = model(state).clone();
        model.time_ms += after_ms;
        let findings = vec![finding(
            Some("build-3"),
            Severity::Critical,
            "many memory faults",
        )];
        Tick {
            model,
            report: Report {
                findings,
                ..Report::default()
            },
            ..Tick::default()
        }
    };
    state.absorb(critical(&state, 1000));
    assert_eq!(rows(&state)[2], "build-3");
    state.absorb(critical(&state, 4000));
    assert_eq!(rows(&state)[0], "build-3");
    assert_eq!(
        (state.list.at, state.domain().unwrap().name()),
        (0, "build-3")
    );
}

#[test]
fn the_host_line_adds_up_and_its_slots_keep_their_places() {
    let state = busy(120, 40);
    let host = lines(&state)[1].clone();
    let places =
        |host: &str| ["guests", "other", "irq", "idle", "% of host"].map(|slot| host.find(slot));
    assert!(
        places(&host).iter().all(Option::is_some) && host.ends_with("exits/s"),
        "{host}"
    );
    let mut quiet = model(&state).clone();
    quiet.host.task_groups = None;
    let mut state = state.clone();
    state.absorb(Tick {
        model: quiet,
        ..Tick::default()
    });
    // Bytes before the slots differ by the bar's characters alone.
    let columns = |host: &str| places(host).map(|at| at.map(|at| host[..at].chars().count()));
    assert_eq!(columns(&lines(&state)[1]), columns(&host));
    for columns in [40, 60, 80, 200] {
        let host = lines(&resized(&state, columns, 24))[1].clone();
        assert!(
            host.ends_with("exits/s") && host.contains("guests"),
            "{host}"
        );
    }
    let mut state = found(
        state,
        vec![finding(None, Severity::Warning, "KSM uses much CPU")],
    );
    assert!(lines(&resized(&state, 160, 29))[1].contains("% of host  KSM uses much CPU"));
    state.model.as_mut().unwrap().host.cpus.clear();
    assert!(lines(&state)[1].contains("no figures on the host's CPUs"));
}

#[test]
fn the_first_line_says_what_is_not_as_usual() {
    let mut state = busy(120, 40);
    let first = |state: &AppState| lines(state)[0].clone();
    assert!(
        first(&state).starts_with(" kvm07  36 cpus 2 nodes · 5 guests 31 vcpus"),
        "{}",
        first(&state)
    );
    assert!(
        first(&state).ends_with("LIVE ▶ 14:04:22"),
        "{}",
        first(&state)
    );
    state.model.as_mut().unwrap().engine.level = EngineLevel::None;
    state.model.as_mut().unwrap().lost = 12;
    state.model.as_mut().unwrap().own_cpu = Some(11.0);
    state.model.as_mut().unwrap().late_ns = 3_400_000_000;
    press(&mut state, " ");
    assert!(
        first(&state).ends_with(
            "uses 11% of a cpu  no tracing  12 events lost  3.40 s late  PAUSED ‖ 14:04:22"
        ),
        "{}",
        first(&state)
    );
    let narrow = first(&resized(&state, 80, 24));
    assert!(
        narrow.starts_with(" kvm07 ") && narrow.ends_with("PAUSED ‖ 14:04:22"),
        "{narrow}"
    );
    let replay = first(&replayed(120, 40));
    assert!(
        replay.contains("  night.kvmtop") && replay.ends_with("REPLAY ▶ 14:04:22"),
        "{replay}"
    );
}

#[test]
fn sentences_say_why_there_is_no_list() {
    let mut state = AppState::new(crate::ui::ScreenSession::default(), (80, 24));
    assert!(
        lines(&state)
            .join("\n")
            .contains("Waiting for the first sample")
    );
    let f = Fixture::empty_host();
    state.absorb(Tick {
        model: Model::new(&f.sample(1.0), Base::Previous(&f.sample(0.0))),
        ..Tick::default()
    });
    assert!(
        lines(&state)
            .join("\n")
            .contains("No KVM guest is running on this host.")
    );
    let (model, patterns) = (
        Fixture::busy_host().model(),
        vec![Pattern::new("nosuch").unwrap()],
    );
    let mut interval = JudgedInterval {
        model,
        ..JudgedInterval::default()
    };
    interval.keep_only(&DomainFilter { patterns });
    state.absorb(Tick {
        model: interval.model,
        ..Tick::default()
    });
    let shown = lines(&state).join("\n");
    assert!(
        shown.contains("--domain nosuch matches no guest; guests here: ")
            && !shown.contains("No KVM"),
        "{shown}"
    );
    let mut state = busy(80, 24);
    press(&mut state, "/nothing<Enter>");
    let shown = lines(&state).join(" ");
    for name in [
        "None of 5 guests",
        "db-prod",
        "win10-2",
        "build-3",
        "web-1",
        "idle-4",
    ] {
        assert!(shown.contains(name), "{shown}");
    }
}

#[test]
fn every_column_has_a_name_and_help_that_names_the_base_of_a_percentage() {
    let columns = columns();
    for (at, column) in columns.iter().enumerate() {
        let head = &column.head;
        assert_eq!(
            columns.iter().position(|c| c.head.name == head.name),
            Some(at),
            "names are unique"
        );
        assert!(
            head.name
                .chars()
                .all(|c| c.is_ascii_lowercase() || c == '_')
                && head.help.ends_with('.'),
            "{}",
            head.name
        );
        let is_percent = head.header.ends_with('%');
        assert!(
            !is_percent
                || ["100 is", "percent of"]
                    .iter()
                    .any(|base| head.help.contains(base)),
            "{}",
            head.name
        );
    }
}

#[test]
fn the_row_of_the_host_has_what_its_devices_do_beyond_the_guests() {
    let state = screen(&Fixture::with_devices(), 120, 40);
    let figures = |state: &AppState| {
        let other = GuestRow::new(state, ListRow::Other);
        let all = columns();
        ["disk", "read_bytes", "net", "tx_bytes"].map(|name| {
            let column = all.iter().find(|c| c.head.name == name).unwrap();
            match column.value(&other) {
                Value::Figure(figure) => Some(figure.round()),
                _ => None,
            }
        })
    };
    let (mut disk, mut read, mut received) = (0.0, 0.0, 0.0);
    for guest in state.guests() {
        disk += guest.disk_rates().unwrap().all();
        read += guest.disk_rates().unwrap().inward;
        received += guest.nic_rates().unwrap().inward;
    }
    // The guests send more than the link: to each other.
    let expected = [420e6 - disk, 380e6 - read, 70e6 - received, 0.0];
    assert_eq!(figures(&state), expected.map(|figure| Some(figure.round())));
    let mut f = Fixture::with_devices();
    (f.host.disks, f.host.links) = (None, None);
    assert_eq!(figures(&screen(&f, 120, 40)), [None; 4]);
}
