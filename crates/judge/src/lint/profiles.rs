//! What a profile tells that `perf top` or `perf report` printed: of the host's CPU time by function, or of exits by
//! reason and instruction. Its shares are of what perf sampled, mostly the host's own work; how much that is of a CPU
//! is not in the text, so all findings are infos.

use super::prelude::*;
use kvm::pattern::Pattern;
use kvm::time_profile::{ProfileRow, TimeProfile};
use std::collections::BTreeSet;

/// Rows that evidence names.
const NAMED: usize = 4;
/// Instructions at which most memory faults have to be, if they are accesses to a few registers.
const FEW: usize = 8;
const SHARES: &str = "shares are of what perf sampled; how much that is of a CPU is not in the profile";

/// Rows of a profile that have one cause.
struct Rows<'a> {
    percent: f64,
    rows: Vec<&'a ProfileRow>,
}

impl<'a> Rows<'a> {
    fn of(profile: &'a TimeProfile, is_one: impl Fn(&ProfileRow) -> bool) -> Self {
        let rows: Vec<&ProfileRow> = profile.rows.iter().filter(|row| !row.is_of_guest() && is_one(row)).collect();
        Self { percent: rows.iter().map(|row| row.percent).sum(), rows }
    }

    /// The same with what these functions call, at least: one of them may call another.
    fn with_calls(profile: &'a TimeProfile, is_one: impl Fn(&ProfileRow) -> bool) -> Self {
        let mut found = Self::of(profile, is_one);
        found.rows.sort_by(|a, b| share(b).total_cmp(&share(a)));
        found.percent = found.rows.first().map_or(0.0, |row| share(row)).max(found.percent);
        found
    }

    /// `16.5 % of the profile is WHAT: isolate_freepages_block 11.3, …`
    fn describe(&self, what: &str) -> String {
        let named = self.rows.iter().take(NAMED).map(|row| match (row.with_calls, &row.caller) {
            (Some(all), _) if all > row.percent => format!("{} {} with what it calls", row.name, figure(all)),
            (_, Some(caller)) => format!("{} {}, mostly for {caller}", row.name, figure(row.percent)),
            _ => format!("{} {}", row.name, figure(row.percent)),
        });
        let named = named.collect::<Vec<_>>().join(", ");
        format!("{} % of the profile is {what}: {named}", figure(self.percent))
    }
}

/// The profile of the host's CPU time, if there is one.
fn of_host<'a>(ctx: &Context<'a>) -> Option<&'a TimeProfile> {
    ctx.model.host.facts.profile.as_ref().filter(|profile| profile.is_of_host_time())
}

/// The share of a function with what it calls, where that is known.
fn share(row: &ProfileRow) -> f64 {
    row.with_calls.unwrap_or_default().max(row.percent)
}

/// Whether a thread of a VMM ran it, as far as the profile shows tasks.
fn of_vmm(row: &ProfileRow) -> bool {
    row.task.as_ref().is_none_or(|task| task.contains("KVM") || task.contains("qemu"))
}

/// Whether a function's name begins so; a function that waits for a lock counts as its caller, too.
fn begins(row: &ProfileRow, words: &[&str]) -> bool {
    let mut names = [Some(&row.name), row.caller.as_ref()].into_iter().flatten();
    names.any(|name| words.iter().any(|word| name.trim_start_matches('_').starts_with(word)))
}

/// Functions that wait for a lock. KVM's MMU lock is a spin lock, and on x86 one for readers and writers.
static LOCKS: Pattern =
    Pattern::new("^_*(?:(?:native_|pv_)?queued_(?:spin|write|read)_lock_slow|(?:raw|ticket)_spin_lock)");

