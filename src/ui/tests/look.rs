//! Colours, characters, and the row that is selected.

use super::*;
use crate::ui::screen_view::ScreenView;
use ratatui::style::{Color, Modifier};

const PALETTES: [Palette; 5] = [
    Palette::Plain,
    Palette::None,
    Palette::Sixteen,
    Palette::Xterm,
    Palette::True,
];

/// Keys that show every kind of picture.
const SHOWN: [&str; 11] = [
    "",
    "<Enter>",
    "<Enter><Down>",
    "2<Down>",
    "3<Down>",
    "4<Down>",
    "5",
    "s",
    "C",
    "?",
    "/cpu",
];

fn drawn(keys: &str, theme: &Theme) -> Buffer {
    let mut state = busy(120, 40);
    press(&mut state, keys);
    draw(&state, theme)
}

#[test]
fn a_terminal_that_only_writes_gets_no_style() {
    for keys in SHOWN {
        let buf = drawn(
            keys,
            &Theme::new(Palette::Plain, Tone::Dark, Charset::Ascii),
        );
        let plain = ratatui::buffer::Cell::default().style();
        assert!(
            buf.content()
                .iter()
                .all(|cell| cell.style() == plain && cell.symbol().is_ascii()),
            "{keys}"
        );
    }
}

/// A line of the header.
fn header_line(f: &Fixture, number: usize, width: u16) -> String {
    let state = screen(f, width, 40);
    let picture = text(&draw(
        &state,
        &Theme::new(Palette::Xterm, Tone::Dark, Charset::Unicode),
    ));
    picture.lines().nth(number).unwrap_or_default().to_owned()
}

/// The line of the host's memory.
fn memory_line(f: &Fixture, width: u16) -> String {
    header_line(f, 2, width)
}

#[test]
fn load_and_pressure_of_the_host_are_in_the_first_line() {
    let mut f = Fixture::with_devices();
    let all = header_line(&f, 0, 120);
    assert!(
        all.contains("31 vcpus · load 41 · pressure cpu 12 io 3 mem 0  "),
        "{all}"
    );
    let narrow = header_line(&f, 0, 80);
    assert!(
        narrow.contains("load 41  ") && !narrow.contains("pressure"),
        "what has no room is left out: {narrow}"
    );
    (f.host.load, f.host.pressure) = (None, None);
    assert!(header_line(&f, 0, 120).contains("31 vcpus  "), "not known");
}

#[test]
fn disks_and_links_of_the_host_are_at_the_right_end() {
    let mut f = Fixture::with_devices();
    let line = memory_line(&f, 120);
    // The slowest disk is dm-0; its bytes are those of nvme0n1 and count once.
    assert!(
        line.ends_with("disk  420M/s  500 us  net 79.0M/s"),
        "{line}"
    );
    (f.host.disks, f.host.links) = (None, None);
    let unknown = memory_line(&f, 120);
    assert!(
        unknown.ends_with("disk       -          net       -"),
        "{unknown}"
    );
    // A host whose devices are all virtual.
    f.host.links = Some(Vec::new());
    let none = memory_line(&f, 120);
    assert!(none.ends_with("net       -"), "{none}");
}

#[test]
fn swap_huge_pages_and_ksm_are_named_where_they_are_used() {
    let mut f = Fixture::with_devices();
    let calm = memory_line(&f, 180);
    for part in ["guests 31.0G", "other 12.0G", "cache 12.0G", "free 9.00G"] {
        assert!(calm.contains(part), "{part}: {calm}");
    }
    assert!(!calm.contains("swap") && !calm.contains("huge"), "{calm}");
    let memory = f.host.memory.as_mut().unwrap();
    memory.swap_used = 3 << 30;
    (memory.huge_total, memory.huge_free) = (Some(4 << 30), Some(1 << 30));
    memory.ksm_saved = Some(2 << 30);
    let used = memory_line(&f, 180);
    for part in ["swap 3.00G", "huge free 1.00G", "KSM saves 2.00G"] {
        assert!(used.contains(part), "{part}: {used}");
    }
    let narrow = memory_line(&f, 130);
    let has_both = narrow.contains("free 9.00G") && narrow.contains("swap 3.00G");
    assert!(has_both && !narrow.contains("cache"), "{narrow}");
    f.host.memory.as_mut().unwrap().free = None;
    assert!(
        memory_line(&f, 180).contains("available 20.0G"),
        "an older recording"
    );
}

