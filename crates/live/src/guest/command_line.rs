//! A guest's command line, which is read once and may come late: the process can hold it back.

use super::identity::{MAX_COMMAND, ProcessIdentity};
use crate::proc::paths::SystemPaths;
use crate::proc::slow_files::{LateFile, PATIENCE, SlowFiles};

/// How far the reading of a command line is.
#[derive(Debug)]
pub(crate) enum CommandLine {
    /// Not there so far.
    Missing(LateFile),
    /// The identity has it since the last call of [`CommandLine::is_news`].
    New,
    /// It is known, or cannot be known.
    Settled,
}

impl Default for CommandLine {
    fn default() -> Self {
        Self::Missing(LateFile::default())
    }
}

impl CommandLine {
    /// Goes on reading; the identity takes the command line over when it is there.
    pub(crate) fn read(&mut self, paths: &SystemPaths, identity: &mut ProcessIdentity, slow_files: &mut SlowFiles) {
        let Self::Missing(file) = self else { return };
        let path = paths.process(identity.pid, "cmdline");
        if let Some(bytes) = file.read(slow_files, path, MAX_COMMAND, identity.uid, PATIENCE) {
            identity.learn(&bytes.unwrap_or_default());
            *self = Self::New;
        }
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
        matches!(self, Self::Missing(_))
    }
}
