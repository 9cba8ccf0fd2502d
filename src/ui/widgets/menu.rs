//! The menus of sort columns, columns and formats.

use super::StyledLine;
use super::popup::{self, PopupText};
use crate::ui::action::SaveFormat;
use crate::ui::layout;
use crate::ui::menus;
use crate::ui::screen_view::ScreenView;
use crate::ui::state::{AppState, Menu};
use crate::ui::table::{AnyTable, ColumnHead, ColumnId, TableId, TablePainter};
use crate::ui::text::{fit_words, width};
use crate::ui::theme::{StyleId, Theme};
use crate::ui::views::{self, guests};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

/// An entry: what it is called, and what it means.
type Entry = (String, &'static str);

/// Paints a menu.
pub fn paint(
    buf: &mut Buffer,
    area: Rect,
    (menu, at): (Menu, usize),
    state: &AppState,
    theme: &Theme,
) {
    let (title, note, entries): (_, _, Vec<Entry>) = match menu {
        Menu::Sort(table) => {
            let sort = state.table(table).sort;
            let entry = |(n, head): (usize, ColumnHead)| {
                let sort = sort.filter(|sort| sort.column.0 == n);
                let order = sort.map_or(' ', |sort| theme.glyphs.sort[usize::from(sort.reversed)]);
                (format!("{order} {:<19}", head.header), head.help)
            };
            let entries = views::heads(table)
                .into_iter()
                .enumerate()
                .map(entry)
                .collect();
            (
                format!("sort {} by", table.title()),
                "the same column again: reverse",
                entries,
            )
        }
        Menu::Columns(table) => {
            let heads = state.heads(table);
            let entry = |(id, is_chosen): (ColumnId, bool)| {
                let (head, mark) = (&heads[id.0], if is_chosen { 'x' } else { ' ' });
                let no_room = if is_chosen && !has_room(state, table, id, theme) {
                    "no room"
                } else {
                    ""
                };
                (
                    format!(
                        "[{mark}] {:<19} {no_room:<8} {:<12}",
                        head.header, head.name
                    ),
                    head.help,
                )
            };
            let entries = menus::listed(state, table).into_iter().map(entry).collect();
            (
                format!("columns of {}", table.title()),
                "the second name: filters, CSV",
                entries,
            )
        }
        Menu::Save => {
            let entries =
                SaveFormat::ALL.map(|(_, extension, help)| (format!("{extension:<6}"), help));
            (
                "write the view into a file in the current folder".into(),
                "",
                entries.to_vec(),
            )
        }
    };
    let room = popup::room(area.width);
    let line = |(i, (label, help)): (usize, &Entry)| -> StyledLine {
        let (cursor, look, of_help) = if i == at {
            (theme.glyphs.cursor, StyleId::Strong, StyleId::Text)
        } else {
            (' ', StyleId::Text, StyleId::Dim)
        };
        let label = format!("{cursor} {label} ");
        let rest = room.saturating_sub(width(&label));
        vec![
            (label, look),
            (fit_words(help, rest, theme.glyphs.cut), of_help),
        ]
    };
    let lines: Vec<StyledLine> = entries.iter().enumerate().map(line).collect();
    let shown = usize::from(area.height.saturating_sub(3)).max(1);
    let scroll = (at + 1).saturating_sub(shown);
    popup::paint(
        buf,
        area,
        &PopupText {
            title: &title,
            note,
            lines,
            scroll,
            selected: Some(at),
        },
        theme,
    );
}

/// Whether a chosen column has room on the screen.
fn has_room(state: &AppState, id: TableId, column: ColumnId, theme: &Theme) -> bool {
    let of = |table: &dyn AnyTable, width: u16| {
        TablePainter::new(table, state.table(id), width.saturating_sub(1), theme).shows(column)
    };
    let plan = layout::plan(state);
    if state.view == ScreenView::Guests {
        return of(&guests::table(state), plan.list.width);
    }
    state
        .page_of(state.view)
        .tables()
        .find(|table| table.id() == id)
        .is_none_or(|table| of(table, plan.page.width))
}
