//! Names of model specific registers, and what it means when a guest uses one often.
//!
//! Sources: `arch/x86/include/asm/msr-index.h`, `uapi/asm/kvm_para.h`, `asm/apicdef.h` (x2APIC:
//! 0x800 + offset / 16), the Hyper-V functional specification.

use std::borrow::Cow;

const SPEED: &str = "The guest reads how fast its CPU really runs";
const POWER: &str = "A sensor tool in the guest reads a power meter; harmless";
const SENSOR: &str = "A sensor tool in the guest reads temperature or frequency; harmless";
const PMU: &str = "The guest profiles itself or runs an NMI watchdog on an emulated performance \
    counter";
const X2APIC_TIMER: &str = "The guest programs its local APIC timer without the cheaper TSC \
    deadline mode";
const PV_APIC: &str = "The guest uses Hyper-V's register access to its local APIC, where hardware \
        virtualisation would be cheaper";
const BOOT_KVM: &str = "A KVM-aware guest sets up a paravirtual feature, normally once per boot";
const BOOT_HYPERV: &str = "A Hyper-V-aware guest (Windows) sets up a feature, normally once per \
    boot";
const CRASH: &str = "Windows reports a crash (bugcheck)";
const SYNIC: &str = "The guest sets up Hyper-V's synthetic interrupt controller";
const STIMER: &str = "The guest arms a Hyper-V synthetic timer; the cheap way for Windows to keep \
    time";
const MITIGATION: &str = "A mitigation of CPU vulnerabilities in the guest";
const PVM: &str = "The guest runs under PVM, without hardware virtualisation";

/// Number, name and meaning.
type NamedMsr = (u32, &'static str, &'static str);

/// First number, last number, name with `{}` for the row's number, step, and meaning, which is
/// empty if the name says enough.
type MsrRange = (u32, u32, &'static str, u32, &'static str);

