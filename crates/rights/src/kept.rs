//! Which capabilities which thread keeps after the start, and why. `docs/security.md` shows this table.

use super::{events_need_admin, has_cap_bpf};
use rustix::thread::CapabilitySet;
use sample::EngineKind;

/// A row of the table.
#[derive(Debug, Clone, Copy)]
pub struct KeptRow {
    /// When it stays.
    pub when: &'static str,
    /// What stays.
    pub set: CapabilitySet,
    /// Why.
    pub reason: &'static str,
}

const BPF: CapabilitySet = CapabilitySet::BPF.union(CapabilitySet::PERFMON);
const RINGS: CapabilitySet = CapabilitySet::PERFMON.union(CapabilitySet::IPC_LOCK);
const PROCESSES: CapabilitySet = CapabilitySet::SYS_PTRACE.union(CapabilitySet::DAC_READ_SEARCH);
const MONITOR: CapabilitySet = CapabilitySet::SETUID.union(CapabilitySet::SETGID);

/// Every reason to keep one, for the threads that follow.
pub const KEPT: &[KeptRow] = &[
    KeptRow {
        when: "sampling (the live screen, `--batch`, `record`, `check`, `doctor`, `export`, `plan` without a file), \
               and its threads that read logs and slow files",
        set: PROCESSES,
        reason: "new guests of other users: /proc/PID/fd, io, root and cwd, KVM's statistics files (pidfd_getfd), \
                 libvirt's status files and logs",
    },
    KeptRow {
        when: "sampling with the bpf engine",
        set: BPF,
        reason: "the programs are loaded again when `e` or `K` is pressed, when the Disks or the Latency view opens, \
                 and when more vCPUs come than there is room for",
    },
    KeptRow {
        when: "sampling with the perf engine, and its thread that empties the rings",
        set: RINGS,
        reason: "rings are opened again when `e` is pressed and when a CPU comes online; IPC_LOCK makes them larger \
                 than a user's may be",
    },
    KeptRow {
        when: "sampling with the perf engine",
        set: CapabilitySet::SYS_NICE,
        reason: "the thread that empties the rings runs before others, also after `e`",
    },
    KeptRow {
        when: "sampling with an engine, on a kernel before 5.8 or with `kernel.perf_event_paranoid` above 2",
        set: CapabilitySet::SYS_ADMIN,
        reason: "old kernels have neither CAP_BPF nor CAP_PERFMON; the levels above 2 of Debian and Ubuntu let nothing \
                 less open an event",
    },
    KeptRow {
        when: "sampling without `--no-monitor`",
        set: MONITOR,
        reason: "a guest's monitor is asked by a thread that takes its user's identity and keeps nothing",
    },
    KeptRow {
        when: "`profile`, and the thread of the live screen that waits for the key `b`",
        set: RINGS.union(PROCESSES).union(CapabilitySet::SYSLOG),
        reason: "samples threads of other users, reads where their code comes from, and the kernel's list of its \
                 functions (/proc/kallsyms)",
    },
    KeptRow {
        when: "root writes into a folder of another user (`S`, `w`, `r`, `record`, `--html`)",
        set: CapabilitySet::DAC_OVERRIDE,
        reason: "root without it may not write there; kept only if that folder is not root's",
    },
    KeptRow {
        when: "root reads a file that only another user may read (`report`, `diff`, `replay`, `plan` with files)",
        set: CapabilitySet::DAC_READ_SEARCH,
        reason: "root without it may not read it; kept only if a named file cannot be opened without it",
    },
    KeptRow {
        when: "all other threads and commands (libvirt, keys, signals, HTTP, `report`, `diff`, `replay`, `demo`)",
        set: CapabilitySet::empty(),
        reason: "nothing that they do needs one",
    },
];

