//! arm64: exception classes (`arch/arm64/include/asm/esr.h`) and, from 0x100, return codes of the
//! hypervisor code (`kvm_asm.h`), sorted by number.

use super::ReasonRow;

const COPROCESSOR: &str = "A 32-bit guest used a coprocessor register that is trapped";
const DEBUG: &str = "A debug event of the guest";
const LAZY: &str = "The guest used floating point or vector registers for the first time since it \
    was scheduled";
const CALL: &str = "A call to the firmware or hypervisor: CPU power, paravirtual time";
const ERROR: &str = "A fault inside the host's own hypervisor code, or a broken guest";

#[rustfmt::skip]
pub(super) const TABLE: &[ReasonRow] = &[
    (0x00, "UNKNOWN", "An undefined instruction, or one that has no class of its own"),
    (0x01, "WFx", "The virtual CPU waits for an interrupt or event: sleep, not work"),
    (0x03, "CP15_32", COPROCESSOR), (0x04, "CP15_64", COPROCESSOR), (0x05, "CP14_MR", COPROCESSOR),
    (0x06, "CP14_LS", COPROCESSOR),
    (0x07, "FP_ASIMD", LAZY), (0x08, "CP10_ID", COPROCESSOR), (0x09, "PAC", ""),
    (0x0a, "OTHER", ""),
    (0x0c, "CP14_64", COPROCESSOR), (0x0d, "BTI", ""), (0x0e, "ILL", ERROR),
    (0x11, "SVC32", ""), (0x12, "HVC32", CALL), (0x13, "SMC32", CALL), (0x15, "SVC64", ""),
    (0x16, "HVC64", CALL), (0x17, "SMC64", CALL),
    (0x18, "SYS64", "A trapped system register: sending an IPI, timers, identification, \
        performance counters"),
    (0x19, "SVE", LAZY), (0x1a, "ERET", "The guest is itself a hypervisor"), (0x1c, "FPAC", ""),
    (0x1d, "SME", LAZY), (0x1f, "IMP_DEF", ""),
    (0x20, "IABT_LOW", "The guest fetched an instruction from a page that was not mapped"),
    (0x21, "IABT_CUR", ERROR), (0x22, "PC_ALIGN", ERROR),
    (0x24, "DABT_LOW", "The guest touched emulated device memory, or a page that was not mapped"),
    (0x25, "DABT_CUR", ERROR),
    (0x26, "SP_ALIGN", ERROR), (0x27, "MOPS", ""), (0x28, "FP_EXC32", ""), (0x2c, "FP_EXC64", ""),
    (0x2d, "GCS", ""), (0x2f, "SERROR", "A hardware error"),
    (0x30, "BREAKPT_LOW", DEBUG), (0x31, "BREAKPT_CUR", DEBUG), (0x32, "SOFTSTP_LOW", DEBUG),
    (0x33, "SOFTSTP_CUR", DEBUG),
    (0x34, "WATCHPT_LOW", DEBUG), (0x35, "WATCHPT_CUR", DEBUG), (0x38, "BKPT32", DEBUG),
    (0x3a, "VECTOR32", DEBUG), (0x3c, "BRK64", DEBUG),
    (0x100, "IRQ", "An interrupt for the host (timer tick, IPI, device) hit the CPU while the \
        guest ran"),
    (0x101, "SERROR", "A hardware error was pending"),
    (0x102, "TRAP", "A trap whose class is not known"),
    (0x103, "IL", ERROR),
    (0x0bad_cb11, "HYP_GONE", "The host's hypervisor code was torn down while the guest ran"),
];
