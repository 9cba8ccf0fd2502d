//! A terminal's screen as SVG that looks the same wherever it is shown.
//!
//! Letters are text in whatever monospaced font the viewer has, stretched to the width of their columns. Blocks, shades
//! and rules are drawn as shapes: in a font they differ in width or leave gaps.

use std::fmt::Write as _;
use vt100::{Cell, Color, Screen};

/// Size of a cell, and the margin around the screen.
const CELL: (f64, f64) = (8.0, 17.0);
const MARGIN: f64 = 14.0;
/// Where text stands within the height of its cell.
const BASELINE: f64 = 13.0;
const FONT: &str = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono','Liberation Mono',monospace";
const BACKGROUND: &str = "#0d1117";
const FOREGROUND: &str = "#d0d7de";
/// Text in bold that has no colour of its own.
const BRIGHT: &str = "#ffffff";

/// How a run of cells looks.
#[derive(Clone, PartialEq)]
struct Look {
    ink: String,
    paper: Option<String>,
    bold: bool,
    underline: bool,
}

/// The picture of a screen. `title` is read to those who do not see it.
pub fn picture(screen: &Screen, title: &str) -> String {
    let (rows, columns) = screen.size();
    let (rows, columns) = (u16::from(rows), u16::from(columns));
    let (width, height) = (f64::from(columns) * CELL.0 + 2.0 * MARGIN, f64::from(rows) * CELL.1 + 2.0 * MARGIN);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" role=\"img\" aria-label=\"{title}\">\n<title>{title}</title>\n\
         <style>text{{font:13px {FONT};white-space:pre}}.b{{font-weight:700}}</style>\n\
         <rect x=\"0.5\" y=\"0.5\" width=\"{}\" height=\"{}\" rx=\"8\" fill=\"{BACKGROUND}\" stroke=\"#30363d\"/>\n",
        width - 1.0,
        height - 1.0,
        title = escaped(title),
    );
    for y in 0..rows {
        let cells: Vec<&Cell> = (0..columns).filter_map(|x| screen.cell(y, x)).collect();
        line(&mut out, &cells, MARGIN + f64::from(y) * CELL.1);
    }
    out.push_str("</svg>\n");
    out
}

/// One line: backgrounds, then runs of text and shapes.
fn line(out: &mut String, cells: &[&Cell], top: f64) {
    let mut x = 0;
    while x < cells.len() {
        let look = look(cells[x]);
        let shape = shape_of(cells[x]);
        let same = |c: &&&Cell| {
            self::look(c) == look
                && if shape.is_some() { c.contents() == cells[x].contents() } else { shape_of(c).is_none() }
        };
        let n = cells[x..].iter().take_while(same).count();
        let left = MARGIN + x as f64 * CELL.0;
        let width = n as f64 * CELL.0;
        if let Some(paper) = &look.paper {
            rect(out, (left, top, width, CELL.1), paper, 1.0);
        }
        match shape {
            Some(shape) => draw(out, shape, (left, top, width), &look.ink),
            None => words(out, &cells[x..x + n], (left, top), &look),
        }
        x += n;
    }
}

/// Text of one look, a piece for each stretch without wide gaps.
fn words(out: &mut String, cells: &[&Cell], (left, top): (f64, f64), look: &Look) {
    let text: Vec<&str> = cells
        .iter()
        .filter(|c| !c.is_wide_continuation())
        .map(|c| if c.has_contents() { c.contents() } else { " " })
        .collect();
    let mut at = 0;
    while at < text.len() {
        if text[at] == " " {
            at += 1;
            continue;
        }
        // A piece ends where two blanks follow: short pieces stay on their columns in every font.
        let end = (at..text.len()).find(|&i| text[i..].iter().take(2).all(|c| *c == " ")).unwrap_or(text.len());
        let n = (end - at) as f64;
        let class = if look.bold { " class=\"b\"" } else { "" };
        let line = if look.underline { " text-decoration=\"underline\"" } else { "" };
        let _ = writeln!(
            out,
            "<text x=\"{}\" y=\"{}\" textLength=\"{}\" lengthAdjust=\"spacingAndGlyphs\" fill=\"{}\"{class}{line}>\
             {}</text>",
            left + at as f64 * CELL.0,
            top + BASELINE,
            n * CELL.0,
            look.ink,
            escaped(&text[at..end].concat()),
        );
        at = end;
    }
}