/// While the sources open: what [`for_sampling`] keeps of any engine, and the kernel's log, which is opened once.
pub fn for_start(monitor: bool) -> CapabilitySet {
    let engines = [EngineKind::Bpf, EngineKind::Perf].map(|engine| for_sampling(engine, monitor));
    engines.into_iter().fold(CapabilitySet::SYSLOG, CapabilitySet::union)
}

/// What a program without root needs to show all that root sees. `setcap` replaces what a file has, so a hint for one
/// source alone would take away what another needs. Those for the perf engine's larger rings are left out, and
/// `CAP_SYS_ADMIN` where a lower `kernel.perf_event_paranoid` does as well.
pub fn for_hint() -> CapabilitySet {
    let spared = if has_cap_bpf() { CapabilitySet::SYS_ADMIN } else { CapabilitySet::empty() };
    for_start(true) - CapabilitySet::IPC_LOCK - CapabilitySet::SYS_NICE - spared
}

/// For the thread that samples, as long as it samples.
pub fn for_sampling(engine: EngineKind, monitor: bool) -> CapabilitySet {
    let engine = match engine {
        EngineKind::Bpf => BPF | for_events(),
        EngineKind::Perf => RINGS | CapabilitySet::SYS_NICE | for_events(),
        _ => CapabilitySet::empty(),
    };
    PROCESSES | engine | if monitor { MONITOR } else { CapabilitySet::empty() }
}

/// For sampling the stacks of threads.
pub fn for_profile() -> CapabilitySet {
    RINGS | PROCESSES | CapabilitySet::SYSLOG | for_events()
}

/// For a thread that reads files of processes and logs, and does nothing else.
pub fn for_reading() -> CapabilitySet {
    PROCESSES
}

/// For the thread that empties the rings of the perf engine.
pub fn for_rings() -> CapabilitySet {
    RINGS | for_events()
}

/// What opening an event needs beyond `CAP_PERFMON`.
fn for_events() -> CapabilitySet {
    if has_cap_bpf() && !events_need_admin() { CapabilitySet::empty() } else { CapabilitySet::SYS_ADMIN }
}

/// The names as setcap(8) takes them, the youngest first.
pub fn named(set: CapabilitySet) -> String {
    let mut names: Vec<_> = set.iter_names().map(|(name, _)| format!("cap_{}", name.to_lowercase())).collect();
    names.reverse();
    names.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/security.md");

    #[test]
    fn the_page_shows_the_table() {
        let page = std::fs::read_to_string(PAGE).unwrap();
        let (begin, end) = ("| when | what stays | why |\n|---|---|---|\n", "\n\n");
        let from = page.find(begin).unwrap() + begin.len();
        let until = from + page[from..].find(end).unwrap() + 1;
        let row = |row: &KeptRow| {
            let set = if row.set.is_empty() { "nothing".into() } else { format!("`{}`", named(row.set)) };
            format!("| {} | {set} | {} |\n", row.when, row.reason)
        };
        let table: String = KEPT.iter().map(row).collect();
        if std::env::var_os("KVMTOP_ACCEPT").is_some() {
            std::fs::write(PAGE, format!("{}{table}{}", &page[..from], &page[until..])).unwrap();
        } else {
            assert!(page[from..until] == table, "{PAGE}: run KVMTOP_ACCEPT=1 cargo test --lib privileges");
        }
    }

    #[test]
    fn what_stays_is_in_the_table() {
        let table = KEPT.iter().fold(CapabilitySet::empty(), |all, row| all | row.set);
        for engine in [EngineKind::None, EngineKind::Bpf, EngineKind::Perf] {
            let sampling = for_sampling(engine, true);
            assert!(table.contains(sampling), "{}", named(sampling - table));
            assert!(sampling.contains(for_sampling(engine, false)) && for_start(true).contains(sampling));
            assert_eq!(sampling.contains(CapabilitySet::SYS_ADMIN), !has_cap_bpf() && engine != EngineKind::None);
        }
        assert_eq!(named(CapabilitySet::SYS_PTRACE | CapabilitySet::BPF), "cap_bpf,cap_sys_ptrace");
    }
}
