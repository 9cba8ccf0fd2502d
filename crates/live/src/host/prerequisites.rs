//! What decides on this host what kvmtop may see: settings of the kernel and rights, each with the cure of what is
//! wrong.

use crate::proc::file;
use crate::proc::paths::SystemPaths;
use rustix::process::geteuid;
use rustix::thread::{CapabilitySet, capabilities};
use sample::HostFacts;
use schemars::JsonSchema;
use serde::Serialize;
use std::io::ErrorKind;

/// Lowest `kernel.perf_event_paranoid` that keeps a user without `CAP_PERFMON` from tracepoints
/// (Documentation/admin-guide/sysctl/kernel.rst).
const PARANOID: i32 = 0;

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
type State = (String, Option<String>);

fn fine(value: impl Into<String>) -> State {
    (value.into(), None)
}

fn wrong(value: impl Into<String>, fix: impl Into<String>) -> State {
    (value.into(), Some(fix.into()))
}

/// All of them.
pub fn prerequisites(paths: &SystemPaths, rights: &HeldRights, facts: &HostFacts) -> Vec<Prerequisite> {
    let table = [
        ("rights", rights.state()),
        ("lockdown", lockdown(paths)),
        ("kernel.perf_event_paranoid", paranoid(paths, rights)),
        ("tracefs", tracefs(paths, rights)),
        ("KVM", kvm(facts)),
    ];
    table.into_iter().map(|(name, (value, fix))| Prerequisite { name, value, fix }).collect()
}

/// The capabilities that kvmtop was started with.
#[derive(Debug, Clone, Copy)]
pub struct HeldRights {
    root: bool,
    set: CapabilitySet,
}

impl HeldRights {
    /// Ask before the sources start: what they no longer need is given up then.
    pub fn here() -> Self {
        let set = capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.permitted);
        Self { root: geteuid().is_root(), set }
    }

    fn state(&self) -> State {
        let who = if self.root { "root".to_owned() } else { format!("user {}", geteuid().as_raw()) };
        let missing = rights::for_hint() - self.set;
        if missing.is_empty() {
            fine(format!("{who}, with all that kvmtop uses"))
        } else if self.set.is_empty() {
            wrong(format!("{who}, without capabilities"), rights::hint())
        } else {
            wrong(format!("{who}, without {}", rights::named(missing)), rights::hint())
        }
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
        Some("integrity") => fine("integrity: KVM's statistics in debugfs are closed (QEMU 8.1 or later gives them)"),
        _ => fine("none"),
    }
}

fn paranoid(paths: &SystemPaths, rights: &HeldRights) -> State {
    let Some(value) = file::read_word(&paths.proc.join("sys/kernel/perf_event_paranoid")) else {
        return wrong("this kernel has no perf events", "use --engine bpf");
    };
    let value = kvm::sanitize(&value, 16);
    let level = value.parse::<i32>().ok();
    let of_mainline = level.is_some_and(|level| level <= rights::PARANOID_OF_MAINLINE);
    let perfmon = rights.set.contains(CapabilitySet::PERFMON);
    if rights.set.contains(CapabilitySet::SYS_ADMIN)
        || perfmon && of_mainline
        || level.is_some_and(|level| level < PARANOID)
    {
        fine(format!("{value}; no bar to kvmtop"))
    } else if perfmon {
        wrong(format!("{value}: tracepoints need CAP_SYS_ADMIN"), "sysctl kernel.perf_event_paranoid=2")
    } else {
        wrong(format!("{value}: tracepoints need CAP_PERFMON"), rights::hint())
    }
}

fn tracefs(paths: &SystemPaths, rights: &HeldRights) -> State {
    const MOUNT: &str = "mount -t tracefs tracefs /sys/kernel/tracing";
    let places = ["kernel/tracing", "kernel/debug/tracing"].map(|place| paths.sys.join(place));
    let mut refused = false;
    for place in &places {
        match std::fs::read_dir(place.join("events")) {
            Ok(_) if place.join("events/kvm").is_dir() => return fine(format!("mounted on {}", place.display())),
            Ok(_) => {
                return wrong("it has no kvm events: the kvm module is not loaded", "modprobe kvm_intel (or kvm_amd)");
            }
            Err(e) => refused |= e.kind() == ErrorKind::PermissionDenied,
        }
    }
    if refused {
        return wrong("not readable", if rights.root { "see lockdown".into() } else { rights::hint() });
    }
    if places.iter().any(|place| place.is_dir()) {
        return wrong("not mounted", if rights.root { MOUNT.into() } else { format!("as root: {MOUNT}") });
    }
    wrong("this kernel has none", "boot a kernel with CONFIG_TRACING=y")
}