/// Registers with individual names and a meaning, sorted by number.
#[rustfmt::skip]
const TABLE: &[NamedMsr] = &[
    (0x10, "IA32_TSC", "The guest sets its time stamp counter"),
    (0x11, "KVM_WALL_CLOCK_OLD", BOOT_KVM), (0x12, "KVM_SYSTEM_TIME_OLD", BOOT_KVM),
    (0x1b, "IA32_APIC_BASE", "The guest moves or switches its local APIC, normally while booting"),
    (0x3b, "IA32_TSC_ADJUST", "The guest sets its time stamp counter"),
    (0x48, "IA32_SPEC_CTRL", MITIGATION), (0x49, "IA32_PRED_CMD", MITIGATION),
    (0xe7, "IA32_MPERF", SPEED), (0xe8, "IA32_APERF", SPEED), (0x10b, "IA32_FLUSH_CMD", MITIGATION),
    (0x198, "IA32_PERF_STATUS", SENSOR),
    (0x19c, "IA32_THERM_STATUS", SENSOR), (0x1a0, "IA32_MISC_ENABLE", SENSOR),
    (0x1a2, "TEMPERATURE_TARGET", SENSOR),
    (0x1a6, "OFFCORE_RSP_0", PMU), (0x1a7, "OFFCORE_RSP_1", PMU),
    (0x1b1, "IA32_PACKAGE_THERM_STATUS", SENSOR),
    (0x1c8, "LBR_SELECT", PMU), (0x1c9, "LBR_TOS", PMU), (0x1d9, "IA32_DEBUGCTL", PMU),
    (0x329, "IA32_PERF_METRICS", PMU), (0x345, "IA32_PERF_CAPABILITIES", PMU),
    (0x38d, "IA32_FIXED_CTR_CTRL", PMU), (0x38e, "IA32_PERF_GLOBAL_STATUS", PMU),
    (0x38f, "IA32_PERF_GLOBAL_CTRL", PMU),
    (0x390, "IA32_PERF_GLOBAL_OVF_CTRL", PMU), (0x391, "IA32_PERF_GLOBAL_STATUS_SET", PMU),
    (0x3f1, "IA32_PEBS_ENABLE", PMU), (0x3f2, "PEBS_DATA_CFG", PMU), (0x3f6, "PEBS_LD_LAT", PMU),
    (0x3f7, "PEBS_FRONTEND", PMU), (0x600, "IA32_DS_AREA", PMU),
    (0x606, "MSR_RAPL_POWER_UNIT", POWER), (0x610, "MSR_PKG_POWER_LIMIT", POWER),
    (0x611, "MSR_PKG_ENERGY_STATUS", POWER),
    (0x613, "MSR_PKG_PERF_STATUS", POWER), (0x614, "MSR_PKG_POWER_INFO", POWER),
    (0x618, "MSR_DRAM_POWER_LIMIT", POWER), (0x619, "MSR_DRAM_ENERGY_STATUS", POWER),
    (0x61b, "MSR_DRAM_PERF_STATUS", POWER), (0x61c, "MSR_DRAM_POWER_INFO", POWER),
    (0x638, "MSR_PP0_POWER_LIMIT", POWER), (0x639, "MSR_PP0_ENERGY_STATUS", POWER),
    (0x63a, "MSR_PP0_POLICY", POWER), (0x63b, "MSR_PP0_PERF_STATUS", POWER),
    (0x640, "MSR_PP1_POWER_LIMIT", POWER), (0x641, "MSR_PP1_ENERGY_STATUS", POWER),
    (0x642, "MSR_PP1_POLICY", POWER),
    (0x64d, "MSR_PLATFORM_ENERGY_STATUS", POWER), (0x690, "CORE_PERF_LIMIT_REASONS", SENSOR),
    (0x6e0, "IA32_TSC_DEADLINE",
        "The guest arms its next timer tick: the normal price of a Linux guest's clock, about its \
         tick rate for each busy vCPU"),
    (0x808, "X2APIC_TPR",
        "The guest changes its interrupt priority; exits only where the APIC is not virtualised in \
            hardware"),
    (0x80b, "X2APIC_EOI",
        "The guest acknowledges interrupts; exits only where the APIC is not virtualised in \
            hardware"),
    (0x830, "X2APIC_ICR", "The guest sends an interrupt from one vCPU to another: wake-ups and TLB \
        flushes"),
    (0x832, "X2APIC_LVTT", X2APIC_TIMER), (0x834, "X2APIC_LVT_PMI", PMU),
    (0x838, "X2APIC_TMICT", X2APIC_TIMER), (0x839, "X2APIC_TMCCT", X2APIC_TIMER),
    (0x83e, "X2APIC_TDCR", X2APIC_TIMER),
    (0x83f, "X2APIC_SELF_IPI", "A vCPU interrupts itself; exits only where the APIC is not \
        virtualised in hardware"),
    (0x4000_0000, "HV_GUEST_OS_ID", "A Hyper-V-aware guest (Windows) has booted"),
    (0x4000_0001, "HV_HYPERCALL", BOOT_HYPERV), (0x4000_0002, "HV_VP_INDEX", BOOT_HYPERV),
    (0x4000_0003, "HV_RESET", "The guest resets itself"),
    (0x4000_0010, "HV_VP_RUNTIME", "The guest reads how long its vCPU really ran"),
    (0x4000_0020, "HV_TIME_REF_COUNT",
        "One exit for each reading of the clock: the guest cannot use the Hyper-V reference TSC \
            page"),
    (0x4000_0021, "HV_REFERENCE_TSC", "The guest enables the exit-less Hyper-V clock, normally \
        once per boot"),
    (0x4000_0022, "HV_TSC_FREQUENCY", BOOT_HYPERV), (0x4000_0023, "HV_APIC_FREQUENCY", BOOT_HYPERV),
    (0x4000_0040, "HV_NPIEP_CONFIG", BOOT_HYPERV),
    (0x4000_0070, "HV_EOI", PV_APIC), (0x4000_0071, "HV_ICR", PV_APIC),
    (0x4000_0072, "HV_TPR", PV_APIC), (0x4000_0073, "HV_VP_ASSIST_PAGE", BOOT_HYPERV),
    (0x4000_0080, "HV_SCONTROL", SYNIC), (0x4000_0081, "HV_SVERSION", SYNIC),
    (0x4000_0082, "HV_SIEFP", SYNIC), (0x4000_0083, "HV_SIMP", SYNIC),
    (0x4000_0084, "HV_EOM",
        "The guest acknowledges a timer message; a storm means synthetic timers without direct \
            mode"),
    (0x4000_00f0, "HV_GUEST_IDLE", "The guest reports that it is idle"),
    (0x4000_0100, "HV_CRASH_P0", CRASH), (0x4000_0101, "HV_CRASH_P1", CRASH),
    (0x4000_0102, "HV_CRASH_P2", CRASH), (0x4000_0103, "HV_CRASH_P3", CRASH),
    (0x4000_0104, "HV_CRASH_P4", CRASH), (0x4000_0105, "HV_CRASH_CTL", CRASH),
    (0x4000_0106, "HV_REENLIGHTENMENT_CONTROL", BOOT_HYPERV),
    (0x4000_0107, "HV_TSC_EMULATION_CONTROL", BOOT_HYPERV),
    (0x4000_0108, "HV_TSC_EMULATION_STATUS", BOOT_HYPERV),
    (0x4000_0118, "HV_TSC_INVARIANT_CONTROL", BOOT_HYPERV),
    (0x4b56_4d00, "KVM_WALL_CLOCK", BOOT_KVM), (0x4b56_4d01, "KVM_SYSTEM_TIME", BOOT_KVM),
    (0x4b56_4d02, "KVM_ASYNC_PF_EN", BOOT_KVM),
    (0x4b56_4d03, "KVM_STEAL_TIME", BOOT_KVM), (0x4b56_4d04, "KVM_PV_EOI_EN", BOOT_KVM),
    (0x4b56_4d05, "KVM_POLL_CONTROL", "The guest polls for work itself before it halts"),
    (0x4b56_4d06, "KVM_ASYNC_PF_INT", BOOT_KVM),
    (0x4b56_4d07, "KVM_ASYNC_PF_ACK",
        "The guest acknowledges a page that the host had to fetch first: host memory is short"),
    (0x4b56_4d08, "KVM_MIGRATION_CONTROL", BOOT_KVM),
    (0x4b56_4df0, "PVM_LINEAR_ADDRESS_RANGE", PVM), (0x4b56_4df1, "PVM_VCPU_STRUCT", PVM),
    (0x4b56_4df4, "PVM_EVENT_ENTRY", PVM),
    (0x4b56_4df5, "PVM_RETU_RIP", PVM), (0x4b56_4df6, "PVM_RETS_RIP", PVM),
    (0xc001_0063, "AMD_PERF_STATUS", SENSOR),
    (0xc001_0117, "VM_HSAVE_PA", "The guest is itself a hypervisor"),
    (0xc001_011f, "AMD64_VIRT_SPEC_CTRL", MITIGATION),
    (0xc001_0299, "AMD_RAPL_POWER_UNIT", POWER), (0xc001_029a, "AMD_CORE_ENERGY_STATUS", POWER),
    (0xc001_029b, "AMD_PKG_ENERGY_STATUS", POWER),
];

