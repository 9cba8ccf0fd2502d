//! The port of an exit for an I/O instruction, as the CPU gives it beside the exit's reason (`info1` of `kvm_exit`).

use super::isa::Isa;

/// VMX's basic exit reason for I/O instructions (arch/x86/include/uapi/asm/vmx.h).
const EXIT_REASON_IO_INSTRUCTION: u32 = 30;
/// SVM's exit code for them (arch/x86/include/uapi/asm/svm.h).
const SVM_EXIT_IOIO: u32 = 0x07b;

/// An access to a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortExit {
    /// The port.
    pub port: u16,
    /// Whether the guest wrote to it.
    pub write: bool,
}

impl PortExit {
    /// Reads VMX's exit qualification (Intel SDM, volume 3, "Exit Qualification for I/O Instructions") or SVM's
    /// EXITINFO1 (AMD APM, volume 2, "IOIO Intercept Information"): both hold the port in bits 31:16. `None` for other
    /// exits, and where tools print 0 for what they do not know.
    pub fn of(isa: Isa, code: u32, info1: u64) -> Option<Self> {
        // The bit that is set for an input.
        let input = match (isa, code) {
            (Isa::Vmx, EXIT_REASON_IO_INSTRUCTION) => 1 << 3,
            (Isa::Svm, SVM_EXIT_IOIO) => 1,
            _ => return None,
        };
        (info1 != 0).then_some(Self { port: (info1 >> 16) as u16, write: info1 & input == 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_vendors_hold_the_port() {
        let of = |isa, code, info| PortExit::of(isa, code, info).map(|exit| (exit.port, exit.write));
        // A 32-bit read of the ACPI PM timer, a byte written to the RTC's index and one to QEMU's debug port.
        assert_eq!(of(Isa::Vmx, 30, 0x0608_000b), Some((0x608, false)));
        assert_eq!(of(Isa::Vmx, 30, 0x0070_0040), Some((0x70, true)));
        assert_eq!(of(Isa::Svm, 0x7b, 0x0608_0041), Some((0x608, false)));
        assert_eq!(of(Isa::Svm, 0x7b, 0x0402_0010), Some((0x402, true)));
        assert_eq!(of(Isa::Vmx, 30, 0), None);
        assert_eq!(of(Isa::Vmx, 48, 0x0608_000b), None);
        assert_eq!(of(Isa::Svm, 30, 0x0608_000b), None);
    }
}
