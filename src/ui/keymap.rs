//! The table of keys: dispatch ([`super::key_lookup`]), help and footer are all made from it.

use super::action::Action;
use super::view::ScreenView;
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
    /// While the table of guests is shown.
    Table,
    /// The same, on a live host: the arrows move through time in a recording.
    LiveTable,
    /// While a view is shown that can be of one guest or of all.
    Scoped,
    /// While a view is shown that can be sorted.
    Ordered,
    /// While the view of exits is shown.
    Exits,
    /// While the view of latencies is shown.
    Latency,
    /// While a finding is open.
    Finding,
    /// In the menu of columns.
    Columns,
}

impl When {
    /// Heading in the help.
    pub fn title(self) -> &'static str {
        match self {
            Self::Always => "EVERYWHERE",
            Self::Screen => "ON THE SCREEN",
            Self::Live => "ON A LIVE HOST",
            Self::Recorded => "IN A RECORDING",
            Self::Table => "IN THE TABLE OF GUESTS",
            Self::LiveTable => "IN THE TABLE OF GUESTS OF A LIVE HOST",
            Self::Scoped => "IN THE OTHER VIEWS",
            Self::Ordered => "IN VIEWS WITH SEVERAL ORDERS",
            Self::Exits => "IN THE VIEW OF EXITS",
            Self::Latency => "IN THE VIEW OF LATENCIES",
            Self::Finding => "IN AN OPEN FINDING",
            Self::Columns => "IN THE MENU OF COLUMNS",
        }
    }

    /// All, in the order of the help.
    pub const ALL: [Self; 12] = [
        Self::Always,
        Self::Screen,
        Self::Table,
        Self::LiveTable,
        Self::Scoped,
        Self::Ordered,
        Self::Exits,
        Self::Latency,
        Self::Live,
        Self::Recorded,
        Self::Finding,
        Self::Columns,
    ];

    /// Whether it can hold at all on a live screen, or on a recording.
    pub fn is_for(self, recorded: bool) -> bool {
        match self {
            Self::Live | Self::LiveTable => !recorded,
            Self::Recorded => recorded,
            _ => true,
        }
    }

    /// Whether two bindings can apply at once.
    pub(super) fn meets(self, other: Self) -> bool {
        let screen = |w| !matches!(w, Self::Always | Self::Finding | Self::Columns);
        let table = |w| matches!(w, Self::Table | Self::LiveTable);
        let view = |w| matches!(w, Self::Scoped | Self::Ordered | Self::Exits | Self::Latency);
        match (self, other) {
            (a, b) if ![false, true].into_iter().any(|recorded| a.is_for(recorded) && b.is_for(recorded)) => false,
            (a, b) if view(a) && table(b) || table(a) && view(b) => false,
            (a, b) if a == b => true,
            (Self::Always, _) | (_, Self::Always) => true,
            (a, b) => screen(a) && screen(b),
        }
    }
}

/// A key with its modifiers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyPress(pub KeyCode, pub KeyModifiers);

impl KeyPress {
    const fn char(c: char) -> Self {
        Self(KeyCode::Char(c), KeyModifiers::NONE)
    }

    const fn ctrl(c: char) -> Self {
        Self(KeyCode::Char(c), KeyModifiers::CONTROL)
    }

    const fn code(code: KeyCode) -> Self {
        Self(code, KeyModifiers::NONE)
    }

    /// The key of this name, as [`Self::name`] gives it; names of special keys in any case.
    pub fn named(name: &str) -> Option<Self> {
        let mut one = name.chars();
        if let (Some(c), None) = (one.next(), one.next()) {
            return (!c.is_whitespace() && !c.is_control()).then_some(Self::char(c));
        }
        let lower = name.to_ascii_lowercase();
        if let Some(rest) = lower.strip_prefix("ctrl-") {
            let Self(code, mods) = Self::named(rest)?;
            return (mods == KeyModifiers::NONE).then_some(Self(code, KeyModifiers::CONTROL));
        }
        if lower == "shift-tab" {
            return Some(Self::code(KeyCode::BackTab));
        }
        if let Some(rest) = lower.strip_prefix("shift-") {
            let Self(code, mods) = Self::named(rest)?;
            // Shift makes another character of a letter.
            let is_special = mods == KeyModifiers::NONE && !matches!(code, KeyCode::Char(_));
            return is_special.then_some(Self(code, KeyModifiers::SHIFT));
        }
        let code = match lower.as_str() {
            "space" => KeyCode::Char(' '),
            "enter" => KeyCode::Enter,
            "esc" => KeyCode::Esc,
            "tab" => KeyCode::Tab,
            "backspace" => KeyCode::Backspace,
            "up" => KeyCode::Up,
            "down" => KeyCode::Down,
            "left" => KeyCode::Left,
            "right" => KeyCode::Right,
            "home" => KeyCode::Home,
            "end" => KeyCode::End,
            "pgup" => KeyCode::PageUp,
            "pgdn" => KeyCode::PageDown,
            "ins" => KeyCode::Insert,
            "del" => KeyCode::Delete,
            f => KeyCode::F(f.strip_prefix('f')?.parse().ok().filter(|n| (1..=12).contains(n))?),
        };
        Some(Self::code(code))
    }

