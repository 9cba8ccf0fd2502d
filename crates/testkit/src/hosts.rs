//! Hosts that many tests look at.

use super::*;
use kvm::labels::Labels;

impl Fixture {
    /// 36 CPUs on two nodes with SMT, 4-17 and 22-35 isolated, and five guests: a Windows guest
    /// that keeps time by the PM timer and the RTC, a database with two vCPUs pinned onto one CPU,
    /// a calm web server, a build guest that wanders, an idle one.
    pub fn busy_host() -> Self {
        let host = Host::numa(2, 9, 2)
            .isolated("4-17,22-35")
            .load(0, 4.0, 3.0, 0.4)
            .load(1, 2.0, 9.5, 0.1)
            .load(18, 12.0, 3.0, 0.0)
            .task("ksmd", true, 1, 9.0)
            .task("node_exporter", false, 18, 12.0);
        Self::new(host)
            .guest(Self::windows_on_pm_timer())
            .guest(Self::database_with_shared_pin())
            .guest(Self::web())
            .guest(Self::wandering_build())
            .guest(Self::idle())
    }

    /// Eight vCPUs that read the ACPI PM timer and the RTC all day.
    pub fn windows_on_pm_timer() -> Guest {
        Guest::new("win10-2", 6455)
            .os("http://microsoft.com/win/10")
            .facts(|f| {
                f.labels = Labels {
                    title: Some("Accounting".into()),
                    owner: Some("lab".into()),
                    tags: vec!["prod".into(), "windows".into()],
                }
            })
            .mtree()
            .vcpus(8, |v, t| {
                let cpu = if v < 5 { v + 4 } else { v + 17 };
                let t = t.may_run("0-35").on(cpu);
                if v > 1 {
                    return t
                        .cpu(20.0, 0.1, 1.0, 0.1)
                        .exits("HLT", 60.0, 9_000.0)
                        .exits("MSR_WRITE", 40.0, 2.1);
                }
                t.cpu(58.0, 4.5, 22.0, 0.4)
                    .exits("IO_INSTRUCTION", 12_836.9, 11.48)
                    .exits("HLT", 52.0, 310.0)
                    .exits("EXTERNAL_INTERRUPT", 3_100.0, 2.3)
                    .exits("MSR_WRITE", 1_300.0, 1.9)
                    .exits("EPT_MISCONFIG", 120.0, 21.0)
                    .pio(0x608, Direction::Read, 7_939.5, 11.3)
                    .pio(0x70, Direction::Write, 2_449.0, 11.7)
                    .pio(0x71, Direction::Read, 2_389.5, 12.0)
                    .pio(0x71, Direction::Write, 58.0, 12.4)
                    .mmio(0xfee0_0300, Direction::Write, 120.0, 21.0)
                    .msr(0x6e0, Direction::Write, 1_300.0, 1.9)
                    .userspace(2, 12_836.9)
                    .userspace(6, 120.0)
                    .wakes(52.0, 41.0)
                    .moves(0.0, 0.0, cpu)
            })
    }

    /// Sixteen vCPUs, of which 3 and 4 are pinned to CPU 12.
    pub fn database_with_shared_pin() -> Guest {
        Guest::new("db-prod", 7001)
            .os("http://ubuntu.com/ubuntu/22.04")
            .mtree()
            .vcpus(16, |v, t| {
                let cpu = match v {
                    0..3 => v + 9,
                    3 | 4 => 12,
                    5..10 => v + 8,
                    v => v + 17,
                };
                let busy = if cpu == 12 { 48.0 } else { 54.0 };
                let wait = if cpu == 12 { 18.0 } else { 0.2 };
                t.cpu(busy, 0.3, 3.1, wait)
                    .pinned(cpu)
                    .exits("EXTERNAL_INTERRUPT", 460.0, 3.2)
                    .exits("MSR_WRITE", 180.0, 1.7)
                    .exits("HLT", 90.0, 2_400.0)
                    .exits("EPT_VIOLATION", 22.0, 6.0)
                    .msr(0x6e0, Direction::Write, 180.0, 1.7)
                    .moves(if v == 0 { 41.0 } else { 0.0 }, 0.0, cpu)
            })
            .emulator(|t| t.cpu(0.0, 3.1, 2.3, 0.1).may_run("0-3,18-21").on(2))
            .iothread(1, |t| t.cpu(0.0, 0.4, 0.8, 0.0).may_run("0-3,18-21").on(3))
    }

    fn web() -> Guest {
        Guest::new("web-1", 8100)
            .os("http://debian.org/debian/12")
            .vcpus(4, |v, t| {
                t.cpu(8.8, 0.1, 0.6, 0.1)
                    .may_run("0-3,18-21")
                    .on(18 + v)
                    .exits("MSR_WRITE", 102.0, 1.8)
                    .exits("HLT", 160.0, 5_000.0)
                    .exits("EPT_MISCONFIG", 35.0, 7.5)
                    .msr(0x6e0, Direction::Write, 102.0, 1.8)
                    .moves(0.0, 0.0, 18)
            })
    }

