//! The table of keys: what a key does ([`super::keys`]), help and footer are all made from it.

use super::action::{Action, Replay};
use super::views::ScreenView;
use crossterm::event::{KeyCode, KeyModifiers};

/// When a binding applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Always, except while text is typed.
    Always,
    /// While no popup is open.
    Screen,
    /// The same, on a live host.
    Live,
    /// The same, in a recording.
    Recorded,
    /// In the menu of columns.
    Columns,
}

impl When {
    /// All with their headings in the help, in its order.
    pub const ALL: [(Self, &str); 5] = [
        (Self::Always, "EVERYWHERE"),
        (Self::Screen, "ON THE SCREEN"),
        (Self::Live, "ON A LIVE HOST"),
        (Self::Recorded, "IN A RECORDING"),
        (Self::Columns, "IN THE MENU OF COLUMNS"),
    ];

    /// Whether it can hold at all on a live screen, or on a recording.
    pub fn is_for(self, recorded: bool) -> bool {
        self != if recorded { Self::Live } else { Self::Recorded }
    }

    /// Whether two bindings can apply at once.
    pub(super) fn meets(self, other: Self) -> bool {
        match (self, other) {
            (Self::Always, _) | (_, Self::Always) => true,
            (Self::Live, Self::Recorded) | (Self::Recorded, Self::Live) => false,
            (a, b) => (a == Self::Columns) == (b == Self::Columns),
        }
    }
}

/// The names of special keys.
const SPECIAL: [(&str, KeyCode); 16] = [
    ("space", KeyCode::Char(' ')),
    ("Enter", KeyCode::Enter),
    ("Esc", KeyCode::Esc),
    ("Tab", KeyCode::Tab),
    ("Shift-Tab", KeyCode::BackTab),
    ("Backspace", KeyCode::Backspace),
    ("Up", KeyCode::Up),
    ("Down", KeyCode::Down),
    ("Left", KeyCode::Left),
    ("Right", KeyCode::Right),
    ("Home", KeyCode::Home),
    ("End", KeyCode::End),
    ("PgUp", KeyCode::PageUp),
    ("PgDn", KeyCode::PageDown),
    ("Ins", KeyCode::Insert),
    ("Del", KeyCode::Delete),
];

/// A key with its modifiers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyPress(pub KeyCode, pub KeyModifiers);

impl KeyPress {
    /// The key of this name, as [`Self::name`] gives it; names of special keys in any case.
    pub fn with_name(name: &str) -> Option<Self> {
        let mut one = name.chars();
        if let (Some(c), None) = (one.next(), one.next()) {
            let is_key = !c.is_whitespace() && !c.is_control();
            return is_key.then_some(Self(KeyCode::Char(c), KeyModifiers::NONE));
        }
        let lower = name.to_ascii_lowercase();
        if let Some(rest) = lower.strip_prefix("ctrl-") {
            let Self(code, mods) = Self::with_name(rest)?;
            return (mods == KeyModifiers::NONE).then_some(Self(code, KeyModifiers::CONTROL));
        }
        if let Some(rest) = lower.strip_prefix("shift-").filter(|rest| *rest != "tab") {
            let Self(code, mods) = Self::with_name(rest)?;
            // Shift makes another character of a letter.
            let is_special = mods == KeyModifiers::NONE && !matches!(code, KeyCode::Char(_));
            return is_special.then_some(Self(code, KeyModifiers::SHIFT));
        }
        let named = SPECIAL.iter().find(|(name, _)| name.eq_ignore_ascii_case(&lower)).map(|(_, code)| *code);
        let function = || lower.strip_prefix('f')?.parse().ok().filter(|n| (1..=12).contains(n)).map(KeyCode::F);
        Some(Self(named.or_else(function)?, KeyModifiers::NONE))
    }

    /// The key as the help shows it.
    pub fn name(self) -> String {
        let code = match (SPECIAL.iter().find(|(_, code)| *code == self.0), self.0) {
            (Some((name, _)), _) => (*name).to_string(),
            (None, KeyCode::Char(c)) if self.1 == KeyModifiers::CONTROL => c.to_ascii_uppercase().to_string(),
            (None, other) => other.to_string(),
        };
        match self.1 {
            KeyModifiers::CONTROL => format!("Ctrl-{code}"),
            KeyModifiers::SHIFT if self.0 != KeyCode::BackTab => format!("Shift-{code}"),
            _ => code,
        }
    }
}

