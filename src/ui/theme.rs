//! Colours and characters. A colour always has the same meaning: a severity, or guest, usr, sys and
//! wait. Whatever a colour says, a shape says as well, so that nothing is lost without colour.

use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::{bar, border};

/// Meaning of a piece of the screen; the theme turns it into a style.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum StyleId {
    /// Ordinary text.
    #[default]
    Text,
    /// Less important: units, idle reasons, ended guests.
    Dim,
    /// Table headers and panel titles.
    Head,
    /// Most important text.
    Strong,
    /// Time in the guest.
    Guest,
    /// User time of the VMM.
    Usr,
    /// Kernel time.
    Sys,
    /// Runnable but not running.
    Wait,
    /// Interrupts.
    Irq,
    /// A finding of severity critical.
    Critical,
    /// A finding of severity warning, or a source that is missing.
    Warning,
    /// A finding of severity info.
    Info,
    /// A source that works.
    Good,
    /// A key in the help and the footer.
    Key,
}

/// How many colours the terminal shows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Palette {
    /// None, and neither bold nor reverse: a terminal that only writes.
    Plain,
    /// None: bold, dim and reverse only.
    None,
    /// The terminal's own sixteen.
    Sixteen,
    /// The 256 of xterm.
    Xterm,
    /// Any colour, by red, green and blue.
    True,
}

/// The terminal's background.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Tone {
    /// Dark.
    Dark,
    /// Light.
    Light,
}

/// Which characters the terminal shows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Charset {
    /// Those of Unicode.
    Unicode,
    /// Those of code page 437, which every font of the Linux console has
    /// (`drivers/tty/vt/cp437.uni`).
    Console,
    /// ASCII.
    Ascii,
}

/// The characters of the screen, which `--ascii` replaces.
#[derive(Debug, PartialEq)]
pub struct Glyphs {
    /// Bar cells: guest, usr, sys, wait.
    pub bar: [char; 4],
    /// The end of a bar: one to seven eighths of a cell; `None` if the font lacks these characters.
    pub eighths: Option<[char; 7]>,
    /// Frame of a bar.
    pub edges: [char; 2],
    /// Eight heights, lowest first.
    pub levels: [&'static str; HEIGHTS],
    /// Severity: critical, warning, info.
    pub severity: [char; 3],
    /// Mark of the selected row.
    pub cursor: char,
    /// A horizontal rule.
    pub rule: char,
    /// End of text that was cut.
    pub cut: char,
    /// Running, paused, recording.
    pub run: [char; 3],
    /// Separator in titles.
    pub dot: char,
    /// Sorted downwards, upwards.
    pub sort: [char; 2],
    /// Frame of a popup.
    pub frame: border::Set<'static>,
}

const UNICODE: Glyphs = Glyphs {
    bar: ['█', '▓', '▒', '▚'],
    eighths: Some(['▏', '▎', '▍', '▌', '▋', '▊', '▉']),
    edges: ['▕', '▏'],
    levels: ["▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"],
    severity: ['▲', '●', '·'],
    cursor: '▌',
    rule: '─',
    cut: '…',
    run: ['▶', '‖', '●'],
    dot: '·',
    sort: ['▾', '▴'],
    frame: border::PLAIN,
};

const ASCII_FRAME: border::Set<'static> = border::Set {
    top_left: "+",
    top_right: "+",
    bottom_left: "+",
    bottom_right: "+",
    vertical_left: "|",
    vertical_right: "|",
    horizontal_top: "-",
    horizontal_bottom: "-",
};

const ASCII: Glyphs = Glyphs {
    bar: ['#', 'u', 's', 'w'],
    eighths: None,
    edges: ['[', ']'],
    levels: ["_", ".", "-", "~", "=", "+", "*", "#"],
    severity: ['!', '*', '.'],
    cursor: '>',
    rule: '-',
    cut: '~',
    run: ['>', '=', '*'],
    dot: '|',
    sort: ['>', '<'],
    frame: ASCII_FRAME,
};

const CONSOLE: Glyphs = Glyphs {
    bar: ['█', '▓', '▒', '░'],
    eighths: None,
    edges: ['│', '│'],
    levels: ["_", "_", "▄", "▄", "▄", "█", "█", "█"],
    severity: ['▲', '•', '·'],
    cut: '~',
    run: ['►', '=', '•'],
    sort: ['▼', '▲'],
    ..UNICODE
};

/// A hue among the sixteen colours, among xterm's 256, and by red, green and blue.
type Hue = (Color, u8, u32);

