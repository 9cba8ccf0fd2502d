//! The prose of the rules about disks.

use super::setup::DiskSetup;
use crate::figures::duration;
use crate::model::DiskRates;
use sample::Submitter;

pub(super) const NOT_TIMED: &str =
    "the host's block devices are not timed: kvmtop --engine-detail disks, or the Disks view";

/// The window of a disk's figures.
pub(super) const WINDOW: &str = "between the last two readings";

pub(super) fn latencies(disk: &DiskRates) -> String {
    let times = [("read", disk.read_mean_us), ("write", disk.write_mean_us), ("flush", disk.flush_mean_us)];
    let known = times.into_iter().filter_map(|(what, us)| Some(format!("a {what} takes {}", duration(us?))));
    let known = known.collect::<Vec<_>>().join(", ");
    if known.is_empty() { "no request's time is known".into() } else { format!("{known} on average in QEMU and below") }
}

pub(super) fn configured(disk: &str, setup: &DiskSetup) -> String {
    let word = |known: &Option<String>| known.clone().unwrap_or_else(|| "default".into());
    let thread = if setup.iothread { "an IOThread" } else { "no IOThread" };
    format!("disk {disk}: cache {}, aio {}, {thread}", word(&setup.cache), word(&setup.aio))
}

pub(super) fn submitter(who: Submitter) -> &'static str {
    match who {
        Submitter::Main => "the VMM's main thread",
        Submitter::Iothread => "IOThreads",
        Submitter::Pool => "QEMU's thread pool",
        Submitter::IoUring => "workers of io_uring",
        Submitter::Vhost => "vhost threads",
        Submitter::Vcpu => "vCPU threads",
        Submitter::Other => "other threads of the VMM",
    }
}

// Fixes.
pub(super) const GIVE_IOTHREAD: &str = "Give the disk an IOThread (<iothreads> and <driver iothread=> in the domain's \
    XML): then it does not wait for what else the main loop does";
pub(super) const USE_DIRECT: &str = "Use cache='none' with io='native' or io='io_uring' for the disk: then no pool of \
    threads and no page cache stand between";
pub(super) const LOOK_AT_THREADS: &str = "Look at the threads of the guest: whether the one that serves the disk waits \
    for a CPU, or uses all of one";
pub(super) const LOOK_AT_STORAGE: &str = "Look at what else uses the device on this host, at limits of the guest's \
    cgroup (io.max), and at the health of the device or of the storage behind it";
pub(super) const LIMIT_NEED: &str = "takes effect at once and is kept; the guest may then use as much of the storage \
    as it wants";

pub(super) const USE_VIRTIO: &str = "Change the disk to virtio: an IDE disk takes one request at a time. First install \
    the virtio drivers in the guest";
pub(super) const FEWER_REQUESTS: &str = "Faster storage, or less load: a longer queue only moves the wait. Where the \
    storage is faster than a single queue, give the disk more of them";
pub(super) const FLUSH_LESS: &str = "In the guest, commit in larger batches (a database's group commit), or put the \
    journal on a disk of its own";
pub(super) const FLUSH_FASTER: &str = "On the host, storage with a protected write cache makes a flush cheap, and a \
    raw volume saves the file system's own journal";
pub(super) const MEND_STORAGE: &str = "Look at the host's log for the device's errors and at the free space of the \
    image's file system, and mend the storage before the guest writes more";