    /// The key as the help shows it.
    pub fn name(self) -> String {
        let code = match self.0 {
            KeyCode::Char(' ') => "space".into(),
            KeyCode::Char(c) if self.1.contains(KeyModifiers::CONTROL) => c.to_ascii_uppercase().to_string(),
            KeyCode::Char(c) => c.to_string(),
            KeyCode::PageUp => "PgUp".into(),
            KeyCode::PageDown => "PgDn".into(),
            KeyCode::Insert => "Ins".into(),
            KeyCode::Delete => "Del".into(),
            KeyCode::BackTab => "Shift-Tab".into(),
            other => other.to_string(),
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
    /// The keys; each of them has the same effect.
    pub keys: &'static [KeyPress],
    /// What they do.
    pub action: Action,
    /// When they do it.
    pub when: When,
    /// Word in the footer; empty for a key that the footer does not show.
    pub short: &'static str,
    /// Line in the help.
    pub help: &'static str,
}

const fn bind(
    keys: &'static [KeyPress],
    action: Action,
    when: When,
    short: &'static str,
    help: &'static str,
) -> Binding {
    Binding { keys, action, when, short, help }
}

const fn view(keys: &'static [KeyPress], view: ScreenView, help: &'static str) -> Binding {
    bind(keys, Action::Show(view), When::Screen, "", help)
}

use Action as A;
use KeyCode as C;
const CTRL: KeyModifiers = KeyModifiers::CONTROL;
const SHIFT: KeyModifiers = KeyModifiers::SHIFT;

/// All bindings. The footer shows those with a short word, in this order, as many as fit.
pub static KEYMAP: &[Binding] = &[
    bind(
        &[KeyPress::char('?'), KeyPress::char('h'), KeyPress::code(C::F(1))],
        A::Help,
        When::Always,
        "help",
        "this help",
    ),
    bind(&[KeyPress::char('q'), KeyPress::ctrl('c')], A::Quit, When::Always, "quit", "quit"),
    bind(
        &[KeyPress::char('y')],
        A::Copy,
        When::Finding,
        "copy the fix",
        "copy the fix to the terminal's clipboard (OSC 52)",
    ),
    bind(
        &[KeyPress::char('w')],
        A::Write,
        When::Finding,
        "write to a file",
        "write the fix to a file in the current folder",
    ),
    bind(&[KeyPress::char('n')], A::NextFinding, When::Finding, "next", "the next finding"),
    bind(&[KeyPress::char('N')], A::PrevFinding, When::Finding, "", "the previous finding"),
    bind(
        &[KeyPress::char('/')],
        A::Filter,
        When::Screen,
        "filter",
        "show only guests whose name has this, or of which cpu>50 and device~tmr",
    ),
    bind(&[KeyPress::char('s')], A::SortMenu, When::Screen, "sort", "choose the sort column"),
    bind(&[KeyPress::char('I')], A::SortReverse, When::Screen, "", "reverse the sort order"),
    bind(&[KeyPress::char('C')], A::Columns, When::Table, "", "choose and order the columns"),
    bind(&[KeyPress::char('P')], A::Pin, When::Table, "", "keep the selected guest on top, or let it go"),
    bind(
        &[KeyPress::char('F')],
        A::Follow,
        When::Screen,
        "",
        "keep the cursor on its row wherever that moves; again: on the first",
    ),
    bind(
        &[KeyPress::char('m')],
        A::MarkTime,
        When::Table,
        "",
        "mark A: the table shows the change since; again: mark B; again: end",
    ),
    bind(&[KeyPress::char('S')], A::SaveView, When::Screen, "save", "write the view as SVG, text, CSV or JSON"),
    bind(&[KeyPress::char('S')], A::SaveView, When::Finding, "save", "write the screen as SVG, text, CSV or JSON"),
    bind(&[KeyPress::char('T')], A::NextTheme, When::Screen, "", "the next theme: auto, dark, light, 16, mono"),
    bind(&[KeyPress::char('M')], A::ToggleMouse, When::Screen, "", "let kvmtop have the mouse, or the terminal"),
    bind(
        &[KeyPress::char('W')],
        A::SaveSettings,
        When::Screen,
        "",
        "save theme, mouse, view, order and columns in the config file",
    ),
    bind(&[KeyPress::char(' ')], A::Toggle, When::Columns, "show/hide", "show or hide the column"),
    bind(&[KeyPress(C::Up, SHIFT), KeyPress::char('K')], A::MoveUp, When::Columns, "move", "move the column left"),
    bind(&[KeyPress(C::Down, SHIFT), KeyPress::char('J')], A::MoveDown, When::Columns, "", "move the column right"),
    bind(&[KeyPress::char('r')], A::Reset, When::Columns, "reset", "the columns as at first"),
    bind(
        &[KeyPress::code(C::Enter)],
        A::Open,
        When::Always,
        "open",
        "show or hide a guest's threads or its idle ones, open a finding, confirm",
    ),
    bind(&[KeyPress::code(C::Tab)], A::NextView, When::Screen, "view", "the next view"),
    bind(
        &[KeyPress::code(C::BackTab), KeyPress(C::BackTab, SHIFT)],
        A::PrevView,
        When::Screen,
        "",
        "the previous view",
    ),
    bind(&[KeyPress::char('p'), KeyPress::char(' ')], A::Pause, When::Live, "pause", "pause or resume the screen"),
    bind(&[KeyPress::char('p'), KeyPress::char(' ')], A::Pause, When::Recorded, "play", "play or pause"),
    bind(&[KeyPress::code(C::Left)], A::Step(-1), When::Recorded, "", "one sample back"),
    bind(&[KeyPress::code(C::Right)], A::Step(1), When::Recorded, "step", "one sample forward"),
    bind(&[KeyPress(C::Left, SHIFT), KeyPress(C::Left, CTRL)], A::Minutes(-1), When::Recorded, "", "a minute back"),
    bind(&[KeyPress(C::Right, SHIFT), KeyPress(C::Right, CTRL)], A::Minutes(1), When::Recorded, "", "a minute forward"),
    bind(
        &[KeyPress::char('n')],
        A::NextMark,
        When::Recorded,
        "next mark",
        "the next sample with a new finding, stacks or a jump in the exit rate",
    ),
    bind(&[KeyPress::char('N')], A::PrevMark, When::Recorded, "", "the previous such sample"),
    bind(
        &[KeyPress::char('g')],
        A::Goto,
        When::Recorded,
        "go to",
        "go to a clock time (14:03, 14:03:22) or an offset (90s, 12m, 2h)",
    ),
    bind(&[KeyPress::char(']')], A::Faster, When::Recorded, "", "play twice as fast, up to 64x"),
    bind(&[KeyPress::char('[')], A::Slower, When::Recorded, "", "play half as fast, down to 0.25x"),
    bind(&[KeyPress::char('{'), KeyPress(C::Home, CTRL)], A::TimeStart, When::Recorded, "", "to the first sample"),
    bind(&[KeyPress::char('}'), KeyPress(C::End, CTRL)], A::TimeEnd, When::Recorded, "", "to the last sample"),
    bind(
        &[KeyPress::char('r')],
        A::Record,
        When::Live,
        "record",
        "start or stop recording into a file in the current folder",
    ),
    bind(
        &[KeyPress::char('b')],
        A::Stack,
        When::Live,
        "",
        "sample the stack of the thread, or of all of the guest, for two seconds",
    ),
    bind(&[KeyPress::char('b')], A::Stack, When::Recorded, "", "show the stacks of the guest that were recorded last"),
    bind(&[KeyPress::char('e')], A::EngineLevel, When::Live, "", "cycle the tracing level: full, none, counts"),
    bind(&[KeyPress::char('K')], A::KvmEvents, When::Live, "", "toggle the counting of every kvm tracepoint by guest"),
    bind(
        &[KeyPress::code(C::Esc), KeyPress::code(C::Backspace)],
        A::Back,
        When::Always,
        "",
        "close, back to the guests, clear the filter, follow the worst guest",
    ),
    bind(&[KeyPress::code(C::Up), KeyPress::char('k')], A::Up, When::Always, "", "up"),
    bind(&[KeyPress::code(C::Down), KeyPress::char('j')], A::Down, When::Always, "", "down"),
    bind(&[KeyPress::code(C::PageUp), KeyPress::ctrl('b')], A::PageUp, When::Always, "", "a page up"),
    bind(&[KeyPress::code(C::PageDown), KeyPress::ctrl('f')], A::PageDown, When::Always, "", "a page down"),
    bind(&[KeyPress::code(C::Home)], A::First, When::Always, "", "to the first row"),
    bind(&[KeyPress::code(C::End)], A::Last, When::Always, "", "to the last row"),
    bind(&[KeyPress::code(C::Right), KeyPress::char('l')], A::Unfold, When::LiveTable, "", "show a guest's threads"),
    bind(&[KeyPress::code(C::Left)], A::Fold, When::LiveTable, "", "hide a guest's threads"),
    bind(&[KeyPress::char('*')], A::UnfoldAll, When::Table, "", "show or hide the threads of all guests"),
    view(&[KeyPress::char('1')], ScreenView::Guests, "the table of guests, and what fits of the selected guest"),
    view(&[KeyPress::char('2')], ScreenView::Threads, "threads"),
    view(&[KeyPress::char('3')], ScreenView::Exits, "exits by reason, exits to the VMM, KVM's counters"),
    view(&[KeyPress::char('4')], ScreenView::Accesses, "hot ports, addresses and MSRs, with their devices"),
    view(&[KeyPress::char('5')], ScreenView::Cpus, "which threads run on which host CPU"),
    view(&[KeyPress::char('6')], ScreenView::Latency, "how long vCPUs wait for a CPU"),
    view(&[KeyPress::char('7')], ScreenView::Disks, "disks and network interfaces"),
    view(&[KeyPress::char('8')], ScreenView::Memory, "memory"),
    view(&[KeyPress::char('9'), KeyPress::char('f')], ScreenView::Findings, "the findings, with evidence and fix"),
    view(&[KeyPress::char('0')], ScreenView::Sources, "which sources work, which are missing, and how to enable them"),
    bind(&[KeyPress::char('a')], A::Scope, When::Scoped, "one/all", "show the selected guest or all guests"),
    bind(&[KeyPress::char('o')], A::Order, When::Ordered, "order", "sort the view by its next column"),
    bind(
        &[KeyPress::char('u')],
        A::Span,
        When::Exits,
        "time",
        "count per second, in this interval, or since the start",
    ),
    bind(&[KeyPress::char('z')], A::Sleep, When::Exits, "sleep", "count the exits in which the guest sleeps, or not"),
    bind(
        &[KeyPress::char('d')],
        A::Latencies,
        When::Latency,
        "delays",
        "draw all waits for a CPU, or those after a wake-up",
    ),
    bind(&[KeyPress::char('>')], A::NextGuest, When::Screen, "", "select the next guest"),
    bind(&[KeyPress::char('<')], A::PrevGuest, When::Screen, "", "select the previous guest"),
    bind(&[KeyPress::ctrl('z')], A::Suspend, When::Always, "", "suspend kvmtop; fg resumes it"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_has_two_meanings_at_once() {
        for (i, a) in KEYMAP.iter().enumerate() {
            for (j, b) in KEYMAP.iter().enumerate().skip(i + 1) {
                if !a.when.meets(b.when) {
                    continue;
                }
                for key in a.keys {
                    assert!(!b.keys.contains(key), "{} is bound by {i} and {j}: {} / {}", key.name(), a.help, b.help);
                }
            }
        }
    }

    #[test]
    fn every_binding_has_a_key_and_a_line_of_help() {
        for b in KEYMAP {
            assert!(!b.keys.is_empty() && !b.help.is_empty());
            assert!(b.help.len() <= 72, "{}", b.help);
        }
    }

    #[test]
    fn key_names() {
        assert_eq!(KeyPress::char(' ').name(), "space");
        assert_eq!(KeyPress::ctrl('c').name(), "Ctrl-C");
        assert_eq!(KeyPress(C::Left, SHIFT).name(), "Shift-Left");
        assert_eq!(KeyPress::code(C::BackTab).name(), "Shift-Tab");
        assert_eq!(KeyPress::code(C::Enter).name(), "Enter");
    }

    #[test]
    fn every_key_is_found_by_its_name() {
        for key in KEYMAP.iter().flat_map(|b| b.keys) {
            let found = KeyPress::named(&key.name()).unwrap_or_else(|| panic!("{}", key.name()));
            assert_eq!(found.name(), key.name());
        }
        for name in ["", "Ctrl-", "Shift-a", "F13", "Ctrl-Ctrl-a", "enterr", "\u{1b}"] {
            assert_eq!(KeyPress::named(name), None, "{name}");
        }
    }
}
