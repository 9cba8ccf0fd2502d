//! What the user chose for the list of guests, as the config file keeps it: written by a key, and
//! the way the next live screen begins.

use super::lens::Lens;
use super::state::AppState;
use super::table::{Sort, TableId, TableState};
use super::views::guests;
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The section `[screen]` of the config file.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ScreenChoices {
    /// The lens.
    pub lens: Option<Lens>,
    /// Seconds between samples of a live screen, 0.1 to 60.
    #[serde(deserialize_with = "interval")]
    pub interval: Option<f64>,
    /// Names of the list's columns in each lens, left to right.
    pub columns: BTreeMap<Lens, Vec<String>>,
    /// The column that the list is sorted by in each lens; `-` before its name reverses the order.
    pub sort: BTreeMap<Lens, String>,
}

fn interval<'de, D: Deserializer<'de>>(d: D) -> Result<Option<f64>, D::Error> {
    let seconds = f64::deserialize(d)?;
    if (0.1..=60.0).contains(&seconds) {
        Ok(Some(seconds))
    } else {
        Err(Error::custom("the interval is seconds from 0.1 to 60"))
    }
}

impl ScreenChoices {
    /// The choices on a screen.
    pub fn of(state: &AppState) -> Self {
        let mut choices = Self {
            lens: Some(state.lens),
            interval: Some(state.session.interval_s),
            ..Self::default()
        };
        choices.add(state.lens, state.table(TableId::Guests));
        for (lens, table) in &state.other_lenses {
            choices.add(*lens, table);
        }
        choices
    }

    fn add(&mut self, lens: Lens, table: &TableState) {
        if let Some(columns) = &table.columns {
            let names = columns.iter().map(|id| guests::column_name(*id).to_owned());
            self.columns.insert(lens, names.collect());
        }
        let usual = lens.sorted_by().and_then(guests::sort_by_name);
        if let Some(Sort { column, reversed }) = table.sort.filter(|sort| Some(*sort) != usual) {
            let sign = if reversed { "-" } else { "" };
            let name = guests::column_name(column);
            self.sort.insert(lens, format!("{sign}{name}"));
        }
    }

    /// Makes them those of a screen that begins. What is no column is passed over; `Err` names it.
    ///
    /// # Errors
    /// The first name of no column.
    pub fn apply(&self, state: &mut AppState) -> Result<(), String> {
        let mut unknown = None;
        for lens in Lens::ALL {
            let mut table = TableState {
                sort: lens.sorted_by().and_then(guests::sort_by_name),
                ..TableState::default()
            };
            if let Some(names) = self.columns.get(&lens) {
                let mut columns = Vec::new();
                for name in names {
                    match guests::sort_by_name(name) {
                        Some(sort) => columns.push(sort.column),
                        None => unknown = unknown.or(Some(name.clone())),
                    }
                }
                table.columns = Some(columns);
            }
            if let Some(name) = self.sort.get(&lens) {
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
        state.lens = self.lens.unwrap_or_default();
        let table = state.other_lenses.remove(&state.lens).unwrap_or_default();
        state.tables.insert(TableId::Guests, table);
        unknown.map_or(Ok(()), Err)
    }

    /// The section as text.
    pub fn to_toml(&self) -> String {
        let mut text = String::from("[screen]\n");
        if let Some(lens) = self.lens {
            _ = writeln!(text, "lens = '{}'", lens.name());
        }
        if let Some(seconds) = self.interval {
            _ = writeln!(text, "interval = {seconds:?}");
        }
        if !self.columns.is_empty() {
            text.push_str("[screen.columns]\n");
        }
        for (lens, names) in &self.columns {
            _ = writeln!(text, "{} = ['{}']", lens.name(), names.join("', '"));
        }
        if !self.sort.is_empty() {
            text.push_str("[screen.sort]\n");
        }
        for (lens, name) in &self.sort {
            _ = writeln!(text, "{} = '{name}'", lens.name());
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::table::ColumnId;

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
        let text = ScreenChoices::of(&state).to_toml();
        assert_eq!(
            text,
            "[screen]\nlens = 'memory'\ninterval = 2.0\n[screen.columns]\nmemory = ['name', \
             'mem']\n[screen.sort]\nmemory = '-mem'\n"
        );
        let file = crate::cli::config::Config::parse(&text, "f".as_ref()).unwrap();
        let mut next = AppState::default();
        next.session.interval_s = 2.0;
        file.screen.apply(&mut next).unwrap();
        assert_eq!(ScreenChoices::of(&next), file.screen);

        let wrong = ScreenChoices {
            columns: [(Lens::Cpu, vec!["name".into(), "memmory".into()])].into(),
            ..ScreenChoices::default()
        };
        assert_eq!(wrong.apply(&mut next), Err("memmory".into()));
        assert_eq!(next.table(TableId::Guests).columns, Some(vec![ColumnId(0)]));
    }
}
