//! The virtualisation extension that runs a guest. It decides what an exit code means.

use serde::{Deserialize, Serialize};
use strum::Display;

/// The virtualisation extension that an exit came from. The `isa` field of `kvm_exit` holds its
/// code.
#[derive(
    Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug, Serialize, Deserialize, Display,
)]
#[strum(serialize_all = "lowercase")]
pub enum Isa {
    /// Intel VMX (`isa` 1).
    Vmx,
    /// AMD SVM (`isa` 2).
    Svm,
    /// arm64, whose `kvm_exit` lacks the `isa` field.
    Arm64,
    /// Anything else, with the kernel's number.
    #[strum(to_string = "isa{0}")]
    Other(u32),
}

impl Default for Isa {
    fn default() -> Self {
        Self::UNKNOWN
    }
}

impl Isa {
    /// Stands for an extension that is not known, and for the code of an exit that has none.
    pub const UNKNOWN: Self = Self::Other(0);

    /// From the `isa` field of the x86 `kvm_exit` tracepoint.
    pub const fn from_code(code: u32) -> Self {
        match code {
            1 => Self::Vmx,
            2 => Self::Svm,
            other => Self::Other(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_codes_go_both_ways() {
        assert_eq!(Isa::from_code(1), Isa::Vmx);
        assert_eq!(Isa::from_code(2), Isa::Svm);
        assert_eq!(Isa::from_code(7).to_string(), "isa7");
    }
}