/// A finding about the functions of a cause, with what else the profile says of the host's kernel.
fn find(profile: &TimeProfile, mut evidence: Vec<String>, look_at: &str, fix: Vec<Fix>, prose: Prose) -> Finding {
    let is_said = |row: &ProfileRow| row.caller.is_some() && evidence.iter().any(|line| line.contains(&row.name));
    let locks = Rows::of(profile, |row| LOCKS.is_match(&row.name) && !is_said(row));
    if locks.percent >= 1.0 {
        evidence.push(locks.describe("waiting for spin locks of the host's kernel"));
    }
    evidence.extend([SHARES.into(), look_at.into()]);
    Finding::new(Severity::Info, Confidence::Medium, evidence, fix).saying(prose)
}

/// Functions of which KVM's halt polling consists (`kvm_vcpu_halt` and `kvm_vcpu_check_block` in
/// `virt/kvm/kvm_main.c`; before Linux 5.17 `kvm_vcpu_block` polled).
const POLLING: [&str; 3] = ["kvm_vcpu_block", "kvm_vcpu_halt", "kvm_vcpu_check_block"];
/// What these call to see whether there is something to do: an interrupt in the local APIC, a timer that is over.
static POLLED: Pattern = Pattern::new(concat!(
    "^_*(?:kvm_arch_vcpu_runnable|kvm_vcpu_(?:has_events|running)|kvm_cpu_has_(?:pending_timer|interrupt)|apic_has_|",
    "kvm_apic_(?:accept_|has_interrupt)|kvm_lapic_find_highest_irr|apic_(?:update_ppr|find_highest_irr)|",
    "(?:vmx|svm)_(?:interrupt_|sync_pir_to_irr|set_rvi)|ktime_get$|read_tsc$)",
));

/// The share of a profile from which polling is much, percent; 19 and 22 where it took more than the guest's own exits.
const MUCH_POLLING: f64 = 15.0;

const POLLS: Prose = Prose { title: "Halt polling takes much of the host's own CPU time", problem: "", why: "" };

/// Halt polling by its functions.
pub(super) fn halt_poll(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    let Some(profile) = of_host(ctx) else { return };
    let polling = Rows::of(profile, |row| begins(row, &POLLING));
    let mut all = Rows::of(profile, |row| begins(row, &POLLING) || POLLED.is_match(&row.name));
    let with_calls = |name: &str| profile.rows.iter().find(|row| row.name == name).map_or(0.0, share);
    // Since Linux 5.17 what kvm_vcpu_halt calls is polling, but for kvm_vcpu_block and schedule, which sleep.
    if with_calls("kvm_vcpu_check_block") > 0.0 {
        let sleeps = with_calls("kvm_vcpu_block").max(with_calls("schedule"));
        all.percent = all.percent.max(with_calls("kvm_vcpu_halt") - sleeps);
    }
    if polling.percent >= ctx.thresholds().machine.profile && all.percent >= MUCH_POLLING {
        let evidence = vec![all.describe("halt polling")];
        let look_at = "look at: /sys/module/kvm/parameters/halt_poll_ns";
        verdicts.find(find(profile, evidence, look_at, super::scheduling::less_polling(), POLLS));
    }
}

/// Functions that run the guests of a guest (`arch/x86/kvm/svm/nested.c`, `arch/x86/kvm/vmx/nested.c`), and none of
/// those that ask whether there are any.
static NESTED: Pattern = Pattern::new(concat!(
    "^_*(?:nested_svm_(?:vmexit|vmrun|exit_|simple_vmexit)|enter_svm_guest_mode|vmrun_interception|",
    "handle_vm(?:launch|resume|read|write|ptrld)$|prepare_vmcs(?:02|12)|",
    "nested_vmx_(?:vmexit|run|enter_non_root|reflect_vmexit)|",
    "sync_vmcs02_to_vmcs12)",
));
const NESTED_WHY: &str = "A guest is a hypervisor. Each exit of its guests causes several exits here, and where KVM \
    changes page tables for them, all vCPUs of the guest wait for one lock";
const NESTED_FIX: &str = "Run the inner guests on this host. In Windows the cause is VBS, WSL2 or Docker Desktop. Else \
    try a newer host kernel (locks), and fewer vCPUs";