#[test]
fn no_color_sets_no_colour_anywhere() {
    for keys in SHOWN {
        for cell in drawn(
            keys,
            &Theme::new(Palette::None, Tone::Dark, Charset::Unicode),
        )
        .content()
        {
            assert_eq!((cell.fg, cell.bg), (Color::Reset, Color::Reset), "{keys}");
        }
    }
}

/// In every palette one line of the screen has another background, all of it the same, and all of
/// its text is seen.
#[test]
fn one_row_is_selected_and_can_be_read() {
    for palette in PALETTES {
        for tone in [Tone::Dark, Tone::Light] {
            for charset in [Charset::Unicode, Charset::Console, Charset::Ascii] {
                let theme = Theme::new(palette, tone, charset);
                for keys in [
                    "",
                    "<Down>",
                    "<Enter><Down>",
                    "4<Down>",
                    "s<Down>",
                    "C<Down>",
                ] {
                    let buf = drawn(keys, &theme);
                    let ground = |cell: &ratatui::buffer::Cell| {
                        (cell.bg, cell.modifier.contains(Modifier::REVERSED))
                            != (Color::Reset, false)
                    };
                    let lines = buf.content().chunks(120).enumerate();
                    let selected: Vec<_> =
                        lines.filter(|(_, line)| line.iter().any(ground)).collect();
                    if palette == Palette::Plain {
                        assert!(selected.is_empty());
                        continue;
                    }
                    let what = format!("{keys} {palette:?} {tone:?} {charset:?}");
                    // A menu's entry, and the row of the list where the menu does not hide it.
                    let most = 1 + usize::from(keys.starts_with(['s', 'C']));
                    assert!((1..=most).contains(&selected.len()), "{what}");
                    let cells: Vec<_> = selected
                        .iter()
                        .flat_map(|(_, line)| line.iter())
                        .filter(|cell| ground(cell))
                        .collect();
                    assert!(cells.len() > 100, "{what}");
                    let one = (cells[0].bg, cells[0].modifier.contains(Modifier::REVERSED));
                    for cell in cells {
                        assert_eq!(
                            (cell.bg, cell.modifier.contains(Modifier::REVERSED)),
                            one,
                            "{what}"
                        );
                        assert!(cell.fg != cell.bg || one.1, "{what}");
                    }
                }
            }
        }
    }
}

/// The keys are on every picture, before the first sample too.
#[test]
fn the_last_line_says_what_works_here() {
    let footer = |state: &AppState| {
        text(&draw(state, &Theme::default()))
            .lines()
            .last()
            .unwrap()
            .to_string()
    };
    let has = |state: &AppState, words: &[&str]| {
        let footer = footer(state);
        words
            .iter()
            .for_each(|word| assert!(footer.contains(word), "{word}: {footer}"));
        footer
    };
    has(
        &AppState::new(ScreenSession::default(), (120, 40)),
        &["c cpu", "/ filter", "? help", "q quit"],
    );
    has(
        &busy(120, 40),
        &[
            "c cpu",
            "m memory",
            "d disks",
            "t network",
            "n next",
            "/ filter",
            "2 problems",
            "3 host",
            "4 latency",
            "5 sources",
            "? help",
            "q quit",
        ],
    );
    let replay = has(
        &replayed(120, 40),
        &["m memory", "space pause", "Left step back", "? help"],
    );
    assert!(!replay.contains("record"), "{replay}");
    for (keys, words) in [
        (
            "<Enter>",
            &[
                "Esc back",
                "Tab section",
                "n next problem",
                "y copy fix",
                "? help",
                "q quit",
            ][..],
        ),
        (
            "2",
            &["1 guests", "2 problems", "3 host", "? help", "q quit"],
        ),
        ("s", &["Enter sort", "Esc close"]),
        ("S", &["Enter write", "Esc close"]),
        (
            "C",
            &["space show/hide", "Shift-Up left", "r reset", "Esc close"],
        ),
        ("?", &["Down scroll", "Esc close"]),
        (
            "/",
            &["filter:", "mem>8GiB", "state=paused", "Esc undoes it"],
        ),
        (
            "/m",
            &["columns: mem mem_percent mem_stall mem_limit migrations"],
        ),
    ] {
        let mut state = busy(120, 40);
        press(&mut state, keys);
        has(&state, words);
    }
    let mut narrow = busy(40, 12);
    has(&narrow, &["? help", "q quit"]);
    narrow = replayed(80, 24);
    press(&mut narrow, "g");
    has(
        &narrow,
        &["go to time:", "Enter goes there", "Esc stays here"],
    );
}

