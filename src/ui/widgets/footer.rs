//! The last line: keys, a message, or the text being typed.

use crate::ui::action::{Action as A, Replay as R};
use crate::ui::keymap::key_name;
use crate::ui::views::guests::filter_fields;
use crate::ui::{
    AppState, Canvas, Lens, Menu, Popup, Prompt, ScreenView, StyleId, clean, clean_line, filter,
    fit, fit_words, width,
};
use ratatui::layout::{Position, Rect};
use sample::{SourceId, SourceState};

/// An action and the word for it.
type Offer = (A, &'static str);

const LENSES: [Offer; 4] = [
    (A::Look(Lens::Cpu), "cpu"),
    (A::Look(Lens::Memory), "memory"),
    (A::Look(Lens::Disks), "disks"),
    (A::Look(Lens::Network), "network"),
];
const LIST: [Offer; 2] = [(A::Problem(1), "next"), (A::Filter, "filter")];
const VIEWS: [Offer; 4] = [
    (A::Show(ScreenView::Problems), "problems"),
    (A::Show(ScreenView::Host), "host"),
    (A::Show(ScreenView::Latency), "latency"),
    (A::Show(ScreenView::Sources), "sources"),
];
const OPEN: [Offer; 2] = [(A::Open, "open"), (A::Sort, "sort")];
const PAGE: [Offer; 6] = [
    (A::Back, "back"),
    (A::Turn(1), "section"),
    (A::Problem(1), "next problem"),
    (A::Copy, "copy fix"),
    (A::Guest(1), "guest"),
    (A::Sort, "sort"),
];
const GUESTS: [Offer; 1] = [(A::Show(ScreenView::Guests), "guests")];
const TABLES: [Offer; 2] = [(A::Sort, "sort"), (A::Columns, "columns")];
/// Those that act on a live host or on a recording.
const OUTWARD: [Offer; 3] = [
    (A::Pause, "pause"),
    (A::Record, "record"),
    (A::Replay(R::Step(-1)), "step back"),
];
/// On a live screen that is back in time.
const BACK: [Offer; 6] = [
    (A::Back, "now"),
    (A::Replay(R::Step(-1)), "back"),
    (A::Replay(R::Step(1)), "forward"),
    (A::Replay(R::Problem(false)), "previous problem"),
    (A::Goto, "time"),
    (A::Open, "open"),
];
const END: [Offer; 2] = [(A::Help, "help"), (A::Quit, "quit")];
const TEXT: [Offer; 3] = [
    (A::Down, "scroll"),
    (A::PageDown, "a page"),
    (A::Back, "close"),
];
const COLUMNS: [Offer; 5] = [
    (A::Toggle, "show/hide"),
    (A::MoveUp, "left"),
    (A::MoveDown, "right"),
    (A::Reset, "reset"),
    (A::Back, "close"),
];

/// Filters to begin with.
const FILTERS: &str =
    "such as web, cpu>50, mem>8GiB, disk>50M, drops>0, state=paused; Esc undoes it";

/// What works here, the most useful first; what is last stays where room is short.
fn offers(state: &AppState) -> Vec<Offer> {
    match (&state.popup, state.view) {
        (Some(Popup::Menu(Menu::Columns(_), _)), _) => COLUMNS.to_vec(),
        (Some(Popup::Menu(Menu::Sort(_), _)), _) => vec![(A::Open, "sort"), (A::Back, "close")],
        (Some(Popup::Menu(Menu::Save, _)), _) => vec![(A::Open, "write"), (A::Back, "close")],
        (Some(_), _) => TEXT.to_vec(),
        (None, _) if state.is_back => [&BACK[..], &VIEWS, &OUTWARD[1..2], &END].concat(),
        (None, ScreenView::Guests) if state.is_recorded() => {
            [&LENSES[..], &LIST, &OUTWARD, &VIEWS, &OPEN, &END].concat()
        }
        (None, ScreenView::Guests) => [&LENSES[..], &LIST, &VIEWS, &OPEN, &OUTWARD, &END].concat(),
        (None, ScreenView::Page) => [&PAGE[..], &OUTWARD, &END].concat(),
        (None, _) => [&GUESTS[..], &VIEWS, &TABLES, &OUTWARD, &END].concat(),
    }
}

/// Paints the line. Returns the position of the text cursor while text is typed.
pub fn paint(canvas: &mut Canvas, area: Rect, state: &AppState) -> Option<Position> {
    let Some(Popup::Input(prompt, input)) = &state.popup else {
        keys(canvas, area, state);
        return None;
    };
    let label = if matches!(prompt, Prompt::Time) {
        "go to time: "
    } else {
        "filter: "
    };
    let x = area.x + 1;
    canvas.put(x, area.y, label, area.width, StyleId::Key);
    let x = x + width(label);
    let room = area.right().saturating_sub(x + 1);
    let scroll = input.visual_scroll(room.into());
    let shown: String = clean(input.value()).chars().skip(scroll).collect();
    canvas.put(x, area.y, &shown, room, StyleId::Text);
    let (text, look) = hint(prompt, input.value());
    let after = x + width(&shown).min(room) + 2;
    let room_after = area.right().saturating_sub(after + 1);
    canvas.put(
        after,
        area.y,
        &fit(&text, room_after, canvas.theme.glyphs.cut),
        room_after,
        look,
    );
    let at = x + (input.visual_cursor().saturating_sub(scroll) as u16).min(room);
    Some(Position::new(at, area.y))
}

/// What is wrong with the text being typed, else what works, and the columns that could follow.
fn hint(prompt: &Prompt, typed: &str) -> (String, StyleId) {
    let names = filter::suggestions(typed, &filter_fields());
    match prompt {
        Prompt::Time => ("Enter goes there  Esc stays here".into(), StyleId::Dim),
        Prompt::Filter {
            error: Some(error), ..
        } if names.is_empty() => (clean(&error.to_string()), StyleId::Warning),
        Prompt::Filter { .. } if names.is_empty() => {
            ("Enter takes it  Esc undoes it".into(), StyleId::Dim)
        }
        Prompt::Filter { .. } if typed.is_empty() => (FILTERS.into(), StyleId::Dim),
        Prompt::Filter { .. } => (format!("columns: {}", names.join(" ")), StyleId::Dim),
    }
}

/// Paints the message, else the filter at the right end and keys before it.
fn keys(canvas: &mut Canvas, area: Rect, state: &AppState) {
    let mut x = area.x + 1;
    let cut = canvas.theme.glyphs.cut;
    if let Some(message) = &state.message {
        let room = area.width.saturating_sub(2);
        let text = fit_words(&clean_line(message), room, cut);
        canvas.put(x, area.y, &text, room, StyleId::Strong);
        return;
    }
    let mut right = area.right();
    if !state.list.filter.is_empty() {
        let filter = clean(state.list.filter.text());
        let text = format!("filter: {filter} ({} ends)", state.key_name(A::Back));
        let text = fit(&text, area.width / 2, cut);
        right = right.saturating_sub(width(&text) + 1);
        canvas.put(right, area.y, &text, width(&text), StyleId::Warning);
        right = right.saturating_sub(1);
    }
    let recorded = state.is_recorded();
    let mut keys = Vec::new();
    for (action, word) in offers(state) {
        if let Some(key) = key_name(action, recorded) {
            let is_current = action == A::Look(state.lens) || action == A::Show(state.view);
            keys.push((key, word, is_current));
        }
    }
    let widths = keys
        .iter()
        .map(|(key, word, _)| width(key) + width(word) + 3);
    let mut needed: u16 = widths.sum();
    while needed > right.saturating_sub(x) && keys.len() > END.len() {
        let (key, word, _) = keys.remove(keys.len() - 1 - END.len());
        needed -= width(key) + width(word) + 3;
    }
    for (key, word, is_current) in keys {
        let room = right.saturating_sub(x);
        let style = if is_current {
            StyleId::Strong
        } else {
            StyleId::Dim
        };
        canvas.put(x, area.y, key, room, StyleId::Key);
        x += width(key) + 1;
        let room = right.saturating_sub(x);
        canvas.put(x, area.y, word, room, style);
        x += width(word) + 2;
    }
}

/// Whether a recording is being written: the feed reports it as a source.
pub fn is_recording(state: &AppState) -> bool {
    let mut sources = state.newest_model().into_iter().flat_map(|m| &m.sources);
    sources.any(|s| s.id == SourceId::Recording && s.state != SourceState::Missing)
}
