//! The list of guests: a row a guest, a row for what the host does outside guests, and a row for
//! all idle guests.

mod columns;
mod rows;

pub use columns::{
    GuestRow, column_name, columns, columns_through, filter_fields, sort_by_name, usual_sort,
};
pub use rows::{arrange, busy, key, table};

use crate::ui::table::TablePainter;
use crate::ui::{AppState, Canvas, Lens, ListRow, StyleId, TableId, clean, width};
use judge::model::Model;
use ratatui::layout::{Constraint, Layout, Rect};
use sample::{SourceId, SourceState, SourceStatus};

/// Paints the list.
pub fn paint(canvas: &mut Canvas, area: Rect, state: &AppState) {
    if let Some(text) = text_instead(state) {
        let style = if state.model.is_some() {
            StyleId::Text
        } else {
            StyleId::Dim
        };
        let inner = Rect {
            x: area.x + 1,
            y: area.y + 1,
            width: area.width - 2,
            height: area.height - 1,
        };
        canvas.say(inner, &text, style);
        return;
    }
    let table = table(state);
    let painter = TablePainter::new(
        &table,
        state.table(TableId::Guests),
        area.width - 1,
        canvas.theme,
    );
    let first = Constraint::Length(1);
    let rest = Constraint::Fill(1);
    let [_, below] = Layout::vertical([first, rest]).areas(area);
    // The scroll bar is at the right edge.
    let [inner, _] = Layout::horizontal([rest, first]).areas(area);
    let [head, rows] = Layout::vertical([first, rest]).areas(inner);
    painter.head(canvas.buf, head);
    count(canvas, head, state);
    let top = state.list.top;
    painter.rows(canvas.buf, rows, top);
    canvas.select(rows, state.list.at.checked_sub(top));
    canvas.scrollbar(below, table.rows.len(), top);
}

/// How many guests of how many are listed, at the right end of the header unless a column has its
/// header there.
fn count(canvas: &mut Canvas, line: Rect, state: &AppState) {
    let rows = state.list.rows.iter();
    let listed = rows.filter(|row| matches!(row, ListRow::Guest(_))).count();
    let all = state.model.as_ref().map_or(0, |m| m.domains.len());
    let text = match state.lens {
        Lens::Cpu => format!("{listed} of {all} guests"),
        lens => format!("{}: {listed} of {all} guests", lens.name()),
    };
    let columns = width(&text);
    let x = line.right().saturating_sub(columns);
    if (x - 1..line.right()).all(|x| canvas.buf[(x, line.y)].symbol() == " ") {
        canvas.put(x, line.y, &text, columns, StyleId::Dim);
    }
}

/// The text in place of a list.
fn text_instead(state: &AppState) -> Option<String> {
    let Some(model) = &state.model else {
        return Some("Waiting for the first sample …".into());
    };
    if model.domains.is_empty() {
        return Some(why_no_guest(model, state.is_recorded()));
    }
    if !state.list.guests.is_empty() {
        return None;
    }
    let mut names: Vec<String> = model.domains.iter().map(|d| clean(d.name())).collect();
    names.sort_unstable();
    let filter = clean(state.list.filter.text());
    Some(format!(
        "None of {} guests passes the filter '{filter}'. Esc clears the filter. There are: {}",
        names.len(),
        names.join(", ")
    ))
}

/// Why no guest is seen on the host.
fn why_no_guest(model: &Model, is_recorded: bool) -> String {
    let unseen = model.unseen_processes();
    let mut causes: Vec<&SourceStatus> = model.sources.iter().collect();
    causes.retain(|s| s.id == SourceId::Domain && s.state == SourceState::Missing);
    if !causes.is_empty() {
        causes.extend(unseen);
        let said: Vec<_> = causes.into_iter().map(SourceStatus::sentence).collect();
        return format!("{}.", clean(&said.join(". ")));
    }
    let Some(unseen) = unseen else {
        return if is_recorded {
            "No guest was running at this time.".into()
        } else {
            "No KVM guest is running on this host. kvmtop keeps watching and shows one as soon as \
                it starts."
                .into()
        };
    };
    let why = clean(&unseen.sentence());
    if is_recorded {
        format!("No guest was visible, but not every process was: {why}.")
    } else {
        format!("No KVM guest is visible, but not every process is: {why}.")
    }
}

#[cfg(test)]
mod tests;