/// A character that is drawn instead of written.
#[derive(Clone, Copy)]
enum Shape {
    /// Part of the cell that is filled, from below, in eighths.
    Height(u8),
    /// The whole cell in this opacity.
    Shade(f64),
    /// Part of the cell's width from the left, or from the right where negative, in eighths.
    Side(i8),
    /// A horizontal or a vertical line through the middle.
    Rule { vertical: bool },
}

fn shape_of(cell: &Cell) -> Option<Shape> {
    let c = cell.contents().chars().next()?;
    Some(match c {
        '▁'..='█' => Shape::Height((c as u32 - 0x2580) as u8),
        '▓' => Shape::Shade(0.78),
        '▒' => Shape::Shade(0.58),
        '░' => Shape::Shade(0.38),
        '▌' => Shape::Side(4),
        '▏' => Shape::Side(1),
        '▕' => Shape::Side(-1),
        '─' => Shape::Rule { vertical: false },
        '│' => Shape::Rule { vertical: true },
        _ => return None,
    })
}

/// Draws a run of one shape.
fn draw(out: &mut String, shape: Shape, (left, top, width): (f64, f64, f64), ink: &str) {
    let (w, h) = CELL;
    // Bars of two lines do not touch.
    let bar = h - 3.0;
    match shape {
        Shape::Height(8) => rect(out, (left, top + 1.5, width, bar), ink, 1.0),
        Shape::Height(n) => {
            let tall = bar * f64::from(n) / 8.0;
            rect(out, (left, top + 1.5 + bar - tall, width, tall), ink, 1.0);
        }
        Shape::Shade(opacity) => rect(out, (left, top + 1.5, width, bar), ink, opacity),
        Shape::Side(n) if n > 0 => rect(out, (left, top, w * f64::from(n) / 8.0, h), ink, 1.0),
        Shape::Side(n) => {
            let thick = w * f64::from(-n) / 8.0;
            rect(out, (left + w - thick, top + 1.5, thick, bar), ink, 1.0);
        }
        Shape::Rule { vertical: false } => rect(out, (left, top + h / 2.0 - 0.5, width, 1.0), ink, 1.0),
        Shape::Rule { vertical: true } => rect(out, (left + w / 2.0 - 0.5, top, 1.0, h), ink, 1.0),
    }
}

fn rect(out: &mut String, (x, y, width, height): (f64, f64, f64, f64), fill: &str, opacity: f64) {
    let opacity = if opacity < 1.0 { format!(" fill-opacity=\"{opacity}\"") } else { String::new() };
    let _ = writeln!(out, "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" fill=\"{fill}\"{opacity}/>");
}

fn look(cell: &Cell) -> Look {
    let plain = if cell.bold() && !cell.inverse() { BRIGHT } else { FOREGROUND };
    let ink = colour(cell.fgcolor()).unwrap_or_else(|| plain.into());
    let paper = colour(cell.bgcolor());
    let (ink, paper) =
        if cell.inverse() { (paper.unwrap_or_else(|| BACKGROUND.into()), Some(ink)) } else { (ink, paper) };
    Look { ink, paper, bold: cell.bold(), underline: cell.underline() }
}

/// A colour of xterm's 256 as `#rrggbb`; `None` for the terminal's own.
fn colour(c: Color) -> Option<String> {
    const SIXTEEN: [&str; 16] = [
        "#484f58", "#ff7b72", "#3fb950", "#d29922", "#58a6ff", "#bc8cff", "#39c5cf", "#b1bac4", "#6e7681", "#ffa198",
        "#56d364", "#e3b341", "#79c0ff", "#d2a8ff", "#56d4dd", "#f0f6fc",
    ];
    let hex = |r: u8, g: u8, b: u8| format!("#{r:02x}{g:02x}{b:02x}");
    Some(match c {
        Color::Default => return None,
        Color::Rgb(r, g, b) => hex(r, g, b),
        Color::Idx(n @ 0..16) => SIXTEEN[usize::from(n)].into(),
        Color::Idx(n @ 16..232) => {
            let level = |i: u8| if i == 0 { 0 } else { 55 + 40 * i };
            let n = n - 16;
            hex(level(n / 36), level(n / 6 % 6), level(n % 6))
        }
        Color::Idx(n) => {
            let grey = 8 + 10 * (n - 232);
            hex(grey, grey, grey)
        }
    })
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
