//! The open files of a process, from /proc/PID/fd.

use super::file::{self, FileError};
use super::paths::SystemPaths;
use super::stat::number;
use std::collections::{BTreeMap, BTreeSet};

/// At most this many open files are looked at.
const MAX_FILES: usize = 65_536;

/// The open files by which a process shows that it is a guest, and what belongs to it. The names of
/// KVM's anonymous inodes are in `virt/kvm/kvm_main.c`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct KvmFiles {
    /// Number of open files of any kind.
    pub open: usize,
    /// Whether the process holds a VM: `anon_inode:kvm-vm`.
    pub vm: bool,
    /// Whether the process holds `/dev/kvm` and may create a VM soon.
    pub dev_kvm: bool,
    /// The numbers of its vCPUs, each once: `anon_inode:kvm-vcpu:N`.
    pub vcpus: BTreeSet<u32>,
    /// vCPU number by descriptor: `anon_inode:kvm-vcpu-stats:N`.
    pub vcpu_stats: BTreeMap<i32, u32>,
    /// Descriptors of `/dev/net/tun`: queues of tap devices.
    pub taps: BTreeSet<i32>,
}

impl KvmFiles {
    /// Looks at every open file of the process. `Denied` also where the list can be read but not
    /// the name of some file (root without `CAP_SYS_PTRACE`: fs/proc/base.c,
    /// `proc_fd_access_allowed`), unless another file is a VM.
    pub fn read(paths: &SystemPaths, pid: i32) -> Result<Self, FileError> {
        let dir = file::open_dir(&paths.process(pid, "fd"))?;
        let mut found = Self::default();
        let mut numbers = Vec::new();
        file::list_numbers(&dir, |fd, _| numbers.push(fd))?;
        numbers.truncate(MAX_FILES);
        found.open = numbers.len();
        let mut buf = [0_u8; 64];
        let mut denied = false;
        for fd in numbers {
            // A name is cut at the buffer's length, which no KVM file reaches.
            match rustix::fs::readlinkat_raw(&dir, fd.to_string(), &mut buf[..]) {
                Ok(length) => found.note_file(fd, &buf[..length]),
                Err(e) => denied |= FileError::from(e) == FileError::Denied,
            }
        }
        if denied && !found.vm {
            Err(FileError::Denied)
        } else {
            Ok(found)
        }
    }

    /// Notes what a file is, by the target of its link in /proc/PID/fd.
    fn note_file(&mut self, fd: i32, target: &[u8]) {
        let name = target.strip_prefix(b"anon_inode:").unwrap_or_default();
        let name = name
            .strip_prefix(b"[")
            .and_then(|n| n.strip_suffix(b"]"))
            .unwrap_or(name);
        match (target, name) {
            (b"/dev/kvm", _) => self.dev_kvm = true,
            (b"/dev/net/tun", _) => drop(self.taps.insert(fd)),
            (_, b"kvm-vm") => self.vm = true,
            _ => {
                self.vcpus.extend(index_after(name, b"kvm-vcpu:"));
                let stats = index_after(name, b"kvm-vcpu-stats:");
                self.vcpu_stats.extend(stats.map(|vcpu| (fd, vcpu)));
            }
        }
    }
}

fn index_after(name: &[u8], prefix: &[u8]) -> Option<u32> {
    number(name.strip_prefix(prefix)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn kvm_files_are_distinguished_from_others() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("proc/7/fd");
        std::fs::create_dir_all(&dir).unwrap();
        for (fd, target) in [
            (0, "/dev/null"),
            (3, "/dev/kvm"),
            (4, "anon_inode:kvm-vm"),
            (5, "anon_inode:kvm-vcpu:0"),
            (6, "anon_inode:kvm-vcpu:11"),
            (7, "anon_inode:kvm-vcpu-stats:11"),
            (8, "anon_inode:kvm-vm-stats"),
            (9, "anon_inode:[eventfd]"),
            (10, "anon_inode:kvm-vcpu:x"),
            (11, "socket:[1234]"),
            (14, "/dev/net/tun"),
            (13, "anon_inode:kvm-vcpu:11"),
        ] {
            symlink(target, dir.join(fd.to_string())).unwrap();
        }
        symlink("x".repeat(300), dir.join("12")).unwrap();
        let files = KvmFiles::read(&SystemPaths::under(root.path()), 7).unwrap();
        let expected = KvmFiles {
            open: 13,
            vm: true,
            dev_kvm: true,
            vcpus: [0, 11].into(),
            vcpu_stats: [(7, 11)].into(),
            taps: [14].into(),
        };
        assert_eq!(files, expected);
        assert_eq!(
            KvmFiles::read(&SystemPaths::under(root.path()), 8),
            Err(FileError::Gone)
        );
    }
}
