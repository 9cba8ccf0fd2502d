//! A screen as SVG that looks the same wherever it is shown.
//!
//! Letters are text in whatever monospaced font the viewer has, stretched to the width of their columns. Blocks, shades
//! and rules are drawn as shapes: in a font they differ in width or leave gaps.

use crate::ui::terminal::place_among_sixteen;
use crate::ui::text;
use crate::ui::theme::Tone;
use kvm::without_hidden;
use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};
use std::fmt::Write as _;

/// Size of a cell, and the margin around the screen.
const CELL: (f64, f64) = (8.0, 17.0);
const MARGIN: f64 = 14.0;
/// The baseline of text within the height of its cell.
const BASELINE: f64 = 13.0;
const FONT: &str = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono','Liberation Mono',monospace";

/// The colours of the picture's terminal.
struct Paper {
    background: &'static str,
    foreground: &'static str,
    /// Bold text without a colour.
    bright: &'static str,
    border: &'static str,
    sixteen: [&'static str; 16],
}

const DARK: Paper = Paper {
    background: "#0d1117",
    foreground: "#d0d7de",
    bright: "#ffffff",
    border: "#30363d",
    sixteen: [
        "#484f58", "#ff7b72", "#3fb950", "#d29922", "#58a6ff", "#bc8cff", "#39c5cf", "#b1bac4", "#6e7681", "#ffa198",
        "#56d364", "#e3b341", "#79c0ff", "#d2a8ff", "#56d4dd", "#f0f6fc",
    ],
};

const LIGHT: Paper = Paper {
    background: "#ffffff",
    foreground: "#1f2328",
    bright: "#000000",
    border: "#d0d7de",
    sixteen: [
        "#24292f", "#cf222e", "#116329", "#7d4e00", "#0969da", "#8250df", "#1b7c83", "#6e7781", "#57606a", "#a40e26",
        "#1a7f37", "#633c01", "#218bff", "#a475f9", "#3192aa", "#8c959f",
    ],
};

/// How a run of cells looks.
#[derive(Clone, PartialEq)]
struct CellLook {
    ink: String,
    paper: Option<String>,
    bold: bool,
    dim: bool,
}

/// The picture of a screen. `title` is read to those who do not see it.
pub fn picture(screen: &Buffer, title: &str, tone: Tone) -> String {
    let paper = if tone == Tone::Light { &LIGHT } else { &DARK };
    let (columns, rows) = (screen.area.width, screen.area.height);
    let (width, height) = (f64::from(columns) * CELL.0 + 2.0 * MARGIN, f64::from(rows) * CELL.1 + 2.0 * MARGIN);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" role=\"img\" aria-label=\"{title}\">\n<title>{title}</title>\n\
         <style>text{{font:13px {FONT};white-space:pre}}.b{{font-weight:700}}.d{{opacity:.6}}</style>\n\
         <rect x=\"0.5\" y=\"0.5\" width=\"{}\" height=\"{}\" rx=\"8\" fill=\"{}\" stroke=\"{}\"/>\n",
        width - 1.0,
        height - 1.0,
        paper.background,
        paper.border,
        title = escaped(title),
    );
    for y in 0..rows {
        let cells: Vec<&Cell> = (0..columns).map(|x| &screen[(screen.area.x + x, screen.area.y + y)]).collect();
        line(&mut out, &cells, MARGIN + f64::from(y) * CELL.1, paper);
    }
    out.push_str("</svg>\n");
    out
}

/// One line: backgrounds, then runs of text and shapes.
fn line(out: &mut String, cells: &[&Cell], top: f64, paper: &Paper) {
    let mut x = 0;
    while x < cells.len() {
        let look = look(cells[x], paper);
        let shape = shape_of(cells[x]);
        let same = |c: &&&Cell| {
            self::look(c, paper) == look
                && if shape.is_some() { c.symbol() == cells[x].symbol() } else { shape_of(c).is_none() }
        };
        let n = cells[x..].iter().take_while(same).count();
        let left = MARGIN + x as f64 * CELL.0;
        if let Some(paper) = &look.paper {
            rect(out, (left, top, n as f64 * CELL.0, CELL.1), paper, 1.0);
        }
        match shape {
            Some(shape) => draw(out, shape, (left, top, n), &look.ink),
            None => words(out, &cells[x..x + n], (left, top), &look),
        }
        x += n;
    }
}

