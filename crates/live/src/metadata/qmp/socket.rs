//! Connects to the monitor that a guest's command line names.
//!
//! Any user may run a process that holds a KVM VM and has any command line. So the path is opened as that process
//! could open it: below its root folder, in its mount namespace, with its user's rights; and only the process itself
//! may listen there.

use super::act_as::{act_as, listener};
use crate::proc::credentials::ProcessCredentials;
use crate::proc::file;
use crate::proc::stat::Stat;
use kvm::sanitize;
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, open, openat, openat2};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// A guest's monitor socket, as its command line names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct QmpSocket {
    /// The guest's process.
    pub pid: i32,
    /// Its start, clock ticks after boot.
    pub start_ticks: u64,
    /// The path as the process wrote it.
    pub path: PathBuf,
}

impl QmpSocket {
    /// The path for messages.
    pub(super) fn name(&self) -> String {
        sanitize(&self.path.to_string_lossy(), 256)
    }

    /// Connects, without waiting for the listener. From then on the calling thread acts as the guest's user.
    ///
    /// # Errors
    /// A sentence without the path.
    pub(super) fn connect(&self) -> Result<UnixStream, String> {
        let folder = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let process = open(format!("/proc/{}", self.pid), folder, Mode::empty()).map_err(|e| e.to_string())?;
        let user = self.user(&process)?;
        // A relative path leads down from the working folder, an absolute one stays below the root folder.
        let (base, resolve) =
            if self.path.is_absolute() { ("root", ResolveFlags::IN_ROOT) } else { ("cwd", ResolveFlags::BENEATH) };
        let base = openat(&process, base, folder, Mode::empty())
            .map_err(|e| format!("the guest's {base} folder: {e}; {}", rights::hint()))?;
        // It may have become another user's program in between.
        if self.user(&process)? != user {
            return Err("the guest's process changed its user".into());
        }
        act_as(&user).map_err(|e| format!("kvmtop cannot act as user {}: {e}; run kvmtop as root", user.uid))?;
        let how = OFlags::PATH | OFlags::CLOEXEC;
        let file = openat2(&base, &self.path, how, Mode::empty(), resolve | ResolveFlags::NO_MAGICLINKS)
            .map_err(|e| as_user(e, user.uid))?;
        let socket = connect_to(&file, user.uid)?;
        let listener = listener(socket.as_fd()).map_err(|e| e.to_string())?;
        if listener != self.pid {
            return Err(match listener {
                0 => "a process outside of kvmtop's PID namespace listens there, not the guest".into(),
                pid => format!("process {pid} listens there, not the guest's process {}", self.pid),
            });
        }
        rustix::io::ioctl_fionbio(&socket, false).map_err(|e| e.to_string())?;
        Ok(UnixStream::from(socket))
    }

    /// The user of the process.
    fn user(&self, process: &OwnedFd) -> Result<ProcessCredentials, String> {
        let read = |name: &str, max: usize| file::read_bytes_at(process, name, max);
        let gone = || "the guest's process ended".to_owned();
        let stat = read("stat", 4096).map_err(|_| gone())?;
        if Stat::parse(&stat).is_none_or(|s| s.start_ticks != self.start_ticks) {
            return Err(gone());
        }
        let status = read("status", ProcessCredentials::MAX_STATUS).map_err(|_| gone())?;
        ProcessCredentials::parse(&status)
            .ok_or_else(|| "the guest's process acts as another user than the one that started it".into())
    }
}

fn connect_to(file: &OwnedFd, uid: u32) -> Result<OwnedFd, String> {
    let kind = fstat(file).map(|s| FileType::from_raw_mode(s.st_mode)).map_err(|e| e.to_string())?;
    if kind != FileType::Socket {
        return Err("is no socket".into());
    }
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(|e| e.to_string())?;
    // By its descriptor: the path may lead elsewhere by now, and `sun_path` takes 107 bytes only.
    let address = SocketAddrUnix::new(Path::new("/proc/self/fd").join(file.as_raw_fd().to_string()));
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
