//! The prose of the rules about disks.

use super::setup::DiskSetup;
use crate::figures::{duration, figure, or_unknown};
use crate::lint::engine::prose::Prose;
use crate::model::{DiskRates, HostDiskModel};
use sample::Submitter;

pub(super) const THROTTLED: Prose = Prose {
    title: "A limit holds the guest's disk back",
    why: "QEMU lets no more through than the limit of the disk allows. What the guest wants beyond that waits in \
        QEMU, however idle the host's storage is, and the guest sees it as latency",
};
pub(super) const QUEUE: Prose = Prose {
    title: "The queue of the guest's disk is full",
    why: "A bus takes a fixed number of requests at once. When all places are taken, further requests wait inside the \
        guest, where no figure of the host shows them",
};
pub(super) const FLUSHES: Prose = Prose {
    title: "Flushes take most of the time of the guest's disk",
    why: "With a flush the guest asks that all it wrote so far be on the medium: QEMU waits for fdatasync of the \
        image, and the program in the guest waits for QEMU. Databases and journals flush at each commit",
};
pub(super) const ERRORS: Prose = Prose {
    title: "Requests of the guest's disk fail on the host",
    why: "QEMU got an error for a request to the image or the device behind the disk. By its error policy it passes \
        the error on to the guest or stops the guest; most file systems then become read-only",
};

pub(super) const LATENCY: Prose = Prose {
    title: "The guest waits for its disks outside the host's storage",
    why: "Between the guest's request and the host's block device stands QEMU: the thread that takes the request (the \
        main loop, or an IOThread) has to get a CPU and be free, and the page cache or the pool of threads may lie \
        between. Faster storage would change nothing",
};
pub(super) const STORAGE: Prose = Prose {
    title: "The host's storage is slow for the guest",
    why: "The time passes in the host's block layer and device: the device is slow, other guests and programs keep it \
        busy, or its requests are held back. QEMU can only wait",
};

pub(super) const NOT_TIMED: &str =
    "the host's block devices are not timed: kvmtop --engine-detail disks, or the Disks view";
pub(super) const NO_TIMES: &str = "the VMM gives no times of its disks' requests";

/// The window of a disk's figures.
const WINDOW: &str = "between the last two readings";

pub(super) fn at_limit(disk: &str, limit: &str, now: f64, most: f64, percent: f64) -> String {
    let unit = if limit.contains("bytes") { "B/s" } else { "op/s" };
    let (now, most, percent) = (figure(now), figure(most), figure(percent));
    format!("disk {disk}: {now} {unit} of at most {most} ({limit}), {percent} % of the limit, {WINDOW}")
}

pub(super) fn in_flight(disk: &DiskRates) -> String {
    let depth = or_unknown(disk.queue_depth, figure);
    format!("{depth} requests under way on average; {}", latencies(disk))
}

pub(super) fn latencies(disk: &DiskRates) -> String {
    let times = [("read", disk.read_mean_us), ("write", disk.write_mean_us), ("flush", disk.flush_mean_us)];
    let known = times.into_iter().filter_map(|(what, us)| Some(format!("a {what} takes {}", duration(us?))));
    let known = known.collect::<Vec<_>>().join(", ");
    if known.is_empty() { "no request's time is known".into() } else { format!("{known} on average in QEMU and below") }
}

pub(super) fn full_queue(disk: &DiskRates, percent: f64, slots: f64) -> String {
    format!(
        "disk {}: {} requests under way on average, {} % of the {} that its bus takes, {WINDOW}",
        disk.name,
        or_unknown(disk.queue_depth, figure),
        figure(percent),
        figure(slots)
    )
}

pub(super) fn outside(guest_us: f64, host_us: f64, percent: f64) -> String {
    let (guest_us, host_us, percent) = (duration(guest_us), duration(host_us), figure(percent));
    format!(
        "the guest waits {guest_us} for a read or write, the host's block devices take {host_us} of it: {percent} % \
         is spent outside them"
    )
}

pub(super) fn device(disk: &HostDiskModel) -> String {
    let (total, inside) = disk.mean_us();
    let alias = disk.alias.as_ref().map(|alias| format!(" ({alias})")).unwrap_or_default();
    let inside = inside.map(|us| format!(", {} of it in the device", duration(us))).unwrap_or_default();
    format!(
        "{}{alias}: {} on average for {} reads and writes/s{inside}; 99 % within {}",
        disk.name,
        or_unknown(total, duration),
        figure(disk.ops()),
        or_unknown(disk.p99_us(), duration)
    )
}

pub(super) fn submitted(who: Submitter, percent: f64) -> String {
    let by = match who {
        Submitter::Main => "the VMM's main thread",
        Submitter::Iothread => "IOThreads",
        Submitter::Pool => "QEMU's thread pool",
        Submitter::IoUring => "workers of io_uring",
        Submitter::Vhost => "vhost threads",
        Submitter::Vcpu => "vCPU threads",
        Submitter::Other => "other threads of the VMM",
    };
    format!("{} % of the requests were submitted by {by}", figure(percent))
}

pub(super) fn busy(main: f64) -> String {
    format!("the VMM's main thread uses {} % of a CPU", figure(main))
}

pub(super) fn configured(disk: &str, setup: &DiskSetup) -> String {
    let word = |known: &Option<String>| known.clone().unwrap_or_else(|| "default".into());
    let thread = if setup.iothread { "an IOThread" } else { "no IOThread" };
    format!("disk {disk}: cache {}, aio {}, {thread}", word(&setup.cache), word(&setup.aio))
}

pub(super) fn flushing(disk: &str, percent: f64, ops: f64, us: f64) -> String {
    let (percent, ops, us) = (figure(percent), figure(ops), duration(us));
    format!("disk {disk}: a flush is under way for {percent} % of the time: {ops} flushes/s of {us}, {WINDOW}")
}

pub(super) fn failing(disk: &str, per_second: f64) -> String {
    format!("disk {disk}: {} failed requests/s {WINDOW}", figure(per_second))
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

pub(super) fn raise_throttling(disk: &str) -> String {
    format!(
        "Raise or remove the throttling options of the drive {disk}; the monitor's block_set_io_throttle changes them \
         while the guest runs"
    )
}

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
