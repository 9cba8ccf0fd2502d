//! Colours and characters. A colour always has the same meaning: a severity, or guest, usr, sys and wait. Whatever a
//! colour says, a shape says as well, so that nothing is lost without colour.

use ratatui::style::{Color, Modifier, Style};

/// Meaning of a piece of the screen; the theme turns it into a style.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Look {
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
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Palette {
    /// None: bold, dim and reverse only.
    None,
    /// The terminal's own sixteen.
    Sixteen,
    /// The 256 of xterm.
    #[default]
    Xterm,
}

impl Palette {
    /// From the environment: `NO_COLOR`, if it is not empty (no-color.org), `TERM` and `COLORTERM`.
    pub fn detect(no_color: Option<&str>, term: Option<&str>, colorterm: Option<&str>) -> Self {
        if no_color.is_some_and(|v| !v.is_empty()) {
            return Self::None;
        }
        match term {
            None | Some("" | "dumb" | "unknown" | "vt100" | "vt220") => Self::None,
            Some(t) if t.contains("256") || t.contains("direct") || t.contains("kitty") => Self::Xterm,
            Some(_) if colorterm.is_some_and(|c| !c.is_empty()) => Self::Xterm,
            Some(_) => Self::Sixteen,
        }
    }
}

/// The characters of the screen, which `--ascii` replaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glyphs {
    /// Bar cells: guest, usr, sys, wait.
    pub bar: [char; 4],
    /// Frame of a bar.
    pub edges: [char; 2],
    /// Eight heights, lowest first.
    pub levels: [char; 8],
    /// Severity: critical, warning, info.
    pub severity: [char; 3],
    /// A guest whose threads are hidden, and one whose threads are shown.
    pub fold: [char; 2],
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
    /// Frame of a popup: corner top left, top right, bottom left, bottom right, horizontal, vertical.
    pub frame: [char; 6],
    /// Arrow from a cause to its fix.
    pub arrow: &'static str,
}

const UNICODE: Glyphs = Glyphs {
    bar: ['█', '▓', '▒', '░'],
    edges: ['▕', '▏'],
    levels: ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'],
    severity: ['▲', '●', '·'],
    fold: ['▸', '▾'],
    cursor: '▌',
    rule: '─',
    cut: '…',
    run: ['▶', '‖', '●'],
    dot: '·',
    sort: ['▾', '▴'],
    frame: ['┌', '┐', '└', '┘', '─', '│'],
    arrow: "→",
};

const ASCII: Glyphs = Glyphs {
    bar: ['#', 'u', 's', 'w'],
    edges: ['[', ']'],
    levels: ['_', '.', '-', '~', '=', '+', '*', '#'],
    severity: ['!', '*', '.'],
    fold: ['+', '-'],
    cursor: '>',
    rule: '-',
    cut: '~',
    run: ['>', '=', '*'],
    dot: '|',
    sort: ['>', '<'],
    frame: ['+', '+', '+', '+', '-', '|'],
    arrow: "->",
};

/// How everything looks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Theme {
    palette: Palette,
    /// The characters.
    pub glyphs: Glyphs,
}

impl Default for Theme {
    fn default() -> Self {
        Self::new(Palette::Xterm, false)
    }
}

impl Theme {
    /// A theme with these colours, in Unicode or ASCII.
    pub fn new(palette: Palette, ascii: bool) -> Self {
        Self { palette, glyphs: if ascii { ASCII } else { UNICODE } }
    }

    /// Style of a meaning.
    pub fn style(&self, role: Look) -> Style {
        let (xterm, sixteen) = match role {
            Look::Text | Look::Strong | Look::Head | Look::Key => (None, None),
            Look::Dim => (Some(244), Some(Color::DarkGray)),
            Look::Guest | Look::Good => (Some(71), Some(Color::Green)),
            Look::Usr => (Some(74), Some(Color::Cyan)),
            Look::Sys => (Some(173), Some(Color::Yellow)),
            Look::Wait => (Some(133), Some(Color::Magenta)),
            Look::Irq => (Some(109), Some(Color::Blue)),
            Look::Critical => (Some(203), Some(Color::LightRed)),
            Look::Warning => (Some(178), Some(Color::LightYellow)),
            Look::Info => (Some(110), Some(Color::LightBlue)),
        };
        let mut style = Style::new();
        match self.palette {
            Palette::None => {}
            Palette::Sixteen => style.fg = sixteen,
            Palette::Xterm => style.fg = xterm.map(Color::Indexed),
        }
        match role {
            Look::Strong | Look::Head | Look::Critical | Look::Key => style.add_modifier(Modifier::BOLD),
            Look::Warning if self.palette == Palette::None => style.add_modifier(Modifier::BOLD),
            Look::Dim if self.palette == Palette::None => style.add_modifier(Modifier::DIM),
            _ => style,
        }
    }

    /// The selected row.
    pub fn selected(&self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_follow_the_environment() {
        assert_eq!(Palette::detect(Some("1"), Some("xterm-256color"), None), Palette::None);
        assert_eq!(Palette::detect(Some(""), Some("xterm-256color"), None), Palette::Xterm);
        assert_eq!(Palette::detect(None, Some("dumb"), None), Palette::None);
        assert_eq!(Palette::detect(None, None, None), Palette::None);
        assert_eq!(Palette::detect(None, Some("linux"), None), Palette::Sixteen);
        assert_eq!(Palette::detect(None, Some("xterm"), Some("truecolor")), Palette::Xterm);
    }

    #[test]
    fn without_colour_no_style_sets_one() {
        let theme = Theme::new(Palette::None, true);
        for role in [Look::Dim, Look::Guest, Look::Critical, Look::Warning, Look::Info, Look::Key] {
            assert_eq!(theme.style(role).fg, None);
        }
    }

    #[test]
    fn the_four_hues_differ_in_every_palette() {
        for palette in [Palette::Sixteen, Palette::Xterm] {
            let theme = Theme::new(palette, false);
            let hues = [Look::Guest, Look::Usr, Look::Sys, Look::Wait].map(|r| theme.style(r).fg);
            for (i, a) in hues.iter().enumerate() {
                assert!(hues[i + 1..].iter().all(|b| a != b));
            }
        }
    }

    #[test]
    fn ascii_is_ascii() {
        let g = Theme::new(Palette::None, true).glyphs;
        let all = g
            .bar
            .iter()
            .chain(&g.edges)
            .chain(&g.levels)
            .chain(&g.severity)
            .chain(&g.fold)
            .chain(&g.run)
            .chain(&g.frame);
        assert!(all.chain(&g.sort).chain([&g.cursor, &g.rule, &g.cut, &g.dot]).all(char::is_ascii));
    }
}