#[test]
fn the_first_page_of_help_has_the_keys_that_matter() {
    for (state, keys) in [
        (busy(80, 24), ["space p", "r  ", "e  "]),
        (replayed(80, 24), ["space p", "Left", "g  "]),
    ] {
        let mut state = state;
        press(&mut state, "?");
        let page = text(&draw(&state, &Theme::default()));
        for words in [
            "opens the guest's page",
            "goes one step back",
            "next problem",
            "quits",
        ]
        .into_iter()
        .chain(keys)
        {
            assert!(page.contains(words), "{words}: {page}");
        }
    }
}

#[test]
fn the_order_by_a_column_without_room_is_said() {
    let mut state = busy(120, 40);
    let hidden = crate::ui::heads(crate::ui::TableId::Guests)
        .iter()
        .position(|head| head.is_hidden)
        .unwrap();
    state
        .tables
        .entry(crate::ui::TableId::Guests)
        .or_default()
        .sort_by(crate::ui::ColumnId(hidden));
    state.settle();
    let header = crate::ui::heads(crate::ui::TableId::Guests)[hidden].header;
    let first = text(&draw(&state, &Theme::default()));
    assert!(first.contains(&format!("GUEST ▾{header}")), "{first}");
}

#[test]
fn a_column_that_does_not_fit_says_so_in_its_menu() {
    let mut state = busy(40, 20);
    press(&mut state, "C");
    let menu = |state: &AppState| text(&draw(state, &Theme::default()));
    press(&mut state, "<End> ");
    assert!(menu(&state).contains("no room"), "{}", menu(&state));
    let mut wide = resized(&state, 260, 60);
    wide.tables.clear();
    assert!(!menu(&wide).contains("no room"), "{}", menu(&wide));
}

/// Whatever is pressed, whatever the size: nothing panics, and Esc leads back to the list.
#[test]
fn every_key_at_every_size() {
    let sizes = [
        (1, 1),
        (2, 9),
        (40, 10),
        (41, 11),
        (60, 12),
        (80, 24),
        (100, 30),
        (120, 40),
        (220, 60),
    ];
    let presses = crate::ui::KEYMAP
        .iter()
        .flat_map(crate::ui::Binding::presses);
    let keys: Vec<KeyEvent> = presses
        .map(|(code, mods)| KeyEvent::new(code, mods))
        .collect();
    for start in [
        AppState::new(ScreenSession::default(), (1, 1)),
        busy(80, 24),
        replayed(80, 24),
    ] {
        for (width, height) in sizes {
            let mut state = resized(&start, width, height);
            for round in 0..3 {
                for n in 0..keys.len() {
                    // Another order in each round.
                    crate::ui::update::key(&mut state, keys[(n * [1, 7, 11][round]) % keys.len()]);
                    state.settle();
                    draw(&state, &Theme::default());
                }
            }
            press(&mut state, "<Esc><Esc><Esc><Esc>");
            assert!(
                state.popup.is_none() && state.view == ScreenView::Guests,
                "{width}x{height}"
            );
        }
    }
}
