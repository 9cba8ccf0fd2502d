//! The view as a file for a ticket: text or figures. Pure: the screen's edge writes the file.

pub mod csv;

use super::action::SaveFormat;
use super::render;
use super::screen_view::ScreenView;
use super::state::{AppState, ScreenSource};
use super::text;
use super::theme::Theme;
use jiff::Timestamp;
use judge::analysis::DomainFilter;
use judge::model::DomainModel;
use ratatui::prelude::{Buffer, Rect};
use report::document::JsonDocument;
use report::json;

/// A file to write: its name and its content. `None` before the first sample, and for the CSV of a
/// view without tables.
pub fn view(state: &AppState, theme: &Theme, format: SaveFormat) -> Option<(String, String)> {
    let content = match format {
        SaveFormat::Text => lines(&drawn(state, theme)),
        SaveFormat::Csv => Some(csv::tables(state)).filter(|csv| !csv.is_empty())?,
        SaveFormat::Json => json::text(&document(state)?).ok()? + "\n",
    };
    let extension = SaveFormat::ALL.iter().find(|(f, ..)| *f == format)?.1;
    Some((file_name(state, state.view.name(), extension), content))
}

/// A file name with host and time: `kvmtop-kvm07-guests-20261121-140322.txt`.
pub fn file_name(state: &AppState, what: &str, extension: &str) -> String {
    let model = state.model.as_ref();
    let host = model.map_or("", |m| m.host.facts.hostname.as_str());
    let host = part_of_name(host);
    let time = Timestamp::from_millisecond(model.map_or(0, |m| m.time_ms)).unwrap_or_default();
    let time = time.to_zoned(state.session.zone.clone());
    let parts = [
        "kvmtop",
        &host,
        what,
        &time.strftime("%Y%m%d-%H%M%S").to_string(),
    ];
    let name: Vec<&str> = parts.into_iter().filter(|p| !p.is_empty()).collect();
    format!("{}.{extension}", name.join("-"))
}

/// Up to 40 characters that any file system takes.
pub fn part_of_name(text: &str) -> String {
    let harmless = text
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' });
    harmless.take(40).collect()
}

/// The guests of the view: on a page its guest, else all that pass the filter.
fn guests(state: &AppState) -> Vec<&DomainModel> {
    if state.view == ScreenView::Page {
        state.domain().into_iter().collect()
    } else {
        state.guests()
    }
}

/// The screen as it is, drawn once more.
fn drawn(state: &AppState, theme: &Theme) -> Buffer {
    let mut buf = Buffer::empty(Rect::new(0, 0, state.size.0, state.size.1));
    render::paint(&mut buf, state, theme);
    buf
}

/// The text of a screen, line by line, without trailing blanks.
pub fn lines(buf: &Buffer) -> String {
    let mut out = String::new();
    for y in 0..buf.area.height {
        let mut line = String::new();
        let mut x = 0;
        while x < buf.area.width {
            let symbol = buf[(x, y)].symbol();
            line.push_str(symbol);
            x += text::width(symbol).max(1);
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// The interval as JSON has it, with the guests of the view and the findings about them and the
/// host.
fn document(state: &AppState) -> Option<JsonDocument> {
    let source = if state.session.source == ScreenSource::Live {
        "live"
    } else {
        "session"
    };
    let model = state.model.as_ref()?;
    let filter = &DomainFilter::default();
    let mut document = JsonDocument::new(&report::View {
        model,
        findings: &state.report,
        source,
        filter,
    });
    let shown = guests(state);
    document.domains.retain(|d| {
        shown
            .iter()
            .any(|s| s.name() == d.name && s.facts.pid == d.pid)
    });
    document.findings.retain(|f| {
        f.domain
            .as_deref()
            .is_none_or(|name| shown.iter().any(|d| d.name() == name))
    });
    Some(document)
}

#[cfg(test)]
mod tests;