/// A guest that runs guests, by KVM's functions for these.
pub(super) fn nested(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    let Some(profile) = of_host(ctx) else { return };
    let all = Rows::with_calls(profile, |row| NESTED.is_match(&row.name));
    if all.percent >= ctx.thresholds().machine.profile {
        let evidence = vec![all.describe("KVM's work for the guests of a guest")];
        let prose = Prose { title: "A guest runs guests of its own", problem: "", why: NESTED_WHY };
        let look_at = "look at: perf kvm stat live, for the exits of each guest";
        verdicts.find(find(profile, evidence, look_at, vec![fixes::advice(NESTED_FIX)], prose));
    }
}

/// Functions of QEMU's translator (`tcg/`, `accel/tcg/`).
static TRANSLATES: Pattern = Pattern::new(
    "^(?:tcg_(?:gen|opt|out|reg)|tb_(?:gen_code|lookup|htable_lookup|find)|helper_lookup_tb_ptr|cpu_tb_exec)",
);

/// A guest that QEMU emulates, by the functions of its translator.
pub(super) fn translated(ctx: &Context<'_>) -> Option<String> {
    let profile = of_host(ctx)?;
    let is_in_qemu = |row: &ProfileRow| row.object.as_ref().is_some_and(|object| object.contains("qemu"));
    let all = Rows::of(profile, |row| TRANSLATES.is_match(&row.name) && is_in_qemu(row));
    (all.percent >= ctx.thresholds().machine.profile).then(|| all.describe("QEMU's translation of the guest's code"))
}

/// Functions of KVM in which the host serves an interrupt that stopped a guest (`arch/x86/kvm/vmx/vmx.c`).
const INTERRUPTED: [&str; 4] =
    ["vmx_do_interrupt", "handle_external_interrupt_irqoff", "vmx_handle_external_intr", "vmx_handle_exit_irqoff"];
/// What the kernel does in an interrupt and after it (`kernel/softirq.c`, `kernel/irq/handle.c`).
static HANDLED: Pattern =
    Pattern::new("^_*(?:handle_softirqs|do_softirq|[a-z_]+_action|blk_done_softirq|handle_irq_event)$");
/// The share of a profile from which they are many, percent; the tick of a busy host takes a few.
const MANY_INTERRUPTS: f64 = 20.0;
const INTERRUPTED_WHY: &str = "An interrupt that arrives on a CPU while it runs a guest is served there first, with \
    what the kernel does after it (softirq), such as receiving packets. The guest waits";

/// Interrupts of the host that take the time of vCPU threads.
pub(super) fn interrupts(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    let Some(profile) = of_host(ctx) else { return };
    let all = Rows::with_calls(profile, |row| begins(row, &INTERRUPTED));
    let work = Rows::with_calls(profile, |row| HANDLED.is_match(&row.name));
    // Where the CPU lacks counters to sample by, the guest's own time is charged to the place after its exit, which
    // calls nothing.
    if all.percent.min(2.0 * work.percent) >= MANY_INTERRUPTS {
        let what = [(all, "interrupts of the host that stop a guest"), (work, "what these do")];
        let evidence = what.into_iter().map(|(rows, what)| rows.describe(what)).collect();
        let prose =
            Prose { title: "Interrupts of the host take the time of vCPU threads", problem: "", why: INTERRUPTED_WHY };
        let fix = super::scheduling::fewer_interrupts();
        verdicts.find(find(profile, evidence, "look at: /proc/softirqs, twice", fix, prose));
    }
}

pub(super) const SHADOW: Prose = Prose {
    title: "KVM keeps shadow page tables for a guest",
    problem: "shadow page tables",
    why: "Without EPT (Intel) or NPT (AMD) KVM builds page tables of its own: each change of the guest's page tables \
        is an exit, and all vCPUs wait for one lock",
};
const TWO_STAGES: &str = "cat /sys/module/kvm_intel/parameters/ept /sys/module/kvm_amd/parameters/npt 2>/dev/null";
const ENABLE_TWO_STAGES: &str = "If it prints N or 0, take kvm_intel.ept=0 or kvm_amd.npt=0 out of /etc/modprobe.d and \
    the kernel command line. Without EPT or NPT give such guests few vCPUs and huge pages. Where it prints Y, a guest \
    runs guests of its own";