/// A binding of keys to an action.
#[derive(Debug, Clone, Copy)]
pub struct Binding {
    /// The names of its keys, separated by blanks; each of them has the same effect.
    pub keys: &'static str,
    /// Name of the action in the config file's `[keys]`.
    pub name: &'static str,
    /// What the keys do.
    pub action: Action,
    /// When they do it.
    pub when: When,
    /// Line in the help.
    pub help: &'static str,
}

const fn bind(keys: &'static str, name: &'static str, action: Action, when: When, help: &'static str) -> Binding {
    Binding { keys, name, action, when, help }
}

use {Action as A, Replay as R, ScreenView as V, When as W};

/// All bindings. The first ones, as many of them as act on the screen, are the first page of the help.
pub static KEYMAP: &[Binding] = &[
    bind("Enter", "open", A::Open, W::Always, "opens the guest's page, a problem, what is folded; confirms"),
    bind("Esc Backspace", "back", A::Back, W::Always, "goes one step back: closes, to the list, ends the filter"),
    bind("n", "next-problem", A::NextProblem, W::Screen, "goes to the next problem, of this guest or the next"),
    bind("y", "copy-fix", A::Copy, W::Screen, "copies the fix to the terminal's clipboard (OSC 52)"),
    bind("w", "write-fix", A::Write, W::Screen, "writes the fix to a file in the current folder"),
    bind("Tab", "next-view", A::NextView, W::Screen, "goes to the next view, on a page to the next section"),
    bind("/", "filter", A::Filter, W::Screen, "shows only guests with this in their name, or with cpu>50"),
    bind("s", "sort", A::Sort, W::Screen, "chooses the column that the table is sorted by"),
    bind("C", "columns", A::Columns, W::Screen, "chooses the columns of the table and their order"),
    bind("space p", "pause", A::Pause, W::Live, "pauses or resumes the screen"),
    bind("r", "record", A::Record, W::Live, "records into a file in the current folder, or stops that"),
    bind("b", "stack", A::Stack, W::Live, "samples the stacks of the guest or thread for two seconds"),
    bind("space p", "pause", A::Pause, W::Recorded, "plays or pauses"),
    bind("Right", "step", A::Replay(R::Step(1)), W::Recorded, "goes one sample forward"),
    bind("}", "next-mark", A::Replay(R::Mark { forward: true }), W::Recorded, "goes to the next new problem"),
    bind("m", "mark-time", A::MarkTime, W::Screen, "marks time A to see the change since, then B, then neither"),
    bind("? h F1", "help", A::Help, W::Always, "shows this help"),
    bind("q Ctrl-C", "quit", A::Quit, W::Always, "closes what is open, else quits; Ctrl-C always quits"),
    bind("Up k", "up", A::Up, W::Always, "goes up"),
    bind("Down j", "down", A::Down, W::Always, "goes down"),
    bind("PgUp Ctrl-B", "page-up", A::PageUp, W::Always, "goes a page up"),
    bind("PgDn Ctrl-F", "page-down", A::PageDown, W::Always, "goes a page down"),
    bind("Home", "first", A::First, W::Always, "goes to the first row"),
    bind("End", "last", A::Last, W::Always, "goes to the last row"),
    bind("Ctrl-Z", "suspend", A::Suspend, W::Always, "suspends kvmtop; fg resumes it"),
    bind("N", "prev-problem", A::PrevProblem, W::Screen, "goes to the previous problem"),
    bind("I", "reverse", A::Reverse, W::Screen, "reverses the order of the table"),
    bind("Shift-Tab", "prev-view", A::PrevView, W::Screen, "goes to the previous view or section"),
    bind("1", "guests", A::Show(V::Guests), W::Screen, "shows the list of guests"),
    bind("2", "cpus", A::Show(V::Cpus), W::Screen, "shows the host's CPUs, and which threads run where"),
    bind("3", "latency", A::Show(V::Latency), W::Screen, "shows how long vCPUs wait for a CPU"),
    bind("4", "storage", A::Show(V::Storage), W::Screen, "shows disks, network interfaces and memory"),
    bind("5", "sources", A::Show(V::Sources), W::Screen, "shows what the host hides, and how to get it"),
    bind(">", "next-guest", A::NextGuest, W::Screen, "selects the next guest"),
    bind("<", "prev-guest", A::PrevGuest, W::Screen, "selects the previous guest"),
    bind("S", "save-view", A::SaveView, W::Screen, "writes the view as SVG, text, CSV or JSON"),
    bind("T", "theme", A::NextTheme, W::Screen, "takes the next theme: auto, dark, light, 16, mono"),
    bind("M", "mouse", A::ToggleMouse, W::Screen, "lets kvmtop have the mouse, or the terminal"),
    bind("W", "save-settings", A::SaveSettings, W::Screen, "saves theme, mouse, view, order and columns"),
    bind("e", "tracing-level", A::EngineLevel, W::Live, "traces everything, nothing, or counts only"),
    bind("Left", "step-back", A::Replay(R::Step(-1)), W::Recorded, "goes one sample back"),
    bind("{", "prev-mark", A::Replay(R::Mark { forward: false }), W::Recorded, "goes to the previous new problem"),
    bind("g", "go-to", A::Goto, W::Recorded, "goes to a clock time (14:03, 14:03:22) or an offset (90s, 2h)"),
    bind("Shift-Right Ctrl-Right", "minute", A::Replay(R::Jump(60_000)), W::Recorded, "goes a minute forward"),
    bind("Shift-Left Ctrl-Left", "minute-back", A::Replay(R::Jump(-60_000)), W::Recorded, "goes a minute back"),
    bind("]", "faster", A::Replay(R::Faster), W::Recorded, "plays twice as fast, up to 64x"),
    bind("[", "slower", A::Replay(R::Slower), W::Recorded, "plays half as fast, down to 0.25x"),
    bind("Ctrl-Home", "time-start", A::Replay(R::End { last: false }), W::Recorded, "goes to the first sample"),
    bind("Ctrl-End", "time-end", A::Replay(R::End { last: true }), W::Recorded, "goes to the last sample"),
    bind("b", "stack", A::Stack, W::Recorded, "shows the stacks of the guest that were recorded last"),
    bind("space", "show-column", A::Toggle, W::Columns, "shows or hides the column"),
    bind("Shift-Up K", "column-left", A::MoveUp, W::Columns, "moves the column left"),
    bind("Shift-Down J", "column-right", A::MoveDown, W::Columns, "moves the column right"),
    bind("r", "reset-columns", A::Reset, W::Columns, "restores the columns that the table has at first"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::KeysInForce;

    #[test]
    fn no_key_has_two_meanings_at_once() {
        let all = KeysInForce::default();
        for (i, (a, keys)) in all.bindings().enumerate() {
            for (b, others) in all.bindings().skip(i + 1).filter(|(b, _)| a.when.meets(b.when)) {
                for key in keys {
                    assert!(!others.contains(key), "{}: {} / {}", key.name(), a.help, b.help);
                }
            }
        }
    }

    #[test]
    fn every_binding_has_its_keys_and_a_line_of_help() {
        for (b, keys) in KeysInForce::default().bindings() {
            assert!(!keys.is_empty() && !b.help.is_empty() && b.help.len() <= 72, "{}", b.help);
            let names: Vec<String> = keys.iter().map(|k| k.name()).collect();
            assert_eq!(names.join(" "), b.keys);
        }
    }

    #[test]
    fn an_action_has_one_name_and_a_name_one_action() {
        for a in KEYMAP {
            assert!(a.name.chars().all(|c| c.is_ascii_lowercase() || c == '-'), "{}", a.name);
            if let A::Show(view) = a.action {
                assert_eq!(a.name, view.name());
            }
            for b in KEYMAP {
                assert_eq!(a.action == b.action, a.name == b.name, "{}", a.help);
            }
        }
    }

    #[test]
    fn what_is_no_key_is_not_found() {
        for name in ["", "Ctrl-", "Shift-a", "F13", "Ctrl-Ctrl-a", "enterr", "\u{1b}"] {
            assert_eq!(KeyPress::with_name(name), None, "{name}");
        }
    }
}
