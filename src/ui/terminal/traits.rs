//! What the terminal can show, from the environment. Pure: variables are given by the caller.

use crate::ui::{Charset, Palette, Theme, Tone};
use clap::ValueEnum;

/// The look that the user asks for.
#[derive(Debug, Clone, Copy, Default, PartialEq, ValueEnum)]
pub enum ThemeChoice {
    /// By the terminal.
    #[default]
    Auto,
    /// For a dark background.
    Dark,
    /// For a light background.
    Light,
    /// With the terminal's own sixteen colours.
    #[value(name = "16")]
    Sixteen,
    /// Without colour.
    Mono,
}

/// The theme for a terminal. `ascii` asks for ASCII, whatever the terminal can do.
pub fn theme(choice: ThemeChoice, ascii: bool, env: &dyn Fn(&str) -> Option<String>) -> Theme {
    let set = |name: &str| env(name).filter(|v| !v.is_empty());
    let richest = palette(&set);
    let is_mono = choice == ThemeChoice::Mono || set("NO_COLOR").is_some();
    let palette = if richest == Palette::Plain {
        Palette::Plain
    } else if is_mono || richest == Palette::None {
        Palette::None
    } else if choice == ThemeChoice::Sixteen {
        Palette::Sixteen
    } else {
        richest
    };
    let tone = match choice {
        ThemeChoice::Dark => Tone::Dark,
        ThemeChoice::Light => Tone::Light,
        _ => tone(set("COLORFGBG").as_deref()),
    };
    let charset = if ascii { Charset::Ascii } else { charset(&set) };
    Theme::new(palette, tone, charset)
}

/// Colours by `TERM`, and by `COLORTERM`, in which terminals announce 24-bit colour
/// (<https://github.com/termstandard/colors>).
fn palette(set: &dyn Fn(&str) -> Option<String>) -> Palette {
    let term = set("TERM").unwrap_or_default();
    let colorterm = set("COLORTERM").unwrap_or_default();
    match term.as_str() {
        "" | "dumb" | "unknown" => Palette::Plain,
        t if t.starts_with("vt") || t.ends_with("-m") || t.ends_with("-mono") => Palette::None,
        // The console maps all colours to its sixteen (drivers/tty/vt/vt.c, t416_color).
        "linux" => Palette::Sixteen,
        t if ["truecolor", "24bit"].contains(&colorterm.as_str()) || t.ends_with("-direct") => {
            Palette::True
        }
        t if t.contains("256") || t.contains("kitty") || !colorterm.is_empty() => Palette::Xterm,
        _ => Palette::Sixteen,
    }
}

/// The background by `COLORFGBG`, which rxvt and Konsole set: `15;0` is white on black. Without it,
/// dark.
fn tone(colorfgbg: Option<&str>) -> Tone {
    let background = colorfgbg.and_then(|v| v.rsplit(';').next()?.parse::<u8>().ok());
    if background.is_some_and(|b| b == 7 || b == 15) {
        Tone::Light
    } else {
        Tone::Dark
    }
}