/// What shows whether a guest's memory is mapped by the hardware, and what makes it so.
pub(super) fn two_stages() -> Vec<Fix> {
    let show = fixes::command(TWO_STAGES).needing("shows whether EPT or NPT is on");
    vec![show, fixes::advice(ENABLE_TWO_STAGES)]
}

/// Page faults of guests: shadow paging by its functions (`arch/x86/kvm/mmu/paging_tmpl.h`: only the walk of the
/// guest's page tables is also used with two-dimensional paging), and NUMA balancing.
pub(super) fn page_faults(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    let Some(profile) = of_host(ctx) else { return };
    let of_template = |row: &ProfileRow| begins(row, &["paging64_", "paging32"]);
    let ends = ["_page_fault", "_fetch", "_sync_page", "_sync_spte", "_invlpg", "_prefetch_gpte", "_update_pte"];
    let is_shadow = |row: &ProfileRow| of_template(row) && ends.iter().any(|end| row.name.ends_with(end));
    let tables = ["mmu_page_zap_pte", "kvm_mmu_prepare_zap_page", "kvm_mmu_get_page", "kvm_mmu_pte_write", "pte_list_"];
    let all = Rows::with_calls(profile, |row| of_template(row) || begins(row, &tables));
    if profile.rows.iter().any(is_shadow) && all.percent >= ctx.thresholds().machine.profile {
        let evidence = vec![all.describe("upkeep of shadow page tables")];
        let look_at = "look at: grep -c -w -e ept -e npt /proc/cpuinfo";
        verdicts.find(find(profile, evidence, look_at, two_stages(), SHADOW));
    }
    let moves = Rows::with_calls(profile, |row| begins(row, &BALANCES) && of_vmm(row));
    if moves.percent >= ctx.thresholds().machine.profile {
        let evidence = vec![moves.describe("NUMA balancing of the host")];
        let stop = fixes::command("sysctl kernel.numa_balancing=0").needing("until the next boot");
        let fix = vec![fixes::advice(BIND), stop];
        verdicts.find(find(profile, evidence, "look at: grep numa_ /proc/vmstat, twice", fix, BALANCING));
    }
}

/// Functions of the kernel that take pages from a process to see from which node it uses them, and that then move them
/// (`kernel/sched/fair.c`, `mm/migrate.c`).
const BALANCES: [&str; 5] =
    ["task_numa_work", "change_prot_numa", "do_numa_page", "do_huge_pmd_numa_page", "migrate_misplaced_"];
const BALANCING: Prose = Prose {
    title: "The host's NUMA balancing moves memory of a guest between nodes",
    problem: "NUMA balancing",
    why: "The kernel unmaps pages to see which node uses them, and moves those that another node uses. For a guest \
        each is a page fault, and while its mapping changes all its vCPUs can wait for one lock",
};
const BIND: &str = "Keep the guest's vCPUs and its memory on one node (vcpupin and numatune), or give it <numa> \
    cells, each bound to one node: then nothing has to be moved";

const TO_THE_VMM: Prose = Prose {
    title: "vCPUs return to the VMM's user space for an emulated device, again and again",
    problem: "exits to an emulated device",
    why: "Each access to a register of a device that the VMM emulates (MMIO or a port) ends in its user space: the \
        vCPU leaves KVM_RUN, on many CPUs with buffers cleared for security, and enters the guest again",
};
const SHOW_ADDRESSES: &str = "perf kvm stat record -a sleep 10; perf kvm stat report --event=mmio; \
    perf kvm stat report --event=ioport";
const USE_VIRTIO: &str = "Make the device that is accessed most a virtio device, or the clock one that KVM serves";

/// The command that shows which addresses a guest accesses, where no figure names them.
pub(super) fn show_addresses() -> Fix {
    fixes::command(SHOW_ADDRESSES).needing("shows which addresses the guest accesses")
}

