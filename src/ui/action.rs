//! What a key asks for, and what the screen asks of the outside.

use super::state::Panel;
use crate::sample::EngineLevel;
use std::path::PathBuf;

/// What a key asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// Leave.
    Quit,
    /// Stop the process and give the terminal back, as Ctrl-Z does everywhere.
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
    /// Close, clear, back to the table.
    Back,
    /// Fold the selected domain.
    Fold,
    /// Unfold the selected domain.
    Unfold,
    /// Fold or unfold all domains.
    UnfoldAll,
    /// The keys go to the next panel.
    NextPanel,
    /// The keys go to the previous panel.
    PrevPanel,
    /// Show a panel.
    Show(Panel),
    /// Type a filter.
    Filter,
    /// Choose what the table is sorted by.
    SortMenu,
    /// Turn the order of sorting round.
    SortReverse,
    /// Stop the screen, or let it go on.
    Pause,
    /// Watch more or less.
    EngineLevel,
    /// Count every kvm tracepoint, or cease to.
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
    /// So many samples on.
    Step(i8),
    /// So many minutes on.
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

/// What the screen asks of the outside. Only the loop in `run` carries these out.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// End the program.
    Quit,
    /// Stop the process until `fg`.
    Suspend,
    /// Watch so much.
    SetEngineLevel(EngineLevel),
    /// Count every kvm tracepoint, or not.
    SetKvmEvents(bool),
    /// Put this on the terminal's clipboard (OSC 52).
    Copy(String),
    /// Write a new file of this name into the current folder.
    WriteFile(String, String),
    /// Start recording.
    StartRecord,
    /// Stop recording.
    StopRecord,
    /// Move about in the recording.
    Replay(Replay),
}

/// What a replay is asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Replay {
    /// Play or hold.
    Play(bool),
    /// So many times as fast as it happened.
    Speed(f64),
    /// So many samples on or back.
    Step(i64),
    /// So many milliseconds on or back.
    Jump(i64),
    /// To a wall-clock time, milliseconds since the epoch.
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
    /// Watch so much.
    SetEngineLevel(EngineLevel),
    /// Count every kvm tracepoint, or not.
    SetKvmEvents(bool),
    /// Record from now on into this file; how it goes is told by the source `recording` of the samples.
    StartRecord(PathBuf),
    /// Close the recording.
    StopRecord,
    /// End: close what is open, the next sample may be the last.
    Quit,
}
