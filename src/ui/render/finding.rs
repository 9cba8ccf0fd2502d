//! An open finding: evidence, reason, fix, and how to check it without kvmtop.

use super::domains::severity_glyph;
use super::header;
use super::popup::{self, StyledLine};
use crate::lint::{Finding, FixKind, is_plain_name};
use crate::report::findings_text;
use crate::ui::cells::severity_role;
use crate::ui::state::AppState;
use crate::ui::text::{clean, clean_lines, wrap};
use crate::ui::theme::{Look, Theme};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

/// Width of the labels on the left.
const LABEL: u16 = 10;

/// The text, wrapped to a screen's width.
pub fn lines(f: &Finding, state: &AppState, screen: u16) -> Vec<StyledLine> {
    let room = popup::room(screen).saturating_sub(LABEL);
    let mut out = Vec::new();
    let mut section = |label: &'static str, text: &str, role: Look| {
        for (i, line) in wrap(text, room).into_iter().enumerate() {
            let label = if i == 0 { label } else { "" };
            out.push(vec![(format!("{label:<10}"), Look::Head), (line, role)]);
        }
    };
    for (i, e) in f.evidence.iter().enumerate() {
        section(if i == 0 { "SEEN" } else { "" }, &clean_lines(e), Look::Text);
    }
    if let Some(ms) = f.since_ms {
        section(if f.evidence.is_empty() { "SEEN" } else { "" }, &since(f, ms, state), Look::Dim);
    }
    section("", " ", Look::Text);
    section("WHY", &clean_lines(&f.why), Look::Text);
    for (i, fix) in f.fix.iter().enumerate() {
        section("", " ", Look::Text);
        let label = if i == 0 { "FIX" } else { "or" };
        let what = match fix.kind {
            FixKind::LibvirtXml => match &f.domain {
                Some(d) if is_plain_name(d) => format!("virsh edit {d}:"),
                _ => "in the domain's XML:".into(),
            },
            FixKind::Command => "run:".into(),
            FixKind::KernelOption => "on the host's kernel command line:".into(),
            FixKind::QemuOption => "on QEMU's command line:".into(),
            FixKind::Advice => String::new(),
        };
        if what.is_empty() {
            section(label, &clean_lines(&fix.text), Look::Text);
        } else {
            section(label, &what, Look::Dim);
            for line in clean_lines(&fix.text).lines() {
                section("", &format!("  {line}"), Look::Strong);
            }
        }
        if let Some(needs) = &fix.needs {
            section("", &format!("needs: {}", clean_lines(needs)), Look::Dim);
        }
    }
    if !f.see.is_empty() {
        section("", " ", Look::Text);
    }
    for (i, s) in f.see.iter().enumerate() {
        section(if i == 0 { "SEE" } else { "" }, &clean_lines(s), Look::Dim);
    }
    out
}

/// Since when it holds, and how steadily.
fn since(f: &Finding, ms: i64, state: &AppState) -> String {
    let clock = header::clock(ms, state);
    match &f.lasting {
        None => format!("since {clock}"),
        Some(l) if l.is_longer => format!("since before {clock}; {}", clean_lines(&findings_text::lasting(l))),
        Some(l) => format!("since {clock}; {}", clean_lines(&findings_text::lasting(l))),
    }
}

/// Paints it over the screen.
pub fn paint(buf: &mut Buffer, area: Rect, f: &Finding, scroll: u16, state: &AppState, theme: &Theme) {
    let who = f.domain.as_deref().map_or_else(|| "host".to_string(), clean);
    let title = vec![
        (format!("{} ", severity_glyph(f.severity, theme)), severity_role(f.severity)),
        (format!("{who} {} {}", theme.glyphs.dot, clean(&f.title)), Look::Strong),
    ];
    let rules: Vec<&str> = std::iter::once(f.rule).chain(f.folded.iter().copied()).collect();
    let note = format!("{} {} {} confidence", rules.join(" + "), theme.glyphs.dot, f.confidence.as_str());
    popup::paint(buf, area, title, &note, &lines(f, state, area.width), scroll, theme);
}
