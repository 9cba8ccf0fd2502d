//! Disks: what the VMM says about their requests, and where their time goes.

mod requests;
mod setup;
mod storage;

use crate::lint::facts::rule::Check::{Behaviour, Host, Setup};
use crate::lint::facts::{Hold, Rule, RuleDoc, RuleId, links, thresholds};

/// Disks are read every 5 s: what holds for 8 of 15 s was seen in two readings.
const TWO_READINGS: Hold = Hold::For(8.0, 15.0);

pub(in crate::lint) const RULES: &[Rule] = &[
    Rule::new(
        RuleId::DiskThrottled,
        Behaviour(requests::throttled),
        TWO_READINGS,
    )
    .described(RuleDoc {
        sees: "the guest's disk is at its iotune or throttling limit, or that is low",
        problem: "disk at its I/O limit",
        why: "QEMU lets no more through than the limit of the disk allows, however idle the host's \
            storage is",
        thresholds: thresholds![disks.throttled],
        limits: "Knows <iotune> and -drive's limits, not those of the monitor or of a throttle \
            group",
        fix: "virsh blkdeviotune on the host, at once",
        links: &[links::DISKS],
    }),
    Rule::new(RuleId::DiskQueue, Behaviour(requests::queue), TWO_READINGS).described(RuleDoc {
        sees: "the guest has as many requests under way as its disk's bus takes",
        problem: "disk queue is full",
        why: "A bus takes a fixed number of requests at once; further ones wait inside the guest, \
            unseen by the host",
        thresholds: thresholds![disks.queue_full, disks.queue_us],
        limits: "The depth is an average. A bus takes 1 request (IDE), 32 (SATA) or 128 (virtio, \
            SCSI)",
        fix: "The disk's bus in the domain's XML, or the storage",
        links: &[links::DISKS],
    }),
    Rule::new(
        RuleId::DiskFlushes,
        Behaviour(requests::flushes),
        TWO_READINGS,
    )
    .described(RuleDoc {
        sees: "flushes of the write cache take most of the time of the guest's disk",
        problem: "flushes keep the disk busy",
        why: "With a flush the guest asks that all it wrote so far be on the medium: QEMU waits \
            for fdatasync of the image, and the program in the guest waits for QEMU. Databases and \
            journals flush at each commit",
        thresholds: thresholds![disks.flush_time, disks.flushes],
        limits: "Several flushes at once count each. Writes with their own flush (FUA) count as \
            writes",
        fix: "The program in the guest that flushes, or the storage",
        links: &[links::DISKS],
    }),
    Rule::new(
        RuleId::DiskLatency,
        Behaviour(requests::latency),
        TWO_READINGS,
    )
    .described(RuleDoc {
        sees: "the guest waits much longer for its disks than the host's block devices take",
        problem: "QEMU delays disk requests",
        why: "Between the guest's request and the host's block device stands QEMU: the thread that \
            takes the request has to get a CPU and be free, and the page cache or a pool of \
            threads may lie between",
        thresholds: thresholds![disks.outside_us, disks.outside_percent, disks.timed_ops],
        limits: "Needs the host's block devices timed (--engine-detail disks, or the Storage \
            view). Requests that the page cache or the network answers reach no device. Silent \
            while a limit of the disk is reached",
        fix: "An IOThread, the cache mode or aio in the domain's XML",
        links: &[links::DISKS],
    }),
    Rule::new(
        RuleId::SlowStorage,
        Behaviour(requests::slow_storage),
        TWO_READINGS,
    )
    .described(RuleDoc {
        sees: "a block device of the host takes long for the guest's requests",
        problem: "host storage is slow",
        why: "The device is slow, others keep it busy, or its requests are held back. QEMU can \
            only wait",
        thresholds: thresholds![disks.storage_us, disks.timed_ops],
        limits: "On a running host it needs the block devices timed, as disk-latency does; files \
            are judged by the time that the VMM states, of which QEMU may be a part. Large \
            requests take long on a healthy device too",
        fix: "The host's storage, or what else uses it",
        links: &[links::DISKS],
    }),
    Rule::new(RuleId::DiskErrors, Host(requests::errors), Hold::EVENT).described(RuleDoc {
        sees: "requests of the guest's disk, or of a disk of the host in its log, fail",
        problem: "disk requests fail",
        why: "QEMU got an error for a request, and passes it on to the guest or stops the guest",
        thresholds: &[],
        limits: "Needs the guest's own QEMU monitor, because libvirt does not pass the counts on; \
            or, of the host's disks, the kernel's log",
        fix: "The host's storage",
        links: &[links::DISKS],
    }),
    Rule::new(RuleId::DiskSetup, Setup(setup::setup), TWO_READINGS).described(RuleDoc {
        sees: "a disk of the guest drops flushes, is attached to an emulated controller or takes a \
            detour through QEMU",
        problem: "disk is set up badly",
        why: "",
        thresholds: thresholds![disks.busy_ops, disks.busy_main],
        limits: "An info at most: cache=unsafe, IDE and SATA disks of PCs, aio=threads past the \
            page cache, a busy virtio disk without an IOThread. Not CD-ROMs, nor guests whose \
            system has no virtio drivers",
        fix: "The disk's bus or driver options, after virtio drivers are installed in the guest \
            and a power cycle",
        links: &[links::DISKS, links::IOTHREADS],
    }),
    Rule::new(RuleId::StorageFilling, Host(storage::filling), Hold::USUAL).described(RuleDoc {
        sees: "the storage of guests' disks is nearly full, or will be within a day",
        problem: "its storage fills up",
        why: "A disk with holes or in a growing format takes up room as the guest writes. When \
            none is left, QEMU stops the guest at its next write, and every other guest with such \
            a disk there",
        thresholds: thresholds![disks.storage_free, disks.storage_hours],
        limits: "File systems of files that QEMU has open, looked at every half minute; how fast \
            they fill is known after ten minutes. Not thin pools of LVM or Ceph",
        fix: "Room on the storage, or fstrim in the guests",
        links: &[links::DISKS],
    }),
    Rule::new(
        RuleId::IoPressureNotReal,
        Host(storage::false_pressure),
        TWO_READINGS,
    )
    .described(RuleDoc {
        sees: "the kernel counts I/O pressure while no disk does anything",
        problem: "I/O pressure is not real",
        why: "QEMU from 10.2 on waits for events in a ring of io_uring. The kernel counts a thread \
            that sleeps there as one that waits for a disk: io pressure and iowait are near 100 % \
            on an idle host",
        thresholds: thresholds![disks.false_pressure],
        limits: "Silent while a disk of the host is busy, and where the guests' disks are not \
            known. Storage that does not answer looks alike but for its threads in state D",
        fix: "Nothing: other programs' figures are wrong",
        links: &[links::PRESSURE],
    }),
    Rule::new(
        RuleId::HostDiskSlow,
        Host(storage::slow_host_disks),
        Hold::LONG,
    )
    .described(RuleDoc {
        sees: "requests of a disk of the host take long",
        problem: "host's disk is slow",
        why: "Every guest and task with data there waits as long for each request",
        thresholds: thresholds![disks.host_disk_us, disks.timed_ops],
        limits: "The time in the kernel and the device, means of an interval. Devices that stand \
            on others are left out",
        fix: "Who uses the disk, or the disk",
        links: &[links::DISKS],
    }),
];
