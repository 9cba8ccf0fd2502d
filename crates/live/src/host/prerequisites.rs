//! What decides on this host what kvmtop may see: settings of the kernel and rights, each with the
//! cure of what is wrong.

use crate::proc::file;
use crate::proc::paths::SystemPaths;
use engine::events::LOAD_KVM;
use engine::tracefs::Tracefs;
use rustix::thread::CapabilitySet;
use sample::HostFacts;
use schemars::JsonSchema;
use serde::Serialize;

/// A setting of the kernel, or a right.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Prerequisite {
    /// `rights`, `lockdown`, `kernel.perf_event_paranoid`, `tracefs` or `KVM`.
    pub name: &'static str,
    /// What it is on this host.
    pub value: String,
    /// What to run where it keeps kvmtop from seeing something. `null`: nothing is wrong.
    pub fix: Option<String>,
}

/// What a prerequisite is on this host, and the cure of what is wrong.
#[derive(Debug, PartialEq, Eq)]
struct State {
    value: String,
    fix: Option<String>,
}

fn fine(value: impl Into<String>) -> State {
    State {
        value: value.into(),
        fix: None,
    }
}

fn wrong(value: impl Into<String>, fix: impl Into<String>) -> State {
    State {
        value: value.into(),
        fix: Some(fix.into()),
    }
}

/// All prerequisites. `held`: the capabilities that kvmtop was started with.
pub fn prerequisites(
    paths: &SystemPaths,
    held: CapabilitySet,
    facts: &HostFacts,
) -> Vec<Prerequisite> {
    let table = [
        ("rights", rights_held(held)),
        ("lockdown", lockdown(paths)),
        ("kernel.perf_event_paranoid", paranoid(paths, held)),
        ("tracefs", tracefs(paths)),
        ("KVM", kvm(facts)),
    ];
    table
        .into_iter()
        .map(|(name, State { value, fix })| Prerequisite { name, value, fix })
        .collect()
}

fn rights_held(held: CapabilitySet) -> State {
    let who = match rights::own_user() {
        0 => "root".to_owned(),
        user => format!("user {user}"),
    };
    let missing = rights::for_hint() - held;
    if missing.is_empty() {
        fine(format!("{who}, with all that kvmtop uses"))
    } else if held.is_empty() {
        wrong(format!("{who}, without capabilities"), rights::hint())
    } else {
        wrong(
            format!("{who}, without {}", rights::named(missing)),
            rights::hint(),
        )
    }
}

/// What the kernel refuses to everybody, root included (`kernel_lockdown(7)`).
fn lockdown(paths: &SystemPaths) -> State {
    let text = file::read_word(&paths.sys.join("kernel/security/lockdown")).unwrap_or_default();
    match text.split(['[', ']']).nth(1) {
        Some("confidentiality") => wrong(
            "confidentiality: nothing can be traced, and KVM's statistics in debugfs are closed",
            "boot with lockdown=integrity",
        ),
        Some("integrity") => fine("integrity: KVM's statistics in debugfs are closed"),
        _ => fine("none"),
    }
}

fn paranoid(paths: &SystemPaths, held: CapabilitySet) -> State {
    let Some(value) = file::read_word(&paths.proc.join("sys/kernel/perf_event_paranoid")) else {
        return wrong("this kernel has no perf events", "use --engine bpf");
    };
    let value = kvm::sanitize(&value, 16);
    let level = value.parse::<i32>().ok();
    if let Some((_, fix)) = rights::paranoid_refusal(level, held) {
        wrong(format!("{value}: tracepoints need CAP_SYS_ADMIN"), fix)
    } else {
        fine(value)
    }
}

fn tracefs(paths: &SystemPaths) -> State {
    match Tracefs::open_in(&paths.sys) {
        Ok(tracefs) => fine(format!("mounted on {}", tracefs.root.display())),
        Err(why) => wrong(why.cause, why.fix),
    }
}

/// The module that runs guests.
fn kvm(facts: &HostFacts) -> State {
    match &facts.kvm_flavour {
        Some(flavour) => fine(flavour.clone()),
        None => wrong("no module is loaded", LOAD_KVM),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn put(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    #[test]
    fn each_hindrance_has_one_cure_and_what_is_fine_has_none() {
        let dir = tempfile::tempdir().unwrap();
        let paths = SystemPaths::under(dir.path());
        let (root, user) = (CapabilitySet::all(), CapabilitySet::empty());
        let hint = Some(rights::hint());

        assert_eq!(rights_held(root).fix, None);
        assert_eq!(rights_held(user).fix, hint);
        let half = rights_held(CapabilitySet::BPF);
        assert!(
            half.value.contains("cap_perfmon") && !half.value.contains("cap_bpf"),
            "{half:?}"
        );
        assert_eq!(
            half.fix, hint,
            "the whole of it, so that nothing is taken away"
        );

        assert_eq!(lockdown(&paths), fine("none"));
        put(
            dir.path(),
            "sys/kernel/security/lockdown",
            "none [integrity] confidentiality\n",
        );
        assert_eq!(lockdown(&paths).fix, None);
        put(
            dir.path(),
            "sys/kernel/security/lockdown",
            "none integrity [confidentiality]\n",
        );
        assert!(
            lockdown(&paths)
                .fix
                .is_some_and(|fix| fix.contains("lockdown=integrity"))
        );

        let perfmon = CapabilitySet::PERFMON;
        for (value, cured) in [("2", true), ("3", false), ("4", false)] {
            put(dir.path(), "proc/sys/kernel/perf_event_paranoid", value);
            assert_eq!(paranoid(&paths, perfmon).fix.is_none(), cured, "{value}");
        }

        assert_eq!(
            tracefs(&paths).fix.as_deref(),
            Some("`mount -t tracefs tracefs /sys/kernel/tracing`")
        );
        std::fs::create_dir_all(paths.sys.join("kernel/tracing/events")).unwrap();
        assert!(
            tracefs(&paths)
                .fix
                .is_some_and(|fix| fix.contains("modprobe"))
        );
        put(
            dir.path(),
            "sys/kernel/tracing/events/kvm/kvm_userspace_exit/format",
            "name: x\nID: 1\n",
        );
        assert_eq!(tracefs(&paths).fix, None);

        let facts = HostFacts {
            kvm_flavour: Some("kvm_amd".into()),
            ..HostFacts::default()
        };
        assert_eq!(kvm(&facts), fine("kvm_amd"));
        assert!(
            kvm(&HostFacts::default())
                .fix
                .is_some_and(|fix| fix.contains("modprobe"))
        );
    }
}
