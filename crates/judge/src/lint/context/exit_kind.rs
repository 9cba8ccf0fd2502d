//! Exit reasons by what they mean, whichever instruction set they are of.

use crate::model::ExitRow;
use kvm::Isa;

/// A kind of exit: the same event by its code on each instruction set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExitKind {
    HostInterrupt,
    InterruptWindow,
    Io,
    TprBelowThreshold,
    ApicAccess,
    ApicWrite,
    EoiInduced,
    Avic,
    /// SVM has one code for reads and writes.
    MsrWrite,
    EptMisconfig,
    MemoryFault,
    Pause,
    DirtyLogFull,
    BusLock,
    Notify,
    TripleFault,
    InvalidState,
    /// A guest hypervisor's own instructions.
    Nested,
}

impl ExitKind {
    /// Codes: `arch/x86/include/uapi/asm/vmx.h`, `svm.h` there, and `kvm::exit_reason::arm64_code`.
    fn codes(self) -> &'static [(Isa, &'static [u32])] {
        use Isa::{Arm64, Svm, Vmx};
        match self {
            Self::HostInterrupt => &[(Vmx, &[1]), (Svm, &[0x60]), (Arm64, &[0x100])],
            Self::InterruptWindow => &[(Vmx, &[7]), (Svm, &[0x64])],
            Self::Io => &[(Vmx, &[30]), (Svm, &[0x7b])],
            Self::TprBelowThreshold => &[(Vmx, &[43])],
            Self::ApicAccess => &[(Vmx, &[44])],
            Self::ApicWrite => &[(Vmx, &[56])],
            Self::EoiInduced => &[(Vmx, &[45])],
            Self::Avic => &[(Svm, &[0x401, 0x402])],
            Self::MsrWrite => &[(Vmx, &[32]), (Svm, &[0x7c])],
            Self::EptMisconfig => &[(Vmx, &[49])],
            Self::MemoryFault => &[(Vmx, &[48]), (Svm, &[0x400]), (Arm64, &[0x24, 0x20])],
            Self::Pause => &[(Vmx, &[40]), (Svm, &[0x77])],
            Self::DirtyLogFull => &[(Vmx, &[62])],
            Self::BusLock => &[(Vmx, &[74]), (Svm, &[0xa5])],
            Self::Notify => &[(Vmx, &[75])],
            Self::TripleFault => &[(Vmx, &[2]), (Svm, &[0x7f])],
            // Invalid state, MSRs that cannot be loaded, a machine check: the entries that fail.
            Self::InvalidState => &[(Vmx, &[33, 34, 41]), (Svm, &[u32::MAX])],
            Self::Nested => &[
                (Vmx, &[19, 20, 21, 22, 23, 24, 25, 26, 27, 50, 53]),
                (Svm, &[0x80, 0x82, 0x83, 0x84, 0x85, 0x7a, 0x86]),
                (Arm64, &[0x1a]),
            ],
        }
    }

    /// Whether a row of an exit table has this kind.
    pub fn matches(self, row: &ExitRow) -> bool {
        row.id.is_some_and(|(isa, code)| self.codes().iter().any(|of| of.0 == isa && of.1.contains(&code)))
    }
}
