//! The table of keys: what a key does, help and footer are all made from it.

use super::{Action, Lens, Replay, ScreenView};
use crossterm::event::{KeyCode, KeyModifiers};

/// When a binding applies.
#[derive(Debug, Clone, Copy, PartialEq)]
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
}

/// The names of special keys.
const SPECIAL: [(&str, KeyCode); 15] = [
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
    ("F1", KeyCode::F(1)),
];

/// A key with its modifiers.
pub type KeyPress = (KeyCode, KeyModifiers);

/// The key of a name in the table.
fn key_press(name: &str) -> KeyPress {
    let (mods, name) = match name.split_once('-') {
        Some(("Ctrl", key)) => (KeyModifiers::CONTROL, key),
        Some(("Shift", key)) if key != "Tab" => (KeyModifiers::SHIFT, key),
        _ => (KeyModifiers::NONE, name),
    };
    let special = SPECIAL
        .iter()
        .find(|(special, _)| *special == name)
        .map(|(_, code)| *code);
    let letter = name.chars().next().unwrap_or_default();
    let letter = if mods == KeyModifiers::CONTROL {
        letter.to_ascii_lowercase()
    } else {
        letter
    };
    (special.unwrap_or(KeyCode::Char(letter)), mods)
}

/// A binding of keys to an action.
#[derive(Debug, Clone, Copy)]
pub struct Binding {
    /// The names of its keys, separated by blanks; each of them has the same effect.
    pub keys: &'static str,
    /// What the keys do.
    pub action: Action,
    /// When they do it.
    pub when: When,
    /// Line in the help.
    pub help: &'static str,
}

impl Binding {
    /// Its keys.
    pub fn presses(&self) -> impl Iterator<Item = KeyPress> + use<> {
        self.keys.split(' ').map(key_press)
    }
}

/// The name of an action's first key, on a live screen or in a recording.
pub fn key_name(action: Action, recorded: bool) -> Option<&'static str> {
    let binding = KEYMAP
        .iter()
        .find(|b| b.action == action && b.when.is_for(recorded))?;
    binding.keys.split(' ').next()
}

const fn bind(keys: &'static str, action: Action, when: When, help: &'static str) -> Binding {
    Binding {
        keys,
        action,
        when,
        help,
    }
}

use {Action as A, Lens as L, Replay as R, ScreenView as V, When as W};