/// Text of one look, a piece for each stretch without wide gaps.
fn words(out: &mut String, cells: &[&Cell], (left, top): (f64, f64), look: &CellLook) {
    // A wide character covers further columns, which stay empty.
    let mut text = vec![""; cells.len()];
    let mut at = 0;
    while at < cells.len() {
        text[at] = cells[at].symbol();
        at += usize::from(text::width(text[at])).max(1);
    }
    let mut at = 0;
    while at < text.len() {
        if text[at] == " " || text[at].is_empty() {
            at += 1;
            continue;
        }
        // A piece ends where two blanks follow: short pieces stay on their columns in every font.
        let end = (at..text.len()).find(|&i| text[i..].iter().take(2).all(|c| *c == " ")).unwrap_or(text.len());
        let n = (end - at) as f64;
        let class = match (look.bold, look.dim) {
            (true, _) => " class=\"b\"",
            (false, true) => " class=\"d\"",
            (false, false) => "",
        };
        let _ = writeln!(
            out,
            "<text x=\"{}\" y=\"{}\" textLength=\"{}\" lengthAdjust=\"spacingAndGlyphs\" fill=\"{}\"{class}>{}</text>",
            left + at as f64 * CELL.0,
            top + BASELINE,
            n * CELL.0,
            look.ink,
            escaped(&text[at..end].concat()),
        );
        at = end;
    }
}

/// A part of a cell that is filled: left, top, width, height, opacity.
type Shape = [f64; 5];

/// What is drawn instead of a character. Bars of two lines do not touch.
fn shape_of(cell: &Cell) -> Option<Shape> {
    const EDGE: f64 = 1.5;
    const BAR: f64 = CELL.1 - 2.0 * EDGE;
    let c = cell.symbol().chars().next()?;
    let eighths = |of: f64, from: char| of / 8.0 * f64::from((c as u32).abs_diff(from as u32));
    Some(match c {
        '▁'..='█' => [0.0, EDGE + BAR - eighths(BAR, '▀'), CELL.0, eighths(BAR, '▀'), 1.0],
        '▉'..='▏' => [0.0, EDGE, eighths(CELL.0, '▐'), BAR, 1.0],
        '▕' => [CELL.0 * 0.875, EDGE, CELL.0 / 8.0, BAR, 1.0],
        '▓' => [0.0, EDGE, CELL.0, BAR, 0.78],
        '▒' => [0.0, EDGE, CELL.0, BAR, 0.58],
        '░' => [0.0, EDGE, CELL.0, BAR, 0.38],
        '─' => [0.0, CELL.1 / 2.0 - 0.5, CELL.0, 1.0, 1.0],
        '│' => [CELL.0 / 2.0 - 0.5, 0.0, 1.0, CELL.1, 1.0],
        _ => return None,
    })
}

/// Draws a run of one shape: in one piece where it fills its cells from side to side.
fn draw(out: &mut String, shape: Shape, (left, top, cells): (f64, f64, usize), ink: &str) {
    let [x, y, width, height, opacity] = shape;
    let (pieces, width) = if width < CELL.0 { (cells, width) } else { (1, cells as f64 * CELL.0) };
    for i in 0..pieces {
        rect(out, (left + i as f64 * CELL.0 + x, top + y, width, height), ink, opacity);
    }
}

fn rect(out: &mut String, (x, y, width, height): (f64, f64, f64, f64), fill: &str, opacity: f64) {
    let opacity = if opacity < 1.0 { format!(" fill-opacity=\"{opacity}\"") } else { String::new() };
    let _ = writeln!(out, "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" fill=\"{fill}\"{opacity}/>");
}

fn look(cell: &Cell, paper: &Paper) -> CellLook {
    let (bold, inverse) = (cell.modifier.contains(Modifier::BOLD), cell.modifier.contains(Modifier::REVERSED));
    let plain = if bold && !inverse { paper.bright } else { paper.foreground };
    let ink = colour(cell.fg, paper).unwrap_or_else(|| plain.into());
    let ground = colour(cell.bg, paper);
    let (ink, ground) =
        if inverse { (ground.unwrap_or_else(|| paper.background.into()), Some(ink)) } else { (ink, ground) };
    CellLook { ink, paper: ground, bold, dim: cell.modifier.contains(Modifier::DIM) }
}

/// A colour as `#rrggbb`; `None` for the terminal's own.
fn colour(c: Color, paper: &Paper) -> Option<String> {
    let level = |i: u8| if i == 0 { 0 } else { 55 + 40 * i };
    let [r, g, b] = match c {
        Color::Rgb(r, g, b) => [r, g, b],
        Color::Indexed(n @ 0..16) => return Some(paper.sixteen[usize::from(n)].into()),
        Color::Indexed(n @ 16..232) => [(n - 16) / 36, (n - 16) / 6 % 6, (n - 16) % 6].map(level),
        Color::Indexed(n) => [8 + 10 * (n - 232); 3],
        named => return place_among_sixteen(named).map(|n| paper.sixteen[n].into()),
    };
    Some(format!("#{r:02x}{g:02x}{b:02x}"))
}

/// Text within an element or an attribute. XML 1.0 does not allow control characters.
fn escaped(text: &str) -> String {
    without_hidden(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
