//! The kernel's list of tracepoints: where tracefs is mounted, and the number and `format` text of
//! each event.
//!
//! Both tracing engines start here, so errors explain why a host cannot be traced and what to do
//! about it.

use crate::events::{EngineError, LOAD_KVM};
use kvm::format::{self, EventFormat};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Where tracefs is mounted, and where older systems have it below debugfs
/// (Documentation/trace/ftrace.rst).
const ROOTS: [&str; 2] = ["kernel/tracing", "kernel/debug/tracing"];
/// The state of kernel lockdown: `none [integrity] confidentiality`.
const LOCKDOWN: &str = "kernel/security/lockdown";

/// What to run where tracefs is missing.
const MOUNT_TRACEFS: &str = "`mount -t tracefs tracefs /sys/kernel/tracing`";

/// A mounted tracefs.
#[derive(Debug, Clone)]
pub struct Tracefs {
    /// Where it is mounted.
    pub root: PathBuf,
    /// The file that says the state of kernel lockdown.
    lockdown: PathBuf,
}

impl Tracefs {
    /// Finds the mounted tracefs, with the events of KVM in it.
    ///
    /// # Errors
    /// Not mounted, not permitted, closed by lockdown, or KVM not loaded.
    pub fn open() -> Result<Self, EngineError> {
        Self::open_in(Path::new("/sys"))
    }

    /// The same in this `/sys`.
    ///
    /// # Errors
    /// As [`Tracefs::open`].
    pub fn open_in(sys: &Path) -> Result<Self, EngineError> {
        let mut refused = None;
        for root in ROOTS {
            let fs = Self {
                root: sys.join(root),
                lockdown: sys.join(LOCKDOWN),
            };
            match std::fs::read_dir(fs.root.join("events")) {
                Ok(_) => return fs.with_kvm(),
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                Err(e) => refused = refused.or(Some(fs.error("events", &e))),
            }
        }
        Err(refused.unwrap_or_else(|| {
            EngineError::new(
                "tracefs is not mounted on /sys/kernel/tracing, so the kernel's tracepoints cannot \
                    be found",
                MOUNT_TRACEFS,
            )
        }))
    }

    /// This tracefs, if the events of KVM are in it and can be read.
    fn with_kvm(self) -> Result<Self, EngineError> {
        match self.format("kvm", "kvm_userspace_exit") {
            Ok(_) => Ok(self),
            Err(_) if !self.root.join("events/kvm").is_dir() => Err(EngineError::new(
                format!(
                    "{} has no kvm events: the kvm module is not loaded",
                    self.root.display()
                ),
                LOAD_KVM,
            )),
            Err(e) => Err(e),
        }
    }

    /// Whether the running kernel has this event.
    pub fn has(&self, group: &str, name: &str) -> bool {
        let path = format!("events/{group}/{name}/format");
        self.root.join(path).exists()
    }

    /// The event's number, its fields and the names of their values.
    ///
    /// # Errors
    /// No such event on this kernel, or not readable.
    pub fn format(&self, group: &str, name: &str) -> Result<EventFormat, EngineError> {
        let path = format!("events/{group}/{name}/format");
        let text = std::fs::read_to_string(self.root.join(&path)).map_err(|e| match e.kind() {
            ErrorKind::NotFound => EngineError::new(
                format!("this kernel has no tracepoint {group}:{name}"),
                format!(
                    "load the module that defines it; the events there are: ls {}",
                    self.root.join("events").join(group).display()
                ),
            ),
            _ => self.error(&path, &e),
        })?;
        format::parse(&text).map_err(|e| {
            EngineError::new(
                format!("the format file of {group}:{name} cannot be read: {e}"),
                "report this kernel's version to the authors of kvmtop",
            )
        })
    }

