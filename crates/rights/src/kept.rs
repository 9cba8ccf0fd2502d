//! Which capabilities which thread keeps after the start. `docs/security.md` says why.

use super::locked_memory::is_charged_here;
use super::{PARANOID_OF_MAINLINE, has_cap_bpf, paranoid};
use kvm::shell_quoted;
use rustix::thread::CapabilitySet;
use sample::EngineKind;

const BPF: CapabilitySet = CapabilitySet::BPF.union(CapabilitySet::PERFMON);
const RINGS: CapabilitySet = CapabilitySet::PERFMON.union(CapabilitySet::IPC_LOCK);
const PROCESSES: CapabilitySet = CapabilitySet::SYS_PTRACE.union(CapabilitySet::DAC_READ_SEARCH);
const MONITOR: CapabilitySet = CapabilitySet::SETUID.union(CapabilitySet::SETGID);

/// While the sources open: what [`for_sampling`] keeps of any engine, the kernel's log, which is
/// opened once, and where the kernel charges BPF to it the limit of locked memory.
pub fn for_start(monitor: bool) -> CapabilitySet {
    let limits = if is_charged_here() {
        CapabilitySet::SYS_RESOURCE
    } else {
        CapabilitySet::empty()
    };
    let engines = for_sampling(EngineKind::Bpf, monitor) | for_sampling(EngineKind::Perf, monitor);
    engines | CapabilitySet::SYSLOG | limits
}

/// What a program without root needs to show all that root sees. `setcap` replaces what a file has,
/// so a hint for one source alone would take away what another needs. Those for the perf engine's
/// larger rings are left out, and `CAP_SYS_ADMIN` where a lower `kernel.perf_event_paranoid` does
/// as well.
pub fn for_hint() -> CapabilitySet {
    let spared = if has_cap_bpf() {
        CapabilitySet::SYS_ADMIN
    } else {
        CapabilitySet::empty()
    };
    for_start(true) - CapabilitySet::IPC_LOCK - CapabilitySet::SYS_NICE - spared
}

/// For the thread that samples, as long as it samples.
pub fn for_sampling(engine: EngineKind, monitor: bool) -> CapabilitySet {
    let engine = match engine {
        EngineKind::Bpf => BPF | for_events(),
        EngineKind::Perf => RINGS | CapabilitySet::SYS_NICE | for_events(),
        _ => CapabilitySet::empty(),
    };
    PROCESSES
        | engine
        | if monitor {
            MONITOR
        } else {
            CapabilitySet::empty()
        }
}

/// For sampling the stacks of threads.
pub fn for_profile() -> CapabilitySet {
    RINGS | PROCESSES | CapabilitySet::SYSLOG | for_events()
}

/// For a thread that reads files of processes, and does nothing else.
pub fn for_reading() -> CapabilitySet {
    PROCESSES
}

/// For the thread that empties the rings of the perf engine.
pub fn for_rings() -> CapabilitySet {
    RINGS | for_events()
}

/// What opening an event needs beyond `CAP_PERFMON`.
fn for_events() -> CapabilitySet {
    let needs_admin =
        !has_cap_bpf() || paranoid().is_some_and(|level| level > PARANOID_OF_MAINLINE);
    if needs_admin {
        CapabilitySet::SYS_ADMIN
    } else {
        CapabilitySet::empty()
    }
}

/// The names as setcap(8) takes them, the youngest first.
pub fn named(set: CapabilitySet) -> String {
    let mut names: Vec<_> = set
        .iter_names()
        .map(|(name, _)| format!("cap_{}", name.to_lowercase()))
        .collect();
    names.reverse();
    names.join(",")
}

/// What to run where a right is missing.
pub fn hint() -> String {
    let binary = std::env::current_exe().map_or_else(
        |_| "kvmtop".into(),
        |path| path.to_string_lossy().into_owned(),
    );
    hint_for(&binary)
}

fn hint_for(binary: &str) -> String {
    format!(
        "run kvmtop as root, or once: `setcap {}=ep {}`",
        named(for_hint()),
        shell_quoted(binary)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/security.md");

    #[test]
    fn the_page_names_what_stays() {
        let page = std::fs::read_to_string(PAGE).unwrap();
        let (_, table) = page.split_once("| when | what stays | why |").unwrap();
        let (table, _) = table.split_once("\n\n").unwrap();
        let files = CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH;
        for engine in [EngineKind::None, EngineKind::Bpf, EngineKind::Perf] {
            let sampling = for_sampling(engine, true);
            for (name, _) in (sampling | for_profile() | for_rings() | files).iter_names() {
                assert!(
                    table.contains(&format!("cap_{}", name.to_lowercase())),
                    "{name}"
                );
            }
            assert!(
                sampling.contains(for_sampling(engine, false))
                    && for_start(true).contains(sampling)
            );
            assert_eq!(
                sampling.contains(CapabilitySet::SYS_ADMIN),
                !has_cap_bpf() && engine != EngineKind::None
            );
        }
        assert_eq!(
            named(CapabilitySet::SYS_PTRACE | CapabilitySet::BPF),
            "cap_bpf,cap_sys_ptrace"
        );
    }

    #[test]
    fn the_hint_is_a_command_for_this_binary() {
        let rights = named(for_hint());
        assert_eq!(
            hint_for("/usr/bin/kvmtop"),
            format!("run kvmtop as root, or once: `setcap {rights}=ep /usr/bin/kvmtop`")
        );
        assert!(hint_for("/opt/my tools/kvmtop").ends_with("=ep '/opt/my tools/kvmtop'`"));
        assert!(hint_for("it's").ends_with(r"=ep 'it'\''s'`"));
        assert!(hint().contains(&format!("setcap {rights}=ep ")));
    }

    /// One command, the same everywhere. The pages show the command for kernels since 5.11.
    #[test]
    fn the_pages_give_the_same_command() {
        let command = format!("setcap {}=ep ", named(for_hint()));
        for page in ["README.md", "docs/security.md"] {
            let page_has =
                std::fs::read_to_string(format!("{}/../../{page}", env!("CARGO_MANIFEST_DIR")))
                    .unwrap()
                    .contains(&command);
            let is_for_an_old_kernel =
                command.contains("cap_sys_admin") || command.contains("cap_sys_resource");
            assert!(page_has || is_for_an_old_kernel, "{page}: {command}");
        }
    }
}