/// Functions of KVM that emulate an access, and of QEMU that serve it (`arch/x86/kvm/x86.c`, `system/physmem.c`).
static EMULATES: Pattern = Pattern::new(concat!(
    "^_*(?:complete_emulated_|complete_fast_pio|kvm_fast_pio|kvm_emulate_io|write_mmio|read_mmio|mmio_info_in_cache|",
    "handle_ept_misconfig|x86_emulate_|x86_decode_|emulator_(?:read|write|pio)|linearize|address_space_rw|",
    "address_space_(?:read|write)|memory_region_(?:dispatch_|read_|write_|access_)|access_with_adjusted|flatview_)",
));
/// Functions that run when user space serves the access.
const SERVED_OUTSIDE: [&str; 5] =
    ["complete_emulated_", "complete_fast_pio", "address_space_", "memory_region_", "flatview_"];
/// The C library's way into KVM, percent of the profile from which it is one of many accesses.
const ENTERS_KVM: [&str; 2] = ["ioctl", "GI___ioctl"];
const MANY_ENTRIES: f64 = 0.1;
/// The way from KVM to user space and back.
static LEAVES: Pattern = Pattern::new(concat!(
    "^_*(?:arch_exit_to_user_mode|syscall_exit_to_user_mode|exit_to_user_mode|syscall_return_via|entry_SYSRET|",
    "entry_SYSCALL_64|kvm_on_user_return|fire_user_return_notifiers)",
));

/// A device of QEMU (`hw/`) by functions that only it has.
struct Device {
    functions: &'static [&'static str],
    what: &'static str,
    fix: &'static str,
}

const DEVICES: [Device; 2] = [
    Device {
        functions: &["vtd_", "amdvi_"],
        what: "the emulated IOMMU",
        fix: "Boot the guest with iommu=pt, so that only devices that it passes on use it, or take it out",
    },
    Device {
        functions: &["nvme_process_sq", "nvme_io_cmd", "nvme_post_cqes", "ahci_", "ide_", "bmdma_"],
        what: "an emulated disk",
        fix: USE_VIRTIO,
    },
];
const SERVES: Prose = Prose {
    title: "QEMU works for an emulated device",
    problem: "emulated device",
    why: "Each request of the guest to such a device is work for QEMU, in the vCPU's thread or in the main loop, where \
        other devices wait for it",
};

/// Devices of QEMU whose functions take much of the profile: what they take, and what is cheaper.
fn devices(ctx: &Context<'_>, profile: &TimeProfile) -> Vec<(String, Fix)> {
    // The host's drivers have functions of such names, too; a call graph names no object.
    let of_qemu =
        |row: &ProfileRow| row.object.as_ref().map_or(row.with_calls.is_some(), |object| object.contains("qemu"));
    let all = DEVICES.iter().map(|device| {
        let rows = Rows::with_calls(profile, |row| begins(row, device.functions) && of_qemu(row));
        (rows.percent, (rows.describe(device.what), fixes::advice(device.fix)))
    });
    all.filter(|(percent, _)| *percent >= ctx.thresholds().machine.profile).map(|(_, said)| said).collect()
}

/// Accesses to devices that the VMM serves, by their functions.
pub(super) fn to_the_vmm(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    let Some(profile) = of_host(ctx) else { return };
    let (served, cheaper): (Vec<String>, Vec<Fix>) = devices(ctx, profile).into_iter().unzip();
    let emulates = Rows::of(profile, |row| EMULATES.is_match(&row.name));
    let all = Rows::of(profile, |row| EMULATES.is_match(&row.name) || LEAVES.is_match(&row.name));
    let enters = |row: &ProfileRow| begins(row, &ENTERS_KVM) && row.percent >= MANY_ENTRIES && of_vmm(row);
    let outside = Rows::of(profile, |row| begins(row, &SERVED_OUTSIDE) || enters(row));
    // Any system call leaves the kernel.
    let is_outside =
        !outside.rows.is_empty() && emulates.percent >= 1.0 && all.percent >= 2.0 * ctx.thresholds().machine.profile;
    if is_outside {
        let mut evidence =
            vec![all.describe("the way to the VMM and back"), emulates.describe("emulation of the accesses")];
        evidence.extend(served);
        let usual = if cheaper.is_empty() { vec![fixes::advice(USE_VIRTIO)] } else { cheaper };
        let fix = [show_addresses()].into_iter().chain(usual).collect();
        let found = find(profile, evidence, "look at: the address that is accessed most", fix, TO_THE_VMM);
        verdicts.find(Finding { confidence: Confidence::Low, ..found });
    } else if !served.is_empty() {
        let look_at = "look at: perf kvm stat live, for the exits that cause it";
        verdicts.find(find(profile, served, look_at, cheaper, SERVES));
    }
}

