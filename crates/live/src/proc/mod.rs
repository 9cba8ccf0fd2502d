//! Reading /proc: files, processes, their threads and open files.

pub(crate) mod cgroup_mounts;
pub(crate) mod discovery;
pub(crate) mod fds;
pub(crate) mod file;
pub(crate) mod network_tables;
pub(crate) mod paths;
pub(crate) mod pressure;
pub(crate) mod read_context;
pub(crate) mod slow_files;
pub(crate) mod stat;
pub(crate) mod thread;
pub(crate) mod threads;
