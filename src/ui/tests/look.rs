//! Colours, as text with a letter for each style.

use super::*;
use crate::ui::theme::{Charset, Tone};

#[test]
fn colours_of_the_first_screen() {
    snapshot("styled_first_120x40", &styled(&draw(&busy(120, 40), &Theme::new(Palette::Xterm, false))));
}

#[test]
fn colours_of_the_pcpu_map() {
    let mut state = busy(80, 24);
    press(&mut state, "5");
    snapshot("styled_pcpus_80x24", &styled(&draw(&state, &Theme::new(Palette::Xterm, false))));
}

#[test]
fn colours_of_a_finding() {
    let mut state = busy(80, 24);
    press(&mut state, "f<Enter>");
    snapshot("styled_finding_80x24", &styled(&draw(&state, &Theme::new(Palette::Sixteen, false))));
}

/// Keys that show every kind of picture.
const SHOWN: [&str; 14] = ["", "<Enter>", "2", "3", "4", "5", "6", "7", "8", "0", "f", "f<Enter>", "s", "?"];

#[test]
fn a_terminal_that_only_writes_gets_no_style() {
    for keys in SHOWN {
        let mut state = busy(120, 40);
        press(&mut state, keys);
        let buf = draw(&state, &Theme::of(Palette::Plain, Tone::Dark, Charset::Ascii));
        let plain = ratatui::buffer::Cell::default().style();
        assert!(buf.content().iter().all(|cell| cell.style() == plain), "{keys}");
    }
}

#[test]
fn no_color_sets_no_colour_anywhere() {
    for keys in SHOWN {
        let mut state = busy(120, 40);
        press(&mut state, keys);
        let buf = draw(&state, &Theme::new(Palette::None, false));
        for cell in buf.content() {
            assert_eq!((cell.fg, cell.bg), (ratatui::style::Color::Reset, ratatui::style::Color::Reset), "{keys}");
        }
    }
    let mut state = busy(80, 24);
    press(&mut state, "<Down><Enter>");
    snapshot("styled_no_color_80x24", &styled(&draw(&state, &Theme::new(Palette::None, false))));
}
