//! How long a pattern has to last, and how long it has to be absent.

use std::fmt;

/// How far back findings are judged, seconds.
pub(crate) const REMEMBERED_S: f64 = 60.0;

/// A pattern leaves when it has not shown for this long, or for as long as its rule looks back, if
/// that is longer.
const GONE_S: f64 = 15.0;

/// How long a pattern has to last on a running host before it is reported.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Hold {
    /// It is reported at once and only while it lasts: configuration, and lines of a log. No figure
    /// is compared with a threshold, so it changes when someone changes something and at no other
    /// time.
    While,
    /// It is reported at once and kept for this many seconds: single events that matter.
    Once(f64),
    /// It has to show for the first number of seconds within the second number of seconds.
    For(f64, f64),
}

impl Hold {
    /// At once, and until it has not shown for a while: mostly configuration, with a figure that
    /// moves.
    pub const AT_ONCE: Self = Self::For(0.0, 1.0);
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

    /// For how many seconds the pattern has to show.
    pub fn shows_s(self) -> f64 {
        match self {
            Self::While | Self::Once(_) => 0.0,
            Self::For(shows_s, _) => shows_s,
        }
    }

    /// Within how many seconds.
    pub fn window_s(self) -> f64 {
        match self {
            Self::While => 0.0,
            Self::Once(window_s) | Self::For(_, window_s) => window_s,
        }
    }

    /// After how many seconds of absence it is no longer reported.
    pub fn gone_s(self) -> f64 {
        match self {
            Self::While => 0.0,
            Self::Once(seconds) => seconds,
            Self::For(_, window_s) => window_s.max(GONE_S),
        }
    }
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gone_s = self.gone_s();
        match self {
            Self::While => f.write_str("at once, while it lasts"),
            Self::Once(s) => write!(f, "at once, kept for {s} s"),
            Self::For(need, _) if *need <= 0.0 => {
                write!(f, "at once, until it has not shown for {gone_s} s")
            }
            Self::For(need, of) => write!(
                f,
                "after {need} of the last {of} s, until it has not shown for {gone_s} s"
            ),
        }
    }
}
