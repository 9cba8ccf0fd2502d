//! Recordings: as damaged files, and as whole files that hold samples no host has, all the way to what is shown.

use super::readers::with_file;
use kvmtop::analysis::{DomainFilter, JudgedInterval, Pipeline, SessionSummary};
use kvmtop::lint;
use kvmtop::report::html::{TimelineBuilder, page};
use kvmtop::report::{View, diff as comparison, diff_text, json, plan, text};
use kvmtop::session::{Cursor, Session};
use kvmtop::ui::{AppState, Palette, ScreenSession, Theme, key, render};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::KeyCode;
use serde_json::Value;
use std::fs::File;

/// Stands between the samples of an input, so that each may change its length.
pub const BETWEEN: &[u8] = b"\xffsample\xff";
const SIZES: [(u16, u16); 4] = [(80, 24), (200, 60), (40, 10), (1, 1)];
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

fn opened(bytes: &[u8]) -> Option<Cursor> {
    with_file(bytes, |path| Some(Session::from_file(File::open(path).ok()?, path).ok()?.cursor()))
}

/// Any bytes as a recording: every sample, and every way to look for one.
pub fn open(input: &[u8]) {
    let Some(mut cursor) = opened(input) else { return };
    for time in [i64::MIN, 0, i64::MAX] {
        let _ = (cursor.index_at(time), cursor.index_from(time), cursor.runs(), cursor.session().damage());
    }
    let mut next = 0;
    while let Some((index, _)) = cursor.readable_from(next) {
        next = index + 1;
    }
}

/// A recording of these uncompressed samples, as `docs/session-format.md` says. Raw blocks (RFC 8878, 3.1.1.2.2) save
/// the time of a compressor.
pub fn recording(samples: &[u8]) -> Vec<u8> {
    let mut file = b"\x89KVMTOP\n\x01\0\0\0".to_vec();
    file.extend(crc32fast::hash(&file).to_le_bytes());
    let mut rest = samples;
    for number in 0_u32.. {
        let end = rest.windows(BETWEEN.len()).position(|w| w == BETWEEN);
        let (sample, after) = end.map_or((rest, None), |at| (&rest[..at], Some(&rest[at + BETWEEN.len()..])));
        let mut payload = Vec::new();
        if number == 0 {
            payload.extend(b"KVMTOPsg\x01");
        }
        payload.extend(number.to_le_bytes());
        payload.extend((1_700_000_000_000 + 1000 * i64::from(number)).to_le_bytes());
        if number == 0 {
            // A zstd frame without size and checksum, its window 2^21 bytes.
            payload.extend([0x28, 0xb5, 0x2f, 0xfd, 0, 0x58]);
        }
        for block in sample.chunks(1 << 17) {
            payload.extend(&((block.len() as u32) << 3).to_le_bytes()[..3]);
            payload.extend(block);
        }
        let mut head = vec![if number == 0 { 2 } else { 3 }];
        head.extend(&(payload.len() as u32).to_le_bytes()[..3]);
        let mut crc = crc32fast::Hasher::new();
        crc.update(&head);
        crc.update(&payload);
        file.extend(head);
        file.extend(crc.finalize().to_le_bytes());
        file.extend(payload);
        match after {
            Some(after) => rest = after,
            None => break,
        }
    }
    file
}

/// The intervals of a recording.
struct Intervals {
    each: Vec<JudgedInterval>,
    all: JudgedInterval,
}

fn intervals(samples: &[u8]) -> Option<Intervals> {
    Some(judged(&mut opened(&recording(samples))?)).filter(|i| !i.each.is_empty())
}

/// How many intervals these samples make.
pub fn count(samples: &[u8]) -> usize {
    intervals(samples).map_or(0, |i| i.each.len())
}

fn judged(cursor: &mut Cursor) -> Intervals {
    let (mut summary, mut pipeline) = (SessionSummary::new(Pipeline::default()), Pipeline::default());
    let (mut each, mut next) = (Vec::new(), 0);
    while let Some((index, sample)) = cursor.readable_from(next) {
        next = index + 1;
        summary.add(sample.clone(), cursor.begins_run(index));
        each.push(pipeline.next_or_first(sample));
    }
    Intervals { each, all: summary.finish() }
}

/// All that `report`, `diff`, the screen and the HTML page make of a recording.
pub fn show(cursor: &mut Cursor, size: (u16, u16), keys: &[u8]) {
    let intervals = judged(cursor);
    print(&intervals);
    compare(&intervals);
    draw(&intervals, size, keys);
}

fn print(intervals: &Intervals) {
    for interval in intervals.each.iter().rev().take(1).chain([&intervals.all]) {
        let (text, json) = super::readers::print(interval, "session");
        assert_plain(&text);
        let json: Value = serde_json::from_str(&json).expect("JSON");
        assert!(json["domains"].is_array());
        assert_plain_strings(&json);
        for source in &interval.model.sources {
            assert_plain(&source.sentence());
        }
    }
    let host = lint::plan(&intervals.all.model, &lint::Options::default());
    assert_plain(&plan::text(&host, &DomainFilter::default()));
}

fn compare(intervals: &Intervals) {
    let domains = DomainFilter::default();
    let view = |i| view(i, &domains);
    let (before, after) = (view(&intervals.all), intervals.each.last().map_or(view(&intervals.all), view));
    let diff = comparison::compare(&before, &after);
    assert_plain(&diff_text::text(&diff));
    assert_plain(&text::interval(&after, &[]));
    assert_plain_strings(&serde_json::from_str(&json::text(&diff).expect("JSON")).expect("JSON"));
}

fn draw(intervals: &Intervals, size: (u16, u16), keys: &[u8]) {
    let mut state = AppState::new(ScreenSession::default(), size);
    let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).expect("a terminal in memory");
    let theme = Theme::new(Palette::None, false);
    let mut draw = |state: &AppState| {
        let drawn = terminal.draw(|frame| render(frame, state, &theme)).expect("memory takes all");
        drawn.buffer.content.iter().for_each(|cell| assert_plain(cell.symbol()));
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
    View { model: &interval.model, findings: &interval.report, source: "session", domains }
}

/// Samples to the report as text and as JSON, and the plan.
pub fn report(samples: &[u8]) {
    if let Some(intervals) = intervals(samples) {
        print(&intervals);
    }
}

/// Samples to a comparison.
pub fn diff(samples: &[u8]) {
    if let Some(intervals) = intervals(samples) {
        compare(&intervals);
    }
}

/// Samples to the screen. The first bytes are its size and keys.
pub fn screen(input: &[u8]) {
    let Some((choice, samples)) = input.split_at_checked(4) else { return };
    if let Some(intervals) = intervals(samples) {
        draw(&intervals, SIZES[usize::from(choice[0] % 4)], &choice[1..]);
    }
}

/// Samples to the HTML page.
pub fn html(samples: &[u8]) {
    let Some(intervals) = intervals(samples) else { return };
    let mut timeline = TimelineBuilder::new(DomainFilter::default());
    intervals.each.iter().for_each(|interval| timeline.add(interval));
    let page = page(&view(&intervals.all, &DomainFilter::default()), timeline, "fuzz").expect("JSON");
    assert!(page.html.ends_with("</html>\n"));
}

/// Nothing in a text acts on a terminal, reorders what stands around it, or is invisible.
///
/// # Panics
/// If something does.
pub fn assert_plain(text: &str) {
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
