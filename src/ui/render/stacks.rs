//! Stacks of a guest's threads: the functions that took most time, and who called them.

use super::header;
use super::popup::StyledLine;
use super::scrolled;
use crate::ui::state::AppState;
use crate::ui::text::{clean, clean_line, wrap};
use crate::ui::theme::{Look, Theme};
use judge::model::{DomainModel, GuestId, GuestProfile};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use report::profile;

/// Whose stacks are shown.
#[derive(Debug, Clone, Copy)]
pub struct StacksShown<'a> {
    /// The guest.
    pub guest: &'a GuestId,
    /// Its thread; `None` for all.
    pub tid: Option<i32>,
    /// When they were asked for; older ones are not shown.
    pub asked_ms: Option<i64>,
}

impl StacksShown<'_> {
    fn domain<'a>(&self, state: &'a AppState) -> Option<&'a DomainModel> {
        state.model.as_ref()?.domains.iter().find(|d| d.key() == *self.guest)
    }

    fn profile<'a>(&self, domain: &'a DomainModel) -> Option<&'a GuestProfile> {
        domain.profile.as_ref().filter(|p| self.asked_ms.is_none_or(|ms| p.stacks.began_ms >= ms))
    }
}

/// All of the text.
pub fn lines(shown: StacksShown<'_>, state: &AppState) -> Vec<StyledLine> {
    let columns = state.size.0.saturating_sub(2);
    let sentence = |text: &str, look| wrap(text, columns).into_iter().map(move |line| vec![(line, look)]);
    let Some(domain) = shown.domain(state) else {
        return sentence("The guest is gone.", Look::Dim).collect();
    };
    let Some(GuestProfile { stacks, .. }) = shown.profile(domain) else {
        let text = match shown.asked_ms {
            Some(_) => "Sampling for 2 s what runs on the CPU. The result comes with the sample after that.",
            None => {
                "No stacks of this guest were recorded up to here. They are when a live screen that records samples \
                 them; the key for the next mark goes to where they are."
            }
        };
        return sentence(text, Look::Dim).collect();
    };
    // A recorded profile may be of other threads than the selected one.
    let tid = shown.tid.filter(|tid| stacks.has(*tid));
    let gaps = stacks.gaps.iter().flat_map(|gap| sentence(&clean_line(gap), Look::Warning));
    if stacks.is_refused() {
        return gaps.collect();
    }
    let mut lines: Vec<StyledLine> = sentence(&profile::summary(stacks, tid), Look::Text).collect();
    lines.extend(gaps);
    for line in profile::body(stacks, tid).lines() {
        // Headings begin at the margin, headers of tables are the lines below them.
        let is_heading = !line.starts_with(' ') || line.trim_start().starts_with("SELF %");
        let look = if is_heading || line.trim_start().starts_with("THREAD") { Look::Head } else { Look::Text };
        lines.push(vec![(clean_line(line), look)]);
    }
    lines
}

/// Paints them in place of a view.
pub fn paint(buf: &mut Buffer, area: Rect, shown: StacksShown<'_>, scroll: u16, state: &AppState, theme: &Theme) {
    let domain = shown.domain(state);
    let thread = domain.and_then(|d| d.threads.iter().find(|t| Some(t.tid) == shown.tid));
    let whose = thread.map_or_else(|| "all threads".to_owned(), |t| clean(&t.label()));
    let when = domain.and_then(|d| shown.profile(d)).map(|p| header::clock(p.stacks.began_ms, state));
    let name = domain.map(|d| clean(d.name()));
    let left = [name, Some(whose), when].into_iter().flatten().collect::<Vec<_>>().join("  ");
    scrolled::page(buf, area, "STACKS", &left, &lines(shown, state), scroll, theme);
}
