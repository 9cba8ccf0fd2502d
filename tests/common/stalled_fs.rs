//! A file system in user space (FUSE) that stops answering: its file [`FILE`] can be opened and
//! never be read, and any other name is never found. Any user may mount such a one (fusermount(1),
//! or a user namespace of his own).
#![allow(
    unsafe_code,
    dead_code,
    reason = "mount(2); each test uses a part of this"
)]

use std::ffi::CString;
use std::fs::File;
use std::io::{Error, Read, Result, Write};
use std::os::fd::AsRawFd;
use std::path::Path;

/// The name of its file.
pub const FILE: &str = "file";
/// Its length, bytes.
pub const LENGTH: u64 = 4096;

// include/uapi/linux/fuse.h: operations, the node of the root folder, sizes.
const LOOKUP: u32 = 1;
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const READ: u32 = 15;
const INIT: u32 = 26;
const ROOT: u64 = 1;
const IN_HEADER: usize = 40;
const ENOSYS: i32 = 38;

/// Mounts it on a folder in a mount namespace of this process's own. What is returned is for
/// [`serve`]. Who may be left waiting for it must not hold that: the kernel gives the file system
/// up only when nobody holds it any more.
pub fn mount(folder: &Path) -> Result<File> {
    let device = File::options().read(true).write(true).open("/dev/fuse")?;
    let options = format!(
        "fd={},rootmode=40000,user_id=0,group_id=0",
        device.as_raw_fd()
    );
    let (kind, folder) = (
        c"fuse",
        CString::new(folder.as_os_str().as_encoded_bytes())?,
    );
    let options = CString::new(options)?;
    let (none, private) = (c"none", libc::MS_REC | libc::MS_PRIVATE);
    // SAFETY: plain system calls with texts that end in NUL and live through them.
    let done = unsafe {
        libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(
                none.as_ptr(),
                c"/".as_ptr(),
                std::ptr::null(),
                private,
                std::ptr::null(),
            ) == 0
            && libc::mount(
                kind.as_ptr(),
                folder.as_ptr(),
                kind.as_ptr(),
                0,
                options.as_ptr().cast(),
            ) == 0
    };
    if done {
        Ok(device)
    } else {
        Err(Error::last_os_error())
    }
}

/// Answers, for as long as `goes_on`.
pub fn serve(mut device: File, goes_on: impl Fn() -> bool) {
    let mut request = vec![0_u8; 256 << 10];
    loop {
        let mut ready = libc::pollfd {
            fd: device.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one structure, which lives through the call.
        while unsafe { libc::poll(&raw mut ready, 1, 200) } == 0 {
            if !goes_on() {
                return;
            }
        }
        let Ok(n) = device.read(&mut request) else {
            return;
        };
        let Some(request) = request.get(..n).filter(|r| r.len() >= IN_HEADER) else {
            return;
        };
        let word =
            |at: usize| u32::from_ne_bytes(request[at..at + 4].try_into().expect("four bytes"));
        let long =
            |at: usize| u64::from_ne_bytes(request[at..at + 8].try_into().expect("eight bytes"));
        let (operation, unique, node) = (word(4), long(8), long(16));
        let answer = match operation {
            // Version 7.31, and no more than the kernel's defaults.
            INIT => Ok(words(&[7, 31, 0, 0, 0, 4096, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0])),
            LOOKUP if request[IN_HEADER..].strip_suffix(&[0]) == Some(FILE.as_bytes()) => {
                let head = [2_u64, 0, 1_000_000, 1_000_000, 0];
                Ok(head
                    .iter()
                    .flat_map(|n| n.to_ne_bytes())
                    .chain(attributes(2))
                    .collect())
            }
            GETATTR => Ok([1_000_000_u64, 0]
                .iter()
                .flat_map(|n| n.to_ne_bytes())
                .chain(attributes(node))
                .collect()),
            OPEN => Ok(words(&[0; 4])),
            READ | LOOKUP => continue,
            _ => Err(ENOSYS),
        };
        let (error, body) = answer.map_or_else(|e| (-e, Vec::new()), |body| (0, body));
        let mut reply = words(&[16 + body.len() as u32, error as u32]);
        reply.extend(unique.to_ne_bytes());
        reply.extend(body);
        // The question may have been taken back.
        let _ = device.write(&reply);
    }
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|n| n.to_ne_bytes()).collect()
}

/// `struct fuse_attr`.
fn attributes(node: u64) -> Vec<u8> {
    let (mode, size) = if node == ROOT {
        (0o040_755, 0)
    } else {
        (0o100_644, LENGTH)
    };
    let mut bytes: Vec<u8> = [node, size, 8, 0, 0, 0]
        .iter()
        .flat_map(|n| n.to_ne_bytes())
        .collect();
    bytes.extend(words(&[0, 0, 0, mode, 1, 0, 0, 0, 4096, 0]));
    bytes
}
