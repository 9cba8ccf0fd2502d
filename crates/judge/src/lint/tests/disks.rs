use super::*;
use crate::model::{HostDiskModel, WholeDiskModel};
use sample::{DiskSample, Pressure, StoredDisk, ThreadKind, Timing, WholeDisk};

/// A disk that was read over 5 s: reads per second, microseconds each, flushes per second,
/// microseconds each.
fn disk(reads: u64, us: u64, flushes: u64, flush_us: u64) -> DiskSample {
    DiskSample {
        name: "vda".into(),
        read_ops: 5 * reads,
        read_bytes: 5 * reads * 4096,
        read_ns: Some(5 * reads * us * 1000),
        write_ns: Some(0),
        flush_ops: Some(5 * flushes),
        flush_ns: Some(5 * flushes * flush_us * 1000),
        ..DiskSample::default()
    }
}

fn with(bus: &str, iotune: &str, disk: DiskSample) -> Fixture {
    let xml = format!(
        "<devices><disk><target dev='vda' bus='{bus}'/><iotune>{iotune}</iotune></disk></devices>"
    );
    let mut guest = Guest::new("g", 5)
        .linux(&xml)
        .vcpus(1, |v, t| t.on(v).cpu(50.0, 0.5, 4.0, 0.0));
    guest.rest.devices_ns = 5_000_000_000;
    guest.rest.disks = vec![disk];
    on(guest)
}

#[test]
fn disk_throttled() {
    let limited = |reads, us| {
        with(
            "virtio",
            "<total_iops_sec>100</total_iops_sec>",
            disk(reads, us, 0, 0),
        )
    };
    let report = judge(&limited(99, 40_000).model());
    fires(&report, RuleId::DiskThrottled, Severity::Warning);
    let found = get(&report, RuleId::DiskThrottled);
    assert!(
        found.evidence[0].contains("99 op/s of at most 100 (total_iops_sec), 99 % of the limit"),
        "{found:#?}"
    );
    assert_eq!(
        found.fix[0].text,
        "virsh blkdeviotune g vda --total-iops-sec 0 --live --config"
    );
    silent(&judge(&limited(60, 40_000).model()), RuleId::DiskThrottled);
    // At the limit by chance: nothing waits.
    silent(&judge(&limited(99, 100).model()), RuleId::DiskThrottled);
    let bytes = with(
        "virtio",
        "<read_bytes_sec>409600</read_bytes_sec>",
        disk(100, 40_000, 0, 0),
    );
    fires(
        &judge(&bytes.model()),
        RuleId::DiskThrottled,
        Severity::Warning,
    );
    silent(
        &judge(&with("virtio", "", disk(99, 40_000, 0, 0)).model()),
        RuleId::DiskThrottled,
    );
}

#[test]
fn disk_queue() {
    let full = |bus, reads, us| judge(&with(bus, "", disk(reads, us, 0, 0)).model());
    fires(
        &full("virtio", 1000, 125_000),
        RuleId::DiskQueue,
        Severity::Warning,
    );
    fires(
        &full("sata", 10_000, 3_000),
        RuleId::DiskQueue,
        Severity::Info,
    );
    fires(
        &full("ide", 95, 10_000),
        RuleId::DiskQueue,
        Severity::Warning,
    );
    silent(&full("virtio", 1000, 30_000), RuleId::DiskQueue);
    silent(&full("usb", 1000, 125_000), RuleId::DiskQueue);
}

#[test]
fn disk_flushes() {
    let flushing = |flushes, us| judge(&with("virtio", "", disk(10, 100, flushes, us)).model());
    fires(
        &flushing(100, 7_000),
        RuleId::DiskFlushes,
        Severity::Warning,
    );
    fires(&flushing(100, 4_000), RuleId::DiskFlushes, Severity::Info);
    silent(&flushing(100, 1_000), RuleId::DiskFlushes);
    silent(&flushing(2, 900_000), RuleId::DiskFlushes);
}

#[test]
fn disk_errors() {
    let failing = |failed_ops| {
        judge(
            &with(
                "virtio",
                "",
                DiskSample {
                    failed_ops,
                    ..disk(10, 100, 0, 0)
                },
            )
            .model(),
        )
    };
    fires(&failing(Some(1)), RuleId::DiskErrors, Severity::Warning);
    silent(&failing(Some(0)), RuleId::DiskErrors);
    silent(&failing(None), RuleId::DiskErrors);
}

