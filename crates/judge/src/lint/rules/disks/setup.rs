//! How a guest's disks are set up.

use crate::figures::figure;
use crate::lint::facts::{
    Confidence, Context, Finding, Fix, GuestContext, Prose, Severity, Verdicts, join,
};
use crate::lint::fixes;
use crate::model::{DiskConfig, GuestKind};

/// A way in which a disk can be set up badly. In its texts DISK is the disk's name, and ID the
/// guest's number in Proxmox.
struct Flaw {
    /// What shows it, if the disk has it.
    evidence: fn(&Context<'_>, &GuestContext<'_>, &DiskConfig<'_>) -> Option<String>,
    prose: Prose,
    /// What mends it: in libvirt's XML, on QEMU's command line, under Proxmox.
    fixes: [&'static str; 3],
}

const EMULATED: &str = "emulated disk controller";

/// The worst first.
static FLAWS: [Flaw; 5] = [
    Flaw {
        evidence: |_, _, disk| {
            if disk.cache == Some("unsafe") {
                Some("cache=unsafe".to_owned())
            } else {
                None
            }
        },
        prose: Prose {
            title: "The flushes of the disk DISK are ignored: a crash of the host can destroy its \
                file systems",
            problem: "disk ignores flushes",
            why: "cache=unsafe keeps what the guest writes in the host's page cache and drops its \
                flushes. After a crash or a power cut of the host writes are missing that the \
                guest took for done",
        },
        fixes: [
            "Remove cache='unsafe' from the <driver> of DISK",
            "Remove cache=unsafe, or cache.no-flush=on, from the -drive or -blockdev of DISK",
            "qm set ID --DISK \"$(qm config ID | sed -n 's/,cache=unsafe//; s/^DISK: //p')\"",
        ],
    },
    Flaw {
        evidence: |_, guest, disk| {
            if !disk.is_ata() || !takes_virtio(guest) {
                return None;
            }
            let bus = disk.bus?;
            Some(format!("on an emulated controller ({bus}: IDE or SATA)"))
        },
        prose: Prose {
            title: "The disk DISK is attached to an emulated IDE or SATA controller",
            problem: EMULATED,
            why: "For each request the vCPU stops at several registers of the controller until \
                QEMU has answered. A virtio disk passes many requests with one notification, and \
                an IOThread can serve it",
        },
        fixes: [
            "Make DISK a virtio disk: bus='virtio' in its <target> and no <address>",
            "Give DISK if=virtio in its -drive (in place of -hda), or the device virtio-blk-pci",
            "Detach DISK of guest ID (qm set --delete) and attach its volume again as a scsi disk \
                of virtio-scsi-single; then set the boot order",
        ],
    },
    Flaw {
        evidence: in_main_loop,
        prose: Prose {
            title: "The busy disk DISK has no IOThread: QEMU's main loop serves it",
            problem: "busy disk, no IOThread",
            why: "The main loop serves timers, the monitor and other devices as well, and each \
                waits for the rest",
        },
        fixes: [
            "Add <iothreads>1</iothreads>, and iothread='1' to the <driver> of DISK",
            "Add -object iothread,id=io1, and iothread=io1 to the -device of DISK",
            "qm set ID --DISK \"$(qm config ID | sed -n 's/^DISK: //p'),iothread=1\"",
        ],
    },
    Flaw {
        evidence: |_, _, disk| {
            let cache = disk
                .cache
                .filter(|cache| matches!(*cache, "directsync" | "writethrough"))?;
            Some(format!("cache={cache}"))
        },
        prose: Prose {
            title: "QEMU flushes the disk DISK after each write",
            problem: "disk flushed at each write",
            why: "With this cache mode a write is done when it is on the medium, whether the guest \
                asked for that or not. With cache=none or writeback the guest's own flushes keep \
                its data as safe",
        },
        fixes: [
            "Set cache='none' in the <driver> of DISK, if its guest's system sends flushes, as all \
                do since 2010",
            "Set cache=none in the -drive of DISK, if its guest's system sends flushes, as all do \
                since 2010",
            "qm set ID --DISK \"$(qm config ID | sed -n 's/,cache=[a-z]*//; s/^DISK: //p')\"",
        ],
    },
    Flaw {
        evidence: |_, _, disk| {
            let cache = disk
                .cache
                .filter(|cache| matches!(*cache, "none" | "directsync"))?;
            if disk.aio == Some("threads") && disk.on_block_device {
                Some(format!("aio=threads with cache={cache}, on a block device"))
            } else {
                None
            }
        },
        prose: Prose {
            title: "The disk DISK uses QEMU's pool of threads, though it bypasses the page cache",
            problem: "disk uses a thread pool",
            why: "With aio=threads QEMU hands each request to a thread of its pool and back. The \
                kernel takes requests for a block device that is opened past the page cache \
                directly, with aio=native or io_uring",
        },
        fixes: [
            "Set io='native' or io='io_uring' in the <driver> of DISK",
            "Set aio=native or aio=io_uring in the -drive of DISK",
            "qm set ID --DISK \"$(qm config ID | sed -n 's/,aio=threads//; s/^DISK: //p')\"",
        ],
    },
];

/// Whether the guest's system is one that has virtio drivers for disks.
fn takes_virtio(guest: &GuestContext<'_>) -> bool {
    guest.config.is_x86() && guest.kind.kind != GuestKind::Other && !fixes::hyperv::too_old(guest)
}

/// The requests of a virtio disk that keep the main loop busy. A SCSI disk's IOThread is that of
/// its controller.
fn in_main_loop(
    ctx: &Context<'_>,
    guest: &GuestContext<'_>,
    disk: &DiskConfig<'_>,
) -> Option<String> {
    let t = &ctx.thresholds().disks;
    if disk.iothread || !is_virtio(disk) {
        return None;
    }
    let mut disks = guest.domain.disks.iter();
    let rates = disks.find(|rates| rates.name == disk.name)?;
    let ops = rates.read_ops + rates.write_ops;
    let main = guest.domain.emulator()?.cpu?.busy();
    if ops < t.busy_ops || main < t.busy_main {
        return None;
    }
    Some(format!(
        "{} requests/s without an IOThread; the main thread uses {} % of a CPU",
        figure(ops),
        figure(main)
    ))
}

pub(super) fn setup(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let disks = DiskConfig::all(&guest.domain.facts);
    let mut evidence = Vec::new();
    let mut fix: Vec<Fix> = Vec::new();
    let mut worst = None;
    for flaw in &FLAWS {
        for disk in &disks {
            let Some(what) = (flaw.evidence)(ctx, guest, disk) else {
                continue;
            };
            worst.get_or_insert((flaw, disk));
            evidence.push(format!("disk {} of {}: {what}", disk.name, guest.name()));
            let needs = if flaw.prose.problem == EMULATED {
                fixes::virtio_needs(disks.iter().any(is_virtio))
            } else {
                fixes::POWER_CYCLE
            };
            join(&mut fix, vec![mended(guest, flaw, disk).needing(needs)]);
        }
    }
    let Some((flaw, disk)) = worst else { return };
    let found = Finding::new(Severity::Info, Confidence::High, evidence, fix).saying(flaw.prose);
    verdicts.find(Finding {
        title: found.title.replace("DISK", disk.name),
        comes_first: disk.cache == Some("unsafe"),
        ..found
    });
}

fn mended(guest: &GuestContext<'_>, flaw: &Flaw, disk: &DiskConfig<'_>) -> Fix {
    let [in_xml, by_hand, proxmox] = flaw.fixes.map(|text| text.replace("DISK", disk.name));
    if let Some(id) = guest.proxmox_id()
        && disk.name.bytes().all(|b| b.is_ascii_alphanumeric())
    {
        let text = proxmox.replace("ID", id);
        return if text.starts_with("qm ") {
            fixes::command(text)
        } else {
            fixes::advice(text)
        };
    }
    fixes::advice(if guest.config.libvirt == Some(false) {
        by_hand
    } else {
        in_xml
    })
}

fn is_virtio(disk: &DiskConfig<'_>) -> bool {
    disk.bus.is_some_and(|bus| bus.starts_with("virtio"))
}
