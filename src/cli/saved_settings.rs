//! The config file's text with the screen's settings in it. All else in it stays: comments, order, other sections.

use crate::ui::{ColumnId, ScreenSettings, Sort, column_name};
use toml_edit::{Array, DocumentMut, Item, Table, value};

/// The text of a config file with these settings.
///
/// # Errors
/// When the text is not TOML, or `screen` in it is not a table.
pub fn with_settings(text: &str, settings: &ScreenSettings) -> anyhow::Result<String> {
    let mut document: DocumentMut = text.parse()?;
    let screen = document.entry("screen").or_insert(Item::Table(Table::new()));
    let screen = screen.as_table_like_mut().ok_or_else(|| anyhow::anyhow!("'screen' is no section there"))?;
    let mut set = |key: &str, new: Option<Item>| {
        let Some(mut new) = new else { return drop(screen.remove(key)) };
        // Comments around the old value stay.
        let decor = screen.get(key).and_then(Item::as_value).map(|v| v.decor().clone());
        if let (Some(value), Some(decor)) = (new.as_value_mut(), decor) {
            *value.decor_mut() = decor;
        }
        match screen.get_mut(key) {
            Some(old) => *old = new,
            None => drop(screen.insert(key, new)),
        }
    };
    let sort = |sort: Sort| format!("{}{}", if sort.reversed { "-" } else { "" }, column_name(sort.column));
    let columns = |ids: &Vec<ColumnId>| ids.iter().map(|id| column_name(*id)).collect::<Array>();
    set("theme", Some(value(settings.theme.name())));
    set("mouse", Some(value(settings.mouse)));
    set("view", Some(value(settings.view.name())));
    set("sort", settings.sort.map(|s| value(sort(s))));
    set("columns", settings.columns.as_ref().map(|ids| value(columns(ids))));
    Ok(document.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Settings;
    use crate::cli::args::ChoiceArgs;
    use crate::cli::config::Config;
    use crate::ui::{ScreenView, ThemeChoice, column_with_name};
    use std::path::Path;

    fn settings() -> ScreenSettings {
        ScreenSettings {
            theme: ThemeChoice::Light,
            mouse: true,
            view: ScreenView::Latency,
            sort: Some(Sort { column: column_with_name("wait").unwrap(), reversed: true }),
            columns: Some(vec![ColumnId(0), column_with_name("wait").unwrap()]),
        }
    }

    fn read(text: &str) -> ScreenSettings {
        let config = Config::parse(text, Path::new("config.toml")).unwrap();
        Settings::new(&config, None, &ChoiceArgs::default(), None, false).screen
    }

    #[test]
    fn what_is_saved_is_read_again() {
        let sample = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/assets/kvmtop.toml"));
        for text in ["", "[sampling]\ninterval = 2\n", sample, "screen = { ascii = true }\n"] {
            assert_eq!(read(&with_settings(text, &settings()).unwrap()), settings(), "{text}");
        }
        let both = with_settings(&with_settings(sample, &settings()).unwrap(), &ScreenSettings::default()).unwrap();
        assert_eq!(read(&both), ScreenSettings::default());
    }

    #[test]
    fn comments_order_and_other_settings_stay() {
        let text = "# mine\n[screen]\n# warm\ntheme = \"dark\" # at night\nascii = true\n\n\
                    [record]\nmax_age = \"7d\" # a week\n";
        let saved = with_settings(text, &settings()).unwrap();
        let begin = "# mine\n[screen]\n# warm\ntheme = \"light\" # at night\nascii = true\n";
        assert!(saved.starts_with(begin), "{saved}");
        assert!(saved.ends_with("\n[record]\nmax_age = \"7d\" # a week\n"), "{saved}");
        assert!(saved.contains("columns = [\"name\", \"wait\"]\n"), "{saved}");
    }

    #[test]
    fn a_file_that_cannot_be_changed_is_an_error() {
        assert!(with_settings("[screen\n", &settings()).is_err());
        assert!(with_settings("screen = 3\n", &settings()).unwrap_err().to_string().contains("no section"));
    }
}
