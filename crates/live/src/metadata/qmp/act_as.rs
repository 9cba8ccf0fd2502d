//! A thread that acts as the user of a guest's process, and the process that listens on a socket.
#![allow(
    unsafe_code,
    reason = "setfsuid(2), setfsgid(2), and SO_PEERCRED, which rustix reads as a PID that is never 0"
)]

use crate::proc::credentials::ProcessCredentials;
use rights::keep;
use rustix::io::Errno;
use rustix::thread::{CapabilitySet, Gid, set_thread_groups};
use std::os::fd::{AsRawFd, BorrowedFd};

/// Lets the calling thread, for the rest of its life, open files as this user could and no others.
///
/// Only the ids for file access change (capabilities(7), "Effect of user ID changes"): with the others the user could
/// send signals to kvmtop. The kernel keeps all of them per thread.
///
/// # Errors
/// If kvmtop may not act as this user.
pub(super) fn act_as(user: &ProcessCredentials) -> Result<(), Errno> {
    let own = rustix::process::geteuid().as_raw() == user.uid;
    let groups: Vec<Gid> = user.groups.iter().map(|g| Gid::from_raw(*g)).collect();
    match set_thread_groups(&groups) {
        Ok(()) => {}
        // Without the right to change groups, a guest of kvmtop's own user is met with kvmtop's groups.
        Err(Errno::PERM) if own => {}
        Err(e) => return Err(e),
    }
    // SAFETY: both calls take and return a number; they change the calling thread only.
    let now = unsafe {
        libc::setfsgid(user.gid);
        libc::setfsuid(user.uid);
        // No user has this id, so that the call changes nothing and returns the present one (setfsuid(2), "BUGS").
        (libc::setfsuid(u32::MAX).cast_unsigned(), libc::setfsgid(u32::MAX).cast_unsigned())
    };
    if now.0 != user.uid || (now.1 != user.gid && !own) {
        return Err(Errno::PERM);
    }
    keep(CapabilitySet::empty())
}

/// The process that called listen(2) on the socket at the other end (unix(7), `SO_PEERCRED`); 0 if it is not in
/// kvmtop's PID namespace.
pub(super) fn listener(socket: BorrowedFd<'_>) -> Result<i32, Errno> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the buffer is a `ucred`, and `length` is its size.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut length,
        )
    };
    if result == 0 {
        Ok(peer.pid)
    } else {
        Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
    }
}
