//! Kinds of exits by their codes.

use super::ExitRow;
use kvm::Isa::{self, Arm64, Svm, Vmx};

/// A kind of exit: the same event by its codes on each instruction set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ExitKind(&'static [(Isa, &'static [u32])]);

/// Codes: `arch/x86/include/uapi/asm/vmx.h`, `svm.h` there, and `kvm::exit_reason::arm64_code`.
#[expect(non_upper_case_globals, reason = "read like the variants of an enum")]
impl ExitKind {
    pub const HostInterrupt: Self = Self(&[(Vmx, &[1]), (Svm, &[0x60]), (Arm64, &[0x100])]);
    pub const InterruptWindow: Self = Self(&[(Vmx, &[7]), (Svm, &[0x64])]);
    pub const Io: Self = Self(&[(Vmx, &[30]), (Svm, &[0x7b])]);
    pub const TprBelowThreshold: Self = Self(&[(Vmx, &[43])]);
    pub const ApicAccess: Self = Self(&[(Vmx, &[44])]);
    pub const ApicWrite: Self = Self(&[(Vmx, &[56])]);
    pub const EoiInduced: Self = Self(&[(Vmx, &[45])]);
    pub const Avic: Self = Self(&[(Svm, &[0x401, 0x402])]);
    /// SVM has one code for reads and writes.
    pub const MsrWrite: Self = Self(&[(Vmx, &[32]), (Svm, &[0x7c])]);
    pub const Msr: Self = Self(&[(Vmx, &[31, 32, 84, 85]), (Svm, &[0x7c])]);
    pub const PreemptionTimer: Self = Self(&[(Vmx, &[52])]);
    pub const EptMisconfig: Self = Self(&[(Vmx, &[49])]);
    pub const MemoryFault: Self = Self(&[(Vmx, &[48]), (Svm, &[0x400]), (Arm64, &[0x24, 0x20])]);
    pub const Pause: Self = Self(&[(Vmx, &[40]), (Svm, &[0x77])]);
    pub const DirtyLogFull: Self = Self(&[(Vmx, &[62])]);
    pub const BusLock: Self = Self(&[(Vmx, &[74]), (Svm, &[0xa5])]);
    pub const Notify: Self = Self(&[(Vmx, &[75])]);
    pub const TripleFault: Self = Self(&[(Vmx, &[2]), (Svm, &[0x7f])]);
    /// Invalid state, MSRs that cannot be loaded, a machine check: the entries that fail.
    pub const InvalidState: Self = Self(&[(Vmx, &[33, 34, 41]), (Svm, &[u32::MAX])]);
    /// A guest hypervisor's own instructions.
    pub const Nested: Self = Self(&[
        (Vmx, &[19, 20, 21, 22, 23, 24, 25, 26, 27, 50, 53]),
        (Svm, &[0x80, 0x82, 0x83, 0x84, 0x85, 0x7a, 0x86]),
        (Arm64, &[0x1a]),
    ]);

    /// Whether a row of an exit table has this kind.
    pub fn matches(self, row: &ExitRow) -> bool {
        row.id
            .is_some_and(|(isa, code)| self.0.iter().any(|of| of.0 == isa && of.1.contains(&code)))
    }
}
