//! What the files of a view hold.

use super::*;
use crate::ui::state::Tick;
use crate::ui::table::TableId;
use crate::ui::tests::{busy, draw, press, screen};
use crate::ui::views::heads;
use serde_json::Value;
use testkit::Fixture;

fn saved(state: &AppState, format: SaveFormat) -> String {
    view(state, &Theme::default(), format).unwrap().1
}

/// The records of the first table of a CSV file, by the names of its columns. No field of it has a
/// comma.
fn records(csv: &str) -> Vec<Vec<(String, String)>> {
    let table = csv.split("\r\n\r\n").next().unwrap();
    // A comma between quotes is text.
    let fields = |line: &str| {
        let parts = line.split('"').enumerate();
        let line: String = parts
            .map(|(n, part)| {
                if n % 2 == 1 {
                    part.replace(',', ";")
                } else {
                    part.into()
                }
            })
            .collect();
        line.split(',').map(str::to_owned).collect::<Vec<_>>()
    };
    let mut lines = table.lines().map(fields);
    let names = lines.next().unwrap();
    lines
        .map(|fields| names.iter().cloned().zip(fields).collect())
        .collect()
}

/// Shows the page of the host, which lists the devices of all guests.
fn show_page_of_host(state: &mut AppState) {
    press(state, "<End><Enter>");
    assert!(state.view == ScreenView::Page && state.domain().is_none());
}

fn domains(state: &AppState) -> Vec<Value> {
    let document: Value = serde_json::from_str(&saved(state, SaveFormat::Json)).unwrap();
    assert_eq!(document["schema"], 1);
    document["domains"].as_array().unwrap().clone()
}

/// The sum of fields such as `cpu.guest + cpu.usr`; `None` where one is not a figure.
fn sum_of(value: &Value, fields: &str) -> Option<f64> {
    let figure = |field: &str| {
        field
            .split('.')
            .try_fold(value, |v, name| v.get(name))?
            .as_f64()
    };
    fields.split(" + ").map(figure).sum()
}

fn is_same(csv: &str, json: f64) -> bool {
    csv.parse::<f64>()
        .is_ok_and(|csv| (csv - json).abs() <= json.abs() * 1e-12)
}

#[test]
fn a_file_is_named_after_host_view_and_time() {
    let mut state = busy(120, 40);
    let name = |s: &AppState, f| view(s, &Theme::default(), f).unwrap().0;
    assert_eq!(
        name(&state, SaveFormat::Text),
        "kvmtop-kvm07-guests-20261121-140422.txt"
    );
    state.show(ScreenView::Host);
    assert_eq!(
        name(&state, SaveFormat::Csv),
        "kvmtop-kvm07-host-20261121-140422.csv"
    );
    assert!(view(&AppState::default(), &Theme::default(), SaveFormat::Json).is_none());
}

#[test]
fn the_text_is_that_of_the_screen() {
    let state = busy(120, 40);
    assert_eq!(
        saved(&state, SaveFormat::Text),
        lines(&draw(&state, &Theme::default()))
    );
}

#[test]
fn csv_of_the_guests_has_every_guest_with_the_figures_of_json() {
    let mut state = busy(120, 40);
    let guests = domains(&state);
    let records = records(&saved(&state, SaveFormat::Csv));
    assert_eq!(
        records.len(),
        guests.len(),
        "guests that share a row on the screen, and no row of the host"
    );
    let mut compared = 0;
    for record in &records {
        let of = |name: &str| &record.iter().find(|(n, _)| n == name).unwrap().1;
        let guest = guests
            .iter()
            .find(|g| g["name"].as_str() == Some(of("name")))
            .unwrap();
        // Figures of lists, such as the exits of all reasons, are sums that no field of JSON has.
        for head in heads(TableId::Guests)
            .into_iter()
            .filter(|h| h.json != "name" && !h.json.contains("[]"))
        {
            if let Some(figure) = sum_of(guest, head.json) {
                assert!(
                    is_same(of(head.name), figure),
                    "{}: {} {figure}",
                    head.name,
                    of(head.name)
                );
                compared += 1;
            }
        }
    }
    assert!(compared >= guests.len(), "{compared}");
    press(&mut state, "/win<Enter>");
    assert_eq!(self::records(&saved(&state, SaveFormat::Csv)).len(), 1);
}

#[test]
fn csv_of_disks_has_the_names_and_figures_of_json() {
    let mut state = screen(&Fixture::with_devices(), 200, 50);
    let guests = domains(&state);
    show_page_of_host(&mut state);
    let csv = saved(&state, SaveFormat::Csv);
    let disks = csv.find("domain,name,read_ops").unwrap();
    let records = records(&csv[disks..]);
    assert_eq!(
        records.len(),
        guests
            .iter()
            .map(|g| g["disks"].as_array().unwrap().len())
            .sum::<usize>()
    );
    for record in &records {
        let guest = guests
            .iter()
            .find(|g| g["name"] == record[0].1.as_str())
            .unwrap();
        let disk = guest["disks"]
            .as_array()
            .unwrap()
            .iter()
            .find(|d| d["name"] == record[1].1.as_str())
            .unwrap();
        // Where it is kept is in another part of JSON.
        for (name, csv) in record[2..].iter().filter(|(name, _)| name != "storage") {
            match disk[name].as_f64() {
                Some(figure) => assert!(is_same(csv, figure), "{name}: {csv} {figure}"),
                None => assert!(
                    disk[name].is_null() && csv.is_empty(),
                    "{name}: {csv} {}",
                    disk[name]
                ),
            }
        }
    }
}

