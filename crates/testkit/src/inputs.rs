//! Files of any size for `report`, one kind each: what a large host, a long measurement or somebody
//! hostile hands over.

use std::fmt::Write as _;
use std::path::Path;

/// A kind of input.
pub struct MadeInput {
    /// Its name in tests and tables.
    pub name: &'static str,
    /// What is counted by `n`.
    pub of: &'static str,
    /// The files of an input of size `n`: each name and content.
    pub files: fn(usize) -> Vec<(String, String)>,
    /// A size whose fourfold takes an unoptimised build a second or so.
    pub small: usize,
    /// The sizes that the benchmark measures.
    pub sizes: &'static [usize],
}

/// All kinds.
pub const ALL: &[MadeInput] = &[
    MadeInput {
        name: "one CPU",
        of: "guests pinned to it",
        files: one_cpu,
        small: 128,
        sizes: &[128, 512, 1024, 4096],
    },
    MadeInput {
        name: "pinned apart",
        of: "guests",
        files: pinned_apart,
        small: 128,
        sizes: &[128, 512, 1024, 4096],
    },
    MadeInput {
        name: "Windows",
        of: "guests",
        files: windows,
        small: 512,
        sizes: &[128, 512, 1024, 4096],
    },
    MadeInput {
        name: "measured",
        of: "guests",
        files: measured,
        small: 512,
        sizes: &[128, 1024, 4096],
    },
    MadeInput {
        name: "command lines",
        of: "guests",
        files: command_lines,
        small: 512,
        sizes: &[128, 1024, 4096],
    },
    MadeInput {
        name: "large guest",
        of: "vCPUs",
        files: large_guest,
        small: 512,
        sizes: &[512, 1024, 4096],
    },
    MadeInput {
        name: "vCPU tables",
        of: "vCPUs",
        files: vcpu_tables,
        small: 1024,
        sizes: &[256, 1024, 4096],
    },
    MadeInput {
        name: "exits",
        of: "reasons",
        files: reasons,
        small: 5000,
        sizes: &[1000, 10_000, 40_000, 450_000],
    },
    MadeInput {
        name: "ports",
        of: "rows",
        files: ports,
        small: 5000,
        sizes: &[1000, 10_000, 40_000, 450_000],
    },
    MadeInput {
        name: "frames",
        of: "tables",
        files: frames,
        small: 1000,
        sizes: &[500, 5000, 50_000],
    },
    MadeInput {
        name: "repeated tables",
        of: "rows",
        files: repeated,
        small: 4000,
        sizes: &[500, 5000, 50_000],
    },
    MadeInput {
        name: "mtree -f",
        of: "regions",
        files: flat_view,
        small: 2000,
        sizes: &[1000, 10_000, 80_000],
    },
    MadeInput {
        name: "mtree",
        of: "regions",
        files: tree,
        small: 2000,
        sizes: &[1000, 10_000, 80_000],
    },
    MadeInput {
        name: "mtree aliases",
        of: "aliases",
        files: aliases,
        small: 1000,
        sizes: &[1000, 10_000, 80_000],
    },
    MadeInput {
        name: "kernel log",
        of: "lines",
        files: kernel_log,
        small: 2500,
        sizes: &[10_000, 100_000, 300_000],
    },
    MadeInput {
        name: "kernel log, guests",
        of: "PIDs",
        files: log_of_guests,
        small: 1000,
        sizes: &[256, 1024, 4096],
    },
    MadeInput {
        name: "trace",
        of: "lines",
        files: trace,
        small: 5000,
        sizes: &[10_000, 100_000, 1_000_000],
    },
    MadeInput {
        name: "trace, threads",
        of: "threads",
        files: threads,
        small: 500,
        sizes: &[1000, 10_000, 100_000],
    },
    MadeInput {
        name: "trace, ports",
        of: "ports",
        files: traced_ports,
        small: 2000,
        sizes: &[1000, 10_000, 60_000],
    },
    MadeInput {
        name: "brackets",
        of: "brackets",
        files: brackets,
        small: 500_000,
        sizes: &[1_000_000, 10_000_000],
    },
    MadeInput {
        name: "attributes",
        of: "attributes",
        files: attributes,
        small: 20_000,
        sizes: &[100_000, 400_000],
    },
    MadeInput {
        name: "namespaces",
        of: "elements",
        files: namespaces,
        small: 5000,
        sizes: &[10_000, 80_000],
    },
    MadeInput {
        name: "nested",
        of: "elements",
        files: nested,
        small: 20_000,
        sizes: &[20_000, 200_000],
    },
    MadeInput {
        name: "wrapped",
        of: "lines",
        files: wrapped,
        small: 20_000,
        sizes: &[20_000, 200_000],
    },
    MadeInput {
        name: "listings",
        of: "listings and aliases",
        files: listings,
        small: 4000,
        sizes: &[10_000, 30_000],
    },
    MadeInput {
        name: "titles",
        of: "columns and rows",
        files: titles,
        small: 5000,
        sizes: &[10_000, 200_000],
    },
    MadeInput {
        name: "lscpu columns",
        of: "columns",
        files: columns,
        small: 5000,
        sizes: &[10_000, 200_000],
    },
    MadeInput {
        name: "topology",
        of: "CPUs",
        files: topology_alone,
        small: 1024,
        sizes: &[1024, 4096, 16_384],
    },
];

