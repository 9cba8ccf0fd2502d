//! What filters show, and what is said of those that cannot be read.

use super::*;
use proptest::prelude::*;

const FIELDS: [FilterField; 5] = [
    FilterField { name: "name", is_text: true },
    FilterField { name: "cpu", is_text: false },
    FilterField { name: "exits", is_text: false },
    FilterField { name: "device", is_text: true },
    FilterField { name: "vcpus", is_text: false },
];

/// Name, CPU, exits, device, vCPUs of four guests.
fn rows() -> Vec<(&'static str, [FieldValue; 4])> {
    use FieldValue::{Figure as F, Unknown as U};
    let t = |s: &str| FieldValue::Text(s.into());
    vec![
        ("win10-2", [F(332.1), F(34_900.0), t("acpi-tmr"), F(8.0)]),
        ("db-prod", [F(911.0), F(12_100.0), U, F(16.0)]),
        ("web 1", [F(38.2), F(1_200.0), t("virtio-net"), F(4.0)]),
        ("new", [U, U, U, F(2.0)]),
    ]
}

fn shown_by(text: &str) -> Vec<&'static str> {
    let filter = parse(text, &FIELDS).unwrap_or_else(|e| panic!("{text}: {e}"));
    let shows = |(name, values): &(&'static str, [FieldValue; 4])| {
        let value = |i: usize| if i == 0 { FieldValue::Text((*name).into()) } else { values[i - 1].clone() };
        filter.as_ref().is_none_or(|f| f.shows(name, &value))
    };
    rows().iter().filter(|r| shows(r)).map(|r| r.0).collect()
}

fn said(text: &str) -> String {
    parse(text, &FIELDS).expect_err(text).to_string()
}

#[test]
fn a_bare_word_filters_names_by_part_or_glob() {
    assert_eq!(shown_by("").len(), 4);
    assert_eq!(shown_by("WIN"), ["win10-2"]);
    assert_eq!(shown_by("web 1"), ["web 1"]);
    assert_eq!(shown_by("*-[!2]*"), ["db-prod"]);
    assert_eq!(shown_by("and"), [""; 0], "a guest's name may be a keyword");
    assert_eq!(shown_by("w[").len(), 0, "a bad glob is a part of a name");
}

#[test]
fn figures_texts_and_their_operators() {
    for (text, names) in [
        ("cpu>50", &["win10-2", "db-prod"][..]),
        ("cpu > 38.2", &["win10-2", "db-prod"]),
        ("cpu>=38.2", &["win10-2", "db-prod", "web 1"]),
        ("cpu<=38.2", &["web 1"]),
        ("cpu=38", &["web 1"]),
        ("cpu=38.3", &[]),
        ("cpu!=38", &["win10-2", "db-prod"]),
        ("exits>10k", &["win10-2", "db-prod"]),
        ("exits=12k/s", &["db-prod"]),
        ("exits=12.0k", &[]),
        ("cpu<50%", &["web 1"]),
        ("vcpus==16", &["db-prod"]),
        ("device=ACPI-tmr", &["win10-2"]),
        ("device=acpi", &[]),
        ("device~virtio", &["web 1"]),
        ("device=virtio-*", &["web 1"]),
        ("device!=acpi-tmr", &["web 1"]),
        ("device=-", &["db-prod", "new"]),
        ("device!=-", &["win10-2", "web 1"]),
        ("name=\"web 1\"", &["web 1"]),
        ("CPU>50 AND name~DB", &["db-prod"]),
    ] {
        assert_eq!(shown_by(text), names, "{text}");
    }
}

#[test]
fn and_binds_closer_than_or_and_not_closest() {
    for (text, names) in [
        ("cpu>50 and name~win and device=acpi-tmr", &["win10-2"][..]),
        ("name~new or cpu>50 and exits<20k", &["db-prod", "new"]),
        ("(name~new or cpu>50) and exits<20k", &["db-prod"]),
        ("not name~win and not new", &["db-prod", "web 1"]),
        ("not (win or db)", &["web 1", "new"]),
        ("win or 'web 1'", &["win10-2", "web 1"]),
        ("not not win", &["win10-2"]),
    ] {
        assert_eq!(shown_by(text), names, "{text}");
    }
}