    fn wandering_build() -> Guest {
        Guest::new("build-3", 9200)
            .facts(|f| f.name.from = Origin::CommandLine)
            .vcpus(2, |v, t| {
                t.cpu(80.0, 4.0, 6.5, 0.3)
                    .may_run("0-35")
                    .on(if v == 0 { 25 } else { 34 })
                    .exits("HLT", 180.0, 410.0)
                    .exits("EPT_VIOLATION", 120.0, 8.8)
                    .exits("IO_INSTRUCTION", 105.0, 14.0)
                    .pio(0xc010, Direction::Write, 105.0, 14.0)
                    .moves(12.0, 5.0, 26)
            })
            .thread(
                Thread::new(9300, Role::Vhost, "vhost-9200")
                    .cpu(0.0, 0.0, 3.0, 0.0)
                    .on(2),
            )
    }

    fn idle() -> Guest {
        Guest::new("idle-4", 9900).vcpus(1, |_, t| {
            t.cpu(0.2, 0.0, 0.1, 0.0)
                .may_run("0-35")
                .on(20)
                .exits("HLT", 11.0, 80_000.0)
        })
    }

    /// The busy host whose guests have disks, network cards and memory: one with much of it far
    /// from its vCPUs, one that is swapped out in part, one whose balloon is inflated.
    pub fn with_devices() -> Self {
        let mut f = Self::busy_host();
        f.host.memory = Some(HostMemory {
            total: 64 << 30,
            available: 20 << 30,
            free: Some(9 << 30),
            cache: Some(12 << 30),
            ..HostMemory::default()
        });
        f.host.load = Some(4107);
        f.host.pressure = Some(Pressure {
            cpu: 1200,
            io: 305,
            ..Pressure::default()
        });
        let nvme = WholeDisk {
            name: "nvme0n1".into(),
            reads: 24_000,
            writes: 6000,
            read_bytes: 380_000_000,
            write_bytes: 40_000_000,
            time_ns: 12_000_000_000,
            busy_ns: 620_000_000,
            in_flight: 12,
            ..WholeDisk::default()
        };
        let on_it = WholeDisk {
            name: "dm-0".into(),
            alias: Some("vg0-db".into()),
            is_stacked: true,
            time_ns: 15_000_000_000,
            ..nvme.clone()
        };
        let idle = WholeDisk {
            name: "sda".into(),
            ..WholeDisk::default()
        };
        f.host.disks = Some(vec![idle, nvme, on_it]);
        f.host.links = Some(vec![HostLink {
            name: "eno1".into(),
            rx_bytes: 70_000_000,
            tx_bytes: 9_000_000,
            drops: 30,
            speed_mbit: Some(10_000),
        }]);
        f.host.nodes = Some(
            [(0, 40), (1, 3)]
                .map(|(node, free_gib)| HostNode {
                    node,
                    total: 64 << 30,
                    free: free_gib << 30,
                    ..HostNode::default()
                })
                .into(),
        );
        let disk = |name: &str, ops: u64, us: u64| DiskSample {
            name: name.into(),
            read_ops: ops,
            write_ops: ops / 4,
            read_bytes: ops * 16_384,
            write_bytes: ops * 1024,
            read_ns: Some(ops * us * 1000),
            write_ns: Some(ops / 4 * us * 3000),
            flush_ops: Some(ops / 100),
            flush_ns: Some(ops / 100 * us * 9000),
            failed_ops: None,
            latencies: [(1_000_000, ops * 98 / 100), (10_000_000, ops / 50)].into(),
            longest_ns: Some(us * 90_000),
        };
        let nic = |name: &str, packets: u64, drops: u64| NicSample {
            name: name.into(),
            rx_bytes: packets * 900,
            tx_bytes: packets * 200,
            rx_packets: packets,
            tx_packets: packets / 2,
            drops,
            rx_drops: Some(drops),
            queues: Some(1),
            bridge: Some("br0".into()),
        };
        let gib = |n: f64| (n * f64::from(1 << 30)) as u64;
        for (i, guest) in f.guests.iter_mut().enumerate() {
            let command = kvm::cmdline::QemuCommand {
                memory: Some(8 << 30),
                ..Default::default()
            };
            guest.facts.command = Some(Arc::new(command));
            let owner = if i == 1 { "shop" } else { "lab" };
            guest.facts.labels.owner = Some(owner.into());
            let rest = &mut guest.rest;
            (rest.devices_ns, rest.nics_ns) = (5_000_000_000, 5_000_000_000);
            rest.disks = vec![disk("vda", 2000 << i, 130 * (i as u64 + 1))];
            rest.nics = vec![nic(&format!("vnet{i}"), 10_000 >> i, 0)];
            let resident = Some(gib(8.2 - i as f64));
            rest.memory = MemoryUse {
                resident,
                hugetlb: Some(0),
                balloon: Some(8 << 30),
                transparent: resident.map(|n| n / 4 * i as u64),
                swapped_in: Some(0),
                limit: Some(16 << 30),
                charged: resident,
                in_guest: Some(MemoryInGuest {
                    total: 8 << 30,
                    usable: Some(gib(7.0 - i as f64)),
                    caches: Some(gib(0.5)),
                    major_faults: Some(100),
                    swapped: Some(0),
                    updated_s: (START_MS / 1000) as u64,
                    grown: Some(MemoryGrowth {
                        seconds: 10,
                        major_faults: 5 * i as u64,
                        swapped: 0,
                    }),
                }),
            };
            rest.swap_bytes = Some(0);
            rest.storage = vec![StoredDisk {
                file: format!("/srv/vm/guest-{i}.qcow2"),
                storage: "/srv".into(),
                size_bytes: Some(1 << 40),
                free_bytes: Some(200 << 30),
                may_grow: true,
                ..StoredDisk::default()
            }];
            rest.node_memory = [(0, gib(8.0 - i as f64)), (1, gib(0.2))].into();
        }
        let database = &mut f.guests[1].rest;
        database.disks.push(disk("vdb", 45_000, 4100));
        database.nics.push(nic("vnet9", 250_000, 600));
        database.node_memory = [(0, gib(2.0)), (1, gib(5.0))].into();
        f.guests[2].rest.swap_bytes = Some(gib(1.5));
        f.guests[3].rest.memory.balloon = Some(5 << 30);
        f
    }