impl MadeInput {
    /// Writes an input of size `n` into a folder; returns its bytes.
    pub fn write(&self, n: usize, folder: &Path) -> std::io::Result<u64> {
        let mut bytes = 0;
        for (name, text) in (self.files)(n) {
            bytes += text.len() as u64;
            std::fs::write(folder.join(name), text)?;
        }
        Ok(bytes)
    }
}

/// Text of `n` parts.
fn lines(n: usize, mut line: impl FnMut(&mut String, usize) -> std::fmt::Result) -> String {
    let mut text = String::new();
    for i in 0..n {
        line(&mut text, i).expect("a string has room");
    }
    text
}

/// `lscpu -p` of a host with two nodes and two threads a core.
fn topology(cpus: usize) -> (String, String) {
    let cores = (cpus / 2).max(1);
    let text = lines(cpus, |t, cpu| {
        let core = cpu % cores;
        let node = core * 2 / cores;
        writeln!(t, "{cpu},{core},{node},{node},,{core},{core},{core},{node}")
    });
    (
        "lscpu.txt".into(),
        format!("# CPU,Core,Socket,Node,,L1d,L1i,L2,L3\n{text}"),
    )
}

/// Domains as libvirt prints them, a file each.
fn domains(n: usize, body: impl Fn(usize) -> String) -> Vec<(String, String)> {
    let domain = |i: usize| {
        format!(
            "<domain \
             type='kvm'><name>guest-{i}</name><uuid>{i:08x}-0000-4000-8000-000000000000</uuid>\n<memory \
             unit='GiB'>4</memory>{}</domain>\n",
            body(i)
        )
    };
    (0..n)
        .map(|i| (format!("guest-{i}.xml"), domain(i)))
        .collect()
}

const LINUX: &str = "<os><type arch='x86_64' machine='pc-q35-8.2'>hvm</type></os>";

fn one_cpu(n: usize) -> Vec<(String, String)> {
    let pins = |_| {
        format!(
            "{LINUX}<vcpu>2</vcpu><cputune><vcpupin vcpu='0' cpuset='2'/><vcpupin vcpu='1' \
             cpuset='2'/><emulatorpin cpuset='2'/></cputune>"
        )
    };
    let mut files = domains(n, pins);
    files.push(topology(n.min(64)));
    files
}

fn pinned_apart(n: usize) -> Vec<(String, String)> {
    let pins = |i: usize| {
        format!(
            "{LINUX}<vcpu>2</vcpu><cputune><vcpupin vcpu='0' cpuset='{}'/><vcpupin vcpu='1' \
                cpuset='{}'/></cputune>",
            (2 * i) % 4096,
            (2 * i + 1) % 4096
        )
    };
    let mut files = domains(n, pins);
    files.push(topology((4 * n).min(4096)));
    files
}

fn windows(n: usize) -> Vec<(String, String)> {
    domains(n, |_| {
        "<metadata><libosinfo:libosinfo \
         xmlns:libosinfo='http://libosinfo.org/xmlns/libvirt/domain/1.0'><libosinfo:os \
         id='http://microsoft.com/win/10'/></libosinfo:libosinfo></metadata><os><type \
         arch='x86_64' \
         machine='pc-i440fx-8.2'>hvm</type></os><features><acpi/></features><vcpu>4</vcpu>"
            .into()
    })
}

const EXITS: &str = "Analyze events for all VMs, all VCPUs:\n\n   VM-EXIT    Samples  Samples%     \
    Time%    Min Time    Max Time         Avg time\n";
