//! Connects to the monitor that a guest's command line names.
//!
//! Any user may run a process that holds a KVM VM and has any command line. So the path is opened
//! as that process could open it: below its root folder, in its mount namespace, with its user's
//! rights; and only the process itself may listen there.
#![allow(
    unsafe_code,
    reason = "setfsuid(2), setfsgid(2), and SO_PEERCRED, which rustix reads as a PID that is never \
        0"
)]

use crate::proc::file;
use crate::proc::stat::Stat;
use kvm::sanitize;
use procfs::FromRead as _;
use procfs::process::Status;
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, open, openat, openat2};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::thread::{CapabilitySet, Gid, set_thread_groups};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// A guest's monitor socket, as its command line names it.
#[derive(Debug)]
pub(super) struct QmpSocket {
    /// The guest's process.
    pub pid: i32,
    /// The start of the process, clock ticks after boot.
    pub start_ticks: u64,
    /// The path as the process wrote it.
    pub path: PathBuf,
}

impl QmpSocket {
    /// The path for messages.
    pub fn name(&self) -> String {
        sanitize(&self.path.to_string_lossy(), 256)
    }

    /// Connects, without waiting for the listener. From then on the calling thread acts as the
    /// guest's user.
    ///
    /// # Errors
    /// A sentence without the path.
    pub fn connect(&self) -> Result<UnixStream, String> {
        let folder = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let process = open(format!("/proc/{}", self.pid), folder, Mode::empty())
            .map_err(|e| e.to_string())?;
        let user = self.user(&process)?;
        // A relative path leads down from the working folder, an absolute one stays below the root
        // folder.
        let (base, resolve) = if self.path.is_absolute() {
            ("root", ResolveFlags::IN_ROOT)
        } else {
            ("cwd", ResolveFlags::BENEATH)
        };
        let base = openat(&process, base, folder, Mode::empty())
            .map_err(|e| format!("the guest's {base} folder: {e}; {}", rights::hint()))?;
        // The process may have become another user's program in between.
        if self.user(&process)? != user {
            return Err("the guest's process changed its user".into());
        }
        act_as(&user).map_err(|e| {
            format!(
                "kvmtop cannot act as user {}: {e}; run kvmtop as root",
                user.uid
            )
        })?;
        let how = OFlags::PATH | OFlags::CLOEXEC;
        let file = openat2(
            &base,
            &self.path,
            how,
            Mode::empty(),
            resolve | ResolveFlags::NO_MAGICLINKS,
        )
        .map_err(|e| as_user(e, user.uid))?;
        let socket = connect_to(&file, user.uid)?;
        let listener = listener(&socket)?;
        if listener != self.pid {
            return Err(match listener {
                0 => "a process outside of kvmtop's PID namespace listens there, not the guest"
                    .into(),
                pid => format!(
                    "process {pid} listens there, not the guest's process {}",
                    self.pid
                ),
            });
        }
        rustix::io::ioctl_fionbio(&socket, false).map_err(|e| e.to_string())?;
        Ok(UnixStream::from(socket))
    }

    /// The user of the process.
    fn user(&self, process: &OwnedFd) -> Result<ProcessCredentials, String> {
        const ENDED: &str = "the guest's process ended";
        let stat = file::read_bytes_at(process, "stat", 4096).map_err(|_| ENDED)?;
        if Stat::parse(&stat).is_none_or(|s| s.start_ticks != self.start_ticks) {
            return Err(ENDED.into());
        }
        let status = file::read_bytes_at(process, "status", file::MAX_STATUS).map_err(|_| ENDED)?;
        let status =
            Status::from_read(String::from_utf8_lossy(&status).as_bytes()).map_err(|_| ENDED)?;
        ProcessCredentials::new(status).ok_or_else(|| {
            "the guest's process acts as another user than the one that started it".into()
        })
    }
}

fn connect_to(file: &OwnedFd, uid: u32) -> Result<OwnedFd, String> {
    let kind = fstat(file)
        .map(|s| FileType::from_raw_mode(s.st_mode))
        .map_err(|e| e.to_string())?;
    if kind != FileType::Socket {
        return Err("is no socket".into());
    }
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
        .map_err(|e| e.to_string())?;
    // The file is named by its descriptor: its path may lead elsewhere by now, and `sun_path` takes
    // 107 bytes only.
    let address =
        SocketAddrUnix::new(Path::new("/proc/self/fd").join(file.as_raw_fd().to_string()));
    match address.and_then(|a| connect(&socket, &a)) {
        Ok(()) => Ok(socket),
        Err(Errno::AGAIN) => Err("the monitor is busy: its queue of clients is full".into()),
        Err(e) => Err(as_user(e, uid)),
    }
}

