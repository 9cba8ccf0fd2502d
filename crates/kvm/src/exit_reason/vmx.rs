//! Intel VMX: basic exit reasons (`arch/x86/include/uapi/asm/vmx.h`), sorted by number. Names that
//! the kernel's table lacks are the architecture's own.

use super::ReasonRow;

#[rustfmt::skip]
pub(super) const TABLE: &[ReasonRow] = &[
    (0, "EXCEPTION_NMI", "A guest exception that KVM watches, or a non-maskable interrupt of the \
        host, arrived"),
    (1, "EXTERNAL_INTERRUPT", "An interrupt for the host (timer tick, IPI, device) hit the CPU \
        while the guest ran"),
    (2, "TRIPLE_FAULT", "The guest crashed or reset itself"),
    (3, "INIT_SIGNAL", "A CPU of the guest is being started"),
    (4, "SIPI_SIGNAL", "A CPU of the guest is being started"),
    (5, "IO_SMI", "A system management interrupt after an I/O instruction"),
    (6, "OTHER_SMI", "A system management interrupt"),
    (7, "INTERRUPT_WINDOW",
        "KVM waited until the guest could take an interrupt; near zero where interrupts are \
            virtualised in hardware"),
    (8, "NMI_WINDOW", "KVM waited until the guest could take a non-maskable interrupt"),
    (9, "TASK_SWITCH", "A 32-bit guest switched tasks in hardware"),
    (10, "CPUID", "The guest asked what its CPU can do; some programs do so only to serialise \
        instructions"),
    (11, "GETSEC", ""),
    (12, "HLT", "The virtual CPU had nothing to do: sleep, not work. Its rate is the number of \
        wake-ups"),
    (13, "INVD", ""),
    (14, "INVLPG", "The guest flushed one page translation; trapped only without nested paging"),
    (15, "RDPMC", "The guest read a performance counter that KVM emulates"),
    (16, "RDTSC", "The guest read a time stamp counter that is trapped, usually because it has to \
        be emulated"),
    (17, "RSM", ""),
    (18, "VMCALL", "A hypercall: paravirtual IPI, TLB flush, Hyper-V call"),
    (19, "VMCLEAR", "The guest is itself a hypervisor"),
    (20, "VMLAUNCH", "The guest is itself a hypervisor and starts a nested guest"),
    (21, "VMPTRLD", "The guest is itself a hypervisor"),
    (22, "VMPTRST", "The guest is itself a hypervisor"),
    (23, "VMREAD", "The guest is itself a hypervisor and reads its control structure without \
        hardware help"),
    (24, "VMRESUME", "The guest is itself a hypervisor and enters a nested guest"),
    (25, "VMWRITE", "The guest is itself a hypervisor and writes its control structure without \
        hardware help"),
    (26, "VMOFF", "The guest stops being a hypervisor"),
    (27, "VMON", "The guest starts being a hypervisor"),
    (28, "CR_ACCESS",
        "The guest wrote a control register; storms of CR8 are 64-bit Windows changing its \
            interrupt priority"),
    (29, "DR_ACCESS", "The guest used debug registers"),
    (30, "IO_INSTRUCTION", "The guest used an emulated I/O port; the accesses panel shows which \
        device"),
    (31, "MSR_READ", "The guest read a model specific register; the accesses panel shows which"),
    (32, "MSR_WRITE", "The guest wrote a model specific register: its timer, an IPI, or one of the \
        paravirtual ones"),
    (33, "INVALID_STATE", "The CPU refused to enter the guest because its state is invalid"),
    (34, "MSR_LOAD_FAIL", "The CPU refused to enter the guest while loading its registers"),
    (36, "MWAIT_INSTRUCTION", "The guest tried to idle with MWAIT, which is not allowed and does \
        nothing, so it spins"),
    (37, "MONITOR_TRAP_FLAG", "The guest is being single-stepped"),
    (39, "MONITOR_INSTRUCTION",
        "The guest tried to idle with MONITOR and MWAIT, which is not allowed and does nothing, so \
            it spins"),
    (40, "PAUSE_INSTRUCTION", "The virtual CPU spins on a lock whose holder is probably not \
        running"),
    (41, "MCE_DURING_VMENTRY", "A hardware error hit while entering the guest"),
    (43, "TPR_BELOW_THRESHOLD",
        "The guest lowered its interrupt priority; seen when the interrupt controller is not \
            virtualised in hardware"),
    (44, "APIC_ACCESS", "The guest touched its local APIC and the CPU does not virtualise the \
        registers"),
    (45, "EOI_INDUCED", "The guest acknowledged an interrupt that KVM has to see: level triggered, \
        RTC or PIT"),
    (46, "GDTR_IDTR", "The guest used a descriptor table register that is trapped"),
    (47, "LDTR_TR", "The guest used a descriptor table register that is trapped"),
    (48, "EPT_VIOLATION",
        "A guest page was not mapped: first touch, ballooning, swap, dirty logging, or the APIC \
         page while APIC virtualisation is inhibited"),
    (49, "EPT_MISCONFIG", "The guest touched emulated device memory: HPET, VGA, or the doorbell of \
        a virtio device"),
    (50, "INVEPT", "The guest is itself a hypervisor and flushes its nested page tables"),
    (51, "RDTSCP", "The guest read a time stamp counter that is trapped"),
    (52, "PREEMPTION_TIMER", "The guest's own timer ran out; normally as often as the guest's \
        tick"),
    (53, "INVVPID", "The guest is itself a hypervisor and flushes its nested translations"),
    (54, "WBINVD", "The guest flushed the caches, which is very slow with passed-through devices"),
    (55, "XSETBV", "The guest changed which extended register state it uses"),
    (56, "APIC_WRITE",
        "A local APIC write that needs KVM although the APIC is virtualised in hardware: an IPI or \
            a timer"),
    (57, "RDRAND", "The guest used an instruction that is hidden from it"),
    (58, "INVPCID", "The guest flushed address translations"),
    (59, "VMFUNC", ""),
    (60, "ENCLS", "The guest used an SGX instruction"),
    (61, "RDSEED", "The guest used an instruction that is hidden from it"),
    (62, "PML_FULL", "The log of dirty pages is full: the guest is being migrated"),
    (63, "XSAVES", ""),
    (64, "XRSTORS", ""),
    (65, "PCONFIG", ""),
    (66, "SPP_EVENT", ""),
    (67, "UMWAIT", "A program of the guest waits with a trapped instruction"),
    (68, "TPAUSE", "A program of the guest waits with a trapped instruction"),
    (69, "LOADIWKEY", ""),
    (70, "ENCLV", ""),
    (72, "ENQCMD", ""),
    (73, "ENQCMDS", ""),
    (74, "BUS_LOCK", "An unaligned atomic instruction locked the whole memory bus, which slows \
        every neighbour"),
    (75, "NOTIFY", "The guest blocked event delivery for too long"),
    (76, "SEAMCALL", "A call into the TDX module"),
    (77, "TDCALL", "A call of a TDX guest"),
    (78, "RDMSRLIST", ""),
    (79, "WRMSRLIST", ""),
    (80, "URDMSR", ""),
    (81, "UWRMSR", ""),
    (84, "MSR_READ_IMM", "The guest read a model specific register named in the instruction"),
    (85, "MSR_WRITE_IMM", "The guest wrote a model specific register named in the instruction"),
];