/// Registers whose names say enough.
#[rustfmt::skip]
const PLAIN: &[(u32, &str)] = &[
    (0x17, "IA32_PLATFORM_ID"), (0x33, "TEST_CTRL"), (0x34, "SMI_COUNT"),
    (0x3a, "IA32_FEATURE_CONTROL"), (0x79, "IA32_UCODE_WRITE"), (0x8b, "IA32_UCODE_REV"),
    (0xcd, "FSB_FREQ"), (0xce, "PLATFORM_INFO"), (0xcf, "IA32_CORE_CAPS"),
    (0xe1, "IA32_UMWAIT_CONTROL"), (0xe2, "PKG_CST_CONFIG_CONTROL"), (0xfe, "IA32_MTRRCAP"),
    (0x10a, "IA32_ARCH_CAPABILITIES"), (0x119, "BBL_CR_CTL"), (0x11e, "BBL_CR_CTL3"),
    (0x122, "IA32_TSX_CTRL"), (0x123, "IA32_MCU_OPT_CTRL"), (0x140, "MISC_FEATURES_ENABLES"),
    (0x174, "IA32_SYSENTER_CS"), (0x175, "IA32_SYSENTER_ESP"), (0x176, "IA32_SYSENTER_EIP"),
    (0x179, "IA32_MCG_CAP"), (0x17a, "IA32_MCG_STATUS"), (0x17b, "IA32_MCG_CTL"),
    (0x199, "IA32_PERF_CTL"), (0x19a, "IA32_CLOCK_MODULATION"), (0x19b, "IA32_THERM_INTERRUPT"),
    (0x1a4, "MISC_FEATURE_CONTROL"), (0x1ad, "TURBO_RATIO_LIMIT"), (0x1b0, "IA32_ENERGY_PERF_BIAS"),
    (0x1b2, "IA32_PACKAGE_THERM_INTERRUPT"), (0x1c4, "IA32_XFD"), (0x1c5, "IA32_XFD_ERR"),
    (0x1db, "LAST_BRANCH_FROM_IP"), (0x1dc, "LAST_BRANCH_TO_IP"), (0x1dd, "LAST_INT_FROM_IP"),
    (0x1de, "LAST_INT_TO_IP"), (0x1f2, "IA32_SMRR_PHYSBASE"), (0x1f3, "IA32_SMRR_PHYSMASK"),
    (0x1fc, "POWER_CTL"), (0x277, "IA32_PAT"), (0x2ff, "IA32_MTRR_DEF_TYPE"),
    (0x560, "IA32_RTIT_OUTPUT_BASE"), (0x561, "IA32_RTIT_OUTPUT_MASK_PTRS"),
    (0x570, "IA32_RTIT_CTL"), (0x571, "IA32_RTIT_STATUS"), (0x620, "UNCORE_RATIO_LIMIT"),
    (0x6a0, "IA32_U_CET"), (0x6a2, "IA32_S_CET"), (0x6a4, "IA32_PL0_SSP"),
    (0x6a8, "IA32_INT_SSP_TAB"), (0x6e1, "IA32_PKRS"), (0x770, "IA32_PM_ENABLE"),
    (0x771, "IA32_HWP_CAPABILITIES"), (0x774, "IA32_HWP_REQUEST"), (0x777, "IA32_HWP_STATUS"),
    (0x802, "X2APIC_APICID"), (0x803, "X2APIC_VERSION"), (0x80a, "X2APIC_PPR"),
    (0x80d, "X2APIC_LDR"), (0x80f, "X2APIC_SVR"), (0x828, "X2APIC_ESR"), (0x82f, "X2APIC_LVT_CMCI"),
    (0x833, "X2APIC_LVT_THERMAL"), (0x835, "X2APIC_LVT_LINT0"), (0x836, "X2APIC_LVT_LINT1"),
    (0x837, "X2APIC_LVT_ERROR"), (0xc80, "IA32_DEBUG_INTERFACE"), (0xda0, "IA32_XSS"),
    (0xc000_0080, "EFER"), (0xc000_0081, "STAR"), (0xc000_0082, "LSTAR"), (0xc000_0083, "CSTAR"),
    (0xc000_0084, "SYSCALL_MASK"), (0xc000_0100, "FS_BASE"), (0xc000_0101, "GS_BASE"),
    (0xc000_0102, "KERNEL_GS_BASE"), (0xc000_0103, "TSC_AUX"), (0xc000_0104, "AMD64_TSC_RATIO"),
    (0xc001_0015, "K7_HWCR"), (0xc001_001f, "AMD64_NB_CFG"), (0xc001_0055, "K8_INT_PENDING_MSG"),
    (0xc001_0058, "FAM10H_MMIO_CONF_BASE"), (0xc001_0061, "AMD_PSTATE_LIMIT"),
    (0xc001_0062, "AMD_PERF_CTL"), (0xc001_0114, "VM_CR"), (0xc001_0131, "AMD64_SEV"),
    (0xc001_0140, "AMD64_OSVW_ID_LENGTH"), (0xc001_0141, "AMD64_OSVW_STATUS"),
    (0xc001_02b1, "AMD_CPPC_ENABLE"), (0xc001_02b3, "AMD_CPPC_REQ"), (0xc001_1020, "AMD64_LS_CFG"),
    (0xc001_1022, "AMD64_DC_CFG"), (0xc001_1023, "AMD64_BU_CFG"), (0xc001_1029, "AMD64_DE_CFG"),
    (0xc001_102a, "AMD64_BU_CFG2"),
];