/// What QEMU's main loop does when it turns: it asks all its files whether there is something to do (`fs/select.c`,
/// glib's `gmain.c`), and its timers when (`util/main-loop.c`, `util/async.c`).
static TURNS: Pattern = Pattern::new(concat!(
    "^_*(?:poll_freewait|do_(?:sys_)?poll|pollwait|(?:sock|eventfd|datagram|tty|pipe)_poll|ppoll|",
    "g_main_context_|g_poll|aio_(?:pending|notify|ctx_|dispatch|compute_timeout)|timerlist|",
    "qemu_(?:poll_ns|clock_|notify_event|soonest)|main_loop_wait|os_host_main_loop|glib_pollfds)",
));
/// Threads of QEMU beside its main loop.
const OTHER_THREADS: [&str; 3] = ["/KVM", "iothread", "vhost"];
/// The share of a profile from which it is much, percent: 29 to 53 with an idle Windows 10 that polled the RTC.
const MANY_TURNS: f64 = 25.0;
const MAIN_LOOP: Prose = Prose {
    title: "QEMU's main loop is busy all the time",
    problem: "main loop is busy",
    why: "Each timer and each request of a device that QEMU emulates wakes the main loop, which then asks all its \
        files. An idle Windows does that by the RTC, the HPET or a USB controller",
};
const FEWER_TIMERS: &str = "Windows: set hypervclock and the Hyper-V enlightenments with stimer, and no HPET. Any \
    guest: disks and network on virtio, with an IOThread and vhost; no USB tablet where nobody looks at the screen";

/// QEMU's main loop by the functions of its turns.
pub(super) fn main_loop(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    let Some(profile) = of_host(ctx) else { return };
    let is_other = |row: &ProfileRow| {
        row.task.as_ref().is_some_and(|task| OTHER_THREADS.iter().any(|thread| task.contains(thread)))
    };
    let all = Rows::of(profile, |row| TURNS.is_match(&row.name) && of_vmm(row) && !is_other(row));
    // Other programs poll, too.
    let is_of_qemu = all.rows.iter().any(|row| !row.name.contains("poll"));
    if is_of_qemu && all.percent >= MANY_TURNS {
        let fix = vec![fixes::advice(FEWER_TIMERS), show_addresses()];
        let look_at = "look at: perf kvm stat live, for the exits that cause it";
        verdicts.find(find(profile, vec![all.describe("the main loop's turns")], look_at, fix, MAIN_LOOP));
    }
}

