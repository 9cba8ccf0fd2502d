//! The figures that a mark keeps, and the cells that show how they changed.

use super::filter::FieldValue;
use super::grid::Cell;
use super::guest_columns::{self, COLUMNS, GuestColumn};
use super::guest_table::ColumnId;
use super::state::AppState;
use super::table_marks::MarkedFigures;
use judge::figures::{UNKNOWN, percent, rate, share};
use judge::model::DomainModel;

/// The figures of the interval on the screen; `None` before the first sample.
pub fn figures(state: &AppState) -> Option<MarkedFigures> {
    let model = state.model.as_ref()?;
    let of = |d: &DomainModel| COLUMNS.iter().map(|c| figure(&guest_columns::value(c, d, &state.findings))).collect();
    let guests = model.domains.iter().map(|d| (d.key(), of(d))).collect();
    Some(MarkedFigures { time_ms: model.time_ms, guests })
}

/// The cell with the change of a guest's figure; `None` for a column without a figure, or when nothing is marked.
pub fn cell(state: &AppState, column: &GuestColumn, domain: &DomainModel) -> Option<Cell> {
    let index = COLUMNS.iter().position(|c| c.id == column.id)?;
    let now = guest_columns::value(column, domain, &state.findings);
    if !state.marks.is_set() || matches!(now, FieldValue::Text(_)) || column.is_drawn() || column.id == ColumnId::Pid {
        return None;
    }
    let change = state.marks.change(&domain.key(), index, figure(&now));
    Some(change.map_or_else(Cell::unknown, |by| Cell::text(signed(by, column))))
}

fn figure(value: &FieldValue) -> Option<f64> {
    if let FieldValue::Figure(figure) = value { Some(*figure) } else { None }
}

/// A change with its sign; one that is too small to be printed is 0.
fn signed(by: f64, column: &GuestColumn) -> String {
    // A narrow column has room for whole percents.
    let print = match column.header {
        header if !header.ends_with('%') => rate,
        _ if column.layout.width < 4 => share,
        _ => percent,
    };
    let size = print(by.abs());
    match size.as_str() {
        UNKNOWN => size,
        s if s.trim_matches(['0', '.']).is_empty() || s.starts_with('<') => "0".into(),
        _ => format!("{}{size}", if by < 0.0 { '-' } else { '+' }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::Tick;
    use crate::ui::tests::{busy, draw, press, text};
    use crate::ui::theme::Theme;

    fn first(state: &AppState, id: ColumnId) -> Option<Cell> {
        cell(state, guest_columns::column(id), &state.model.as_ref().unwrap().domains[0])
    }

    #[test]
    fn the_table_shows_by_how_much_figures_changed_since_a() {
        let mut state = busy(120, 40);
        assert_eq!(first(&state, ColumnId::Cpu), None);
        press(&mut state, "m");
        assert_eq!(first(&state, ColumnId::Cpu), Some(Cell::text("0")));
        assert_eq!(first(&state, ColumnId::Name), None);
        let mut model = state.model.clone().unwrap();
        model.domains[0].cpu.as_mut().unwrap().guest += 12.5;
        model.domains[0].exit_rate.0 = model.domains[0].exit_rate.0.map(|r| r - 2_000.0);
        state.absorb(Tick { model, findings: state.findings.clone(), ..Tick::default() });
        assert_eq!(first(&state, ColumnId::Guest), Some(Cell::text("+12.5")));
        assert_eq!(first(&state, ColumnId::Exits), Some(Cell::text("-2000")));
        let shown = text(&draw(&state, &Theme::default()));
        assert!(shown.contains("change since 14:04:22 (m)"), "{shown}");
        press(&mut state, "m");
        let mut model = state.model.clone().unwrap();
        model.domains[0].cpu.as_mut().unwrap().guest += 50.0;
        state.absorb(Tick { model, ..Tick::default() });
        assert_eq!(first(&state, ColumnId::Guest), Some(Cell::text("+12.5")), "B stands still");
        press(&mut state, "m");
        assert_eq!(first(&state, ColumnId::Guest), None);
    }

    #[test]
    fn an_unknown_figure_has_no_change() {
        let mut state = busy(120, 40);
        press(&mut state, "m");
        let mut d = state.model.as_ref().unwrap().domains[0].clone();
        d.cpu = None;
        assert_eq!(cell(&state, guest_columns::column(ColumnId::Cpu), &d), Some(Cell::unknown()));
        std::sync::Arc::make_mut(&mut d.facts).pid = Some(1);
        assert_eq!(cell(&state, guest_columns::column(ColumnId::Wait), &d), Some(Cell::unknown()));
    }
}