    /// The names of a group's events, sorted.
    ///
    /// # Errors
    /// No such group on this kernel, or not readable.
    pub fn events(&self, group: &str) -> Result<Vec<String>, EngineError> {
        let path = format!("events/{group}");
        let entries =
            std::fs::read_dir(self.root.join(&path)).map_err(|e| self.error(&path, &e))?;
        let mut names: Vec<String> = entries
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| self.has(group, name))
            .collect();
        names.sort_unstable();
        Ok(names)
    }

    /// Explains why a file of tracefs could not be read. Lockdown `confidentiality` refuses every
    /// open, even root's, with EPERM (fs/tracefs/inode.c, `LOCKDOWN_TRACEFS`); a missing capability
    /// is EACCES from the directory's mode.
    fn error(&self, path: &str, error: &std::io::Error) -> EngineError {
        let path = self.root.join(path);
        let path = path.display();
        if error.kind() != ErrorKind::PermissionDenied {
            return EngineError::new(format!("cannot read {path}: {error}"), MOUNT_TRACEFS);
        }
        if std::fs::read_to_string(&self.lockdown)
            .is_ok_and(|text| text.contains("[confidentiality]"))
        {
            return EngineError::new(
                format!(
                    "kernel lockdown \"confidentiality\" closes {path}, so nothing can be traced"
                ),
                "boot with lockdown=integrity, or use --engine none",
            );
        }
        EngineError::new(format!("no permission to read {path}"), rights::hint())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn tree(root: &Path, events: &[(&str, &str)]) {
        for (name, id) in events {
            let dir = root.join("kernel/debug/tracing/events").join(name);
            std::fs::create_dir_all(&dir).unwrap();
            std::fs::write(dir.join("format"), format!("name: {name}\nID: {id}\n")).unwrap();
        }
    }

    #[test]
    fn ids_formats_and_lists_of_the_second_root() {
        let dir = tempfile::tempdir().unwrap();
        tree(
            dir.path(),
            &[("kvm/kvm_userspace_exit", "101"), ("kvm/kvm_exit", "103")],
        );
        std::fs::write(
            dir.path().join("kernel/debug/tracing/events/kvm/enable"),
            "0\n",
        )
        .unwrap();
        let fs = Tracefs::open_in(dir.path()).unwrap();
        assert_eq!(
            fs.format("kvm", "kvm_exit").map(|format| format.id),
            Ok(103)
        );
        assert_eq!(
            fs.events("kvm").unwrap(),
            ["kvm_exit", "kvm_userspace_exit"]
        );
        assert!(fs.has("kvm", "kvm_exit") && !fs.has("kvm", "kvm_entry"));
        assert_eq!(
            fs.format("kvm", "kvm_entry").unwrap_err().cause,
            "this kernel has no tracepoint kvm:kvm_entry"
        );
    }

    #[test]
    fn each_hindrance_has_its_own_sentence() {
        let dir = tempfile::tempdir().unwrap();
        let error = Tracefs::open_in(dir.path()).unwrap_err();
        assert!(error.cause.contains("not mounted"), "{error:?}");
        assert!(error.fix.starts_with("`mount -t tracefs"));

        tree(dir.path(), &[("sched/sched_switch", "300")]);
        let error = Tracefs::open_in(dir.path()).unwrap_err();
        assert!(
            error.cause.contains("kvm module is not loaded"),
            "{error:?}"
        );

        tree(dir.path(), &[("kvm/kvm_userspace_exit", "many")]);
        let error = Tracefs::open_in(dir.path()).unwrap_err();
        assert!(
            error.cause.contains("no 'ID:' line with a number"),
            "{error:?}"
        );
    }

    #[test]
    fn refused_by_rights_or_by_lockdown() {
        let dir = tempfile::tempdir().unwrap();
        let fs = Tracefs {
            root: dir.path().to_owned(),
            lockdown: dir.path().join("lockdown"),
        };
        let denied = std::io::Error::from_raw_os_error(1);
        std::fs::write(
            dir.path().join("lockdown"),
            "none [integrity] confidentiality\n",
        )
        .unwrap();
        assert!(fs.error("events", &denied).cause.contains("no permission"));
        std::fs::write(
            dir.path().join("lockdown"),
            "none integrity [confidentiality]\n",
        )
        .unwrap();
        assert!(fs.error("events", &denied).cause.contains("lockdown"));

        // As a user without rights sees it; root passes through the mode.
        tree(dir.path(), &[("kvm/kvm_userspace_exit", "1")]);
        std::fs::write(dir.path().join("lockdown"), "").unwrap();
        let events = dir.path().join("kernel/debug/tracing/events");
        std::fs::set_permissions(&events, std::fs::Permissions::from_mode(0o0)).unwrap();
        if let Err(error) = Tracefs::open_in(dir.path()) {
            assert!(error.cause.contains("no permission"), "{error:?}");
        }
        std::fs::set_permissions(&events, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
}