#[test]
fn an_unknown_value_is_on_neither_side() {
    assert!(!shown_by("cpu>50").contains(&"new"));
    assert!(!shown_by("not cpu>50").contains(&"new"));
    assert!(shown_by("not cpu>50 or vcpus=2").contains(&"new"));
}

#[test]
fn what_is_wrong_or_missing_is_said() {
    for (text, words) in [
        ("cpu>", "a value is missing after cpu>"),
        ("cpu>5 and", "a condition is missing at the end, such as cpu>50"),
        ("cpu>5 name~a", "'and' or 'or' is missing before 'name'"),
        ("cp>5", "no column 'cp'; there are name, cpu, exits, device, vcpus"),
        ("cpu>fast", "'fast' is no figure; use 50, 12.5, 10k, 2M or 4GiB"),
        ("cpu~5", "cpu is a figure: compare it with =, !=, <, <=, > or >="),
        ("name>5", "name is a text: compare it with =, != or ~"),
        ("(cpu>5", "')' is missing"),
        ("cpu>5)", "')' without '('"),
        ("name='web", "the quote ' is not closed"),
        (">5", "a column is missing before '>'"),
        ("and cpu>5", "a condition is missing before 'and'"),
        ("cpu>=>5", "a value is missing before '>'"),
    ] {
        assert_eq!(said(text), words, "{text}");
    }
}

#[test]
fn a_hostile_filter_is_refused_in_time() {
    assert!(said(&"(".repeat(200)).contains("within each other"));
    assert!(said(&"not ".repeat(60)).contains("within each other"));
    assert!(said(&"a".repeat(100_000)).contains("at most 256 characters"));
    let _ = parse(&"{a,b}*".repeat(42), &FIELDS);
}

#[test]
fn columns_are_suggested_where_one_can_stand() {
    let names = |text| suggestions(text, &FIELDS);
    assert_eq!(names("e"), ["exits"]);
    assert_eq!(names("cpu>5 and "), ["name", "cpu", "exits", "device", "vcpus"]);
    assert_eq!(names("cpu>5 and not (d"), ["device"]);
    assert_eq!(names("").len(), 5);
    for text in ["cpu>", "cpu>5 e", "cpu>5", "device=e", "exits"] {
        assert!(names(text).is_empty(), "{text}");
    }
}

#[test]
fn tab_completes_as_far_as_names_agree() {
    let fields = [FilterField { name: "device", is_text: true }, FilterField { name: "device_rate", is_text: false }];
    assert_eq!(completed("a or de", &fields).as_deref(), Some("a or device"));
    assert_eq!(completed("a or device", &fields).as_deref(), Some("a or device_rate"));
    assert_eq!(completed("cpu", &fields), None);
    assert_eq!(completed("é\u{3000}d", &fields), None, "no column can stand there");
}

#[test]
fn a_half_typed_filter_leaves_the_last_good_one_in_force() {
    let mut filter = TableFilter::default();
    let shows = |f: &TableFilter| f.shows("win10-2", &|_| FieldValue::Figure(10.0));
    for (typed, good) in [("cpu>5", true), ("cpu>50", false), ("cpu>50 an", false), ("cpu>5", true), ("cpu>", true)] {
        filter.set(typed, &FIELDS);
        assert_eq!(shows(&filter), good, "{typed}");
    }
    assert_eq!(filter.text(), "cpu>5");
    assert_eq!(filter.error().unwrap().to_string(), "a value is missing after cpu>");
    assert!(filter.settle().is_some() && filter.error().is_none());
    filter.clear();
    assert!(filter.is_empty() && shows(&filter));
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(
        text in "[ -~é数]{0,80}",
        words in "(cpu|name|and|or|not|[(]|[)]|<|>=|!=|~|=|5k|'| ){0,40}",
    ) {
        for text in [text, words] {
            if let Ok(Some(filter)) = parse(&text, &FIELDS) {
                filter.shows("x", &|_| FieldValue::Unknown);
            }
            completed(&text, &FIELDS);
        }
    }
}
