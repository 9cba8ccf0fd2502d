//! What the files of a view hold.

use super::*;
use crate::ui::tests::{busy, press};
use crate::ui::theme::{Charset, Palette, Tone};
use crate::ui::view::ScreenView;
use serde_json::Value;

fn saved(state: &AppState, format: SaveFormat) -> String {
    view(state, &Theme::default(), format).unwrap().1
}

#[test]
fn a_file_is_named_after_host_view_and_time() {
    let mut state = busy(120, 40);
    let name = |s: &AppState, f| view(s, &Theme::default(), f).unwrap().0;
    assert_eq!(name(&state, SaveFormat::Svg), "kvmtop-kvm07-guests-20261121-140422.svg");
    press(&mut state, "3");
    assert_eq!(name(&state, SaveFormat::Csv), "kvmtop-kvm07-exits-20261121-140422.csv");
    assert!(view(&AppState::default(), &Theme::default(), SaveFormat::Json).is_none());
}

#[test]
fn the_picture_is_an_image_with_the_words_of_the_screen() {
    let state = busy(120, 40);
    let svg = saved(&state, SaveFormat::Svg);
    let document = roxmltree::Document::parse(&svg).unwrap();
    let words: Vec<&str> = document.descendants().filter(|n| n.has_tag_name("text")).filter_map(|n| n.text()).collect();
    assert!(words.iter().any(|w| w.contains("win10-2")) && words.iter().any(|w| w.contains("FINDINGS")), "{words:?}");
    assert_eq!(document.root_element().attribute("role"), Some("img"));
    let light = Theme::of(Palette::True, Tone::Light, Charset::Unicode);
    assert!(view(&state, &light, SaveFormat::Svg).unwrap().1.contains("fill=\"#ffffff\""));
}

#[test]
fn the_text_is_that_of_the_screen() {
    let state = busy(120, 40);
    let shown = crate::ui::tests::text(&crate::ui::tests::draw(&state, &Theme::default()));
    assert_eq!(saved(&state, SaveFormat::Text), shown);
}

#[test]
fn csv_has_the_figures_of_every_view_under_their_names() {
    let mut state = busy(120, 40);
    let mut csv = |key: &str| {
        press(&mut state, key);
        saved(&state, SaveFormat::Csv)
    };
    let guests = csv("1");
    assert!(guests.starts_with("name,findings,vcpus,cpu,"), "{guests}");
    assert_eq!(guests.lines().count(), 6);
    assert!(guests.contains("\r\nwin10-2,"), "{guests}");
    for (key, head) in [
        ("2", "domain,name"),
        ("3", "domain,kind"),
        ("4", "domain,space,address"),
        ("5", "cpu,"),
        ("6", "domain,"),
        ("9", "domain,rule,severity"),
        ("0", "name,"),
    ] {
        let rows = csv(key);
        let head = head.trim_end_matches(",name");
        assert!(rows.starts_with(head) && rows.lines().count() > 1, "{key}: {rows}");
        let columns = rows.lines().next().unwrap().split(',').count();
        assert!(columns > 1, "{rows}");
    }
}

#[test]
fn json_is_the_document_of_the_guests_in_the_view() {
    let mut state = busy(120, 40);
    let guests = |s: &AppState| {
        let document: Value = serde_json::from_str(&saved(s, SaveFormat::Json)).unwrap();
        assert_eq!(document["schema"], 1);
        document["domains"]
            .as_array()
            .unwrap()
            .iter()
            .map(|d| d["name"].as_str().unwrap().to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(guests(&state).len(), 5);
    press(&mut state, "/win<Enter>");
    assert_eq!(guests(&state), ["win10-2"]);
    press(&mut state, "<Esc>3");
    assert_eq!(guests(&state).len(), 1);
}

#[test]
fn hostile_names_break_neither_markup_nor_spreadsheet() {
    let mut state = busy(120, 40);
    let model = state.model.as_mut().unwrap();
    let facts = std::sync::Arc::make_mut(&mut model.domains[0].facts);
    facts.name.value = "=cmd|'/c calc'!A1,\"</text><script>alert(1)</script>\u{1b}[2J\u{202e}".into();
    state.settle();
    let svg = saved(&state, SaveFormat::Svg);
    let document = roxmltree::Document::parse(&svg).unwrap();
    assert!(document.descendants().all(|n| !n.has_tag_name("script")));
    assert!(!svg.contains(['\u{1b}', '\u{202e}']));
    let csv = saved(&state, SaveFormat::Csv);
    assert!(csv.contains("\"'=cmd|'/c calc'!A1,\"\"</text>"), "{csv}");
    state.view.show(ScreenView::Threads);
}
