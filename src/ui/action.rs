//! What keys ask for (actions), and what the screen asks of the rest of the program (effects).

use super::{Lens, ScreenView};
use clap::ValueEnum;
use sample::EngineLevel;
use serde::Deserialize;
use std::path::PathBuf;

/// What a key asks for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Action {
    /// End the program.
    Quit,
    /// Restore the terminal and stop the process, as Ctrl-Z does in every program.
    Suspend,
    /// One row up.
    Up,
    /// One row down.
    Down,
    /// A page up.
    PageUp,
    /// A page down.
    PageDown,
    /// To the first row.
    First,
    /// To the last row.
    Last,
    /// Open or accept what is selected.
    Open,
    /// Close the popup, return to the list of guests, or clear the filter.
    Back,
    /// Show the view so many places further; on a page, go to the next section, or back where
    /// negative.
    Turn(isize),
    /// Show a view.
    Show(ScreenView),
    /// Look at the list of guests through a lens.
    Look(Lens),
    /// Sort the list by the column of this name.
    SortBy(&'static str),
    /// Select the guest so many places further in the table.
    Guest(isize),
    /// Type a filter.
    Filter,
    /// Choose what the table is sorted by.
    Sort,
    /// Reverse the sort order.
    Reverse,
    /// Open or close the menu of columns.
    Columns,
    /// Show or hide the column selected in the menu.
    Toggle,
    /// Move the column selected in the menu to the left.
    MoveUp,
    /// Move the column selected in the menu to the right.
    MoveDown,
    /// The columns as at first.
    Reset,
    /// Choose what the view is written as.
    SaveView,
    /// Pause or resume: a live screen, or the playback of a recording.
    Pause,
    /// Cycle the tracing level.
    EngineLevel,
    /// Write what the user chose for the list into the config file, after a second press.
    KeepChoices,
    /// Take samples at the next longer interval (1) or shorter one (-1).
    Interval(isize),
    /// Start or stop recording.
    Record,
    /// Ask QEMU through libvirt for the names of the selected guest's devices.
    AskMonitor,
    /// Help.
    Help,
    /// Copy the fix.
    Copy,
    /// Write the fix to a file.
    Write,
    /// The problem so many places further, of the selected row, else of the next row that has one.
    Problem(isize),
    /// Move within the recording.
    Replay(Replay),
    /// Type a time to go to.
    Goto,
}

impl Action {
    /// How many lines it moves the cursor; `None` for an action that does not.
    pub fn motion(self, page: isize) -> Option<isize> {
        Some(match self {
            Self::Up => -1,
            Self::Down => 1,
            Self::PageUp => -page,
            Self::PageDown => page,
            Self::First => isize::MIN,
            Self::Last => isize::MAX,
            _ => return None,
        })
    }
}

/// What the view is written as.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SaveFormat {
    /// The screen's text.
    Text,
    /// The view's figures, a line for each row.
    Csv,
    /// The whole interval, as `--batch --json` prints it.
    Json,
}

impl SaveFormat {
    /// All with the ends of their files' names and their lines of the menu, in its order.
    pub const ALL: [(Self, &str, &str); 3] = [
        (Self::Text, "txt", "the text of the screen, for a ticket"),
        (
            Self::Csv,
            "csv",
            "the figures of the view, not rounded, for a spreadsheet",
        ),
        (
            Self::Json,
            "json",
            "the whole interval of the guests in the view, as --batch --json prints it",
        ),
    ];
}

/// `--engine-detail`.
#[derive(Debug, Clone, Copy, PartialEq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineDetail {
    /// What the host's block devices take for the guests' requests
    Disks,
    /// What interrupts vCPUs, and how long it is on its way
    Interrupts,
}

/// What the screen asks of the rest of the program. Only the event loop carries these out.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// End the program.
    Quit,
    /// Stop the process until `fg`.
    Suspend,
    /// Ask the collector for something.
    Control(Control),
    /// Put a text on the terminal's clipboard (OSC 52), and say what it is.
    Copy {
        /// The text.
        text: String,
        /// For whom it is, and where it goes.
        what: String,
    },
    /// Write a new file of this name into the current folder.
    WriteFile(String, String),
    /// Write what the user chose for the list into the config file.
    KeepChoices,
    /// Write the view into a new file in the current folder.
    SaveView(SaveFormat),
    /// Start recording into a new file in the current folder.
    StartRecord,
    /// Move within the recording, or play it.
    Replay(Replay),
}

/// What the screen asks of a replay.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Replay {
    /// Play (`true`) or pause.
    Play(bool),
    /// Play twice as fast.
    Faster,
    /// Play half as fast.
    Slower,
    /// This many samples forward; backward where negative.
    Step(i64),
    /// This many milliseconds forward; backward where negative.
    Jump(i64),
    /// To a wall-clock time, milliseconds since the Unix epoch.
    Seek(i64),
    /// To the next sample with a problem that the one before it does not have, or to the previous
    /// such sample (`false`).
    Problem(bool),
    /// On a live screen: be at the sample of this time, without showing it, before a key moves on.
    From(i64),
    /// On a live screen: the user is back at the newest sample.
    Now,
    /// To the first sample.
    First,
    /// To the last sample.
    Last,
}

/// What the screen asks of the collector.
#[derive(Debug, Clone, PartialEq)]
pub enum Control {
    /// Set the tracing level.
    SetEngineLevel(EngineLevel),
    /// A view is open (`true`) or closed that shows figures which cost guests something: they are
    /// to be taken or need not be.
    Show(EngineDetail, bool),
    /// The screen begins (`true`) or ceases to show what guests' disks and interfaces do: it is to
    /// be read more often.
    WatchDevices(bool),
    /// Take samples at another interval, milliseconds.
    SetInterval(u64),
    /// Ask the monitor of the guest with this process id through libvirt.
    AskMonitor(i32),
    /// Record into this file from now on. The source `recording` of the samples reports how that
    /// goes.
    StartRecord(PathBuf),
    /// Close the recording.
    StopRecord,
    /// End: close the recording; the next sample may be the last.
    Quit,
}