/// A device that took `us` for each of `reads` per second.
fn device(name: &str, reads: u64, us: u64, below: &[&str]) -> HostDiskModel {
    let mut model = HostDiskModel {
        seconds: Some(1.0),
        ..HostDiskModel::default()
    };
    let disk = &mut model.of;
    (disk.name, disk.number) = (name.into(), (8, name.len() as u32));
    let times = |us| Timing {
        count: reads,
        total_ns: Some(reads * us * 1000),
        ..Timing::default()
    };
    (disk.reads.total, disk.reads.device) = (times(us), times(us / 2));
    disk.below = below.iter().map(|name| (*name).to_owned()).collect();
    disk.submitters = [(ThreadKind::Main, reads)].into();
    model
}

fn timed(iotune: &str, disk: DiskSample, devices: Option<Vec<HostDiskModel>>) -> Model {
    let xml = format!(
        "<devices><disk><driver cache='none' io='native'/><target dev='vda' \
         bus='virtio'/><iotune>{iotune}</iotune></disk></devices>"
    );
    let mut guest = Guest::new("g", 5)
        .linux(&xml)
        .vcpus(1, |v, t| t.on(v).cpu(50.0, 0.5, 4.0, 0.0));
    guest.rest.devices_ns = 5_000_000_000;
    guest.rest.disks = vec![disk];
    let mut model = on(guest).model();
    model.domains[0].host_disks = devices;
    model
}

#[test]
fn disk_latency() {
    let slow = |us, host_us| {
        timed(
            "",
            disk(100, us, 0, 0),
            Some(vec![device("sda", 100, host_us, &[])]),
        )
    };
    let report = judge(&slow(9_000, 300));
    fires(&report, RuleId::DiskLatency, Severity::Info);
    let found = get(&report, RuleId::DiskLatency);
    assert!(
        found.evidence[0].ends_with("% is spent outside them"),
        "{found:#?}"
    );
    assert!(found.fix[0].text.contains("IOThread"), "{found:#?}");
    fires(
        &judge(&slow(20_000, 300)),
        RuleId::DiskLatency,
        Severity::Warning,
    );
    // The storage takes the time, or there is little of it.
    silent(&judge(&slow(9_000, 8_000)), RuleId::DiskLatency);
    silent(&judge(&slow(1_000, 100)), RuleId::DiskLatency);
    // The page cache answers most; a limit is the cause; nobody timed.
    let cached = timed(
        "",
        disk(100, 9_000, 0, 0),
        Some(vec![device("sda", 21, 300, &[])]),
    );
    silent(&judge(&cached), RuleId::DiskLatency);
    let limit = "<total_iops_sec>100</total_iops_sec>";
    let limited = timed(
        limit,
        disk(100, 9_000, 0, 0),
        Some(vec![device("sda", 100, 300, &[])]),
    );
    silent(&judge(&limited), RuleId::DiskLatency);
    cannot(
        &judge(&timed("", disk(100, 9_000, 0, 0), None)),
        RuleId::DiskLatency,
    );
}

#[test]
fn slow_storage() {
    let on = |devices| judge(&timed("", disk(100, 40_000, 0, 0), devices));
    let report = on(Some(vec![
        device("dm-0", 100, 35_000, &["sda"]),
        device("sda", 100, 34_000, &[]),
    ]));
    fires(&report, RuleId::SlowStorage, Severity::Warning);
    let found = get(&report, RuleId::SlowStorage);
    assert!(
        found.evidence[0].starts_with("dm-0: 35 ms on average for 100 reads and writes/s"),
        "{found:#?}"
    );
    fires(
        &on(Some(vec![device("sda", 100, 12_000, &[])])),
        RuleId::SlowStorage,
        Severity::Info,
    );
    silent(
        &on(Some(vec![device("sda", 100, 300, &[])])),
        RuleId::SlowStorage,
    );
    silent(
        &on(Some(vec![device("sda", 4, 35_000, &[])])),
        RuleId::SlowStorage,
    );
    cannot(&on(None), RuleId::SlowStorage);
}

/// A guest whose disk is described so.
fn described(disk: &str) -> Report {
    judge(
        &on(Guest::new("g", 5)
            .linux(&format!("<devices>{disk}</devices>"))
            .vcpus(1, |v, t| t.on(v)))
        .model(),
    )
}

