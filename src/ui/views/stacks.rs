//! Stacks of a guest's threads: the functions that took most time, and who called them.

use crate::ui::state::AppState;
use crate::ui::text::{clean, clean_line, wrap};
use crate::ui::theme::{StyleId, Theme};
use crate::ui::widgets::{StyledLine, header, paint_line, title};
use judge::model::{DomainModel, GuestId, GuestProfile};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use report::profile;

/// Whose stacks are shown.
#[derive(Debug, Clone)]
pub struct StacksShown {
    /// The guest.
    pub guest: GuestId,
    /// Its thread; `None` for all.
    pub tid: Option<i32>,
    /// When they were asked for, milliseconds since the epoch: older ones are not shown. `None` in a recording.
    pub asked_ms: Option<i64>,
}

impl StacksShown {
    fn domain<'a>(&self, state: &'a AppState) -> Option<&'a DomainModel> {
        state.model.as_ref()?.domains.iter().find(|d| d.key() == self.guest)
    }

    fn profile<'a>(&self, domain: &'a DomainModel) -> Option<&'a GuestProfile> {
        domain.profile.as_ref().filter(|p| self.asked_ms.is_none_or(|ms| p.stacks.began_ms >= ms))
    }
}

/// All of the text.
pub fn lines(shown: &StacksShown, state: &AppState) -> Vec<StyledLine> {
    let columns = state.size.0.saturating_sub(2);
    let sentence = |text: &str, look| wrap(text, columns).into_iter().map(move |line| vec![(line, look)]);
    let Some(domain) = shown.domain(state) else {
        return sentence("The guest is gone.", StyleId::Dim).collect();
    };
    let Some(GuestProfile { stacks, .. }) = shown.profile(domain) else {
        let text = match shown.asked_ms {
            Some(_) => "Sampling for 2 s what runs on the CPU. The result comes with the sample after that.",
            None => {
                "No stacks of this guest were recorded up to here. They are when a live screen that records samples \
                 them; the key for the next mark goes to where they are."
            }
        };
        return sentence(text, StyleId::Dim).collect();
    };
    // A recorded profile may be of other threads than the selected one.
    let tid = shown.tid.filter(|tid| stacks.has(*tid));
    let gaps = stacks.gaps.iter().flat_map(|gap| sentence(&clean_line(gap), StyleId::Warning));
    if stacks.is_refused() {
        return gaps.collect();
    }
    let mut lines: Vec<StyledLine> = sentence(&profile::summary(stacks, tid), StyleId::Text).collect();
    lines.extend(gaps);
    for line in profile::body(stacks, tid).lines() {
        // Headings begin at the margin, headers of tables are the lines below them.
        let is_heading = !line.starts_with(' ') || line.trim_start().starts_with("SELF %");
        let look = if is_heading || line.trim_start().starts_with("THREAD") { StyleId::Head } else { StyleId::Text };
        lines.push(vec![(clean_line(line), look)]);
    }
    lines
}

/// Paints them in place of a view.
pub fn paint(buf: &mut Buffer, area: Rect, shown: &StacksShown, scroll: u16, state: &AppState, theme: &Theme) {
    let domain = shown.domain(state);
    let thread = domain.and_then(|d| d.threads.iter().find(|t| Some(t.tid) == shown.tid));
    let whose = thread.map_or_else(|| "all threads".to_owned(), |t| clean(&t.label()));
    let when = domain.and_then(|d| shown.profile(d)).map(|p| header::clock(p.stacks.began_ms, state));
    let name = domain.map(|d| clean(d.name()));
    let left = [name, Some(whose), when].into_iter().flatten().collect::<Vec<_>>().join("  ");
    let lines = lines(shown, state);
    let room = usize::from(area.height.saturating_sub(1));
    let top = usize::from(scroll).min(lines.len().saturating_sub(room));
    let part =
        if lines.len() > room { format!("lines {}-{} of {}", top + 1, top + room, lines.len()) } else { String::new() };
    title(buf, Rect { height: 1, ..area }, "stacks", &left, &part, theme);
    for (line, n) in lines[top..].iter().take(room).zip(1..) {
        paint_line(buf, Rect { x: area.x + 1, y: area.y + n, width: area.width - 1, height: 1 }, line, theme);
    }
}
