//! The list of guests: a row a guest, a row for what the host does outside guests, and a row for
//! all idle guests.

mod columns;
mod rows;

pub use columns::{
    GuestRow, column_name, columns, columns_through, filter_fields, sort_by_name, usual_sort,
};
pub use rows::{arrange, busy, key, table};

use crate::ui::guest_list::ListRow;
use crate::ui::lens::Lens;
use crate::ui::state::AppState;
use crate::ui::table::{TableId, TablePainter};
use crate::ui::text::{clean, width};
use crate::ui::theme::{StyleId, Theme};
use crate::ui::widgets::draw::{put, select};
use crate::ui::widgets::{say, scrollbar};
use judge::model::DomainModel;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use sample::{SourceId, SourceState, SourceStatus};

/// Paints the list.
pub fn paint(buf: &mut Buffer, area: Rect, state: &AppState, theme: &Theme) {
    if let Some((text, look)) = instead(state) {
        let inner = Rect {
            x: area.x + 1,
            y: area.y + 1,
            width: area.width - 2,
            height: area.height - 1,
        };
        say(buf, inner, &text, look, theme);
        return;
    }
    let table = table(state);
    let painter = TablePainter::new(&table, state.table(TableId::Guests), area.width - 1, theme);
    let first = Constraint::Length(1);
    let rest = Constraint::Fill(1);
    let [_, below] = Layout::vertical([first, rest]).areas(area);
    // The scroll bar is at the right edge.
    let [inner, _] = Layout::horizontal([rest, first]).areas(area);
    let [head, rows] = Layout::vertical([first, rest]).areas(inner);
    painter.head(buf, head);
    count(buf, head, state, theme);
    let top = state.list.top;
    painter.rows(buf, rows, top);
    select(buf, rows, state.list.at.checked_sub(top), theme);
    scrollbar(buf, below, table.rows.len(), top, theme);
}

/// How many guests of how many are listed, at the right end of the header unless a column has its
/// header there.
fn count(buf: &mut Buffer, line: Rect, state: &AppState, theme: &Theme) {
    let listed = state
        .list
        .rows
        .iter()
        .filter(|row| matches!(row, ListRow::Guest(_)))
        .count();
    let all = state.model.as_ref().map_or(0, |m| m.domains.len());
    let text = match state.lens {
        Lens::Cpu => format!("{listed} of {all} guests"),
        lens => format!("{}: {listed} of {all} guests", lens.name()),
    };
    let x = line.right().saturating_sub(width(&text));
    if (x - 1..line.right()).all(|x| buf[(x, line.y)].symbol() == " ") {
        put(
            buf,
            x,
            line.y,
            &text,
            width(&text),
            theme.style(StyleId::Dim),
        );
    }
}

/// The text in place of a list.
fn instead(state: &AppState) -> Option<(String, StyleId)> {
    let Some(model) = &state.model else {
        return Some(("Waiting for the first sample …".into(), StyleId::Dim));
    };
    if model.domains.is_empty() {
        let (recorded, unseen) = (state.session.source.is_recorded(), model.unseen_processes());
        let is_unmatched =
            |s: &&SourceStatus| s.id == SourceId::Domain && s.state == SourceState::Missing;
        let mut unmatched = model.sources.iter().filter(is_unmatched).peekable();
        let text = match (recorded, unseen.map(SourceStatus::sentence)) {
            _ if unmatched.peek().is_some() => {
                let said: Vec<_> = unmatched
                    .chain(unseen)
                    .map(SourceStatus::sentence)
                    .collect();
                format!("{}.", clean(&said.join(". ")))
            }
            (false, None) => {
                "No KVM guest is running on this host. kvmtop keeps watching and shows one as soon \
                    as it starts."
                    .into()
            }
            (true, None) => "No guest was running at this time.".into(),
            (false, Some(why)) => format!(
                "No KVM guest is visible, but not every process is: {}.",
                clean(&why)
            ),
            (true, Some(why)) => format!(
                "No guest was visible, but not every process was: {}.",
                clean(&why)
            ),
        };
        return Some((text, StyleId::Text));
    }
    if !state.list.guests.is_empty() {
        return None;
    }
    let mut names: Vec<String> = model
        .domains
        .iter()
        .map(|d| clean(DomainModel::name(d)))
        .collect();
    names.sort_unstable();
    let (all, filter) = (names.len(), clean(state.list.filter.text()));
    let names = names.join(", ");
    let text = format!(
        "None of {all} guests passes the filter '{filter}'. Esc clears the filter. There are: \
        {names}"
    );
    Some((text, StyleId::Text))
}

#[cfg(test)]
mod tests;