/// Registers that come in numbered rows.
#[rustfmt::skip]
const RANGES: &[MsrRange] = &[
    (0xc1, 0xc8, "IA32_PMC{}", 1, PMU),
    (0x186, 0x18d, "IA32_PERFEVTSEL{}", 1, PMU),
    (0x280, 0x29f, "IA32_MC{}_CTL2", 1, ""),
    (0x309, 0x318, "IA32_FIXED_CTR{}", 1, PMU),
    (0x4c1, 0x4c8, "IA32_A_PMC{}", 1, PMU),
    (0x810, 0x817, "X2APIC_ISR{}", 1, ""), (0x818, 0x81f, "X2APIC_TMR{}", 1, ""),
    (0x820, 0x827, "X2APIC_IRR{}", 1, ""),
    (0x680, 0x69f, "LBR_NHM_FROM_{}", 1, PMU), (0x6c0, 0x6df, "LBR_NHM_TO_{}", 1, PMU),
    (0x1500, 0x151f, "LBR_FROM_{}", 1, PMU), (0x1600, 0x161f, "LBR_TO_{}", 1, PMU),
    (0x4000_0090, 0x4000_009f, "HV_SINT{}", 1, SYNIC),
    (0xc001_0000, 0xc001_0003, "K7_EVNTSEL{}", 1, PMU),
    (0xc001_0004, 0xc001_0007, "K7_PERFCTR{}", 1, PMU),
    (0xc001_0064, 0xc001_006b, "AMD_PSTATE{}", 1, SENSOR),
    (0xc001_0200, 0xc001_020a, "F15H_PERF_CTL{}", 2, PMU),
    (0xc001_0201, 0xc001_020b, "F15H_PERF_CTR{}", 2, PMU),
    (0x4000_00b0, 0x4000_00b6, "HV_STIMER{}_CONFIG", 2, STIMER),
    (0x4000_00b1, 0x4000_00b7, "HV_STIMER{}_COUNT", 2, STIMER),
    (0x200, 0x20e, "IA32_MTRR_PHYSBASE{}", 2, ""), (0x201, 0x20f, "IA32_MTRR_PHYSMASK{}", 2, ""),
    (0x400, 0x47c, "IA32_MC{}_CTL", 4, ""), (0x401, 0x47d, "IA32_MC{}_STATUS", 4, ""),
    (0x402, 0x47e, "IA32_MC{}_ADDR", 4, ""), (0x403, 0x47f, "IA32_MC{}_MISC", 4, ""),
];

