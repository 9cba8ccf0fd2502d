//! The whole way of a recording, from its samples to all that is shown.

use crossterm::event::KeyCode;
use judge::analysis::{DomainFilter, JudgedInterval, Pipeline, SessionSummary};
use judge::lint;
use kvmtop::ui::{AppState, Charset, Palette, ScreenSession, Theme, Tone, key, paint};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use report::html::{TimelineBuilder, page};
use report::table::COLUMNS;
use report::{View, diff as comparison, diff_text, json, plan, text};
use serde_json::Value;
use session::Cursor;

const KEYS: [KeyCode; 16] = [
    KeyCode::Tab,
    KeyCode::Enter,
    KeyCode::Esc,
    KeyCode::Char('1'),
    KeyCode::Char('2'),
    KeyCode::Char('3'),
    KeyCode::Char('4'),
    KeyCode::Char('c'),
    KeyCode::Char('s'),
    KeyCode::Char('j'),
    KeyCode::Char('G'),
    KeyCode::Char('?'),
    KeyCode::Char('t'),
    KeyCode::Char('v'),
    KeyCode::Char('f'),
    KeyCode::Char(' '),
];

/// The intervals of a recording.
struct Intervals {
    each: Vec<JudgedInterval>,
    all: JudgedInterval,
}

fn judged(cursor: &mut Cursor) -> Intervals {
    let (mut summary, mut pipeline) = (
        SessionSummary::new(Pipeline::default()),
        Pipeline::default(),
    );
    let (mut each, mut next) = (Vec::new(), 0);
    while let Some((index, sample)) = cursor.readable_from(next) {
        next = index + 1;
        summary.add_watched(sample.clone(), cursor.begins_run(index), |_| {});
        each.push(pipeline.next_or_first(sample));
    }
    Intervals {
        each,
        all: summary.finish(),
    }
}

/// All that `report`, `diff`, the screen and the HTML page make of a recording.
pub fn show(cursor: &mut Cursor, size: (u16, u16), keys: &[u8]) {
    let intervals = judged(cursor);
    print(&intervals);
    compare(&intervals);
    draw(&intervals, size, keys);
    draw_page(&intervals);
}

fn print(intervals: &Intervals) {
    for interval in intervals.each.iter().rev().take(1).chain([&intervals.all]) {
        let domains = DomainFilter::default();
        let (text, json) = (
            text::report(&view(interval, &domains), COLUMNS),
            json::line(&view(interval, &domains)).unwrap(),
        );
        assert_plain(&text);
        let json: Value = serde_json::from_str(&json).unwrap();
        assert!(json["domains"].is_array());
        assert_plain_strings(&json);
        for source in &interval.model.sources {
            assert_plain(&source.sentence());
        }
    }
    let host = lint::plan(&intervals.all.model, &lint::Options::default());
    assert_plain(&plan::text(&host, &DomainFilter::default(), COLUMNS));
}

fn compare(intervals: &Intervals) {
    let domains = DomainFilter::default();
    let view = |i| view(i, &domains);
    let (before, after) = (
        view(&intervals.all),
        intervals.each.last().map_or(view(&intervals.all), view),
    );
    let diff = comparison::compare(&before, &after);
    assert_plain(&diff_text::text(&diff, COLUMNS));
    assert_plain(&text::interval(&after, &[], COLUMNS));
    assert_plain_strings(&serde_json::from_str(&json::text(&diff).unwrap()).unwrap());
}

fn draw(intervals: &Intervals, size: (u16, u16), keys: &[u8]) {
    let mut state = AppState::new(ScreenSession::default(), size);
    let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).unwrap();
    let theme = Theme::new(Palette::None, Tone::Dark, Charset::Unicode);
    let mut draw = |state: &AppState| {
        let drawn = terminal
            .draw(|frame| _ = paint(frame.buffer_mut(), state, &theme))
            .unwrap();
        drawn
            .buffer
            .content
            .iter()
            .for_each(|cell| assert_plain(cell.symbol()));
    };
    for interval in &intervals.each {
        state.absorb(interval.clone().into());
    }
    draw(&state);
    for key_at in keys {
        key(&mut state, KEYS[usize::from(key_at % 16)].into());
        draw(&state);
    }
}

fn view<'a>(interval: &'a JudgedInterval, domains: &'a DomainFilter) -> View<'a> {
    View {
        model: &interval.model,
        findings: &interval.report,
        source: "session",
        filter: domains,
    }
}

fn draw_page(intervals: &Intervals) {
    let mut timeline = TimelineBuilder::new(DomainFilter::default());
    intervals
        .each
        .iter()
        .for_each(|interval| timeline.add(interval));
    let page = page(
        &view(&intervals.all, &DomainFilter::default()),
        timeline,
        "forged",
    )
    .unwrap();
    assert!(page.html.ends_with("</html>\n"));
}

/// Asserts that nothing in a text acts on a terminal, reorders the text around it, or is invisible.
fn assert_plain(text: &str) {
    let hidden = |c: &char| match c {
        '\n' => false,
        '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        '\u{fe0f}' | '\u{e0000}'..='\u{e007f}' => true,
        c => c.is_control(),
    };
    assert_eq!(text.chars().find(hidden), None, "{text:?}");
}

fn assert_plain_strings(value: &Value) {
    match value {
        // JSON writes a tab as two characters.
        Value::String(text) => assert_plain(&text.replace('\t', " ")),
        Value::Array(list) => list.iter().for_each(assert_plain_strings),
        Value::Object(fields) => fields.iter().for_each(|(name, value)| {
            assert_plain(&name.replace('\t', " "));
            assert_plain_strings(value);
        }),
        _ => {}
    }
}
