//! The picture of waits for a CPU over the last minute: a column is an interval, short waits are at the bottom.

use super::missing;
use super::section::{Picture, Section, SectionId};
use crate::ui::action::Action;
use crate::ui::state::AppState;
use crate::ui::text::clean;
use crate::ui::theme::{StyleId, Theme};
use crate::ui::widgets::draw::put;
use judge::figures::{count, figure, seconds};
use judge::model::{DomainModel, HISTORY_POINTS, WAIT_BANDS, WaitBands, band_from_us};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use sample::{EngineKind, EngineLevel, SourceId};

/// Width of the scale.
const SCALE: u16 = 7;
/// Intervals by which the picture moves at once: a moving picture is most of what a terminal is sent.
const STEP: usize = 10;
/// The first band of waits that a guest notices: from 2 ms on.
const LONG: usize = 6;

struct HeatMap<'a> {
    state: &'a AppState,
    guests: Vec<&'a DomainModel>,
}

/// The section: of the selected guest, or of all guests.
pub fn section(state: &AppState) -> Section<'_> {
    let (id, title) = (SectionId::HeatMap, "waits for a CPU");
    let engine = state.model.as_ref().map(|m| (m.engine.kind, m.engine.level));
    if !matches!(engine, Some((EngineKind::Bpf | EngineKind::Perf, EngineLevel::Full))) {
        let key = state.key_name(Action::EngineLevel);
        let nothing = format!("not measured: that needs full tracing (key {key} on a live host)");
        return Section::folded(id, title, missing::because(state, &nothing, &[SourceId::Tracepoints]));
    }
    let guests = state.domain().map_or_else(|| state.guests(), |domain| vec![domain]);
    let whose = match guests[..] {
        [guest] => clean(guest.name()),
        _ => count(guests.len(), "guest"),
    };
    // A paused screen shows the past.
    let paused = state.held.as_ref().zip(state.model.as_ref());
    let age = paused.map(|(held, shown)| seconds((held.tick.model.time_ms - shown.time_ms) as f64 / 1e3) + " ago");
    let right = format!("newest column: {}", age.unwrap_or_else(|| "now".into()));
    Section::picture(id, title, HeatMap { state, guests }).with_note(whose).with_right(right)
}

impl HeatMap<'_> {
    /// The waits of the last intervals, newest first. The newest points of all guests belong to the same interval.
    fn intervals(&self, room: usize) -> Vec<WaitBands> {
        let mut intervals: Vec<WaitBands> = Vec::new();
        for domain in &self.guests {
            for (n, point) in self.state.history.points(Some(domain)).rev().take(room).enumerate() {
                if n == intervals.len() {
                    intervals.push(WaitBands::default());
                }
                for (sum, n) in intervals[n].iter_mut().zip(point.waits.unwrap_or_default()) {
                    *sum = sum.saturating_add(n);
                }
            }
        }
        intervals
    }
}

impl Picture for HeatMap<'_> {
    fn height(&self) -> u16 {
        WAIT_BANDS as u16 + 1
    }

    fn paint(&self, buf: &mut Buffer, area: Rect, theme: &Theme) {
        let dim = theme.style(StyleId::Dim);
        let each = (area.width.saturating_sub(SCALE + 1) / HISTORY_POINTS as u16).clamp(1, 3);
        let room = usize::from(area.width.saturating_sub(SCALE + 1) / each).min(HISTORY_POINTS);
        // Until the picture moves there is room for the next intervals.
        let seen = self.state.history.intervals();
        let room = room.saturating_sub(seen.next_multiple_of(STEP) - seen);
        let intervals = self.intervals(room);
        let most = intervals.iter().flatten().max().copied().unwrap_or(0);
        for band in 0..WAIT_BANDS {
            let y = area.y + (WAIT_BANDS - 1 - band) as u16;
            put(buf, area.x, y, &format!("{:>6}", from(band)), SCALE, dim);
            let style = theme.style(if band >= LONG { StyleId::Wait } else { StyleId::Info });
            for (n, bands) in intervals.iter().enumerate().filter(|(_, bands)| bands[band] > 0) {
                let x = area.x + SCALE + (room - 1 - n) as u16 * each;
                let share = (f64::from(bands[band]).ln() + 1.0) / (f64::from(most).ln() + 1.0);
                put(buf, x, y, &theme.shade(share).to_string().repeat(each.into()), each, style);
            }
        }
        let [light, .., dark] = theme.glyphs.shades;
        let shades = match most {
            0 => "no wait was measured".into(),
            _ => format!("shade: {light} few to {dark} {} waits", figure(most.into())),
        };
        let legend = format!("row: waits from that long on   column: an interval   {shades}");
        put(buf, area.x + 1, area.bottom() - 1, &legend, area.width.saturating_sub(1), dim);
    }
}

/// Where a band begins; the bands are powers of two, so a millisecond stands for 1,024 microseconds.
fn from(band: usize) -> String {
    let us = band_from_us(band) / 1.024;
    if us < 1000.0 { format!("{us:.0}us") } else { format!("{:.0}ms", us / 1000.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::ui::state::{Held, Tick};
    use crate::ui::tests::{draw, model, press, screen, text};
    use judge::model::History;
    use testkit::{Fixture, Guest, Host};

    fn state() -> AppState {
        let guest = |name: &str, pid, us| {
            Guest::new(name, pid).vcpus(2, move |_, t| t.on(0).cpu(40.0, 1.0, 1.0, 5.0).wakes(50.0, us))
        };
        let f = Fixture::new(Host::numa(1, 2, 1)).guest(guest("quick", 1, 20.0)).guest(guest("slow", 9, 9000.0));
        let mut state = screen(&f, 80, 24);
        press(&mut state, "3");
        state
    }

    fn shown(state: &AppState) -> String {
        text(&draw(state, &Theme::default())).lines().take(12).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn waits_are_those_of_the_selected_guest_or_of_all() {
        let state = state();
        let map = HeatMap { state: &state, guests: state.guests() };
        let all = map.intervals(100);
        assert_eq!((all.len(), all[0].iter().sum::<u32>()), (HISTORY_POINTS, 200));
        let of = |at: usize| HeatMap { state: &state, guests: vec![&model(&state).domains[at]] }.intervals(7);
        assert_eq!((of(0).len(), of(0)[0].iter().sum::<u32>(), of(0)[0][2]), (7, 100, 98));
        assert_eq!(of(1)[0][WAIT_BANDS - 2..].iter().sum::<u32>(), 100);
        let shown = shown(&state);
        assert!(
            shown.contains("waits for a CPU  quick") && shown.contains(" 8us █") && shown.contains("98 wait"),
            "{shown}"
        );
    }

    #[test]
    fn a_paused_screen_says_how_old_the_picture_is() {
        let mut state = state();
        assert!(shown(&state).contains("newest column: now"));
        let mut model = model(&state).clone();
        model.time_ms += 35_000;
        state.held = Some(Box::new(Held { tick: Tick { model, ..Tick::default() }, history: History::default() }));
        assert!(shown(&state).contains("newest column: 35 s ago"), "{}", shown(&state));
    }

    #[test]
    fn without_traced_waits_it_says_what_is_needed() {
        let mut state = state();
        state.model.as_mut().unwrap().engine.level = EngineLevel::None;
        assert!(shown(&state).contains("that needs full tracing"), "{}", shown(&state));
    }

    #[test]
    fn the_scale_has_round_labels() {
        assert_eq!([0, 1, 2, 5, 6, 7].map(from), ["0us", "2us", "8us", "512us", "2ms", "8ms"]);
    }
}