/// Less important, guest, usr, sys, wait, irq, critical, warning, info on a dark background.
const ON_DARK: [Hue; 9] = [
    (Color::DarkGray, 244, 0x008b_949e),
    (Color::Green, 71, 0x005f_b86a),
    (Color::Cyan, 74, 0x005a_b0d6),
    (Color::Yellow, 173, 0x00db_8f5c),
    (Color::Magenta, 133, 0x00bc_6fc4),
    (Color::Blue, 109, 0x0086_a9b8),
    (Color::LightRed, 203, 0x00ff_6b64),
    (Color::LightYellow, 178, 0x00e3_b341),
    (Color::LightBlue, 110, 0x0086_b4e6),
];

/// The same on a light background: each at least 4.5 times as dark as white (WCAG 2.2, 1.4.3).
const ON_LIGHT: [Hue; 9] = [
    (Color::DarkGray, 242, 0x0065_6d76),
    (Color::Green, 22, 0x001a_7f37),
    (Color::Blue, 25, 0x000a_6ca8),
    (Color::Yellow, 94, 0x009a_5210),
    (Color::Magenta, 90, 0x0082_2a90),
    (Color::Cyan, 24, 0x002f_5d72),
    (Color::Red, 160, 0x00c9_1f1f),
    (Color::Yellow, 94, 0x008a_5a00),
    (Color::Blue, 25, 0x001f_5fbf),
];

/// How everything looks.
#[derive(Debug, PartialEq)]
pub struct Theme {
    /// The colours; a terminal of the plain palette shows no modifiers either.
    pub palette: Palette,
    tone: Tone,
    /// Which characters may be written.
    pub charset: Charset,
    /// The characters.
    pub glyphs: Glyphs,
}

impl Default for Theme {
    fn default() -> Self {
        Self::new(Palette::Xterm, Tone::Dark, Charset::Unicode)
    }
}

impl Theme {
    /// A theme with these colours, for this background, with these characters.
    pub fn new(palette: Palette, tone: Tone, charset: Charset) -> Self {
        let glyphs = match charset {
            Charset::Unicode => UNICODE,
            Charset::Console => CONSOLE,
            Charset::Ascii => ASCII,
        };
        Self {
            palette,
            tone,
            charset,
            glyphs,
        }
    }

    /// The colour of a meaning; `None` for the terminal's text colour.
    fn colour(&self, role: StyleId) -> Option<Color> {
        let at = match role {
            StyleId::Text | StyleId::Strong | StyleId::Head | StyleId::Key => return None,
            StyleId::Dim => 0,
            StyleId::Guest | StyleId::Good => 1,
            StyleId::Usr => 2,
            StyleId::Sys => 3,
            StyleId::Wait => 4,
            StyleId::Irq => 5,
            StyleId::Critical => 6,
            StyleId::Warning => 7,
            StyleId::Info => 8,
        };
        let hues = match self.tone {
            Tone::Dark => &ON_DARK,
            Tone::Light => &ON_LIGHT,
        };
        let (sixteen, xterm, rgb) = hues[at];
        match self.palette {
            Palette::Plain | Palette::None => None,
            Palette::Sixteen => Some(sixteen),
            Palette::Xterm => Some(Color::Indexed(xterm)),
            Palette::True => Some(Color::from_u32(rgb)),
        }
    }

    /// Style of a meaning.
    pub fn style(&self, role: StyleId) -> Style {
        let style = Style {
            fg: self.colour(role),
            ..Style::new()
        };
        match role {
            StyleId::Strong | StyleId::Head | StyleId::Critical | StyleId::Key => {
                style.add_modifier(Modifier::BOLD)
            }
            StyleId::Warning if self.palette == Palette::None => style.add_modifier(Modifier::BOLD),
            StyleId::Dim if self.palette == Palette::None => style.add_modifier(Modifier::DIM),
            _ => style,
        }
    }

