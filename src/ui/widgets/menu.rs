//! The menus of sort columns, columns and formats.

use super::StyledLine;
use super::popup::{self, PopupText};
use crate::ui::table::TablePainter;
use crate::ui::views::{self, guests};
use crate::ui::{
    AnyTable, AppState, Canvas, ColumnId, Menu, SaveFormat, ScreenView, StyleId, TableId, Theme,
    fit_words, layout, menus, width,
};
use ratatui::layout::Rect;

/// An entry: what it is called, and what it means.
type Entry = (String, &'static str);

/// Paints a menu.
pub fn paint(canvas: &mut Canvas, area: Rect, (menu, at): (Menu, usize), state: &AppState) {
    let (title, note, entries) = match menu {
        Menu::Sort(table) => (
            format!("sort {} by", table.title()),
            "the same column again: reverse",
            sort_entries(table, state, canvas.theme),
        ),
        Menu::Columns(table) => (
            format!("columns of {}", table.title()),
            "the second name: filters, CSV",
            column_entries(table, state, canvas.theme),
        ),
        Menu::Save => (
            "write the view into a file in the current folder".into(),
            "",
            SaveFormat::ALL
                .map(|(_, extension, help)| (format!("{extension:<6}"), help))
                .to_vec(),
        ),
    };
    let room = popup::room(area.width);
    let mut lines: Vec<StyledLine> = Vec::new();
    for (i, (label, help)) in entries.iter().enumerate() {
        let (cursor, look, of_help) = if i == at {
            (canvas.theme.glyphs.cursor, StyleId::Strong, StyleId::Text)
        } else {
            (' ', StyleId::Text, StyleId::Dim)
        };
        let label = format!("{cursor} {label} ");
        let rest = room.saturating_sub(width(&label));
        let help = fit_words(help, rest, canvas.theme.glyphs.cut);
        lines.push(vec![(label, look), (help, of_help)]);
    }
    let shown = usize::from(area.height.saturating_sub(3)).max(1);
    let scroll = (at + 1).saturating_sub(shown);
    popup::paint(
        canvas,
        area,
        &PopupText {
            title: &title,
            note,
            lines,
            scroll,
            selected: Some(at),
        },
    );
}

/// The columns to sort by.
fn sort_entries(table: TableId, state: &AppState, theme: &Theme) -> Vec<Entry> {
    let sort = state.table(table).sort;
    let mut entries = Vec::new();
    for (n, head) in views::heads(table).into_iter().enumerate() {
        let order = match sort {
            Some(sort) if sort.column.0 == n => theme.glyphs.sort[usize::from(sort.reversed)],
            _ => ' ',
        };
        entries.push((format!("{order} {:<19}", head.header), head.help));
    }
    entries
}

/// The columns to choose from.
fn column_entries(table: TableId, state: &AppState, theme: &Theme) -> Vec<Entry> {
    let heads = state.heads(table);
    let mut entries = Vec::new();
    for (id, is_chosen) in menus::listed(state, table) {
        let head = &heads[id.0];
        let mark = if is_chosen { 'x' } else { ' ' };
        let no_room = if is_chosen && !has_room(state, table, id, theme) {
            "no room"
        } else {
            ""
        };
        let (header, name) = (head.header, head.name);
        let label = format!("[{mark}] {header:<19} {no_room:<8} {name:<12}");
        entries.push((label, head.help));
    }
    entries
}

/// Whether a chosen column has room on the screen.
fn has_room(state: &AppState, id: TableId, column: ColumnId, theme: &Theme) -> bool {
    let shows = |table: &dyn AnyTable, columns: u16| {
        TablePainter::new(table, state.table(id), columns.saturating_sub(1), theme).shows(column)
    };
    let plan = layout::plan(state);
    if state.view == ScreenView::Guests {
        return shows(&guests::table(state), plan.list.width);
    }
    // A table that the view does not have lacks no room.
    let page = state.page_of(state.view);
    let mut tables = page.tables();
    tables
        .find(|table| table.id() == id)
        .is_none_or(|table| shows(table, plan.page.width))
}
