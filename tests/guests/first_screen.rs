//! The first screen over real guests: the culprit is on top, and what does not change does not
//! move.

use crate::common;
use crate::common::guest::{Guest, Work};
use crate::common::screen::Screen;

/// The rows of the list, top to bottom.
fn list(text: &str) -> impl Iterator<Item = &str> {
    let list = text
        .lines()
        .skip_while(|line| !line.contains("GUEST "))
        .skip(1);
    list.take_while(|line| !line.trim_start().starts_with('─'))
}

/// The names in the rows of the list: the first word that is not a mark.
fn rows(text: &str) -> Vec<String> {
    let name = |line: &str| {
        line.split_whitespace()
            .find(|word| word.contains(char::is_alphanumeric))
            .map(str::to_owned)
    };
    list(text).filter_map(name).collect()
}

#[test]
fn a_storm_is_among_the_first_three_of_200_guests() {
    const TEST: &str = "a_storm_is_among_the_first_three_of_200_guests";
    let _alone = common::alone();
    if let Some(why) = common::cannot_trace() {
        return common::skipped(TEST, &why);
    }
    // Half of the others do a little, one of them reads a harmless port often.
    let other = |n: usize| match n {
        0 => Work::PacedReads(0x80, 3_000),
        n if n % 2 == 0 => Work::PacedReads(0x60, 20),
        _ => Work::Interrupted(true),
    };
    let mut guests: Vec<Guest> = (0..199).map(|n| Guest::start(&[other(n)], true)).collect();
    let mut storm = Guest::start(&[Work::PacedReads(0x608, 6_000)], true);
    guests.iter_mut().for_each(Guest::go);
    storm.go();
    let name = storm.pid().to_string();
    let screen = Screen::start(&["--no-monitor"], (120, 40));
    screen.wait("the list", |text| {
        text.contains(" 200 guests") && text.contains("EXITS/s")
    });
    let place = |text: &str| rows(text).iter().position(|row| row.contains(&name));
    let mut text = screen.next();
    // A loaded host counts a new guest some updates later.
    for _ in 0..8 {
        if place(&text).is_some_and(|at| at < 3) {
            break;
        }
        text = screen.next();
    }
    assert!(
        place(&text).is_some_and(|at| at < 3),
        "{name} is not among the first three:\n{text}"
    );
    // It stays there.
    for _ in 0..5 {
        text = screen.next();
        assert!(
            place(&text).is_some_and(|at| at < 3),
            "{name} is not among the first three any more:\n{text}"
        );
    }
    common::ran(TEST);
}

/// The lines of the screen without what may change: figures and bars.
fn labels(text: &str) -> Vec<String> {
    let figure = |c: char| c.is_ascii_digit() || ".,-+<%─▁▂▃▄▅▆▇█▓▒▚▏▎▍▌▋▊▉▕".contains(c);
    let word = |word: &&str| !word.trim_end_matches(['k', 'M']).chars().all(figure);
    text.lines()
        .map(|line| {
            line.split_whitespace()
                .filter(word)
                .collect::<Vec<_>>()
                .join(" ")
        })
        .collect()
}

#[test]
fn nothing_moves_while_four_guests_are_steady() {
    const TEST: &str = "nothing_moves_while_four_guests_are_steady";
    let _alone = common::alone();
    if let Some(why) = common::cannot_trace() {
        return common::skipped(TEST, &why);
    }
    let works = [
        Work::PacedReads(0x608, 2_000),
        Work::PacedReads(0x80, 300),
        Work::Idle,
        Work::Idle,
    ];
    let mut guests = works.map(|work| Guest::start(&[work], true));
    guests.iter_mut().for_each(Guest::go);
    let screen = Screen::start(&["--no-monitor", "-d", "0.5"], (120, 40));
    screen.wait("the list", |text| {
        text.contains(" 4 guests") && text.contains("EXITS/s")
    });
    // A finding needs some intervals; what is new may be said when it is new.
    let mut before = String::new();
    for _ in 0..15 {
        before = screen.next();
    }
    // What the rows say, in any order: others that work on this machine can make a guest late,
    // which moves its row.
    let said = |text: &str| {
        let mut words = labels(&list(text).collect::<Vec<_>>().join("\n"));
        words.sort();
        words
    };
    let heads = |text: &str| {
        let titles: Vec<&str> = text.lines().filter(|line| line.contains('─')).collect();
        labels(&titles.join("\n"))
    };
    let (mut moves, sections) = (0, heads(&screen.text()));
    for _ in 0..30 {
        let text = screen.next();
        assert_eq!(
            heads(&text),
            sections,
            "a section moved or changed its label:\n{text}"
        );
        moves += usize::from(rows(&text) != rows(&before) && said(&text) == said(&before));
        before = text;
    }
    assert!(
        moves <= 2,
        "rows changed places {moves} times and said the same"
    );
    common::ran(TEST);
}
