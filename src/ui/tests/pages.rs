//! `docs/keys.md` and `docs/columns.md` are made from the tables that the screen uses. `make
//! accept` writes them.

use crate::ui::filter::TableFilter;
use crate::ui::keymap::{KEYMAP, When};
use crate::ui::table::TableId;
use crate::ui::views::guests::filter_fields;
use crate::ui::views::heads;
use std::fmt::Write as _;
use std::path::Path;

const KEYS: &str = "\
# The keys

This page is made from the table of keys (`src/ui/keymap.rs`), as are the screen's help (`?`) and its last line.

Pasted text goes into the filter or the time that is being typed. Elsewhere it is ignored: it is never keys.
";

const COLUMNS_HEAD: &str = "\
# The columns

This page is made from the tables of the screen (`src/ui/views`), as are their menus and the help. The names of the
columns of guests are those of filters; CSV files have the names of all
tables. JSON has the figures under the names of its schema ([json.md](json.md)), those of guests within a guest of
`domains[]`. Columns marked with * are hidden at first; the key `C` shows them.
";

const FILTER: &str = "
## Filters

`/` filters the list while you type, and `Esc` in the list shows all guests again. A word filters names: a part of one,
or a glob with `*`, `?` or `[`. A filter of columns compares:

```text
cpu>50 and name~win
exits>=10k and wait<5 and guest_os=linux
wait=-
```

- `=`, `!=`, `<`, `<=`, `>`, `>=` compare figures; `k`, `M`, `G`, `T` are powers of 1000, `KiB` to `TiB` of 1024. `=`
  takes what rounds to the figure as written: `exits=10k` takes 9,500 to 10,500.
- `=` and `!=` compare texts as a whole, or with a glob; `~` looks for a part. Case is ignored.
- `-` is a value that no source gave. No other comparison is true of it.
- All conditions have to be true.
- What is half typed changes nothing. `Enter` on what cannot be read says where it is wrong and leaves the filter that
  was before, as `Esc` does.
";

/// A cell of a Markdown table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
        .replace('<', "\\<")
        .replace('*', "\\*")
        .replace('[', "\\[")
}

fn keys() -> String {
    let mut out = KEYS.to_string();
    for (when, title) in When::ALL {
        let title = title.to_lowercase();
        let _ = writeln!(out, "\n## {}{}\n", title[..1].to_uppercase(), &title[1..]);
        let _ = writeln!(out, "| key | what it does |\n|---|---|");
        for b in KEYMAP.iter().filter(|b| b.when == when) {
            let keys: Vec<String> = b.keys.split(' ').map(|key| format!("`{key}`")).collect();
            let _ = writeln!(out, "| {} | {} |", keys.join(" "), cell(b.help));
        }
    }
    out
}

fn columns() -> String {
    let mut out = COLUMNS_HEAD.to_string();
    for table in TableId::ALL {
        let title = table.title();
        let _ = writeln!(out, "\n## {}{}\n", title[..1].to_uppercase(), &title[1..]);
        let _ = writeln!(
            out,
            "| header | name | in JSON | what it shows |\n|---|---|---|---|"
        );
        for head in heads(table) {
            let hidden = if head.is_hidden { " \\*" } else { "" };
            let fields = head.json.split(", ").filter(|f| !f.is_empty());
            let json: Vec<String> = fields.map(|f| format!("`{f}`")).collect();
            let json = if json.is_empty() {
                "-".into()
            } else {
                json.join(", ")
            };
            let _ = writeln!(
                out,
                "| {}{hidden} | `{}` | {json} | {} |",
                head.header,
                head.name,
                cell(head.help)
            );
        }
    }
    out + FILTER
}

fn is_current(name: &str, page: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("docs")
        .join(name);
    if std::env::var_os("KVMTOP_ACCEPT").is_some() {
        std::fs::write(&path, page).unwrap();
    }
    let current = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        current == page,
        "docs/{name} is not what src/ui makes of it: run `make accept`"
    );
}

#[test]
fn the_page_of_keys_is_current() {
    is_current("keys.md", &keys());
}

#[test]
fn the_page_of_columns_is_current() {
    is_current("columns.md", &columns());
}

#[test]
fn the_filters_of_the_page_can_be_read() {
    let block = FILTER
        .split("```text\n")
        .nth(1)
        .and_then(|rest| rest.split("```").next())
        .unwrap();
    for line in block.lines() {
        assert!(
            TableFilter::read(line, &filter_fields()).is_ok_and(|f| !f.is_empty()),
            "{line}"
        );
    }
}

/// The fields that the page names for guests are in the JSON of the screen.
#[test]
fn the_json_fields_of_the_page_exist() {
    use crate::ui::action::SaveFormat;
    let state = crate::ui::tests::busy(120, 40);
    let theme = crate::ui::theme::Theme::default();
    let (_, text) = crate::ui::export::view(&state, &theme, SaveFormat::Json).unwrap();
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    let guests = document["domains"].as_array().unwrap();
    let of_guests = heads(TableId::Guests);
    for path in of_guests
        .iter()
        .flat_map(|c| c.json.split([',', '+']))
        .map(str::trim)
        .filter(|p| !p.is_empty())
    {
        let has = |value: &serde_json::Value| {
            let parts = path.split('.');
            parts
                .fold(vec![value.clone()], |found, part| {
                    let key = part.trim_end_matches("[]");
                    let values = found.into_iter().filter_map(|v| v.get(key).cloned());
                    values
                        .flat_map(|v| {
                            if part.ends_with("[]") {
                                v.as_array().cloned().unwrap()
                            } else {
                                vec![v]
                            }
                        })
                        .collect()
                })
                .iter()
                .any(|v| !v.is_null())
        };
        assert!(guests.iter().any(has), "{path}");
    }
}
