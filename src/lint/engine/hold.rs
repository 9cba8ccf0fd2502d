//! How long a pattern has to last.

use std::fmt;

/// How long a pattern has to last on a running host before it is reported.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Hold {
    /// It is reported at once and only while it lasts: configuration, states.
    While,
    /// It is reported at once and kept for this many seconds: single events that matter.
    Once(f64),
    /// It has to show for the first number of seconds within the second number of seconds.
    For(f64, f64),
}

impl Hold {
    /// Three of the last five seconds.
    pub const USUAL: Self = Self::For(3.0, 5.0);
    /// Most of the last ten seconds.
    pub const LONG: Self = Self::For(8.0, 10.0);
    /// Some five seconds, for clocks that a program may read in a short burst.
    pub const CLOCK: Self = Self::For(5.0, 8.0);
    /// For figures that are read every other second.
    pub const SPARSE: Self = Self::For(3.0, 10.0);
    /// Single events stay on the screen for less than half a minute, long enough to be read.
    pub const EVENT: Self = Self::Once(20.0);
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::While => f.write_str("at once, while it lasts"),
            Self::Once(s) => write!(f, "at once, kept for {s} s"),
            Self::For(need, of) => write!(f, "after {need} of the last {of} s"),
        }
    }
}
