//! How a guest's disks are set up.

use crate::figures::figure;
use crate::lint::facts::Context;
use crate::lint::facts::finding::{Confidence, Finding, Fix, Severity};
use crate::lint::facts::guest::GuestContext;
use crate::lint::facts::prose::Prose;
use crate::lint::facts::shell;
use crate::lint::facts::verdicts::Verdicts;
use crate::lint::fixes;
use crate::lint::fixes::VirtioDriver;
use crate::model::{DiskConfig, GuestKind, has_device};

/// A way in which a disk can be set up badly. In its texts DISK is the disk's name; in commands ID is the guest's
/// number in Proxmox, VOLUME what is behind the disk, NEW a free name on virtio, and DROP takes away what that has not;
/// IOTHREAD is a free id, and DEVICE the option of QEMU that takes it.
struct Flaw {
    /// What shows it, if the disk has it.
    evidence: fn(&Context<'_>, &GuestContext<'_>, &DiskConfig<'_>) -> Option<String>,
    prose: Prose,
    /// What mends it: in libvirt's XML, on QEMU's command line, under Proxmox.
    fixes: [&'static str; 3],
}

/// The worst first.
static FLAWS: [Flaw; 6] = [
    Flaw {
        evidence: |_, _, disk| (disk.cache == Some("unsafe")).then(|| "cache=unsafe".to_owned()),
        prose: Prose {
            title: "The flushes of the disk DISK are ignored: a crash of the host can destroy its file systems",
            problem: "disk ignores flushes",
            why: "cache=unsafe keeps what the guest writes in the host's page cache and drops its flushes. After a \
                crash or a power cut of the host writes are missing that the guest took for done",
        },
        fixes: [
            "Remove cache='unsafe' from the <driver> of DISK",
            "Remove cache=unsafe, or cache.no-flush=on, from the -drive or -blockdev of DISK",
            "qm set ID --DISK \"$(qm config ID | sed -n 's/,cache=unsafe//; s/^DISK: //p')\"",
        ],
    },
    Flaw {
        evidence: |_, guest, disk| {
            let bus = disk.bus.filter(|_| disk.is_ata() && takes_virtio(guest))?;
            // A q35 machine's own controller is an AHCI. An XML, which gives no file here, names the bus itself.
            let is_q35 = guest.config.machine.name.as_ref().is_some_and(|machine| machine.contains("q35"));
            let is_sata = is_q35 && !disk.file.is_empty() || bus == "sata" || disk.name.starts_with("sata");
            Some(format!("on an emulated controller ({})", if is_sata { "SATA" } else { "IDE" }))
        },
        prose: Prose {
            title: "The disk DISK hangs on an emulated IDE or SATA controller",
            problem: "emulated disk controller",
            why: "For each request the vCPU stops at several registers of the controller until QEMU has answered. A \
                virtio disk passes many requests with one notification, and an IOThread can serve it",
        },
        fixes: [
            "Make DISK a virtio disk: bus='virtio' in its <target> and no <address>",
            "",
            "options=$(qm config ID | sed -n 'DROPs/^DISK: [^,]*//p')\nboot=$(qm config ID | sed -n 's/^boot: //p')\n\
             qm set ID --delete DISK\nqm set ID --NEW VOLUME\"$options\"\n\
             [ -z \"$boot\" ] || qm set ID --boot \"$(echo \"$boot\" | sed s/DISK/NEW/)\"\n\
             # to go back: qm set ID --delete NEW --boot \"$boot\"; qm set ID --DISK VOLUME\"$options\"",
        ],
    },
    Flaw {
        evidence: in_main_loop,
        prose: Prose {
            title: "The busy disk DISK has no IOThread: QEMU's main loop serves it",
            problem: "busy disk, no IOThread",
            why: "The main loop serves timers, the monitor and other devices as well, and each waits for the rest",
        },
        fixes: [
            "Add <iothreads>1</iothreads>, and iothread='1' to the <driver> of DISK",
            "Add -object iothread,id=IOTHREAD, and iothread=IOTHREAD to DEVICE",
            "qm set ID --DISK \"$(qm config ID | sed -n 's/^DISK: //p'),iothread=1\"",
        ],
    },
    Flaw {
        evidence: |_, _, disk| disk.lacks_iothread.then(|| "iothread=1 without scsihw: virtio-scsi-single".to_owned()),
        prose: Prose {
            title: "The disk DISK gets no IOThread: Proxmox ignores iothread=1 with this SCSI controller",
            problem: "IOThread ignored",
            why: "An IOThread serves a controller, not a disk, and only with scsihw: virtio-scsi-single has each disk \
                a controller of its own. With the others QEMU's main loop serves the disk",
        },
        fixes: ["", "", "qm set ID --scsihw virtio-scsi-single"],
    },
    Flaw {
        evidence: |_, _, disk| {
            let cache = disk.cache.filter(|cache| matches!(*cache, "directsync" | "writethrough"))?;
            Some(format!("cache={cache}"))
        },
        prose: Prose {
            title: "QEMU flushes the disk DISK after each write",
            problem: "disk flushed at each write",
            why: "With this cache mode, or write-cache=off of the device, a write is done when it is on the medium, \
                whether the guest asked for that or not. With cache=none or writeback the guest's own flushes keep \
                its data as safe. Some want it, for guests without flushes or by nova's disk_cachemodes",
        },
        fixes: [
            "Set cache='none' (where the file system lacks O_DIRECT, writeback) in the <driver> of DISK, if its \
                guest's system sends flushes, as all do since about 2010",
            "Set cache=none (where the file system lacks O_DIRECT, writeback) in the -drive of DISK, and no \
                write-cache=off in its -device, if its guest's system sends flushes, as all do since about 2010",
            "qm set ID --DISK \"$(qm config ID | sed -n 's/,cache=[a-z]*//; s/^DISK: //p')\"",
        ],
    },
    Flaw {
        evidence: |_, _, disk| {
            let cache = disk.cache.filter(|cache| matches!(*cache, "none" | "directsync"))?;
            let pool = disk.aio == Some("threads") && disk.on_block_device;
            pool.then(|| format!("aio=threads with cache={cache}, on a block device"))
        },
        prose: Prose {
            title: "The disk DISK uses QEMU's pool of threads, though it bypasses the page cache",
            problem: "disk uses a thread pool",
            why: "With aio=threads QEMU hands each request to a thread of its pool and back. The kernel takes requests \
                for a block device that is opened past the page cache directly, with aio=native or io_uring",
        },
        fixes: [
            "Set io='native' or io='io_uring' in the <driver> of DISK",
            "Set aio=native or aio=io_uring in the -drive of DISK",
            "qm set ID --DISK \"$(qm config ID | sed -n 's/,aio=threads//; s/^DISK: //p')\"",
        ],
    },
];

/// QEMU makes the device of a drive with `if=virtio` itself.
const DEVICE_OF_DRIVE: &str = "a -device virtio-blk-pci,drive=, which names the id of the -drive of DISK; that one \
    then has if=none in place of if=virtio";

/// Whether the guest's system is one that has virtio drivers for disks.
fn takes_virtio(guest: &GuestContext<'_>) -> bool {
    guest.config.is_x86() && guest.kind.kind != GuestKind::Other && !fixes::hyperv::too_old(guest)
}

/// The requests of a virtio disk that keep the main loop busy. A SCSI disk's IOThread is that of its controller.
fn in_main_loop(ctx: &Context<'_>, guest: &GuestContext<'_>, disk: &DiskConfig<'_>) -> Option<String> {
    let t = &ctx.thresholds().disks;
    let is_alone = !disk.iothread && disk.bus.is_some_and(|bus| bus.starts_with("virtio"));
    let rates = guest.domain.disks.iter().find(|rates| rates.name == disk.name).filter(|_| is_alone)?;
    let ops = Some(rates.read_ops + rates.write_ops).filter(|ops| *ops >= t.busy_ops)?;
    let main = Some(guest.domain.emulator()?.cpu?.busy()).filter(|main| *main >= t.busy_main)?;
    Some(format!("{} requests/s without an IOThread; the main thread uses {} % of a CPU", figure(ops), figure(main)))
}

pub(super) fn setup(ctx: &Context<'_>, guest: &GuestContext<'_>, verdicts: &mut Verdicts) {
    let disks = DiskConfig::all(&guest.domain.facts);
    let all = FLAWS.iter().flat_map(|flaw| disks.iter().map(move |disk| (flaw, disk)));
    let found: Vec<_> = all.filter_map(|(flaw, disk)| Some((flaw, disk, (flaw.evidence)(ctx, guest, disk)?))).collect();
    let Some((first, disk, _)) = found.first() else { return };
    let line = |(_, disk, what): &(_, &DiskConfig<'_>, _)| format!("disk {} of {}: {what}", disk.name, guest.name());
    let evidence = found.iter().map(line).collect();
    let mut fix: Vec<Fix> = found.iter().map(|(flaw, disk, _)| mended(guest, flaw, disk, &disks)).collect();
    fix.dedup();
    let finding = Finding::new(Severity::Info, Confidence::High, evidence, fix).saying(first.prose);
    verdicts.find(Finding {
        title: finding.title.replace("DISK", disk.name),
        comes_first: disk.cache == Some("unsafe"),
        ..finding
    });
}

fn mended(guest: &GuestContext<'_>, flaw: &Flaw, disk: &DiskConfig<'_>, disks: &[DiskConfig<'_>]) -> Fix {
    let has_scsi = has_device(&guest.domain.facts, "virtio-scsi");
    let [in_xml, fix_by_hand, proxmox] = flaw.fixes;
    let needs = if proxmox.contains("NEW") { driver_needs(guest, disks) } else { fixes::POWER_CYCLE };
    let is_plain = disk.name.bytes().all(|b| b.is_ascii_alphanumeric());
    let Some(id) = guest.proxmox_id().filter(|_| is_plain) else {
        let by_hand = guest.config.libvirt == Some(false);
        if by_hand && fix_by_hand.is_empty() {
            return virtio_by_hand(guest, disk, needs);
        }
        let iothreads = guest.domain.facts.command.as_ref().map_or(&[][..], |command| &command.iothreads);
        let mut ids = (0..=iothreads.len()).map(|n| format!("iothread{n}"));
        let iothread = ids.find(|id| !iothreads.contains(id)).unwrap_or_default();
        let device = if disk.bus == Some("virtio") { DEVICE_OF_DRIVE } else { "the -device of DISK" };
        let text = if by_hand { fix_by_hand.replace("DEVICE", device) } else { in_xml.to_owned() };
        return fixes::advice(text.replace("IOTHREAD", &iothread).replace("DISK", disk.name)).needing(needs);
    };
    let is_free = |name: &String| !disks.iter().any(|disk| disk.name == name);
    // virtio-blk tells the guest nothing of the medium.
    let (bus, drop) = if has_scsi { ("scsi", "") } else { ("virtio", "s/,ssd=[01]//; ") };
    let new = (0..16).map(|n| format!("{bus}{n}")).find(is_free).unwrap_or_default();
    let text = proxmox.replace("DROP", drop).replace("ID", id).replace("NEW", &new).replace("DISK", disk.name);
    fixes::command(text.replace("VOLUME", &shell::quoted(disk.file))).needing(needs)
}

/// What a disk needs that moves to virtio: on the SCSI controller of virtio, if there is one. A disk of the same kind
/// shows that its driver is there.
fn driver_needs(guest: &GuestContext<'_>, disks: &[DiskConfig<'_>]) -> &'static str {
    let has_scsi = has_device(&guest.domain.facts, "virtio-scsi");
    // The fix for libvirt's XML takes virtio-blk.
    let (driver, bus) = if has_scsi && guest.config.libvirt == Some(false) {
        (VirtioDriver::Scsi, "scsi")
    } else {
        (VirtioDriver::Block, "virtio")
    };
    fixes::virtio_needs(driver, disks.iter().any(|disk| disk.bus.is_some_and(|name| name.starts_with(bus))))
}

/// A disk of QEMU's command line on virtio: on the SCSI controller of virtio, if there is one.
fn virtio_by_hand(guest: &GuestContext<'_>, disk: &DiskConfig<'_>, needs: &str) -> Fix {
    let device = if has_device(&guest.domain.facts, "virtio-scsi") { "scsi-hd" } else { "virtio-blk-pci" };
    if let Some(driver) = disk.bus.filter(|driver| driver.starts_with("ide-")) {
        let change = format!("Start QEMU with {device} in place of {driver} for the disk {}, without bus=", disk.name);
        return fixes::advice(change).needing(needs);
    }
    let file = shell::quoted(&disk.file.replace(',', ",,"));
    let option = match device {
        "scsi-hd" => format!("-drive file={file},if=none,id=disk0 -device scsi-hd,drive=disk0"),
        _ => format!("-drive file={file},if=virtio"),
    };
    fixes::qemu(guest, option).needing(&format!("in place of -hda or its -drive, whose other settings stay; {needs}"))
}