/// Characters by the locale, which the first of `LC_ALL`, `LC_CTYPE` and `LANG` decides (POSIX,
/// 8.2); without any it is the C locale. Terminals that cannot place text, VT100s and the Linux
/// console know fewer characters.
fn charset(set: &dyn Fn(&str) -> Option<String>) -> Charset {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
        .into_iter()
        .find_map(set)
        .unwrap_or_default()
        .to_lowercase();
    let term = set("TERM").unwrap_or_default();
    let is_plain = ["", "dumb", "unknown"].contains(&&*term) || term.starts_with("vt");
    let is_utf8 = locale.contains("utf-8") || locale.contains("utf8");
    if is_plain || !is_utf8 {
        Charset::Ascii
    } else if term == "linux" {
        Charset::Console
    } else {
        Charset::Unicode
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `TERM=xterm LANG=C` as a theme.
    fn by(choice: ThemeChoice, vars: &str) -> Theme {
        let vars: Vec<(&str, &str)> = vars.split(' ').filter_map(|v| v.split_once('=')).collect();
        theme(choice, false, &|name| {
            vars.iter()
                .find(|(n, _)| *n == name)
                .map(|(_, v)| (*v).to_string())
        })
    }

    #[test]
    fn colours_characters_and_background_follow_the_environment() {
        use {Charset as C, Palette as P, Tone as T};
        for (vars, palette, tone, charset) in [
            (
                "TERM=xterm-256color LANG=en_US.UTF-8",
                P::Xterm,
                T::Dark,
                C::Unicode,
            ),
            (
                "TERM=xterm-256color LANG=de_DE.utf8 COLORTERM=truecolor",
                P::True,
                T::Dark,
                C::Unicode,
            ),
            (
                "TERM=xterm LANG=C.UTF-8 COLORTERM=24bit COLORFGBG=0;15",
                P::True,
                T::Light,
                C::Unicode,
            ),
            (
                "TERM=rxvt-256color LANG=C.UTF-8 COLORFGBG=0;default;15",
                P::Xterm,
                T::Light,
                C::Unicode,
            ),
            (
                "TERM=xterm-direct LANG=C.UTF-8 COLORFGBG=15;0",
                P::True,
                T::Dark,
                C::Unicode,
            ),
            (
                "TERM=xterm LANG=en_US.UTF-8",
                P::Sixteen,
                T::Dark,
                C::Unicode,
            ),
            ("TERM=xterm-256color", P::Xterm, T::Dark, C::Ascii),
            (
                "TERM=xterm-256color LANG=en_US.UTF-8 LC_ALL=C",
                P::Xterm,
                T::Dark,
                C::Ascii,
            ),
            (
                "TERM=xterm-256color LANG=C LC_CTYPE=en_US.UTF-8",
                P::Xterm,
                T::Dark,
                C::Unicode,
            ),
            (
                "TERM=xterm-256color LANG=en_US.UTF-8 LC_CTYPE=POSIX LC_ALL=",
                P::Xterm,
                T::Dark,
                C::Ascii,
            ),
            (
                "TERM=xterm-256color LANG=de_DE.ISO-8859-1",
                P::Xterm,
                T::Dark,
                C::Ascii,
            ),
            (
                "TERM=linux LANG=en_US.UTF-8",
                P::Sixteen,
                T::Dark,
                C::Console,
            ),
            (
                "TERM=linux LANG=en_US.UTF-8 COLORTERM=truecolor",
                P::Sixteen,
                T::Dark,
                C::Console,
            ),
            ("TERM=linux", P::Sixteen, T::Dark, C::Ascii),
            ("TERM=vt100 LANG=en_US.UTF-8", P::None, T::Dark, C::Ascii),
            ("TERM=vt220 LANG=en_US.UTF-8", P::None, T::Dark, C::Ascii),
            (
                "TERM=xterm-mono LANG=en_US.UTF-8",
                P::None,
                T::Dark,
                C::Unicode,
            ),
            (
                "TERM=dumb LANG=en_US.UTF-8 COLORTERM=truecolor",
                P::Plain,
                T::Dark,
                C::Ascii,
            ),
            ("LANG=en_US.UTF-8", P::Plain, T::Dark, C::Ascii),
            (
                "TERM=xterm-256color LANG=en_US.UTF-8 NO_COLOR=1",
                P::None,
                T::Dark,
                C::Unicode,
            ),
            (
                "TERM=xterm-256color LANG=en_US.UTF-8 NO_COLOR=",
                P::Xterm,
                T::Dark,
                C::Unicode,
            ),
            ("TERM=dumb NO_COLOR=1", P::Plain, T::Dark, C::Ascii),
        ] {
            assert_eq!(
                by(ThemeChoice::Auto, vars),
                Theme::new(palette, tone, charset),
                "{vars}"
            );
        }
    }

    #[test]
    fn a_choice_goes_as_far_as_the_terminal_can() {
        use {Charset as C, Palette as P, Tone as T};
        let xterm = "TERM=xterm-256color LANG=C.UTF-8 COLORFGBG=0;15";
        for (choice, vars, theme) in [
            (
                ThemeChoice::Dark,
                xterm,
                Theme::new(P::Xterm, T::Dark, C::Unicode),
            ),
            (
                ThemeChoice::Light,
                "TERM=xterm-256color LANG=C.UTF-8",
                Theme::new(P::Xterm, T::Light, C::Unicode),
            ),
            (
                ThemeChoice::Sixteen,
                xterm,
                Theme::new(P::Sixteen, T::Light, C::Unicode),
            ),
            (
                ThemeChoice::Mono,
                xterm,
                Theme::new(P::None, T::Light, C::Unicode),
            ),
            (
                ThemeChoice::Light,
                "TERM=vt100",
                Theme::new(P::None, T::Light, C::Ascii),
            ),
            (
                ThemeChoice::Mono,
                "TERM=dumb",
                Theme::new(P::Plain, T::Dark, C::Ascii),
            ),
        ] {
            assert_eq!(by(choice, vars), theme, "{choice:?} {vars}");
        }
        assert_eq!(
            super::theme(ThemeChoice::Auto, true, &|_| Some(
                "xterm-256color.utf-8".into()
            ))
            .glyphs,
            Theme::new(P::None, Tone::Dark, Charset::Ascii).glyphs
        );
    }
}