/// All bindings. The first ones, as many of them as act on the screen, are the first page of the
/// help.
pub static KEYMAP: &[Binding] = &[
    bind(
        "Enter",
        A::Open,
        W::Always,
        "opens the guest's page, a problem, what is folded; confirms",
    ),
    bind(
        "Esc Backspace",
        A::Back,
        W::Always,
        "goes one step back: to now, closes, to the list, ends the filter",
    ),
    bind(
        "n",
        A::Problem(1),
        W::Screen,
        "goes to the next problem, of this guest or the next",
    ),
    bind(
        "y",
        A::Copy,
        W::Screen,
        "copies the fix to the terminal's clipboard (OSC 52)",
    ),
    bind(
        "c",
        A::Look(L::Cpu),
        W::Screen,
        "lists CPU time, waits and exits of guests",
    ),
    bind(
        "m",
        A::Look(L::Memory),
        W::Screen,
        "lists the memory of guests",
    ),
    bind(
        "d",
        A::Look(L::Disks),
        W::Screen,
        "lists what guests read and write",
    ),
    bind(
        "t",
        A::Look(L::Network),
        W::Screen,
        "lists what guests receive and send",
    ),
    bind(
        "Tab",
        A::Turn(1),
        W::Screen,
        "goes to the next view, on a page to the next section",
    ),
    bind(
        "/",
        A::Filter,
        W::Screen,
        "shows only guests with this in their name, or with cpu>50",
    ),
    bind("space p", A::Pause, W::Live, "pauses or resumes the screen"),
    bind(
        "r",
        A::Record,
        W::Live,
        "records into a file, with the last minutes, or stops that",
    ),
    bind("e", A::EngineLevel, W::Live, "turns tracing off and on"),
    bind("space p", A::Pause, W::Recorded, "plays or pauses"),
    bind(
        "Left",
        A::Replay(R::Step(-1)),
        W::Screen,
        "goes one sample back, on a live host through the last minutes",
    ),
    bind(
        "g",
        A::Goto,
        W::Screen,
        "goes to a clock time (14:03, 14:03:22) or an offset (90s, 2h)",
    ),
    bind("? h F1", A::Help, W::Always, "shows this help"),
    bind(
        "q Ctrl-C",
        A::Quit,
        W::Always,
        "closes what is open, else quits; Ctrl-C always quits",
    ),
    bind(
        "s",
        A::Sort,
        W::Screen,
        "chooses the column that the table is sorted by",
    ),
    bind(
        "C",
        A::Columns,
        W::Screen,
        "chooses the columns of the table and their order",
    ),
    bind(
        "w",
        A::Write,
        W::Screen,
        "writes the fix to a file in the current folder",
    ),
    bind("Up k", A::Up, W::Always, "goes up"),
    bind("Down j", A::Down, W::Always, "goes down"),
    bind("PgUp Ctrl-B", A::PageUp, W::Always, "goes a page up"),
    bind("PgDn Ctrl-F", A::PageDown, W::Always, "goes a page down"),
    bind("Home", A::First, W::Always, "goes to the first row"),
    bind(
        "End",
        A::Last,
        W::Always,
        "goes to the last row, from back in time to now",
    ),
    bind(
        "+",
        A::Interval(1),
        W::Live,
        "takes samples at a longer interval",
    ),
    bind(
        "-",
        A::Interval(-1),
        W::Live,
        "takes samples at a shorter interval",
    ),
    bind(
        "W",
        A::KeepChoices,
        W::Live,
        "writes lens, columns, order and interval into your config file",
    ),
    bind(
        "i",
        A::AskMonitor,
        W::Live,
        "asks QEMU through libvirt to name devices; says first what that marks",
    ),
    bind(
        "Ctrl-Z",
        A::Suspend,
        W::Always,
        "suspends kvmtop; fg resumes it",
    ),
    bind(
        "N",
        A::Problem(-1),
        W::Screen,
        "goes to the previous problem",
    ),
    bind("P", A::SortBy("cpu"), W::Screen, "sorts by CPU time"),
    bind("M", A::SortBy("mem"), W::Screen, "sorts by memory"),
    bind(
        "R I",
        A::Reverse,
        W::Screen,
        "reverses the order of the table",
    ),
    bind(
        "Shift-Tab",
        A::Turn(-1),
        W::Screen,
        "goes to the previous view or section",
    ),
    bind(
        "1",
        A::Show(V::Guests),
        W::Screen,
        "shows the list of guests",
    ),
    bind(
        "2",
        A::Show(V::Problems),
        W::Screen,
        "shows all problems of this host, and what to do",
    ),
    bind(
        "3",
        A::Show(V::Host),
        W::Screen,
        "shows the host's CPUs, and which threads run where",
    ),
    bind(
        "4",
        A::Show(V::Latency),
        W::Screen,
        "shows how long vCPUs wait for a CPU",
    ),
    bind(
        "5",
        A::Show(V::Sources),
        W::Screen,
        "shows what the host hides, and how to get it",
    ),
    bind(
        ">",
        A::Guest(1),
        W::Screen,
        "sorts by the next column; on a page, shows the next guest",
    ),
    bind(
        "<",
        A::Guest(-1),
        W::Screen,
        "sorts by the previous column, or shows the previous guest",
    ),
    bind(
        "S",
        A::SaveView,
        W::Screen,
        "writes the view as text, CSV or JSON",
    ),
    bind(
        "Right",
        A::Replay(R::Step(1)),
        W::Screen,
        "goes one sample forward",
    ),
    bind(
        "Shift-Right Ctrl-Right",
        A::Replay(R::Jump(60_000)),
        W::Screen,
        "goes a minute forward",
    ),
    bind(
        "Shift-Left Ctrl-Left",
        A::Replay(R::Jump(-60_000)),
        W::Screen,
        "goes a minute back",
    ),
    bind(
        "}",
        A::Replay(R::Problem(true)),
        W::Screen,
        "goes to when the next problem began, and to its guest",
    ),
    bind(
        "{",
        A::Replay(R::Problem(false)),
        W::Screen,
        "goes to when the previous problem began, and to its guest",
    ),
    bind(
        "]",
        A::Replay(R::Faster),
        W::Recorded,
        "plays twice as fast, up to 64x",
    ),
    bind(
        "[",
        A::Replay(R::Slower),
        W::Recorded,
        "plays half as fast, down to 0.25x",
    ),
    bind(
        "Ctrl-Home",
        A::Replay(R::First),
        W::Recorded,
        "goes to the first sample",
    ),
    bind(
        "Ctrl-End",
        A::Replay(R::Last),
        W::Recorded,
        "goes to the last sample",
    ),
    bind("space", A::Toggle, W::Columns, "shows or hides the column"),
    bind("Shift-Up K", A::MoveUp, W::Columns, "moves the column left"),
    bind(
        "Shift-Down J",
        A::MoveDown,
        W::Columns,
        "moves the column right",
    ),
    bind(
        "r",
        A::Reset,
        W::Columns,
        "restores the columns that the table has at first",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_has_two_meanings_at_once() {
        let meets = |a: When, b: When| match (a, b) {
            (When::Always, _) | (_, When::Always) => true,
            (When::Live, When::Recorded) | (When::Recorded, When::Live) => false,
            (a, b) => (a == When::Columns) == (b == When::Columns),
        };
        for (i, a) in KEYMAP.iter().enumerate() {
            for b in KEYMAP.iter().skip(i + 1).filter(|b| meets(a.when, b.when)) {
                for key in a.presses() {
                    assert!(
                        b.presses().all(|other| other != key),
                        "{key:?}: {} / {}",
                        a.help,
                        b.help
                    );
                }
            }
        }
    }

    #[test]
    fn every_binding_has_its_keys_and_a_line_of_help() {
        for b in KEYMAP {
            assert!(!b.help.is_empty() && b.help.len() <= 72, "{}", b.help);
            for name in b.keys.split(' ') {
                let rest = name
                    .strip_prefix("Ctrl-")
                    .or_else(|| name.strip_prefix("Shift-"))
                    .unwrap_or(name);
                let is_special = SPECIAL
                    .iter()
                    .any(|(special, _)| [name, rest].contains(special));
                assert!(is_special || rest.chars().count() == 1, "{name} is no key");
            }
        }
    }
}
