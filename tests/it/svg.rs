//! A screen as SVG that looks the same wherever it is shown.
//!
//! Letters are text in whatever monospaced font the viewer has, stretched to the width of their
//! columns. Blocks, shades and rules are drawn as shapes: in a font they differ in width or leave
//! gaps.

use kvm::without_hidden;
use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};
use std::fmt::Write as _;
use unicode_width::UnicodeWidthStr as _;

/// Size of a cell, and the margin around the screen.
const CELL: (f64, f64) = (8.0, 17.0);
const MARGIN: f64 = 14.0;
/// The baseline of text within the height of its cell.
const BASELINE: f64 = 13.0;
const FONT: &str = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono','Liberation \
    Mono',monospace";

const BACKGROUND: &str = "#0d1117";
const FOREGROUND: &str = "#d0d7de";
const BRIGHT: &str = "#ffffff";
const BORDER: &str = "#30363d";

/// How a run of cells looks.
#[derive(Clone, PartialEq)]
struct CellLook {
    ink: String,
    paper: Option<String>,
    bold: bool,
}

/// The picture of a screen. `title` is read to those who do not see it.
pub fn picture(screen: &Buffer, title: &str) -> String {
    let (columns, rows) = (screen.area.width, screen.area.height);
    let (width, height) = (
        f64::from(columns) * CELL.0 + 2.0 * MARGIN,
        f64::from(rows) * CELL.1 + 2.0 * MARGIN,
    );
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\" role=\"img\" \
         aria-label=\"{title}\">\n<title>{title}</title>\n<style>text{{font:13px \
         {FONT};white-space:pre}}.b{{font-weight:700}}</style>\n<rect x=\"0.5\" y=\"0.5\" \
         width=\"{}\" height=\"{}\" rx=\"8\" fill=\"{}\" stroke=\"{}\"/>\n",
        width - 1.0,
        height - 1.0,
        BACKGROUND,
        BORDER,
        title = escaped(title),
    );
    for y in 0..rows {
        let cells: Vec<&Cell> = (0..columns)
            .map(|x| &screen[(screen.area.x + x, screen.area.y + y)])
            .collect();
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
                && if shape.is_some() {
                    c.symbol() == cells[x].symbol()
                } else {
                    shape_of(c).is_none()
                }
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
        at += text[at].width().max(1);
    }
    let mut at = 0;
    while at < text.len() {
        if text[at] == " " || text[at].is_empty() {
            at += 1;
            continue;
        }
        // A piece ends where two blanks follow: short pieces stay on their columns in every font.
        let end = (at..text.len())
            .find(|&i| text[i..].iter().take(2).all(|c| *c == " "))
            .unwrap_or(text.len());
        let n = (end - at) as f64;
        let class = if look.bold { " class=\"b\"" } else { "" };
        let _ = writeln!(
            out,
            "<text x=\"{}\" y=\"{}\" textLength=\"{}\" lengthAdjust=\"spacingAndGlyphs\" \
                fill=\"{}\"{class}>{}</text>",
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
        '▁'..='█' => [
            0.0,
            EDGE + BAR - eighths(BAR, '▀'),
            CELL.0,
            eighths(BAR, '▀'),
            1.0,
        ],
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
    let (pieces, width) = if width < CELL.0 {
        (cells, width)
    } else {
        (1, cells as f64 * CELL.0)
    };
    for i in 0..pieces {
        rect(
            out,
            (left + i as f64 * CELL.0 + x, top + y, width, height),
            ink,
            opacity,
        );
    }
}

fn rect(out: &mut String, (x, y, width, height): (f64, f64, f64, f64), fill: &str, opacity: f64) {
    let opacity = if opacity < 1.0 {
        format!(" fill-opacity=\"{opacity}\"")
    } else {
        String::new()
    };
    let _ = writeln!(
        out,
        "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" fill=\"{fill}\"{opacity}/>"
    );
}

fn look(cell: &Cell) -> CellLook {
    let bold = cell.modifier.contains(Modifier::BOLD);
    let plain = if bold { BRIGHT } else { FOREGROUND };
    CellLook {
        ink: colour(cell.fg).unwrap_or_else(|| plain.into()),
        paper: colour(cell.bg),
        bold,
    }
}

/// A colour of the theme for true colours, which takes the greys of the selected row from the 256.
fn colour(c: Color) -> Option<String> {
    let [r, g, b] = match c {
        Color::Rgb(r, g, b) => [r, g, b],
        Color::Indexed(n @ 232..) => [8 + 10 * (n - 232); 3],
        _ => return None,
    };
    Some(format!("#{r:02x}{g:02x}{b:02x}"))
}

fn escaped(text: &str) -> String {
    without_hidden(text)
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[test]
fn blocks_of_the_picture_are_shapes_on_whole_eighths() {
    let mut buf = Buffer::empty(ratatui::layout::Rect::new(0, 0, 9, 1));
    buf.set_string(0, 0, "██▁▌▕▒──x", ratatui::style::Style::default());
    let svg = picture(&buf, "");
    let document = roxmltree::Document::parse(&svg).unwrap();
    let shapes: Vec<_> = document
        .descendants()
        .filter(|n| n.has_tag_name("rect"))
        .skip(1)
        .map(|n| {
            ["x", "y", "width", "height"]
                .map(|name| n.attribute(name).unwrap().parse::<f64>().unwrap())
        })
        .collect();
    let expected = [
        [14.0, 15.5, 16.0, 14.0],
        [30.0, 27.75, 8.0, 1.75],
        [38.0, 15.5, 4.0, 14.0],
        [53.0, 15.5, 1.0, 14.0],
        [54.0, 15.5, 8.0, 14.0],
        [62.0, 22.0, 16.0, 1.0],
    ];
    assert_eq!(shapes, expected);
    assert_eq!(
        document
            .descendants()
            .filter(|n| n.has_tag_name("text"))
            .count(),
        1
    );
}