/// The module that runs guests, and its parameters that decide what exits cost.
fn kvm(facts: &HostFacts) -> State {
    const SHOWN: [&str; 8] =
        ["halt_poll_ns", "nested", "enable_apicv", "avic", "ept", "npt", "ple_gap", "pause_filter_count"];
    let Some(flavour) = &facts.kvm_flavour else {
        return wrong("no module is loaded", "modprobe kvm_intel (or kvm_amd)");
    };
    let parameters = facts.params.iter().filter_map(|(name, value)| {
        let (module, name) = name.split_once('.')?;
        (module.starts_with("kvm") && SHOWN.contains(&name)).then(|| format!("{name}={value}"))
    });
    fine([flavour.clone()].into_iter().chain(parameters).collect::<Vec<_>>().join(" "))
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

    fn held(root: bool, set: CapabilitySet) -> HeldRights {
        HeldRights { root, set }
    }

    #[test]
    fn each_hindrance_has_one_cure_and_what_is_fine_has_none() {
        let dir = tempfile::tempdir().unwrap();
        let paths = SystemPaths::under(dir.path());
        let (root, user) = (held(true, CapabilitySet::all()), held(false, CapabilitySet::empty()));
        let hint = Some(rights::hint());

        assert_eq!(root.state().1, None);
        assert_eq!(user.state().1, hint);
        let half = held(false, CapabilitySet::BPF).state();
        assert!(half.0.contains("cap_perfmon") && !half.0.contains("cap_bpf"), "{half:?}");
        assert_eq!(half.1, hint, "the whole of it, so that nothing is taken away");

        assert_eq!(lockdown(&paths), fine("none"));
        put(dir.path(), "sys/kernel/security/lockdown", "none [integrity] confidentiality\n");
        assert_eq!(lockdown(&paths).1, None);
        put(dir.path(), "sys/kernel/security/lockdown", "none integrity [confidentiality]\n");
        assert!(lockdown(&paths).1.is_some_and(|fix| fix.contains("lockdown=integrity")));

        for (value, of_root, of_user) in
            [("2", None, &hint), ("3", None, &hint), ("4", None, &hint), ("-1", None, &None)]
        {
            put(dir.path(), "proc/sys/kernel/perf_event_paranoid", value);
            assert_eq!((paranoid(&paths, &root).1, &paranoid(&paths, &user).1), (of_root, of_user), "{value}");
        }
        let perfmon = held(false, CapabilitySet::PERFMON);
        for (value, cured) in [("2", true), ("3", false), ("4", false)] {
            put(dir.path(), "proc/sys/kernel/perf_event_paranoid", value);
            assert_eq!(paranoid(&paths, &perfmon).1.is_none(), cured, "{value}");
        }

        assert!(tracefs(&paths, &root).0.contains("kernel has none"));
        std::fs::create_dir_all(paths.sys.join("kernel/tracing")).unwrap();
        assert_eq!(tracefs(&paths, &root).1.as_deref(), Some("mount -t tracefs tracefs /sys/kernel/tracing"));
        std::fs::create_dir_all(paths.sys.join("kernel/tracing/events")).unwrap();
        assert!(tracefs(&paths, &root).1.is_some_and(|fix| fix.contains("modprobe")));
        std::fs::create_dir_all(paths.sys.join("kernel/tracing/events/kvm")).unwrap();
        assert_eq!(tracefs(&paths, &root).1, None);

        let facts = HostFacts {
            kvm_flavour: Some("kvm_amd".into()),
            params: [("kvm.halt_poll_ns", "0"), ("kvm_amd.avic", "N"), ("kvm.tdp_mmu", "Y")]
                .map(|(name, value)| (name.into(), value.into()))
                .into(),
            ..HostFacts::default()
        };
        assert_eq!(kvm(&facts), fine("kvm_amd halt_poll_ns=0 avic=N"));
        assert!(kvm(&HostFacts::default()).1.is_some());
    }
}
