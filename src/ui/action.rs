//! What keys ask for (actions), and what the screen asks of the rest of the program (effects).

use super::save_format::SaveFormat;
use super::screen_settings::ScreenSettings;
use super::view::ScreenView;
use sample::{EngineLevel, ProfiledThread};
use std::path::PathBuf;

/// What a key asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
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
    /// Unfold, open or accept what is selected.
    Open,
    /// Close the popup, return to the table of guests, or clear the filter.
    Back,
    /// Hide the threads of the selected guest.
    Fold,
    /// Show the threads of the selected guest.
    Unfold,
    /// Show or hide the threads of all guests.
    UnfoldAll,
    /// Show the next view.
    NextView,
    /// Show the previous view.
    PrevView,
    /// Show a view.
    Show(ScreenView),
    /// Show one guest or all of them in the view.
    Scope,
    /// Sort the view by what comes next.
    Order,
    /// Count exits per second, in the interval or since the start.
    Span,
    /// Count the exits in which a guest sleeps, or not.
    Sleep,
    /// Draw all run delays or those after wake-ups.
    Latencies,
    /// Sample the stack of a thread, or show the one that was recorded.
    Stack,
    /// Select the next guest of the table.
    NextGuest,
    /// Select the previous guest of the table.
    PrevGuest,
    /// Type a filter.
    Filter,
    /// Choose what the table is sorted by.
    SortMenu,
    /// Reverse the sort order.
    SortReverse,
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
    /// Keep the selected guest on top of the table, or let it go.
    Pin,
    /// Keep the selection on its row wherever that moves, or on the first row again.
    Follow,
    /// Mark A, then B, then neither.
    MarkTime,
    /// Choose what the view is written as.
    SaveView,
    /// The next theme.
    NextTheme,
    /// Take the mouse from the terminal, or give it back.
    ToggleMouse,
    /// Save the settings in the config file.
    SaveSettings,
    /// Pause or resume: a live screen, or the playback of a recording.
    Pause,
    /// Cycle the tracing level.
    EngineLevel,
    /// Toggle the counting of every kvm tracepoint.
    KvmEvents,
    /// Start or stop recording.
    Record,
    /// Help.
    Help,
    /// Copy the fix.
    Copy,
    /// Write the fix to a file.
    Write,
    /// The next finding.
    NextFinding,
    /// The previous finding.
    PrevFinding,
    /// This many samples forward; backward where negative.
    Step(i8),
    /// This many minutes forward; backward where negative.
    Minutes(i8),
    /// To the first sample.
    TimeStart,
    /// To the last sample.
    TimeEnd,
    /// Play faster.
    Faster,
    /// Play slower.
    Slower,
    /// Type a time to go to.
    Goto,
    /// The next sample with a mark.
    NextMark,
    /// The previous sample with a mark.
    PrevMark,
}

impl Action {
    /// Its name in the config file's `[keys]`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Quit => "quit",
            Self::Suspend => "suspend",
            Self::Up => "up",
            Self::Down => "down",
            Self::PageUp => "page-up",
            Self::PageDown => "page-down",
            Self::First => "first",
            Self::Last => "last",
            Self::Open => "open",
            Self::Back => "back",
            Self::Fold => "fold",
            Self::Unfold => "unfold",
            Self::UnfoldAll => "unfold-all",
            Self::NextView => "next-view",
            Self::PrevView => "prev-view",
            Self::Show(view) => view.name(),
            Self::Scope => "one-or-all",
            Self::Order => "order",
            Self::Span => "span",
            Self::Sleep => "sleep",
            Self::Latencies => "latencies",
            Self::Stack => "stack",
            Self::NextGuest => "next-guest",
            Self::PrevGuest => "prev-guest",
            Self::Filter => "filter",
            Self::SortMenu => "sort",
            Self::SortReverse => "reverse",
            Self::Columns => "columns",
            Self::Toggle => "show-column",
            Self::MoveUp => "column-left",
            Self::MoveDown => "column-right",
            Self::Reset => "reset-columns",
            Self::Pin => "pin",
            Self::Follow => "follow",
            Self::MarkTime => "mark-time",
            Self::SaveView => "save-view",
            Self::NextTheme => "theme",
            Self::ToggleMouse => "mouse",
            Self::SaveSettings => "save-settings",
            Self::Pause => "pause",
            Self::EngineLevel => "tracing-level",
            Self::KvmEvents => "kvm-events",
            Self::Record => "record",
            Self::Help => "help",
            Self::Copy => "copy-fix",
            Self::Write => "write-fix",
            Self::NextFinding => "next-finding",
            Self::PrevFinding => "prev-finding",
            Self::Step(n) if n < 0 => "step-back",
            Self::Step(_) => "step",
            Self::Minutes(n) if n < 0 => "minute-back",
            Self::Minutes(_) => "minute",
            Self::TimeStart => "time-start",
            Self::TimeEnd => "time-end",
            Self::Faster => "faster",
            Self::Slower => "slower",
            Self::Goto => "go-to",
            Self::NextMark => "next-mark",
            Self::PrevMark => "prev-mark",
        }
    }
}

/// What the screen asks of the rest of the program. Only the event loop carries these out.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// End the program.
    Quit,
    /// Stop the process until `fg`.
    Suspend,
    /// Set the tracing level.
    SetEngineLevel(EngineLevel),
    /// Start (`true`) or stop counting every kvm tracepoint.
    SetKvmEvents(bool),
    /// Put this on the terminal's clipboard (OSC 52).
    Copy(String),
    /// Write a new file of this name into the current folder.
    WriteFile(String, String),
    /// Write the view into a new file in the current folder.
    SaveView(SaveFormat),
    /// Save these settings in the config file.
    SaveSettings(ScreenSettings),
    /// Sample the stacks of these threads.
    Profile(ProfileRequest),
    /// Start recording.
    StartRecord,
    /// Stop recording.
    StopRecord,
    /// Move within the recording, or play it.
    Replay(Replay),
}

/// Threads of a guest whose stacks are to be sampled.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProfileRequest {
    /// The guest's process.
    pub pid: i32,
    /// When it started, clock ticks after boot.
    pub start_ticks: u64,
    /// The threads.
    pub threads: Vec<ProfiledThread>,
}

/// What the screen asks of a replay.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Replay {
    /// Play (`true`) or pause.
    Play(bool),
    /// Play this many times as fast as it happened.
    Speed(f64),
    /// This many samples forward; backward where negative.
    Step(i64),
    /// This many milliseconds forward; backward where negative.
    Jump(i64),
    /// To a wall-clock time, milliseconds since the Unix epoch.
    Seek(i64),
    /// To the first or the last sample.
    End {
        /// The last one.
        last: bool,
    },
    /// To the next or the previous sample with a mark.
    Mark {
        /// Forward in time.
        forward: bool,
    },
}

/// What the screen asks of the collector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Control {
    /// Set the tracing level.
    SetEngineLevel(EngineLevel),
    /// Start (`true`) or stop counting every kvm tracepoint.
    SetKvmEvents(bool),
    /// The view of the disks is open (`true`) or closed: the host's block devices are to be timed or need not be.
    ShowDisks(bool),
    /// The view of latencies is open (`true`) or closed: interrupts of guests are to be traced or need not be.
    ShowInterrupts(bool),
    /// Record into this file from now on. The source `recording` of the samples reports how that goes.
    StartRecord(PathBuf),
    /// Close the recording.
    StopRecord,
    /// Sample the stacks of these threads. They come with the sample after.
    Profile(ProfileRequest),
    /// End: close the recording; the next sample may be the last.
    Quit,
}