const PORTS: &str = "Analyze events for all VMs, all VCPUs:\n\n   IO Port Access    Samples  \
    Samples%     Time%    Min Time    Max Time         Avg time\n";

fn row(text: &mut String, name: &str, count: usize) -> std::fmt::Result {
    writeln!(
        text,
        "  {name}   {count}    0.10%     0.10%      1.00us     90.00us      9.00us ( +-   1.00% )"
    )
}

fn measured(n: usize) -> Vec<(String, String)> {
    let text = lines(n, |t, i| {
        writeln!(
            t,
            "{}",
            EXITS.replace("all VMs", &format!("pid(s) {}", 1000 + i))
        )?;
        row(t, "HLT", 700 + i)?;
        row(t, "IO_INSTRUCTION", 90_000)?;
        writeln!(
            t,
            "\nTotal Samples:{}, Total events handled time:900000.00us.\n",
            90_700 + i
        )
    });
    vec![("tables.txt".into(), text)]
}

fn command_lines(n: usize) -> Vec<(String, String)> {
    (0..n)
        .step_by(1000)
        .map(|from| {
            let text = lines(n.min(from + 1000) - from, |t, i| {
                let i = from + i;
                writeln!(
                    t,
                    "libvirt+ {i} 1 4 10:00 ? 00:00:09 /usr/bin/qemu-system-x86_64 -name \
                     guest=guest-{i} -machine pc-q35-8.2,accel=kvm -cpu host -smp 4 -m 4096 -rtc \
                     base=localtime -device virtio-net-pci"
                )
            });
            (format!("ps-{from}.txt"), text)
        })
        .collect()
}

fn large_guest(n: usize) -> Vec<(String, String)> {
    let pins = |_| {
        let pins = lines(n, |t, v| {
            writeln!(t, "<vcpupin vcpu='{v}' cpuset='{}'/>", v / 2)
        });
        format!("{LINUX}<vcpu>{n}</vcpu><cputune>{pins}</cputune>")
    };
    let mut files = domains(1, pins);
    files.push(topology(n));
    files
}

fn vcpu_tables(n: usize) -> Vec<(String, String)> {
    let text = lines(n, |t, v| {
        writeln!(t, "{}", EXITS.replace("all VCPUs", &format!("VCPU {v}")))?;
        for reason in ["HLT", "IO_INSTRUCTION", "MSR_WRITE", "EXTERNAL_INTERRUPT"] {
            row(t, reason, 700 + v)?;
        }
        writeln!(
            t,
            "\nTotal Samples:{}, Total events handled time:900000.00us.\n",
            4 * (700 + v)
        )
    });
    vec![("tables.txt".into(), text)]
}

fn reasons(n: usize) -> Vec<(String, String)> {
    let text = lines(n, |t, i| row(t, &format!("REASON_{i}"), 700 + i));
    vec![("table.txt".into(), format!("{EXITS}{text}"))]
}

fn ports(n: usize) -> Vec<(String, String)> {
    let text = lines(n, |t, i| {
        row(
            t,
            &format!("{:#x}:{}", i / 2, if i % 2 == 0 { "PIN" } else { "POUT" }),
            700 + i,
        )
    });
    vec![("table.txt".into(), format!("{PORTS}{text}"))]
}

fn frames(n: usize) -> Vec<(String, String)> {
    let text = lines(n, |t, i| {
        writeln!(
            t,
            "{:02}:{:02}:{:02}.000000\n{EXITS}",
            i / 3600 % 24,
            i / 60 % 60,
            i % 60
        )?;
        row(t, "HLT", 700 + i)?;
        row(t, "IO_INSTRUCTION", 900)?;
        writeln!(
            t,
            "\nTotal Samples:{}, Total events handled time:900000.00us.\n",
            1600 + i
        )
    });
    vec![("live.txt".into(), text)]
}

/// Two tables of the same rows in another order, as sorted by another column.
fn repeated(n: usize) -> Vec<(String, String)> {
    let up = lines(n, |t, i| row(t, &format!("REASON_{i}"), 700 + i));
    let down = lines(n, |t, i| {
        row(t, &format!("REASON_{}", n - 1 - i), 700 + n - 1 - i)
    });
    vec![("tables.txt".into(), format!("{EXITS}{up}\n{EXITS}{down}"))]
}