#[test]
fn disk_setup() {
    let driver = |driver: &str, kind: &str, bus: &str| {
        let target = format!("<target dev='vda' bus='{bus}'/>");
        described(&format!(
            "<disk type='{kind}' device='disk'><driver name='qemu' {driver}/>{target}</disk>"
        ))
    };
    for (options, kind, bus, says) in [
        (
            "cache='unsafe'",
            "file",
            "virtio",
            "disk vda of g: cache=unsafe",
        ),
        (
            "",
            "file",
            "ide",
            "disk vda of g: on an emulated controller (ide: IDE or SATA)",
        ),
        (
            "",
            "block",
            "sata",
            "disk vda of g: on an emulated controller (sata: IDE or SATA)",
        ),
        (
            "cache='none' io='threads'",
            "block",
            "virtio",
            "disk vda of g: aio=threads with cache=none, on a block device",
        ),
    ] {
        let report = driver(options, kind, bus);
        fires(&report, RuleId::DiskSetup, Severity::Info);
        assert_eq!(get(&report, RuleId::DiskSetup).evidence[0], says);
        assert_eq!(
            get(&report, RuleId::DiskSetup).comes_first,
            options.contains("unsafe"),
            "it can lose data"
        );
    }
    // What libvirt and its tools write, and what oVirt sets for image files on purpose.
    for (options, kind) in [
        ("", "file"),
        ("cache='none' io='native'", "block"),
        ("cache='none' io='threads'", "file"),
    ] {
        silent(&driver(options, kind, "virtio"), RuleId::DiskSetup);
    }
    silent(
        &described("<disk type='file' device='cdrom'><target dev='sda' bus='sata'/></disk>"),
        RuleId::DiskSetup,
    );
    let old = Guest::new("g", 5).os("http://microsoft.com/win/xp");
    let old = old.xml("<devices><disk type='file'><target dev='hda' bus='ide'/></disk></devices>");
    silent(
        &judge(&on(old.vcpus(1, |v, t| t.on(v))).model()),
        RuleId::DiskSetup,
    );
}

#[test]
fn a_busy_disk_wants_an_iothread() {
    let busy = |bus: &str, driver: &str, reads, main| {
        let disk_xml = format!("<disk>{driver}<target dev='vda' bus='{bus}'/></disk>");
        let mut guest = Guest::new("g", 5).linux(&format!("<devices>{disk_xml}</devices>"));
        guest = guest
            .vcpus(1, |v, t| t.on(v))
            .emulator(move |t| t.cpu(main, 0.0, 0.0, 0.0));
        guest.rest.devices_ns = 5_000_000_000;
        guest.rest.disks = vec![disk(reads, 50, 0, 0)];
        judge(&on(guest).model())
    };
    let report = busy("virtio", "", 9000, 80.0);
    fires(&report, RuleId::DiskSetup, Severity::Info);
    assert!(
        get(&report, RuleId::DiskSetup).evidence[0]
            .starts_with("disk vda of g: 9000 requests/s without an IOThread")
    );
    silent(
        &busy("virtio", "<driver iothread='1'/>", 9000, 80.0),
        RuleId::DiskSetup,
    );
    silent(&busy("virtio", "", 9000, 20.0), RuleId::DiskSetup);
    silent(&busy("virtio", "", 100, 80.0), RuleId::DiskSetup);
    let by_hand = |disk: &str| {
        let command = format!(
            "kvm -m 4G -nic none -object iothread,id=iothread0 -drive file=a.raw,id=vda,{disk}"
        );
        let command = kvm::cmdline::parse_text(&command).unwrap();
        let mut guest = Guest::new("g", 5).facts(|f| f.command = Some(Arc::new(command)));
        guest = guest
            .vcpus(1, |v, t| t.on(v))
            .emulator(move |t| t.cpu(80.0, 0.0, 0.0, 0.0));
        guest.rest.devices_ns = 5_000_000_000;
        guest.rest.disks = vec![self::disk(9000, 50, 0, 0)];
        get(&judge(&on(guest).model()), RuleId::DiskSetup).fix[0]
            .text
            .clone()
    };
    let text = by_hand("if=none -device virtio-blk-pci,drive=vda");
    assert!(
        text.ends_with("iothread=io1 to the -device of vda"),
        "{text}"
    );
    silent(&busy("scsi", "", 9000, 80.0), RuleId::DiskSetup);
}

const GIB: u64 = 1 << 30;