const COMPACTION: Prose = Prose {
    title: "The host compacts its memory to make huge pages",
    problem: "host compacts its memory",
    why: "Where free memory is fragmented, the kernel moves pages to make huge ones, and the vCPU waits",
};
const DEFER: &str = "echo defer > /sys/kernel/mm/transparent_hugepage/defrag";
const DEFER_NEED: &str = "until the next boot; page faults then take small pages, and huge ones are made later";
const RESERVE: &str = "Reserve huge pages at boot (hugepages=), and back guests that own their memory with them";
/// Compaction, the clearing of pages, and KSM by their functions.
pub(super) fn memory(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    let Some(profile) = of_host(ctx) else { return };
    let least = ctx.thresholds().machine.profile;
    let of_task = |row: &ProfileRow, task: &str| row.task.as_ref().is_some_and(|name| name.contains(task));
    let compaction = ["isolate_freepages", "isolate_migratepages", "compact", "release_freepages"];
    let compaction = Rows::of(profile, |row| begins(row, &compaction) || of_task(row, "kcompactd"));
    let clearing = Rows::of(profile, |row| begins(row, &["clear_page", "clear_huge_page", "clear_gigantic_page"]));
    if compaction.percent >= least {
        let mut evidence = vec![compaction.describe("compaction")];
        evidence.extend((clearing.percent >= least).then(|| clearing.describe("clearing of new pages")));
        let fix = vec![fixes::command(DEFER).needing(DEFER_NEED), fixes::advice(RESERVE)];
        let look_at = "look at: grep -E 'compact|thp_fault' /proc/vmstat, twice; cat /proc/buddyinfo";
        verdicts.find(find(profile, evidence, look_at, fix, COMPACTION));
    }
    let ksm = ["ksm_", "cmp_and_merge_page", "unstable_tree_search", "stable_tree_search", "get_ksm_page"];
    let ksm = Rows::of(profile, |row| of_task(row, "ksmd") || begins(row, &ksm));
    if ksm.percent >= least {
        verdicts.find(super::machine::ksm(vec![ksm.describe("KSM's scan"), SHARES.into()], None));
    }
}

const APIC_FAULTS: Prose = Prose {
    title: "Most exits are EPT violations of a few instructions, probably on the local APIC's page",
    problem: "APIC acceleration is off?",
    why: "The same few instructions that fault again and again use a page that KVM keeps away to emulate it. With \
        exits for interrupt windows or the TPR, that is most likely the local APIC",
};

/// `APICv` inhibited, by a profile of exits with their reason and instruction.
pub(super) fn apic(ctx: &Context<'_>, verdicts: &mut Verdicts) {
    let Some(profile) = ctx.model.host.facts.profile.as_ref().filter(|profile| profile.is_of_exits()) else { return };
    let of = |reasons: &[&str]| Rows::of(profile, |row| row.exit_reason().is_some_and(|name| reasons.contains(&name)));
    let faults = of(&["EPT_VIOLATION"]);
    let windows = of(&["PENDING_INTERRUPT", "INTERRUPT_WINDOW", "TPR_BELOW_THRESHOLD"]);
    let accelerated = of(&["APIC_WRITE", "EOI_INDUCED", "APIC_ACCESS"]);
    let few: f64 = faults.rows.iter().take(FEW).map(|row| row.percent).sum();
    let is_few = few >= 0.9 * faults.percent && faults.percent >= ctx.thresholds().apic.profile_faults;
    if !is_few || windows.rows.is_empty() || !accelerated.rows.is_empty() {
        return;
    }
    let reasons: BTreeSet<&str> = windows.rows.iter().filter_map(|row| row.exit_reason()).collect();
    let reasons = reasons.into_iter().collect::<Vec<_>>().join(", ");
    let places = faults.rows.iter().take(NAMED).filter_map(|row| Some((row.percent, row.exit_place()?)));
    let places = places.map(|(percent, place)| format!("{} % at {place}", figure(percent))).collect::<Vec<_>>();
    let evidence = vec![
        format!("{} % of the exits are EPT_VIOLATION: {}", figure(faults.percent), places.join(", ")),
        format!("{} % occur only without APIC virtualisation: {reasons}", figure(windows.percent)),
        "the number of exits is not in the profile, so neither are rate and cost".into(),
        "look at: trace-cmd record -e kvm:kvm_page_fault sleep 1 (address 0xfee00xxx gives proof); \
            cat /sys/module/kvm_intel/parameters/enable_apicv"
            .into(),
    ];
    let fix = vec![fixes::advice(fixes::hyperv::ADD_AVIC)];
    verdicts.find(Finding::new(Severity::Info, Confidence::Low, evidence, fix).saying(APIC_FAULTS));
}