fn flat_view(n: usize) -> Vec<(String, String)> {
    let regions = lines(n, |t, i| {
        let start = 0xc000_0000 + 0x1000 * (n - 1 - i);
        writeln!(
            t,
            "  {start:016x}-{:016x} (prio 0, i/o): region-{i}",
            start + 0xfff
        )
    });
    vec![(
        "mtree.txt".into(),
        format!(
            "FlatView #0\n AS \"memory\", root: system\n Root memory region: system\n{regions}"
        ),
    )]
}

/// Regions that lie one over another: each cuts those before it.
fn tree(n: usize) -> Vec<(String, String)> {
    let regions = lines(n, |t, i| {
        let (start, end) = (0xc000_0000 + 0x10 * i, 0xf000_0000 - 0x10 * i);
        writeln!(t, "    {start:016x}-{end:016x} (prio {i}, i/o): region-{i}")
    });
    vec![(
        "mtree.txt".into(),
        format!(
            "address-space: memory\n  0000000000000000-ffffffffffffffff (prio 0, i/o): \
            system\n{regions}"
        ),
    )]
}

/// Aliases of one container that holds as many regions.
fn aliases(n: usize) -> Vec<(String, String)> {
    let aliases = lines(n, |t, i| {
        let start = 0x10_0000 * i;
        writeln!(
            t,
            "    {start:016x}-{:016x} (prio {i}, i/o): alias a-{i} @pci {start:016x}-{:016x}",
            start + 0xf_ffff,
            start + 0xf_ffff
        )
    });
    let regions = lines(n, |t, i| {
        let start = 0x10_0000 * i;
        writeln!(
            t,
            "    {start:016x}-{:016x} (prio 1, i/o): region-{i}",
            start + 0xfff
        )
    });
    vec![(
        "mtree.txt".into(),
        format!(
            "address-space: memory\n  0000000000000000-ffffffffffffffff (prio 0, i/o): \
             system\n{aliases}\nmemory-region: pci\n  0000000000000000-ffffffffffffffff (prio -1, \
             i/o): pci\n{regions}"
        ),
    )]
}

fn kernel_log(n: usize) -> Vec<(String, String)> {
    let text = lines(n, |t, i| {
        writeln!(
            t,
            "[{i}.654337] kvm [21715]: vcpu{}, guest rIP: 0x1 Unhandled RDMSR({:#x})",
            i % 64,
            0x600 + i % 5000
        )
    });
    vec![("dmesg.txt".into(), text)]
}

fn log_of_guests(n: usize) -> Vec<(String, String)> {
    let log = lines(n, |t, i| {
        writeln!(
            t,
            "[{i}.654337] kvm [{}]: vcpu0, guest rIP: 0x1 Unhandled RDMSR(0x64d)",
            1000 + i
        )
    });
    let mut files = measured(n);
    files.push(("dmesg.txt".into(), log));
    files
}

fn trace(n: usize) -> Vec<(String, String)> {
    let text = lines(n.div_ceil(3), |t, i| {
        let (vcpu, s, us) = (i % 8, 10 + i / 50_000, 20 * (i % 50_000));
        let (task, cpu) = (format!("CPU {vcpu}/KVM-{}", 7000 + vcpu), vcpu);
        writeln!(
            t,
            " {task} [{cpu:03}] {s}.{us:06}: kvm_exit: vcpu {vcpu} reason IO_INSTRUCTION rip 0x1 \
                info 5658000b 0"
        )?;
        writeln!(
            t,
            " {task} [{cpu:03}] {s}.{:06}: kvm_pio: pio_read at 0x608 size 4 count 1 val 0x4",
            us + 1
        )?;
        writeln!(
            t,
            " {task} [{cpu:03}] {s}.{:06}: kvm_entry: vcpu {vcpu}",
            us + 9
        )
    });
    vec![("trace.txt".into(), text)]
}

fn threads(n: usize) -> Vec<(String, String)> {
    let text = lines(n, |t, i| {
        let (task, s, us) = (
            format!("CPU {}/KVM-{}", i % 4, 7000 + i),
            10 + i / 50_000,
            20 * (i % 50_000),
        );
        writeln!(
            t,
            " {task} [000] {s}.{us:06}: kvm_exit: vcpu {} reason HLT rip 0x1 info 0 0",
            i % 4
        )?;
        writeln!(
            t,
            " {task} [000] {s}.{:06}: kvm_entry: vcpu {}",
            us + 9,
            i % 4
        )
    });
    vec![("trace.txt".into(), text)]
}

