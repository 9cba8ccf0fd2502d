//! The user's choices for the list of guests, on the screen: what the config file keeps of it, and
//! how the next live screen begins.

use super::views::guests;
use super::{AppState, Lens, ScreenChoices, Sort, TableId, TableState};

/// The choices on a screen.
pub fn choices_of(state: &AppState) -> ScreenChoices {
    let mut choices = ScreenChoices {
        lens: Some(state.lens),
        interval: Some(state.session.interval_s),
        ..ScreenChoices::default()
    };
    add(&mut choices, state.lens, state.table(TableId::Guests));
    for (lens, table) in &state.other_lenses {
        add(&mut choices, *lens, table);
    }
    choices
}

fn add(choices: &mut ScreenChoices, lens: Lens, table: &TableState) {
    if let Some(columns) = &table.columns {
        let names = columns.iter().map(|id| guests::column_name(*id).to_owned());
        choices.columns.insert(lens, names.collect());
    }
    let usual = guests::usual_sort(lens);
    if let Some(Sort { column, reversed }) = table.sort.filter(|sort| Some(*sort) != usual) {
        let sign = if reversed { "-" } else { "" };
        let name = guests::column_name(column);
        choices.sort.insert(lens, format!("{sign}{name}"));
    }
}

/// Begins a screen with these choices. A name that no column has is passed over.
///
/// # Errors
/// The first such name.
pub fn apply(choices: &ScreenChoices, state: &mut AppState) -> Result<(), String> {
    let mut unknown = None;
    for lens in Lens::ALL {
        let mut table = TableState {
            sort: guests::usual_sort(lens),
            ..TableState::default()
        };
        if let Some(names) = choices.columns.get(&lens) {
            let mut columns = Vec::new();
            for name in names {
                match guests::sort_by_name(name) {
                    Some(sort) => columns.push(sort.column),
                    None => unknown = unknown.or(Some(name.clone())),
                }
            }
            table.columns = Some(columns);
        }
        if let Some(name) = choices.sort.get(&lens) {
            match guests::sort_by_name(name.trim_start_matches('-')) {
                Some(sort) => {
                    table.sort = Some(Sort {
                        reversed: name.starts_with('-'),
                        ..sort
                    });
                }
                None => unknown = unknown.or(Some(name.clone())),
            }
        }
        state.other_lenses.insert(lens, table);
    }
    state.lens = choices.lens.unwrap_or_default();
    let table = state.other_lenses.remove(&state.lens).unwrap_or_default();
    state.tables.insert(TableId::Guests, table);
    unknown.map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::table::ColumnId;
    use serde::Deserialize;

    #[derive(Deserialize)]
    struct File {
        screen: ScreenChoices,
    }

    #[test]
    fn what_is_written_is_how_the_next_screen_begins() {
        let mut state = AppState {
            lens: Lens::Memory,
            ..AppState::default()
        };
        state.session.interval_s = 2.0;
        let mem = guests::sort_by_name("mem").unwrap();
        let table = state.tables.entry(TableId::Guests).or_default();
        table.columns = Some(vec![ColumnId(0), mem.column]);
        table.sort = Some(Sort {
            reversed: true,
            ..mem
        });
        let text = choices_of(&state).to_toml();
        assert_eq!(
            text,
            "[screen]\nlens = 'memory'\ninterval = 2.0\n[screen.columns]\nmemory = ['name', \
             'mem']\n[screen.sort]\nmemory = '-mem'\n"
        );
        let file: File = toml::from_str(&text).unwrap();
        let mut next = AppState::default();
        next.session.interval_s = 2.0;
        apply(&file.screen, &mut next).unwrap();
        assert_eq!(choices_of(&next), file.screen);

        let wrong = ScreenChoices {
            columns: [(Lens::Cpu, vec!["name".into(), "memmory".into()])].into(),
            ..ScreenChoices::default()
        };
        assert_eq!(apply(&wrong, &mut next), Err("memmory".into()));
        assert_eq!(next.table(TableId::Guests).columns, Some(vec![ColumnId(0)]));
    }
}