#[test]
fn storage_filling() {
    let stored = |free_gib: u64, filled_gib: Option<u64>, may_grow| {
        let mut fixture = with("virtio", "", disk(10, 100, 0, 0));
        let mut other = fixture.guests[0].clone();
        fixture.guests[0].rest.storage = vec![StoredDisk {
            file: "/srv/a.qcow2".into(),
            storage: "/srv".into(),
            size_bytes: Some(1000 * GIB),
            free_bytes: Some(free_gib * GIB),
            filled_per_hour: filled_gib.map(|gib| gib * GIB),
            may_grow,
        }];
        other.facts.name.value = "h".into();
        other.facts.pid = Some(9);
        other
            .rest
            .storage
            .clone_from(&fixture.guests[0].rest.storage);
        fixture.guests.push(other);
        judge(&fixture.model())
    };
    let report = stored(40, None, true);
    fires(&report, RuleId::StorageFilling, Severity::Warning);
    let found = get(&report, RuleId::StorageFilling);
    assert_eq!(found.evidence[0], "/srv: 40 GiB of 1000 GiB are free (4 %)");
    assert_eq!(found.also, ["g", "h"], "one storage, one finding");
    fires(
        &stored(5, None, true),
        RuleId::StorageFilling,
        Severity::Critical,
    );
    let soon = stored(300, Some(50), true);
    fires(&soon, RuleId::StorageFilling, Severity::Warning);
    assert_eq!(
        get(&soon, RuleId::StorageFilling).evidence[1],
        "50 GiB more are used each hour: it is full in 6 h"
    );
    silent(&stored(300, Some(5), true), RuleId::StorageFilling);
    silent(&stored(300, None, true), RuleId::StorageFilling);
    silent(&stored(40, None, false), RuleId::StorageFilling);
}

/// A host whose disk did this within a second: requests, microseconds each, in flight.
fn host_disk(requests: u64, us: u64, in_flight: u64) -> WholeDiskModel {
    WholeDiskModel {
        of: WholeDisk {
            name: "sda".into(),
            reads: requests,
            time_ns: requests * us * 1000,
            busy_ns: (requests * us * 1000).min(1_000_000_000),
            in_flight,
            ..WholeDisk::default()
        },
        seconds: Some(1.0),
        device: None,
    }
}

#[test]
fn io_pressure_not_real() {
    let pressed = |percent: u64, reads, on_host| {
        let mut fixture = with("virtio", "", disk(reads, 100, 0, 0));
        fixture.guests[0].rest.pressure = Some(Pressure {
            io: percent * 100,
            ..Pressure::default()
        });
        let mut model = fixture.model();
        model.host.disks = Some(vec![on_host]);
        judge(&model)
    };
    let report = pressed(99, 0, host_disk(0, 0, 0));
    fires(&report, RuleId::IoPressureNotReal, Severity::Info);
    assert!(
        get(&report, RuleId::IoPressureNotReal).evidence[0]
            .starts_with("the I/O pressure (some, 10 s) of the guest's cgroup is 99 %")
    );
    silent(
        &pressed(60, 0, host_disk(0, 0, 0)),
        RuleId::IoPressureNotReal,
    );
    silent(
        &pressed(99, 50, host_disk(0, 0, 0)),
        RuleId::IoPressureNotReal,
    );
    silent(
        &pressed(99, 0, host_disk(100, 900, 0)),
        RuleId::IoPressureNotReal,
    );
    silent(
        &pressed(99, 0, host_disk(0, 0, 1)),
        RuleId::IoPressureNotReal,
    );

    // Without cgroups of the guests' own.
    let mut model = with("virtio", "", disk(0, 0, 0, 0)).model();
    model.host.disks = Some(vec![host_disk(0, 0, 0)]);
    model.host.pressure.get_or_insert_default().io = 95.0;
    fires(&judge(&model), RuleId::IoPressureNotReal, Severity::Info);
}

#[test]
fn host_disk_slow() {
    let slow = |requests, us| {
        let mut model = with("virtio", "", disk(0, 0, 0, 0)).model();
        model.host.disks = Some(vec![host_disk(requests, us, 3)]);
        judge(&model)
    };
    let report = slow(100, 60_000);
    fires(&report, RuleId::HostDiskSlow, Severity::Warning);
    assert_eq!(
        get(&report, RuleId::HostDiskSlow).evidence[0],
        "sda: 60 ms a request, 100 requests/s, 3 under way"
    );
    fires(&slow(100, 25_000), RuleId::HostDiskSlow, Severity::Info);
    silent(&slow(100, 9_000), RuleId::HostDiskSlow);
    silent(&slow(2, 60_000), RuleId::HostDiskSlow);
}