    /// The same host with no guest.
    pub fn empty_host() -> Self {
        Self {
            guests: Vec::new(),
            ..Self::busy_host()
        }
    }

    /// One guest on a kernel that fires no `kvm_exit`, as `kvm_pvm` does, with libvirt missing and
    /// tracing degraded.
    pub fn no_kvm_exit() -> Self {
        let mut f = Self::new(Host::numa(1, 2, 1)).guest(
            Guest::new("lab-1", 4242)
                .facts(|f| {
                    f.name.from = Origin::CommandLine;
                    f.machine = Some(Known::new("pc-i440fx-7.2".into(), Origin::CommandLine));
                })
                .vcpus(1, |_, t| {
                    t.cpu(40.0, 30.0, 25.0, 1.0)
                        .may_run("0-1")
                        .on(1)
                        .access(Space::Pio, 0xb008, Direction::Read, 61_000.0, None)
                        .access(Space::Pio, 0x3f8, Direction::Write, 75.0, None)
                        .userspace(2, 61_075.0)
                        .userspace(10, 3.0)
                }),
        );
        f.host.facts.kvm_flavour = Some("kvm_pvm".into());
        f.engine.fires_kvm_exit = Some(false);
        f.source(SourceStatus::missing(
            SourceId::Libvirt,
            "cannot connect to qemu:///system: Failed to connect socket to \
             '/var/run/libvirt/libvirt-sock': No such file or directory",
            "systemctl start libvirtd",
        ))
        .source(SourceStatus::degraded(
            SourceId::Tracepoints,
            "kvm:kvm_exit has not fired while guests ran (kvm_pvm)",
            "nothing to do: accesses and exits to user space are counted instead",
        ))
    }

    /// One guest of this many vCPUs on a host of 8 nodes.
    pub fn many_vcpus(vcpus: u32) -> Self {
        Self::new(Host::numa(8, 24, 2)).guest(Guest::new("big", 5000).vcpus(vcpus, |v, t| {
            t.cpu(f64::from(v % 97), 0.2, 1.0, 0.1)
                .may_run("0-383")
                .on(v % 384)
                .exits("HLT", 20.0, 100.0)
        }))
    }

    /// Names that are long, wide, empty or made to harm a terminal.
    pub fn hostile_names() -> Self {
        let names = [
            "a-very-long-domain-name-that-no-column-will-ever-hold-whole-and-that-goes-on-and-on",
            "数据库-主机-生产环境-非常长的名字",
            "evil\u{1b}[31mred\u{7}\u{202e}txt",
            "",
            "é́́combining",
        ];
        names
            .iter()
            .enumerate()
            .fold(Self::new(Host::numa(1, 4, 2)), |f, (i, name)| {
                f.guest(Guest::new(name, 3000 + 100 * i as i32).vcpus(2, |v, t| {
                    t.cpu(10.0, 1.0, 1.0, 0.0)
                        .on(v)
                        .exits("HLT", 10.0, 100.0)
                        .exits("A_REASON_WITH_A_VERY_LONG_NAME_INDEED", 3.0, 2.0)
                }))
            })
    }
}
