//! AMD SVM: exit codes (`arch/x86/include/uapi/asm/svm.h`), sorted by number. Names that the
//! kernel's table lacks are the architecture's own, in the same style.

use super::ReasonRow;

const CR: &str = "The guest accessed a control register";
const DR: &str = "The guest used debug registers";
const EXCEPTION: &str = "A guest exception that KVM watches";
const TABLE_REGISTER: &str = "The guest used a descriptor table register that is trapped";
const NESTED: &str = "The guest is itself a hypervisor";
const ENCRYPTED: &str = "A request of an encrypted guest to its host";

#[rustfmt::skip]
pub(super) const TABLE: &[ReasonRow] = &[
    (0x000, "read_cr0", CR), (0x002, "read_cr2", CR), (0x003, "read_cr3", CR),
    (0x004, "read_cr4", CR), (0x008, "read_cr8", CR), (0x010, "write_cr0", CR),
    (0x012, "write_cr2", CR), (0x013, "write_cr3", CR), (0x014, "write_cr4", CR),
    (0x018, "write_cr8",
        "The guest changed its interrupt priority; storms are 64-bit Windows without hardware APIC \
            help"),
    (0x020, "read_dr0", DR), (0x021, "read_dr1", DR), (0x022, "read_dr2", DR),
    (0x023, "read_dr3", DR), (0x024, "read_dr4", DR), (0x025, "read_dr5", DR),
    (0x026, "read_dr6", DR), (0x027, "read_dr7", DR), (0x030, "write_dr0", DR),
    (0x031, "write_dr1", DR), (0x032, "write_dr2", DR), (0x033, "write_dr3", DR),
    (0x034, "write_dr4", DR), (0x035, "write_dr5", DR), (0x036, "write_dr6", DR),
    (0x037, "write_dr7", DR),
    (0x040, "DE excp", EXCEPTION), (0x041, "DB excp", EXCEPTION), (0x043, "BP excp", EXCEPTION),
    (0x044, "OF excp", EXCEPTION),
    (0x045, "BR excp", EXCEPTION), (0x046, "UD excp", EXCEPTION), (0x047, "NM excp", EXCEPTION),
    (0x048, "DF excp", EXCEPTION),
    (0x04a, "TS excp", EXCEPTION), (0x04b, "NP excp", EXCEPTION), (0x04c, "SS excp", EXCEPTION),
    (0x04d, "GP excp", EXCEPTION),
    (0x04e, "PF excp", EXCEPTION), (0x050, "MF excp", EXCEPTION), (0x051, "AC excp", EXCEPTION),
    (0x052, "MC excp", EXCEPTION),
    (0x053, "XF excp", EXCEPTION),
    (0x060, "interrupt", "An interrupt for the host (timer tick, IPI, device) hit the CPU while \
        the guest ran"),
    (0x061, "nmi", "A non-maskable interrupt of the host arrived"),
    (0x062, "smi", "A system management interrupt"),
    (0x063, "init", "A CPU of the guest is being started"),
    (0x064, "vintr", "KVM waited until the guest could take an interrupt; seen when AVIC is off or \
        inhibited"),
    (0x065, "cr0_sel_write", CR),
    (0x066, "read_idtr", TABLE_REGISTER), (0x067, "read_gdtr", TABLE_REGISTER),
    (0x068, "read_ldtr", TABLE_REGISTER), (0x069, "read_rt", TABLE_REGISTER),
    (0x06a, "write_idtr", TABLE_REGISTER), (0x06b, "write_gdtr", TABLE_REGISTER),
    (0x06c, "write_ldtr", TABLE_REGISTER), (0x06d, "write_rt", TABLE_REGISTER),
    (0x06e, "rdtsc", "The guest read a time stamp counter that is trapped, usually because it has \
        to be emulated"),
    (0x06f, "rdpmc", "The guest read a performance counter that KVM emulates"),
    (0x070, "pushf", ""), (0x071, "popf", ""),
    (0x072, "cpuid", "The guest asked what its CPU can do; some programs do so only to serialise \
        instructions"),
    (0x073, "rsm", ""),
    (0x074, "iret", "KVM waited until the guest had finished a non-maskable interrupt"),
    (0x075, "swint", ""), (0x076, "invd", ""),
    (0x077, "pause", "The virtual CPU spins on a lock whose holder is probably not running"),
    (0x078, "hlt", "The virtual CPU had nothing to do: sleep, not work. Its rate is the number of \
        wake-ups"),
    (0x079, "invlpg", "The guest flushed one page translation; trapped only without nested paging"),
    (0x07a, "invlpga", NESTED),
    (0x07b, "io", "The guest used an emulated I/O port; the accesses panel shows which device"),
    (0x07c, "msr", "The guest used a model specific register; the accesses panel shows which"),
    (0x07d, "task_switch", "A 32-bit guest switched tasks in hardware"),
    (0x07e, "ferr_freeze", ""),
    (0x07f, "shutdown", "The guest crashed or reset itself"),
    (0x080, "vmrun", "The guest is itself a hypervisor and enters a nested guest"),
    (0x081, "hypercall", "A hypercall: paravirtual IPI, TLB flush, Hyper-V call"),
    (0x082, "vmload", NESTED), (0x083, "vmsave", NESTED), (0x084, "stgi", NESTED),
    (0x085, "clgi", NESTED), (0x086, "skinit", ""),
    (0x087, "rdtscp", "The guest read a time stamp counter that is trapped"),
    (0x088, "icebp", ""),
    (0x089, "wbinvd", "The guest flushed the caches, which is very slow with passed-through \
        devices"),
    (0x08a, "monitor",
        "The guest tried to idle with MONITOR and MWAIT, which is not allowed and does nothing, so \
            it spins"),
    (0x08b, "mwait", "The guest tried to idle with MWAIT, which is not allowed and does nothing, \
        so it spins"),
    (0x08c, "mwait_cond", "The guest tried to idle with MWAIT, which is not allowed and does \
        nothing, so it spins"),
    (0x08d, "xsetbv", "The guest changed which extended register state it uses"),
    (0x08e, "rdpru", ""),
    (0x08f, "write_efer_trap", CR), (0x090, "write_cr0_trap", CR), (0x094, "write_cr4_trap", CR),
    (0x098, "write_cr8_trap", CR),
    (0x0a2, "invpcid", "The guest flushed address translations"),
    (0x0a5, "buslock", "An unaligned atomic instruction locked the whole memory bus, which slows \
        every neighbour"),
    (0x0a6, "idle-halt", "The virtual CPU had nothing to do and no interrupt waited: sleep, not \
        work"),
    (0x400, "npf", "The guest touched emulated device memory, or a page that was not mapped"),
    (0x401, "avic_incomplete_ipi", "The hardware could not deliver an IPI because its target was \
        not running"),
    (0x402, "avic_unaccelerated_access", "A local APIC access that needs KVM although AVIC is \
        active"),
    (0x403, "vmgexit", ENCRYPTED),
    (0x8000_0001, "vmgexit_mmio_read", ENCRYPTED), (0x8000_0002, "vmgexit_mmio_write", ENCRYPTED),
    (0x8000_0003, "vmgexit_nmi_complete", ENCRYPTED),
    (0x8000_0004, "vmgexit_ap_hlt_loop", ENCRYPTED),
    (0x8000_0005, "vmgexit_ap_jump_table", ENCRYPTED),
    (0x8000_0010, "vmgexit_page_state_change", ENCRYPTED),
    (0x8000_0011, "vmgexit_guest_request", ENCRYPTED),
    (0x8000_0012, "vmgexit_ext_guest_request", ENCRYPTED),
    (0x8000_0013, "vmgexit_ap_creation", ENCRYPTED),
    (0x8000_0018, "vmgexit_snp_run_vmpl", ENCRYPTED), (0x8000_001a, "vmgexit_savic", ENCRYPTED),
    (0x8000_fffd, "vmgexit_hypervisor_feature", ENCRYPTED),
    (0x8000_fffe, "vmgexit_term_request", "An encrypted guest asked to be ended"),
    (0x8000_ffff, "vmgexit_unsupported", ENCRYPTED),
    (0xffff_ffff, "invalid_guest_state", "The CPU refused to enter the guest because its state is \
        invalid"),
];