fn traced_ports(n: usize) -> Vec<(String, String)> {
    let text = lines(n, |t, i| {
        let (s, us) = (10 + i / 50_000, 20 * (i % 50_000));
        writeln!(
            t,
            " CPU 0/KVM-7000 [000] {s}.{us:06}: kvm_exit: vcpu 0 reason IO_INSTRUCTION rip 0x1 \
            info 0 0"
        )?;
        writeln!(
            t,
            " CPU 0/KVM-7000 [000] {s}.{:06}: kvm_pio: pio_read at {i:#x} size 4 count 1 val 0x4",
            us + 1
        )?;
        writeln!(
            t,
            " CPU 0/KVM-7000 [000] {s}.{:06}: kvm_entry: vcpu 0",
            us + 9
        )
    });
    vec![("trace.txt".into(), text)]
}

fn topology_alone(n: usize) -> Vec<(String, String)> {
    let mut files = domains(1, |_| format!("{LINUX}<vcpu>4</vcpu>"));
    files.push(topology(n));
    files
}

/// One line of brackets before a time.
fn brackets(n: usize) -> Vec<(String, String)> {
    let line = format!(
        "CPU 0/KVM-7000 {} 10.123456: kvm_entry: vcpu 0\n",
        "[".repeat(n)
    );
    vec![("trace.txt".into(), line + &trace(30)[0].1)]
}

fn attributes(n: usize) -> Vec<(String, String)> {
    let attributes = lines(n, |t, i| write!(t, " a{i}=''"));
    vec![(
        "domain.xml".into(),
        format!("<domain type='kvm'><name>a</name><x{attributes}/></domain>"),
    )]
}

/// Elements that each declare their own namespace, below an element that declares many.
fn namespaces(n: usize) -> Vec<(String, String)> {
    let declared = lines(200, |t, i| write!(t, " xmlns:n{i}='urn:{i}'"));
    let elements = lines(n, |t, i| write!(t, "<y xmlns:m='urn:m{i}'/>"));
    vec![(
        "domain.xml".into(),
        format!("<domain type='kvm'><name>a</name><x{declared}>{elements}</x></domain>"),
    )]
}

/// Domains in domains.
fn nested(n: usize) -> Vec<(String, String)> {
    vec![(
        "domain.xml".into(),
        format!("{}{}", "<domain>".repeat(n), "</domain>".repeat(n)),
    )]
}

/// A command line that mail wrapped again and again, with its program after a long prompt.
fn wrapped(n: usize) -> Vec<(String, String)> {
    let values = lines(n, |t, _| writeln!(t, "a,"));
    let command = format!(
        "{} /usr/bin/qemu-system-x86_64 -name a -smp 2 -device\n{values}",
        "x ".repeat(n)
    );
    vec![("script.txt".into(), command)]
}

/// Listings of regions, and aliases of the last one.
fn listings(n: usize) -> Vec<(String, String)> {
    let aliases = lines(n, |t, i| {
        let (start, end) = (0x1000 * i, 0x1000 * i + 0xfff);
        writeln!(
            t,
            "    {start:016x}-{end:016x} (prio {i}, i/o): alias a @r{} {start:016x}-{end:016x}",
            n - 1
        )
    });
    let listings = lines(n, |t, i| {
        writeln!(
            t,
            "memory-region: r{i}\n  0000000000000000-ffffffffffffffff (prio 0, i/o): r{i}\n"
        )
    });
    let root = "address-space: memory\n  0000000000000000-ffffffffffffffff (prio 0, i/o): system\n";
    vec![("mtree.txt".into(), format!("{root}{aliases}\n{listings}"))]
}

/// A very long run of titles, then rows.
fn titles(n: usize) -> Vec<(String, String)> {
    let more = "Min Time\n".repeat(n);
    vec![(
        "table.txt".into(),
        format!(
            "{EXITS}{more}{}",
            lines(n, |t, i| row(t, &format!("REASON_{i}"), 700))
        ),
    )]
}

fn columns(n: usize) -> Vec<(String, String)> {
    let titles = lines(n, |t, i| write!(t, ",C{i}"));
    let cpus = lines(2000, |t, cpu| writeln!(t, "{cpu},{cpu},0,0"));
    vec![(
        "lscpu.txt".into(),
        format!("# CPU{titles},Core,Socket,Node\n{cpus}"),
    )]
}
