//! Kinds of exits by their codes.

use super::ExitRow;
use kvm::Isa;

/// A kind of exit: the codes of the same event on VMX, SVM and arm64.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ExitKind(&'static [u32], &'static [u32], &'static [u32]);

/// Codes: `arch/x86/include/uapi/asm/vmx.h`, `svm.h` there, and `kvm::exit_reason::arm64_code`.
#[expect(non_upper_case_globals, reason = "read like the variants of an enum")]
impl ExitKind {
    pub const HostInterrupt: Self = Self(&[1], &[0x60], &[0x100]);
    pub const InterruptWindow: Self = Self(&[7], &[0x64], &[]);
    pub const Io: Self = Self(&[30], &[0x7b], &[]);
    pub const TprBelowThreshold: Self = Self(&[43], &[], &[]);
    pub const ApicAccess: Self = Self(&[44], &[], &[]);
    pub const ApicWrite: Self = Self(&[56], &[], &[]);
    pub const EoiInduced: Self = Self(&[45], &[], &[]);
    pub const Avic: Self = Self(&[], &[0x401, 0x402], &[]);
    /// SVM has one code for reads and writes.
    pub const MsrWrite: Self = Self(&[32], &[0x7c], &[]);
    pub const Msr: Self = Self(&[31, 32, 84, 85], &[0x7c], &[]);
    pub const PreemptionTimer: Self = Self(&[52], &[], &[]);
    pub const EptMisconfig: Self = Self(&[49], &[], &[]);
    pub const MemoryFault: Self = Self(&[48], &[0x400], &[0x24, 0x20]);
    pub const Pause: Self = Self(&[40], &[0x77], &[]);
    pub const DirtyLogFull: Self = Self(&[62], &[], &[]);
    pub const BusLock: Self = Self(&[74], &[0xa5], &[]);
    pub const Notify: Self = Self(&[75], &[], &[]);
    pub const TripleFault: Self = Self(&[2], &[0x7f], &[]);
    /// Invalid state, MSRs that cannot be loaded, a machine check: the entries that fail.
    pub const InvalidState: Self = Self(&[33, 34, 41], &[u32::MAX], &[]);
    /// A guest hypervisor's own instructions.
    pub const Nested: Self = Self(
        &[19, 20, 21, 22, 23, 24, 25, 26, 27, 50, 53],
        &[0x80, 0x82, 0x83, 0x84, 0x85, 0x7a, 0x86],
        &[0x1a],
    );

    /// Whether a row of an exit table has this kind.
    pub fn matches(self, row: &ExitRow) -> bool {
        row.id.is_some_and(|(isa, code)| {
            let codes = match isa {
                Isa::Vmx => self.0,
                Isa::Svm => self.1,
                Isa::Arm64 => self.2,
                Isa::Other(_) => &[],
            };
            codes.contains(&code)
        })
    }
}
