//! The views of the screen by name.

use strum::IntoStaticStr;

/// What fills the screen below the header.
#[derive(Debug, Clone, Copy, Default, PartialEq, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum ScreenView {
    /// The list of guests, and the detail of the selected one.
    #[default]
    Guests,
    /// All of one guest, or of the host outside guests.
    Page,
    /// All problems of the host and its guests.
    Problems,
    /// The host's CPUs.
    Host,
    /// How long vCPUs wait for a CPU.
    Latency,
    /// Which sources work and which are missing.
    Sources,
}

impl ScreenView {
    /// The views that a number and Tab show, in this order.
    pub const ALL: [Self; 5] = [
        Self::Guests,
        Self::Problems,
        Self::Host,
        Self::Latency,
        Self::Sources,
    ];

    /// Its name in names of files.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// The view `by` places further; after the last comes the first.
    #[must_use]
    pub fn turn(self, by: isize) -> Self {
        let at = Self::ALL.iter().position(|v| *v == self).unwrap_or(0);
        Self::ALL[(at as isize + by).rem_euclid(Self::ALL.len() as isize) as usize]
    }
}