#[test]
fn csv_has_every_table_of_a_view_with_all_its_columns() {
    let mut state = screen(&Fixture::with_devices(), 80, 24);
    state.show(ScreenView::Sources);
    assert!(
        view(&state, &Theme::default(), SaveFormat::Csv).is_none(),
        "no table, no file"
    );
    for view in [ScreenView::Guests, ScreenView::Page, ScreenView::Host] {
        state.show(view);
        state.settle();
        let csv = saved(&state, SaveFormat::Csv);
        let shown = match view {
            ScreenView::Guests => vec![TableId::Guests],
            _ => state
                .page_of(view)
                .tables()
                .map(crate::ui::table::AnyTable::id)
                .collect(),
        };
        let shown: Vec<TableId> = shown
            .into_iter()
            .filter(|id| !heads(*id).is_empty())
            .collect();
        let tables: Vec<&str> = csv
            .split("\r\n\r\n")
            .map(str::trim_start)
            .filter(|t| !t.is_empty())
            .collect();
        assert_eq!(tables.len(), shown.len(), "{view:?}: {csv}");
        for (table, id) in tables.into_iter().zip(shown) {
            let names: Vec<&str> = heads(id).iter().map(|head| head.name).collect();
            assert_eq!(
                table.lines().next(),
                Some(names.join(",").as_str()),
                "{view:?}"
            );
        }
    }
}

#[test]
fn json_is_the_document_of_the_guests_in_the_view() {
    let mut state = busy(120, 40);
    let names = |s: &AppState| {
        domains(s)
            .iter()
            .map(|d| d["name"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&state).len(), 5);
    press(&mut state, "/win<Enter>");
    assert_eq!(names(&state), ["win10-2"]);
    press(&mut state, "<Esc>");
    state.show(ScreenView::Page);
    assert_eq!(names(&state).len(), 1);
}

#[test]
fn hostile_names_break_no_spreadsheet() {
    let mut state = screen(&Fixture::with_devices(), 120, 40);
    let model = state.model.as_mut().unwrap();
    let facts = std::sync::Arc::make_mut(&mut model.domains[0].facts);
    facts.name.value =
        "=cmd|'/c calc'!A1,\"</text><script>alert(1)</script>\u{1b}[2J\u{202e}".into();
    state.settle();
    for _ in 0..2 {
        let csv = saved(&state, SaveFormat::Csv);
        assert!(csv.contains("\"'=cmd|'/c calc'!A1,\"\"</text>"), "{csv}");
        assert!(!csv.contains(['\u{1b}', '\u{202e}']), "{csv}");
        show_page_of_host(&mut state);
    }
}

#[test]
fn intervals_as_csv_long_and_wide() {
    let mut state = busy(120, 40);
    let columns = csv::columns(["name", "cpu", "storage"]).unwrap();
    let why = csv::columns(["nope"]).unwrap_err();
    assert!(why.starts_with("no column \"nope\"; there are name, cpu, "));

    let long = csv::guest_lines(&state, &columns, true);
    let records = records(&long);
    assert_eq!(records.len(), state.guests().len());
    for record in &records {
        assert_eq!(record[0].0, "time");
        assert!(record[0].1.starts_with("2026-11-21T") && record[0].1.ends_with('Z'));
        let mut guests = state.guests().into_iter();
        let guest = guests.find(|guest| guest.name() == record[1].1).unwrap();
        let cpu: f64 = record[2].1.parse().unwrap();
        assert!((cpu - guest.cpu.unwrap().busy()).abs() < 1e-9);
        assert_eq!(record[3].1, "", "not known is empty");
    }
    assert!(!csv::guest_lines(&state, &columns, false).contains("time"));

    // The guests of the first interval have their columns, also once one is gone.
    let columns = csv::columns(["cpu"]).unwrap();
    let mut guests = None;
    let first = csv::wide_line(&state, &columns, &mut guests);
    let known = guests.clone().unwrap();
    let head = first.lines().next().unwrap();
    assert!(head.starts_with("(PDH-CSV 4.0) (UTC)(0),\\\\"), "{head}");
    assert_eq!(head.split(',').count(), 1 + known.len());
    let model = state.model.as_mut().unwrap();
    let gone = model.domains.remove(0);
    let tick = Tick {
        model: model.clone(),
        ..Tick::default()
    };
    state.absorb(tick);
    let line = csv::wide_line(&state, &columns, &mut guests);
    assert_eq!(line.lines().count(), 1, "the head is printed once");
    let fields: Vec<&str> = line.trim_end().split(',').collect();
    assert_eq!(fields.len(), 1 + known.len());
    let at = known.iter().position(|id| *id == gone.facts.id()).unwrap();
    assert_eq!(fields[1 + at], "", "it is gone");
}