    /// The height for a share from 0 to 1.
    pub fn level(&self, share: f64) -> &'static str {
        self.glyphs.levels[height(share) - 1]
    }

    /// All heights, for figures from 1 to `HEIGHTS`.
    pub fn bar_set(&self) -> bar::Set<'static> {
        let levels = self.glyphs.levels;
        bar::Set {
            empty: levels[0],
            one_eighth: levels[0],
            one_quarter: levels[1],
            three_eighths: levels[2],
            half: levels[3],
            five_eighths: levels[4],
            three_quarters: levels[5],
            seven_eighths: levels[6],
            full: levels[7],
        }
    }

    /// The selected row. Its background and text suit each other, whatever the terminal's own
    /// background is.
    pub fn selected(&self) -> Style {
        match self.palette {
            Palette::Plain | Palette::None | Palette::Sixteen => {
                Style::new().add_modifier(Modifier::REVERSED)
            }
            Palette::Xterm | Palette::True => {
                let (text, ground) = if self.tone == Tone::Dark {
                    (255, 238)
                } else {
                    (234, 253)
                };
                Style::new()
                    .fg(Color::Indexed(text))
                    .bg(Color::Indexed(ground))
            }
        }
    }
}

/// The number of heights.
pub const HEIGHTS: usize = 8;

/// The height for a share from 0 to 1, from 1 to `HEIGHTS`.
pub fn height(share: f64) -> usize {
    if share.is_finite() {
        let height = share.clamp(0.0, 1.0) * HEIGHTS as f64;
        (height.ceil() as usize).max(1)
    } else {
        1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_colour_no_style_sets_one() {
        let theme = Theme::new(Palette::None, Tone::Dark, Charset::Ascii);
        for role in [
            StyleId::Dim,
            StyleId::Guest,
            StyleId::Critical,
            StyleId::Warning,
            StyleId::Info,
            StyleId::Key,
        ] {
            assert_eq!(theme.style(role).fg, None);
        }
    }

    #[test]
    fn the_four_hues_differ_in_every_palette() {
        let tones = [Tone::Dark, Tone::Light];
        let palettes = [Palette::Sixteen, Palette::Xterm, Palette::True];
        for (palette, tone) in palettes.into_iter().flat_map(|p| tones.map(|t| (p, t))) {
            let theme = Theme::new(palette, tone, Charset::Unicode);
            let hues = [StyleId::Guest, StyleId::Usr, StyleId::Sys, StyleId::Wait]
                .map(|r| theme.style(r).fg);
            for (i, a) in hues.iter().enumerate() {
                assert!(hues[i + 1..].iter().all(|b| a != b));
            }
        }
    }

    /// Contrast as WCAG 2.2 defines it; xterm's 256 colours from 16 on are fixed.
    #[test]
    fn every_hue_can_be_read_on_its_background() {
        let light = |(r, g, b): (u8, u8, u8)| {
            let part = |c: u8| {
                let c = f64::from(c) / 255.0;
                if c <= 0.04045 {
                    c / 12.92
                } else {
                    ((c + 0.055) / 1.055).powf(2.4)
                }
            };
            0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b)
        };
        let xterm = |n: u8| match n {
            232.. => (8 + 10 * (n - 232), 8 + 10 * (n - 232), 8 + 10 * (n - 232)),
            _ => {
                let level = |i: u8| if i == 0 { 0 } else { 55 + 40 * i };
                (
                    level((n - 16) / 36),
                    level((n - 16) / 6 % 6),
                    level((n - 16) % 6),
                )
            }
        };
        for (hues, background) in [
            (ON_DARK, (0x0d, 0x11, 0x17)),
            (ON_LIGHT, (0xff, 0xff, 0xff)),
        ] {
            for (_, index, rgb) in hues {
                let [_, r, g, b] = rgb.to_be_bytes();
                for colour in [xterm(index), (r, g, b)] {
                    let (a, b) = (light(colour), light(background));
                    let contrast = (a.max(b) + 0.05) / (a.min(b) + 0.05);
                    assert!(
                        contrast >= 4.5,
                        "{index} {colour:?} on {background:?}: {contrast:.1}"
                    );
                }
            }
        }
    }

    #[test]
    fn ascii_is_ascii() {
        let g = Theme::new(Palette::None, Tone::Dark, Charset::Ascii).glyphs;
        let all = g
            .bar
            .iter()
            .chain(&g.edges)
            .chain(&g.severity)
            .chain(&g.run);
        assert!(g.levels.iter().all(|level| level.is_ascii()));
        assert!(g.frame.top_left.is_ascii() && g.frame.vertical_right.is_ascii());
        assert!(
            all.chain(&g.sort)
                .chain([&g.cursor, &g.rule, &g.cut, &g.dot])
                .all(char::is_ascii)
        );
    }

    #[test]
    fn heights() {
        let theme = Theme::default();
        assert_eq!(
            [0.0, 0.5, 1.0, f64::NAN].map(|share| theme.level(share)),
            ["▁", "▄", "█", "▁"]
        );
    }
}
