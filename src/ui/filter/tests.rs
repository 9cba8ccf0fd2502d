//! What filters show, and what is said of those that cannot be read.

use super::*;
use proptest::prelude::*;

const FIELDS: [FilterField; 5] = [
    FilterField {
        name: "name",
        is_text: true,
    },
    FilterField {
        name: "cpu",
        is_text: false,
    },
    FilterField {
        name: "exits",
        is_text: false,
    },
    FilterField {
        name: "device",
        is_text: true,
    },
    FilterField {
        name: "vcpus",
        is_text: false,
    },
];

/// Name, CPU, exits, device, vCPUs of four guests.
fn rows() -> Vec<(&'static str, [Value; 4])> {
    use Value::{Figure as F, Unknown as U};
    let t = |s: &str| Value::Text(s.into());
    vec![
        ("win10-2", [F(332.1), F(34_900.0), t("acpi-tmr"), F(8.0)]),
        ("db-prod", [F(911.0), F(12_100.0), U, F(16.0)]),
        ("web 1", [F(38.2), F(1_200.0), t("virtio-net"), F(4.0)]),
        ("new", [U, U, U, F(2.0)]),
    ]
}

fn shown_by(text: &str) -> Vec<&'static str> {
    let filter = TableFilter::read(text, &FIELDS).unwrap_or_else(|e| panic!("{text}: {e}"));
    let shows = |(name, values): &(&'static str, [Value; 4])| {
        let value = |i: usize| {
            if i == 0 {
                Value::Text((*name).into())
            } else {
                values[i - 1].clone()
            }
        };
        filter.shows(name, &value)
    };
    rows().iter().filter(|r| shows(r)).map(|r| r.0).collect()
}

fn said(text: &str) -> String {
    TableFilter::read(text, &FIELDS)
        .expect_err(text)
        .to_string()
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
        ("name = web 1", &["web 1"]),
        ("CPU>50 AND name~DB", &["db-prod"]),
    ] {
        assert_eq!(shown_by(text), names, "{text}");
    }
}

#[test]
fn all_conditions_have_to_be_true() {
    assert_eq!(
        shown_by("cpu>50 and name~win and device=acpi-tmr"),
        ["win10-2"]
    );
    assert_eq!(shown_by("cpu<100 AND web 1"), ["web 1"]);
}

#[test]
fn an_unknown_value_is_on_neither_side() {
    assert!(!shown_by("cpu>50").contains(&"new"));
    assert!(!shown_by("cpu<=50").contains(&"new"));
}

#[test]
fn what_is_wrong_or_missing_is_said() {
    for (text, words) in [
        ("cpu>", "at 5: a value is missing"),
        (
            "cpu>50 and",
            "at 5: '50 and' is no figure; use 50, 12.5, 10k, 2M or 4GiB",
        ),
        (
            "cpu>5 name~x",
            "at 5: '5 name~x' is no figure; use 50, 12.5, 10k, 2M or 4GiB",
        ),
        (
            "web-1 and  cp>5",
            "at 12: no column 'cp'; there are name, cpu, exits, device, vcpus",
        ),
        (
            "数>5",
            "at 1: no column '数'; there are name, cpu, exits, device, vcpus",
        ),
        (
            "数 and cp>5",
            "at 7: no column 'cp'; there are name, cpu, exits, device, vcpus",
        ),
        (
            "cpu>fast",
            "at 5: 'fast' is no figure; use 50, 12.5, 10k, 2M or 4GiB",
        ),
        (
            "cpu~5",
            "at 4: cpu is a figure: compare it with =, !=, <, <=, > or >=",
        ),
        ("name>5", "at 5: name is a text: compare it with =, != or ~"),
        (">5", "at 1: a column is missing, such as cpu>50"),
        (
            "web or db",
            "at 5: 'or' is not read: conditions are joined by and",
        ),
        (
            "cpu>5 and NOT web",
            "at 11: 'NOT' is not read: conditions are joined by and",
        ),
        (
            "cpu>=>5",
            "at 6: '>5' is no figure; use 50, 12.5, 10k, 2M or 4GiB",
        ),
    ] {
        assert_eq!(said(text), words, "{text}");
    }
}

#[test]
fn a_hostile_filter_is_refused_in_time() {
    assert!(said(&"a".repeat(100_000)).contains("at most 256 characters"));
    let _ = TableFilter::read(&"{a,b}*".repeat(42), &FIELDS);
}

#[test]
fn columns_are_suggested_where_one_can_stand() {
    let names = |text| suggestions(text, &FIELDS);
    assert_eq!(names("e"), ["exits"]);
    assert_eq!(
        names("cpu>5 and "),
        ["name", "cpu", "exits", "device", "vcpus"]
    );
    assert_eq!(names("cpu>5 and d"), ["device"]);
    assert_eq!(names("").len(), 5);
    assert_eq!(
        names("exits"),
        ["exits"],
        "a column until an operator or something else follows"
    );
    for text in ["cpu>", "cpu>5 e", "cpu>5", "device=e", "exits1"] {
        assert!(names(text).is_empty(), "{text}");
    }
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(
        text in "[ -~é数]{0,80}",
        words in "(cpu|name| and |<|>=|!=|~|=|5k|-| ){0,40}",
    ) {
        for text in [text, words] {
            if let Ok(filter) = TableFilter::read(&text, &FIELDS) {
                filter.shows("x", &|_| Value::Unknown);
            }
            suggestions(&text, &FIELDS);
        }
    }
}
