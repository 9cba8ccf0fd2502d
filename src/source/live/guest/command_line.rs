//! A guest's command line, which is read once and may come late: the process can hold it back.

use super::identity::{MAX_COMMAND, ProcessIdentity};
use crate::source::live::proc::paths::SystemPaths;
use crate::source::live::proc::slow_files::{FileBytes, SlowFile, SlowFiles};
use std::sync::mpsc::{Receiver, TryRecvError};

/// How far the reading of a command line is.
#[derive(Debug, Default)]
pub(crate) enum CommandLine {
    /// Not asked for.
    #[default]
    Unread,
    /// A thread waits for it.
    Waiting(Receiver<FileBytes>),
    /// The identity has it since the last call of [`CommandLine::is_news`].
    New,
    /// It is known, or cannot be known.
    Settled,
}

impl CommandLine {
    /// Goes on reading; the identity takes the command line over when it is there.
    pub(crate) fn read(&mut self, paths: &SystemPaths, identity: &mut ProcessIdentity, slow_files: &mut SlowFiles) {
        let bytes = match self {
            Self::Unread => match slow_files.read(paths.process(identity.pid, "cmdline"), MAX_COMMAND, identity.uid) {
                SlowFile::Read(bytes) => bytes,
                SlowFile::Waiting(receiver) => {
                    *self = Self::Waiting(receiver);
                    return;
                }
                SlowFile::Busy => return,
            },
            Self::Waiting(receiver) => match receiver.try_recv() {
                Ok(bytes) => bytes,
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => {
                    *self = Self::Unread;
                    return;
                }
            },
            Self::New | Self::Settled => return,
        };
        identity.learn(&bytes.unwrap_or_default());
        *self = Self::New;
    }

    /// Whether it has been read since the last call.
    pub(crate) fn is_news(&mut self) -> bool {
        let is_new = matches!(self, Self::New);
        if is_new {
            *self = Self::Settled;
        }
        is_new
    }

    /// Whether it is not known so far.
    pub(crate) fn is_missing(&self) -> bool {
        matches!(self, Self::Unread | Self::Waiting(_))
    }
}