fn find_range(msr: u32) -> Option<&'static MsrRange> {
    RANGES.iter().find(|(first, last, _, step, _)| {
        (*first..=*last).contains(&msr) && (msr - first).is_multiple_of(*step)
    })
}

fn find_named(msr: u32) -> Option<&'static NamedMsr> {
    TABLE.iter().find(|(number, ..)| *number == msr)
}

/// The name of a register; `None` for an unknown register.
pub fn name(msr: u32) -> Option<Cow<'static, str>> {
    let plain = PLAIN.iter().find(|(number, _)| *number == msr);
    let plain = plain.map(|(_, name)| *name);
    if let Some(name) = find_named(msr).map(|(_, name, _)| *name).or(plain) {
        return Some(Cow::Borrowed(name));
    }
    let (first, _, pattern, step, _) = find_range(msr)?;
    Some(Cow::Owned(pattern.replacen(
        "{}",
        &((msr - first) / step).to_string(),
        1,
    )))
}

/// What frequent use of a register means to an admin.
pub fn meaning(msr: u32) -> Option<&'static str> {
    find_named(msr)
        .map(|(.., meaning)| *meaning)
        .or_else(|| find_range(msr).map(|(.., meaning)| *meaning))
        .filter(|text| !text.is_empty())
}

/// Whether the register is a power or temperature meter, which guest tools poll without harm.
pub fn is_power_meter(msr: u32) -> bool {
    meaning(msr).is_some_and(|text| text == POWER || text == SENSOR)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_table_is_sorted_and_ranges_do_not_hide_behind_it() {
        assert!(TABLE.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }

    #[test]
    fn hot_registers_have_names_and_meanings() {
        for (msr, expected) in [
            (0x6e0, "IA32_TSC_DEADLINE"),
            (0x830, "X2APIC_ICR"),
            (0x838, "X2APIC_TMICT"),
            (0x611, "MSR_PKG_ENERGY_STATUS"),
            (0x606, "MSR_RAPL_POWER_UNIT"),
            (0x4000_0020, "HV_TIME_REF_COUNT"),
            (0x4000_0070, "HV_EOI"),
            (0x4000_00b1, "HV_STIMER0_COUNT"),
            (0x4000_00b6, "HV_STIMER3_CONFIG"),
            (0x4000_009f, "HV_SINT15"),
            (0xc1, "IA32_PMC0"),
            (0x4b56_4d01, "KVM_SYSTEM_TIME"),
            (0x4b56_4df1, "PVM_VCPU_STRUCT"),
            (0xc001_0299, "AMD_RAPL_POWER_UNIT"),
        ] {
            assert_eq!(name(msr).unwrap(), expected);
            assert!(meaning(msr).is_some(), "{expected}");
        }
        assert_eq!(name(0x407).unwrap(), "IA32_MC1_MISC");
        assert_eq!(name(0x205).unwrap(), "IA32_MTRR_PHYSMASK2");
        assert_eq!(name(0x1234_5678), None);
    }

    #[test]
    fn power_meters_are_a_family() {
        assert!(is_power_meter(0x606) && !is_power_meter(0x6e0));
    }

    proptest! {
        #[test]
        fn any_register_is_answered(msr in any::<u32>()) {
            let _ = (name(msr), meaning(msr));
        }
    }
}
