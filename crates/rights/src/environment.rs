//! A start that does not depend on the environment.
//!
//! Variables choose which libraries are loaded (`LD_LIBRARY_PATH`, `LD_PRELOAD`), where libraries
//! find their own plugins (`GIO_MODULE_DIR`, `GCONV_PATH`, `SASL_PATH`), and which files they write
//! (`LIBVIRT_LOG_OUTPUTS`). The loader reads them before the program begins, so kvmtop starts once
//! more, with the variables that it knows and no others.

use crate::keep_none;
use rustix::process::{geteuid, getuid};
use rustix::thread::{CapabilitySet, capabilities};
use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Variables that say who the user is, what the terminal can do, what language and what zone.
const KNOWN: [&str; 27] = [
    "CLICOLOR",
    "CLICOLOR_FORCE",
    "COLORFGBG",
    "COLORTERM",
    "COLUMNS",
    "HOME",
    "LANG",
    "LANGUAGE",
    "LIBVIRT_DEFAULT_URI",
    "LINES",
    "LOGNAME",
    "NO_COLOR",
    "PATH",
    "PWD",
    "RUST_BACKTRACE",
    "SHELL",
    "SSH_AUTH_SOCK",
    "SUDO_UID",
    "TERM",
    "TERM_PROGRAM",
    "TERM_PROGRAM_VERSION",
    "TMPDIR",
    "TMUX",
    "TZ",
    "USER",
    "XDG_CONFIG_HOME",
    "XDG_RUNTIME_DIR",
];

/// Starts the program once more where it has more rights than its user would have without it, or is
/// root, and its environment holds variables that it does not know. Returns where nothing is to be
/// done. Without `/proc`, where no program can start again, it gives up its rights instead: only
/// commands that need none are of use there.
///
/// # Errors
/// It could not be started again.
pub fn start_clean() -> Result<(), String> {
    let privileged = geteuid().is_root()
        || geteuid() != getuid()
        || capabilities(None).is_ok_and(|sets| sets.permitted != CapabilitySet::empty());
    if !privileged || std::env::vars_os().all(|(name, _)| is_known(&name)) {
        return Ok(());
    }
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_else(|| "kvmtop".into());
    let known = std::env::vars_os().filter(|(name, _)| is_known(name));
    let Ok(program) = std::env::current_exe() else {
        keep_none();
        return Ok(());
    };
    let why = Command::new(program)
        .arg0(name)
        .args(arguments)
        .env_clear()
        .envs(known)
        .exec();
    Err(format!(
        "cannot start again without the variables of its environment: {why}; run it as: env -i \
            TERM=$TERM kvmtop"
    ))
}

fn is_known(name: &OsStr) -> bool {
    name.to_str()
        .is_some_and(|name| KNOWN.contains(&name) || name.starts_with("LC_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_chooses_code_or_files_is_not_known() {
        for name in [
            "LD_LIBRARY_PATH",
            "LD_PRELOAD",
            "LD_AUDIT",
            "GCONV_PATH",
            "GIO_MODULE_DIR",
            "GIO_EXTRA_MODULES",
            "LIBVIRT_DEBUG",
            "LIBVIRT_LOG_OUTPUTS",
            "LIBVIRT_AUTOSTART",
            "LOCPATH",
            "NLSPATH",
            "OPENSSL_CONF",
            "SASL_PATH",
            "KRB5_CONFIG",
            "GLIBC_TUNABLES",
            "MALLOC_CHECK_",
            "P11_KIT_STRICT",
            "XDG_DATA_DIRS",
            "",
        ] {
            assert!(!is_known(OsStr::new(name)), "{name}");
        }
        assert!(
            ["TERM", "LC_ALL", "HOME", "LIBVIRT_DEFAULT_URI"]
                .iter()
                .all(|name| is_known(OsStr::new(name)))
        );
    }
}
