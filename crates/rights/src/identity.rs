//! Gives up root's identity: without any capability, user 0 may still write `/etc` and read
//! `/etc/shadow`.

use super::keep;
use rustix::io::Errno;
use rustix::process::geteuid;
use rustix::thread::{
    CapabilitySet, Gid, Uid, set_keep_capabilities, set_thread_groups, set_thread_res_gid,
    set_thread_res_uid,
};
use std::sync::atomic::{AtomicBool, Ordering};

/// A user and a group without files or other processes: Debian reserves this id (Debian Policy,
/// 9.2.2), and systemd leaves it free (docs/UIDS-GIDS.md). Processes of `nobody` could send kvmtop
/// signals.
pub const NO_ACCOUNT: u32 = 65_533;

/// Whether kvmtop has given up root's identity.
static WAS_ROOT: AtomicBool = AtomicBool::new(false);

/// The user who started kvmtop.
pub fn own_user() -> u32 {
    if WAS_ROOT.load(Ordering::Relaxed) {
        0
    } else {
        geteuid().as_raw()
    }
}

/// Lets the calling thread, and the threads that it starts from then on, continue as a user who
/// owns nothing if it is root. Keeps these capabilities, as far as the thread has them, and gives
/// up all others.
///
/// # Errors
/// The kernel's, where a security module refuses it.
pub fn give_up_root(kept: CapabilitySet) -> Result<(), Errno> {
    // Root of a container may be forbidden to change its user, or lack another one: it stays what
    // it is.
    if geteuid().is_root() && become_nobody().is_ok() {
        WAS_ROOT.store(true, Ordering::Relaxed);
    }
    keep(kept)
}

fn become_nobody() -> Result<(), Errno> {
    let user = Uid::from_raw(NO_ACCOUNT);
    let group = Gid::from_raw(NO_ACCOUNT);
    set_keep_capabilities(true)?;
    set_thread_groups(&[])?;
    set_thread_res_gid(group, group, group)?;
    set_thread_res_uid(user, user, user)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::thread::capabilities;
    use std::io::ErrorKind;

    #[test]
    fn a_thread_without_roots_identity_has_its_capabilities_and_no_files() {
        if !geteuid().is_root() {
            return eprintln!(
                "SKIPPED a_thread_without_roots_identity_has_its_capabilities_and_no_files: not \
                root"
            );
        }
        let dir = tempfile::tempdir().unwrap();
        let (of_root, path) = (dir.path().join("file"), dir.path().to_owned());
        std::fs::write(&of_root, "x").unwrap();
        // On a separate thread: what it loses is lost.
        let lowered = std::thread::spawn(move || {
            let had = capabilities(None).unwrap().permitted;
            give_up_root(CapabilitySet::DAC_READ_SEARCH | CapabilitySet::SYS_PTRACE).unwrap();
            let now = capabilities(None).unwrap();
            assert_eq!(
                now.effective,
                had & (CapabilitySet::DAC_READ_SEARCH | CapabilitySet::SYS_PTRACE)
            );
            assert_eq!(
                (now.permitted, now.inheritable),
                (now.effective, CapabilitySet::empty())
            );
            assert_eq!(std::fs::read(&of_root).unwrap(), b"x");
            keep(CapabilitySet::empty()).unwrap();
            for refused in [
                std::fs::write(&of_root, "y"),
                std::fs::write(path.join("new"), "y"),
            ] {
                assert_eq!(refused.unwrap_err().kind(), ErrorKind::PermissionDenied);
            }
            assert!(
                set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT).is_err(),
                "nothing comes back"
            );
            (own_user(), geteuid().as_raw())
        });
        assert_eq!(lowered.join().unwrap(), (0, NO_ACCOUNT));
        assert!(geteuid().is_root(), "other threads stay what they are");
    }
}