fn as_user(e: Errno, uid: u32) -> String {
    match e {
        Errno::NOSYS => "needs openat2(2) (Linux 5.6)".into(),
        e => format!("{e}, as user {uid}"),
    }
}

/// Lets the calling thread, for the rest of its life, open files as this user could and no others.
///
/// Only the ids for file access change (capabilities(7), "Effect of user ID changes"): if the other
/// ids changed as well, the user could send signals to kvmtop. The kernel keeps the ids of each
/// thread.
///
/// # Errors
/// If kvmtop may not act as this user.
fn act_as(user: &ProcessCredentials) -> Result<(), Errno> {
    let is_own_user = rustix::process::geteuid().as_raw() == user.uid;
    let groups: Vec<Gid> = user.groups.iter().map(|g| Gid::from_raw(*g)).collect();
    match set_thread_groups(&groups) {
        Ok(()) => {}
        // Without the right to change groups, kvmtop's groups stay: they do for a guest of kvmtop's
        // own user.
        Err(Errno::PERM) if is_own_user => {}
        Err(e) => return Err(e),
    }
    // SAFETY: both calls take and return a number; they change the calling thread only.
    let [uid_now, gid_now] = unsafe {
        libc::setfsgid(user.gid);
        libc::setfsuid(user.uid);
        // No user has this id, so that the call changes nothing and returns the present one
        // (setfsuid(2), "BUGS").
        [libc::setfsuid(u32::MAX), libc::setfsgid(u32::MAX)].map(i32::cast_unsigned)
    };
    if uid_now != user.uid || (gid_now != user.gid && !is_own_user) {
        return Err(Errno::PERM);
    }
    rights::keep(CapabilitySet::empty())
}

/// The process that called listen(2) on the socket at the other end (unix(7), `SO_PEERCRED`); 0 if
/// it is not in kvmtop's PID namespace.
fn listener(socket: &OwnedFd) -> Result<i32, String> {
    let mut peer = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    let fd = socket.as_raw_fd();
    let peer_at = (&raw mut peer).cast();
    // SAFETY: the buffer is a `ucred`, and `length` is its size.
    match unsafe {
        libc::getsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            peer_at,
            &raw mut length,
        )
    } {
        0 => Ok(peer.pid),
        _ => Err(std::io::Error::last_os_error().to_string()),
    }
}

/// The user and the groups as which a process opens files.
#[derive(Debug, PartialEq, Eq)]
struct ProcessCredentials {
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
}

impl ProcessCredentials {
    /// `None` if real, effective, saved and file-system ids differ: one user started such a
    /// process, and it acts as another.
    fn new(process: Status) -> Option<Self> {
        let is_one_user = [process.euid, process.suid, process.fuid] == [process.ruid; 3];
        let is_one_group = [process.egid, process.sgid, process.fgid] == [process.rgid; 3];
        if is_one_user && is_one_group {
            Some(Self {
                uid: process.ruid,
                gid: process.rgid,
                groups: process.groups,
            })
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::fake_proc::status;

    #[test]
    fn only_a_process_of_one_user_has_an_identity() {
        let user = |uid: &str, gid: &str| {
            let text = status(&[("Uid", uid), ("Gid", gid), ("Groups", "36 107 ")]);
            ProcessCredentials::new(Status::from_read(text.as_bytes()).ok()?)
        };
        let plain = Some(ProcessCredentials {
            uid: 107,
            gid: 36,
            groups: vec![36, 107],
        });
        assert_eq!(user("107\t107\t107\t107", "36\t36\t36\t36"), plain);
        // A program that is set-user-id takes its arguments from whoever starts it.
        assert_eq!(user("1000\t0\t0\t0", "36\t36\t36\t36"), None);
        assert_eq!(user("1000\t1000\t0\t1000", "36\t36\t36\t36"), None);
        assert_eq!(user("107\t107\t107\t107", "36\t0\t36\t36"), None);
        assert_eq!(user("107", "36\t36\t36\t36"), None);
    }
}
