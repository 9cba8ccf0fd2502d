//! The prose of the rules about disks.

use crate::figures::{duration, figure, or_unknown};
use crate::lint::engine::prose::Prose;
use crate::model::DiskRates;

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

pub(super) fn flushing(disk: &str, percent: f64, ops: f64, us: f64) -> String {
    let (percent, ops, us) = (figure(percent), figure(ops), duration(us));
    format!("disk {disk}: a flush is under way for {percent} % of the time: {ops} flushes/s of {us}, {WINDOW}")
}

pub(super) fn failing(disk: &str, per_second: f64) -> String {
    format!("disk {disk}: {} failed requests/s {WINDOW}", figure(per_second))
}

// Fixes.
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
