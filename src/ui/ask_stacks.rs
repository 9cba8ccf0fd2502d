//! Stacks of threads: whose a key asks for. Pure.

use super::action::{Action, Control, Effect, ProfileRequest};
use super::state::{AppState, Popup};
use super::table::{RowKey, TableId};
use super::views::stacks::StacksShown;
use super::views::{ScreenView, SectionId};
use judge::model::{DomainModel, ThreadModel};
use sample::ProfiledThread;

/// The selected guest, and the thread that the cursor of its page is on.
fn selected(state: &AppState) -> Option<(&DomainModel, Option<&ThreadModel>)> {
    let domain = state.domain()?;
    let on_threads = state
        .page
        .cursor
        .filter(|key| state.view == ScreenView::Page && key.section == SectionId::Table(TableId::Threads));
    let row = on_threads.and_then(|key| key.row);
    let thread = row.and_then(|row| domain.threads.iter().find(|t| RowKey::of(t.tid) == row));
    Some((domain, thread))
}

/// Asks for the stack of the selected thread, or of all threads of the selected guest, and opens what will show it. In
/// a recording it shows what was recorded.
pub fn ask(state: &mut AppState) -> Vec<Effect> {
    let is_recorded = state.session.source.is_recorded();
    let Some((guest, thread)) = selected(state) else {
        state.say("no guest is selected");
        return Vec::new();
    };
    let asked = |t: &ThreadModel| ProfiledThread {
        tid: t.tid,
        comm: t.comm.clone(),
        role: t.role,
        index: t.index,
        cpu_ns: None,
    };
    let threads: Vec<_> = thread.map_or_else(|| guest.threads.iter().map(asked).collect(), |t| vec![asked(t)]);
    let request = guest.facts.pid.map(|pid| ProfileRequest { pid, start_ticks: guest.facts.start_ticks, threads });
    let now_ms = state.model.as_ref().filter(|_| !is_recorded).map(|m| m.time_ms);
    let shown = StacksShown { guest: guest.key(), tid: thread.map(|t| t.tid), asked_ms: now_ms };
    let effects = match request {
        _ if is_recorded => Vec::new(),
        _ if state.paused => {
            state.say(format!("a paused screen shows nothing new; {} resumes it", state.key_name(Action::Pause)));
            return Vec::new();
        }
        Some(request) if !request.threads.is_empty() => vec![Effect::Control(Control::Profile(request))],
        _ => {
            state.say("its threads are not known");
            return Vec::new();
        }
    };
    state.popup = Some(Popup::Stacks(shown, 0));
    effects
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::tests::{busy, draw, press, text};
    use crate::ui::theme::Theme;
    use crate::ui::views::page::PageKey;
    use judge::model::GuestProfile;
    use sample::StackProfile;
    use std::sync::Arc;
    use testkit::profile;

    fn request(effects: &[Effect]) -> &ProfileRequest {
        let [Effect::Control(Control::Profile(request))] = effects else { panic!("{effects:?}") };
        request
    }

    /// The guest gets a profile of the threads that were asked for.
    fn answer(state: &mut AppState, request: &ProfileRequest, mut stacks: StackProfile) {
        let model = state.model.as_mut().unwrap();
        let tid = request.threads[0].tid;
        stacks.stacks.iter_mut().filter(|stack| stack.tid == 100).for_each(|stack| stack.tid = tid);
        stacks.threads[0] = ProfiledThread { cpu_ns: stacks.threads[0].cpu_ns, ..request.threads[0].clone() };
        stacks.began_ms = model.time_ms + 100;
        let guest = model.domains.iter_mut().find(|d| d.facts.pid == Some(request.pid)).unwrap();
        guest.profile = Some(GuestProfile { stacks: Arc::new(stacks), is_new: true });
        state.settle();
    }

    fn shown(state: &AppState) -> String {
        text(&draw(state, &Theme::default()))
    }

    #[test]
    fn a_row_of_a_thread_asks_for_its_stack() {
        let mut state = busy(100, 30);
        press(&mut state, "<Enter>");
        let row = RowKey::of(state.domain().unwrap().threads[0].tid);
        state.page.cursor = Some(PageKey { section: SectionId::Table(TableId::Threads), row: Some(row) });
        let effects = ask(&mut state);
        let asked = request(&effects).clone();
        assert_eq!(asked.threads.len(), 1);
        assert!(shown(&state).contains("for 2 s"), "{}", shown(&state));
        answer(&mut state, &asked, profile());
        let seen = shown(&state);
        for text in ["stacks", "300 samples at 199 a second", "ppoll", "60.0", "main_loop_wait"] {
            assert!(seen.contains(text), "{text}:\n{seen}");
        }
        press(&mut state, "<Esc>");
        assert!(state.popup.is_none());
    }

    #[test]
    fn a_row_of_a_guest_asks_for_all_its_threads() {
        let mut state = busy(100, 30);
        let guest = state.domain().unwrap().threads.len();
        assert_eq!(request(&press(&mut state, "b")).threads.len(), guest);
    }

    #[test]
    fn a_refusal_says_why() {
        let mut state = busy(100, 30);
        let asked = request(&press(&mut state, "b")).clone();
        let why = "its stacks cannot be sampled: Operation not permitted; start kvmtop as root";
        let threads = asked.threads.clone();
        answer(&mut state, &asked, StackProfile::refused(0, threads, why.into()));
        assert!(shown(&state).contains("Operation not permitted"), "{}", shown(&state));
    }

    #[test]
    fn a_paused_screen_asks_for_nothing() {
        let mut state = busy(100, 30);
        assert!(press(&mut state, "pb").is_empty() && state.popup.is_none());
    }
}
